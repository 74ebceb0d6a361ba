"""The primary-key index of a generation: every key in order, with its row.

Two Lance files in ``_pk_index``: ``page_data.lance`` has all keys in pages of :data:`PAGE_ROWS`,
``page_lookup.lance`` the key range of every page. The content is made here; the files are written
and read elsewhere (``lance.file``). The released library cannot read a generation without them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from weir.errors import KeyValueError
from weir.format.key_order import key_order

__all__ = ["PAGE_ROWS", "PkIndex", "build"]

PAGE_ROWS = 8192
"""Keys in a page; ``page_data.lance`` is written in batches of this many rows."""

_LOOKUP_METADATA = {"batch_size": str(PAGE_ROWS), "range_partitioned": "false"}


@dataclass(frozen=True, slots=True)
class PkIndex:
    """The content of the two files.

    Parameters
    ----------
    page_data : pyarrow.RecordBatch
        ``values`` (type of the key) in ascending order and ``ids`` (uint64, not null), the row of
        each in the generation. Rows with equal keys are in row order.
    page_lookup : pyarrow.RecordBatch
        One row per page: ``min`` and ``max`` (type of the key), ``null_count`` and ``page_idx``
        (uint32, not null).
    """

    page_data: pa.RecordBatch
    page_lookup: pa.RecordBatch


def build(keys: pa.Array) -> PkIndex:
    """Return the index over the keys of a generation.

    Parameters
    ----------
    keys : pyarrow.Array
        One key per row, in row order, from :func:`weir.format.keys.encode_keys`.

    Raises
    ------
    KeyValueError
        A key is null.

    Examples
    --------
    >>> build(pa.array([30, 10, 20])).page_data.to_pydict()
    {'values': [10, 20, 30], 'ids': [1, 2, 0]}
    """
    if keys.null_count:
        row = int(np.flatnonzero(keys.is_null().to_numpy(zero_copy_only=False))[0])
        raise KeyValueError(f"the primary key of row {row} is null")
    rows = key_order(keys)
    values = keys.take(rows)
    page_data = pa.record_batch(
        [values, rows],
        schema=pa.schema([pa.field("values", keys.type), pa.field("ids", pa.uint64(), nullable=False)]),
    )
    first = np.arange(0, len(keys), PAGE_ROWS)
    last = np.minimum(first + PAGE_ROWS, len(keys)) - 1
    page_lookup = pa.record_batch(
        [
            values.take(pa.array(first)),
            values.take(pa.array(last)),
            pa.array(np.zeros(len(first), np.uint32)),
            pa.array(np.arange(len(first), dtype=np.uint32)),
        ],
        schema=pa.schema(
            [
                pa.field("min", keys.type),
                pa.field("max", keys.type),
                pa.field("null_count", pa.uint32(), nullable=False),
                pa.field("page_idx", pa.uint32(), nullable=False),
            ],
            metadata=_LOOKUP_METADATA,
        ),
    )
    return PkIndex(page_data, page_lookup)
