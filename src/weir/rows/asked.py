"""Rows with an operation column, some of which depend on existing rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from weir.format.plain_keys import stored_keys
from weir.rows.changes import (
    DELETE,
    INSERT,
    LOOKING_OPERATIONS,
    OPERATION,
    OPERATION_FIELD,
    PATCH,
    UPSERT,
    operation_names,
)
from weir.rows.coerce import RowInput, as_table
from weir.rows.conforming import conformed, missing_key
from weir.rows.operations import Delete, Insert, OperationInput, Patch, Upsert

__all__ = ["asked_operations", "checked_rows"]

_LOOKING = frozenset(LOOKING_OPERATIONS.to_pylist())
_MADE = {UPSERT: Upsert, INSERT: Insert, PATCH: Patch, DELETE: Delete}


def asked_operations(
    data: RowInput, schema: pa.Schema, primary_key: tuple[str, ...]
) -> list[OperationInput] | None:
    """Return what rows with a column :data:`OPERATION` ask for, if some patch or insert; else None.

    Of rows with one key each finds what those before it have left. In a list of dicts a patch sets what its
    row has; else it sets every column there is, to null too.

    Parameters
    ----------
    data : table-like
        The rows; not a stream.
    schema : Schema
        The table's columns.
    primary_key : tuple of str
        Primary-key columns.

    Raises
    ------
    InputError, SchemaError, KeyValueError
        If an operation is unknown, or a key is missing or null.
    """
    if OPERATION in schema.names:
        return None
    if isinstance(data, Sequence) and data and all(isinstance(row, Mapping) for row in data):
        return _of_dicts(data)
    table = data if isinstance(data, pa.Table) else as_table(data, schema.append(OPERATION_FIELD))
    if table.schema.names.count(OPERATION) != 1:
        return None
    names = operation_names(table.column(OPERATION), UPSERT, first_row=0)
    if not pc.any(pc.is_in(names, LOOKING_OPERATIONS)).as_py():
        return None
    rows = table.drop_columns([OPERATION])
    for name in primary_key:
        if name not in rows.schema.names:
            raise missing_key(name, primary_key)
    keys = conformed(
        rows.select(list(primary_key)), pa.schema([schema.field(name) for name in primary_key]), primary_key
    )
    return list(_in_rounds(rows, names, keys))


def checked_rows(
    data: pa.Table, row_schema: pa.Schema, primary_key: tuple[str, ...], default: str, *, first_row: int = 0
) -> pa.Table:
    """Return rows with their columns as a table has them, and what each does, for another place to decide.

    Parameters
    ----------
    data : Table
        The rows, with or without a column :data:`OPERATION`.
    row_schema : Schema
        The table's columns, and more.
    primary_key : tuple of str
        Primary-key columns.
    default : str
        What a row does that does not say.
    first_row : int, default 0
        How many rows of the caller's come before these: errors count from its first.

    Raises
    ------
    InputError, SchemaError, KeyValueError
        If a row does not fit, or its operation is unknown.
    """
    names = pa.chunked_array([pa.nulls(data.num_rows, pa.string())])
    if OPERATION in data.schema.names:
        names = data.column(OPERATION)
        data = data.drop_columns([OPERATION])
    names = operation_names(names, default, first_row=first_row)
    given = pa.schema([field for field in row_schema if field.name in data.schema.names])
    rows = conformed(data, given, primary_key, first_row=first_row)
    return rows.append_column(OPERATION_FIELD, names)


def _of_dicts(data: Sequence[Mapping[str, object]]) -> list[OperationInput] | None:
    names = [row.get(OPERATION) or UPSERT for row in data]
    if not _LOOKING.intersection(one for one in names if isinstance(one, str)):
        return None
    operation_names(pa.chunked_array([pa.array([str(one) for one in names])]), UPSERT, first_row=0)
    return [
        _MADE[str(name)]([{key: row[key] for key in row if key != OPERATION} for row, _ in run])
        for name, run in groupby(zip(data, names, strict=True), key=lambda pair: pair[1])
    ]


def _in_rounds(rows: pa.Table, names: pa.ChunkedArray, keys: pa.Table) -> Iterator[OperationInput]:
    """Yield few operations that are equivalent to one for each row, in their order.

    Operations on different keys may be reordered. So the first rows of all keys come together, by what they
    do, then the second ones, and so on.
    """
    turns = _turns(keys)
    for turn in range(int(turns.max(initial=-1)) + 1):
        of_turn = turns == turn
        for name, make in _MADE.items():
            chosen = np.flatnonzero(of_turn & np.asarray(pc.equal(names, name)))
            if len(chosen):
                yield make(rows.take(pa.array(chosen)))


def _turns(keys: pa.Table) -> np.ndarray:
    """Return for every row how many rows before it have its key."""
    keys = pa.table([stored_keys(column) for column in keys.columns], keys.schema.names)
    numbered = keys.append_column("", pa.array(np.arange(keys.num_rows)))
    grouped = numbered.group_by(keys.schema.names, use_threads=False).aggregate([("", "list")])
    lists = grouped.column("_list").combine_chunks()
    sizes = np.asarray(pc.list_value_length(lists))
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]]) if len(sizes) else np.zeros(0, dtype=np.int64)
    turns = np.empty(keys.num_rows, dtype=np.int64)
    turns[np.asarray(lists.flatten())] = np.arange(keys.num_rows) - np.repeat(starts, sizes)
    return turns
