"""Which events are visible, after retention and forgetting, and the scan of them.

Conditions are DataFusion expressions over the columns of the events table. A scan takes a text, which
DataFusion's unparser writes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datafusion import DataFrame, Expr, SessionConfig, SessionContext, col, functions, lit
from datafusion.unparser import Dialect, Unparser
from numpy.typing import NDArray

from weir.events.calendar import calendar_of
from weir.events.catalog import Catalog, Floor
from weir.events.field_types import INSTANT
from weir.events.instants import now_micros
from weir.read.scan import Scan
from weir.table.table import Table

__all__ = [
    "all_of",
    "any_of",
    "arrived_above",
    "arrived_after",
    "arrived_between",
    "days_within",
    "events_scan",
    "filter_text",
    "ids_between",
    "ids_by_type",
    "instant",
    "is_readable_instant",
    "of_context",
    "of_contexts",
    "of_types",
    "scan_events",
    "text_literal",
    "visible",
    "whole_number",
    "within",
]

_TEXT = re.compile(r"('(?:[^']|'')*')")
_QUALIFIED = re.compile(r'\bt\.(?:"(\w+)"|(\w+))')
_ARRIVALS = pa.schema([("event_id", pa.int64()), ("arrival_id", pa.int64())])
# Lance reads instants through nanoseconds.
_LEAST, _MOST = -(1 << 63) // 1000 + 1, ((1 << 63) - 1) // 1000
_DAY_MICROS = 86_400_000_000
_MOST_DAYS = 31
"""Days up to which a calendar is asked: the first time, each of them is read by itself."""


def instant(micros: int) -> Expr:
    """Return an instant as a literal."""
    return lit(pa.scalar(micros, INSTANT))


def whole_number(number: int) -> Expr:
    """Return a whole number as a literal."""
    # What it makes of a plain one it finds out by looking for libraries that are not there, each time.
    return lit(pa.scalar(number, pa.int64()))


def text_literal(value: str) -> Expr:
    """Return a text as a literal, or as an expression of literals."""
    if "''" not in value and "\\'" not in value and not value.endswith("\\"):
        return lit(value)
    # The unparser takes one quote for the sign that another one, or a backslash, may be before it. And how
    # deep a filter is nested is judged for every dialect: in some a backslash takes a quote literally.
    parts = [part for part in re.split(r"('|\\+(?='|\Z))", value) if part]
    return functions.concat(*(one for part in parts for one in _spelled(part)))


def _spelled(part: str) -> list[Expr]:
    if part[0] != "\\" or len(part) % 2 == 0:
        return [lit(part)]
    return [*([lit(part[1:])] if part[1:] else []), functions.chr(whole_number(ord("\\")))]


def all_of(conditions: Iterable[Expr]) -> Expr | None:
    """Return the conjunction of conditions, as a balanced tree; None if there are none."""
    return _joined(list(conditions), lambda one, other: one & other)


def any_of(conditions: Iterable[Expr]) -> Expr | None:
    """Return the disjunction of conditions; None if there are none."""
    return _joined(list(conditions), lambda one, other: one | other)


def _joined(parts: list[Expr], join: Callable[[Expr, Expr], Expr]) -> Expr | None:
    while len(parts) > 1:
        pairs = [parts[at : at + 2] for at in range(0, len(parts), 2)]
        parts = [reduce(join, pair) for pair in pairs]
    return parts[0] if parts else None


def of_context(context: str) -> Expr:
    """Return the condition that an event belongs to a context."""
    return col("context_id") == text_literal(context)


def of_contexts(contexts: Sequence[str]) -> Expr:
    """Return the condition that an event belongs to one of some contexts."""
    return _one_of("context_id", [text_literal(one) for one in contexts])


def of_types(types: Sequence[str]) -> Expr:
    """Return the condition that an event is of one of some types."""
    return _one_of("event_type", [lit(one) for one in types])


def _one_of(column: str, values: list[Expr]) -> Expr:
    if not values:
        return lit(False)
    return col(column) == values[0] if len(values) == 1 else functions.in_list(col(column), values)


def is_readable_instant(micros: int) -> bool:
    """Whether a scan can compare with an instant."""
    return _LEAST < micros < _MOST


def within(column: str, since: int | None, until: int | None) -> list[Expr]:
    """Return conditions that bound a column of instants, without those a scan cannot evaluate.

    Parameters
    ----------
    column : str
        The column.
    since, until : int or None
        Microseconds since 1970, inclusive and exclusive.
    """
    found = []
    if since is not None and is_readable_instant(since):
        found.append(col(column) >= instant(since))
    if until is not None and is_readable_instant(until):
        found.append(col(column) < instant(until))
    return [*found, *days_within(column, since, until)]


def days_within(column: str, since: int | None, until: int | None) -> list[Expr]:
    """Return what the bounds of :func:`within` mean for the calendar; nothing if they are of many days."""
    if since is None or not is_readable_instant(since):
        return []
    if until is not None and not is_readable_instant(until):
        until = None
    if until is None and column != "timestamp":
        # What is due or expires may be of any day to come; what has happened is of one up to today.
        return []
    first = since // _DAY_MICROS
    last = ((now_micros() if until is None else until) - 1) // _DAY_MICROS
    if last - first >= _MOST_DAYS:
        return []
    days = col(calendar_of(column))
    return [days >= _day(first), *([] if until is None else [days <= _day(last)])]


def _day(number: int) -> Expr:
    return lit(pa.scalar(number, pa.date32()))


def arrived_after(event_id: int) -> Expr:
    """Return the condition that an event arrived after a given id."""
    return (col("event_id") > whole_number(event_id)) | (col("arrival_id") > whole_number(event_id))


def arrived_between(least: int, most: int) -> Expr:
    """Return a condition that holds for all events whose arrival id is in a range.

    It may also hold for other restored events, whose own id is in the range.
    """
    event_id, arrival = col("event_id"), col("arrival_id")
    low, high = whole_number(least), whole_number(most)
    return ((event_id >= low) & (event_id <= high)) | ((arrival >= low) & (arrival <= high))


def arrived_above(event_id: int) -> str:
    """Return the filter for events that arrived after a given id, as a text for a scan."""
    return filter_text(arrived_after(event_id), _ARRIVALS)


def ids_between(least: int, most: int) -> list[Expr]:
    """Return conditions that an id is between two others, inclusive."""
    return [col("event_id") >= whole_number(least), col("event_id") <= whole_number(most)]


def _arrived_through(event_id: int) -> Expr:
    arrival = col("arrival_id")
    return (arrival.is_null() & (col("event_id") <= whole_number(event_id))) | (
        arrival.is_not_null() & (arrival <= whole_number(event_id))
    )


def visible(catalog: Catalog, types: Iterable[str] | None = None, now: int | None = None) -> list[Expr]:
    """Return the conditions that an event is visible.

    Parameters
    ----------
    catalog : Catalog
        The catalog.
    types : iterable of str, optional
        The types of interest. Default: all.
    now : int, optional
        The instant, in microseconds since 1970. Default: now.
    """
    now = now_micros() if now is None else now
    wanted = None if types is None else set(types)
    # What holds for many is one condition: the time to plan them grows by the square of their number.
    ages: dict[int, list[str]] = {}
    floors: dict[Floor, list[str]] = {}
    for name, retention in catalog.retention.items():
        if wanted is None or name in wanted:
            if retention.age is not None:
                ages.setdefault(retention.age, []).append(name)
            for floor in retention.floors:
                floors.setdefault(floor, []).append(name)
    contexts: dict[int, list[str]] = {}
    for entry in catalog.forgotten:
        contexts.setdefault(entry.through, []).append(entry.context)
    found = [
        ~(of_types(names) & (col("timestamp") < instant(now - age)))
        for age, names in ages.items()
        if now - age > _LEAST
    ]
    found += [
        ~(of_types(names) & (col("timestamp") < instant(floor.before)) & _arrived_through(floor.through))
        for floor, names in floors.items()
        if floor.before > _LEAST
    ]
    found += [~(of_contexts(names) & _arrived_through(through)) for through, names in contexts.items()]
    return found


def filter_text(condition: Expr, schema: pa.Schema) -> str:
    """Return a condition over columns of the events table in the form a scan takes."""
    plan = _frame(schema).filter(condition).logical_plan()
    written: str = Unparser(Dialect.default()).plan_to_sql(plan).split(" WHERE ", 1)[1]
    parts = _TEXT.split(written)
    return "".join(part if at % 2 else _QUALIFIED.sub(_plain, part) for at, part in enumerate(parts))


def _plain(match: re.Match[str]) -> str:
    return f"`{match[1] or match[2]}`"


@lru_cache(16)
def _frame_of(names: tuple[tuple[str, pa.DataType], ...]) -> DataFrame:
    context = SessionContext(SessionConfig().set("datafusion.sql_parser.enable_ident_normalization", "false"))
    schema = pa.schema(list(names))
    context.register_record_batches("t", [[pa.RecordBatch.from_pylist([], schema=schema)]])
    return context.table("t")


def _frame(schema: pa.Schema) -> DataFrame:
    return _frame_of(tuple((one.name, one.type) for one in schema))


def events_scan(
    table: Table,
    catalog: Catalog,
    columns: Sequence[str],
    conditions: Sequence[Expr],
    limit: int | None = None,
) -> Scan:
    """Return the scan of the visible rows of the events table that meet some conditions."""
    condition = all_of([*conditions, *visible(catalog)])
    return table.scan(
        list(columns),
        filter=None if condition is None else filter_text(condition, table.schema),
        limit=limit,
    )


def scan_events(
    table: Table, catalog: Catalog, columns: Sequence[str], conditions: Sequence[Expr]
) -> pa.Table:
    """Return visible rows of the events table that meet some conditions."""
    return events_scan(table, catalog, columns, conditions).to_table()


def ids_by_type(table: Table, catalog: Catalog) -> dict[str, NDArray[np.int64]]:
    """Return the ids of the visible events of every type that has any, ascending, all of one snapshot."""
    found: dict[str, list[NDArray[np.int64]]] = {}
    for batch in events_scan(table, catalog, ["event_id", "event_type"], []).to_batches():
        ids, types = batch.column(0).to_numpy(), batch.column(1)
        for name in pc.unique(types).to_pylist():
            found.setdefault(name, []).append(ids[pc.equal(types, name).to_numpy(zero_copy_only=False)])
    return {name: np.sort(np.concatenate(parts)) for name, parts in found.items()}
