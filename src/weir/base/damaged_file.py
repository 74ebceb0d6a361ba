"""Locating the damaged file of a local Lance dataset when the library's error does not name it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from weir.base.file_checksums import compared, recorded_checksums
from weir.base.manifest import VERSIONS, manifest_version
from weir.base.whole_files import tear
from weir.errors import CorruptionError, ObjectNotFoundError, StorageError
from weir.format import generation_catalog, layout
from weir.format.table_manifest import VersionFile, decode_files
from weir.storage.interface import ObjectStore
from weir.storage.local import LocalStore

__all__ = ["damaged_file"]

_MAGIC = b"LANC"
_COMPARED_BYTES = 256 * 1024 * 1024
"""Bytes of the files that are compared with their checksums, the smallest first."""


def damaged_file(uri: str) -> str:
    """Return where the first file is that is gone, short, or does not end as its kind does.

    Checks the lengths of the files of the newest version, and if all are whole, compares them with their
    checksums. To be asked when a read has failed: it opens all of them.

    Parameters
    ----------
    uri : str
        Location of the dataset.

    Returns
    -------
    str
        Location of the file; ``uri`` if that is not a directory, or no file shows it.
    """
    try:
        versions = {manifest_version(f"{VERSIONS}/{name}"): name for name in os.listdir(f"{uri}/{VERSIONS}")}
        newest = max(version for version in versions if version is not None)
        path = f"{uri}/{VERSIONS}/{versions[newest]}"
        with open(path, "rb") as manifest:
            data = manifest.read()
    except (OSError, ValueError):
        return uri
    try:
        files = decode_files(data, where=path)
    except CorruptionError:
        return path
    if not data.endswith(_MAGIC):
        return path
    # If an index has no list of its files, it is unknown whether it has any.
    chosen = [
        file for file in files.deletions + files.data + files.indexes if "." in os.path.basename(file.path)
    ]
    for file in chosen:
        location = f"{uri}/{file.path}"
        if not _is_whole(location, file):
            return location
    return _unlike_its_checksum(uri, chosen) or uri


def _unlike_its_checksum(uri: str, files: Sequence[VersionFile]) -> str | None:
    """Return the location of the first damaged file: of the base table, or of a generation."""
    store = LocalStore(uri, fsync=False)
    chosen, nbytes = list[str](), 0
    for file in sorted(files, key=lambda one: one.size or 0):
        nbytes += file.size or 0
        if nbytes > _COMPARED_BYTES:
            break
        chosen.append(file.path)
    try:
        written = _of_a_generation(store) or recorded_checksums(store, chosen)
        return next((f"{uri}/{one.path}" for one in compared(store, written)), None)
    except (StorageError, CorruptionError):
        return None


def _of_a_generation(store: ObjectStore) -> Mapping[str, int]:
    """Return the checksums of all files of a generation; none if it is the base table."""
    try:
        catalog = store.get(layout.CATALOG)
    except ObjectNotFoundError:
        return {}
    return generation_catalog.decode(catalog, where=f"{store.uri}/{layout.CATALOG}").checksums


def _is_whole(location: str, file: VersionFile) -> bool:
    try:
        return tear(location, file) is None
    except OSError:
        return False
