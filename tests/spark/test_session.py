from __future__ import annotations

import pytest
from pyspark.sql import SparkSession


@pytest.mark.everywhere
def test_the_session_works_and_has_pushdown_on(spark: SparkSession) -> None:
    assert spark.range(10).count() == 10
    assert spark.conf.get("spark.sql.python.filterPushdown.enabled") == "true"
