"""Histories of the differential suite in which Spark writes, merges and reads: it shows what a dict does."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from tests.conformance.differential.history import history_of, run
from tests.conformance.differential.shapes import Column, Shape
from tests.conformance.differential.world import World

from weir.spark import SparkRunner

STEPS = 10


class SparkWorld(World):
    """A table of which Spark makes, merges and reads the rows, between the steps of all others."""

    def __init__(self, seed: int, directory: Path, spark: SparkSession) -> None:
        self.spark = spark
        super().__init__(seed, directory)

    def weir_upserts(self, chance: random.Random) -> None:
        """Write a batch that lacks some columns, which are null then, and may add one."""
        shape = self.model.shape
        given = [one for one in shape.columns if chance.random() < 0.7]
        added = chance.random() < 0.3
        if added:
            self.model.columns_made += 1
            new = Column(
                self.model.columns_made, self._free_name(chance), chance.choice([pa.int64(), pa.string()])
            )
            shape = Shape(shape.key_types, (*shape.columns, new))
            given.append(new)
        chance.shuffle(given)
        made = self.model.new_rows(self._some(chance), replace(shape, columns=tuple(given)))
        frame = self.spark.createDataFrame(_for_spark(Shape(shape.key_types, tuple(given)).table(made)))
        options = {"takeover": "true", "fsync": "false", "mergeSchema": str(added or chance.random() < 0.5)}
        frame.write.format("weir").mode("append").options(**options).save(str(self.place))
        if added:
            self._altered(shape)
        self._remember({key: {one.id: row.get(one.id) for one in shape.columns} for key, row in made.items()})

    def merge(self, chance: random.Random) -> None:
        self.table.maintenance.merge(runner=SparkRunner(self.spark))

    def merge_divided(self, chance: random.Random) -> None:
        self.table.maintenance.merge(runner=SparkRunner(self.spark), divided=True)

    def compact(self, chance: random.Random) -> None:
        self.table.maintenance.compact(runner=SparkRunner(self.spark))

    def check(self, *, anew: bool, feed: bool, asked: int = 0) -> None:
        super().check(anew=anew, feed=feed, asked=asked)
        if anew:
            found = self.spark.read.format("weir").load(str(self.place)).toArrow()
            self._compare("Spark's scan", found)


def _for_spark(rows: pa.Table) -> pa.Table:
    """Return rows without what Spark has no type for: lists of a fixed size are lists."""
    columns = [
        column.cast(pa.list_(column.type.value_type)) if pa.types.is_fixed_size_list(column.type) else column
        for column in rows.columns
    ]
    return pa.table(columns, names=rows.schema.names)


def _played(seeds: Sequence[int], place: Path, spark: SparkSession) -> None:
    for seed in seeds:
        failure = run(history_of(seed, STEPS), lambda seed: SparkWorld(seed, place / str(seed), spark))
        assert failure is None, f"{failure.history.steps[: failure.at + 1]}: {failure.error!r}"


def test_everybody_shows_the_same(spark: SparkSession, tmp_path: Path) -> None:
    _played([1], tmp_path, spark)


@pytest.mark.long
def test_everybody_shows_the_same_in_more_histories(spark: SparkSession, tmp_path: Path) -> None:
    _played(range(2, 12), tmp_path, spark)
