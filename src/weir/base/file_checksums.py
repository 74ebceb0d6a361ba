"""Checksums of the base table's files on local disk: taken when Weir commits them, compared by who asks.

Beside the files, since the library has no place for them (:mod:`weir.format.file_checksums`). On an object
store there are none: it keeps checksums of its own, and everything would have to be sent once more. Files
that others have committed have none either, and pass.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from uuid import uuid4

from weir.engine.logs import get_logger
from weir.errors import CorruptionError, ObjectNotFoundError, StorageError
from weir.format import file_checksums
from weir.format.file_checksums import CHECKSUMS, checksums_path
from weir.storage.checksum import FileDamage, checksum_of, damaged_files
from weir.storage.interface import ObjectStore

__all__ = ["damaged_base_files", "forget_checksums", "record_checksums", "refuse_damaged"]

_log = get_logger(__name__)
_DIRECTORIES = ("data", "_deletions")


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
        What is new in it. Whatever is not in ``data`` or ``_deletions`` is passed over.
    """
    chosen = sorted(path for path in paths if path.partition("/")[0] in _DIRECTORIES)
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
    """Compare files of the base table with what was written. Reads all of those that have a checksum.

    Parameters
    ----------
    store : ObjectStore
        The table's store.
    paths : collection of str
        Which files. What is missing is passed over: a version that needs it says so.

    Returns
    -------
    tuple of FileDamage
        Those that are not what was written, and objects of checksums that cannot be read, by path.

    Raises
    ------
    StorageError
        If the store failed.
    """
    if not store.is_local:
        return ()
    wanted, written, damaged = set(paths), {}, []
    for path in _objects(store):
        try:
            found = file_checksums.decode(store.get(path), where=f"{store.uri}/{path}")
        except ObjectNotFoundError:
            continue  # dropped meanwhile, with its files
        except CorruptionError as error:
            damaged.append(FileDamage(path, error.message))
            continue
        written.update({file: one for file, one in found.items() if file in wanted})
    sizes = {path: meta.size for path in written if (meta := store.head(path)) is not None}
    there = {path: one for path, one in written.items() if path in sizes}
    return (*damaged, *damaged_files(store, there, sizes))


def refuse_damaged(store: ObjectStore, paths: Collection[str], *, doing: str) -> None:
    """Make sure that files of the base table are what was written, before their rows are written anew.

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
    for one in damaged_base_files(store, paths):
        if one.path in paths:
            raise CorruptionError(
                f"{doing} would carry damage on: {one.problem}",
                where=f"{store.uri}/{one.path}",
                hint="Restore the file from a backup; weir verify names all that are damaged",
            )


def forget_checksums(store: ObjectStore) -> None:
    """Delete the checksums of commits of which no file is there any more."""
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
            continue  # verify names what is damaged
    store.delete(gone)


def _objects(store: ObjectStore) -> list[str]:
    return [meta.path for meta in store.list(CHECKSUMS)]
