"""Validation of payloads and Arrow tables of events, and their layout as columns of the events table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from weir.errors import InputError, SchemaError
from weir.events.calendar import with_days
from weir.events.event_types import EventType
from weir.events.field_types import INSTANT, FieldType
from weir.events.instants import YEARS, now_micros, parse_instant
from weir.events.names import check_context

__all__ = [
    "CheckedEvent",
    "checked_event",
    "columns_of_events",
    "columns_of_table",
    "instant_of",
    "misfits",
]


@dataclass(frozen=True, slots=True)
class CheckedEvent:
    """An event that fits its type.

    Parameters
    ----------
    type : EventType
        Its type.
    timestamp : int
        Microseconds since 1970.
    values : mapping of str to object
        By field, in the form Arrow needs; nulls are omitted.
    """

    type: EventType
    timestamp: int
    values: Mapping[str, Any]


def instant_of(timestamp: object, event: str) -> int:
    """Return the timestamp of an event, by default the current time.

    Raises
    ------
    InputError
        If it is not a valid time.
    """
    if timestamp is None:
        return now_micros()
    try:
        return parse_instant(timestamp)
    except InputError as error:
        raise InputError(
            f"event {event!r}, timestamp: {error.message}", where=f"{event}.timestamp", hint=error.hint
        ) from None


def checked_event(kind: EventType, payload: object, timestamp: object) -> CheckedEvent:
    """Return an event, or raise an error that says what does not fit.

    Raises
    ------
    InputError
        Naming event and field: one is missing, unknown, or has a value of another type.
    """
    if not isinstance(payload, Mapping):
        raise SchemaError(f"event {kind.name!r}: a payload is a dict, got {payload!r:.80}", where=kind.name)
    fields = kind.fields
    unknown = next((name for name in payload if name not in fields), None)
    if unknown is not None:
        raise SchemaError(
            f"event {kind.name!r} has no field {unknown!r:.150}",
            where=f"{kind.name}.{unknown!s:.150}",
            hint=f"Its fields are {', '.join(fields) or 'none'}",
        )
    values = {}
    for name, field in fields.items():
        value = payload.get(name)
        if value is None and not field.optional:
            what = "is null" if name in payload else "is missing"
            raise SchemaError(f"event {kind.name!r}: field {name!r} {what}", where=f"{kind.name}.{name}")
        if value is not None:
            try:
                values[name] = field.checked(value)
            except InputError as error:
                raise SchemaError(
                    f"event {kind.name!r}, field {name!r}: {error.message}",
                    where=f"{kind.name}.{name}",
                    hint=error.hint,
                ) from None
    return CheckedEvent(kind, instant_of(timestamp, kind.name), values)


def columns_of_events(events: Sequence[CheckedEvent], context: str) -> dict[str, pa.Array]:
    """Return events of one context as columns of the events table, without ids."""
    columns: dict[str, pa.Array] = {
        "context_id": pa.array([context] * len(events), pa.string()),
        "event_type": pa.array([event.type.name for event in events], pa.string()),
        "timestamp": pa.array([event.timestamp for event in events], INSTANT),
    }
    if len(events) == 1:
        only = events[0]
        for name, value in only.values.items():
            columns[only.type.columns[name][-1]] = _array([value], only.type.fields[name])
        return with_days(columns)
    values: dict[str, tuple[list[Any], FieldType]] = {}
    for at, event in enumerate(events):
        for name, value in event.values.items():
            column = event.type.columns[name][-1]
            if column not in values:
                values[column] = [None] * len(events), event.type.fields[name]
            values[column][0][at] = value
    for column, (held, field) in values.items():
        columns[column] = _array(held, field)
    return with_days(columns)


def _array(values: list[Any], field: FieldType) -> pa.Array:
    return pa.array(values, field.arrow)


# --- Arrow tables --------------------------------------------------------------------------------


def columns_of_table(kind: EventType, given: object, first_row: int = 0) -> dict[str, pa.Array]:
    """Return a table of events of one type as columns of the events table, without ids.

    Parameters
    ----------
    kind : EventType
        The type.
    given : table-like
        The events.
    first_row : int, default 0
        The number of the first row in error messages.

    Raises
    ------
    InputError
        Naming event and field, and the first row that does not fit.
    """
    try:
        return _columns_of_table(kind, _as_table(given, kind))
    except _RowMisfitError as misfit:
        raise SchemaError(
            f"event {kind.name!r}, field {misfit.field!r}, row {first_row + misfit.row}: {misfit.why}",
            where=f"{kind.name}.{misfit.field}",
        ) from None


class _RowMisfitError(Exception):
    """A value of a row does not fit its field."""

    def __init__(self, field: str, row: int, why: str) -> None:
        super().__init__(why)
        self.field, self.row, self.why = field, row, why


def _columns_of_table(kind: EventType, table: pa.Table) -> dict[str, pa.Array]:
    rows = table.num_rows
    doubled = next((name for name in table.column_names if table.column_names.count(name) > 1), None)
    if doubled is not None:
        raise SchemaError(
            f"event {kind.name!r}: column {doubled!r} occurs twice", where=f"{kind.name}.{doubled}"
        )
    fields = kind.fields
    for name in table.column_names:
        if name not in fields and name not in ("context_id", "timestamp"):
            raise SchemaError(
                f"event {kind.name!r} has no field {name!r:.150}",
                where=f"{kind.name}.{name}",
                hint=f"Columns may be context_id, timestamp, {', '.join(fields)}",
            )
    if "context_id" not in table.column_names:
        raise SchemaError(
            f"event {kind.name!r}: column context_id is missing", where=f"{kind.name}.context_id"
        )
    columns = {
        "context_id": _contexts(_column(table, "context_id"), kind),
        "event_type": pa.repeat(pa.scalar(kind.name, pa.string()), rows),
        "timestamp": _timestamps(table, kind),
    }
    for name, field in fields.items():
        if name in table.column_names:
            array = _converted(_column(table, name), field, kind.name, name)
        elif field.optional:
            continue
        else:
            raise SchemaError(f"event {kind.name!r}: field {name!r} is missing", where=f"{kind.name}.{name}")
        if not field.optional and array.null_count:
            raise _RowMisfitError(name, pc.index(pc.is_null(array), True).as_py(), "null is not allowed")
        columns[kind.columns[name][-1]] = array
    return with_days(columns)


def misfits(kind: EventType, table: pa.Table) -> pa.Array:
    """Return for every row of a table why it is not an event of a type; null if it is."""
    reasons: list[str | None] = [None] * table.num_rows
    waiting = [(0, table.num_rows)]
    while waiting:
        start, end = waiting.pop()
        try:
            columns_of_table(kind, table.slice(start, end - start))
        except InputError as error:
            if end - start > 1:
                middle = (start + end) // 2
                waiting += [(start, middle), (middle, end)]
            elif end > start:
                reasons[start] = error.message.replace(", row 0:", ":")
    return pa.array(reasons, pa.string())


def _as_table(given: object, kind: EventType) -> pa.Table:
    if isinstance(given, pa.Table):
        return given
    if isinstance(given, pa.RecordBatch):
        return pa.Table.from_batches([given])
    if isinstance(given, pa.RecordBatchReader):
        return given.read_all()
    raise SchemaError(
        f"event {kind.name!r}: events come as an Arrow table, got {type(given).__name__}", where=kind.name
    )


def _column(table: pa.Table, name: str) -> pa.Array:
    column = table.column(name)
    array = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def _contexts(array: pa.Array, kind: EventType) -> pa.Array:
    if not _is_text(array.type):
        raise SchemaError(
            f"event {kind.name!r}: context_id is {array.type}, not string", where=f"{kind.name}.context_id"
        )
    array = array.cast(pa.string())
    bad = pc.fill_null(pc.less(pc.binary_length(array), 1), True)
    if pc.any(bad).as_py():
        raise _RowMisfitError("context_id", pc.index(bad, True).as_py(), "the name of a context is empty")
    longest = pc.max(pc.binary_length(array)).as_py()
    if longest is not None and longest > 4096:
        check_context(array[pc.index(pc.binary_length(array), longest).as_py()].as_py())
    return array


def _timestamps(table: pa.Table, kind: EventType) -> pa.Array:
    now = pa.scalar(now_micros(), pa.int64()).cast(INSTANT)
    if "timestamp" not in table.column_names:
        return pa.repeat(now, table.num_rows)
    array = _converted(_column(table, "timestamp"), FieldType("datetime", True), kind.name, "timestamp")
    return pc.fill_null(array, now) if array.null_count else array


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _converted(array: pa.Array, field: FieldType, event: str, name: str) -> pa.Array:
    """Return a column with the type of its field; vectorised where single values need no check."""
    kind, is_ = array.type, pa.types
    if is_.is_null(kind):
        return pa.nulls(len(array), field.arrow)
    try:
        if field.kind == "string" and _is_text(kind):
            return array.cast(pa.string())
        if field.kind == "enum" and _is_text(kind):
            array = array.cast(pa.string())
            known = pc.or_kleene(pc.is_null(array), pc.is_in(array, pa.array(field.values, pa.string())))
            if not pc.all(known, min_count=0).as_py():
                row = pc.index(known, False).as_py()
                raise _RowMisfitError(
                    name, row, f"{array[row].as_py()!r:.80} is none of {', '.join(field.values)}"
                )
            return array
        if field.kind == "int" and is_.is_integer(kind):
            return array.cast(pa.int64())
        if field.kind == "float" and (is_.is_floating(kind) or is_.is_integer(kind)):
            return _floats(array.cast(pa.float64(), safe=False), event, name)
        if field.kind == "bool" and is_.is_boolean(kind):
            return array
        if field.kind == "date" and is_.is_date(kind):
            return _of_years(array.cast(pa.date32()), event, name)
        if field.kind == "datetime" and is_.is_timestamp(kind):
            return _of_years(_instants(array), event, name)
        if field.kind == "decimal" and is_.is_decimal(kind):
            return array.cast(field.arrow)
        if field.kind == "decimal" and is_.is_integer(kind) and field.scale <= 18:
            # A cast asks for room for every number that there could be, not for those there are.
            return array.cast(pa.decimal128(38, field.scale)).cast(field.arrow)
    except pa.ArrowInvalid as error:
        raise SchemaError(
            f"event {event!r}, field {name!r}: {str(error)[:200]}", where=f"{event}.{name}"
        ) from None
    return _one_by_one(array, field, event, name)


def _floats(array: pa.Array, event: str, name: str) -> pa.Array:
    bad = pc.is_nan(array)
    if pc.any(bad).as_py():
        raise _RowMisfitError(name, pc.index(bad, True).as_py(), "NaN is no number")
    # There is one zero.
    return pc.add(array, 0.0)


def _of_years(array: pa.Array, event: str, name: str) -> pa.Array:
    """Return dates or instants unchanged; refuse those outside the valid years."""
    least, most = (
        pa.scalar(one.date() if pa.types.is_date(array.type) else one, array.type) for one in YEARS
    )
    bounds = pc.min_max(array)
    if not bounds["min"].is_valid or (
        pc.greater_equal(bounds["min"], least).as_py() and pc.less_equal(bounds["max"], most).as_py()
    ):
        return array
    within = pc.and_(pc.greater_equal(array, least), pc.less_equal(array, most))
    row = pc.index(pc.fill_null(within, True), False).as_py()
    raise _RowMisfitError(name, row, "it is not within the years 1 to 9999")


def _instants(array: pa.Array) -> pa.Array:
    unit = array.type.unit
    if unit == "ns":
        # Rounded down, as numbers are.
        return (
            pc.floor_temporal(array, unit="microsecond").cast(pa.timestamp("us", array.type.tz)).cast(INSTANT)
        )
    return array.cast(pa.timestamp("us", array.type.tz)).cast(INSTANT)


def _one_by_one(array: pa.Array, field: FieldType, event: str, name: str) -> pa.Array:
    # Texts that say dates, times or decimals, and lists: each value once.
    values = array.to_pylist()
    known: dict[Any, Any] = {}
    result: list[Any] = []
    for row, value in enumerate(values):
        if value is None:
            result.append(None)
            continue
        key = (type(value), value) if not isinstance(value, (list, dict)) else None
        if key is not None and key in known:
            result.append(known[key])
            continue
        try:
            checked = field.checked(value)
        except InputError as error:
            raise _RowMisfitError(name, row, error.message) from None
        if key is not None:
            known[key] = checked
        result.append(checked)
    return pa.array(result, field.arrow)
