"""Versions of the base table torn by a power loss: finding them and setting them aside.

All that Weir commits is on the disk before it can be found (:mod:`weir.base.durability`). Lance alone syncs
nothing, and the newest versions of a local table that it has committed may come back from a loss of power
with a manifest or files that are empty, short or gone. Such a version is *torn*.

A reader reads the newest intact version, and changes nothing. The next committer first republishes that
version above the torn ones, and then sets these aside: their manifests move to ``_weir/torn_versions``, and
nothing is deleted. Their merges are made again: garbage collection makes a version durable before it relies
on it.

There is no waiting here. Two processes that do this at once publish the same bytes under the same number, and
move the same files. No number comes back (:mod:`weir.base.spent_versions`), so that one who sleeps in the
middle moves nothing else when it wakes.

What looks torn and is not what a loss of power leaves is an error, and stays where it is: versions whose
commits lie far apart, and those without which merged generations would be missing that have been collected.
But a version whose only torn files are indexes is read: its rows are all there, reads that need a damaged
index raise an error, and :mod:`weir.maintenance.index_repairs` rebuilds it from the rows.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import threading
import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from cachetools import LRUCache

from weir.base.durability import make_durable
from weir.base.manifest import VERSIONS, TableManifest, manifest_path, manifest_version
from weir.base.spent_versions import SET_ASIDE, set_aside_path
from weir.engine import failpoint
from weir.engine.logs import get_logger
from weir.errors import ConflictError, CorruptionError, InputError, ObjectExistsError, ObjectNotFoundError
from weir.format import first_index_details, layout, shard_manifest
from weir.format.deletion_file import is_whole_deletion_file
from weir.format.table_manifest import VersionFile, decode_files, with_version
from weir.storage.interface import Bytes, ObjectMeta, ObjectStore
from weir.storage.local_errors import reporting
from weir.storage.local_files import sync_directory

__all__ = [
    "SET_ASIDE",
    "SoundVersion",
    "TornVersion",
    "is_history_torn",
    "is_torn_size",
    "newest_sound_version",
    "set_aside",
    "set_history_aside",
    "unreadable_history",
    "what_is_torn",
]

_log = get_logger(__name__)

_HINT = f"{VERSIONS}/latest_version_hint.json"
_UNSYNCED_FOR = timedelta(minutes=15)
"""No system keeps what was written from the disk for longer: versions torn by one loss of power were
committed within it."""
_INDEXES = "_indices/"
_MAGIC = b"LANC"
_TAIL = 16
_BLOCK = 512
"""Bytes of the smallest block of a file system."""
_ATTEMPTS = 32
_TABLES = 256

_whole: LRUCache[str, frozenset[str]] = LRUCache(_TABLES)
_told: LRUCache[tuple[str, str], bool] = LRUCache(_TABLES)
_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class TornVersion:
    """A version of a table that cannot be read, newer than all that can.

    Parameters
    ----------
    version : int
        The version.
    path : str
        Path of its manifest.
    reason : str
        The torn files, and how they are torn.
    committed_at : datetime
        When its manifest was written, by the clock of the file system.
    """

    version: int
    path: str
    reason: str
    committed_at: datetime


@dataclass(frozen=True, slots=True)
class SoundVersion:
    """The newest version of a table that can be read.

    Parameters
    ----------
    manifest : TableManifest
        Its manifest.
    torn : tuple of TornVersion
        Newer ones that cannot, descending.
    """

    manifest: TableManifest
    torn: tuple[TornVersion, ...]


def what_is_torn(store: ObjectStore, manifest: TableManifest, *, indexes: bool = True) -> str | None:
    """Return what of a version is empty, short or gone; None if all is there.

    A process checks each file once: its name is random, and it does not change.

    Parameters
    ----------
    store : ObjectStore
        The table's store. Objects of a store that is not local are always complete.
    manifest : TableManifest
        The manifest of the version.
    indexes : bool, default True
        Whether to check index files too.
    """
    if not store.is_local:
        return None
    if _is_cut_short(manifest.data, _MAGIC):
        return f"its manifest has only {len(manifest.data)} bytes that were written, or zeros at its end"
    try:
        files = decode_files(manifest.data, where=manifest.where)
    except CorruptionError:
        return None  # not the result of a power loss: reading it raises an error
    with _lock:
        known = _whole.get(store.uri, frozenset())
    recent = time.time() - _UNSYNCED_FOR.total_seconds()
    with contextlib.suppress(OSError):
        recent = os.stat(os.path.join(store.uri, manifest.path)).st_mtime - _UNSYNCED_FOR.total_seconds()
    needed = [file for file in files.needed if indexes or not file.path.startswith(_INDEXES)]
    for file in needed:
        if file.path not in known:
            location = os.path.join(store.uri, file.path)
            # An unreadable disk does not show what is on it.
            with reporting("Looking whether a version is whole", location):
                torn = _tear(location, file, recent)
            if torn is not None:
                return f"{file.path} {torn}"
    with _lock:
        # Those of older versions are not asked for again.
        _whole[store.uri] = frozenset(file.path for file in needed)
    return None


def _tear(location: str, file: VersionFile, recent: float) -> str | None:
    try:
        status = os.stat(location)
    except OSError as error:
        # If an index has no list of its files, it is unknown whether it has any.
        no_list = file.size is None and "." not in os.path.basename(file.path)
        return None if no_list or error.errno not in (errno.ENOENT, errno.ENOTDIR) else "is gone"
    if stat.S_ISDIR(status.st_mode):
        empty = [name for name in os.listdir(location) if not os.path.getsize(os.path.join(location, name))]
        return f"has an empty file {empty[0]}" if empty else None
    if file.size is not None and status.st_size < file.size:
        return f"has {status.st_size} bytes where {file.size} were written"
    if not status.st_size:
        return "is empty"
    if status.st_mtime < recent:
        return None
    with open(location, "rb") as opened:
        if file.path.startswith("_deletions/"):
            data = opened.read()
            if is_whole_deletion_file(data, file.path) or not _is_cut_short(data, b""):
                return None
            return f"has only {len(data)} bytes that were written, or zeros at its end"
        opened.seek(-len(_MAGIC), os.SEEK_END)
        return "has zeros at its end" if opened.read() == bytes(len(_MAGIC)) else None


def _is_cut_short(data: Bytes, end: bytes) -> bool:
    """Whether a file ends like one cut off by a power loss: at a block boundary, or in zeros."""
    tail = bytes(memoryview(data)[-_TAIL:])
    if end and tail.endswith(end):
        return False
    return len(data) % _BLOCK == 0 or tail == bytes(_TAIL)


def newest_sound_version(store: ObjectStore) -> SoundVersion | None:
    """Return the newest version of a local table that can be read, and those above it that cannot.

    If there is none to go back to, a version with only torn indexes can be read.

    Returns
    -------
    SoundVersion or None
        None if there is no table.

    Raises
    ------
    CorruptionError
        No version can be read, or the damage is not that of a power loss.
    """
    try:
        return _newest_sound(store, indexes=True)
    except CorruptionError:
        with contextlib.suppress(CorruptionError):
            return _newest_sound(store, indexes=False)
        raise


def _newest_sound(store: ObjectStore, *, indexes: bool) -> SoundVersion | None:
    listed = _listed(store)
    torn: list[TornVersion] = []
    for version in sorted(listed, reverse=True):
        entry = listed[version]
        try:
            data = store.get(entry.path)
        except ObjectNotFoundError:
            continue  # set aside or cleaned up since
        manifest = TableManifest(version, entry.path, data, f"{store.uri}/{entry.path}")
        reason = what_is_torn(store, manifest, indexes=indexes)
        if reason is None:
            found = SoundVersion(manifest, tuple(torn))
            _check(store, found)
            _report(store, found)
            return found
        torn.append(TornVersion(version, entry.path, reason, entry.last_modified))
    if not torn:
        return None
    raise CorruptionError(
        f"none of the {len(torn)} versions of the table can be read; of the newest, {torn[0].reason}",
        where=f"{store.uri}/{torn[0].path}",
        hint="Restore the table from a backup",
    )


def _listed(store: ObjectStore) -> dict[int, ObjectMeta]:
    listed = ((manifest_version(entry.path), entry) for entry in store.list(VERSIONS))
    return {version: entry for version, entry in listed if version is not None}


def _check(store: ObjectStore, found: SoundVersion) -> None:
    """Refuse to go back to a version if that is not what a loss of power asks for."""
    if not found.torn:
        return
    newest, oldest = found.torn[0], found.torn[-1]
    where = f"{store.uri}/{newest.path}"
    if newest.committed_at - oldest.committed_at > _UNSYNCED_FOR:
        raise CorruptionError(
            f"of version {newest.version}, {newest.reason}; so it is with {len(found.torn)} versions, "
            "committed too far apart for one loss of power",
            where=where,
            hint=f"Restore what is missing from a backup; version {found.manifest.version} can be read",
        )
    missing = _collected(store, found.manifest)
    if missing is not None:
        raise CorruptionError(
            f"of version {newest.version}, {newest.reason}, "
            f"and the rows it had merged are nowhere else: {missing}",
            where=where,
            hint="Restore what is missing from a backup",
        )


def _collected(store: ObjectStore, manifest: TableManifest) -> str | None:
    """Return a generation that a version lacks and that can no longer be merged; None if there is none."""
    index = manifest.mem_wal_index()
    if index is None or first_index_details.is_first_form(index.details):
        return None
    details = manifest.decode_details(index)
    for name in store.list_directories(layout.MEM_WAL):
        try:
            shard_id = UUID(name)
        except ValueError:
            continue
        newest: tuple[int, str] | None = None
        for entry in store.list(layout.manifest_directory(shard_id)):
            with contextlib.suppress(InputError):
                version = layout.parse_manifest_name(os.path.basename(entry.path))
                newest = max(newest or (0, ""), (version, entry.path))
        if newest is None:
            continue
        state = shard_manifest.decode(store.get(newest[1]), where=f"{store.uri}/{newest[1]}")
        listed = {one.generation for one in state.flushed_generations}
        for generation in range(details.merged_generation(shard_id) + 1, state.current_generation):
            if generation not in listed:
                return f"generation {generation} of shard {shard_id} has been collected"
    return None


def _report(store: ObjectStore, found: SoundVersion) -> None:
    for one in found.torn:
        with _lock:
            told = (store.uri, f"{one.path} {one.reason}")
            known = told in _told
            _told[told] = True
        if not known:
            _log.warning(
                "table.version_torn",
                version=one.version,
                where=f"{store.uri}/{one.path}",
                reason=one.reason,
                read_instead=found.manifest.version,
            )


def set_aside(store: ObjectStore) -> tuple[TornVersion, ...]:
    """Publish the newest sound version above the torn ones, and set these aside: now others can commit.

    Returns
    -------
    tuple of TornVersion
        The versions that were set aside, newest first.

    Raises
    ------
    ConflictError
        Others kept committing meanwhile, and all they committed was torn.
    CorruptionError
        The damage is not that of a power loss. Nothing was set aside.
    """
    torn: tuple[TornVersion, ...] = ()
    for _ in range(_ATTEMPTS):
        found = newest_sound_version(store)
        if found is None or not found.torn:
            _move(store, torn)
            return torn
        torn = found.torn
        _publish_again(store, found)
        failpoint.reach("set_aside.after_publish")
    raise ConflictError(
        f"the newest version of the table was torn after {_ATTEMPTS} attempts to put a sound one above it",
        where=f"{store.uri}/{torn[0].path}",
        hint="Look for a process that writes to the table with another library, and stop it",
    )


def _publish_again(store: ObjectStore, found: SoundVersion) -> None:
    """Publish a version once more, under the number above the newest torn one."""
    sound = found.manifest
    number = found.torn[0].version + 1
    make_durable(store, sound.version)
    # It names a version to be removed; the library finds the newest one without it.
    store.delete([_HINT])
    with contextlib.suppress(ObjectExistsError):  # by another process that did the same, or committed
        store.put_if_absent(
            manifest_path(number, counts_down=sound.counts_down),
            with_version(sound.data, number, where=sound.where),
        )


def unreadable_history(store: ObjectStore, *, by_size: bool = False) -> tuple[TornVersion, ...]:
    """Return the versions below the newest intact one whose manifests are unreadable, descending.

    Newer versions do not need them; who removes old versions does.

    Parameters
    ----------
    store : ObjectStore
        The local directory of the table.
    by_size : bool, default False
        Whether to read only manifests of the sizes of torn ones (:func:`is_torn_size`), which is one of four
        thousand that are intact, instead of all.
    """
    found = newest_sound_version(store)
    unreadable: list[TornVersion] = []
    for version, entry in sorted(_listed(store).items(), reverse=True):
        if found is None or version >= found.manifest.version or (by_size and not is_torn_size(entry.size)):
            continue
        try:
            decode_files(store.get(entry.path), where=f"{store.uri}/{entry.path}")
        except CorruptionError as error:
            unreadable.append(TornVersion(version, entry.path, error.message, entry.last_modified))
        except ObjectNotFoundError:
            continue
    return tuple(unreadable)


def is_torn_size(nbytes: int) -> bool:
    """Whether a manifest of that size may be what a loss of power has left of one: whole blocks, or none."""
    return nbytes % _BLOCK == 0


def is_history_torn(store: ObjectStore) -> bool:
    """Whether versions below the newest sound one cannot be read, all of them as a loss of power leaves some.

    A power loss may leave a manifest of full length with zeros at its end, so this has to be checked.
    """
    unreadable = unreadable_history(store)
    try:
        return bool(unreadable) and all(_is_cut_short(store.get(one.path), _MAGIC) for one in unreadable)
    except ObjectNotFoundError:
        return True  # another process has set it aside since


def set_history_aside(store: ObjectStore, *, by_size: bool = False) -> tuple[TornVersion, ...]:
    """Set the manifests aside that :func:`unreadable_history` returns, and return them."""
    chosen = unreadable_history(store, by_size=by_size)
    _move(store, chosen)
    return chosen


def _move(store: ObjectStore, chosen: tuple[TornVersion, ...]) -> None:
    if not chosen:
        return
    directory = os.path.join(store.uri, SET_ASIDE)
    with reporting("Setting torn versions aside", store.uri):
        os.makedirs(directory, exist_ok=True)
        for made in (store.uri, os.path.dirname(directory)):
            sync_directory(made)
        for one in chosen:
            failpoint.reach("set_aside.before_move")
            with contextlib.suppress(FileNotFoundError):  # another process has moved it
                os.rename(
                    os.path.join(store.uri, one.path), os.path.join(store.uri, set_aside_path(one.version))
                )
        sync_directory(directory)
        sync_directory(os.path.join(store.uri, VERSIONS))
    for one in chosen:
        _log.warning(
            "table.version_set_aside", version=one.version, where=f"{store.uri}/{one.path}", reason=one.reason
        )
