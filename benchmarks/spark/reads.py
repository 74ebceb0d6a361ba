"""Batch reads of two columns: a Weir table, and a data source that has its batches already."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

import weir
from benchmarks.context import Context, Result
from benchmarks.harness import Case, Contender, Sense, Target, measure
from benchmarks.layered_table import WrongAnswerError
from benchmarks.spark.base_tables import Kind, base_table, copy_of
from benchmarks.spark.events import KEY, events
from benchmarks.spark.processor_time import ProcessorTimes
from benchmarks.spark.session import describe, started

__all__ = ["YieldingSource", "compare", "run"]

_WEIR = "weir"
_YIELDING = "Arrow data source"
_FACTOR = 1 / 0.7
_SHARDS = 8
_COLUMNS = (KEY, "kind")
_BATCH_ROWS = (8_192, 65_536)
_PARTITION_ROWS = 1_048_576
_FRESH_SHARE = 20
"""One of so many rows of the table is superseded by a row that is not merged."""
_CALLS = 3
_BLOCK_SECONDS = 10.0


class YieldingSource(DataSource):
    """Yields the same batch again and again.

    Options ``rows`` and ``batchRows``: how many rows in all, and in a batch.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "yielding"

    def schema(self) -> str:
        """Return two columns of the tables."""
        return f"{_COLUMNS[0]} long not null, {_COLUMNS[1]} string"

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return what yields."""
        return _YieldingReader(int(self.options["rows"]), int(self.options["batchRows"]))


@dataclass(frozen=True, slots=True)
class _Rows(InputPartition):
    """How many rows a task yields."""

    count: int


@dataclass(frozen=True, slots=True)
class _YieldingReader(DataSourceReader):
    rows: int
    batch_rows: int

    def partitions(self) -> Sequence[InputPartition]:
        """Return as many tasks as a table of as many rows has."""
        starts = range(0, self.rows, _PARTITION_ROWS)
        return [_Rows(min(_PARTITION_ROWS, self.rows - start)) for start in starts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield."""
        assert isinstance(partition, _Rows)
        batch = events(np.arange(self.batch_rows), 0).select(_COLUMNS).combine_chunks().to_batches()[0]
        for start in range(0, partition.count, self.batch_rows):
            yield batch.slice(0, min(self.batch_rows, partition.count - start))


def run(context: Context) -> Result:
    """Measure in a session of its own."""
    with started(context.directory) as spark:
        return compare(context, spark)


def compare(context: Context, spark: SparkSession) -> Result:
    """Measure reads of a table that is merged, and of one that has newer rows."""
    scale = context.scale.spark
    rows = scale.bulk_rows
    spark.dataSource.register(YieldingSource)
    yielding = {f"{_YIELDING}, batches of {size:,}": _yielding(spark, rows, size) for size in _BATCH_ROWS}
    context.say("spark-read: writing the table")
    merged = base_table(context.directory, Kind.WEIR, rows, _SHARDS)
    fresh = _with_newer_rows(copy_of(merged, context.directory / "read-fresh"), rows)
    cases = []
    notes = []
    for name, table in (("merged", merged), ("a twentieth of the rows not merged", fresh)):
        context.say(f"spark-read: {name}")
        frames = {_WEIR: _table(spark, table), **yielding}
        for who, frame in frames.items():
            if (found := frame.count()) != rows:
                raise WrongAnswerError(f"{who} read {found:,} rows, not {rows:,}")
        times = ProcessorTimes()
        contenders = [
            Contender(who, partial(times.metered, who, partial(_read, frame), warm_up=scale.warm_up))
            for who, frame in frames.items()
        ]
        measured = measure(
            contenders,
            rounds=scale.rounds,
            calls=_CALLS,
            warm_up=scale.warm_up,
            block_seconds=_BLOCK_SECONDS,
        )
        target = Target(_WEIR, Sense.WITHIN, _FACTOR, tuple(yielding))
        cases.append(Case("spark-read", f"{rows:,} rows, {name}", measured, (target,), rows_per_call=rows))
        notes.append(f"{name}, {times.describe()}")
    return Result(
        "spark-read",
        f"batch read of columns {' and '.join(_COLUMNS)} of {rows:,} rows, {_SHARDS} shards",
        (
            f"{_YIELDING}: has one batch in memory and yields it again and again, in as many tasks as a "
            "merged table of the size is read in; all into Spark's noop sink",
            "the files are in the operating system's page cache; Python workers have run before",
            *notes,
            describe(),
        ),
        cases,
    )


def _with_newer_rows(table: Path, rows: int) -> Path:
    ids = 2 * np.random.default_rng(5).choice(rows, max(rows // _FRESH_SHARE, 1), replace=False)
    with weir.open(table, fsync=False).writer() as writer:
        writer.upsert(events(ids, 1))
    return table


def _table(spark: SparkSession, table: Path) -> DataFrame:
    return spark.read.format("weir").option("columns", ", ".join(_COLUMNS)).load(str(table))


def _yielding(spark: SparkSession, rows: int, batch_rows: int) -> DataFrame:
    return spark.read.format("yielding").option("rows", rows).option("batchRows", batch_rows).load()


def _read(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()
