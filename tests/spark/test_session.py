from __future__ import annotations

import pytest
from pyspark.sql import SparkSession


@pytest.mark.everywhere
def test_the_session_works(spark: SparkSession) -> None:
    assert spark.range(10).count() == 10
