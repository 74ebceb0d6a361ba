"""Freshness: the time from the arrival of a row until a strong reader sees it.

The source provides the instant of arrival; see :class:`~weir.spark.pipeline.settings.Metrics`. Spark collects
a hundred quantiles of it while it reads the rows of a micro-batch, and reports them at the end of the
micro-batch. By then the sink has committed, so every strong reader sees the rows: the time from arrival to
the end of the micro-batch is never too short, and too long only by Spark's write to the checkpoint after the
commit.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from itertools import accumulate

from pyspark.sql import DataFrame, functions
from pyspark.sql.types import StructType, TimestampType

from weir.events.clock import SHARD_BITS
from weir.spark.pipeline.decoding import CORRUPT
from weir.spark.pipeline.micro_batch import OBSERVED, QUANTILES, MicroBatch
from weir.spark.pipeline.settings import FILE_FORMATS, CallableSource, FormatSource

__all__ = ["BATCH_ARRIVAL", "arrival_of", "observed", "percentiles"]

BATCH_ARRIVAL = "micro-batch"
"""The arrival time if nothing says when rows arrived: the beginning of the micro-batch."""

_ACCURACY = 1000
_TIMESTAMP = "timestamp"
_OF_FILE = "_metadata.file_modification_time"
_WITH_TIMESTAMP = ("kafka", "rate", "rate-micro-batch")


def arrival_of(source: FormatSource | CallableSource, columns: StructType, chosen: str | None) -> str | None:
    """Return the SQL for the arrival time of a row of a source, None if there is none.

    Parameters
    ----------
    source : FormatSource or CallableSource
        The source.
    columns : StructType
        Its columns.
    chosen : str, optional
        The user's choice.
    """
    if chosen is not None:
        return chosen
    if isinstance(source, CallableSource):
        return None
    if source.format in FILE_FORMATS:
        return _OF_FILE
    if source.format == "weir-events":
        # An id has the instant at which it was given, in microseconds, above the number of its shard.
        return f"timestamp_micros(shiftright(event_id, {SHARD_BITS}))"
    has_timestamp = _TIMESTAMP in columns.names and isinstance(columns[_TIMESTAMP].dataType, TimestampType)
    return _TIMESTAMP if source.format in _WITH_TIMESTAMP and has_timestamp else None


def observed(source: DataFrame, arrival: str | None) -> DataFrame:
    """Return a stream whose micro-batches report the number of rows and their arrival times."""
    counted = functions.count(functions.lit(1)).alias("rows")
    unreadable = [functions.count(CORRUPT).alias("unreadable")] if CORRUPT in source.columns else []
    if arrival is None:
        return source.observe(OBSERVED, counted, *unreadable)
    instant = functions.unix_micros(functions.expr(arrival).cast("timestamp"))
    arrivals = functions.percentile_approx(instant, list(QUANTILES), _ACCURACY).alias("arrivals")
    return source.observe(OBSERVED, counted, arrivals, *unreadable)


def percentiles(batches: Iterable[MicroBatch], wanted: Iterable[float]) -> tuple[float, ...] | None:
    """Return percentiles of the freshness of all rows of some micro-batches.

    Parameters
    ----------
    batches : iterable of MicroBatch
        The micro-batches.
    wanted : iterable of float
        Each from 0 to 1.

    Returns
    -------
    tuple of float or None
        Seconds; None if there was no row.

    Examples
    --------
    >>> slow = MicroBatch(1, rows=10, began=100.0, ended=105.0, arrivals=(101.0, 103.0))
    >>> fast = MicroBatch(2, rows=990, began=105.0, ended=106.0, arrivals=(105.5,))
    >>> percentiles([slow, fast], [0.5, 0.99, 0.999])
    (0.5, 0.5, 4.0)
    """
    weighted = sorted((wait, batch.rows / len(batch.waits)) for batch in batches for wait in batch.waits)
    if not weighted:
        return None
    below = list(accumulate(weight for _, weight in weighted))
    # Sums of fractions may come out a little above what they stand for.
    places = (bisect_left(below, share * below[-1] - 1e-9) for share in wanted)
    return tuple(weighted[min(place, len(weighted) - 1)][0] for place in places)
