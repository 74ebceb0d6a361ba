from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from benchmarks.context import Context, Result, Scale
from benchmarks.harness import judge
from benchmarks.spark import appends, reads, streams
from pyspark.sql import SparkSession


@pytest.mark.parametrize("compare", [streams.compare, appends.compare, reads.compare])
def test_a_trial_measures_every_contender_and_checks_its_rows(
    compare: Callable[[Context, SparkSession], Result], spark: SparkSession, tmp_path: Path
) -> None:
    result = compare(Context(tmp_path, Scale.trial(), lambda _: None), spark)
    assert result.cases
    for case in result.cases:
        assert len(case.measurements) > 1
        assert all(one.seconds and min(one.seconds) > 0 for one in case.measurements)
        assert case.targets
        for target in case.targets:
            assert judge(case, target).ratio > 0
