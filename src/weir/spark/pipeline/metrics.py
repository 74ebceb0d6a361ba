"""Metrics of a pipeline: samples taken at an interval, and their sinks.

A sample covers the micro-batches since the last one, the state of the table as a strong reader sees it, and
the services.
"""

from __future__ import annotations

import errno
import json
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from weir.engine.logs import get_logger
from weir.errors import StorageError
from weir.maintenance.status import TableStatus
from weir.spark.pipeline.freshness import percentiles
from weir.spark.pipeline.micro_batch import MicroBatch, mean_parts
from weir.spark.pipeline.schedule import ServiceState

__all__ = ["MetricsSample", "Sampler", "as_line_of", "as_log_event", "take_sample"]

_log = get_logger(__name__)

_PERCENTILES = (0.5, 0.99)


@dataclass(frozen=True, slots=True)
class MetricsSample:
    """The state of a pipeline.

    Parameters
    ----------
    at : datetime
        When the sample was taken, in UTC.
    seconds : float
        Time since the last sample, or the start.
    batches, rows : int
        Micro-batches that ended in that time, and the source rows they read.
    total_batches, total_rows : int
        The same since the start.
    rows_per_second : float
        Rows per second in that time.
    batch_seconds : float or None
        Duration of the longest of those micro-batches; None if there was none.
    freshness_p50, freshness_p99 : float or None
        Seconds from the arrival of a row until a strong reader sees it, over the rows of those
        micro-batches; None if there was none.
    freshness_parts : mapping of str to float
        The mean parts of that time, in seconds: waiting for the ``trigger``, ``listing`` the source,
        ``planning``, processing and ``commit``, and Spark's ``checkpoint``.
    arrival : str
        The source of arrival times: SQL over the source, or ``micro-batch`` for its beginning.
    lag_seconds : float
        Age of the oldest row that is not in the base table; 0 if all are.
    unmerged_generations, unmerged_rows : int
        Generations and rows that wait for a merge.
    behind : mapping of str to float
        The backlog that the source reports, with Spark's names; empty for sources that report none.
    services : mapping of str to ServiceState
        The state of each service since the start.
    bad_records, total_bad_records : int
        Quarantined records since the last sample, and since the start.
    """

    at: datetime
    seconds: float
    batches: int
    rows: int
    total_batches: int
    total_rows: int
    rows_per_second: float
    batch_seconds: float | None
    freshness_p50: float | None
    freshness_p99: float | None
    arrival: str
    lag_seconds: float
    unmerged_generations: int
    unmerged_rows: int
    behind: Mapping[str, float] = field(default_factory=dict)
    services: Mapping[str, ServiceState] = field(default_factory=dict)
    bad_records: int = 0
    total_bad_records: int = 0
    freshness_parts: Mapping[str, float] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the sample as plain values that JSON can hold, with seconds rounded to milliseconds."""
        plain: dict[str, Any] = {
            name: round(value, 3) if isinstance(value, float) else value
            for name, value in asdict(self).items()
        }
        plain["at"] = self.at.isoformat(timespec="milliseconds")
        plain["behind"] = dict(self.behind)
        plain["freshness_parts"] = {name: round(seconds, 3) for name, seconds in self.freshness_parts.items()}
        for state in plain["services"].values():
            state["seconds"] = round(state["seconds"], 3)
        return plain


def take_sample(
    batches: Sequence[MicroBatch],
    status: TableStatus,
    services: Mapping[str, ServiceState],
    *,
    seconds: float,
    arrival: str,
    before: MetricsSample | None,
) -> MetricsSample:
    """Return a sample.

    Parameters
    ----------
    batches : sequence of MicroBatch
        Those that ended since the last sample.
    status : TableStatus
        The state of the table.
    services : mapping of str to ServiceState
        The state of the services.
    seconds : float
        Time since the last sample.
    arrival : str
        The source of arrival times.
    before : MetricsSample or None
        The last sample.
    """
    rows = sum(batch.rows for batch in batches)
    bad = sum(batch.bad_records for batch in batches)
    fresh = percentiles(batches, _PERCENTILES)
    return MetricsSample(
        at=datetime.now(UTC),
        seconds=seconds,
        batches=len(batches),
        rows=rows,
        total_batches=len(batches) + (before.total_batches if before else 0),
        total_rows=rows + (before.total_rows if before else 0),
        rows_per_second=rows / seconds if seconds > 0 else 0.0,
        batch_seconds=max((batch.seconds for batch in batches), default=None),
        freshness_p50=fresh[0] if fresh else None,
        freshness_p99=fresh[1] if fresh else None,
        arrival=arrival,
        lag_seconds=status.lag_seconds,
        unmerged_generations=sum(shard.unmerged_generations for shard in status.shards),
        unmerged_rows=status.unmerged_rows,
        behind=batches[-1].behind if batches else {},
        services=dict(services),
        bad_records=bad,
        total_bad_records=bad + (before.total_bad_records if before else 0),
        freshness_parts=mean_parts(batches),
    )


def as_log_event(sample: MetricsSample) -> None:
    """Write a sample to the log."""
    fields = sample.to_dict()
    services = fields.pop("services")
    failing = sorted(name for name, state in services.items() if state["failures_in_a_row"])
    _log.info("pipeline.metrics", **fields, failing=failing)


def as_line_of(path: Path) -> Callable[[MetricsSample], None]:
    """Return a sink that appends samples to a file, as lines of JSON.

    Raises
    ------
    StorageError
        If the file cannot be written.
    """

    def refused(error: OSError) -> StorageError:
        return StorageError(f"metrics cannot be written: {error.strerror}", where=str(path))

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.open("ab").close()
    except OSError as error:
        raise refused(error) from error

    def append(sample: MetricsSample) -> None:
        line = f"{json.dumps(sample.to_dict())}\n".encode()
        try:
            with path.open("ab", buffering=0) as file:
                written = file.write(line)
                if written < len(line):
                    # The disk is full: half a line would spoil the next one too.
                    file.truncate(os.fstat(file.fileno()).st_size - written)
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            raise refused(error) from error

    return append


class Sampler:
    """Takes samples on a separate thread, from :meth:`start` to :meth:`stop`, and a last one at the end.

    Parameters
    ----------
    take : callable
        Takes a sample, given the seconds since the last one and that sample.
    sinks : sequence of callable
        The sinks for samples. Failures in them, or while sampling, are logged and stop nothing.
    every : timedelta
        Time between samples.
    watch : callable
        Called every second and before a sample, to record what would otherwise be lost.
    """

    _WATCH_SECONDS = 1.0

    def __init__(
        self,
        take: Callable[[float, MetricsSample | None], MetricsSample],
        sinks: Sequence[Callable[[MetricsSample], None]],
        every: timedelta,
        watch: Callable[[], None],
    ) -> None:
        self._take = take
        self._sinks = tuple(sinks)
        self._every = every.total_seconds()
        self._watch = watch
        self._stopping = threading.Event()
        self._last: MetricsSample | None = None
        self._sampled_at = time.monotonic()
        self._thread = threading.Thread(target=self._repeat, name="weir-pipeline-metrics", daemon=True)

    @property
    def last(self) -> MetricsSample | None:
        """The newest sample."""
        return self._last

    def start(self) -> None:
        """Start: the first sample is due an interval from now."""
        self._sampled_at = time.monotonic()
        self._thread.start()

    def stop(self, *, answered: bool = True) -> MetricsSample | None:
        """Stop after a last sample. Return the newest one, None if none could be taken.

        Parameters
        ----------
        answered : bool, default True
            Whether the pipeline still answers. If not, nothing is waited for, and no sample is taken.
        """
        self._stopping.set()
        if answered:
            self._thread.join()
            self._guarded(self._watch)
            self._guarded(self._sample)
        return self._last

    def _repeat(self) -> None:
        due = self._sampled_at + self._every
        while not self._stopping.wait(min(max(due - time.monotonic(), 0.0), self._WATCH_SECONDS)):
            self._guarded(self._watch)
            if time.monotonic() >= due:
                self._guarded(self._sample)
                due = max(due + self._every, time.monotonic())

    def _sample(self) -> None:
        now = time.monotonic()
        sample = self._take(now - self._sampled_at, self._last)
        self._last, self._sampled_at = sample, now
        for sink in self._sinks:
            self._guarded(lambda sink=sink: sink(sample))  # type: ignore[misc]

    def _guarded(self, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception as error:
            # A stream is not to fail because nobody can see how it is doing.
            _log.warning("pipeline.metrics_failed", error=str(error) or type(error).__name__)
