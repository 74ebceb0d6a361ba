"""Patches: rows that change some columns of their keys, checked, as rows of WAL entries."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import groupby

import pyarrow as pa

from weir.errors import InputError, KeyValueError, SchemaError
from weir.format.wal_entry import TOMBSTONE
from weir.rows.coerce import RowInput, as_table
from weir.rows.conforming import conformed, missing_key, unknown_column

__all__ = ["patch_batches"]


def patch_batches(
    data: RowInput,
    schema: pa.Schema,
    wal_schema: pa.Schema,
    primary_key: tuple[str, ...],
    *,
    also: Collection[str] = (),
    makes_rows: bool = False,
) -> Iterator[tuple[tuple[str, ...], pa.RecordBatch]]:
    """Yield the columns that rows set, and the rows, with null in the others; in their order.

    Parameters
    ----------
    data : table-like
        Keys, and the columns to set. In a list of dicts every row sets the columns that it has.
    schema : Schema
        The table's columns.
    wal_schema : Schema
        What rows are brought into.
    primary_key : tuple of str
        Columns that say which rows they are.
    also : collection of str
        Columns outside the key that are needed as well, because they decide the shard.
    makes_rows : bool
        Whether rows that do not exist are made: then what cannot be null has to be given.

    Raises
    ------
    InputError, SchemaError, KeyValueError
        As :func:`weir.rows.changes.as_row_table`; or nothing is set.
    """
    first_row = 0
    for part in _parts(data):
        table = as_table(part, schema, first_row=first_row)
        names = table.schema.names
        for name in names:
            if name not in schema.names:
                raise unknown_column(name, schema)
        for name in (*primary_key, *also):
            if name not in names:
                raise missing_key(name, primary_key) if name in primary_key else _missing_shard(name)
        if makes_rows:
            _refuse_incomplete(schema, names)
        wanted = pa.schema([field for field in schema if field.name in names])
        given = tuple(name for name in wanted.names if name not in primary_key)
        if not given and schema.names != list(primary_key):
            raise InputError(
                f"row {first_row} of the patch has only its key and sets no column",
                where=f"row {first_row}",
                hint="Give the columns to change",
            )
        checked = conformed(table, wanted, primary_key, first_row=first_row)
        first_row += checked.num_rows
        for batch in checked.to_batches():
            if batch.num_rows:
                yield given, _whole(batch, wal_schema)


def _parts(data: RowInput) -> Iterator[RowInput]:
    """Split a list of dicts where they have other columns: what a row does not have, it does not set."""
    is_dicts = isinstance(data, Sequence) and not isinstance(data, (str, bytes))
    if is_dicts and data and all(isinstance(row, Mapping) for row in data):
        for _, rows in groupby(data, key=lambda row: frozenset(row)):
            yield list(rows)
    else:
        yield data


def _missing_shard(name: str) -> KeyValueError:
    return KeyValueError(
        f"column {name!r} decides the shard of a row and is missing from the patch",
        where=name,
        hint="Give its present value with every row",
    )


def _refuse_incomplete(schema: pa.Schema, names: Collection[str]) -> None:
    missing = [field.name for field in schema if not field.nullable and field.name not in names]
    if missing:
        raise SchemaError(
            f"column {missing[0]!r} is missing and cannot be null in new rows",
            where=missing[0],
            hint='Add the column to the patch, or skip rows that do not exist: missing="skip"',
        )


def _whole(batch: pa.RecordBatch, wal_schema: pa.Schema) -> pa.RecordBatch:
    columns = []
    for field in wal_schema:
        if field.name == TOMBSTONE:
            columns.append(pa.repeat(pa.scalar(False), batch.num_rows))
        elif field.name in batch.schema.names:
            columns.append(batch.column(field.name))
        else:
            columns.append(pa.nulls(batch.num_rows, field.type))
    return pa.RecordBatch.from_arrays(columns, schema=wal_schema)
