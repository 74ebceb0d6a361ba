"""Rows under another schema with the same columns."""

from __future__ import annotations

import pyarrow as pa

__all__ = ["as_schema", "nullable_inside", "nulls_inside"]


def as_schema(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows under a schema with the same columns, in its order, cast only where a type differs.

    Where only metadata differs nothing is cast: Arrow refuses to cast a struct with nulls whose child has
    none, even to its own type.

    Raises
    ------
    ArrowInvalid
        If a value does not fit its type.

    Examples
    --------
    >>> import pyarrow as pa
    >>> point = pa.struct([pa.field("x", pa.int64(), nullable=False)])
    >>> table = pa.table({"at": pa.array([{"x": 1}, None], point)})
    >>> as_schema(table, pa.schema([pa.field("at", point, metadata={"unit": "m"})])).num_rows
    2
    """
    if table.schema.equals(schema, check_metadata=True):
        return table
    pairs = zip(table.columns, schema.types, strict=True)
    columns = [column if column.type == kind else column.cast(kind) for column, kind in pairs]
    return pa.Table.from_arrays(columns, schema=schema)


def nullable_inside(schema: pa.Schema) -> pa.Schema:
    """Return a schema whose structs declare every child nullable, as it is in a null struct.

    Examples
    --------
    >>> import pyarrow as pa
    >>> point = pa.struct([pa.field("x", pa.int64(), nullable=False)])
    >>> nullable_inside(pa.schema([("at", point)])).field("at").type
    StructType(struct<x: int64>)
    """
    return pa.schema([_inside(field) for field in schema], schema.metadata)


def _inside(field: pa.Field) -> pa.Field:
    if not pa.types.is_struct(field.type):
        return field
    children = [_inside(child).with_nullable(True) for child in field.type.fields]
    return field.with_type(pa.struct(children))


def nulls_inside(rows: pa.Table) -> pa.Table:
    """Return rows whose null structs have null children, under :func:`nullable_inside` of their schema.

    Arrow leaves open what the children of a null struct hold, and DataFusion reads them as they are.

    Examples
    --------
    >>> import pyarrow as pa
    >>> point = pa.struct([pa.field("x", pa.int64(), nullable=False)])
    >>> table = pa.table({"at": pa.array([{"x": 1}, None], point)})
    >>> [rows.column("at").chunk(0).field(0).to_pylist() for rows in (table, nulls_inside(table))]
    [[1, 0], [1, None]]
    """
    schema = nullable_inside(rows.schema)
    columns = [
        pa.chunked_array([_pushed_down(chunk, kind) for chunk in column.chunks], kind)
        if pa.types.is_struct(kind)
        else column
        for column, kind in zip(rows.columns, schema.types, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _pushed_down(values: pa.Array, kind: pa.DataType) -> pa.Array:
    if not pa.types.is_struct(kind):
        return values
    children = [_pushed_down(child, one.type) for child, one in zip(values.flatten(), kind, strict=True)]
    return pa.StructArray.from_arrays(children, fields=list(kind), mask=values.is_null())
