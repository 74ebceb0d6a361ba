"""Checking index files against their checksums before they are used for results or new indexes."""

from __future__ import annotations

from collections.abc import Callable, Collection

from weir.base.file_checksums import compared, recorded_checksums
from weir.base.manifest import read_manifest
from weir.base.sound_files import refuse_unsound
from weir.base.table import BaseTable
from weir.errors import ObjectNotFoundError
from weir.format.table_manifest import VersionFile, decode_files, decode_index_section
from weir.storage.checksum import FileDamage

__all__ = ["damaged_index_files", "refuse_damaged_index_files", "refuse_damaged_indexes"]

_REACH = 64
"""Number of versions after the source version of a segment in which to look for its commit."""


def refuse_damaged_indexes(base: BaseTable, names: Collection[str] | None = None, *, doing: str) -> None:
    """Make sure that indexes are intact before the library writes others from them.

    It trusts what it reads from them, and its output gets new checksums.

    Parameters
    ----------
    base : BaseTable
        The version. Nothing is read on an object store.
    names : collection of str, optional
        Which indexes. Default: all.
    doing : str
        What they are about to be read for, for the error.

    Raises
    ------
    CorruptionError
        A file of one is not. It is named.
    """
    refuse_damaged_index_files(
        base,
        names,
        lambda _: True,
        because=f"{doing} would copy the damage",
        hint="weir repair rebuilds the index from the rows",
    )


def refuse_damaged_index_files(
    base: BaseTable,
    names: Collection[str] | None,
    is_chosen: Callable[[VersionFile], bool],
    *,
    because: str,
    hint: str,
) -> None:
    """Make sure that some files of some indexes are intact; each is read once by a process.

    Parameters
    ----------
    base : BaseTable
        The version. Nothing is read on an object store.
    names : collection of str or None
        Which indexes; None for all.
    is_chosen : callable
        Decides whether to check a file of theirs.
    because, hint : str
        What would become of it if one is not, and what to do then.

    Raises
    ------
    CorruptionError
        One of them is not. It is named.
    """
    if not base.store.is_local:
        return
    files, built = _files(base, names)
    chosen = [file.path for file in files if is_chosen(file)]
    reach = {version + 1 + more for version in built for more in range(_REACH)}
    refuse_unsound(base.store, chosen, reach, because=because, hint=hint)


def damaged_index_files(base: BaseTable, name: str) -> tuple[FileDamage, ...]:
    """Return the damaged files of an index of a local table. Reads all of them.

    Parameters
    ----------
    base : BaseTable
        The version.
    name : str
        The index.
    """
    if not base.store.is_local:
        return ()
    paths = [file.path for file in _files(base, {name})[0]]
    return compared(base.store, recorded_checksums(base.store, paths)) if paths else ()


def _files(base: BaseTable, names: Collection[str] | None) -> tuple[list[VersionFile], set[int]]:
    """Return the files of some indexes, and from which versions their segments were built."""
    try:
        manifest = read_manifest(base.store, base.version)
    except ObjectNotFoundError:
        return [], set()  # cleaned up meanwhile
    built = {
        str(entry.uuid): entry.dataset_version
        for entry in decode_index_section(manifest.data, where=manifest.where)
        if names is None or entry.name in names
    }
    files = decode_files(manifest.data, where=manifest.where).indexes
    return [file for file in files if file.path.split("/")[1] in built], set(built.values())
