"""The memory of record batches: that of their rows, and beyond."""

from __future__ import annotations

import pyarrow as pa
from pyarrow import ipc

__all__ = ["batch_bytes", "batch_overhead"]

_SMALL_BYTES = 4096
_TOLERATED_SHARE = 1.25

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


def batch_bytes(batch: pa.RecordBatch) -> int:
    """Return about how many bytes the rows of a batch take.

    All that it keeps alive, which is told at once, unless that is much and clearly more than its
    rows: adding up what each column uses of its buffers takes longer than all the rest of a small write.

    Examples
    --------
    >>> numbers = pa.record_batch({"n": pa.array(range(10_000))})
    >>> batch_bytes(numbers), batch_bytes(numbers.slice(0, 1_000))
    (80000, 8000)
    """
    kept_alive = batch.get_total_buffer_size()
    if kept_alive <= _SMALL_BYTES or kept_alive <= _TOLERATED_SHARE * ipc.get_record_batch_size(batch):
        return int(kept_alive)
    return int(batch.nbytes)


def _arrays_of(type: pa.DataType) -> int:
    if not type.num_fields:
        return 1
    return 1 + sum(_arrays_of(type.field(number).type) for number in range(type.num_fields))
