"""Tasks that Spark runs twice at once, as it does where it takes one for slow: their rows count once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from tests.spark.standalone_cluster import standalone_cluster

import weir
from weir.demo.patience import load

pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]

ROWS = 2_000

DRIVER = """
import sys, time
from pathlib import Path
from pyspark import TaskContext
from pyspark.sql import SparkSession
import weir, weir.spark

master, home, ROWS = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
settings = {
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.multiplier": "1.01",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "50ms",
    "spark.executor.memory": "512m",
    "spark.cores.max": "2",
    "spark.default.parallelism": "2",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.local.dir": str(home / "local"),
    "spark.sql.warehouse.dir": str(home / "warehouse"),
}
builder = SparkSession.builder.master(master)
for name, value in settings.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
weir.spark.register(spark)

def slow(of):
    def task(batches):
        context = TaskContext.get()
        place = home / of
        (place / f"{context.partitionId()}-{context.attemptNumber()}").touch()
        yield from batches
        # The first attempt ends when the second one does.
        if context.partitionId() == 0:
            (place / f"read-{context.attemptNumber()}").touch()
            until = time.monotonic() + 120
            while len(list(place.glob("read-*"))) < 2 and time.monotonic() < until:
                time.sleep(0.001)
    return task

def rows(data, of):
    (home / of).mkdir()
    return data.mapInArrow(slow(of), data.schema)

numbers = spark.range(0, ROWS, 1, 2).selectExpr("id", "'x' AS text")
rows(numbers, "batch").write.format("weir").mode("append").save(str(home / "t"))
for part in (0, 1):
    made = numbers.where(f"id % 2 = {part}").selectExpr(f"id + {ROWS} AS id", "text")
    made.coalesce(1).write.mode("append").parquet(str(home / "landing"))
stream = spark.readStream.schema("id LONG, text STRING").parquet(str(home / "landing"))
query = (
    rows(stream, "stream")
    .writeStream.format("weir").option("checkpointLocation", str(home / "checkpoint"))
    .trigger(availableNow=True).start(str(home / "t"))
)
query.awaitTermination()
"""


def test_the_rows_of_a_task_that_runs_twice_count_once(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int64()), ("text", pa.string())])
    # Where nothing has a key, a row that came twice would be there twice.
    table = weir.create(tmp_path / "t", schema, primary_key=None, fsync=False)
    with standalone_cluster(tmp_path) as master:
        done = subprocess.run(
            [sys.executable, "-c", DRIVER, master, str(tmp_path), str(ROWS)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYSPARK_PYTHON": sys.executable},
            capture_output=True,
            text=True,
            check=False,
            timeout=400 * load(),
        )
    assert done.returncode == 0, done.stderr[-4000:]
    for of in ("batch", "stream"):
        assert {path.name for path in (tmp_path / of).iterdir()} >= {"0-0", "0-1", "1-0", "read-0", "read-1"}
    assert sorted(table.scan(["id"]).to_table().column("id").to_pylist()) == list(range(2 * ROWS))
    table.maintenance.merge()
    assert sorted(table.scan(["id"]).to_table().column("id").to_pylist()) == list(range(2 * ROWS))
    assert table.maintenance.verify().passed
