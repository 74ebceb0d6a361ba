"""What record batches take in memory, and making them take no more than that."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

__all__ = ["SMALL_BYTES", "batch_overhead", "joined", "owned"]

SMALL_BYTES = 256 * 1024
"""Batches that together have no more than this are copied into one: cheaper than to handle many."""

# Measured with single-row batches: each column costs some 500 bytes of array, buffers and allocations
# around its values, and each batch, its WAL entry and their places in lists and caches as much again.
_BYTES_PER_COLUMN = 512
_BYTES_PER_BATCH = 1024

_TOLERATED_BYTES = 4096


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


def owned(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, int]:
    """Return ``batch``, copied if it is a small part of something larger that it would keep alive.

    Returns
    -------
    RecordBatch, int
        The rows, and the bytes they take: of a few rows all that they keep alive, which is quickly
        told, where adding up what each column uses takes longer than all the rest of a small write.
    """
    kept_alive = batch.get_total_buffer_size()
    if kept_alive <= _TOLERATED_BYTES:
        return batch, kept_alive
    nbytes = batch.nbytes
    if kept_alive <= 2 * nbytes:
        return batch, nbytes
    return pa.concat_batches([batch]), nbytes


def joined(batches: Sequence[pa.RecordBatch], nbytes: int) -> tuple[pa.RecordBatch, ...]:
    """Return the same rows as one batch if there are many batches and little in them.

    Parameters
    ----------
    batches : sequence of RecordBatch
        The rows.
    nbytes : int
        About how many bytes they take together.
    """
    if len(batches) < 2 or nbytes > SMALL_BYTES:
        return tuple(batches)
    return (pa.concat_batches(batches),)
