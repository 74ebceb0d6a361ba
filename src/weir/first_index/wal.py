"""The WALs of regions: the form of their entries, which the spec leaves to the writer.

A :class:`WalReader` reads one form. Weir writes one (:class:`RegionWal`): an entry is a file of the location,
named and encoded like an entry of today's logs (:mod:`weir.format.wal_entry`), with its checksum and with the
generation of its MemWAL, and without a place in a shard.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Protocol, runtime_checkable
from uuid import UUID, uuid5

import numpy as np
import pyarrow as pa

from weir.errors import CorruptionError, ObjectNotFoundError
from weir.first_index.regions import named
from weir.format import layout, wal_entry
from weir.format.first_index_details import MemWal
from weir.format.resolution import resolve
from weir.format.wal_entry import TOMBSTONE
from weir.format.wal_header import WalEntryHeader
from weir.storage.interface import ObjectStore
from weir.storage.open import open_store

__all__ = ["RegionWal", "WalReader", "entry_path", "new_location", "read_entry", "wal_files", "wal_store"]

_DIRECTORY = "_weir/regions"
_SUFFIX = ".arrow"
_ENTRY = re.compile(r"[01]{64}\.arrow")
_LONGEST_NAME = 160
_NAMESPACE = UUID("0d5d6c0e-5c39-4a5c-8f35-0f6f4a9e7c11")


@runtime_checkable
class WalReader(Protocol):
    """Reads the entries of WALs of one form."""

    def read(self, mem_wal: MemWal, entry: int) -> pa.Table:
        """Return the rows of an entry in the order they were written.

        The columns are the table's, by name or by Lance field id, and ``_tombstone`` where rows may delete
        their key.

        Raises
        ------
        CorruptionError
            The entry is missing or damaged.
        """


class RegionWal:
    """The form that Weir writes.

    Parameters
    ----------
    store : ObjectStore
        The table's store. Locations of WALs are relative to the table, or URIs, which are opened with the
        storage options of the table.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def read(self, mem_wal: MemWal, entry: int) -> pa.Table:
        """Return the rows of an entry.

        Raises
        ------
        CorruptionError
            The entry is missing or damaged.
        UriError
            The location of the WAL cannot be understood.
        """
        store, directory = wal_store(self._store, mem_wal.wal_location)
        path = entry_path(directory, entry)
        where = f"{store.uri}/{path}"
        try:
            data = store.get(path)
        except ObjectNotFoundError as error:
            raise CorruptionError(
                f"entry {entry} of the WAL of {named(mem_wal)} is listed but missing",
                where=where,
                hint="Look for a copy of the WAL; its rows are not in the table",
            ) from error
        found = wal_entry.decode(data, where=where)
        if found.header.generation != mem_wal.generation:
            raise CorruptionError(
                f"the entry is of generation {found.header.generation}, in the WAL of {named(mem_wal)}",
                where=where,
            )
        return pa.Table.from_batches(found.batches, found.schema)

    def append(self, mem_wal: MemWal, entry: int, rows: pa.Table) -> None:
        """Write an entry.

        Parameters
        ----------
        mem_wal : MemWal
            Whose WAL.
        entry : int
            Its number.
        rows : Table
            The rows, with ``_tombstone``, and with the field ids of the base table.

        Raises
        ------
        ObjectExistsError
            There is one of that number.
        """
        store, directory = wal_store(self._store, mem_wal.wal_location)
        header = WalEntryHeader(0, generation=mem_wal.generation, write_id=wal_entry.new_write_id())
        store.put_if_absent(
            entry_path(directory, entry), wal_entry.encode(header, rows.schema, rows.to_batches())
        )


def new_location(region: str, generation: int, unique: str) -> str:
    """Return a location for the WAL of a new MemWAL, relative to its table.

    Examples
    --------
    >>> new_location("eu", 3, "1f")
    '_weir/regions/6575/1f-3'
    """
    name = region.encode().hex() or "_"
    if len(name) > _LONGEST_NAME:
        # Disks take no longer names.
        name = uuid5(_NAMESPACE, region).hex
    return f"{_DIRECTORY}/{name}/{unique}-{generation}"


def entry_path(directory: str, entry: int) -> str:
    """Return the path of an entry of a WAL, relative to the store that the WAL is in."""
    name = f"{layout.reversed_name(entry)}{_SUFFIX}"
    return f"{directory}/{name}" if directory else name


def wal_files(store: ObjectStore, location: str) -> tuple[ObjectStore, list[str]]:
    """Return the store that a WAL of the form that Weir writes is in, and the paths of its entries there."""
    place, directory = wal_store(store, location)
    within = f"{directory}/" if directory else ""
    paths = [one.path for one in place.list(directory)]
    return place, [path for path in paths if _ENTRY.fullmatch(path.removeprefix(within))]


def wal_store(store: ObjectStore, location: str) -> tuple[ObjectStore, str]:
    """Return the store that a WAL is in, and its directory there.

    Parameters
    ----------
    store : ObjectStore
        The table's store.
    location : str
        Where the index says that the WAL is.

    Raises
    ------
    UriError
        It is not a location.
    """
    location = location.rstrip("/")
    if location.startswith(f"{store.uri}/"):
        return store, location.removeprefix(f"{store.uri}/")
    if location.startswith("/") or "://" in location:
        return open_store(location, store.storage_options or None), ""
    return store, location


def read_entry(
    reader: WalReader, mem_wal: MemWal, entry: int, schema: pa.Schema, key: Collection[str]
) -> pa.Table:
    """Return the rows of an entry that the index lists, as log entries of the table have them.

    Parameters
    ----------
    reader : WalReader
        Reads the WAL.
    mem_wal : MemWal
        The MemWAL.
    entry : int
        The number of the entry.
    schema : Schema
        The columns of the table and ``_tombstone``, with their field ids.
    key : collection of str
        The columns of its primary key.

    Raises
    ------
    CorruptionError
        The entry is missing or damaged, or a row of it has no key.
    """
    rows = reader.read(mem_wal, entry)
    if TOMBSTONE not in rows.schema.names:
        column = pa.array(np.zeros(rows.num_rows, np.bool_))
        rows = rows.append_column(pa.field(TOMBSTONE, pa.bool_(), nullable=False), column)
    where = f"{mem_wal.wal_location}, entry {entry}"
    rows = resolve(rows.schema, schema).table(rows, where=where)
    for name in key:
        nulls = rows.column(name).null_count
        if nulls:
            raise CorruptionError(
                f"{nulls} rows of entry {entry} of {named(mem_wal)} have no key in column {name!r}",
                where=where,
                hint="Let the program that wrote them replace them",
            )
    return rows
