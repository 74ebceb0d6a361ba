"""Streams whose checkpoint is lost: a new query, which knows nothing of what the one before has done."""

from __future__ import annotations

import shutil
from pathlib import Path

from pyspark.sql import SparkSession
from tests.spark.sink_kit import contents, create, lines, run, stream

import weir


def test_a_sink_is_written_from_the_beginning_of_the_source(spark: SparkSession, tmp_path: Path) -> None:
    keyed = create(tmp_path)
    added = weir.create(tmp_path / "added", keyed.schema, primary_key="id", dedup=False, fsync=False)
    inbox = tmp_path / "inbox"
    lines(inbox, 0, "1,a,", "2,b,")
    lines(inbox, 1, "1,c,", "3,d,")
    for table in (keyed, added):
        checkpoint = tmp_path / f"checkpoint-{Path(table.uri).name}"
        run(stream(spark, inbox, table, checkpoint, in_order=True))
        shutil.rmtree(checkpoint)
        run(stream(spark, inbox, table, checkpoint, in_order=True))
    # The later row of a key comes later again.
    assert contents(keyed) == {1: "c", 2: "b", 3: "d"}
    assert sorted(weir.open(added.uri).scan(["id"]).to_table().column("id").to_pylist()) == sorted(
        [1, 2, 1, 3] * 2
    )
    for table in (keyed, added):
        assert table.maintenance.verify().passed


def test_a_source_goes_on_from_the_place_of_its_consumer(spark: SparkSession, tmp_path: Path) -> None:
    table = create(tmp_path, shards=1)
    checkpoint, place = tmp_path / "checkpoint", tmp_path / "rows"

    def follow() -> list[int]:
        """Read one log entry each micro-batch; return the keys."""
        changes = spark.readStream.format("weir").options(
            readChangeFeed="true", startingFrom="earliest", consumer="copy", maxRowsPerTrigger=1
        )
        query = (
            changes.load(table.uri)
            .writeStream.format("parquet")
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start(str(place))
        )
        assert query.awaitTermination(300)
        return sorted(row["id"] for row in spark.read.parquet(str(place)).collect())

    for number in range(3):
        table.upsert([{"id": number, "value": "a"}])
    assert follow() == [0, 1, 2]
    shutil.rmtree(checkpoint)
    shutil.rmtree(place)
    table.upsert([{"id": 3, "value": "a"}])
    # A micro-batch is acknowledged when the next one begins: the last one comes again, and none is missing.
    assert follow() == [2, 3]
