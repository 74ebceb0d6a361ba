"""The checksums of a generation's files: taken when they are written, compared on demand."""

from __future__ import annotations

from collections.abc import Container

from weir.base.manifest import VERSIONS
from weir.base.whole_files import refuse_torn
from weir.format import layout
from weir.format.generation_catalog import GenerationCatalog
from weir.format.table_manifest import VersionFile
from weir.storage.checksum import FileDamage, checksum_of, damaged_files
from weir.storage.interface import ObjectStore
from weir.storage.paths import is_temporary

__all__ = ["check_generation_files", "checksum_files"]


def checksum_files(store: ObjectStore, path: str, *, leave_out: Container[str] = ()) -> dict[str, int]:
    """Return the XXH64, seed 0, of every file of a generation, by its path in the directory.

    Reads all of them, a piece at a time: one listing, and one round trip for each 8 MiB of a file. What the
    library has written has to be whole before its checksums say that it is what was written.

    Parameters
    ----------
    store : ObjectStore
        The table's store, a local one.
    path : str
        The directory of the generation.
    leave_out : container of str
        Files to leave out, by their paths in the directory. The catalog is always left out.

    Raises
    ------
    StorageError
        Some of a file is missing that the library has written; or the store failed.
    """
    listed = {meta.path.removeprefix(f"{path}/"): meta.size for meta in store.list(path)}
    found = {name: size for name, size in listed.items() if not is_temporary(name)}
    # Their names count down.
    manifests = [name for name in found if name.startswith(f"{VERSIONS}/") and name.endswith(".manifest")]
    for newest in sorted(manifests)[:1]:
        refuse_torn(
            f"{store.uri}/{path}",
            store.get(f"{path}/{newest}"),
            where=f"{store.uri}/{path}/{newest}",
            besides=[VersionFile(name, None) for name in found if _is_of_key_index(name)],
        )
    return {
        name: checksum_of(store, f"{path}/{name}", size)
        for name, size in found.items()
        if name != layout.CATALOG and name not in leave_out
    }


def _is_of_key_index(name: str) -> bool:
    return name.startswith(f"{layout.PK_INDEX}/") and name.endswith(".lance")


def check_generation_files(
    store: ObjectStore, path: str, catalog: GenerationCatalog
) -> tuple[FileDamage, ...]:
    """Compare the files of a generation with the checksums that its catalog has.

    Reads all of them. Files without a checksum are skipped.

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
    sizes = {meta.path: meta.size for meta in store.list(path)}
    return damaged_files(
        store, {f"{path}/{name}": written for name, written in catalog.checksums.items()}, sizes
    )
