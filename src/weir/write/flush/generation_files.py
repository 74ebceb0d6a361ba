"""The checksums of a generation's files: taken when they have been written, compared by who checks them all.

Lance's files carry no checksum of their own, and a bit that turned over in them may change a value without
breaking anything. Readers do not look for that: it would take all of every file, and they read a few pages.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

import xxhash

from weir.errors import ObjectNotFoundError
from weir.format import layout
from weir.format.generation_catalog import GenerationCatalog
from weir.storage.interface import ObjectStore

__all__ = ["FileDamage", "check_generation_files", "checksum_files"]

_PIECE_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class FileDamage:
    """A file of a generation that is not what was written.

    Parameters
    ----------
    path : str
        The file, relative to the root of the table.
    problem : str
        What is wrong with it, for people.
    """

    path: str
    problem: str


def checksum_files(store: ObjectStore, path: str, *, leave_out: Container[str] = ()) -> dict[str, int]:
    """Return the XXH64, seed 0, of every file of a generation, by its path in the directory.

    Reads all of them, a piece at a time: one listing, and one round trip for each 8 MiB of a file.

    Parameters
    ----------
    store : ObjectStore
        The table's store.
    path : str
        The directory of the generation.
    leave_out : container of str
        Files to leave out, by their paths in the directory. The catalog is always left out.
    """
    found = {meta.path.removeprefix(f"{path}/"): meta.size for meta in store.list(path)}
    return {
        name: _checksum(store, f"{path}/{name}", size)
        for name, size in found.items()
        if name != layout.CATALOG and name not in leave_out
    }


def check_generation_files(
    store: ObjectStore, path: str, catalog: GenerationCatalog
) -> tuple[FileDamage, ...]:
    """Compare the files of a generation with the checksums that its catalog has.

    Reads all of them. Files without a checksum are passed over.

    Parameters
    ----------
    store : ObjectStore
        The table's store.
    path : str
        The directory of the generation.
    catalog : GenerationCatalog
        What the generation's catalog says.

    Returns
    -------
    tuple of FileDamage
        The files that are missing or are not what was written, in the order of their paths.

    Raises
    ------
    StorageError
        If the store failed.
    """
    damaged = []
    sizes = {meta.path: meta.size for meta in store.list(path)}
    for name, written in sorted(catalog.checksums.items()):
        file = f"{path}/{name}"
        try:
            found = None if file not in sizes else _checksum(store, file, sizes[file])
        except ObjectNotFoundError:
            found = None
        if found is None:
            damaged.append(FileDamage(file, "the file is missing"))
        elif found != written:
            problem = f"the file has the checksum {found:016x}, and {written:016x} was written"
            damaged.append(FileDamage(file, problem))
    return tuple(damaged)


def _checksum(store: ObjectStore, path: str, size: int) -> int:
    digest = xxhash.xxh64()
    for start in range(0, size, _PIECE_BYTES):
        digest.update(memoryview(store.get_range(path, start, min(_PIECE_BYTES, size - start))))
    return digest.intdigest()
