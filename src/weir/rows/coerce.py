"""User input as Arrow tables and columns, before it is checked against a table."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, is_dataclass
from datetime import date, datetime
from itertools import islice
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from weir.errors import InputError, SchemaError
from weir.rows.cast import cast_to, fits, is_text
from weir.rows.conforming import unknown_column
from weir.rows.failing_rows import first_refused
from weir.rows.zones import refuse_mixed_zones, zone_hint
from weir.schema.list_cast import is_list

__all__ = [
    "RowInput",
    "as_column",
    "as_dicts",
    "as_table",
    "collected",
    "holds_columns",
    "in_one_line",
    "pieces",
    "repeatable",
    "whole_numbers",
    "with_named_index",
]

RowInput: TypeAlias = Any
"""Arrow table, record batch or reader, pandas or polars data frame, anything else that exports an
Arrow stream, a list of dicts, or a dict of columns."""

_INT64 = pa.int64()
# Rows of a generator that are written together.
_ROWS_PER_PIECE = 10_000


def collected(data: Any) -> Any:
    """Return the rows of a lazy frame; anything else unchanged."""
    kind = type(data)
    if kind.__module__.split(".")[0] == "polars" and kind.__name__ == "LazyFrame":
        return data.collect()
    return data


def pieces(data: Any) -> Iterator[Any] | None:
    """Return the pieces of a stream, one of which is held at a time; None if it is not a stream.

    A stream is a record batch reader, or an iterator of record batches, tables, dicts or objects.
    """
    if isinstance(data, pa.RecordBatchReader):
        stream: Iterator[Any] = iter(data)
        return stream
    if not isinstance(data, Iterator) or hasattr(data, "__arrow_c_stream__"):
        return None
    return _pieces(data)


def _pieces(data: Iterator[Any]) -> Iterator[Any]:
    for first in data:
        if (
            isinstance(first, pa.RecordBatch | pa.Table)
            or hasattr(first, "__arrow_c_array__")
            or hasattr(first, "__arrow_c_stream__")
        ):
            yield first
        else:
            yield [first, *islice(data, _ROWS_PER_PIECE - 1)]


def repeatable(data: RowInput) -> RowInput:
    """Return rows or keys so that they can be read more than once: for a stream, all of it."""
    if isinstance(data, (pa.Table, pa.RecordBatch, pa.Array, pa.ChunkedArray, Mapping, Sequence)):
        return data
    data = collected(data)
    if isinstance(data, pa.RecordBatchReader):
        return data.read_all()
    stream = pieces(data)
    if stream is not None:
        parts = list(stream)
        if all(isinstance(part, list) for part in parts):
            return [row for part in parts for row in part]
        return pa.concat_tables([pa.table(part) for part in parts])
    if type(data).__module__.split(".")[0] == "pandas" or not hasattr(data, "__arrow_c_stream__"):
        return data
    return pa.table(data)


def as_table(data: RowInput, schema: pa.Schema, *, first_row: int = 0) -> pa.Table:
    """Return rows as an Arrow table; values that have no Arrow type yet in those of a schema.

    Parameters
    ----------
    first_row : int, default 0
        How many rows of the caller's come before these: errors count from its first.

    Raises
    ------
    InputError
        If they are of a kind Weir does not take.
    SchemaError
        If they do not make a table, or a value does not fit its column.
    """
    if isinstance(data, pa.Table):
        return data
    data = collected(data)
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if isinstance(data, pa.StructArray):
        return pa.Table.from_batches([pa.RecordBatch.from_struct_array(data)])
    if isinstance(data, Mapping):
        if data and not holds_columns(data):
            raise InputError(
                f"a dict is taken as columns, and {next(iter(data))!r} is not a list of values",
                where="data",
                hint="Pass one row as a list of one dict",
            )
        return _from_columns(data, schema, first_row)
    if type(data).__module__.split(".")[0] == "pandas":
        return _from_pandas(data, schema, first_row)
    if hasattr(data, "__arrow_c_stream__"):
        return pa.table(data)
    if hasattr(data, "__arrow_c_array__"):
        return pa.Table.from_batches([pa.record_batch(data)])
    if isinstance(data, Sequence) and not isinstance(data, (str, bytes)):
        dicts = as_dicts(data)
        if dicts is not None:
            return _from_dicts(dicts, schema, first_row)
        if data and all(isinstance(batch, pa.RecordBatch) for batch in data):
            return pa.Table.from_batches(list(data))
    raise InputError(
        f"rows cannot be taken from {type(data).__name__}",
        where="data",
        hint="Pass an Arrow table, batch or reader, a pandas or polars data frame, or a list of dicts",
    )


def as_dicts(rows: Sequence[Any]) -> Sequence[Mapping[str, Any]] | None:
    """Return rows as dicts, dataclasses and pydantic models as their fields; None for others."""
    if all(isinstance(row, Mapping) for row in rows):
        return rows
    dicts = [_as_dict(row) for row in rows]
    return None if any(row is None for row in dicts) else [row for row in dicts if row is not None]


def _as_dict(row: Any) -> Mapping[str, Any] | None:
    if isinstance(row, Mapping):
        return row
    if is_dataclass(row) and not isinstance(row, type):
        return {field.name: _plain_value(getattr(row, field.name)) for field in fields(row)}
    dump = getattr(row, "model_dump", None)
    return dump() if callable(dump) and not isinstance(row, type) else None


def _plain_value(value: Any) -> Any:
    """Return what a field of a dataclass holds; dataclasses in it as dicts, as those of pydantic come."""
    if is_dataclass(value) and not isinstance(value, type):
        return _as_dict(value)
    if isinstance(value, list) and any(map(is_dataclass, value)):
        return [_plain_value(one) for one in value]
    return value


def with_named_index(data: Any) -> Any:
    """Return a data frame of pandas in which an index with a name is a column, as Arrow has it too.

    An index without a name numbers the rows, and is not data.
    """
    names = [name for name in data.index.names if name is not None and name not in data.columns]
    return data.reset_index(names) if names else data


def in_one_line(error: Exception) -> str:
    """Return what an error of Arrow says; of a data frame it says it in two parts."""
    return ": ".join(map(str, reversed(error.args)))


def holds_columns(data: Mapping[Any, Any]) -> bool:
    """Whether a dict holds columns rather than the values of one row."""
    return bool(data) and all(map(_is_column, data.values()))


def _is_column(value: Any) -> bool:
    if isinstance(value, (Sequence, pa.Array, pa.ChunkedArray)):
        return not isinstance(value, (str, bytes))
    # Arrays of NumPy and columns of data frames; single numbers of NumPy are arrays without a dimension.
    return hasattr(value, "__array__") and getattr(value, "ndim", 0) > 0


def _from_pandas(data: Any, schema: pa.Schema, first_row: int) -> pa.Table:
    if getattr(data, "ndim", None) != 2:
        raise InputError(
            f"rows cannot be taken from a pandas {type(data).__name__}",
            where="data",
            hint="Pass a DataFrame: series.to_frame()",
        )
    data = with_named_index(data)
    meant: dict[str, pa.Array] = {}
    for name, kind in data.dtypes.items() if data.columns.is_unique else ():
        if str(kind) == "object" and name in schema.names and _is_hidden(schema.field(name).type):
            values = data[name].where(data[name].notna(), None).tolist()
            meant[name] = as_column(values, schema.field(name), first_row=first_row)
    try:
        table = pa.Table.from_pandas(data.drop(columns=list(meant)), preserve_index=False)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise SchemaError(
            f"the data frame cannot be converted to a table: {in_one_line(error)}", where="data"
        ) from error
    if meant:
        table = pa.table({**dict(zip(table.schema.names, table.columns, strict=True)), **meant})
    for number, column in enumerate(table.columns):
        at = schema.get_field_index(table.schema.names[number])
        if at >= 0 and column.null_count and _is_widened(column, schema.field(at).type):
            whole = cast_to(column.cast(pa.int64()), schema.field(at), first_row=first_row)
            table = table.set_column(number, schema.field(at).name, whole)
    return table


def _is_widened(column: pa.ChunkedArray, wanted: pa.DataType) -> bool:
    """Whether these are integers with missing values, which pandas converts to floats."""
    if not (pa.types.is_float64(column.type) and pa.types.is_integer(wanted)):
        return False
    # Beyond that not every integer is a float.
    is_exact = pc.and_(pc.equal(column, pc.trunc(column)), pc.less_equal(pc.abs(column), 2.0**53))
    return bool(pc.all(is_exact, min_count=0).as_py())


def _from_columns(data: Mapping[Any, Any], schema: pa.Schema, first_row: int) -> pa.Table:
    columns = {}
    for name, values in data.items():
        known = name in schema.names and not isinstance(values, (pa.Array, pa.ChunkedArray))
        columns[str(name)] = as_column(values, schema.field(name), first_row=first_row) if known else values
    try:
        return pa.table(columns)
    except (pa.ArrowInvalid, TypeError, ValueError) as error:
        raise SchemaError(f"the columns cannot be converted to a table: {error}", where="data") from error


def _from_dicts(rows: Sequence[Mapping[str, Any]], schema: pa.Schema, first_row: int) -> pa.Table:
    names: dict[str, None] = {}
    for row in rows:
        names.update(dict.fromkeys(row))
    columns = {}
    for name in names:
        if name not in schema.names:
            raise unknown_column(str(name), schema)
        values = [row.get(name) for row in rows]
        columns[name] = as_column(values, schema.field(name), first_row=first_row)
    if not names:
        return schema.empty_table() if not rows else pa.table({"": pa.nulls(len(rows))}).select([])
    return pa.table(columns)


def as_column(values: Any, field: pa.Field, *, first_row: int = 0) -> pa.Array:
    """Return Python values as a column, refusing what Arrow would cut down to the column's type."""
    # The rows of a matrix are lists of numbers.
    values = values if hasattr(values, "__array__") and getattr(values, "ndim", 1) == 1 else list(values)
    refuse_mixed_zones(values, field)
    try:
        return _column(values, field)
    except SchemaError as error:
        refused = first_refused(len(values), lambda start, end: _column(values[start:end], field))
        if refused is None or not isinstance(refused.error, SchemaError):
            raise
        alone = refused.error
        where = f"{alone.where}, row {first_row + refused.row}"
        raise SchemaError(alone.message, where=where, hint=alone.hint) from error


def _column(values: Any, field: pa.Field, *, is_inside: bool = False) -> pa.Array:
    try:
        if pa.types.is_temporal(field.type) and isinstance(values, list) and any(map(_is_missing, values)):
            # Pandas' missing time, of which Arrow makes the first day of year 1.
            if is_inside:
                raise SchemaError(
                    f"column {field.name!r} holds NaT", where=field.name, hint="Pass None instead"
                )
            values = [None if _is_missing(value) else value for value in values]
        if pa.types.is_time(field.type) and any(getattr(value, "tzinfo", None) for value in values):
            raise SchemaError(
                f"column {field.name!r} holds a time with a time zone",
                where=field.name,
                hint=f"The column is {field.type}, which has none: give none a tzinfo",
            )
        if isinstance(field.type, pa.UuidType):
            # Arrow would take a text of 16 letters for a UUID too.
            texts = _inferred(values)
            if texts is not None and is_text(texts.type):
                return cast_to(pa.chunked_array([texts]), field).combine_chunks()
            return _column(values, field.with_type(field.type.storage_type)).cast(field.type)
        # That all values are integers, Arrow takes longer to find out.
        whole = whole_numbers(values) if field.type == _INT64 else None
        meant = _inferred(values) if whole is None else whole
        if pa.types.is_nested(field.type) and (meant is None or _is_hidden(field.type)):
            _check_parts(values, field)
        if meant is None:
            return pa.array(values, type=field.type)
        if meant.type == field.type:
            return meant
        _refuse_unlike(meant, field.type, field.name)
        if _is_plain(meant.type) and _is_plain(field.type):
            return cast_to(pa.chunked_array([meant]), field).combine_chunks()
        return pa.array(values, type=field.type)
    except SchemaError:
        raise
    except (pa.ArrowException, OverflowError, TypeError, ValueError, LookupError) as error:
        raise SchemaError(
            f"column {field.name!r} is of type {field.type}, which a value does not fit: {error}",
            where=field.name,
        ) from error


def _is_hidden(kind: pa.DataType) -> bool:
    """Whether Arrow's own type of values tells too little: none for maps, dates for dates and moments."""
    parts = (kind.field(place).type for place in range(kind.num_fields))
    return bool(pa.types.is_temporal(kind) or pa.types.is_map(kind)) or any(map(_is_hidden, parts))


def _check_parts(values: Iterable[Any], field: pa.Field) -> None:
    """Check what is in lists, structs and maps as columns of its own."""
    kind, name = field.type, field.name
    given = [value for value in values if value is not None]
    if is_list(kind):
        if any(isinstance(one, str) for one in given):
            raise SchemaError(f"column {name!r} holds text where the table has {kind}", where=name)
        listed = [one for value in given if isinstance(value, Iterable) for one in value]
        _column(listed, kind.value_field.with_name(name), is_inside=True)
    elif pa.types.is_map(kind):
        pairs = [pair for one in given for pair in (one.items() if isinstance(one, Mapping) else one)]
        _column([key for key, _ in pairs], kind.key_field.with_name(f"{name}.key"), is_inside=True)
        _column([item for _, item in pairs], kind.item_field.with_name(f"{name}.value"), is_inside=True)
    elif pa.types.is_struct(kind):
        structs = [one for one in given if isinstance(one, Mapping)]
        if len(structs) < len(given):
            raise _no_struct(name, kind)
        known = {inner.name for inner in kind}
        for unknown in {key: None for one in structs for key in one if key not in known}:
            raise _no_field(name, unknown, kind)
        for inner in kind:
            own = [one.get(inner.name) for one in structs]
            _column(own, inner.with_name(f"{name}.{inner.name}"), is_inside=True)


def _no_struct(path: str, kind: pa.DataType) -> SchemaError:
    # Arrow makes one of nulls of an empty list.
    return SchemaError(
        f"column {path!r} holds something else than the fields of {kind}",
        where=path,
        hint="Give each value as a dict",
    )


def _no_field(path: str, name: object, kind: pa.DataType) -> SchemaError:
    return SchemaError(
        f"column {path!r} has no field {name!r}",
        where=f"{path}.{name}",
        hint=f"The fields are {', '.join(field.name for field in kind)}",
    )


def whole_numbers(values: Any) -> pa.Array | None:
    """Return a list of integers as ``int64``; None if it holds anything else, or one that does not fit."""
    if isinstance(values, list) and set(map(type, values)) == {int}:
        with suppress(OverflowError):
            # In less time than Arrow takes to find out what they are.
            return pa.Array.from_buffers(_INT64, len(values), [None, pa.py_buffer(array("q", values))])
    return None


def _inferred(values: Any) -> pa.Array | None:
    """Return the values as the type they have by themselves; None if they have no common one."""
    try:
        found = pa.array(values)
        if pa.types.is_timestamp(found.type) and isinstance(values, list) and any(map(_nanosecond, values)):
            # A timestamp of pandas is also a datetime, which is what Arrow reads, and that ends at
            # microseconds.
            return pa.array(values, pa.timestamp("ns", found.type.tz))
        if pa.types.is_duration(found.type) and isinstance(values, list) and any(map(_nanoseconds, values)):
            return pa.array(values, pa.duration("ns"))
        if not pa.types.is_date(found.type):
            return found
    except (pa.ArrowException, OverflowError, TypeError, ValueError, LookupError):
        found = None
    # Of moments among dates Arrow takes the dates, or none of them.
    kinds = set(map(type, values)) if isinstance(values, list) else set()
    if date in kinds and any(issubclass(kind, datetime) for kind in kinds):
        return _inferred([_midnight(value) for value in values])
    return found


def _midnight(value: Any) -> Any:
    if type(value) is date:
        return datetime(value.year, value.month, value.day)
    if isinstance(value, datetime) and value.tzinfo is not None:
        raise ValueError("there are dates among moments with a time zone")
    return value


def _nanosecond(value: object) -> int:
    return getattr(value, "nanosecond", 0)


def _nanoseconds(value: object) -> int:
    return getattr(value, "nanoseconds", 0)


def _is_missing(value: Any) -> bool:
    return bool(value != value)


def _refuse_unlike(given: pa.Array, wanted: pa.DataType, path: str) -> None:
    """Refuse values that by their own type, at any depth, are not meant as the type of the column."""
    types, kind = pa.types, given.type
    if types.is_struct(kind) and types.is_struct(wanted):
        known = {field.name: field.type for field in wanted}
        for field, values in zip(kind, given.flatten(), strict=True):
            if field.name not in known:
                raise _no_field(path, field.name, wanted)
            _refuse_unlike(values, known[field.name], f"{path}.{field.name}")
    elif is_list(kind) and is_list(wanted):
        _refuse_unlike(given.flatten(), wanted.value_type, path)
    elif types.is_struct(wanted) and not types.is_null(kind):
        raise _no_struct(path, wanted)
    elif is_text(kind) and is_list(wanted):
        raise SchemaError(f"column {path!r} holds text where the table has {wanted}", where=path)
    elif _is_plain(kind) and _is_plain(wanted) and kind != wanted:
        if not fits(kind, wanted):
            are_moments = types.is_timestamp(kind) and types.is_timestamp(wanted)
            raise SchemaError(
                f"column {path!r} holds values of type {kind} where the table has {wanted}",
                where=path,
                hint=zone_hint(wanted).capitalize() if are_moments else "",
            )
        # Inside of lists and structs Arrow would cut it.
        cast_to(pa.chunked_array([given]), pa.field(path, wanted))


def _is_plain(kind: pa.DataType) -> bool:
    return not pa.types.is_nested(kind) and not isinstance(kind, pa.BaseExtensionType)
