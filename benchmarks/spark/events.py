"""The rows that are written through Spark: events of about 45 bytes, with a key."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

__all__ = ["KEY", "SCHEMA", "SERIES", "SPARK_SCHEMA", "events"]

KEY = "id"
SERIES = "series"

SCHEMA = pa.schema(
    [
        pa.field(KEY, pa.int64(), nullable=False),
        pa.field("at", pa.timestamp("us", tz="UTC")),
        pa.field("kind", pa.string()),
        pa.field("amount", pa.float64()),
        pa.field(SERIES, pa.int64()),
    ]
)
"""Columns of every table here."""

SPARK_SCHEMA = f"{KEY} long not null, at timestamp, kind string, amount double, {SERIES} long"
"""The same for Spark."""

_KINDS = pa.array([f"kind {number:03}" for number in range(200)])
_START_MICROSECONDS = 1_700_000_000_000_000


def events(ids: npt.NDArray[np.int64], series: int) -> pa.Table:
    """Return one row for each id, in order.

    Parameters
    ----------
    ids : ndarray of int64
        The keys.
    series : int
        Tells rows from others with the same keys.

    Examples
    --------
    >>> events(np.array([7, 8]), 3).column("series").to_pylist()
    [3, 3]
    """
    return pa.table(
        [
            pa.array(ids),
            pa.array(_START_MICROSECONDS + 1_000 * ids).cast(SCHEMA.field("at").type),
            _KINDS.take(pa.array(ids % len(_KINDS))),
            pa.array(ids * 0.25 + series),
            pa.array(np.full(len(ids), series, np.int64)),
        ],
        schema=SCHEMA,
    )
