"""Scans of many columns, faster than in the library, which looks each up by name among all of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import lance
import pyarrow as pa

from weir.format.wal_entry import TOMBSTONE

__all__ = ["asked_columns", "scanned_batches"]

_MANY = 64
"""Columns from which on it takes longer to have them looked up than to see whether they are all."""


def asked_columns(dataset: lance.LanceDataset, columns: Sequence[str]) -> list[str] | None:
    """Return the columns to ask a scanner of the dataset for; None, which means all, if these are all."""
    wanted = list(columns)
    return None if len(wanted) >= _MANY and dataset.schema.names == wanted else wanted


def scanned_batches(
    dataset: lance.LanceDataset, columns: Sequence[str], **options: Any
) -> Iterator[pa.RecordBatch]:
    """Yield what a scanner of the dataset yields, with time that grows with the columns and not their square.

    Parameters
    ----------
    dataset : LanceDataset
        The dataset.
    columns : sequence of str
        The columns.
    **options
        Other options of ``LanceDataset.scanner``.

    Examples
    --------
    >>> rows = lance.write_dataset(pa.table({f"c{n}": [n] for n in range(100)}), "memory://")
    >>> (batch,) = scanned_batches(rows, rows.schema.names)
    >>> batch.num_columns
    100
    """
    if len(columns) >= _MANY and dataset.schema.names == [*columns, TOMBSTONE]:
        for batch in dataset.scanner(**options).to_batches():
            yield batch.drop_columns([TOMBSTONE])
    else:
        yield from dataset.scanner(columns=asked_columns(dataset, columns), **options).to_batches()
