"""A running pipeline: its query, services and samples, and how it ends."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from types import TracebackType

from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from weir.engine.logs import get_logger
from weir.errors import PipelineError
from weir.spark.pipeline.metrics import MetricsSample, Sampler, take_sample
from weir.spark.pipeline.micro_batch import MicroBatch
from weir.spark.pipeline.query_watch import QueryWatch
from weir.spark.pipeline.schedule import Schedule, ScheduledService, ServiceState
from weir.spark.pipeline.stream import MicroBatches
from weir.spark.worker_errors import worker_error
from weir.table.table import Table

__all__ = ["PipelineSummary", "RunningPipeline", "use_pool"]

_log = get_logger(__name__)

_SERVICE_POOL = "weir-services"
_POLL_SECONDS = 0.02
_BOTH_SECONDS = 0.25
"""How long to wait for one of two queries before checking the other."""

# The line that ends a traceback of Python.
_RAISED = re.compile(r"^(\w+(?:\.\w+)*(?:Error|Exception)): (.+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class PipelineSummary:
    """The summary of a pipeline's run.

    Parameters
    ----------
    uri : str
        The table, or the event store.
    seconds : float
        How long it ran.
    batches, rows : int
        Micro-batches, and the source rows they read.
    services : dict of str to ServiceState
        The state of each service.
    unfinished : tuple of str
        Services that were still running after the grace period.
    bad_records : int
        Quarantined records.
    quarantine : str
        The table with them; empty if bad records stop the stream.
    """

    uri: str
    seconds: float
    batches: int
    rows: int
    services: dict[str, ServiceState] = field(default_factory=dict)
    unfinished: tuple[str, ...] = ()
    bad_records: int = 0
    quarantine: str = ""


def use_pool(spark: SparkSession, pool: str | None) -> None:
    """Assign this thread's Spark jobs to a pool, for fair scheduling.

    On Spark Connect the server decides.
    """
    try:
        context = spark.sparkContext
    except PySparkException:
        return
    context.setLocalProperty("spark.scheduler.pool", pool)  # type: ignore[arg-type]


class RunningPipeline:
    """A running pipeline. Made by :meth:`~weir.spark.pipeline.Pipeline.start`; a context manager.

    Leaving the ``with`` block stops it as :meth:`stop` does.

    Parameters
    ----------
    spark : SparkSession
        The session.
    table : Table
        The table that receives the rows.
    query : StreamingQuery
        The query.
    services : sequence of ScheduledService
        The services beside it.
    uri : str
        The table, or the event store it belongs to.
    closing : sequence of ScheduledService
        The services of a closing round.
    ending : sequence of ScheduledService
        The services at an end without a closing round.
    sinks : sequence of callable
        The sinks for samples.
    every : timedelta
        Time between samples.
    grace : timedelta
        How long to wait for services at the end.
    arrival : str
        The source of arrival times.
    refused : StreamingQuery, optional
        The query that writes bad records to the quarantine.
    quarantine : str
        That table.
    alarm_share : float
        Share of bad records in a sample above which there is a warning.
    """

    def __init__(
        self,
        spark: SparkSession,
        table: Table,
        query: StreamingQuery,
        services: Sequence[ScheduledService],
        *,
        uri: str,
        closing: Sequence[ScheduledService],
        ending: Sequence[ScheduledService],
        sinks: Sequence[Callable[[MetricsSample], None]],
        every: timedelta,
        grace: timedelta,
        arrival: str,
        refused: StreamingQuery | None = None,
        quarantine: str = "",
        alarm_share: float = 0.0,
    ) -> None:
        self._table = table
        self._uri = uri
        self._query = query
        self._grace = grace
        self._closing = tuple(closing)
        self._ending = tuple(ending)
        self._arrival = arrival
        self._began = time.monotonic()
        self._watch = QueryWatch(query)
        self._refused = refused
        self._refused_watch = None if refused is None else QueryWatch(refused)
        self._quarantine = quarantine
        self._alarm_share = alarm_share
        self._batches = MicroBatches(query)
        self._not_sampled: list[MicroBatch] = []
        self._total_batches = self._total_rows = self._total_bad = 0
        self._summary: PipelineSummary | None = None
        self._failure: PipelineError | None = None
        self._schedule = Schedule(services, prepare=lambda: use_pool(spark, _SERVICE_POOL))
        self._sampler = Sampler(self._take, sinks, every, self._note_batches)
        self._schedule.start()
        self._sampler.start()
        _log.info("pipeline.started", table=uri, query=query.id, services=len(services))

    @property
    def query(self) -> StreamingQuery:
        """The query that writes. Stopping it directly ends the pipeline too."""
        return self._query

    @property
    def table(self) -> Table:
        """The table that receives the rows."""
        return self._table

    @property
    def latest(self) -> MetricsSample | None:
        """The newest sample; None before the first."""
        return self._sampler.last

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Wait until the stream ends by itself, and return whether it has.

        Parameters
        ----------
        timeout : timedelta, optional
            How long to wait. Default: for ever.

        Raises
        ------
        PipelineError
            If the stream has failed, or Spark has not answered for a minute.
        """
        seconds = None if timeout is None else timeout.total_seconds()
        try:
            if self._refused_watch is None:
                return self._watch.wait(seconds)
            return self._both_end(self._refused_watch, math.inf if seconds is None else seconds)
        except Exception as error:
            self._failure = _failure(error, self._uri)
            raise self._failure from error

    def _both_end(self, other: QueryWatch, seconds: float) -> bool:
        """Wait for both queries: either may fail, and both must end."""
        give_up = time.monotonic() + seconds
        while True:
            left = give_up - time.monotonic()
            pause = min(max(left, 0.0), _BOTH_SECONDS)
            if self._watch.wait(pause) and other.wait(pause):
                return True
            other.wait(0)
            if left <= 0:
                return False

    def stop(
        self, *, closing_round: bool = False, break_off: Callable[[], bool] = lambda: False
    ) -> PipelineSummary:
        """Stop: let the running micro-batch finish, then stop the stream and the services.

        If batches follow each other directly, the next one has begun when the stream is stopped. It is
        interrupted uncommitted, and the next start runs it again.

        Parameters
        ----------
        closing_round : bool, default False
            Whether to run every service once after the stream has ended. Rows left in the log are flushed in
            any case.
        break_off : callable, optional
            Called before each service of the closing round: whether to skip it and the rest. Default: run
            all.

        Returns
        -------
        PipelineSummary
            The summary of the run. A second call returns the same.

        Raises
        ------
        PipelineError
            If the stream failed or Spark has not answered for a minute, and :meth:`wait` has not raised it;
            everything has ended nevertheless.
        """
        if self._summary is not None:
            return self._summary
        failed_before = self._failure is not None
        self._end_query()
        # What runs on a Spark that is gone will not end.
        unfinished = self._schedule.stop(timedelta(0) if self._watch.is_silent else self._grace)
        if not unfinished and self._failure is None:
            last = self._closing if closing_round else self._ending
            self._ask(lambda: self._schedule.run_each(last, break_off))
        self._ask(self._sampler.stop)
        if self._watch.is_silent:
            self._sampler.stop(answered=False)
        self._watch.close()
        if self._refused_watch is not None:
            self._refused_watch.close()
        self._summary = PipelineSummary(
            uri=self._uri,
            seconds=time.monotonic() - self._began,
            batches=self._total_batches,
            rows=self._total_rows,
            services=self._schedule.states,
            unfinished=unfinished,
            bad_records=self._total_bad,
            quarantine=self._quarantine,
        )
        _log.info(
            "pipeline.stopped",
            table=self._uri,
            batches=self._summary.batches,
            rows=self._summary.rows,
            unfinished=unfinished,
        )
        if self._failure is not None and not failed_before:
            raise self._failure
        return self._summary

    def __enter__(self) -> RunningPipeline:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self.stop()
        except PipelineError:
            # What the block has raised is what its caller is to be told.
            if error is None:
                raise

    def _end_query(self) -> None:
        """Let the running micro-batch finish, and stop; record the error of the stream."""
        self._ask(self._finish_micro_batch)
        # Before it is stopped: what Spark makes of a micro-batch that it breaks off is no failure.
        self._ask(lambda: self._note(self._query.exception()))
        self._ask(self._query.stop)
        refused = self._refused
        if refused is not None:
            self._ask(lambda: self._note(refused.exception()))
            self._ask(refused.stop)

    def _ask(self, call: Callable[[], object]) -> None:
        """Make a call to Spark, unless it is gone; record its error."""
        if self._watch.is_silent:
            return
        try:
            self._watch.run(call)
        except Exception as error:
            self._note(error)

    def _note(self, failed: Exception | None) -> None:
        if failed is not None and self._failure is None:
            self._failure = _failure(failed, self._uri)
            self._failure.__cause__ = failed

    def _finish_micro_batch(self) -> None:
        before = self._last_ended()
        while self._query.isActive:
            status = self._query.status
            idle = not (status["isTriggerActive"] and status["isDataAvailable"])
            if idle or self._last_ended() != before:
                return
            time.sleep(_POLL_SECONDS)

    def _last_ended(self) -> tuple[str, int] | None:
        last = self._query.lastProgress
        return None if last is None else (last.timestamp, last.batchId)

    def _note_batches(self) -> None:
        for batch in self._batches.ended():
            self._not_sampled.append(batch)
            self._total_batches += 1
            self._total_rows += batch.rows
            self._total_bad += batch.bad_records

    def _take(self, seconds: float, before: MetricsSample | None) -> MetricsSample:
        sample = take_sample(
            self._not_sampled,
            self._table.status(),
            self._schedule.states,
            seconds=seconds,
            arrival=self._arrival,
            before=before,
        )
        self._not_sampled = []
        if sample.bad_records > self._alarm_share * sample.rows:
            _log.warning(
                "pipeline.bad_records",
                table=self._uri,
                quarantine=self._quarantine,
                bad_records=sample.bad_records,
                rows=sample.rows,
                share=round(sample.bad_records / sample.rows, 4) if sample.rows else 1.0,
            )
        return sample


def _failure(error: Exception, uri: str) -> PipelineError:
    """Return the error of a stream from Spark's message, or for its silence."""
    goes_on = "What has been committed stays; started again, it goes on from its checkpoint"
    if isinstance(error, StreamingQueryException):
        return PipelineError(f"the stream has failed: {_reason(error)}", where=uri, hint=goes_on)
    return PipelineError(
        f"Spark does not answer any more: {_reason(error)}",
        where=uri,
        hint=f"Its process, Java, has ended or was killed, or its server cannot be reached. {goes_on}",
    )


def _reason(error: Exception) -> str:
    """Return the cause: the last line of a Python worker's traceback, without Spark's plan."""
    text = str(error).partition("=== Streaming Query ===")[0].strip()
    own = worker_error(text)
    if own is not None:
        return str(own)
    raised = _RAISED.findall(text)
    if raised:
        return ": ".join(raised[-1])
    return text.partition("\n")[0] or type(error).__name__
