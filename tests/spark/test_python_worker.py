from __future__ import annotations

import gc
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from weir.spark.python_worker import keep_imports


@pytest.mark.everywhere
def test_workers_of_spark_do_not_collect_what_is_imported(spark: SparkSession) -> None:
    def counted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import weir.spark.data_source  # noqa: F401

        for _ in batches:
            yield pa.record_batch({"frozen": [gc.get_freeze_count()], "left": [len(gc.get_objects())]})

    (found,) = spark.range(1).coalesce(1).mapInArrow(counted, "frozen long, left long").collect()
    assert found["frozen"] > 50_000
    assert found["left"] < found["frozen"] / 5


def test_a_program_decides_on_its_own_garbage(monkeypatch: pytest.MonkeyPatch) -> None:
    frozen = gc.get_freeze_count()
    monkeypatch.delenv("SPARK_REUSE_WORKER", raising=False)
    keep_imports()
    assert gc.get_freeze_count() == frozen
