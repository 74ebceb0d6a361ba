from __future__ import annotations

import gc
import pickle
from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from weir.spark.python_worker import keep_imports, keep_imports_of
from weir.spark.runner import _answer, _pickled


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


def test_what_tasks_of_a_kind_import_is_kept_once(monkeypatch: pytest.MonkeyPatch) -> None:
    frozen: list[None] = []
    monkeypatch.setattr(gc, "freeze", lambda: frozen.append(None))
    monkeypatch.setenv("SPARK_REUSE_WORKER", "1")
    keep_imports_of.cache_clear()
    answers = [pickle.loads(_answer(_pickled((abs, number)))) for number in (-1, -2)]
    answers.append(pickle.loads(_answer(_pickled((len, "abc")))))
    keep_imports_of.cache_clear()
    assert answers == [1, 2, 3]
    assert len(frozen) == 2
