"""REMEMBER: materialisations, query results kept in a Weir table and updated with new events.

Rows of events and aggregates are kept; sequences, and aggregates over a window, are computed each time.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from datafusion import col, lit

from weir.errors import (
    QueryError,
    TableExistsError,
    TableNotFoundError,
)
from weir.events.catalog import Catalog, Remembered
from weir.events.clock import HybridClock
from weir.events.cursors import Cursor
from weir.events.instants import from_micros, now_micros
from weir.events.language import tree
from weir.events.language.parser import parse
from weir.events.materialization_table import PLACE, Kept, Mark, MaterializationTable
from weir.events.query.parts import (
    Fresh,
    QueryRunner,
    fresh_by_parts,
    fresh_of,
    run_query_by_parts,
)
from weir.events.query.planner import QueryPlan, Window, plan_query
from weir.events.query.running import first_rows, run_query, run_rows, within_window
from weir.events.query.scope import failure
from weir.events.query.sessions import frame_of
from weir.events.query.state_columns import state_schema
from weir.events.query.states import added_states, of_states
from weir.events.saving import Saving
from weir.events.visibility import filter_text, instant, is_readable_instant
from weir.read.read_end import ReadEnd
from weir.storage.interface import ObjectStore
from weir.table.table import Table

__all__ = [
    "Materialization",
    "MaterializationInfo",
    "Shown",
    "check_remembered",
    "query_of",
    "remembered_as",
    "without_materialization",
]

_ROWS_KEY = "event_id"
_LAYOUT = 2
"""Version of the stored form; what a Weir with another version stored is rebuilt."""
_MOST_CHUNKS = 8
"""Chunks of them after which they are put into one."""


@dataclass(frozen=True, slots=True)
class MaterializationInfo:
    """The state of a materialisation.

    Parameters
    ----------
    name, query : str
        Its name and its query.
    schema : Schema
        The columns of its result; none if a new version of a type has made the query invalid.
    incremental : bool
        Whether only new events are read. Sequences, and aggregates over a window, are computed each time.
    rows, bytes : int
        What is stored.
    mark : int
        The id of the newest event in it, 0 for none.
    lag : int
        Number of newer events.
    keep_rows : int or None
        How many rows to keep.
    keep_age : timedelta or None
        The maximum age of rows.
    created : datetime
        When it was made.
    refreshed : datetime or None
        When it was last written.
    refreshes : int
        How often it was written.
    refreshed_events : int
        Number of events that the last refresh added.
    refresh_time : timedelta or None
        How long the last refresh took, including the write.
    """

    name: str
    query: str
    schema: pa.Schema
    incremental: bool
    rows: int
    bytes: int
    mark: int
    lag: int
    keep_rows: int | None
    keep_age: timedelta | None
    created: datetime
    refreshed: datetime | None
    refreshes: int
    refreshed_events: int
    refresh_time: timedelta | None


@dataclass(frozen=True, slots=True)
class Shown:
    """The result of a materialisation, of which something may have to be stored.

    Parameters
    ----------
    table : Table
        The result.
    save : callable
        Stores what is new in it, and returns when that is done.
    save_by : callable
        Has it stored in the background.
    """

    table: pa.Table
    save: Callable[[], None] = lambda: None
    save_by: Callable[[Saving], None] = lambda _: None


def query_of(text: str) -> tree.Query:
    """Return the query in a text, which may be a ``REMEMBER``.

    Raises
    ------
    QueryError
        If it is another command.
    """
    command = parse(text)
    if isinstance(command, tree.Remember):
        return command.query
    if isinstance(command, tree.Query):
        return command
    raise QueryError("what is remembered is a QUERY", where="line 1, column 1")


def check_remembered(query: tree.Query) -> None:
    """Refuse a query whose result is not well defined.

    Raises
    ------
    QueryError
        If it has LIMIT or OFFSET without an order.
    """
    if (query.limit is not None or query.offset is not None) and not query.order_by:
        raise failure(
            "LIMIT without an order remembers no definite rows", query.type.place, "Expected ORDER BY"
        )


def remembered_as(
    catalog: Catalog, name: str, query: str, keep_rows: int | None, keep_age: int | None
) -> Catalog:
    """Return the catalog with a new materialisation.

    Raises
    ------
    TableExistsError
        If that name exists.
    """
    if name in catalog.materializations:
        raise TableExistsError(f"there is a materialisation {name!r} already", where=name)
    entry = Remembered(query, secrets.token_hex(8), keep_rows, keep_age, now_micros())
    return replace(catalog, materializations={**catalog.materializations, name: entry})


def without_materialization(catalog: Catalog, *, name: str) -> Catalog:
    """Return the catalog without a materialisation."""
    kept = {other: one for other, one in catalog.materializations.items() if other != name}
    return replace(catalog, materializations=kept)


class Materialization:
    """A materialised query.

    Parameters
    ----------
    store : ObjectStore
        The store of the event store.
    events : Table
        Its events.
    catalog : Catalog
        Its catalog.
    name : str
        The name of the materialisation.
    clock : HybridClock
        Observes the events that are read.
    table_options : mapping
        Options for creating and opening its table.
    kept : dict
        The states that this process has last seen stored, or is storing, by location; each is read again once
        it was rewritten. Each with the history of the events that it follows from.

    Raises
    ------
    TableNotFoundError
        If no such name exists.
    """

    def __init__(
        self,
        store: ObjectStore,
        events: Table,
        catalog: Catalog,
        name: str,
        clock: HybridClock,
        table_options: Mapping[str, Any],
        kept: dict[str, tuple[str, Kept]],
    ) -> None:
        entry = catalog.materializations.get(name) if isinstance(name, str) else None
        if entry is None:
            raise TableNotFoundError(
                f"there is no materialisation {name!r:.150}",
                where=str(name)[:150],
                hint=f"There are {', '.join(sorted(catalog.materializations)) or 'none'}",
            )
        self.name = name
        self.entry = entry
        self._store = store
        self._events = events
        self._catalog = catalog
        self._clock = clock
        self._options = table_options
        self._last_kept = kept
        self._query = query_of(entry.query)

    @cached_property
    def plan(self) -> QueryPlan:
        """Return the plan of the query.

        Raises
        ------
        QueryError
            If a new version of a type has made it invalid.
        """
        window = Window(self.entry.keep_rows, self.entry.keep_age)
        plan = plan_query(self._events, self._catalog, self._query, window)
        return replace(plan, read=replace(plan.read, now=now_micros()))

    def later(self) -> Materialization:
        """Return it as it is now: what has become too old meanwhile is so for an answer from now on."""
        found = copy(self)
        found.plan = replace(self.plan, read=replace(self.plan.read, now=now_micros()))
        found.__dict__.pop("_stored", None)
        return found

    @property
    def incremental(self) -> bool:
        """Whether only new events are read."""
        if self.plan.scope.is_sequence:
            return False
        grouping = self.plan.grouping
        if grouping is None:
            return True
        windowed = self.plan.window.rows is not None or self.plan.window.age is not None
        # What floats come to depends on the order in which they are added.
        floats = any(
            one.kind in ("total", "avg") and one.column is not None and one.column.type.kind == "float"
            for one in grouping.aggregates
        )
        return not windowed and not floats

    @property
    def place(self) -> str:
        """The location of its table below the event store, if it has one."""
        # What a new version of the type changes may be any column.
        version = self._catalog.type(self._query.type.text).version
        return f"{PLACE}/{self.entry.incarnation}/v{version}.{_LAYOUT}"

    # --- What is stored --------------------------------------------------------------------------

    @property
    def _schema(self) -> pa.Schema:
        if self.plan.grouping is not None:
            return state_schema(self.plan.grouping)
        event_id = self.plan.scope.core(0)[0].internal
        columns = self.plan.read.steps[0].columns
        return pa.schema(
            [
                pa.field(_ROWS_KEY, pa.int64(), nullable=False),
                *(pa.field(one.internal, one.type.arrow) for one in columns if one.internal != event_id),
            ]
        )

    @cached_property
    def _stored(self) -> MaterializationTable:
        key = _ROWS_KEY if self.plan.grouping is None else "key"
        uri = f"{self._store.uri}/{self.place}"
        return MaterializationTable(uri, self._schema, key, self._options, self._last_kept, self._history)

    @property
    def _history(self) -> str:
        return self._events.internals.reader.base.namespace

    def tables(self) -> list[Table]:
        """Return the tables behind it."""
        with suppress(QueryError):
            table = self._stored.open() if self.incremental else None
            return [] if table is None else [table]
        return []

    def _is_stale(self, mark: Mark) -> bool:
        """Whether the stored state contains erased events."""
        if mark.erasures != self._catalog.erasures:
            return True
        floor = self._floor
        if floor == mark.floor or floor is None or mark.floor is None:
            return floor != mark.floor
        kind = self.plan.scope.types[0].name
        gone = (
            (col("event_type") == lit(kind))
            & (col("timestamp") >= instant(mark.floor))
            & (col("timestamp") < instant(floor))
        )
        return (
            self._events.scan(["event_id"], filter=filter_text(gone, self._events.schema), limit=1).count()
            > 0
        )

    @property
    def _floor(self) -> int | None:
        retention = self._catalog.retention.get(self.plan.scope.types[0].name)
        now = self.plan.read.now
        if retention is None or retention.age is None or now is None:
            return None
        floor = now - retention.age
        # Beyond it no event is too old for a scan.
        return floor if is_readable_instant(floor) else None

    @property
    def lags_erasures(self) -> bool:
        """Whether erased events may remain stored because the state cannot be rebuilt."""
        with suppress(QueryError):
            mark = self._stored.mark() if self.incremental else None
            return mark is not None and mark.erasures != self._catalog.erasures
        return False

    # --- Answering -------------------------------------------------------------------------------

    def refresh(self, runner: QueryRunner | None = None) -> None:
        """Store what is new in the current result, if it is stored."""
        if self.incremental:
            self._show(self._stored.read(), runner).save()

    def show(self, runner: QueryRunner | None = None) -> Shown:
        """Return the current result, and what has to be stored of it.

        Parameters
        ----------
        runner : QueryRunner, optional
            Reads new events. Default: this process.
        """
        if self.incremental:
            # It may begin with what this process has last stored, or is storing: more has come since, that is
            # all.
            return self._show(self._stored.last() or self._stored.read(), runner)
        if runner is None:
            return Shown(run_query(self.plan, self._clock))
        return Shown(run_query_by_parts(self.plan, self._clock, runner))

    def _show(self, kept: Kept, runner: QueryRunner | None) -> Shown:
        began = time.monotonic_ns()
        before = kept.mark
        is_anew = before is None or self._is_stale(before)
        if is_anew:
            kept = Kept(kept.rows.slice(0, 0), before)
        fresh = self._fresh(Cursor() if before is None or is_anew else before.cursor, kept.end, runner)
        is_continued = fresh.end is None or kept.end is None or fresh.end.follows(kept.end)
        if self._history != self._stored.history or not is_continued:
            # A backup was put in the place of the store, which may lack events that are in what is kept.
            self._stored.let_go()
            return self.later().show(runner)
        if fresh.cursor.seen:
            self._clock.observe(max(fresh.cursor.seen.values()))
        if self.plan.grouping is not None:
            changed, whole, dropped = fresh.table, kept.rows, None
            if fresh.events:
                affected = pc.is_in(kept.rows.column("key"), changed.column("key").combine_chunks())
                changed = added_states(self.plan.grouping, kept.rows.filter(affected), changed)
                whole = pa.concat_tables([kept.rows.filter(pc.invert(affected)), changed])
            answer = of_states(self.plan, whole)
        else:
            changed = self._stored_rows(fresh.table)
            whole = pa.concat_tables([kept.rows.cast(changed.schema), changed])
            whole, dropped = self._that_count(whole)
            answer = run_rows(self.plan, within_window(self.plan, self._frame(whole)), self._clock)
        if not is_anew and not fresh.events:
            if self._stored.last() is kept:
                # The next one need not go back to where this one began.
                self._stored.keep(replace(kept, end=fresh.end))
            return Shown(answer)
        mark = Mark(
            fresh.cursor,
            self._catalog.erasures,
            self._floor,
            now_micros(),
            secrets.token_hex(8),
            1 if before is None else before.refreshes + 1,
            fresh.events,
            (time.monotonic_ns() - began) // 1000,
        )
        if whole.num_columns and whole.column(0).num_chunks > _MOST_CHUNKS:
            # Every answer has added one, and what is computed of them takes longer with each.
            whole = whole.combine_chunks()
        rows = whole if is_anew else changed

        def save() -> None:
            if self._stored.save(before, mark, rows, dropped, anew=is_anew):
                self._stored.keep(Kept(whole, mark, fresh.end))
            else:
                # Others store it too, or what it goes on from was not stored.
                self._stored.read()

        def save_by(saving: Saving) -> None:
            if saving.begin(self._stored.uri, save):
                self._stored.keep(Kept(whole, mark, fresh.end))

        return Shown(answer, save, save_by)

    def _fresh(self, after: Cursor, end: ReadEnd | None, runner: QueryRunner | None) -> Fresh:
        """Return the events after a cursor; what was seen was read up to ``end``."""
        if runner is not None:
            return fresh_by_parts(self.plan, after, runner)
        rows, reached = self.plan.read.rows_after(after, end)
        return replace(fresh_of(self.plan, rows, after), end=reached)

    def _frame(self, stored: pa.Table) -> Any:
        event_id = self.plan.scope.core(0)[0].internal
        names = [event_id if name == _ROWS_KEY else name for name in stored.column_names]
        return frame_of(stored.rename_columns(names))

    def _stored_rows(self, rows: pa.Table) -> pa.Table:
        schema = self._schema
        event_id = self.plan.scope.core(0)[0].internal
        names = [event_id if name == _ROWS_KEY else name for name in schema.names]
        return pa.table(
            [rows.column(name).cast(one.type) for name, one in zip(names, schema, strict=True)], schema=schema
        )

    def _that_count(self, whole: pa.Table) -> tuple[pa.Table, pa.Array | None]:
        """Return the rows that can still be in the result, and the ids of the others."""
        query, window = self.plan.query, self.plan.window
        if window.rows is not None:
            kept = whole.sort_by([(_ROWS_KEY, "descending")]).slice(0, window.rows)
        elif query.limit is not None and window.age is None:
            kept = self._stored_rows(first_rows(self.plan, self._frame(whole)).to_arrow_table())
        elif window.age is not None:
            # With a number of rows too, those that are too old still count among them.
            kept = self._stored_rows(within_window(self.plan, self._frame(whole)).to_arrow_table())
        else:
            return whole, None
        gone = whole.filter(
            pc.invert(pc.is_in(whole.column(_ROWS_KEY), kept.column(_ROWS_KEY).combine_chunks()))
        )
        return kept, gone.column(_ROWS_KEY).combine_chunks()

    # --- Beside answering ------------------------------------------------------------------------

    def info(self) -> MaterializationInfo:
        """Return its state."""
        try:
            nothing = replace(self.plan, query=replace(self.plan.query, limit=0))
            incremental, schema = self.incremental, run_query(nothing, self._clock).schema
        except QueryError:
            incremental, schema = False, pa.schema([])
        kept = self._stored.read() if incremental else Kept(pa.table({}), None)
        mark = kept.mark
        after = Cursor() if mark is None else mark.cursor
        lag = self._fresh(after, kept.end, None).events if incremental else 0
        age = self.entry.keep_age
        return MaterializationInfo(
            self.name,
            self.entry.query,
            schema,
            incremental,
            kept.rows.num_rows,
            kept.rows.nbytes,
            max(after.seen.values(), default=0),
            lag,
            self.entry.keep_rows,
            None if age is None else timedelta(microseconds=age),
            from_micros(self.entry.created),
            None if mark is None else from_micros(mark.at),
            0 if mark is None else mark.refreshes,
            0 if mark is None else mark.events,
            None if mark is None else timedelta(microseconds=mark.micros),
        )
