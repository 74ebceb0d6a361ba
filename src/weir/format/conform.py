"""Giving rows exactly the schema of the table, by column name."""

from __future__ import annotations

import pyarrow as pa

from weir.errors import CorruptionError

__all__ = ["conform_batch"]


def conform_batch(batch: pa.RecordBatch, schema: pa.Schema, *, where: str) -> pa.RecordBatch:
    """Return ``batch`` with the columns, order, types and metadata of ``schema``.

    Stored rows may have been written under an older schema: a column they lack is null, a column the
    table no longer has is dropped.

    Raises
    ------
    CorruptionError
        If a stored column cannot have the table's type.
    """
    if batch.schema.equals(schema, check_metadata=True):
        return batch
    columns = []
    for wanted in schema:
        at = batch.schema.get_field_index(wanted.name)
        if at < 0:
            columns.append(pa.nulls(batch.num_rows, wanted.type))
            continue
        column = batch.column(at)
        if column.type != wanted.type:
            try:
                column = column.cast(wanted.type)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                raise CorruptionError(
                    f"column {wanted.name!r} is stored as {column.type} where the table has {wanted.type}",
                    where=where,
                    hint=str(error),
                ) from error
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=schema)
