"""What callers may pass as rows and keys, brought into the table's schema and checked before the WAL.

Invariant I10: bad input changes nothing; the error names column, row and reason.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from weir.errors import InputError, KeyValueError, SchemaError
from weir.format.wal_entry import TOMBSTONE
from weir.list_cast import cast, infinities, is_list

__all__ = [
    "OPERATION",
    "RowInput",
    "as_key_table",
    "as_row_tables",
    "change_table",
    "check_deletable",
    "tombstone_batches",
    "upsert_batches",
]

RowInput: TypeAlias = Any
"""Arrow table, record batch or reader, pandas or polars data frame, anything else that exports an
Arrow stream, a list of dicts, or a dict of columns."""


def as_row_tables(data: RowInput, schema: pa.Schema, primary_key: tuple[str, ...]) -> Iterator[pa.Table]:
    """Yield ``data`` in the table's schema, checked.

    A stream (record batch reader) comes batch by batch, everything else as one table, so that
    nothing of it is used before all of it has been checked.

    Raises
    ------
    InputError
        If ``data`` is of a kind Weir does not take.
    SchemaError
        If a column is unknown, doubled or of a type that does not fit, or a required one is missing.
    KeyValueError
        If a key column is missing or a key is null.
    """
    if isinstance(data, pa.RecordBatchReader):
        for batch in data:
            yield _conformed(pa.Table.from_batches([batch]), schema, primary_key)
    else:
        yield _conformed(_as_table(data, schema), schema, primary_key)


OPERATION = "_op"
"""Name of the column that says what a row of :func:`change_table` does to its key."""

_UPSERT, _DELETE = "upsert", "delete"


def change_table(
    data: RowInput,
    schema: pa.Schema,
    wal_schema: pa.Schema,
    primary_key: tuple[str, ...],
    *,
    also: Collection[str] = (),
) -> pa.Table:
    """Return rows that upsert or delete their keys, in their order, as rows of WAL entries.

    Which of the two a row does, the column :data:`OPERATION` says: ``"upsert"``, as where it is null or
    not there, or ``"delete"``. If the table has a column of that name itself, all rows are upserts.

    Parameters
    ----------
    also : collection of str
        Columns outside the key that a tombstone keeps, because they decide the shard.

    Raises
    ------
    InputError, SchemaError, KeyValueError
        As :func:`as_row_tables`; or an operation is another one, or a delete could not be stored.
    """
    whole = pa.Table.from_batches(list(data), data.schema) if isinstance(data, pa.RecordBatchReader) else data
    if not isinstance(whole, pa.Table):
        whole = _as_table(whole, schema.append(_OPERATION_FIELD) if _has_operations(schema) else schema)
    deletes = None
    if _has_operations(schema) and whole.schema.names.count(OPERATION) == 1:
        deletes = _deletes(whole.column(OPERATION))
        whole = whole.drop_columns([OPERATION])
    (rows,) = as_row_tables(whole, schema, primary_key)
    if deletes is None or not pc.any(deletes).as_py():
        deletes = pa.chunked_array([_flags(rows.num_rows, False)])
        return pa.Table.from_arrays([*rows.columns, deletes], schema=wal_schema)
    check_deletable(schema, primary_key)
    kept = pc.if_else(deletes, pa.scalar(None, pa.int64()), pa.array(np.arange(rows.num_rows)))
    columns = [
        rows.column(field.name)
        if field.name in primary_key or field.name in also
        else rows.column(field.name).take(kept)
        for field in schema
    ]
    return pa.Table.from_arrays([*columns, deletes], schema=wal_schema)


def as_key_table(
    keys: RowInput,
    schema: pa.Schema,
    primary_key: tuple[str, ...],
    *,
    also: Collection[str] = (),
) -> pa.Table:
    """Return keys as a table of the primary-key columns.

    Parameters
    ----------
    keys : list, Array, table-like
        For a single-column key: a list or Arrow array of values. For any key: whole rows, or tables,
        data frames, dicts or tuples that hold the key columns; other columns are ignored.
    also : collection of str
        Columns outside the key that are needed as well, because they decide the shard.

    Raises
    ------
    KeyValueError
        If a key column is missing or a key is null.
    SchemaError
        If a value does not fit the type of its key column.
    """
    key_schema = pa.schema([schema.field(name) for name in primary_key])
    if isinstance(keys, (str, bytes, bytearray, memoryview)) or _is_single(keys):
        raise InputError(
            f"keys must be a list, an array or a table of keys, got {keys!r}",
            where="keys",
            hint=f"For one key pass a list of one: [{keys!r}]",
        )
    values = _values(keys)
    if values is not None:
        keys = pa.table({_only(primary_key): values})
    elif isinstance(keys, Sequence) and not (keys and isinstance(keys[0], Mapping)):
        keys = _keys_from_values(keys, key_schema, primary_key)
        if not also:
            # Of integers nothing else can be wrong.
            sound = all(pa.types.is_integer(column.type) and not column.null_count for column in keys.columns)
            return keys if sound else _conformed(keys, key_schema, primary_key)
    needed = [name for name in schema.names if name in primary_key or name in also]
    if isinstance(keys, Sequence) and keys and all(isinstance(row, Mapping) for row in keys):
        keys = [{name: row[name] for name in needed if name in row} for row in keys]
    elif isinstance(keys, Mapping):
        keys = {name: values for name, values in keys.items() if name in needed}
    table = _as_table(keys, schema)
    missing = [name for name in primary_key if name not in table.schema.names]
    if missing:
        raise _missing_key(missing[0], primary_key)
    outside = [name for name in schema.names if name in also and name not in primary_key]
    for name in outside:
        if name not in table.schema.names:
            raise KeyValueError(
                f"column {name!r} decides the shard of a row and is missing from the keys",
                where=name,
                hint="Pass rows that hold it, not keys alone",
            )
    wanted = pa.schema([*key_schema, *(schema.field(name) for name in outside)])
    return _conformed(table.select(wanted.names), wanted, primary_key)


_OPERATION_FIELD = pa.field(OPERATION, pa.string())


def _has_operations(schema: pa.Schema) -> bool:
    return OPERATION not in schema.names


def _deletes(operations: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return which rows are deletes."""
    if pa.types.is_null(operations.type):
        return pa.chunked_array([_flags(len(operations), False)])
    kind = operations.type.value_type if pa.types.is_dictionary(operations.type) else operations.type
    if not _is_text(kind):
        raise SchemaError(f"the column {OPERATION!r} is of type {kind} and has to be text", where=OPERATION)
    names = pc.fill_null(operations.cast(pa.string()), _UPSERT)
    wrong = pc.invert(pc.is_in(names, pa.array([_UPSERT, _DELETE])))
    if pc.any(wrong).as_py():
        row = int(pc.index(wrong, True).as_py())
        raise InputError(
            f"the operation {names[row].as_py()!r:.80} in row {row} is unknown",
            where=f"{OPERATION}, row {row}",
            hint=f"It is {_UPSERT!r} or {_DELETE!r}; null is {_UPSERT!r}",
        )
    return pc.equal(names, _DELETE)


def check_deletable(schema: pa.Schema, primary_key: tuple[str, ...]) -> None:
    """Refuse deletes on a table whose tombstones could not be stored.

    A tombstone carries the key and nulls.

    Raises
    ------
    SchemaError
        Naming the columns that are not nullable.
    """
    required = [field.name for field in schema if not field.nullable and field.name not in primary_key]
    if required:
        raise SchemaError(
            f"rows of this table cannot be deleted: {', '.join(required)} cannot be null, and a "
            "tombstone holds nulls outside the key",
            where=", ".join(required),
            hint="Create the table with these columns nullable",
        )


def upsert_batches(rows: pa.Table, wal_schema: pa.Schema) -> list[pa.RecordBatch]:
    """Return checked rows as batches of WAL entries."""
    tombstone = wal_schema.field(TOMBSTONE)
    return [
        batch.append_column(tombstone, _flags(batch.num_rows, False))
        for batch in rows.to_batches()
        if batch.num_rows
    ]


def tombstone_batches(keys: pa.Table, wal_schema: pa.Schema) -> list[pa.RecordBatch]:
    """Return checked keys as batches of tombstones."""
    batches = []
    for batch in keys.to_batches():
        if not batch.num_rows:
            continue
        columns = [
            batch.column(field.name)
            if field.name in keys.schema.names
            else pa.nulls(batch.num_rows, field.type)
            for field in wal_schema
            if field.name != TOMBSTONE
        ]
        columns.append(_flags(batch.num_rows, True))
        batches.append(pa.RecordBatch.from_arrays(columns, schema=wal_schema))
    return batches


@lru_cache(maxsize=64)
def _flags(count: int, value: bool) -> pa.Array:
    # Immutable, and writers tend to write batches of one size.
    return pa.repeat(pa.scalar(value), count)


def _is_single(keys: object) -> bool:
    if isinstance(keys, Mapping):
        return not _columns(keys)
    return keys is None or isinstance(keys, (int, float))


def _columns(data: Mapping[Any, Any]) -> bool:
    """Whether a dict holds columns rather than the values of one row."""
    return bool(data) and all(
        isinstance(value, (Sequence, pa.Array, pa.ChunkedArray)) and not isinstance(value, (str, bytes))
        for value in data.values()
    )


def _values(keys: RowInput) -> pa.Array | pa.ChunkedArray | None:
    """Return an Arrow array, NumPy array or data-frame column as an Arrow array, else None."""
    if isinstance(keys, (pa.Array, pa.ChunkedArray)):
        return None if isinstance(keys, pa.StructArray) else keys
    if getattr(keys, "ndim", None) == 1:
        return pa.array(keys, from_pandas=True)
    if type(keys).__name__ == "Series" and hasattr(keys, "__arrow_c_stream__"):
        return pa.chunked_array(keys)
    return None


def _only(primary_key: tuple[str, ...]) -> str:
    if len(primary_key) > 1:
        raise KeyValueError(
            f"the primary key has {len(primary_key)} columns ({', '.join(primary_key)}); an array holds one",
            where="keys",
            hint="Pass a table, dicts or tuples with every key column",
        )
    return primary_key[0]


def _keys_from_values(keys: Sequence[Any], schema: pa.Schema, primary_key: tuple[str, ...]) -> pa.Table:
    if len(primary_key) == 1:
        columns: list[Sequence[Any]] = [
            [one[0] if isinstance(one, tuple) and len(one) == 1 else one for one in keys]
        ]
    else:
        for row, key in enumerate(keys):
            if not isinstance(key, (tuple, list)) or len(key) != len(primary_key):
                raise KeyValueError(
                    f"key {row} is {key!r}; a key of this table has {len(primary_key)} values: "
                    f"{', '.join(primary_key)}",
                    where=f"keys[{row}]",
                )
        columns = list(zip(*keys, strict=True)) if keys else [[] for _ in primary_key]
    arrays = [_array(values, field) for values, field in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def _array(values: Any, field: pa.Field) -> pa.Array:
    """Return Python values as a column, refusing what Arrow would cut down to the column's type."""
    values = values if hasattr(values, "__array__") else list(values)
    try:
        meant = _inferred(values)
        if meant is None:
            return pa.array(values, type=field.type)
        if meant.type == field.type:
            return meant
        _refuse_unlike(meant.type, field.type, field.name)
        if _is_plain(meant.type) and _is_plain(field.type):
            return _cast(pa.chunked_array([meant]), field).combine_chunks()
        return pa.array(values, type=field.type)
    except SchemaError:
        raise
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        raise SchemaError(
            f"column {field.name!r} is of type {field.type}, which a value does not fit: {error}",
            where=field.name,
        ) from error


def _inferred(values: Any) -> pa.Array | None:
    """Return the values as the type they have by themselves; None if they have no common one."""
    try:
        return pa.array(values)
    except (pa.ArrowException, OverflowError, TypeError, ValueError):
        return None


def _refuse_unlike(given: pa.DataType, wanted: pa.DataType, path: str) -> None:
    """Refuse values whose own type, at any depth, is not meant as the type of the column."""
    types = pa.types
    if types.is_struct(given) and types.is_struct(wanted):
        known = {field.name: field.type for field in wanted}
        for field in given:
            if field.name not in known:
                raise SchemaError(
                    f"column {path!r} has no field {field.name!r}",
                    where=f"{path}.{field.name}",
                    hint=f"The fields are {', '.join(known)}",
                )
            _refuse_unlike(field.type, known[field.name], f"{path}.{field.name}")
    elif is_list(given) and is_list(wanted):
        _refuse_unlike(given.value_type, wanted.value_type, path)
    elif _is_plain(given) and _is_plain(wanted) and not _fits(given, wanted):
        if types.is_date(given) and types.is_timestamp(wanted):
            return
        raise SchemaError(
            f"column {path!r} holds values of type {given} where the table has {wanted}", where=path
        )


def _is_plain(kind: pa.DataType) -> bool:
    return not pa.types.is_nested(kind) and not isinstance(kind, pa.BaseExtensionType)


def _as_table(data: RowInput, schema: pa.Schema) -> pa.Table:
    if isinstance(data, pa.Table):
        return data
    if isinstance(data, pa.RecordBatch):
        return pa.Table.from_batches([data])
    if isinstance(data, pa.StructArray):
        return pa.Table.from_batches([pa.RecordBatch.from_struct_array(data)])
    if isinstance(data, Mapping):
        if data and not _columns(data):
            raise InputError(
                f"a dict is taken as columns, and {next(iter(data))!r} holds no list of values",
                where="data",
                hint="Pass one row as a list of one dict",
            )
        return _from_columns(data, schema)
    if type(data).__module__.split(".")[0] == "pandas":
        return _from_pandas(data)
    if hasattr(data, "__arrow_c_stream__"):
        return pa.table(data)
    if isinstance(data, Sequence) and not isinstance(data, (str, bytes)):
        if all(isinstance(row, Mapping) for row in data):
            return _from_dicts(data, schema)
        if data and all(isinstance(batch, pa.RecordBatch) for batch in data):
            return pa.Table.from_batches(list(data))
    raise InputError(
        f"rows cannot be taken from {type(data).__name__}",
        where="data",
        hint="Pass an Arrow table, batch or reader, a pandas or polars data frame, or a list of dicts",
    )


def _from_pandas(data: Any) -> pa.Table:
    if getattr(data, "ndim", None) != 2:
        raise InputError(
            f"rows cannot be taken from a pandas {type(data).__name__}",
            where="data",
            hint="Pass a DataFrame: series.to_frame()",
        )
    try:
        return pa.Table.from_pandas(data, preserve_index=False)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise SchemaError(f"the data frame does not make a table: {error}", where="data") from error


def _from_columns(data: Mapping[Any, Any], schema: pa.Schema) -> pa.Table:
    columns = {}
    for name, values in data.items():
        known = name in schema.names and not isinstance(values, (pa.Array, pa.ChunkedArray))
        columns[str(name)] = _array(values, schema.field(name)) if known else values
    try:
        return pa.table(columns)
    except (pa.ArrowInvalid, TypeError, ValueError) as error:
        raise SchemaError(f"the columns do not make a table: {error}", where="data") from error


def _from_dicts(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.Table:
    names: dict[str, None] = {}
    for row in rows:
        names.update(dict.fromkeys(row))
    columns = {}
    for name in names:
        if name not in schema.names:
            raise _unknown(str(name), schema)
        columns[name] = _array([row.get(name) for row in rows], schema.field(name))
    if not names:
        return schema.empty_table() if not rows else pa.table({"": pa.nulls(len(rows))}).select([])
    return pa.table(columns)


@dataclass(frozen=True, slots=True)
class _Column:
    """What a column of a table is checked for, told once: asking Arrow for it takes a while."""

    field: pa.Field
    type: pa.DataType
    is_required: bool
    has_required_parts: bool


@lru_cache(maxsize=256)
def _columns_of(schema: pa.Schema, primary_key: tuple[str, ...]) -> tuple[_Column, ...]:
    return tuple(
        _Column(
            field,
            field.type,
            not field.nullable or field.name in primary_key,
            _has_required_parts(field.type),
        )
        for field in schema
    )


def _conformed(table: pa.Table, schema: pa.Schema, primary_key: tuple[str, ...]) -> pa.Table:
    names = table.schema.names
    if names == schema.names:
        columns = table.columns
    else:
        _check_names(names, schema, primary_key)
        columns = [
            table.column(field.name)
            if field.name in names
            else pa.chunked_array([pa.nulls(table.num_rows, field.type)])
            for field in schema
        ]
    for number, wanted in enumerate(_columns_of(schema, primary_key)):
        column = columns[number]
        if column.type != wanted.type:
            column = columns[number] = _cast(column, wanted.field)
        if wanted.is_required and column.null_count:
            _refuse_null(column, wanted.field.name, primary_key)
        if wanted.has_required_parts:
            _refuse_invalid(column, wanted.field.name)
            for chunk in column.chunks:
                _refuse_nested_nulls(chunk, wanted.field, wanted.field.name)
    conformed = pa.Table.from_arrays(columns, schema=schema)
    try:
        # All at once: each call of Arrow's gives other threads the interpreter, and waits to have it back.
        conformed.validate(full=True)
    except (pa.ArrowInvalid, UnicodeError):
        for column, field in zip(columns, schema, strict=True):
            _refuse_invalid(column, field.name)
        raise
    return conformed


def _refuse_invalid(column: pa.ChunkedArray, name: str) -> None:
    """Refuse what Arrow lets pass and Lance does not: once durable, it could never be flushed."""
    try:
        column.validate(full=True)
    except (pa.ArrowInvalid, UnicodeError) as error:
        raise SchemaError(f"column {name!r} holds invalid values: {error}", where=name) from error


def _has_required_parts(kind: pa.DataType) -> bool:
    """Whether there is, at any depth, a field that cannot be null."""
    parts = (kind.field(number) for number in range(kind.num_fields))
    return any(not part.nullable or _has_required_parts(part.type) for part in parts)


def _refuse_nested_nulls(array: pa.Array, field: pa.Field, path: str) -> None:
    kind = field.type
    valid = array if not array.null_count else array.filter(array.is_valid())
    if pa.types.is_struct(kind):
        parts = [(kind.field(at), valid.field(at)) for at in range(kind.num_fields)]
    elif pa.types.is_map(kind):
        parts = [(kind.key_field, valid.keys), (kind.item_field, valid.items)]
    elif is_list(kind):
        parts = [(kind.value_field, valid.flatten())]
    else:
        return
    for inner, values in parts:
        where = f"{path}.{inner.name}"
        if not inner.nullable and values.null_count:
            raise SchemaError(f"{where} cannot be null and is null in a row", where=where)
        _refuse_nested_nulls(values, inner, where)


def _check_names(names: Sequence[str], schema: pa.Schema, primary_key: tuple[str, ...]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise SchemaError(f"column {name!r} occurs twice in the data", where=name)
        seen.add(name)
        if name not in schema.names:
            raise _unknown(name, schema)
    for name in primary_key:
        if name not in seen:
            raise _missing_key(name, primary_key)
    for field in schema:
        if field.name not in seen and not field.nullable:
            raise SchemaError(
                f"column {field.name!r} is missing and cannot be null",
                where=field.name,
                hint="Add the column to the data",
            )


def _unknown(name: str, schema: pa.Schema) -> SchemaError:
    return SchemaError(
        f"the table has no column {name!r}",
        where=name,
        hint=f"The columns are {', '.join(schema.names)}",
    )


def _missing_key(name: str, primary_key: tuple[str, ...]) -> KeyValueError:
    return KeyValueError(
        f"primary-key column {name!r} is missing from the data",
        where=name,
        hint=f"Every row needs its key: {', '.join(primary_key)}",
    )


def _refuse_null(column: pa.ChunkedArray, name: str, primary_key: tuple[str, ...]) -> None:
    row = int(pc.index(column.is_null(), True).as_py())
    if name in primary_key:
        raise KeyValueError(f"primary-key column {name!r} is null in row {row}", where=f"{name}, row {row}")
    raise SchemaError(f"column {name!r} cannot be null and is null in row {row}", where=f"{name}, row {row}")


def _cast(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    if not _fits(column.type, field.type):
        raise SchemaError(
            f"column {field.name!r} is of type {column.type} where the table has {field.type}",
            where=field.name,
            hint=f"Cast it to {field.type} first",
        )
    try:
        fitted = cast(column, field.type)
        infinite = infinities(fitted)
        if infinite and infinite > infinities(column):
            raise pa.ArrowInvalid("a number is too large")
        return fitted
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise SchemaError(
            f"column {field.name!r} has a value that does not fit {field.type}: {error}",
            where=field.name,
        ) from error


def _fits(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether values of one type are meant as values of another: same kind, perhaps another width."""
    types = pa.types
    if given == wanted or types.is_null(given):
        return True
    if types.is_dictionary(given):
        return _fits(given.value_type, wanted)
    if types.is_dictionary(wanted):
        return _fits(given, wanted.value_type)
    if is_list(given) and is_list(wanted):
        return _fits(given.value_type, wanted.value_type)
    if types.is_struct(given) and types.is_struct(wanted):
        same = [field.name for field in given] == [field.name for field in wanted]
        return same and all(_fits(a.type, b.type) for a, b in zip(given, wanted, strict=True))
    if types.is_map(given) and types.is_map(wanted):
        return _fits(given.key_type, wanted.key_type) and _fits(given.item_type, wanted.item_type)
    kinds = (
        (types.is_integer, types.is_integer),
        (types.is_integer, types.is_floating),
        (types.is_floating, types.is_floating),
        (types.is_integer, types.is_decimal),
        (types.is_decimal, types.is_decimal),
        # Where there are no unsigned numbers, 64 of their bits are a decimal.
        (types.is_decimal, types.is_integer),
        (_is_text, _is_text),
        (_is_binary, _is_binary),
        (types.is_date, types.is_date),
        (types.is_time, types.is_time),
        (types.is_duration, types.is_duration),
    )
    if types.is_timestamp(given) and types.is_timestamp(wanted):
        return (given.tz is None) == (wanted.tz is None)
    return any(one(given) and other(wanted) for one, other in kinds)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_binary(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
        or pa.types.is_binary_view(kind)
    )
