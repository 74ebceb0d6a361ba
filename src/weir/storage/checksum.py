"""Checksums of whole objects that have none of their own, such as Lance's files.

A bit that turned over in such a file may change a value without breaking anything. Readers do not look for
that: it would take all of every file, and they read a few pages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import xxhash

from weir.errors import ObjectNotFoundError
from weir.storage.interface import ObjectStore

__all__ = ["FileDamage", "checksum_of", "damaged_files"]

_PIECE_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class FileDamage:
    """A file that is not what was written.

    Parameters
    ----------
    path : str
        The file, relative to the root of the table.
    problem : str
        The problem, as text.
    """

    path: str
    problem: str


def checksum_of(store: ObjectStore, path: str, size: int) -> int:
    """Return the XXH64, seed 0, of an object.

    Reads all of it: one round trip for each 8 MiB.

    Parameters
    ----------
    store : ObjectStore
        The table's store.
    path : str
        The object.
    size : int
        Its size in bytes.

    Raises
    ------
    ObjectNotFoundError
        If it is gone.
    StorageError
        If the store failed.
    """
    digest = xxhash.xxh64()
    for start in range(0, size, _PIECE_BYTES):
        digest.update(memoryview(store.get_range(path, start, min(_PIECE_BYTES, size - start))))
    return digest.intdigest()


def damaged_files(
    store: ObjectStore, written: Mapping[str, int], sizes: Mapping[str, int]
) -> tuple[FileDamage, ...]:
    """Compare objects with the checksums of what was written. Reads all of each.

    Parameters
    ----------
    store : ObjectStore
        The table's store.
    written : mapping of str to int
        The checksum of each path.
    sizes : mapping of str to int
        The sizes of existing objects in bytes. Others are missing.

    Returns
    -------
    tuple of FileDamage
        Those that are missing or are not what was written, in the order of their paths.

    Raises
    ------
    StorageError
        If the store failed.
    """
    damaged = []
    for path, expected in sorted(written.items()):
        try:
            found = checksum_of(store, path, sizes[path]) if path in sizes else None
        except ObjectNotFoundError:
            found = None
        if found is None:
            damaged.append(FileDamage(path, "the file is missing"))
        elif found != expected:
            problem = f"the file has the checksum {found:016x}, and {expected:016x} was written"
            damaged.append(FileDamage(path, problem))
    return tuple(damaged)
