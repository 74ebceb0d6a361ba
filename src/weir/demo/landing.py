"""Batches of events as files that arrive one after the other, as input of a stream."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from weir.demo.events import EventBatch, FlightEvents
from weir.demo.flights import PRIMARY_KEY

__all__ = ["CANCELLED", "Landing", "as_file"]

CANCELLED = "cancelled"
_TICK_NS = 10_000_000


def as_file(batch: EventBatch) -> pa.Table:
    """Return a batch as one table, in which a column says of which flights it is that they were cancelled.

    Of those nothing but the key is known. They come last, since nothing happens to a flight afterwards.
    """
    upserts, deletes = batch.upserts, batch.deletes
    flights = upserts.append_column(CANCELLED, pa.repeat(pa.scalar(False), upserts.num_rows))
    gone = pa.table({PRIMARY_KEY: deletes, CANCELLED: pa.repeat(pa.scalar(True), len(deletes))})
    return pa.concat_tables([flights, gone], promote_options="default").select(flights.schema.names)


class Landing:
    """A directory in which batches land as Parquet files, each at once and after the one before.

    Parameters
    ----------
    directory : Path
        The directory, which is there.
    events : FlightEvents
        All events.
    """

    def __init__(self, directory: Path, events: FlightEvents) -> None:
        self._directory = directory
        self._events = events
        self._landed = 0
        self._prepared = 0
        self._last_ns = 0

    def land_up_to(self, batch: int) -> None:
        """Let all batches up to one land, if there are so many and they have not."""
        while self._landed <= min(batch, self._events.num_batches - 1):
            self.prepare_up_to(self._landed)
            path = self._path(self._landed)
            self._last_ns = max(time.time_ns(), self._last_ns + _TICK_NS)
            # Spark takes files in the order of their times, which must not be the same.
            os.utime(_hidden(path), ns=(self._last_ns, self._last_ns))
            _hidden(path).rename(path)
            self._landed += 1

    def prepare_up_to(self, batch: int) -> None:
        """Write the files of all batches up to one where none is read yet, so that landing takes no time."""
        while self._prepared <= min(batch, self._events.num_batches - 1):
            rows = as_file(self._events.batch(self._prepared))
            pq.write_table(rows, _hidden(self._path(self._prepared)))
            self._prepared += 1

    def _path(self, batch: int) -> Path:
        return self._directory / f"{batch:06}.parquet"


def _hidden(path: Path) -> Path:
    # Spark ignores files with such names until they get their own.
    return path.with_name(f"_{path.name}")
