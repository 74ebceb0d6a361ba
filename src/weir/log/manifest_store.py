"""Reading and committing shard manifests (Lance MemWAL spec, "Shard Manifest Versioning").

Manifests are versioned from 1 and immutable; an update is a put-if-absent at the next version, so of
two processes that compete one wins and the other loads what the winner wrote.

Garbage collection deletes old versions, always the lowest one first. So an existing manifest proves that none
above it has been deleted, which distinguishes "never written" from "collected": a reader that finds nothing
after the versions it knows checks whether the manifest it began with still exists, and a committer that found
its version free checks the manifest it continued from. Otherwise a process that sleeps for long could take an
old manifest for the newest, or publish where it is never read.

It has to be the same manifest, not just one with that version: another sleeping process may have put its own
there after the first was collected, and not have removed it yet. Each carries the random stamp of its commit,
which distinguishes them.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache, partial
from uuid import UUID

from weir.engine.concurrent_map import Wave, concurrent_map
from weir.engine.logs import get_logger
from weir.errors import (
    ConflictError,
    CorruptionError,
    FencedError,
    ObjectExistsError,
    ObjectNotFoundError,
    WeirError,
)
from weir.format import layout, shard_manifest, version_hint
from weir.format.shard_manifest import ShardManifest
from weir.format.version_hint import VersionHint
from weir.storage.interface import ObjectStore

__all__ = [
    "commit_manifest",
    "is_replaced",
    "list_shards",
    "read_hinted_manifest",
    "read_latest_manifest",
    "read_manifest_version",
    "read_newer_manifest",
    "refuse_another_history",
    "update_manifest",
]

_log = get_logger(__name__)
_MAX_COMMIT_ATTEMPTS = 64
_MAX_READ_ATTEMPTS = 16


def list_shards(store: ObjectStore) -> tuple[UUID, ...]:
    """Return the ids of all shards that have a directory, in ascending order. One round trip."""
    found = map(_shard_id, store.list_directories(layout.MEM_WAL))
    return tuple(sorted(shard_id for shard_id in found if shard_id is not None))


@lru_cache(maxsize=4096)
def _shard_id(name: str) -> UUID | None:
    """Return the shard id of a directory name, or None if it is not that of a shard."""
    try:
        return UUID(name)
    except ValueError:
        return None


def read_manifest_version(store: ObjectStore, shard_id: UUID, version: int) -> ShardManifest | None:
    """Return one version of a shard's manifest, or None if it does not exist.

    Raises
    ------
    CorruptionError
        If it cannot be decoded, or is not the version its name says.
    """
    path = layout.manifest_path(shard_id, version)
    try:
        data = store.get(path)
    except ObjectNotFoundError:
        return None
    manifest = shard_manifest.decode(data, where=f"{store.uri}/{path}")
    if manifest.version != version or manifest.shard_id != shard_id:
        raise CorruptionError(
            f"shard manifest says it is version {manifest.version} of shard {manifest.shard_id}",
            where=f"{store.uri}/{path}",
            hint="The file was moved or overwritten; restore it from a backup",
        )
    return manifest


def read_latest_manifest(
    store: ObjectStore, shard_id: UUID, *, known: ShardManifest | None = None
) -> ShardManifest | None:
    """Return the newest manifest of a shard, or None if the shard has none.

    Parameters
    ----------
    store : ObjectStore
        The table's store.
    shard_id : UUID
        The shard.
    known : ShardManifest, optional
        The newest manifest as returned earlier: only later ones are searched, which takes two requests in one
        wave if there is none. Without it, the version hint is read first, and if the released library wrote
        the hint, also a listing and what it shows.

    Raises
    ------
    CorruptionError
        If a manifest cannot be decoded or is not the one its name says.
    ConflictError
        If garbage collection kept passing what was being read.
    """
    begun = known
    for _ in range(_MAX_READ_ATTEMPTS):
        if begun is None:
            hint = _read_hint(store, shard_id)
            if hint is not None and hint.write_id:
                found = _newest_after(store, shard_id, hint.version, partial(_has_stamp, hint.write_id))
                if found is not None:
                    return found
            begun = _read_listed(store, shard_id)
            _refuse_gone(store, shard_id, hint, begun)
            if begun is None:
                return None
        found = _newest_after(store, shard_id, begun.version, partial(_is_same, begun))
        if found is not None:
            return found
        begun = None
    raise ConflictError(
        f"the manifest of shard {shard_id} was collected during {_MAX_READ_ATTEMPTS} attempts to read it",
        where=store.uri,
        hint="Collect garbage with a longer horizon",
    )


def read_newer_manifest(store: ObjectStore, shard_id: UUID, known: ShardManifest) -> ShardManifest | None:
    """Return the newest manifest of a shard that comes after a known one: this one if there is none.

    As many requests as :func:`read_latest_manifest` makes from there.

    Returns
    -------
    ShardManifest or None
        None if the known one is not there any more: it was collected, or a backup was put in the place of the
        table (:func:`is_replaced`).
    """
    return _newest_after(store, shard_id, known.version, partial(_is_same, known))


def is_replaced(store: ObjectStore, manifest: ShardManifest) -> bool:
    """Whether another manifest has the version of one that was read. One request.

    Not if it was collected: then nobody can tell whether there was another one.
    """
    found = read_manifest_version(store, manifest.shard_id, manifest.version)
    return found is not None and not _is_same(manifest, found)


def read_hinted_manifest(store: ObjectStore, shard_id: UUID) -> ShardManifest | None:
    """Return the manifest that the version hint of a shard means, which most often is the newest.

    Two sequential requests; the second is skipped without a hint by Weir.
    """
    hint = _read_hint(store, shard_id)
    if hint is None or not hint.write_id:
        return None
    found = read_manifest_version(store, shard_id, hint.version)
    return found if _has_stamp(hint.write_id, found) else None


def _newest_after(
    store: ObjectStore, shard_id: UUID, version: int, is_known: Callable[[ShardManifest | None], bool]
) -> ShardManifest | None:
    """Return the newest manifest from a version on, or None if that of the version is not the known one.

    Then it was collected, and perhaps those after it too, so the absence of a successor means nothing. Hence
    it has to be checked after its successor was not found.
    """
    read = partial(read_manifest_version, store, shard_id)
    latest: ShardManifest | None = None
    newest = version
    while True:
        wave = Wave()
        asked = (newest + 1, version)
        newer, begun = concurrent_map(read, asked, is_local=store.is_local, engine=store.engine)
        if not is_known(begun):
            return None
        if newer is None:
            return latest or begun if wave.was_short() or is_known(read(version)) else None
        latest, newest = newer, newer.version


def _is_same(manifest: ShardManifest, found: ShardManifest | None) -> bool:
    """Whether the stored manifest of a version is that very manifest."""
    return _has_stamp(manifest.write_id, found) if manifest.write_id else found == manifest


def _has_stamp(write_id: bytes, found: ShardManifest | None) -> bool:
    return found is not None and found.write_id == write_id


def _is_there(store: ObjectStore, manifest: ShardManifest) -> bool:
    """Whether a manifest has not been collected."""
    return _is_same(manifest, read_manifest_version(store, manifest.shard_id, manifest.version))


def _read_hint(store: ObjectStore, shard_id: UUID) -> VersionHint | None:
    try:
        return version_hint.decode(store.get(layout.version_hint_path(shard_id)))
    except ObjectNotFoundError:
        return None


def _refuse_gone(
    store: ObjectStore, shard_id: UUID, hint: VersionHint | None, found: ShardManifest | None
) -> None:
    """Refuse a newest manifest that is older than the one the version hint means."""
    if hint is not None and hint.proved and hint.version > (0 if found is None else found.version):
        # It is written after the manifest, and the newest is never collected.
        raise CorruptionError(
            f"the manifest of shard {shard_id} is gone: its version hint says {hint.version}, and "
            + ("there is none" if found is None else f"the newest there is has version {found.version}"),
            where=f"{store.uri}/{layout.manifest_path(shard_id, hint.version)}",
            hint="Restore it from a backup; what was committed with it cannot be found without it",
        )


def _read_listed(store: ObjectStore, shard_id: UUID) -> ShardManifest | None:
    """Return the newest manifest in a listing, above one that was published out of reach."""
    for version in sorted(_listed_versions(store, shard_id), reverse=True):
        manifest = read_manifest_version(store, shard_id, version)
        if manifest is not None:
            return manifest
    return None


def _listed_versions(store: ObjectStore, shard_id: UUID) -> set[int]:
    versions = set()
    for entry in store.list(layout.manifest_directory(shard_id)):
        try:
            versions.add(layout.parse_manifest_name(entry.path.rsplit("/", 1)[-1]))
        except ValueError:
            continue
    return versions


def commit_manifest(
    store: ObjectStore, manifest: ShardManifest, *, after: ShardManifest | None, absent: Wave | None = None
) -> ShardManifest | None:
    """Publish ``manifest`` as the version it carries.

    It gets a fresh write id, which identifies a commit whose answer was lost as our own (invariant I4).

    Parameters
    ----------
    store : ObjectStore
        The table's store.
    manifest : ShardManifest
        What to publish.
    after : ShardManifest, optional
        The manifest of the previous version that it continues from; None for the first of a shard.
    absent : Wave, optional
        For the first manifest: begun before the shard was found missing. In so short a time it cannot have
        been created and collected.

    Returns
    -------
    ShardManifest or None
        The manifest as published, or None if another process took the version. After a sleep so long that
        garbage collection has passed the version, None can also mean that the outcome is unknown; if the
        change is in the newest manifest, it was made.
    """
    stamped = replace(manifest, write_id=secrets.token_bytes(16))
    path = layout.manifest_path(manifest.shard_id, manifest.version)
    try:
        store.put_if_absent(path, shard_manifest.encode(stamped))
    except ObjectExistsError:
        winner = read_manifest_version(store, manifest.shard_id, manifest.version)
        if winner is None or winner.write_id != stamped.write_id:
            return None
    is_first = after is None and absent is not None and absent.was_short()
    if not is_first and not _is_in_line(store, stamped, after):
        return None
    try:
        hint = version_hint.encode(VersionHint(manifest.version, stamped.write_id))
        store.put(layout.version_hint_path(manifest.shard_id), hint)
    except WeirError as error:
        # Spec: failure is acceptable, readers probe onwards from any older hint.
        _log.warning(
            "shard.version_hint_not_written",
            shard=str(manifest.shard_id),
            version=manifest.version,
            error=str(error),
        )
    return stamped


def refuse_another_history(store: ObjectStore, known: ShardManifest) -> None:
    """Refuse to continue from a missing manifest if none is newer: the newest is never collected.

    Raises
    ------
    FencedError
        A backup was put in the place of the table since it was read.
    """
    if _is_there(store, known):
        return
    versions = _listed_versions(store, known.shard_id)
    if versions and max(versions) <= known.version:
        raise FencedError(
            f"manifest {known.version} of shard {known.shard_id} is gone, and no newer one exists",
            where=f"{store.uri}/{layout.manifest_path(known.shard_id, known.version)}",
            hint="A backup was restored in place of the table: open a new writer to continue from it",
        )


def _is_in_line(store: ObjectStore, manifest: ShardManifest, after: ShardManifest | None) -> bool:
    """Whether a manifest that was just put follows the one it continues from.

    If that still exists, nothing from its version on was ever collected, and the name was free because it had
    not been taken.
    """
    shard_id, version = manifest.shard_id, manifest.version
    if after is not None and _is_there(store, after):
        return True
    versions = _listed_versions(store, shard_id)
    newest = max(versions, default=version)
    if newest == version:
        # The newest is never collected: those before it are gone, it is in its place.
        return True
    following = layout.manifest_path(shard_id, version + 1)
    if version in versions and version + 1 not in versions and store.head(following) is None:
        # A gap above it: the version had been collected, and this one is out of reach. A listing takes a
        # while, and may show the last object but not an earlier one: hence the second check.
        store.delete([layout.manifest_path(shard_id, version)])
        _log.warning("shard.manifest_out_of_line", shard=str(shard_id), version=version, newest=newest)
    return False


def update_manifest(
    store: ObjectStore,
    shard_id: UUID,
    change: Callable[[ShardManifest], ShardManifest],
    *,
    known: ShardManifest | None = None,
) -> ShardManifest:
    """Apply ``change`` to the newest manifest and publish the result as the next version.

    Parameters
    ----------
    change : callable
        Maps the newest manifest to what should follow it (the version is set here). It is called again after
        a lost race, and raises to give up: its exceptions pass through.
    known : ShardManifest, optional
        A version read a moment ago: ``change`` is given it first, and it is looked for a newer one if its
        successor cannot be published.

    Raises
    ------
    ObjectNotFoundError
        If the shard has no manifest.
    ConflictError
        If other processes took every version tried.
    """
    for attempt in range(_MAX_COMMIT_ATTEMPTS):
        is_known = attempt == 0 and known is not None
        latest = known if is_known else read_latest_manifest(store, shard_id, known=known)
        if latest is None:
            raise ObjectNotFoundError(
                "the shard has no manifest", where=f"{store.uri}/{layout.manifest_directory(shard_id)}"
            )
        published = commit_manifest(store, replace(change(latest), version=latest.version + 1), after=latest)
        if published is not None:
            return published
        known = latest
    raise ConflictError(
        f"the manifest of shard {shard_id} kept changing during {_MAX_COMMIT_ATTEMPTS} attempts",
        where=store.uri,
        hint="Look for several processes that claim the same shard in turn",
    )
