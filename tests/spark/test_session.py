from __future__ import annotations

import os
import subprocess
import sys

import pytest
from pyspark.sql import SparkSession

SOCKETS = """
import os
from weir.spark import SparkRunner
from weir.spark.session import start_session

def how(number):
    return os.environ.get("PYTHON_UNIX_DOMAIN_ENABLED", "false").lower()

for settings in ({}, {"spark.python.unix.domain.socket.enabled": "false"}):
    spark = start_session("local[1]", "test", {"spark.ui.enabled": "false", **settings})
    print(*SparkRunner(spark).run(how, [0]))
    spark.stop()
"""

BATCHES = """
import pyarrow as pa
from weir.spark.session import start_session

def sizes(batches):
    for batch in batches:
        yield pa.record_batch([[batch.num_rows], [batch.nbytes]], names=["rows", "bytes"])

spark = start_session("local[1]", "test", {"spark.ui.enabled": "false"})
for text in ("''", "repeat('x', 1000)"):
    rows = spark.range(0, 70_000, 1, 1).selectExpr("id", f"{text} AS text")
    found = rows.mapInArrow(sizes, "rows LONG, bytes LONG").collect()
    print(max(one["rows"] for one in found), max(one["bytes"] for one in found) <= 8 * 1024**2)
spark.stop()
"""

SET_UP = """
import sys
from weir.spark.session import start_session

spark = start_session("local[1]", "test", {"spark.ui.enabled": "false"})
print(spark.conf.get(sys.argv[1]), spark.conf.get("spark.sql.execution.arrow.maxBytesPerBatch"))
spark.conf.set(sys.argv[1], "77")
print(start_session("local[1]", "test").conf.get(sys.argv[1]))
spark.stop()
"""


@pytest.mark.everywhere
def test_the_session_works(spark: SparkSession) -> None:
    assert spark.range(10).count() == 10


def test_workers_of_a_session_on_this_machine_use_sockets_without_delays_unless_told_otherwise() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SOCKETS], capture_output=True, text=True, check=False, timeout=200
    )
    assert done.stdout.split() == ["true", "false"], done.stderr


def test_the_size_of_batches_that_spark_is_set_up_with_stays() -> None:
    setting = "spark.sql.execution.arrow.maxRecordsPerBatch"
    done = subprocess.run(
        [sys.executable, "-c", SET_UP, setting],
        env={**os.environ, "PYSPARK_SUBMIT_ARGS": f"--conf {setting}=123 pyspark-shell"},
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    # Neither are those of a session that is there already changed.
    assert done.stdout.split() == ["123", "8m", "77"], done.stderr


def test_a_session_of_our_own_hands_rows_to_python_in_large_batches_but_not_too_large_ones() -> None:
    done = subprocess.run(
        [sys.executable, "-c", BATCHES], capture_output=True, text=True, check=False, timeout=200
    )
    narrow, wide = (line.split() for line in done.stdout.splitlines())
    assert narrow == ["65536", "True"], done.stderr
    assert int(wide[0]) < 10_000
    assert wide[1] == "True"
