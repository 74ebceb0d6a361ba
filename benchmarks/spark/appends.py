"""Bulk writes of a data frame: into a new Weir table, and as Parquet files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

import weir
from benchmarks.context import Context, Result
from benchmarks.harness import Case, Contender, Sense, Target, measure
from benchmarks.layered_table import WrongAnswerError
from benchmarks.spark.dropping import DROPPING, DroppingSink
from benchmarks.spark.events import KEY, SCHEMA, SPARK_SCHEMA, events
from benchmarks.spark.processor_time import ProcessorTimes
from benchmarks.spark.session import describe, started
from weir.spark import cluster_by_shard

__all__ = ["compare", "run"]

_WEIR, _WEIR_FSYNC, _CLUSTERED = "weir", "weir, fsync", "weir, cluster_by_shard"
_APPENDED = "weir, append-only"
_PARQUET = "Spark, Parquet"
_DROPPED = "Python sink that drops rows"
_KEPT_BY_WEIR = (_WEIR, _WEIR_FSYNC, _CLUSTERED, _APPENDED)
_FACTOR = 1 / 0.8
_SHARDS = 8
_FILES = 4
_CALLS = 5
_BLOCK_SECONDS = 20.0

_Write = Callable[[DataFrame, Path], None]


def run(context: Context) -> Result:
    """Measure in a session of its own."""
    with started(context.directory) as spark:
        return compare(context, spark)


def compare(context: Context, spark: SparkSession) -> Result:
    """Measure bulk writes."""
    rows = context.scale.spark.bulk_rows
    context.say("spark-append: writing what is to be copied")
    scale = context.scale.spark
    copier = _Copier(context.directory, spark, rows, scale.warm_up + _CALLS)
    writes: dict[str, _Write] = {
        _WEIR: partial(_to_weir, fsync=False),
        _WEIR_FSYNC: partial(_to_weir, fsync=True),
        _CLUSTERED: partial(_to_weir, fsync=False, clustered=True),
        _APPENDED: partial(_to_weir, fsync=False),
        _PARQUET: _to_parquet,
        _DROPPED: _to_nothing,
    }
    spark.dataSource.register(DroppingSink)
    contenders = [Contender(name, partial(copier.session, name, write)) for name, write in writes.items()]
    context.say("spark-append: copying")
    measured = measure(
        contenders,
        rounds=scale.rounds,
        calls=_CALLS,
        warm_up=scale.warm_up,
        block_seconds=_BLOCK_SECONDS,
    )
    targets = tuple(Target(name, Sense.WITHIN, _FACTOR, (_PARQUET,)) for name in (_WEIR, _APPENDED))
    return Result(
        "spark-append",
        f"bulk write of {rows:,} rows, read from {_FILES} Parquet files, into {_SHARDS} shards",
        (
            f"{_WEIR}, {_CLUSTERED}, {_APPENDED}: without fsync, as Spark writes Parquet without; "
            f"{_WEIR_FSYNC}: the default; {_APPENDED}: a table without a key, in one shard",
            "every call writes a new table, which is made before it and whose rows are counted after it",
            f"{_DROPPED}: what Spark takes to read the rows and hand them to Python",
            "rows come to Python in batches of up to 65,536, as in sessions that Weir starts",
            copier.times.describe(),
            describe(),
        ),
        (Case("spark-append", f"write of {rows:,} rows", measured, targets, rows_per_call=rows),),
    )


@dataclass(slots=True)
class _Copier:
    """Copies rows from Parquet files to new tables."""

    directory: Path
    spark: SparkSession
    rows: int
    calls: int
    times: ProcessorTimes = field(default_factory=ProcessorTimes)
    _numbers: Iterator[int] = field(default_factory=count)

    def __post_init__(self) -> None:
        self.source.mkdir()
        for number, ids in enumerate(np.array_split(np.random.default_rng(3).permutation(self.rows), _FILES)):
            pq.write_table(events(ids, 0), self.source / f"{number}.parquet")

    @property
    def source(self) -> Path:
        """The files."""
        return self.directory / "to-copy"

    @contextmanager
    def session(self, name: str, write: _Write) -> Iterator[Callable[[], None]]:
        """Yield the call that copies all rows."""
        places = [self.directory / f"copy-{next(self._numbers)}" for _ in range(self.calls)]
        if name in _KEPT_BY_WEIR:
            for place in places:
                if name == _APPENDED:
                    weir.create(place, SCHEMA, primary_key=None, fsync=False)
                else:
                    rule = weir.bucket(KEY, _SHARDS)
                    weir.create(place, SCHEMA, primary_key=KEY, shard_by=rule, fsync=False)
        frame = self.spark.read.schema(SPARK_SCHEMA).parquet(str(self.source))
        written: list[Path] = []

        def copy() -> None:
            written.append(places[len(written)])
            write(frame, written[-1])

        with self.times.metered(name, copy, warm_up=self.calls - _CALLS) as call:
            yield call
        for place in written if name != _DROPPED else ():
            found = (
                weir.open(place).scan().count()
                if name in _KEPT_BY_WEIR
                else sum(pq.read_metadata(file).num_rows for file in place.glob("*.parquet"))
            )
            if found != self.rows:
                raise WrongAnswerError(f"{name} left {found:,} rows, not {self.rows:,}")


def _to_weir(frame: DataFrame, place: Path, *, fsync: bool, clustered: bool = False) -> None:
    rows = cluster_by_shard(frame, weir.open(place)) if clustered else frame
    rows.write.format("weir").mode("append").option("fsync", str(fsync).lower()).save(str(place))


def _to_parquet(frame: DataFrame, place: Path) -> None:
    frame.write.parquet(str(place))


def _to_nothing(frame: DataFrame, place: Path) -> None:
    frame.write.format(DROPPING).mode("append").save(str(place))
