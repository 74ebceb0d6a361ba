"""The writer of events: checks them, assigns ids in log order, and waits until they are durable."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, NoReturn, TypeVar

import numpy as np
import pyarrow as pa

from weir import Source, WriteResult
from weir.errors import ConflictError, FencedError, InputError, LeaseHeldError, WriterClosedError, WriterError
from weir.events.batches import RoutedEvents, renumbered, staged_anew
from weir.events.catalog import Catalog
from weir.events.clock import SHARD_BITS, HybridClock
from weir.events.names import check_context
from weir.events.payloads import CheckedEvent, checked_event, columns_of_events, columns_of_table
from weir.events.versions import ContextVersions
from weir.events.zones import ROWS_WORTH_INDEXES, build_indexes
from weir.sharding.shard_values import ShardValues
from weir.table.internals import StagedGeneration
from weir.table.table import Table

__all__ = ["Appended", "EventWriter", "Ingested"]

_PATIENCE = 5.0
_FIRST_REST = 0.005
_LONGEST_REST = 0.1
_MAX_TURN = 0.05
_MOST_NAME_BYTES = 200
_NO_EVENTS = pa.table({"context_id": pa.array([], pa.string())})

_Given = TypeVar("_Given")
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class Appended:
    """The result of appending events.

    Parameters
    ----------
    ids : list of int
        Their ids, in order.
    version : int
        The version of the context, which is the last id.
    """

    ids: list[int]
    version: int


@dataclass(frozen=True, slots=True)
class Ingested:
    """The result of ingesting a table.

    Parameters
    ----------
    ids : Int64Array
        The ids of its events, in order. For a repeated source, skipped events do not have these ids.
    rows : int
        Number of events written.
    """

    ids: pa.Array
    rows: int


class EventWriter:
    """Appends events. A context manager; thread-safe.

    Made by :meth:`weir.events.store.EventStore.writer`.

    It claims the shard of a context with the first event of that context. With ``hold`` it keeps the shard
    until it is closed; without, it releases it after every turn.

    Parameters
    ----------
    table : Table
        The events table.
    catalog : callable
        Returns the newest catalog if its argument is true, otherwise one that may be older.
    clock : HybridClock
        The source of ids.
    hold : bool
        Whether to keep shards between appends.
    lease_wait : float
        Seconds to wait for a shard that another writer holds.
    options : dict
        Options of the table's writer.
    on_close : callable
        Called when it is closed.
    """

    def __init__(
        self,
        table: Table,
        catalog: Callable[[bool], Catalog],
        clock: HybridClock,
        *,
        hold: bool,
        lease_wait: float,
        options: dict[str, Any],
        on_close: Callable[[EventWriter], None],
    ) -> None:
        self._table = table
        self._catalog = catalog
        self._clock = clock
        self._hold = hold
        self._lease_wait = lease_wait if hold else max(lease_wait, _PATIENCE)
        self._options = options
        self._on_close = on_close
        self._rows = table.writer(**options)
        # Who holds it decides what comes next in the log: ids are given and rows queued in one go.
        self._order = threading.Lock()
        self._versions = ContextVersions(table, catalog)
        self._indexing = threading.Lock()
        self._claimed: set[int] = set()
        self._pending: dict[int, list[Future[Any]]] = {}
        self._turns = threading.Condition()
        self._at_work = 0
        self._turn_began = 0.0
        self._letting_go = False
        self._others_may_have_been = False
        self._closed = False
        self._fenced = False
        self._written = 0
        self._indexed: Catalog | None = None

    @property
    def holds(self) -> bool:
        """Whether it is open and holds the shards it has claimed: no other writer has taken one over."""
        return self._hold and not self._closed and not self._fenced

    # --- Appending -------------------------------------------------------------------------------

    def append(
        self,
        type: str,
        context: str,
        payload: dict[str, Any],
        timestamp: object = None,
        expected: int | None = None,
    ) -> Appended:
        """Append an event. It is durable when the call returns.

        Parameters
        ----------
        type : str
            Its type.
        context : str
            Its context.
        payload : dict
            Its fields.
        timestamp : datetime, str or number, optional
            When it happened. Default: now.
        expected : int, optional
            The version the context must have: the id of its last event, 0 without events. Default: any.

        Returns
        -------
        Appended
            Its id, and the version of the context from then on.

        Raises
        ------
        InputError
            If type, context or payload is not valid. Nothing is written.
        ConflictError
            If the context has another version. Nothing is written.
        LeaseHeldError
            If another writer holds the shard of the context.
        FencedError
            If another writer has taken the shard over.
        """
        checked_context, version = check_context(context), _check_expected(expected)
        event = self._fitting(lambda catalog: checked_event(catalog.type(type), payload, timestamp))
        return self._append([event], checked_context, version)

    def append_all(
        self,
        context: str,
        events: Sequence[tuple[str, dict[str, Any]] | tuple[str, dict[str, Any], object]],
        expected: int | None = None,
        *,
        once: str | None = None,
    ) -> Appended:
        """Append events of one context, of any types, all or none.

        Parameters
        ----------
        context : str
            Their context.
        events : sequence of (type, payload) or (type, payload, timestamp)
            In order.
        expected : int, optional
            As for :meth:`append`.
        once : str, optional
            A name for these events, of 1 to 200 bytes, such as the id of a request. Events with the same name
            are appended once, by whichever process: repeating the call, also after a crash, returns the ids
            they have. A shard remembers the last 65,536 names.

        Raises
        ------
        InputError, ConflictError, LeaseHeldError, FencedError
            As for :meth:`append`.
        """
        checked_context, version = check_context(context), _check_expected(expected)
        source = None if once is None else _single(once)
        if isinstance(events, (str, bytes, dict)) or not isinstance(events, Iterable):
            raise InputError(f"events are a sequence of (type, payload), got {events!r:.80}", where="events")
        given = [_parts(one) for one in events]
        if not given:
            raise InputError("there are no events to append", where="events")

        def checked(catalog: Catalog) -> list[CheckedEvent]:
            return [checked_event(catalog.type(name), payload, at) for name, payload, at in given]

        return self._append(self._fitting(checked), checked_context, version, source)

    def _fitting(self, check: Callable[[Catalog], Any]) -> Any:
        """Return the result of a check; if it fails with the cached catalog, repeat it with the newest."""
        self._refuse_if_closed()
        catalog = self._catalog(False)
        try:
            return check(catalog)
        except InputError:
            newest = self._catalog(True)
            if newest is catalog:
                raise
            return check(newest)

    def _append(
        self,
        events: list[CheckedEvent],
        context: str,
        expected: int | None,
        source: Source | None = None,
    ) -> Appended:
        columns = columns_of_events(events, context)
        shard = self._versions.shard_of(context)

        def ids_from(first: int) -> list[int]:
            return [(first + at) << SHARD_BITS | shard for at in range(len(events))]

        def done(*, confirm: bool = False) -> int | None:
            if source is None:
                return None
            return self._rows.single_write(self._versions.values_of(shard), source.name, confirm=confirm)

        def enqueue() -> tuple[int, Future[Any] | None]:
            self._claim({shard})
            known = done()
            if known is None and expected is not None:
                try:
                    self._check_version(context, shard, expected)
                except ConflictError:
                    # Perhaps the version is what these very events have made it.
                    known = done(confirm=True)
                    if known is None:
                        raise
            if known is not None:
                return known, None
            first = self._clock.ticks(len(events))
            table = pa.table({"event_id": pa.array(ids_from(first), pa.int64()), **columns})
            # The mark says what the ids are, so whoever finds that it stands knows them.
            mark = None if source is None else replace(source, sequence=first)
            queued = self._enqueue(table, {shard}, mark)
            self._versions.put(context, shard, ids_from(first)[-1])
            return first, queued

        def first_of(given: int, result: WriteResult | None) -> int:
            if result is None or not result.deduplicated:
                return given
            stands = done()
            with self._order:
                self._versions.clear({shard})
            return given if stands is None else stands

        ids = ids_from(self._in_turn(enqueue, first_of))
        return Appended(ids, ids[-1])

    def ingest(self, type: str, table: pa.Table, source: Any = None) -> Ingested:
        """Append a table of events of one type, in its order.

        The events of one context become durable in order; those of contexts in different shards in parallel.

        Parameters
        ----------
        type : str
            Their type.
        table : Table
            Columns ``context_id``, optionally ``timestamp``, and the fields; optional ones may be missing.
        source : Source, optional
            Makes the call repeatable: what was already written from the source with this number, or a higher
            one, is skipped.

        Raises
        ------
        InputError, LeaseHeldError, FencedError
            As for :meth:`append`. Refused events are not written.
        """
        return self.ingest_all([(type, table)], source)

    def ingest_all(self, tables: Sequence[tuple[str, pa.Table]], source: Any = None) -> Ingested:
        """Append tables of events of several types, one after the other, as one write.

        Each shard takes all its events in one log entry, with a single wait for the disk.

        Parameters
        ----------
        tables : sequence of (type, Table)
            Each as for :meth:`ingest`.
        source : Source, optional
            As for :meth:`ingest`, for all of them.

        Raises
        ------
        InputError, LeaseHeldError, FencedError
            As for :meth:`append`. Refused events are not written.
        """
        if not isinstance(tables, Iterable):
            raise InputError(f"tables are a sequence of (type, table), got {tables!r:.80}", where="tables")
        if source is not None and not isinstance(source, Source):
            raise InputError(f"a source is a weir.Source, got {source!r:.80}", where="source")
        given = [_pair(one) for one in tables]
        events = self._fitting(lambda catalog: _columns_of_tables(catalog, given))
        rows = events.num_rows
        if rows == 0:
            return Ingested(pa.array([], pa.int64()), 0)
        shards = self._versions.shards_of(events.column("context_id").combine_chunks())
        wanted = {int(one) for one in np.unique(shards)}

        def enqueue() -> tuple[pa.Array, Future[Any]]:
            self._claim(wanted)
            first = self._clock.ticks(rows)
            ids = pa.array((np.arange(first, first + rows, dtype=np.int64) << SHARD_BITS) | shards)
            queued = self._enqueue(events.add_column(0, "event_id", ids), wanted, source)
            self._versions.clear(wanted)
            return ids, queued

        self._index_what_is_written(rows)
        return self._in_turn(enqueue, lambda ids, result: Ingested(ids, result.rows))

    def ingest_routed(self, events: RoutedEvents, source: Source | None = None) -> int:
        """Append events that many processes have read, each shard in one step; return how many were written.

        Parameters
        ----------
        events : RoutedEvents
            The events.
        source : Source, optional
            As for :meth:`ingest`.

        Raises
        ------
        LeaseHeldError, FencedError
            As for :meth:`append`.
        StorageError
            If some were staged too long ago, or the store failed.
        """
        shards = {self._versions.number_of(one) for one in events.shards}

        def enqueue() -> tuple[int, None]:
            self._claim(shards)
            for shard in shards:
                self._settle(shard)
            try:
                changes = [
                    (shard, renumbered(rows, self._versions.number_of(shard), self._clock))
                    for shard, rows in events.changes
                ]
                staged = self._numbered(events)
                written = (
                    self._rows.apply_routed(changes, source=source, spec_id=events.spec_id),
                    self._rows.publish_routed(staged, source=source, spec_id=events.spec_id),
                )
            finally:
                self._versions.clear(shards)
            return sum(one.rows for one in written), None

        self._index_what_is_written(events.rows)
        return self._in_turn(enqueue, lambda rows, _: rows)

    def _numbered(self, events: RoutedEvents) -> list[tuple[ShardValues, Sequence[StagedGeneration]]]:
        """Return staged events with ids above all those in their shards."""
        first = events.first_tick
        outrun: set[int] | None = None
        if events.staged and first is not None:
            before = (first << SHARD_BITS) - 1
            if self._catalog(True).erased_through <= before:
                outrun = self._versions.shards_above(before)
            # What is written from here on comes after them.
            self._clock.observe(events.end_tick << SHARD_BITS)
        found: list[tuple[ShardValues, Sequence[StagedGeneration]]] = []
        for shard, staged in events.staged:
            number = self._versions.number_of(shard)
            if outrun is None or number in outrun:
                staged = staged_anew(
                    self._table, shard, number, staged, spec_id=events.spec_id, clock=self._clock
                )
            found.append((shard, staged))
        return found

    def _settle(self, shard: int) -> None:
        """Wait for pending appends to the log of a shard, whatever their outcome."""
        for future in self._pending.pop(shard, []):
            with suppress(Exception):
                future.result()

    def _index_what_is_written(self, rows: int) -> None:
        """Make generations get indexes, once one may be large enough to benefit."""
        with self._indexing:
            self._written += rows
            catalog = self._catalog(False)
            if self._written >= ROWS_WORTH_INDEXES and self._indexed is not catalog:
                build_indexes(self._table, catalog)
                self._indexed = catalog

    # --- The order of the log --------------------------------------------------------------------

    def _in_turn(
        self,
        enqueue: Callable[[], tuple[_Given, Future[Any] | None]],
        written: Callable[[_Given, Any], _Result],
    ) -> _Result:
        """Assign ids and queue rows in turn, wait until they are durable, and return the result of both.

        If there is nothing to queue, there is no future.
        """
        deadline = time.monotonic() + self._lease_wait
        rest = _FIRST_REST
        while True:
            rows_before = self._rows
            try:
                with self._turn():
                    with self._order:
                        self._refuse_if_closed()
                        if self._others_may_have_been:
                            # If they have, what is decided by a fresh read of now will not be written.
                            self._others_may_have_been = False
                            self._versions.clear(None)
                        rows_before = self._rows
                        given, future = enqueue()
                    try:
                        result = None if future is None else future.result()
                    except BaseException:
                        # Whether it was written shows only in the log.
                        with self._order:
                            self._versions.clear(None)
                        raise
                    return written(given, result)
            except FencedError:
                if self._hold:
                    self._fenced = True
                    raise
                self._begin_anew(rows_before)
            except WriterClosedError:
                # Another thread has begun anew before these rows were written.
                if self._closed or self._rows is rows_before:
                    raise
            except LeaseHeldError:
                if time.monotonic() + rest > deadline:
                    raise
                time.sleep(rest)
                rest = min(rest * 2, _LONGEST_REST)

    def _enqueue(self, table: pa.Table, shards: set[int], source: Any) -> Future[Any]:
        future = self._rows.upsert(table, wait=False, source=source)
        for shard in shards:
            waiting = [one for one in self._pending.get(shard, []) if not one.done()]
            self._pending[shard] = [*waiting, future]
        return future

    def _claim(self, shards: set[int]) -> None:
        """Claim the shards that are not ours yet, and make later ids higher than those in them."""
        missing = shards - self._claimed
        if not missing:
            return
        self._rows.claim([self._versions.values_of(shard) for shard in sorted(missing)])
        self._versions.clear(missing)
        # Of what was erased no row tells any more, but cursors and versions have passed it.
        self._clock.observe(self._catalog(True).erased_through)
        newest = self._versions.highest_above(self._clock.now())
        if newest:
            self._clock.observe(newest)
        self._claimed |= missing

    def _check_version(self, context: str, shard: int, expected: int) -> None:
        # First: a read that took its place would not see what is on its way to the log.
        self._versions.clear_outdated()
        for future in self._pending.pop(shard, []):
            if not self._versions.knows(context):
                with suppress(Exception):
                    future.result()
            elif not future.done():
                self._pending.setdefault(shard, []).append(future)
        found = self._versions.get(context, shard)
        if found != expected:
            raise ConflictError(
                f"context {context!r:.150} has version {found}, not {expected}",
                where=context,
                hint="Read what has been appended meanwhile, and decide again",
            )

    # --- Turns -----------------------------------------------------------------------------------

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Use the shards; the last user releases them, if they are shared."""
        if self._hold:
            yield
            return
        with self._turns:
            while self._letting_go:
                self._turns.wait()
            if self._at_work == 0:
                self._turn_began = time.monotonic()
                self._others_may_have_been = True
            self._at_work += 1
            # A writer with many threads would never come to an end of its turn.
            if time.monotonic() - self._turn_began > _MAX_TURN:
                self._letting_go = True
        try:
            yield
        finally:
            with self._turns:
                self._at_work -= 1
                last = self._at_work == 0
                if last:
                    self._letting_go = True
            if last:
                try:
                    # What is written is; if the store fails now, the lease runs out.
                    with suppress(Exception):
                        self._rows.pause()
                finally:
                    with self._turns:
                        self._letting_go = False
                        self._turns.notify_all()

    def _begin_anew(self, fenced: Any) -> None:
        """Replace the row writer, because another process held a shard meanwhile."""
        with self._order:
            if self._rows is not fenced or self._closed:
                return
            with suppress(Exception):
                self._rows.__exit__(FencedError, FencedError("other writers had the shard"), None)
            self._rows = self._table.writer(**self._options)
            self._claimed.clear()
            self._versions.clear(None)
            self._pending.clear()

    # --- Beside appending ------------------------------------------------------------------------

    def erase(self, keys: pa.Table) -> None:
        """Delete events, given with ``event_id`` and ``context_id``."""
        shards = {
            int(one)
            for one in np.unique(self._versions.shards_of(keys.column("context_id").combine_chunks()))
        }

        def enqueue() -> tuple[None, Future[Any]]:
            self._claim(shards)
            queued = self._rows.delete(keys, wait=False)
            self._versions.clear(shards)
            return None, queued

        self._in_turn(enqueue, lambda _, result: None)

    def restore(self, table: pa.Table, missing: Callable[[pa.Table], pa.Table]) -> int:
        """Write events that have ids; return how many were written.

        Parameters
        ----------
        table : Table
            The events.
        missing : callable
            Returns those of them that do not exist yet. It is called while nobody else can write them:
            written twice, they would come to those who follow twice.
        """
        contexts = table.column("context_id").combine_chunks()
        shards = {int(one) for one in np.unique(self._versions.shards_of(contexts))}

        def enqueue() -> tuple[int, Future[Any] | None]:
            self._claim(shards)
            for shard in shards:
                self._settle(shard)
            rows = missing(table)
            if rows.num_rows == 0:
                return 0, None
            shards_of_rows = self._versions.shards_of(rows.column("context_id").combine_chunks())
            first = self._clock.ticks(rows.num_rows)
            arrivals = np.arange(first, first + rows.num_rows, dtype=np.int64) << SHARD_BITS | shards_of_rows
            queued = self._enqueue(rows.append_column("arrival_id", pa.array(arrivals)), shards, None)
            self._versions.clear(shards)
            return rows.num_rows, queued

        return self._in_turn(enqueue, lambda rows, _: rows)

    def flush(self) -> None:
        """Flush memory to generations, and wait for it."""
        self._refuse_if_closed()
        with self._turn():
            try:
                self._rows.flush()
            except FencedError:
                if self._hold:
                    self._fenced = True
                    raise

    def close(self) -> None:
        """Release the shards. Idempotent."""
        with self._order:
            if self._closed:
                return
            self._closed = True
        try:
            with suppress(FencedError) if not self._hold else _nothing():
                self._rows.close()
        finally:
            self._on_close(self)

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise WriterClosedError("the writer is closed", hint="Open a new one with store.writer()")

    def __enter__(self) -> EventWriter:
        """Return the writer itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close the writer; after an error, release the shards without flushing."""
        if error is None:
            self.close()
            return
        with self._order:
            if self._closed:
                return
            self._closed = True
        self._rows.__exit__(kind, error, traceback)
        self._on_close(self)

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled."""
        raise WriterError(
            "a writer cannot be pickled: it owns its shards in this process",
            hint="Open the store in the other process and make a writer there",
        )


@contextmanager
def _nothing() -> Iterator[None]:
    yield


def _check_expected(expected: object) -> int | None:
    if expected is None or (isinstance(expected, int) and not isinstance(expected, bool) and expected >= 0):
        return expected
    raise InputError(f"an expected version is an event id, or 0, got {expected!r:.80}", where="expected")


def _single(name: object) -> Source:
    if not isinstance(name, str) or not name or len(name.encode(errors="replace")) > _MOST_NAME_BYTES:
        raise InputError(
            f"a name of events that are appended once has 1 to {_MOST_NAME_BYTES} bytes, got {name!r:.80}",
            where="once",
        )
    return Source(f"once:{name}", 0)


def _pair(table: Any) -> tuple[Any, Any]:
    if isinstance(table, (tuple, list)) and len(table) == 2:
        return table[0], table[1]
    raise InputError(f"events come as (type, table), got {table!r:.80}", where="tables")


def _columns_of_tables(catalog: Catalog, tables: list[tuple[Any, Any]]) -> pa.Table:
    columns = [pa.table(columns_of_table(catalog.type(kind), table)) for kind, table in tables]
    return pa.concat_tables(columns, promote_options="default") if columns else _NO_EVENTS


def _parts(event: Any) -> tuple[Any, Any, Any]:
    if isinstance(event, (tuple, list)) and len(event) in (2, 3):
        return event[0], event[1], event[2] if len(event) == 3 else None
    raise InputError(
        f"an event is (type, payload) or (type, payload, timestamp), got {event!r:.80}", where="events"
    )
