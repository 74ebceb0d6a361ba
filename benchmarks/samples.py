"""The rows that are written: an id, a 128-dim vector and a short text."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["SCHEMA", "SampleRows", "label_of"]

_DIMENSION = 128
_DISTINCT_VECTORS = 10_000
_DISTINCT_LABELS = 1_000

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("vector", pa.list_(pa.float32(), _DIMENSION)),
        pa.field("label", pa.string()),
    ]
)
"""Columns of every table here."""


def label_of(series: int, key: int) -> str:
    """Return the text of one row.

    Examples
    --------
    >>> label_of(2, 1003)
    'row 2-3'
    """
    return f"row {series}-{key % _DISTINCT_LABELS}"


class SampleRows:
    """Makes rows with given ids, quickly and the same in every run.

    Parameters
    ----------
    series : int
        Tells one series of rows from another: rows of one id in different series differ.
    """

    def __init__(self, series: int) -> None:
        generator = np.random.default_rng(series)
        values = generator.standard_normal(_DISTINCT_VECTORS * _DIMENSION, dtype=np.float32)
        self._vectors = pa.FixedSizeListArray.from_arrays(pa.array(values), _DIMENSION)
        self._labels = pa.array([label_of(series, number) for number in range(_DISTINCT_LABELS)])

    def table(self, ids: npt.NDArray[np.int64]) -> pa.Table:
        """Return one row for each id, in order."""
        vectors = self._vectors.take(pa.array(ids % _DISTINCT_VECTORS))
        labels = self._labels.take(pa.array(ids % _DISTINCT_LABELS))
        return pa.table([pa.array(ids), vectors, labels], schema=SCHEMA)
