from __future__ import annotations

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


@pytest.mark.everywhere
def test_the_session_works(spark: SparkSession) -> None:
    assert spark.range(10).count() == 10


def test_workers_of_a_session_on_this_machine_use_sockets_without_delays_unless_told_otherwise() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SOCKETS], capture_output=True, text=True, check=False, timeout=200
    )
    assert done.stdout.split() == ["true", "false"], done.stderr
