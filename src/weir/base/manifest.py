"""The table's own manifest of one version: where it is, and the MemWAL index in it.

Lance table format spec, "Manifest". The library exposes neither merge progress nor index catch-up
(``mem_wal_index_details`` omits both), so the manifest file is read.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

import xxhash

from weir.errors import CorruptionError, FirstIndexError, ObjectNotFoundError
from weir.format import first_index_details, index_details
from weir.format.first_index_details import FirstIndexDetails
from weir.format.index_details import IndexDetails
from weir.format.table_manifest import IndexEntry, decode_index_section
from weir.storage.interface import Bytes, ObjectStore

__all__ = ["VERSIONS", "TableManifest", "manifest_path", "manifest_version", "read_manifest"]

VERSIONS = "_versions"
"""Directory of the table's manifests."""

_LAST_VERSION = 2**64 - 1


@dataclass(frozen=True, slots=True)
class TableManifest:
    """The manifest of one version of a Lance table.

    Parameters
    ----------
    version : int
        The version.
    path : str
        Path of the manifest in the store.
    data : Bytes
        The whole file.
    where : str
        Its location, for errors.
    stored : Bytes, optional
        The content of the file, if ``data`` was derived from it for the library to build on.
    """

    version: int
    path: str
    data: Bytes
    where: str
    stored: Bytes | None = None

    @property
    def nbytes(self) -> int:
        """Size of the file."""
        return len(self.data)

    @property
    def counts_down(self) -> bool:
        """Whether the file is named by Lance's second scheme, in which the newest sorts first."""
        return self.path == manifest_path(self.version, counts_down=True)

    @property
    def identity(self) -> bytes:
        """The identity of this version, unlike that of any other version with its number: 8 bytes.

        Where a backup has taken the place of a table, numbers come back. No two manifests are alike: each
        names its own transaction, or is of another number.
        """
        return xxhash.xxh3_64_digest(self.data)

    def mem_wal_index(self) -> IndexEntry | None:
        """Return the entry of the MemWAL index, or None if the table has none.

        Raises
        ------
        CorruptionError
            The manifest cannot be decoded, or lists several MemWAL indexes.
        """
        entries = [
            entry
            for entry in decode_index_section(self.data, where=self.where)
            if entry.name == index_details.INDEX_NAME
        ]
        if len(entries) > 1:
            raise CorruptionError(
                f"version {self.version} of the table has {len(entries)} MemWAL indexes where one is allowed",
                where=self.where,
            )
        return entries[0] if entries else None

    def index_segments(self) -> frozenset[UUID]:
        """Return the segments of all indexes that have files.

        Raises
        ------
        CorruptionError
            The manifest cannot be decoded.
        """
        entries = decode_index_section(self.data, where=self.where)
        return frozenset(entry.uuid for entry in entries if entry.name != index_details.INDEX_NAME)

    def decode_details(self, entry: IndexEntry) -> IndexDetails:
        """Return the details in the entry of the MemWAL index.

        Raises
        ------
        CorruptionError
            They are not such details.
        FirstIndexError
            They are of the first form, before there were shards.
        """
        if entry.details_type_url and not entry.details_type_url.endswith("MemWalIndexDetails"):
            raise CorruptionError(
                f"the MemWAL index holds details of the type {entry.details_type_url!r}",
                where=self.where,
                hint="An older or newer library may have written it",
            )
        if first_index_details.is_first_form(entry.details):
            found = self.decode_first_details(entry).mem_wals
            regions = {one.region for one in found}
            raise FirstIndexError(
                f"the table has the first form of the MemWAL index, with {len(found)} MemWALs of "
                f"{len(regions)} regions",
                where=self.where,
                hint="Open it with weir.open to read it; weir inspect shows its MemWALs",
            )
        return index_details.decode(entry.details, where=self.where)

    def decode_first_details(self, entry: IndexEntry) -> FirstIndexDetails:
        """Return details of the first form in the entry of the MemWAL index."""
        return first_index_details.decode(entry.details, where=self.where)


def manifest_path(version: int, *, counts_down: bool) -> str:
    """Return the path of the manifest of a version.

    Parameters
    ----------
    version : int
        The version, from 1.
    counts_down : bool
        Whether the table uses Lance's second naming scheme (the default since Lance 0.17).

    Examples
    --------
    >>> manifest_path(3, counts_down=True)
    '_versions/18446744073709551612.manifest'
    >>> manifest_path(3, counts_down=False)
    '_versions/3.manifest'
    """
    name = f"{_LAST_VERSION - version:020}" if counts_down else str(version)
    return f"{VERSIONS}/{name}.manifest"


def manifest_version(path: str) -> int | None:
    """Return the version whose manifest has a path; None for any other file beside the manifests.

    Examples
    --------
    >>> manifest_version("_versions/18446744073709551612.manifest"), manifest_version("_versions/3.manifest")
    (3, 3)
    >>> manifest_version("_versions/latest_version_hint.json") is None
    True
    """
    name = path.removeprefix(f"{VERSIONS}/")
    digits = name.removesuffix(".manifest")
    if digits == name or not digits.isdecimal():
        return None  # a hint, a detached version, or one that is being committed
    # The second naming scheme pads to 20 digits and counts down.
    return _LAST_VERSION - int(digits) if len(digits) == 20 else int(digits)


def read_manifest(store: ObjectStore, version: int) -> TableManifest:
    """Read the manifest of a version, whichever way the table names it.

    Raises
    ------
    ObjectNotFoundError
        The version does not exist.
    """
    path = manifest_path(version, counts_down=True)
    try:
        data = store.get(path)
    except ObjectNotFoundError:
        path = manifest_path(version, counts_down=False)
        data = store.get(path)
    return TableManifest(version, path, data, f"{store.uri}/{path}")
