"""A pipeline as one value: a source, a target, and the services beside the stream."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TypeVar

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, is_remote
from pyspark.sql.streaming.query import StreamingQuery

from weir.engine.runner import Runner, ThreadRunner
from weir.engine.stop_signals import stop_when_asked
from weir.errors import OptionError
from weir.spark.cluster import cluster_by_shard
from weir.spark.pipeline.bad_records import (
    PLACE,
    bad_records,
    good_rows,
    quarantine_of,
    readable,
    with_place,
)
from weir.spark.pipeline.decoding import CORRUPT
from weir.spark.pipeline.destination import (
    Destination,
    check_write_options,
    find_destination,
    open_destination,
    sink_options,
)
from weir.spark.pipeline.file_order import in_order_of_files
from weir.spark.pipeline.freshness import BATCH_ARRIVAL, arrival_of, observed
from weir.spark.pipeline.metrics import MetricsSample, as_line_of, as_log_event
from weir.spark.pipeline.running import PipelineSummary, RunningPipeline, use_pool
from weir.spark.pipeline.settings import (
    AVAILABLE_NOW,
    CallableSource,
    FormatSource,
    Metrics,
    OnBadRecord,
    Quarantine,
    Services,
    TargetEvents,
    TargetTable,
    Trigger,
    check_on_bad_record,
    check_trigger,
)
from weir.spark.pipeline.stream import read_source, transformed
from weir.spark.pipeline.table_services import closing_services, ending_services
from weir.spark.pipeline.target import find_table, open_or_create
from weir.spark.runner import SparkRunner
from weir.spark.session import register
from weir.spark.silence import SparkSilentError, silent, watch_session
from weir.table.table import Table

__all__ = ["Pipeline", "PipelineCheck"]

_STREAM_POOL = "weir-stream"
_LOOK_FOR_SIGNALS = timedelta(seconds=0.25)

Result = TypeVar("Result")
OnSample = Callable[[MetricsSample], None]


@dataclass(frozen=True, slots=True)
class PipelineCheck:
    """The result of checking a pipeline.

    Parameters
    ----------
    uri : str
        The table, or the event store.
    exists : bool
        Whether it exists; otherwise a run would create it.
    source_columns, columns : dict of str to str
        The columns of the source, and those after the transform, with their Spark types; empty if Spark was
        not used.
    what : str
        ``"table"`` or ``"event store"``.
    """

    uri: str
    exists: bool
    source_columns: dict[str, str] = field(default_factory=dict)
    columns: dict[str, str] = field(default_factory=dict)
    what: str = "table"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """A stream of rows into a Weir table or an event store, with its services beside it.

    Parameters
    ----------
    source : FormatSource or CallableSource
        Where rows come from.
    table : TargetTable or TargetEvents
        Where they go. In a table a row is an upsert by primary key, or the operation in its column ``_op``;
        in an event store it is an event.
    checkpoint : str
        Where Spark records its progress: a directory, or a location that Spark can write to. It belongs to
        this source and this table.
    transform : str, optional
        SQL over the view ``source`` that makes the rows. Default: the rows of the source.
    trigger : timedelta or "available-now"
        Time from the beginning of one micro-batch to that of the next; or process what is there and end.
        Default: one micro-batch right after the other.
    cluster_by_shard : bool, default False
        Whether to shuffle the rows of each micro-batch, so that one task writes each shard; see
        :func:`weir.spark.cluster_by_shard`. Rows then lose their order: of several with one key in a
        micro-batch any may win. Spark's setting ``spark.sql.shuffle.partitions`` is the number of tasks.
    write : mapping of str to str, default {}
        Further options of the format ``"weir"``, or ``"weir-events"``.
    on_bad_record : "fail" or "quarantine", default "fail"
        What to do with a record that cannot be read with the schema of the source, or whose row does not fit
        the table: a null in its key or in a column that is not nullable, an unknown ``_op``, a vector of
        another length; for an event, whatever its type refuses. It stops the stream, or it is written to a
        separate table, with the reason and its origin. The source is then read a second time, only for the
        bad records.
    quarantine : Quarantine
        That table, and when to raise an alarm.
    services : Services
        The services for the table.
    metrics : Metrics
        The metrics of the pipeline.
    name : str, default "weir-pipeline"
        Name of the query.
    """

    source: FormatSource | CallableSource
    table: TargetTable | TargetEvents
    checkpoint: str
    transform: str | None = None
    trigger: Trigger = timedelta(0)
    cluster_by_shard: bool = False
    write: Mapping[str, str] = field(default_factory=dict, repr=False)
    on_bad_record: OnBadRecord = "fail"
    quarantine: Quarantine = field(default_factory=Quarantine)
    services: Services = field(default_factory=Services)
    metrics: Metrics = field(default_factory=Metrics)
    name: str = "weir-pipeline"

    def __post_init__(self) -> None:
        if not self.checkpoint:
            raise OptionError("the location of the checkpoint is empty", where="stream.checkpoint")
        if self.transform is not None and not self.transform.strip():
            raise OptionError("the SQL of the transform is empty", where="transform.sql")
        if not self.name:
            raise OptionError("the name of the pipeline is empty", where="name")
        if self.cluster_by_shard and self._in_order:
            raise OptionError(
                "rows that are clustered by shard lose the order of their files",
                where="stream.cluster_by_shard",
                hint="Leave out either this or in_order of the source",
            )
        if self.cluster_by_shard and isinstance(self.table, TargetEvents):
            raise OptionError(
                "events keep their order, and rows that are clustered by shard lose it",
                where="stream.cluster_by_shard",
            )
        if "type" in self.write and isinstance(self.table, TargetEvents):
            raise OptionError("the target says what type its events are of", where="write.type")
        check_trigger(self.trigger)
        check_on_bad_record(self.on_bad_record)

    def check(self, spark: SparkSession | None = None) -> PipelineCheck:
        """Check everything that can be checked before a run. Nothing is written.

        Parameters
        ----------
        spark : SparkSession, optional
            Checks source and transform too.

        Raises
        ------
        WeirError
            The first problem found.
        """
        found = find_destination(self.table)
        uri = self.table.uri if found is None else found.uri
        what = "event store" if isinstance(self.table, TargetEvents) else "table"
        if spark is None:
            return PipelineCheck(uri, found is not None, what=what)
        return _while_it_answers(spark, lambda: self._check_on(spark, found, uri, what))

    def _check_on(self, spark: SparkSession, found: Destination | None, uri: str, what: str) -> PipelineCheck:
        register(spark)
        source = self._source(spark)
        stream, _ = self._incoming(source)
        options = self._sink_options()
        check_write_options(self.table, options)
        with transformed(spark, stream, self.transform) as rows:
            if found is not None:
                found.check(rows.drop(PLACE).schema, options)
            return PipelineCheck(uri, found is not None, _columns(source), _columns(rows), what)

    def start(self, spark: SparkSession, *, on_sample: OnSample | None = None) -> RunningPipeline:
        """Start the pipeline and return while it runs.

        Parameters
        ----------
        spark : SparkSession
            The session; the format ``"weir"`` is registered with it.
        on_sample : callable, optional
            Called with every sample of the metrics, on a separate thread.

        Raises
        ------
        WeirError
            If it cannot start. Nothing was written, except that the table may have been created.
        """
        return _while_it_answers(spark, lambda: self._begin(spark, on_sample))

    def _begin(self, spark: SparkSession, on_sample: OnSample | None) -> RunningPipeline:
        register(spark)
        sinks: list[OnSample] = [as_log_event] if self.metrics.log else []
        source = self._source(spark)
        stream, arrival = self._incoming(source)
        find_destination(self.table)
        quarantine = self._find_quarantine()
        with transformed(spark, stream, self.transform) as rows:
            if self.metrics.file is not None:
                sinks.append(as_line_of(Path(self.metrics.file)))
            if on_sample is not None:
                sinks.append(on_sample)
            options = self._sink_options()
            check_write_options(self.table, options)
            target = open_destination(self.table)
            target.check(rows.drop(PLACE).schema, options)
            if quarantine is not None:
                rows = good_rows(rows, target.misfit(rows.schema))
            placed = cluster_by_shard(rows, target.table) if self.cluster_by_shard else rows
            query = self._start(placed, self.name, self.checkpoint, self._format, options, target.uri)
        refused = None
        if quarantine is not None:
            try:
                refused = self._start_quarantine(spark, source, target, open_or_create(quarantine))
            except BaseException:
                query.stop()
                raise
        runner = self._runner(spark)
        services = target.services(self.services, runner)
        return RunningPipeline(
            spark,
            target.table,
            query,
            services,
            uri=target.uri,
            closing=closing_services(target.table, services, self.services, runner),
            ending=ending_services(target.table, runner),
            sinks=sinks,
            every=self.metrics.every,
            grace=self.services.grace,
            arrival=arrival or BATCH_ARRIVAL,
            refused=refused,
            quarantine="" if quarantine is None else quarantine.uri,
            alarm_share=self.quarantine.alarm_share,
        )

    def run(
        self,
        spark: SparkSession,
        *,
        on_sample: OnSample | None = None,
        on_second_signal: Callable[[int], None] | None = None,
    ) -> PipelineSummary:
        """Run until the stream ends by itself or the process receives SIGINT or SIGTERM.

        A signal lets the running micro-batch finish and stops everything in order; a second signal has its
        previous effect. Signals are handled where Python delivers them, in the main thread. With the trigger
        ``"available-now"`` every service runs once after all rows were written; a signal then lets the
        running one finish and skips the rest.

        Parameters
        ----------
        spark, on_sample
            As for :meth:`start`.
        on_second_signal : callable, optional
            Called with the number of a second signal instead.

        Raises
        ------
        PipelineError
            If the stream fails.
        WeirError
            If it cannot start.
        """
        with _asked_to_stop(on_second_signal) as asked, self.start(spark, on_sample=on_sample) as running:
            while not asked.is_set():
                if running.wait(_LOOK_FOR_SIGNALS):
                    at_the_end = self.trigger == AVAILABLE_NOW
                    return running.stop(closing_round=at_the_end, break_off=asked.is_set)
            return running.stop()

    def _source(self, spark: SparkSession) -> DataFrame:
        """Return the source; with a quarantine, including the origin of records and unreadable text."""
        if self.on_bad_record == "fail":
            return read_source(spark, self.source)
        return with_place(read_source(spark, self.source, keep_unreadable=True), self.source)

    def _find_quarantine(self) -> TargetTable | None:
        if self.on_bad_record == "fail":
            return None
        quarantine = quarantine_of(self.table, self.quarantine.uri)
        find_table(quarantine)
        return quarantine

    def _start_quarantine(
        self, spark: SparkSession, source: DataFrame, target: Destination, quarantine: Table
    ) -> StreamingQuery:
        with transformed(spark, readable(source), self.transform) as rows:
            bad = bad_records(source, rows, target.misfit(rows.schema), self.name)
            return self._start(
                bad,
                f"{self.name}-quarantine",
                f"{self.checkpoint.rstrip('/')}-quarantine",
                "weir",
                {**sink_options(quarantine_of(self.table, self.quarantine.uri)), "flush": "true"},
                quarantine.uri,
            )

    def _start(
        self, rows: DataFrame, name: str, checkpoint: str, format: str, options: Mapping[str, str], uri: str
    ) -> StreamingQuery:
        writer = (
            rows.writeStream.format(format)
            .queryName(name)
            .options(**options)
            .option("checkpointLocation", checkpoint)
        )
        if self.trigger == AVAILABLE_NOW:
            writer = writer.trigger(availableNow=True)
        elif self.trigger:
            milliseconds = self.trigger // timedelta(milliseconds=1)
            writer = writer.trigger(processingTime=f"{milliseconds} milliseconds")
        use_pool(rows.sparkSession, _STREAM_POOL)
        try:
            return writer.start(uri)
        finally:
            use_pool(rows.sparkSession, None)

    def _incoming(self, source: DataFrame) -> tuple[DataFrame, str | None]:
        arrival = arrival_of(self.source, source.schema, self.metrics.arrival)
        try:
            stream = observed(source, arrival)
            # Spark Connect knows its columns without asking the server, and this it has to ask.
            stream.isStreaming  # noqa: B018
        except PySparkException as error:
            raise OptionError(
                f"the instant of arrival cannot be read: {str(error).partition(chr(10))[0]}",
                where="metrics.arrival",
            ) from error
        return readable(in_order_of_files(stream) if self._in_order else stream), arrival

    @property
    def _in_order(self) -> bool:
        return isinstance(self.source, FormatSource) and self.source.in_order

    @property
    def _format(self) -> str:
        return "weir-events" if isinstance(self.table, TargetEvents) else "weir"

    def _sink_options(self) -> dict[str, str]:
        """Return the sink options."""
        return {**sink_options(self.table), **self.write}

    def _runner(self, spark: SparkSession) -> Runner:
        return ThreadRunner() if self.services.runner == "threads" else SparkRunner(spark)


@contextmanager
def _asked_to_stop(on_second: Callable[[int], None] | None) -> Iterator[threading.Event]:
    if threading.current_thread() is threading.main_thread():
        with stop_when_asked(on_second) as asked:
            yield asked
    else:
        yield threading.Event()


def _while_it_answers(spark: SparkSession, call: Callable[[], Result]) -> Result:
    """Return the result of a call to Spark; on Spark Connect, waiting only as long as it answers."""
    if not is_remote():
        # Java knows what is registered for a session by the thread that asks.
        return call()
    with watch_session(spark) as watch:
        try:
            return watch.run(call)
        except SparkSilentError as error:
            raise silent(error) from error


def _columns(rows: DataFrame) -> dict[str, str]:
    ours = (PLACE, CORRUPT)
    return {column.name: column.dataType.simpleString() for column in rows.schema if column.name not in ours}
