"""Checksums of the base table's files on local disk: taken at each commit by Weir, compared on demand.

Beside the files, since the library has no place for them (:mod:`weir.format.file_checksums`). There are none
on an object store: it has its own checksums, and all data would have to be transferred again. Files committed
by other software have none either, and pass.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Container, Iterable, Mapping
from uuid import uuid4

from lance.fragment import FragmentMetadata

from weir.base.manifest import read_manifest
from weir.engine.logs import get_logger
from weir.errors import CorruptionError, ObjectNotFoundError, StorageError
from weir.format import file_checksums
from weir.format.file_checksums import CHECKSUMS, checksums_path, version_of
from weir.format.table_manifest import decode_files
from weir.storage.checksum import FileDamage, checksum_of, damaged_files
from weir.storage.interface import ObjectStore

__all__ = [
    "compared",
    "damaged_base_files",
    "forget_checksums",
    "fragment_files",
    "record_checksums",
    "recorded_checksums",
    "refuse_damaged",
    "refuse_damaged_deletions",
    "refuse_damaged_version",
]

_log = get_logger(__name__)
_DELETIONS = "_deletions"
_DIRECTORIES = ("data", _DELETIONS, "_indices")


def record_checksums(store: ObjectStore, version: int, paths: Iterable[str]) -> None:
    """Record the checksums of files that a version has which was just committed.

    They are read once more, from memory if the system still has them there. The version counts whatever
    becomes of this: files without a checksum pass.

    Parameters
    ----------
    store : ObjectStore
        The table's store, a local one.
    version : int
        The version.
    paths : iterable of str
        The new files in it. All but data, deletion and index files are skipped.
    """
    # For an index whose files the manifest does not list, only its directory is known.
    chosen = sorted(
        path for path in paths if path.partition("/")[0] in _DIRECTORIES and "." in path.rpartition("/")[2]
    )
    if not chosen:
        return
    try:
        found = {}
        for path in chosen:
            meta = store.head(path)
            if meta is not None:
                found[path] = checksum_of(store, path, meta.size)
        store.put(checksums_path(version, uuid4().hex[:12]), file_checksums.encode(found))
    except StorageError as error:
        _log.warning("table.checksums_not_recorded", version=version, error=str(error))


def damaged_base_files(store: ObjectStore, paths: Collection[str]) -> tuple[FileDamage, ...]:
    """Compare files of the base table with their checksums. Reads all files that have one.

    Parameters
    ----------
    store : ObjectStore
        The table's store.
    paths : collection of str
        The files. Missing ones are skipped: a version that needs them raises an error.

    Returns
    -------
    tuple of FileDamage
        Those that are damaged, and objects of checksums that cannot be read, by path.

    Raises
    ------
    StorageError
        If the store failed.
    """
    if not store.is_local:
        return ()
    wanted, written, damaged = set(paths), dict[str, int](), list[FileDamage]()
    for path in _objects(store):
        try:
            found = file_checksums.decode(store.get(path), where=f"{store.uri}/{path}")
        except ObjectNotFoundError:
            continue  # dropped meanwhile, with its files
        except CorruptionError as error:
            damaged.append(FileDamage(path, error.message))
            continue
        written.update({file: one for file, one in found.items() if file in wanted})
    return (*damaged, *compared(store, written))


def compared(store: ObjectStore, written: Mapping[str, int]) -> tuple[FileDamage, ...]:
    """Return the files that differ from their checksums. Missing files are skipped."""
    sizes = {path: meta.size for path in written if (meta := store.head(path)) is not None}
    there = {path: one for path, one in written.items() if path in sizes}
    # One may be dropped meanwhile.
    return tuple(one for one in damaged_files(store, there, sizes) if store.head(one.path) is not None)


def recorded_checksums(
    store: ObjectStore, paths: Collection[str], versions: Container[int] | None = None
) -> dict[str, int]:
    """Return the checksums of files of the base table, as far as they were recorded.

    Parameters
    ----------
    store : ObjectStore
        The table's store, a local one.
    paths : collection of str
        Which files.
    versions : container of int, optional
        The versions that may have been the first to have them. Default: any.

    Raises
    ------
    StorageError
        If the store failed.
    """
    missing, written = set(paths), dict[str, int]()
    objects = [one for one in _objects(store) if versions is None or version_of(one) in versions]
    # Newest first: the files replaced or rewritten are mostly recent.
    for path in sorted(objects, key=version_of, reverse=True):
        with contextlib.suppress(ObjectNotFoundError, CorruptionError):  # verify names those
            found = file_checksums.decode(store.get(path), where=f"{store.uri}/{path}")
            written.update({file: found[file] for file in missing & found.keys()})
            missing -= found.keys()
        if not missing:
            break
    return written


def refuse_damaged(store: ObjectStore, paths: Collection[str], *, doing: str) -> None:
    """Check files of the base table against their checksums before their rows are rewritten.

    Parameters
    ----------
    store : ObjectStore
        The table's store.
    paths : collection of str
        Which files.
    doing : str
        What they are about to be read for, for the error.

    Raises
    ------
    CorruptionError
        One of them is not. It is named.
    StorageError
        If the store failed.
    """
    if not store.is_local:
        return
    for one in compared(store, recorded_checksums(store, paths) if paths else {}):
        raise CorruptionError(
            f"{doing} would copy the damage: {one.problem}",
            where=f"{store.uri}/{one.path}",
            hint="Restore the file from a backup; weir verify names all that are damaged",
        )


def refuse_damaged_version(store: ObjectStore, version: int, *, doing: str) -> None:
    """Make sure that the deletion files of a version are intact.

    Parameters
    ----------
    store, doing
        As for :func:`refuse_damaged`.
    version : int
        The version of the base table.

    Raises
    ------
    CorruptionError
        One of them is not.
    """
    with contextlib.suppress(ObjectNotFoundError):  # cleaned up meanwhile
        manifest = read_manifest(store, version)
        deletions = decode_files(manifest.data, where=manifest.where).deletions
        refuse_damaged(store, [file.path for file in deletions], doing=doing)


def refuse_damaged_deletions(store: ObjectStore, before: Collection[str], after: Collection[str]) -> None:
    """Make sure that deletion files which a version replaces are intact.

    The replacements will contain their rows, with valid checksums, which would hide damage.

    Parameters
    ----------
    store : ObjectStore
        The table's store.
    before, after : collection of str
        The files of the previous version and of the one about to be published.

    Raises
    ------
    CorruptionError
        One of them is not. It is named.
    StorageError
        If the store failed.
    """
    replaced = [path for path in before if path.startswith(f"{_DELETIONS}/") and path not in after]
    refuse_damaged(store, replaced, doing="deleting rows")


def fragment_files(fragments: Iterable[FragmentMetadata]) -> set[str]:
    """Return the files whose rows fragments have. Those below another table have no checksums here."""
    files = set[str]()
    for one in fragments:
        files.update(f"data/{file.path}" for file in one.files)
        if one.deletion_file is not None:
            files.add(one.deletion_file.path(one.id))
    return files


def forget_checksums(store: ObjectStore) -> None:
    """Delete the checksums of commits whose files no longer exist."""
    if not store.is_local:
        return
    objects = _objects(store)
    if not objects:
        return
    there = {meta.path for directory in _DIRECTORIES for meta in store.list(directory)}
    gone = []
    for path in objects:
        try:
            if there.isdisjoint(file_checksums.decode(store.get(path), where=f"{store.uri}/{path}")):
                gone.append(path)
        except (ObjectNotFoundError, CorruptionError):
            continue  # ``verify`` names the damaged files
    store.delete(gone)


def _objects(store: ObjectStore) -> list[str]:
    return [meta.path for meta in store.list(CHECKSUMS)]
