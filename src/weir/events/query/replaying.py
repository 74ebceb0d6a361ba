"""REPLAY: events in the order of their ids; across several types with the columns of all."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datafusion import Expr
from numpy.typing import NDArray

from weir.events.catalog import Catalog
from weir.events.clock import HybridClock
from weir.events.cursors import Cursor
from weir.events.event_types import CORE_FIELDS, EventType
from weir.events.field_types import INSTANT
from weir.events.language import tree
from weir.events.names import CORE_NAMES
from weir.events.query.explaining import described_scan
from weir.events.query.reading import field_array
from weir.events.query.running import observe
from weir.events.query.scope import CORE_TYPES, Column, failure
from weir.events.visibility import (
    all_of,
    arrived_after,
    filter_text,
    ids_between,
    of_context,
    of_types,
    visible,
    within,
)
from weir.read.scan import Scan
from weir.table.table import Table

__all__ = ["MergedColumn", "ReplayPlan", "merged_columns", "merged_rows"]

_log = logging.getLogger("weir.events.projection")


@dataclass(frozen=True, slots=True)
class MergedColumn:
    """A column of a result over several types.

    Parameters
    ----------
    shown : str
        Its name: the field, or ``type.field`` if types disagree on the field's type.
    type : DataType
        Its type.
    fields : mapping of str to Column
        The field by event type; null for events of a missing type.
    """

    shown: str
    type: pa.DataType
    fields: dict[str, Column]


def merged_columns(types: Sequence[EventType]) -> list[MergedColumn]:
    """Return the columns of several types, after the four common ones."""
    kinds: dict[str, set[pa.DataType]] = {}
    for kind in types:
        for name, field in kind.fields.items():
            kinds.setdefault(name, set()).add(field.arrow)
    found: dict[str, MergedColumn] = {}
    for kind in types:
        for name, field in kind.fields.items():
            shown = name if len(kinds[name]) == 1 else f"{kind.name}.{name}"
            merged = found.setdefault(shown, MergedColumn(shown, field.arrow, {}))
            merged.fields[kind.name] = Column(0, name, field, name, shown)
    return list(found.values())


def merged_rows(rows: pa.Table, types: Sequence[EventType], columns: Sequence[MergedColumn]) -> pa.Table:
    """Return rows of the events table, of any types, with the columns of a result.

    Parameters
    ----------
    rows : Table
        With the columns that hold the fields and the common ones, in any order, which is kept.
    types : sequence of EventType
        The types.
    columns : sequence of MergedColumn
        The columns to return.
    """
    names = rows.column("event_type")
    arrays = [rows.column(name).cast(field.type) for name, field in zip(CORE_NAMES, CORE_FIELDS, strict=True)]
    by_name = {kind.name: kind for kind in types}
    for column in columns:
        held: dict[tuple[str, ...], tuple[list[str], pa.ChunkedArray]] = {}
        for name, field in column.fields.items():
            key = by_name[name].columns[field.name]
            if key not in held:
                held[key] = [], field_array(rows, by_name[name], field)
            held[key][0].append(name)
        whole: pa.ChunkedArray = pa.chunked_array([pa.nulls(rows.num_rows, column.type)])
        for kinds, values in held.values():
            of_them = pc.is_in(names, pa.array(kinds, pa.string()))
            # What other types have in a column they share is theirs.
            whole = (
                pc.if_else(of_them, values, whole)
                if column.type.num_fields == 0
                else _lists(of_them, values, whole)
            )
        arrays.append(whole)
    return pa.table(arrays, names=[*CORE_NAMES, *(column.shown for column in columns)])


def _lists(chosen: pa.ChunkedArray, values: pa.ChunkedArray, others: pa.ChunkedArray) -> pa.ChunkedArray:
    rows = len(chosen)
    both = pa.concat_tables([pa.table({"a": values}), pa.table({"a": others})])
    at = pa.array(range(rows), pa.int64())
    return both.take(pc.if_else(chosen, at, pc.add(at, rows))).column("a")


@dataclass(frozen=True, slots=True)
class ReplayPlan:
    """A replay that is ready to run.

    Parameters
    ----------
    table : Table
        The events table.
    catalog : Catalog
        The catalog.
    types : tuple of EventType
        The types to replay, in the order of their definition.
    columns : tuple of MergedColumn
        The columns after the four common ones.
    context : str or None
        The context; None for all.
    since, until : int or None
        Bounds in time.
    using : tuple of (EventType, Column) or None
        The fields the bounds apply to; None for the timestamp.
    warnings : tuple of str
        What the query ignored.
    """

    table: Table
    catalog: Catalog
    types: tuple[EventType, ...]
    columns: tuple[MergedColumn, ...]
    context: str | None
    since: int | None
    until: int | None
    using: tuple[tuple[EventType, Column], ...] | None
    warnings: tuple[str, ...]

    @classmethod
    def of(
        cls,
        table: Table,
        catalog: Catalog,
        types: Sequence[EventType],
        *,
        context: str | None = None,
        since: int | None = None,
        until: int | None = None,
        using: tree.FieldName | None = None,
        returns: Sequence[tree.FieldName] | None = None,
    ) -> ReplayPlan:
        """Return the plan of a replay.

        Raises
        ------
        QueryError
            If the field of USING is unknown or not a time.
        """
        times = None if using is None or using.text == "timestamp" else tuple(_times(types, using))
        columns, warnings = merged_columns(types), []
        if returns:
            wanted = [str(field) for field in returns]
            of_field = {
                column.shown: {
                    column.shown,
                    *(one.name for one in column.fields.values()),
                    *(f"{kind}.{one.name}" for kind, one in column.fields.items()),
                }
                for column in columns
            }
            for name in wanted:
                if name not in CORE_NAMES and not any(name in names for names in of_field.values()):
                    warnings += [f"RETURN: there is no field {name!r:.150}, which is passed over"]
            columns = [
                column
                for name in dict.fromkeys(wanted)
                for column in columns
                if name in of_field[column.shown]
            ]
            columns = list({column.shown: column for column in columns}.values())
        return cls(
            table, catalog, tuple(types), tuple(columns), context, since, until, times, tuple(warnings)
        )

    @property
    def schema(self) -> pa.Schema:
        """The columns of the result."""
        return pa.schema([*CORE_FIELDS, *(pa.field(column.shown, column.type) for column in self.columns)])

    def scan(self, after: Cursor | None = None, ids: tuple[int, int] | None = None) -> Scan:
        """Return the scan.

        Parameters
        ----------
        after : Cursor, optional
            Reads events after it and a few before it. Default: all.
        ids : tuple of (int, int), optional
            Reads events with ids between these, inclusive. Default: all.
        """
        names = dict.fromkeys(CORE_NAMES)
        types = {kind.name: kind for kind in self.types}
        for column in self.columns:
            for name, field in column.fields.items():
                names.update(dict.fromkeys(types[name].columns[field.name]))
        for kind, field in self.using or ():
            names.update(dict.fromkeys(kind.columns[field.name]))
        conditions = self._conditions()
        if ids is not None:
            conditions += ids_between(*ids)
        columns = [name for name in (*CORE_NAMES, *self.catalog.columns) if name in names]
        if after is not None:
            columns.append("arrival_id")
            seen = after.least(int(self.catalog.options["buckets"]))
            if seen is not None:
                conditions.append(arrived_after(seen))
        condition = all_of(conditions)
        _log.debug("%s: reads %s", self.table.uri, ", ".join(columns))
        return self.table.scan(
            columns, filter=None if condition is None else filter_text(condition, self.table.schema)
        )

    def _conditions(self) -> list[Expr]:
        types = {kind.name for kind in self.types}
        found: list[Expr] = []
        if types != set(self.catalog.types):
            found.append(of_types([kind.name for kind in self.types]))
        if self.context is not None:
            found.append(of_context(self.context))
        if self.using is None:
            found += within("timestamp", self.since, self.until)
        return [*found, *visible(self.catalog, types)]

    def run(self, clock: HybridClock) -> pa.Table:
        """Return the result."""
        rows = self.rows()
        observe(clock, rows.column("event_id"))
        return merged_rows(rows, self.types, self.columns)

    def rows(self, ids: tuple[int, int] | None = None) -> pa.Table:
        """Return the rows of the events table, in the order of their ids; with ids, of those between them."""
        return self.bounded(self.scan(ids=ids).to_table()).sort_by("event_id")

    def in_parts(self, ids: NDArray[np.int64], size: int) -> Iterator[pa.Table]:
        """Yield the result in parts of so many events, one after the other.

        Parameters
        ----------
        ids : int64 array
            The events, ascending. Those that are erased meanwhile are left out.
        size : int
            Events of a part, which are in memory at a time.
        """
        for start in range(0, len(ids), size):
            part = ids[start : start + size]
            rows = self.rows((int(part[0]), int(part[-1])))
            # The clock of another process may be behind: it has written between these since.
            rows = rows.filter(pc.is_in(rows.column("event_id"), pa.array(part)))
            yield merged_rows(rows, self.types, self.columns)

    def bounded(self, rows: pa.Table) -> pa.Table:
        """Return the rows of the scan within the time bounds."""
        if self.using is not None:
            rows = rows.filter(self._within(rows))
        elif self.since is not None or self.until is not None:
            # The scan leaves out what it cannot compare with.
            rows = rows.filter(_between(rows.column("timestamp"), self.since, self.until))
        return rows

    def _within(self, rows: pa.Table) -> pa.ChunkedArray:
        names = rows.column("event_type")
        within: pa.ChunkedArray = pa.chunked_array([pa.repeat(pa.scalar(False), rows.num_rows)])
        if self.since is None and self.until is None:
            return pc.is_valid(names)
        for kind, field in self.using or ():
            values = field_array(rows, kind, field).cast(INSTANT)
            inside = pc.fill_null(_between(values, self.since, self.until), False)
            within = pc.or_(within, pc.and_(pc.equal(names, kind.name), inside))
        return within

    def explain(self) -> str:
        """Return the explanation."""
        of = "all contexts" if self.context is None else f"context {self.context!r}"
        lines = [f"replay of {of}: {', '.join(kind.name for kind in self.types)}, in the order of event_id"]
        return "\n".join([*lines, *described_scan(self.scan(), self.catalog, self.types)])


def _between(values: pa.ChunkedArray, since: int | None, until: int | None) -> pa.ChunkedArray:
    inside = pc.is_valid(values)
    if since is not None:
        inside = pc.and_(inside, pc.greater_equal(values, pa.scalar(since, INSTANT)))
    if until is not None:
        inside = pc.and_(inside, pc.less(values, pa.scalar(until, INSTANT)))
    return inside


def _times(types: Iterable[EventType], using: tree.FieldName) -> list[tuple[EventType, Column]]:
    found = []
    for kind in types:
        field = {**CORE_TYPES, **kind.fields}.get(using.text)
        if field is None or (using.type is not None and using.type != kind.name):
            continue
        if not field.is_time:
            raise failure(
                f"{using.text} of {kind.name!r} is {field}, and no time",
                using.place,
                "Expected a datetime or a date",
            )
        found.append((kind, Column(0, using.text, field, using.text, using.text)))
    if not found:
        raise failure(f"no event has a field {using.text!r:.150}", using.place)
    return found
