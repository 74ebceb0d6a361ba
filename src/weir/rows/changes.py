"""Rows that say what they do to their keys: upsert or delete them."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from weir.errors import InputError, SchemaError
from weir.rows.cast import is_text
from weir.rows.coerce import RowInput, as_table
from weir.rows.conforming import conformed, tombstones

__all__ = [
    "DELETE",
    "INSERT",
    "LOOKING_OPERATIONS",
    "OPERATION",
    "OPERATION_FIELD",
    "PATCH",
    "UPSERT",
    "as_row_table",
    "change_table",
    "check_deletable",
    "operation_names",
]

OPERATION = "_op"
"""Name of the column that says what a row of :func:`change_table` does to its key."""

UPSERT, DELETE, PATCH, INSERT = "upsert", "delete", "patch", "insert"
LOOKING_OPERATIONS = pa.array([PATCH, INSERT])
"""Those that depend on the row that is there."""

OPERATION_FIELD = pa.field(OPERATION, pa.string())


def as_row_table(
    data: RowInput, schema: pa.Schema, primary_key: tuple[str, ...], *, first_row: int = 0
) -> pa.Table:
    """Return ``data`` in the table's schema, checked.

    Parameters
    ----------
    data : table-like
        The rows; of a record batch reader, all that it has left.
    schema : Schema
        The columns of the table.
    primary_key : tuple of str
        Those that are never null.
    first_row : int, default 0
        How many rows of the caller's come before these: errors count from its first.

    Raises
    ------
    InputError
        If ``data`` is of a kind Weir does not take.
    SchemaError
        If a column is unknown, doubled or of a type that does not fit, or a required one is missing.
    KeyValueError
        If a key column is missing or a key is null.
    """
    return conformed(as_table(data, schema, first_row=first_row), schema, primary_key, first_row=first_row)


def change_table(
    data: RowInput,
    schema: pa.Schema,
    wal_schema: pa.Schema,
    primary_key: tuple[str, ...],
    *,
    also: Collection[str] = (),
    first_row: int = 0,
) -> pa.Table:
    """Return rows that upsert or delete their keys, in their order, as rows of WAL entries.

    Which of the two a row does, the column :data:`OPERATION` says: ``"upsert"``, as where it is null or
    not there, or ``"delete"``; what depends on rows that are there is for :mod:`weir.rows.asked`. If the
    table has a column of that name itself, all rows are upserts.

    Parameters
    ----------
    also : collection of str
        Columns outside the key that a tombstone keeps, because they decide the shard.
    first_row : int, default 0
        How many rows of the caller's come before these: errors count from its first.

    Raises
    ------
    InputError, SchemaError, KeyValueError
        As :func:`as_row_table`; or an operation is another one, or a delete could not be stored.
    """
    known = schema.append(OPERATION_FIELD) if _has_operations(schema) else schema
    whole = as_table(data, known, first_row=first_row)
    deletes = None
    if _has_operations(schema) and whole.schema.names.count(OPERATION) == 1:
        deletes = _deletes(whole.column(OPERATION), first_row)
        whole = whole.drop_columns([OPERATION])
    rows = conformed(whole, schema, primary_key, first_row=first_row)
    if deletes is None or not pc.any(deletes).as_py():
        deletes = pa.chunked_array([tombstones(rows.num_rows, False)])
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


def _has_operations(schema: pa.Schema) -> bool:
    return OPERATION not in schema.names


def operation_names(operations: pa.ChunkedArray, default: str, *, first_row: int) -> pa.ChunkedArray:
    """Return what each row does: as it says, or the default.

    Raises
    ------
    SchemaError, InputError
        If the column is not text, or an operation is unknown.
    """
    if pa.types.is_null(operations.type):
        return pa.chunked_array([pa.repeat(pa.scalar(default), len(operations))])
    kind = operations.type.value_type if pa.types.is_dictionary(operations.type) else operations.type
    if not is_text(kind):
        raise SchemaError(f"the column {OPERATION!r} is of type {kind} and must be text", where=OPERATION)
    names = pc.fill_null(operations.cast(pa.string()), default)
    wrong = pc.invert(pc.is_in(names, pa.array([UPSERT, DELETE, PATCH, INSERT])))
    if pc.any(wrong).as_py():
        row = int(pc.index(wrong, True).as_py())
        raise InputError(
            f"the operation {names[row].as_py()!r:.80} in row {first_row + row} is unknown",
            where=f"{OPERATION}, row {first_row + row}",
            hint=f"It is {UPSERT!r}, {DELETE!r}, {PATCH!r} or {INSERT!r}; null is {default!r}",
        )
    return names


def _deletes(operations: pa.ChunkedArray, first_row: int) -> pa.ChunkedArray:
    """Return which rows are deletes."""
    names = operation_names(operations, UPSERT, first_row=first_row)
    looks = pc.is_in(names, LOOKING_OPERATIONS)
    if pc.any(looks).as_py():
        row = int(pc.index(looks, True).as_py())
        raise InputError(
            f"the operation {names[row].as_py()!r} in row {first_row + row} depends on the present row",
            where=f"{OPERATION}, row {first_row + row}",
            hint='On Spark set it beforehand, with the option write_mode "patch" or "insert-if-absent"',
        )
    return pc.equal(names, DELETE)


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
