"""The memory of record batches beyond the values of their rows."""

from __future__ import annotations

import pyarrow as pa

__all__ = ["batch_overhead"]

# Measured with single-row batches: each column costs some 500 bytes of array, buffers and allocations
# around its values, and each batch, its WAL entry and their places in lists and caches as much again.
_BYTES_PER_COLUMN = 512
_BYTES_PER_BATCH = 1024


def batch_overhead(schema: pa.Schema) -> int:
    """Return about how many bytes a batch takes in memory beyond the values of its rows.

    Examples
    --------
    >>> batch_overhead(pa.schema([("id", pa.int64()), ("tags", pa.list_(pa.string()))]))
    2560
    """
    return _BYTES_PER_BATCH + _BYTES_PER_COLUMN * sum(_arrays_of(field.type) for field in schema)


def _arrays_of(type: pa.DataType) -> int:
    if not type.num_fields:
        return 1
    return 1 + sum(_arrays_of(type.field(number).type) for number in range(type.num_fields))
