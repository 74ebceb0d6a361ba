"""One large merge of a table with vectors: by the library, in this process, and by one worker and by two.

Every merge begins with the same table, copied by hard links: a base, and the unmerged generations of eight
shards, half of whose keys are in the base.
"""

from __future__ import annotations

import os
import shlex
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa

import weir
from benchmarks.context import Context, Result
from benchmarks.harness import Case, Measurement, Sense, Target
from benchmarks.layered_table import WrongAnswerError
from weir.engine.runner import Runner, ThreadRunner
from weir.spark import SparkRunner
from weir.spark.session import start_session

__all__ = ["run"]

_LIBRARY, _DIVIDED = "merge_insert", "in-process"
_WORKERS = {1: "one worker", 2: "two workers"}
_TURNS = (1, 2, 2, 1)
"""The workers of each session: in this order a machine that gets slower with time favours nobody."""
_FACTOR = 1.5
_SHARDS = 8
_BASE_ROWS_PER_ROW = 5
_DIMENSION = 32
_DELETED_SHARE = 20
"""Two of so many keys are deletes: one that the base table has, and one that it lacks."""
_CHUNK_ROWS = 250_000
_MASTER = "local-cluster[{workers},1,2048]"
_WARM_UP_JOBS = 20
"""For every merge that is not timed. Until Java has compiled what Spark runs, its compilers take nearly as
much processor time as a merge: one worker leaves a processor to them, two do not.
"""

_SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("value", pa.int64()),
        ("vector", pa.list_(pa.float32(), _DIMENSION)),
    ]
)


def run(context: Context) -> Result:
    """Measure sessions one after the other: Spark cannot change the workers of one."""
    rows = context.scale.spark.bulk_rows
    bench = _Bench(context, rows)
    bench.make()
    for _ in range(context.scale.spark.rounds):
        for name, divided in ((_LIBRARY, False), (_DIVIDED, True)):
            bench.merge(name, ThreadRunner(), divided=divided)
    for workers in _TURNS:
        name = _WORKERS[workers]
        with _session(context.directory, workers, _WARM_UP_JOBS * context.scale.spark.warm_up) as runner:
            for _ in range(context.scale.spark.warm_up):
                bench.merge(f"{name}, warming up", runner, divided=True, is_timed=False)
            for _ in range(context.scale.spark.merges):
                bench.merge(name, runner, divided=True)
    taken = tuple(Measurement(name, tuple((one,) for one in found)) for name, found in bench.taken.items())
    return Result(
        "spark-merge",
        f"merge of {rows:,} rows of {_SHARDS} shards into {rows * _BASE_ROWS_PER_ROW:,}",
        (
            f"vectors of {_DIMENSION} float32; without fsync; half of the merged keys are in the base table, "
            "one in ten is a delete",
            "merge_insert: the library's, one commit after the other; in-process: divided into tasks for two "
            f"threads; workers: {_MASTER.format(workers='N')}, whose executors have one core each",
            "the merge with everything that belongs to it: extending the key index, publishing the shards",
            f"sessions of {', '.join(map(str, _TURNS))} workers, one after the other",
            f"before their merges, {_WARM_UP_JOBS * context.scale.spark.warm_up} jobs of empty tasks, as "
            "many for each executor, and merges that are not timed: Java compiles what it runs",
            f"load {os.getloadavg()[0]:.1f} at the end",
        ),
        (
            Case(
                "spark-merge",
                f"merge of {rows:,} rows",
                taken,
                (
                    Target(_DIVIDED, Sense.FASTER, _FACTOR, (_LIBRARY,)),
                    Target(_WORKERS[2], Sense.FASTER, _FACTOR, (_WORKERS[1],)),
                ),
                rows_per_call=rows,
            ),
        ),
    )


@dataclass(slots=True)
class _Bench:
    """The table that every merge begins with, and what merges took."""

    context: Context
    rows: int
    upserted: int = 0
    taken: dict[str, list[float]] = field(default_factory=dict)

    @property
    def source(self) -> Path:
        """The table."""
        return self.context.directory / "to-merge"

    def make(self) -> None:
        """Write the table: the even keys, and generations of half as many even ones as odd ones."""
        base_rows = self.rows * _BASE_ROWS_PER_ROW
        self.context.say(f"spark-merge: writing {base_rows:,} rows")
        lance.write_dataset(_batches(base_rows), self.source, schema=_SCHEMA)
        table = weir.adopt(self.source, primary_key="id", shard_by=weir.bucket("id", _SHARDS), fsync=False)
        ids = np.random.default_rng(7).choice(2 * base_rows, size=self.rows, replace=False)
        with table.writer() as writer:
            for first in range(0, self.rows, _CHUNK_ROWS):
                chunk = ids[first : first + _CHUNK_ROWS]
                writer.upsert(_rows(chunk[chunk % _DELETED_SHARE > 1], 1))
                writer.delete(pa.table({"id": chunk[chunk % _DELETED_SHARE <= 1]}))
            self.upserted = int(np.count_nonzero(ids % _DELETED_SHARE > 1))

    def merge(self, name: str, runner: Runner, *, divided: bool, is_timed: bool = True) -> None:
        """Merge a copy of the table, and check what is in it."""
        self.context.say(f"spark-merge: {name}")
        copy = self.source.with_name("merged")
        shutil.copytree(self.source, copy, copy_function=os.link)
        os.sync()
        with weir.Engine() as engine:
            table = engine.open(copy, fsync=False)
            began = time.perf_counter()
            report = table.maintenance.merge(runner=runner, divided=divided)
            took = time.perf_counter() - began
        if is_timed:
            self.taken.setdefault(name, []).append(took)
        there = lance.dataset(str(copy)).count_rows(filter="value > id")
        shutil.rmtree(copy)
        if (report.rows_upserted, there) != (self.upserted, self.upserted):
            raise WrongAnswerError(f"{name} merged {report}, and {there:,} rows are new")


@contextmanager
def _session(directory: Path, workers: int, jobs: int) -> Iterator[Runner]:
    """Yield a runner on executors whose Python workers have started, and which have run some jobs."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": str(directory / "spark"),
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
    }
    given = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    os.environ["PYSPARK_SUBMIT_ARGS"] = shlex.join([*given, "pyspark-shell"])

    def load_merges(number: int) -> int:
        """Have an executor load what merges need; being local, it is sent with its code."""
        import weir.merge.waves  # noqa: F401

        return number

    spark = start_session(_MASTER.format(workers=workers), "weir benchmarks", settings)
    try:
        runner = SparkRunner(spark).in_one_go()
        for _ in range(3 + jobs):
            list(runner.run(load_merges, range(_SHARDS * workers)))
        yield runner
    finally:
        spark.stop()


def _batches(rows: int) -> Iterator[pa.RecordBatch]:
    for first in range(0, rows, _CHUNK_ROWS):
        yield from _rows(2 * np.arange(first, min(first + _CHUNK_ROWS, rows)), 0).to_batches()


def _rows(ids: np.ndarray[tuple[int], np.dtype[np.int64]], generation: int) -> pa.Table:
    values = np.random.default_rng(int(ids[0])).random((len(ids), _DIMENSION), dtype=np.float32)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), _DIMENSION)
    return pa.table([pa.array(ids), pa.array(ids + generation), vectors], schema=_SCHEMA)
