"""A real Spark for every test here.

``SPARK_MODE`` says which: ``local`` (default) is ``local[2]``; ``cluster`` is
``local-cluster[2,1,1024]``, whose executors are processes of their own; ``connect`` is Spark Connect.
`make test-spark` runs all tests with the first, and those marked ``everywhere`` with the others too.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import weir.spark

MODE = os.environ.get("SPARK_MODE", "local")
MASTERS = {"local": "local[2]", "cluster": "local-cluster[2,1,1024]", "connect": "local[2]"}


# Loopback alone, whatever the name of the machine resolves to.
os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"

# PySpark of pandas 3; Lance of the fork that starts Java; Spark Connect of settings that a server takes
# only when it starts, and of what it leaves open.
EXPECTED_WARNINGS = (
    "ignore:PySpark does not yet fully support pandas:FutureWarning",
    "ignore:lance is not fork-safe:UserWarning",
    "ignore:Exception ignored in. <function __warn_on_fork:pytest.PytestUnraisableExceptionWarning",
    "ignore:Failed to set spark:UserWarning",
    "ignore::ResourceWarning",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here):
            item.add_marker(pytest.mark.spark)
            for warning in EXPECTED_WARNINGS:
                item.add_marker(pytest.mark.filterwarnings(warning))


@pytest.fixture(scope="session")
def spark_mode() -> str:
    return MODE


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Yield a session that knows the format "weir"."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    scratch = tmp_path_factory.mktemp("spark")
    builder = SparkSession.builder.appName("weir tests")
    builder = builder.remote(MASTERS[MODE]) if MODE == "connect" else builder.master(MASTERS[MODE])
    settings = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "4",
        "spark.default.parallelism": "2",
        "spark.driver.memory": "1g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.local.dir": str(scratch / "local"),
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    weir.spark.register(session)
    yield session
    session.stop()
