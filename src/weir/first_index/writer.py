"""The writer of a region: the protocol of the first MemWAL index on storage.

A write is an entry of the WAL, and then a version of the table that lists it: the entry is unknown before. So
a writer that dies in between has acknowledged nothing, and one that was fenced in between leaves a file that
is never listed, and whose number is a hole in the list of the next one. First MemWAL index spec, "Expected
Use Pattern".
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from uuid import uuid4

import pyarrow as pa

from weir.base.table import BaseTable
from weir.engine import failpoint
from weir.engine.logs import get_logger
from weir.errors import (
    ConflictError,
    FencedError,
    InputError,
    ObjectExistsError,
    OptionError,
    TableError,
    WriterClosedError,
)
from weir.first_index import protocol
from weir.first_index.commit import commit_regions
from weir.first_index.flushed_rows import flushed_location, newest_of, read_entries, write_flushed
from weir.first_index.merge import merge_mem_wal
from weir.first_index.regions import unmerged
from weir.first_index.view import base_of, base_only
from weir.first_index.wal import RegionWal, new_location, wal_files
from weir.format.first_index_details import FirstIndexDetails, MemWal, MemWalState
from weir.format.wal_entry import wal_schema
from weir.rows import (
    RowInput,
    as_key_table,
    as_row_table,
    check_deletable,
    tombstone_batches,
    upsert_batches,
)
from weir.storage.interface import ObjectStore

__all__ = ["RegionWrite", "RegionWriter"]

_MOST_HOLES = 4096
"""Numbers that others may have taken in a row before a write is given up."""

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class RegionWrite:
    """Where a write is.

    Parameters
    ----------
    generation : int
        The generation of the region.
    entry : int
        The entry of its WAL.
    version : int
        The version of the table that lists it: writes of all regions are in this order.
    """

    generation: int
    entry: int
    version: int


class RegionWriter:
    """The one writer of a region of a table with the first MemWAL index. Made by :meth:`claim`; thread-safe.

    The next claim of the region fences it: its next call raises :class:`~weir.errors.FencedError` and changes
    nothing.

    Examples
    --------
    A table of another program, with a region that is there already:

    >>> import tempfile, pyarrow as pa, weir
    >>> from weir.base.create import create_base_table
    >>> from weir.base.publish import publish_first_details
    >>> from weir.first_index.commit import newest_manifest
    >>> from weir.format.u64_segment import U64Segment
    >>> from weir.storage.local import LocalStore
    >>> store = LocalStore(tempfile.mkdtemp() + "/old", fsync=False)
    >>> base = create_base_table(store, pa.schema([("id", pa.int64()), ("value", pa.string())]), ("id",))
    >>> open_one = MemWal("eu", 0, "", "wals/eu", U64Segment(), MemWalState.OPEN, "another program", 1)
    >>> publish_first_details(store, newest_manifest(store), FirstIndexDetails((open_one,))) is None
    False

    Its next writer:

    >>> with RegionWriter.claim(store, "eu") as writer:
    ...     writer.upsert([{"id": 1, "value": "one"}, {"id": 2, "value": "two"}]).entry
    ...     writer.delete([2]).entry
    ...     writer.seal(), writer.flush(), writer.merge()
    0
    1
    (1, 1, 1)
    >>> weir.open(store.uri).scan().to_table().to_pylist()
    [{'id': 1, 'value': 'one'}]
    """

    def __init__(
        self,
        store: ObjectStore,
        region: str,
        owner: str,
        base: BaseTable,
        details: FirstIndexDetails,
        seal_rows: int,
    ) -> None:
        self._store = store
        self._region = region
        self._owner = owner
        self._base = base
        self._details = details
        self._seal_rows = seal_rows
        self._wal = RegionWal(store)
        self._lock = threading.Lock()
        self._is_closed = False
        self._fenced: FencedError | None = None
        # The MemTables: of each generation that is not flushed the rows of its entries.
        self._rows: dict[int, dict[int, pa.Table]] = {}

    @classmethod
    def claim(cls, store: ObjectStore, region: str, *, seal_rows: int = 100_000) -> RegionWriter:
        """Become the writer of a region, and replay what its MemWALs hold that are not flushed.

        Parameters
        ----------
        store : ObjectStore
            The table's store.
        region : str
            The region. One that is not there yet begins with generation 0.
        seal_rows : int, default 100,000
            The MemTable is sealed, and the next one opened, by the write with which it reaches this many
            rows.

        Raises
        ------
        TableError
            The table has no regions: it has the current form.
        FencedError
            Another writer has claimed the region at the same time, and was first.
        CorruptionError
            The details, or an entry that is listed, cannot be read. The region stays with whom it belongs to.
        SchemaError
            The table has no primary key.
        """
        if seal_rows < 1:
            raise OptionError(f"seal_rows must be 1 or more, got {seal_rows}", where="seal_rows")
        _check_name(region)
        view = base_only(store)
        if view is None:
            raise TableError(
                "the table has no regions: it has the current form",
                where=store.uri,
                hint="Open it with weir.open and write to it",
            )
        name = uuid4().hex
        owner = f"weir-{name}"
        writer = cls(store, region, owner, base_of(view), view.details, seal_rows)
        # What cannot be read is found before anybody is fenced.
        writer._replay()
        expected = {one.owner_id for one in unmerged(view.details) if one.region == region}

        def claimed(details: FirstIndexDetails, version: int) -> FirstIndexDetails:
            last = protocol.newest(details, region)
            return protocol.region_claimed(
                details,
                region,
                expected,
                owner,
                version=version,
                wal_location=new_location(region, 0 if last is None else last.generation + 1, name),
                mem_table_location=f"memory://{owner}",
            )

        failpoint.reach("region.before_claim")
        _, writer._details = commit_regions(store, claimed)
        failpoint.reach("region.after_claim")
        writer._replay()
        _log.info("region.claimed", where=store.uri, region=region, generation=writer.generation)
        return writer

    @property
    def region(self) -> str:
        """The region."""
        return self._region

    @property
    def owner(self) -> str:
        """The ``owner_id`` that it has claimed the region with."""
        return self._owner

    @property
    def generation(self) -> int:
        """The generation that takes entries."""
        return self._open_mem_wal().generation

    @property
    def mem_wals(self) -> tuple[MemWal, ...]:
        """The MemWALs of the region, as they were after its last call, oldest first."""
        own = (one for one in self._details.mem_wals if one.region == self._region)
        return tuple(sorted(own, key=lambda one: one.generation))

    def upsert(self, rows: RowInput) -> RegionWrite:
        """Write rows, which replace those with their keys. They are durable and listed when it returns.

        Parameters
        ----------
        rows : table-like
            The rows.

        Raises
        ------
        SchemaError, KeyValueError
            The rows do not fit the table. Nothing is written.
        FencedError
            Another writer has claimed the region. The entry is not listed, and never will be.
        ConflictError
            Others committed during every attempt.
        """
        schema = wal_schema(self._base.schema)
        checked = as_row_table(rows, self._base.schema, self._base.primary_key)
        return self._append(upsert_batches(checked, schema))

    def delete(self, keys: RowInput) -> RegionWrite:
        """Delete rows by primary key; see :meth:`upsert`.

        Parameters
        ----------
        keys : list, Array or table-like
            The keys. Those that do not exist are no error.
        """
        check_deletable(self._base.schema, self._base.primary_key)
        found = as_key_table(keys, self._base.schema, self._base.primary_key, to_delete=True)
        return self._append(tombstone_batches(found, wal_schema(self._base.schema)))

    def _append(self, batches: list[pa.RecordBatch]) -> RegionWrite:
        schema = self._base.row_schema
        rows = pa.Table.from_batches(
            [pa.RecordBatch.from_arrays(batch.columns, schema=schema) for batch in batches], schema
        )
        with self._working():
            mem_wal = self._open_mem_wal()
            generation = mem_wal.generation
            failpoint.reach("region.before_entry")
            entry = self._put(mem_wal, rows)
            failpoint.reach("region.after_entry")

            def listed(details: FirstIndexDetails, version: int) -> FirstIndexDetails:
                return protocol.with_entry(
                    details, self._region, generation, self._owner, entry, version=version
                )

            version, self._details = commit_regions(self._store, listed)
            failpoint.reach("region.after_listed")
            held = self._rows.setdefault(generation, {})
            held[entry] = rows
            if sum(one.num_rows for one in held.values()) >= self._seal_rows:
                self._seal()
            return RegionWrite(generation, entry, version)

    def _put(self, mem_wal: MemWal, rows: pa.Table) -> int:
        """Write an entry under the first free number after those listed."""
        first = mem_wal.entries.next
        for entry in range(first, first + _MOST_HOLES):
            try:
                self._wal.append(mem_wal, entry, rows)
            except ObjectExistsError:
                continue  # of a writer that has died, or is being fenced: a hole in the list
            return entry
        raise ConflictError(
            f"another writer has written each of the {_MOST_HOLES} entries from {first} on, and listed none",
            where=mem_wal.wal_location,
            hint="Stop that writer, and claim the region again",
        )

    def seal(self) -> int:
        """Seal the MemWAL that takes entries and open the next one, both or neither; return its generation.

        Raises
        ------
        FencedError, ConflictError
            As :meth:`upsert`.
        """
        with self._working():
            self._seal()
            return self._open_mem_wal().generation

    def _seal(self) -> None:
        sealed = self._open_mem_wal().generation
        location = new_location(self._region, sealed + 1, uuid4().hex)

        def change(details: FirstIndexDetails, version: int) -> FirstIndexDetails:
            return protocol.sealed_and_opened(
                details,
                self._region,
                sealed,
                self._owner,
                version=version,
                wal_location=location,
                mem_table_location=f"memory://{self._owner}",
            )

        failpoint.reach("region.before_seal")
        _, self._details = commit_regions(self._store, change)
        failpoint.reach("region.after_seal")

    def flush(self) -> int:
        """Write the rows of every sealed MemWAL to storage, oldest first; return how many MemWALs.

        Raises
        ------
        CorruptionError
            An entry that is not in memory cannot be read.
        FencedError, ConflictError
            As :meth:`upsert`.
        """
        with self._working():
            sealed = [one for one in self.mem_wals if one.state is MemWalState.SEALED]
            for one in sealed:
                self._flush(one)
            return len(sealed)

    def _flush(self, mem_wal: MemWal) -> None:
        known = self._rows.get(mem_wal.generation, {})
        entries = read_entries(self._wal, self._base, mem_wal, known)
        write_flushed(self._wal, mem_wal, newest_of(self._base, entries.values()))
        failpoint.reach("region.before_flush")

        def change(details: FirstIndexDetails, version: int) -> FirstIndexDetails:
            return protocol.flushed(
                details,
                self._region,
                mem_wal.generation,
                self._owner,
                version=version,
                mem_table_location=flushed_location(mem_wal),
            )

        _, self._details = commit_regions(self._store, change)
        failpoint.reach("region.after_flush")
        self._rows.pop(mem_wal.generation, None)

    def merge(self) -> int:
        """Put the rows of every flushed MemWAL into the base table, oldest first; return how many MemWALs.

        Rows and state are in one version of the table, so that each row exists once, whichever process dies.

        Raises
        ------
        CorruptionError
            Rows of a MemWAL cannot be read.
        FencedError, ConflictError
            As :meth:`upsert`.
        """
        with self._working():
            flushed = [one for one in self.mem_wals if one.state is MemWalState.FLUSHED]
            for one in flushed:
                version, self._details = merge_mem_wal(self._store, self._region, one.generation, self._owner)
                _log.info(
                    "region.merged",
                    where=self._store.uri,
                    region=self._region,
                    generation=one.generation,
                    version=version,
                )
            return len(flushed)

    def clean_up(self) -> int:
        """Delete the WALs of merged MemWALs, and what a flush has written of them; return how many files.

        The MemWALs stay listed.
        """
        with self._working():
            needed = {one.wal_location.rstrip("/") for one in unmerged(self._details)}
            merged = [one for one in self.mem_wals if one.state is MemWalState.MERGED]
            count = 0
            for one in merged:
                for location in (one.wal_location.rstrip("/"), flushed_location(one)):
                    if location in needed:
                        continue  # another program may have one WAL for several of them
                    store, paths = wal_files(self._store, location)
                    store.delete(paths)
                    count += len(paths)
            return count

    def close(self) -> None:
        """End the writer. The region stays claimed until another writer claims it, and nothing is lost."""
        with self._lock:
            self._is_closed = True
            self._rows.clear()

    def __enter__(self) -> RegionWriter:
        """Return the writer."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()

    def _open_mem_wal(self) -> MemWal:
        found = protocol.newest(self._details, self._region)
        assert found is not None, "a region that was claimed has a MemWAL"
        return found

    def _replay(self) -> None:
        """Read what the MemWALs hold that are not flushed, and was not read yet."""
        for one in self.mem_wals:
            if one.state in (MemWalState.OPEN, MemWalState.SEALED):
                known = self._rows.get(one.generation, {})
                self._rows[one.generation] = read_entries(self._wal, self._base, one, known)

    @contextmanager
    def _working(self) -> Iterator[None]:
        with self._lock:
            if self._is_closed:
                raise WriterClosedError(
                    "the writer is closed", where=self._store.uri, hint="Claim the region again to write"
                )
            if self._fenced is not None:
                raise FencedError(self._fenced.message, where=self._fenced.where, hint=self._fenced.hint)
            try:
                yield
            except FencedError as error:
                # For good: owners do not come back.
                self._fenced = error
                raise


def _check_name(region: str) -> None:
    try:
        region.encode()
    except (AttributeError, UnicodeError) as error:
        raise InputError(f"the name of a region is text, got {region!r}", where="region") from error
