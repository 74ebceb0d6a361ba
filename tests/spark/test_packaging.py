"""What is published writes on Spark, away from the checkout."""

from __future__ import annotations

import os
import sysconfig
from pathlib import Path

import pytest
from tests.test_packaging import BUILD, ROOT, run

pytestmark = pytest.mark.spark

_WRITE = """
from pyspark.sql import SparkSession

import weir
import weir.spark

builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = builder.config("spark.driver.host", "127.0.0.1").config("spark.log.level", "ERROR").getOrCreate()
weir.spark.register(spark)
table = weir.create("flights", [{"id": 1, "delay": 12}], primary_key="id")
rows = spark.createDataFrame([(2, 75)], "id BIGINT, delay BIGINT")
rows.write.format("weir").mode("append").save(table.uri)
print(sorted(table.scan(["id", "delay"]).to_pylist(), key=lambda row: row["id"]))
print(weir.__file__)
spark.stop()
"""


@pytest.mark.long
@pytest.mark.timeout(900)
def test_what_is_published_writes_on_spark(tmp_path: Path) -> None:
    site = sysconfig.get_path("purelib")
    built, installed, elsewhere = tmp_path / "built", tmp_path / "installed", tmp_path / "elsewhere"
    built.mkdir()
    elsewhere.mkdir()
    name = run("-c", BUILD, "build_wheel", built, cwd=ROOT, path=site).split()[-1]
    run(
        *("-m", "pip", "install", "-q", "--no-deps", "--no-index", "--disable-pip-version-check"),
        *("--target", installed, built / name),
        cwd=tmp_path,
        path=site,
    )
    path = os.pathsep.join([str(installed), site])
    *shown, place = run("-c", _WRITE, cwd=elsewhere, path=path).splitlines()
    assert shown == ["[{'id': 1, 'delay': 12}, {'id': 2, 'delay': 75}]"]
    assert Path(place).is_relative_to(installed)
