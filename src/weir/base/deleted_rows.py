"""The deletion files of a version: the rows that they name, and checks before any are read with them.

A swapped or corrupted deletion file causes no error: replaced rows come back beside the new ones. So its row
count in the manifest and the checksum that Weir recorded are compared when a process first reads a version
with it. Later reads of the same version check nothing, and later versions only their new files.

On an object store, which has its own checksums, nothing is read for this.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import xxhash

from weir.base.file_checksums import recorded_checksums
from weir.base.manifest import TableManifest, read_manifest
from weir.base.sound_files import are_sound, not_known_to_be_sound
from weir.errors import CorruptionError, ObjectNotFoundError
from weir.format.deletion_file import Offsets, deleted_offsets, deleted_rows
from weir.format.table_manifest import VersionFile, decode_files
from weir.storage.checksum import FileDamage
from weir.storage.interface import ObjectStore

if TYPE_CHECKING:
    import lance

    from weir.base.table import BaseTable

__all__ = ["damaged_deletions", "deleted_in_fragment", "refuse_damaged_deletion_files"]

_REACH = 64
"""Versions after a deletion file's source version in which to look for its commit: few others intervene."""


def refuse_damaged_deletion_files(store: ObjectStore, version: int) -> None:
    """Make sure that the deletion files of a version are intact, each once in a process.

    Parameters
    ----------
    store : ObjectStore
        The table's store.
    version : int
        The version. A version that was cleaned up is skipped: reading it raises an error anyway.

    Raises
    ------
    CorruptionError
        One of them is not. It is named.
    """
    if not store.is_local:
        return
    try:
        manifest = read_manifest(store, version)
    except ObjectNotFoundError:
        return
    for one in damaged_deletions(store, manifest):
        raise CorruptionError(
            f"rows that were deleted or replaced would be read: {one.problem}",
            where=f"{store.uri}/{one.path}",
            hint="Restore the file from a backup; weir verify names all that are damaged",
        )


def deleted_in_fragment(base: BaseTable, fragment: lance.LanceFragment) -> Offsets | None:
    """Return the rows of a fragment that its deletion file names, ascending.

    Parameters
    ----------
    base : BaseTable
        A version on a local disk, whose deletion files were found intact.
    fragment : LanceFragment
        A fragment of it with a deletion file.

    Returns
    -------
    ndarray of uint32 or None
        None if the file is not there, or not in the table's directory: only the library reads it.
    """

    def load() -> Offsets | None:
        file, path = fragment.metadata.deletion_file, fragment.deletion_file()
        if file is None or path is None or file.base_id is not None:
            return None
        try:
            return deleted_offsets(base.store.get(path), path)
        except ObjectNotFoundError:
            return None

    return base.engine.cache.get_or_load(
        ("deleted", base.namespace, base.version_key, fragment.fragment_id),
        load,
        lambda offsets: 0 if offsets is None else offsets.nbytes,
        base.lifetime,
    )


def damaged_deletions(
    store: ObjectStore, manifest: TableManifest, *, again: bool = False
) -> tuple[FileDamage, ...]:
    """Return the deletion files of a version that are damaged.

    Missing ones are skipped: reading them raises an error anyway.

    Parameters
    ----------
    store : ObjectStore
        The table's store.
    manifest : TableManifest
        The manifest of the version.
    again : bool, default False
        Also check those that this process has found intact before.
    """
    if not store.is_local:
        return ()
    files = {file.path: file for file in decode_files(manifest.data, where=manifest.where).deletions}
    paths = list(files) if again else not_known_to_be_sound(store, files)
    if not paths:
        return ()
    written = recorded_checksums(store, paths, {one for path in paths for one in _versions(path)})
    problems = {path: _problem(store, files[path], written.get(path)) for path in paths}
    are_sound(store, [path for path, problem in problems.items() if problem is None])
    return tuple(FileDamage(path, problem) for path, problem in problems.items() if problem is not None)


def _versions(path: str) -> range:
    """Return which version may have been the first to have a deletion file, by its name."""
    read_version = int(path.rpartition("/")[2].split("-")[1])
    return range(read_version + 1, read_version + 1 + _REACH)


def _problem(store: ObjectStore, file: VersionFile, written: int | None) -> str | None:
    try:
        data = store.get(file.path)
    except ObjectNotFoundError:
        return None
    rows = deleted_rows(data, file.path)
    if rows is None:
        return f"the deletion file has {len(data)} bytes, and is none or not whole"
    if file.rows not in (None, rows):
        return f"the deletion file deletes {rows} rows, and {file.rows} rows were deleted"
    found = xxhash.xxh64_intdigest(data)
    if written not in (None, found):
        return f"the deletion file has the checksum {found:016x}, and {written:016x} was written"
    return None
