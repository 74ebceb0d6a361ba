"""Reading for queries: one scan of the events table for all steps, with the columns and rows they need."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from datafusion import Expr, col, lit

from weir.events.catalog import Catalog
from weir.events.clock import SHARD_BITS
from weir.events.cursors import Cursor, arrivals
from weir.events.event_table import event_schema
from weir.events.event_types import EventType
from weir.events.instants import parse_instant
from weir.events.language import tree
from weir.events.names import CORE_NAMES
from weir.events.query.conditions import condition_of, fields_of_condition, instants_between
from weir.events.query.scope import Column, Scope
from weir.events.visibility import (
    all_of,
    any_of,
    arrived_after,
    days_within,
    filter_text,
    is_readable_instant,
    of_context,
    visible,
    within,
)
from weir.read.read_end import ReadEnd
from weir.read.scan import Scan
from weir.table.table import Table

__all__ = ["Bounds", "StepRead", "StepsRead", "field_array"]

# Beyond it a scan reads a number as another type, or not at all.
_LARGEST = 1 << 53
_DEEPEST = 10
"""Levels of a condition that a scan decides: as a text they are twice as many, of which there is a bound."""
_MOST_COMPARISONS = 100
"""Comparisons that a scan decides: the time to plan them grows by the square of their number."""
_RECENT = "bounded(60000)"
_SECOND = SHARD_BITS + 20
"""Low bits of an id that change within about a second."""

_log = logging.getLogger("weir.events.projection")


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds on all events of a query.

    Parameters
    ----------
    context : str or None
        Their context.
    since, until : int or None
        Microseconds since 1970, inclusive and exclusive.
    """

    context: str | None = None
    since: int | None = None
    until: int | None = None


@dataclass(frozen=True, slots=True)
class StepRead:
    """The reads of one step.

    Parameters
    ----------
    type : EventType
        Its type.
    columns : tuple of Column
        Its needed columns.
    time : Column or None
        The column the time bounds apply to; None without bounds.
    conditions : tuple of Condition
        The conditions on its events.
    """

    type: EventType
    columns: tuple[Column, ...]
    time: Column | None
    conditions: tuple[tree.Condition, ...]


@dataclass(frozen=True, slots=True)
class StepsRead:
    """The reads of a query.

    Parameters
    ----------
    table : Table
        The events table.
    catalog : Catalog
        The catalog.
    scope : Scope
        The types of the query.
    steps : tuple of StepRead
        By step.
    bounds : Bounds
        The bounds of all steps.
    now : int, optional
        The instant at which retention is judged. Default: when it is read.
    """

    table: Table
    catalog: Catalog
    scope: Scope
    steps: tuple[StepRead, ...]
    bounds: Bounds
    now: int | None = None

    @property
    def column_names(self) -> list[str]:
        """The columns of the events table that are read."""
        names: dict[str, None] = {}
        for step in self.steps:
            for column in step.columns:
                names.update(dict.fromkeys(_held_by(step.type, column)))
        if len(self.steps) > 1:
            names["event_type"] = None
        else:
            # All that is read is of one type.
            names.pop("event_type", None)
        if not names:
            # How many there are is all that is asked.
            names["event_id"] = None
        return [name for name in (*CORE_NAMES, *self.catalog.columns) if name in names]

    def scan(self, after: Cursor | None = None, *, recent: bool = False) -> Scan:
        """Return the scan; with a cursor, of events after it and a few before it.

        ``recent`` reuses a snapshot at least as new as that of the last scan, which saves taking another.
        """
        columns = self._columns_read(with_arrival=after is not None)
        self._log_projection(columns)
        return self.table.scan(
            columns,
            filter=self._filter(self._arrived(after)),
            consistency=_RECENT if recent else "strong",
        )

    def rows_after(self, after: Cursor, end: ReadEnd | None) -> tuple[pa.Table, ReadEnd]:
        """Return the events after a cursor and some before it, and how far this read came.

        Parameters
        ----------
        after : Cursor
            What was seen before.
        end : ReadEnd, optional
            How far the read came that saw it: while all newer events are in the log, nothing else is read.
        """
        columns = self._columns_read(with_arrival=True)
        rows, reached = self.table.internals.reader.rows_after(end, columns, self._filter([]))
        if rows is None:
            # The snapshot has just been taken.
            return self.scan(after, recent=True).to_table(), reached
        self._log_projection(columns)
        return rows, reached

    def _columns_read(self, *, with_arrival: bool) -> list[str]:
        columns = self.column_names
        return [*dict.fromkeys(["event_id", *columns]), "arrival_id"] if with_arrival else columns

    def _log_projection(self, columns: list[str]) -> None:
        _log.debug("%s: reads %s", self.table.uri, ", ".join(columns))

    def _filter(self, more: list[Expr]) -> str:
        condition = all_of(
            [
                _any([self._of_step(step) for step in self.steps]),
                *([] if self.bounds.context is None else [of_context(self.bounds.context)]),
                *more,
                *visible(self.catalog, {step.type.name for step in self.steps}, self.now),
            ]
        )
        assert condition is not None
        # Of the catalog: what the table here knows may be older, if another process has defined a field.
        return filter_text(condition, event_schema(self.catalog.columns))

    @property
    def is_decided_by_scan(self) -> bool:
        """Whether the scan returns exactly the events of the only step."""
        if len(self.steps) > 1:
            return False
        step, bounds = self.steps[0], self.bounds
        if step.time is not None and not (
            step.time.type.kind == "datetime"
            and len(_held_by(step.type, step.time)) == 1
            and all(one is None or is_readable_instant(one) for one in (bounds.since, bounds.until))
        ):
            return False
        return len(self._pushed(step)) == len(step.conditions)

    def _arrived(self, after: Cursor | None) -> list[Expr]:
        seen = None if after is None else after.least(int(self.catalog.options["buckets"]))
        return [] if seen is None else [arrived_after(seen)]

    def _of_step(self, step: StepRead) -> Expr:
        found = [col("event_type") == lit(step.type.name)]
        if step.time is not None and step.time.type.kind == "datetime":
            held = _held_by(step.type, step.time)
            if len(held) == 1:
                found += within(held[0], self.bounds.since, self.bounds.until)
        pushed = self._pushed(step)
        for condition in pushed:
            found.append(condition_of(condition, self.scope, lambda one: col(_held_by(step.type, one)[0])))
        for column, (since, until) in instants_between(pushed, self.scope).items():
            found += days_within(_held_by(step.type, column)[0], since, until)
        whole = all_of(found)
        assert whole is not None
        return whole

    def _pushed(self, step: StepRead) -> list[tree.Condition]:
        """Return the conditions that the scan decides."""
        found, comparisons = [], 0
        for condition in step.conditions:
            fields = list(fields_of_condition(condition))
            if (
                comparisons + len(fields) <= _MOST_COMPARISONS
                and all(self._is_plain(step, field) for field in fields)
                and self._is_simple(condition, _DEEPEST)
            ):
                found.append(condition)
                comparisons += len(fields)
        return found

    def _is_plain(self, step: StepRead, field: tree.FieldName) -> bool:
        """Whether a scan can evaluate a field: it is a single column whose values have exact literals."""
        column = self.scope.get(field)
        kinds = ("string", "enum", "int", "float", "decimal", "bool", "date", "datetime")
        return column.type.kind in kinds and len(_held_by(step.type, column)) == 1

    def _is_simple(self, condition: tree.Condition, levels: int) -> bool:
        """Whether a scan evaluates a condition of at most so many levels as DataFusion does."""
        if isinstance(condition, tree.Not):
            return levels > 0 and self._is_simple(condition.condition, levels - 1)
        if isinstance(condition, (tree.All, tree.AnyOf)):
            return (
                levels > 0
                and len(condition.conditions) <= 20
                and all(self._is_simple(one, levels - 1) for one in condition.conditions)
            )
        if isinstance(condition, (tree.IsNull, tree.Bare)):
            return True
        if isinstance(condition, tree.Like):
            return False
        values = condition.values if isinstance(condition, tree.IsIn) else _compared_with(condition)
        if self.scope.get(condition.field).type.is_time:
            return all(is_readable_instant(parse_instant(one.value)) for one in values)
        return all(isinstance(one.value, str) or -_LARGEST <= one.value <= _LARGEST for one in values)

    def ids_above(self, event_id: int) -> pa.ChunkedArray:
        """Return the ids of all events above a given one, of any type, and of some before it.

        They come from a snapshot that this process took in the last minute, at least as new as its last scan.
        """
        # The same filter for about a second: what is known of a filter need not be found out again.
        above = event_id >> _SECOND << _SECOND
        scan = self.table.scan(["event_id"], filter=f"event_id > {above}", consistency=_RECENT)
        # Nearly always there are none, which an index knows.
        return scan.to_table().column(0) if scan.count() else pa.chunked_array([], pa.int64())

    def tables(self) -> list[pa.Table]:
        """Return the events of every step, with internal column names."""
        return self.named(self.scan().to_table())

    def named(self, rows: pa.Table) -> list[pa.Table]:
        """Return rows of the scan as the events of every step, with internal column names."""
        if len(self.steps) == 1:
            return [self._named(self.steps[0], rows)]
        types = rows.column("event_type")
        return [self._named(step, rows.filter(pc.equal(types, step.type.name))) for step in self.steps]

    def fresh_of(self, rows: pa.Table, after: Cursor) -> tuple[pa.Table, Cursor]:
        """Return the rows of a scan after a cursor, as events of the only step, and the new cursor."""
        arrived = arrivals(rows)
        fresh = after.beyond(arrived)
        return self._named(self.steps[0], rows.filter(pa.array(fresh))), after.advanced(arrived[fresh])

    def _named(self, step: StepRead, rows: pa.Table) -> pa.Table:
        if not step.columns:
            return pa.table({"none": pa.nulls(rows.num_rows, pa.bool_())})
        arrays = [
            pa.chunked_array([pa.repeat(pa.scalar(step.type.name, pa.string()), rows.num_rows)])
            if column.name == "event_type"
            else field_array(rows, step.type, column)
            for column in step.columns
        ]
        return pa.table(arrays, names=[column.internal for column in step.columns])


def _any(conditions: list[Expr]) -> Expr:
    found = any_of(conditions)
    assert found is not None
    return found


def _held_by(kind: EventType, column: Column) -> Sequence[str]:
    return (column.name,) if column.name in CORE_NAMES else kind.columns[column.name]


def field_array(rows: pa.Table, kind: EventType, column: Column) -> pa.ChunkedArray:
    """Return the values of a field from the columns that hold it."""
    held = _held_by(kind, column)
    arrays = [rows.column(name).cast(column.type.arrow, safe=False) for name in reversed(held)]
    return arrays[0] if len(arrays) == 1 else pc.coalesce(*arrays)


def _compared_with(condition: tree.Comparison | tree.Between) -> tuple[tree.Value, ...]:
    return (condition.value,) if isinstance(condition, tree.Comparison) else (condition.low, condition.high)
