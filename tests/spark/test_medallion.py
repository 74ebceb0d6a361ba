"""The chain of examples/medallion: its drivers are killed, and every table is what the files come to."""

from __future__ import annotations

import importlib.util
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from tests.test_docs import ROOT

import weir
from weir.maintenance.verification.finding import Severity
from weir.spark.pipeline import read_pipeline_file

EXAMPLE = ROOT / "examples" / "medallion"
STAGES = ("silver", "gold", "vectors")
KILLS, FILES = 2, 10

DRIVER = """
import os, sys
from pyspark.sql import SparkSession
from weir.spark.pipeline import read_pipeline_file

sys.path.insert(0, os.getcwd())
builder = SparkSession.builder.master("local[2]").config("spark.sql.shuffle.partitions", 2)
for name, value in (("ui.enabled", False), ("driver.host", "127.0.0.1"), ("driver.bindAddress", "127.0.0.1")):
    builder = builder.config(f"spark.{name}", value)
spark = builder.config("spark.sql.warehouse.dir", os.getcwd() + "/warehouse").getOrCreate()
for stage in sys.argv[1:]:
    read_pipeline_file(f"{stage}.toml").pipeline.run(spark)
print("finished", flush=True)
"""


def bronze() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bronze", EXAMPLE / "bronze.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def driver(directory: Path) -> subprocess.Popen[bytes]:
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    with (directory / "driver.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-c", DRIVER, *STAGES],
            cwd=directory,
            env={**os.environ, "PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable},
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )


def micro_batches(directory: Path) -> int:
    return len(list(directory.glob("checkpoints/*/commits/[0-9]*")))


def test_its_files_are_pipelines() -> None:
    described = [read_pipeline_file(EXAMPLE / f"{stage}.toml").pipeline for stage in STAGES]
    assert [one.name for one in described] == list(STAGES)


@pytest.mark.long
@pytest.mark.timeout(2400)
def test_every_table_is_what_the_files_come_to_however_often_it_is_killed(tmp_path: Path) -> None:
    shop, chance = bronze(), random.Random(3)
    directory = tmp_path / "medallion"
    shutil.copytree(EXAMPLE, directory)
    kills = failures = files = 0
    said = b""
    while said != b"finished\n":
        if kills < KILLS:
            for number in range(files, files := files + FILES):
                shop.write_file(directory / "landing", number)
        running = driver(directory)
        begun, enough = time.monotonic(), micro_batches(directory) + chance.randint(1, 3)
        while kills < KILLS and running.poll() is None and micro_batches(directory) < enough:
            assert time.monotonic() < begun + 600, (directory / "driver.log").read_text()[-4000:]
            time.sleep(0.02)
        if kills < KILLS and running.poll() is None:
            # Java, and the Python processes that it has started.
            os.killpg(running.pid, signal.SIGKILL)
            kills += 1
        said, _ = running.communicate(timeout=900)
        # Spark gives a Python process ten seconds to start: on a machine that is at its limit, too few.
        failures += running.returncode not in (0, -signal.SIGKILL)
        assert failures <= 3, (directory / "driver.log").read_text()[-4000:]
    assert kills == KILLS

    orders: dict[int, dict[str, Any]] = {}
    for number in range(files):
        for change in shop.changes(number):
            if change["gone"]:
                orders.pop(change["order"], None)
            else:
                orders[change["order"]] = {name: change[name] for name in ("customer", "category", "cents")}
    assert rows_of(directory, "orders", "order") == orders
    customers: dict[int, dict[str, int]] = {}
    for order in orders.values():
        nothing: dict[str, int] = dict.fromkeys(("orders", *shop.CATEGORIES), 0)
        totals = customers.setdefault(order["customer"], nothing)
        totals["orders"] += 1
        totals[order["category"]] += order["cents"]
    found = rows_of(directory, "customers", "customer")
    assert {key: row for key, row in found.items() if row["orders"]} == customers
    assert not [row for row in found.values() if not row["orders"] and any(row.values())]
    profiles = rows_of(directory, "profiles", "customer")
    assert profiles.keys() == customers.keys()
    for customer, totals in customers.items():
        spent = np.array([totals[name] for name in shop.CATEGORIES], dtype=np.float64)
        np.testing.assert_allclose(profiles[customer]["profile"], spent / np.linalg.norm(spent), rtol=1e-5)


def rows_of(directory: Path, name: str, key: str) -> dict[int, dict[str, Any]]:
    """Return the rows of a table by key, each without it; the table has to be sound."""
    table = weir.open(directory / "tables" / name)
    found = table.scan().to_table().to_pylist()
    assert not [one for one in table.maintenance.verify().findings if one.severity is Severity.ERROR]
    rows = {row.pop(key): row for row in found}
    assert len(rows) == len(found)
    return rows
