"""Streams whose driver dies: in every place of a commit, and altogether."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import cloudpickle
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType
from tests.spark.sink_kit import contents, create, lines, marks, run, stream

import weir
from weir.engine import failpoint
from weir.maintenance.verification.finding import Severity
from weir.spark import stream_writer
from weir.spark.data_source import WeirDataSource
from weir.spark.kept_writers import KeptWriters

POINTS = [
    "sink.after_task",
    "sink.before_commit",
    "wal.after_append@2",
    "new wal.after_append@5",
    "sink.before_close",
    "sink.after_commit",
]
STAGED_POINTS = ["publish.before_manifest@2", "publish.after_manifest@2", "wal.before_append@2"]
"""Those where Spark's part changes; the others are those of the engine, and tested there.

Micro-batches find the writer of the one before, but where a process is new: there the first entries are the
fences of three shards.
"""

STAGED_FROM = 50_000
"""Bytes of rows from which a task stages them."""


class Dying(WeirDataSource):
    """The format "weir", whose processes die at a failpoint of the batch with the file's number."""

    @classmethod
    def name(cls) -> str:
        return "dying"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # type: ignore[override]  # noqa: N802
        point = self.options.pop("point")
        return DyingWriter(point, super().streamWriter(schema, overwrite))


class DyingWriter(DataSourceStreamArrowWriter):
    def __init__(self, point: str, writer: DataSourceStreamArrowWriter) -> None:
        self._point = point
        self._writer = writer

    def _arm(self) -> None:
        name, _, at = self._point.removeprefix("new ").partition("@")
        failpoint.arm(name, f"kill@{at or 1}")

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        if self._point == "sink.after_task":
            self._arm()
        most, stream_writer._MAX_INLINE_BYTES = stream_writer._MAX_INLINE_BYTES, STAGED_FROM
        try:
            return self._writer.write(iterator)
        finally:
            stream_writer._MAX_INLINE_BYTES = most

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        if self._point.startswith("new "):
            stream_writer.process_writers = KeptWriters()  # type: ignore[attr-defined]
        self._arm()
        self._writer.commit(messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        self._writer.abort(messages, batchId)


@pytest.fixture
def dying(spark: SparkSession) -> Iterator[SparkSession]:
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
    spark.dataSource.register(Dying)
    yield spark
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]


@pytest.mark.parametrize(("points", "length"), [(POINTS, 1), (STAGED_POINTS, 10_000)])
def test_a_commit_that_dies_anywhere_is_made_once(
    dying: SparkSession, tmp_path: Path, points: list[str], length: int
) -> None:
    table = create(tmp_path)
    inbox, checkpoint = tmp_path / "inbox", tmp_path / "checkpoint"
    model: dict[int, str | None] = {}
    for number, point in enumerate(points):
        value = str(number) * length
        keys = range(number, number + 40)
        lines(inbox, number, *(f"{n},{value}," for n in keys), f"{number},,delete")
        model |= dict.fromkeys(keys, value)
        del model[number]
        with pytest.raises(StreamingQueryException):
            run(stream(dying, inbox, table, checkpoint, format="dying", point=point))
        run(stream(dying, inbox, table, checkpoint, format="dying", point="nowhere"))
        assert contents(table) == model, point
    assert set(marks(table).values()) <= {1}
    assert bool(sum(shard.unmerged_generations for shard in table.status().shards)) == (length > 1)
    assert not [one for one in table.maintenance.verify().findings if one.severity is Severity.ERROR]


DRIVER = """
import sys
from pathlib import Path
from pyspark.sql import SparkSession
import weir, weir.spark
from tests.spark.sink_kit import stream
home = Path(sys.argv[1])
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
weir.spark.register(spark)
query = stream(spark, home / "inbox", weir.open(home / "table"), home / "checkpoint", in_order=True)
query.awaitTermination()
print("finished", flush=True)
"""


@pytest.mark.long
def test_a_driver_that_is_killed_in_mid_stream_goes_on(tmp_path: Path) -> None:
    table = create(tmp_path)
    batches = 12
    model: dict[int, str | None] = {}
    for number in range(batches):
        keys = range(number * 3, number * 3 + 50)
        lines(tmp_path / "inbox", number, *(f"{n},{number}," for n in keys))
        model |= dict.fromkeys(keys, str(number))
    chance = random.Random(11)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYSPARK_PYTHON": sys.executable}
    kills = 0
    while True:
        driver = subprocess.Popen(
            [sys.executable, "-c", DRIVER, str(tmp_path)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        assert driver.stdout is not None
        before, begun = len(marks(table)), time.monotonic()
        while kills < 2 and driver.poll() is None and len(marks(table)) <= before + chance.randint(1, 6):
            assert time.monotonic() < begun + 200
            time.sleep(0.02)
        if driver.poll() is None and kills < 2:
            # Java, and the Python processes that it has started.
            os.killpg(driver.pid, signal.SIGKILL)
            kills += 1
        said, _ = driver.communicate(timeout=200)
        if said == b"finished\n":
            break
        assert driver.returncode == -signal.SIGKILL
    assert kills
    assert contents(weir.open(table.uri)) == model
    found = marks(table)
    assert set(found.values()) == {1}
    # The first micro-batch after a kill may take the files of two: no number is left away all the same.
    numbers = {source.sequence for _, source in found}
    assert batches - kills <= len(numbers) <= batches
    assert numbers == set(range(len(numbers)))
