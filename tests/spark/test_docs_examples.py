"""The examples of docs/spark.md, run as they stand, in the session of the tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from tests.test_docs import ON_SPARK, ROOT, programs, run_page

__all__ = ["programs"]


@pytest.mark.timeout(900)
@pytest.mark.usefixtures("spark")
def test_the_examples_of_the_page_run(
    tmp_path: Path, programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "page"
    directory.mkdir()
    monkeypatch.chdir(directory)
    run_page(ROOT / ON_SPARK, programs)


def test_the_session_of_the_examples_is_that_of_the_tests(spark: SparkSession) -> None:
    assert SparkSession.builder.getOrCreate() is spark
