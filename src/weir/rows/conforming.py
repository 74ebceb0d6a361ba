"""Arrow tables checked against the schema of a table, column by column, and as batches of WAL entries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from weir.errors import KeyValueError, SchemaError
from weir.format.distinct_sketch import SKETCH, check_sketches
from weir.format.wal_entry import TOMBSTONE
from weir.rows.cast import cast_to
from weir.rows.json_texts import kept_json
from weir.schema.list_cast import is_list

__all__ = [
    "conformed",
    "missing_key",
    "tombstone_batches",
    "tombstones",
    "unknown_column",
    "upsert_batches",
]


def conformed(
    table: pa.Table, schema: pa.Schema, primary_key: tuple[str, ...], *, first_row: int = 0
) -> pa.Table:
    """Return rows with exactly the columns of a schema, in its order. Nullable ones may be missing.

    Parameters
    ----------
    table : Table
        The rows.
    schema : Schema
        The columns.
    primary_key : tuple of str
        Those that are never null.
    first_row : int, default 0
        How many rows of the caller's come before these: errors count from its first.

    Raises
    ------
    SchemaError
        If a column is unknown, doubled or of a type that does not fit, or a required one is missing or
        null.
    KeyValueError
        If a key column is missing or a key is null.
    """
    checks = _checks_of(schema, primary_key)
    if not checks.of_values and table.schema.equals(schema, check_metadata=True):
        # Taking a table apart and putting it together again takes longer than all the rest.
        for number in checks.required:
            column = table.column(number)
            if column.null_count:
                _refuse_null(column, schema.field(number).name, primary_key, first_row)
        return _validated(table)
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
    for number, wanted in enumerate(checks.columns):
        column = columns[number]
        if column.type != wanted.type:
            column = columns[number] = cast_to(column, wanted.field, first_row=first_row)
        if wanted.is_required and column.null_count:
            _refuse_null(column, wanted.field.name, primary_key, first_row)
        if wanted.is_sketch:
            check_sketches(column, wanted.field.name, first_row=first_row)
        if wanted.is_json:
            columns[number] = kept_json(column, wanted.field.name, first_row=first_row)
        if wanted.has_required_parts:
            _refuse_invalid(column, wanted.field.name)
            for chunk in column.chunks:
                _refuse_nested_nulls(chunk, wanted.field, wanted.field.name)
    return _validated(pa.Table.from_arrays(columns, schema=schema))


def _validated(table: pa.Table) -> pa.Table:
    try:
        # All at once: each Arrow call releases the interpreter to other threads, and waits to get it back.
        table.validate(full=True)
    except (pa.ArrowInvalid, UnicodeError):
        for column, name in zip(table.columns, table.schema.names, strict=True):
            _refuse_invalid(column, name)
        raise
    return table


@dataclass(frozen=True, slots=True)
class _Column:
    """The checks of a column of a table, computed once: asking Arrow for them takes a while."""

    field: pa.Field
    type: pa.DataType
    is_required: bool
    has_required_parts: bool
    is_sketch: bool
    is_json: bool


@dataclass(frozen=True, slots=True)
class _Checks:
    """The checks of a table's columns; which are never null, and whether values have to be looked at."""

    schema: pa.Schema
    columns: tuple[_Column, ...]
    required: tuple[int, ...]
    of_values: bool


# By the identity of the schema, which the checks keep alive: hashing one takes longer than most checks.
_checks: dict[tuple[int, tuple[str, ...]], _Checks] = {}
_CHECKS_LIMIT = 256


def _checks_of(schema: pa.Schema, primary_key: tuple[str, ...]) -> _Checks:
    key = (id(schema), primary_key)
    found = _checks.get(key)
    if found is None:
        columns = tuple(
            _Column(
                field,
                field.type,
                not field.nullable or field.name in primary_key,
                _has_required_parts(field.type),
                _is_sketch(field),
                isinstance(field.type, pa.JsonType),
            )
            for field in schema
        )
        required = tuple(number for number, one in enumerate(columns) if one.is_required)
        of_values = any(one.has_required_parts or one.is_sketch or one.is_json for one in columns)
        if len(_checks) >= _CHECKS_LIMIT:
            _checks.clear()
        found = _checks[key] = _Checks(schema, columns, required, of_values)
    return found


def _is_sketch(field: pa.Field) -> bool:
    is_binary = pa.types.is_binary(field.type) or pa.types.is_large_binary(field.type)
    return is_binary and SKETCH in (field.metadata or {})


def _has_required_parts(kind: pa.DataType) -> bool:
    """Whether there is, at any depth, a field that cannot be null."""
    parts = (kind.field(number) for number in range(kind.num_fields))
    return any(not part.nullable or _has_required_parts(part.type) for part in parts)


def _refuse_invalid(column: pa.ChunkedArray, name: str) -> None:
    """Refuse what Arrow lets pass and Lance does not: once durable, it could never be flushed."""
    try:
        column.validate(full=True)
    except (pa.ArrowInvalid, UnicodeError) as error:
        raise SchemaError(f"column {name!r} holds invalid values: {error}", where=name) from error


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
            raise SchemaError(f"{where} cannot be null, but is null in a row", where=where)
        _refuse_nested_nulls(values, inner, where)


def _refuse_null(column: pa.ChunkedArray, name: str, primary_key: tuple[str, ...], first_row: int) -> None:
    row = first_row + int(pc.index(column.is_null(), True).as_py())
    if name in primary_key:
        raise KeyValueError(f"primary-key column {name!r} is null in row {row}", where=f"{name}, row {row}")
    raise SchemaError(f"column {name!r} cannot be null, but is null in row {row}", where=f"{name}, row {row}")


def _check_names(names: Sequence[str], schema: pa.Schema, primary_key: tuple[str, ...]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise SchemaError(f"column {name!r} occurs twice in the data", where=name)
        seen.add(name)
        if name not in schema.names:
            raise unknown_column(name, schema)
    for name in primary_key:
        if name not in seen:
            raise missing_key(name, primary_key)
    for field in schema:
        if field.name not in seen and not field.nullable:
            raise SchemaError(
                f"column {field.name!r} is missing and cannot be null",
                where=field.name,
                hint="Add the column to the data",
            )


def unknown_column(name: str, schema: pa.Schema) -> SchemaError:
    """Return the error that says that the table has no such column."""
    return SchemaError(
        f"the table has no column {name!r}",
        where=name,
        hint=f"The columns are {', '.join(schema.names)}",
    )


def missing_key(name: str, primary_key: tuple[str, ...]) -> KeyValueError:
    """Return the error that says that a column of the primary key is missing."""
    return KeyValueError(
        f"primary-key column {name!r} is missing from the data",
        where=name,
        hint=f"Every row needs its key: {', '.join(primary_key)}",
    )


def upsert_batches(rows: pa.Table, wal_schema: pa.Schema) -> list[pa.RecordBatch]:
    """Return checked rows as batches of WAL entries."""
    tombstone = wal_schema.field(TOMBSTONE)
    return [
        batch.append_column(tombstone, tombstones(batch.num_rows, False))
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
        columns.append(tombstones(batch.num_rows, True))
        batches.append(pa.RecordBatch.from_arrays(columns, schema=wal_schema))
    return batches


@lru_cache(maxsize=64)
def tombstones(count: int, value: bool) -> pa.Array:
    """Return the column that says of some rows that they delete their keys, or that they do not."""
    # Immutable, and writers tend to write batches of one size.
    return pa.repeat(pa.scalar(value), count)
