"""Micro-batches of upserts through Structured Streaming: how many rows, and how soon they are seen.

A micro-batch is a Parquet file, made beforehand, that is put before a running query; the query takes one
at a time. Every query of every contender gets the same files, and a base table as nobody has touched it.
"""

from __future__ import annotations

import os
import shutil
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import weir
from benchmarks.context import Context, Result
from benchmarks.harness import Case, Contender, Measurement, Sense, Target, measure
from benchmarks.layered_table import WrongAnswerError
from benchmarks.spark.base_tables import Kind, base_table, copy_of
from benchmarks.spark.dropping import DROPPING, DroppingSink
from benchmarks.spark.events import KEY, SERIES, SPARK_SCHEMA, events
from benchmarks.spark.processor_time import ProcessorTimes
from benchmarks.spark.session import describe, started

__all__ = ["compare", "run"]

_WEIR, _WEIR_FSYNC = "weir", "weir, fsync"
_TODAY = "foreachBatch + merge_insert"
_TODAY_INDEXED = "foreachBatch + merge_insert, BTREE"
_FLOOR = "Spark's noop sink"
_PYTHON_FLOOR = "Python sink that drops rows"

_FACTOR, _FRESHNESS_FACTOR = 5.0, 3.0
_SHARDS = 8
_BLOCK_SECONDS = 20.0
_POLL_SECONDS = 0.002
_PATIENCE_SECONDS = 300.0
_SEEN_ROWS = 16
"""Of so many rows of a micro-batch a reader makes sure that it sees them."""


@dataclass(frozen=True, slots=True)
class _Sink:
    """Where the rows of a query go.

    Parameters
    ----------
    kind : Kind, optional
        The base table; None where there is none.
    start : callable
        Starts a query that writes a data frame to a table, with a checkpoint.
    """

    kind: Kind | None
    start: Callable[[DataFrame, Path, Path], StreamingQuery]


@dataclass(slots=True)
class _Bench:
    """What the queries of one size of micro-batch work with.

    Parameters
    ----------
    context : Context
        Where to work, and how much to do.
    spark : SparkSession
        The session.
    rows : int
        Rows of a micro-batch.
    stages : dict of str to dict of str to list of int
        By contender and stage, milliseconds of every micro-batch as Spark reports them.
    times : ProcessorTimes
        What micro-batches take of the processor.
    """

    context: Context
    spark: SparkSession
    rows: int
    stages: dict[str, dict[str, list[int]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )
    times: ProcessorTimes = field(default_factory=ProcessorTimes)
    _numbers: Iterator[int] = field(default_factory=count)

    @contextmanager
    def session(self, name: str, sink: _Sink, *, until_seen: bool = False) -> Iterator[Callable[[], None]]:
        """Yield the call that puts the next micro-batch before a query and waits for it.

        Parameters
        ----------
        name : str
            The contender.
        sink : _Sink
            Where it writes.
        until_seen : bool
            Whether to wait until a strong reader sees the rows, rather than until Spark has committed the
            micro-batch.
        """
        warm_up = self.context.scale.spark.warm_up
        place = self.context.directory / f"stream-{self.rows}-{next(self._numbers)}-{until_seen}"
        inbox, table, checkpoint = place / "inbox", place / "table", place / "checkpoint"
        inbox.mkdir(parents=True)
        if sink.kind is not None:
            copy_of(self.base(sink.kind), table)
        reader = weir.open(table) if until_seen and sink.kind is not None else None
        source = (
            self.spark.readStream.schema(SPARK_SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(inbox))
        )
        query = sink.start(source, table, checkpoint)
        numbers = count()

        def call() -> None:
            number = next(numbers)
            os.link(self.file(number), inbox / f"{number:06}.parquet")
            if reader is None:
                _wait(query, (checkpoint / "commits" / str(number)).exists)
            else:
                _wait(query, partial(_sees, reader, self.keys(number)[:: self.rows // _SEEN_ROWS], number))

        try:
            metered_as = f"{name} and a reader" if reader else name
            with self.times.metered(metered_as, call, warm_up=warm_up) as metered:
                yield metered
                query.processAllAvailable()
            if sink.kind is not None:
                self._check(name, sink.kind, table, next(numbers))
            for progress in query.recentProgress[warm_up:]:
                for stage, milliseconds in progress["durationMs"].items():
                    if progress["numInputRows"]:
                        self.stages[name][stage].append(milliseconds)
        finally:
            query.stop()
            shutil.rmtree(place / "inbox")

    def base(self, kind: Kind) -> Path:
        """Return a base table that nobody has touched."""
        return base_table(self.context.directory, kind, self.context.scale.spark.base_rows, _SHARDS)

    def keys(self, number: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """Return the keys of a micro-batch: half of them in the base table, half new."""
        generator = np.random.default_rng([self.rows, number])
        base_rows = self.context.scale.spark.base_rows
        old = 2 * generator.integers(0, base_rows, self.rows)
        old[::2] += 1
        return generator.permutation(np.unique(old))

    def file(self, number: int) -> Path:
        """Return the file of a micro-batch."""
        path = self.context.directory / f"micro-batches-{self.rows}" / f"{number:06}.parquet"
        if not path.exists():
            path.parent.mkdir(exist_ok=True)
            pq.write_table(events(self.keys(number), number), path)
        return path

    def _check(self, name: str, kind: Kind, table: Path, batches: int) -> None:
        """Compare a table with what was written.

        Raises
        ------
        WrongAnswerError
            Saying who wrote what.
        """
        newest = np.full(2 * self.context.scale.spark.base_rows, -1, np.int64)
        for number in range(batches):
            newest[self.keys(number)] = number
        wanted = np.bincount(newest[newest >= 0], minlength=batches)
        found = (
            weir.open(table).scan([SERIES], filter=f"{SERIES} >= 0").to_table()
            if kind is Kind.WEIR
            else lance.dataset(str(table)).to_table([SERIES], filter=f"{SERIES} >= 0")
        )
        counts = np.bincount(found.column(SERIES).to_numpy(), minlength=batches)
        if not np.array_equal(counts, wanted):
            raise WrongAnswerError(f"{name} left {counts} rows of the micro-batches, not {wanted}")


def run(context: Context) -> Result:
    """Measure in a session of its own."""
    with started(context.directory) as spark:
        return compare(context, spark)


def compare(context: Context, spark: SparkSession) -> Result:
    """Measure micro-batches of several sizes."""
    scale = context.scale.spark
    spark.dataSource.register(DroppingSink)
    cases: list[Case] = []
    notes: list[str] = []
    for rows in scale.batch_rows:
        bench = _Bench(context, spark, rows)
        context.say(f"spark-stream: micro-batches of {rows:,} rows")
        sinks = {
            _WEIR: _Sink(Kind.WEIR, partial(_to_weir, fsync=False)),
            _WEIR_FSYNC: _Sink(Kind.WEIR, partial(_to_weir, fsync=True)),
            _TODAY: _Sink(Kind.PLAIN, _by_merge_insert),
            _TODAY_INDEXED: _Sink(Kind.INDEXED, _by_merge_insert),
        }
        _prepare(bench, sinks)
        contenders = [Contender(name, partial(bench.session, name, sink)) for name, sink in sinks.items()]
        measured = _measured(context, contenders)
        target = Target(_WEIR, Sense.FASTER, _FACTOR, (_TODAY, _TODAY_INDEXED))
        cases.append(Case("spark-stream", f"micro-batch of {rows:,}", measured, (target,), rows))
        context.say(f"spark-stream: freshness of {rows:,} rows")
        contenders = [
            Contender(_WEIR_FSYNC, partial(bench.session, _WEIR_FSYNC, sinks[_WEIR_FSYNC], until_seen=True)),
            Contender(_FLOOR, partial(bench.session, _FLOOR, _Sink(None, partial(_to_nothing, "noop")))),
            Contender(
                _PYTHON_FLOOR,
                partial(bench.session, _PYTHON_FLOOR, _Sink(None, partial(_to_nothing, DROPPING))),
            ),
        ]
        measured = _measured(context, contenders)
        target = Target(_WEIR_FSYNC, Sense.WITHIN, _FRESHNESS_FACTOR, (_FLOOR,))
        cases.append(Case("spark-stream", f"freshness of {rows:,}", measured, (target,)))
        notes += _stages(bench)
    return Result(
        "spark-stream",
        f"micro-batches through Structured Streaming into {scale.base_rows:,} base rows, {_SHARDS} shards",
        (
            f"{_WEIR}: writeStream.format('weir') without fsync, as Lance does without; {_WEIR_FSYNC}: the "
            "default",
            f"{_TODAY}: DataFrame.toArrow and merge_insert with update and insert, in a dataset without and "
            "one with an index on the key",
            "micro-batch: from the arrival of a file until Spark has committed the micro-batch; freshness: "
            f"until a strong reader sees {_SEEN_ROWS} of its rows, and for {_FLOOR} until the commit",
            f"{_PYTHON_FLOOR}: what Spark takes for a micro-batch as soon as the sink is written in Python",
            "half of the keys are in the base table; every query begins with the same base table; what is "
            "in the table afterwards is checked",
            *notes,
            describe(),
        ),
        cases,
    )


def _measured(context: Context, contenders: list[Contender]) -> tuple[Measurement, ...]:
    scale = context.scale.spark
    return measure(
        contenders,
        rounds=scale.rounds,
        calls=scale.batches,
        warm_up=scale.warm_up,
        block_seconds=_BLOCK_SECONDS,
    )


def _prepare(bench: _Bench, sinks: dict[str, _Sink]) -> None:
    """Make tables and files before anything is timed."""
    for sink in sinks.values():
        if sink.kind is not None:
            bench.base(sink.kind)
    scale = bench.context.scale.spark
    for number in range(scale.warm_up + scale.batches):
        bench.file(number)


def _stages(bench: _Bench) -> list[str]:
    """Return what micro-batches take of the processor, and the medians of the stages that Spark reports."""
    return [
        f"{bench.rows:,} rows, {bench.times.describe()}",
        *(
            f"{bench.rows:,} rows, {name}: "
            + ", ".join(f"{stage} {statistics.median(found):.0f} ms" for stage, found in stages.items())
            for name, stages in bench.stages.items()
        ),
    ]


def _to_weir(rows: DataFrame, table: Path, checkpoint: Path, *, fsync: bool) -> StreamingQuery:
    writer = rows.writeStream.format("weir").option("checkpointLocation", str(checkpoint))
    return writer.option("fsync", str(fsync).lower()).start(str(table))


def _to_nothing(name: str, rows: DataFrame, table: Path, checkpoint: Path) -> StreamingQuery:
    return rows.writeStream.format(name).option("checkpointLocation", str(checkpoint)).start()


def _by_merge_insert(rows: DataFrame, table: Path, checkpoint: Path) -> StreamingQuery:
    def write(batch: DataFrame, number: int) -> None:
        collected: pa.Table = batch.toArrow()
        merge = lance.dataset(str(table)).merge_insert(KEY)
        merge.when_matched_update_all().when_not_matched_insert_all().execute(collected)

    return rows.writeStream.foreachBatch(write).option("checkpointLocation", str(checkpoint)).start()


def _sees(reader: weir.Table, keys: np.ndarray[tuple[int], np.dtype[np.int64]], number: int) -> bool:
    found = reader.get(keys.tolist(), columns=[SERIES])
    series = found.column(SERIES).to_numpy()
    return len(series) == len(keys) and bool((series == number).all())


def _wait(query: StreamingQuery, is_done: Callable[[], bool]) -> None:
    """Wait until something is so.

    Raises
    ------
    RuntimeError
        If the query ends first, or takes too long.
    """
    began = asked = time.monotonic()
    while not is_done():
        time.sleep(_POLL_SECONDS)
        now = time.monotonic()
        if now - asked > 1.0:
            asked = now
            if not query.isActive or now - began > _PATIENCE_SECONDS:
                raise RuntimeError(f"the query did not take a micro-batch: {query.exception()}")
