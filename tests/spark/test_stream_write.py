from __future__ import annotations

from pathlib import Path
from uuid import UUID

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from tests.spark.sink_kit import contents, create, lines, marks, run, save, stream

import weir
from weir.format.source import Source


@pytest.mark.everywhere
def test_every_batch_of_a_stream_is_one_entry_of_each_shard(spark: SparkSession, tmp_path: Path) -> None:
    table = create(tmp_path)
    inbox = tmp_path / "inbox"
    model: dict[int, str | None] = {}
    for number in range(4):
        lines(
            inbox,
            number,
            *(f"{n},{number}," for n in range(number * 10, number * 10 + 40)),
            f"{number},,delete",
        )
        model |= {n: str(number) for n in range(number * 10, number * 10 + 40)}
        model.pop(number, None)
    query = stream(spark, inbox, table, tmp_path / "checkpoint")
    run(query)
    assert contents(table) == model
    found = marks(table)
    assert set(found.values()) == {1}
    assert {source for _, source in found} == {Source(f"spark/{query.id}", n) for n in range(4)}
    # One process commits them all, and claims each shard once.
    assert {(shard.lease, shard.epoch) for shard in table.status().shards} == {("released", 1)}
    # Another run of the same query goes on where it was.
    lines(inbox, 4, "0,again,")
    again = stream(spark, inbox, table, tmp_path / "checkpoint")
    run(again)
    assert UUID(str(again.id)) == UUID(str(query.id))
    assert contents(table) == model | {0: "again"}


def test_a_checkpoint_of_another_table_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    one, other = create(tmp_path / "one"), create(tmp_path / "other")
    inbox = tmp_path / "inbox"
    lines(inbox, 0, "1,a,")
    run(stream(spark, inbox, one, tmp_path / "checkpoint"))
    lines(inbox, 1, "2,b,")
    with pytest.raises(StreamingQueryException, match="its checkpoint belongs to another table"):
        run(stream(spark, inbox, other, tmp_path / "checkpoint"))
    assert not other.status().shards
    run(stream(spark, inbox, one, tmp_path / "checkpoint"))
    assert contents(one) == {1: "a", 2: "b"}


def test_bad_rows_stop_a_stream_and_write_nothing(spark: SparkSession, tmp_path: Path) -> None:
    table = create(tmp_path)
    inbox = tmp_path / "inbox"
    lines(inbox, 0, "1,a,", ",no key,")
    with pytest.raises(StreamingQueryException, match="primary-key column 'id' is null"):
        run(stream(spark, inbox, table, tmp_path / "checkpoint"))
    assert not table.status().shards


def test_for_each_batch_with_a_mark(spark: SparkSession, tmp_path: Path) -> None:
    table = create(tmp_path)
    inbox = tmp_path / "inbox"
    for number in range(2):
        lines(inbox, number, f"{number},a,", "7,b,")

    def write(batch: DataFrame, batch_id: int) -> None:
        for _ in range(2):  # as after a crash
            save(batch, table, source="orders", sequence=batch_id)

    source = spark.readStream.schema("id long, value string, _op string").option("maxFilesPerTrigger", 1)
    query = (
        source.csv(str(inbox))
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    run(query)
    assert contents(table) == {0: "a", 1: "a", 7: "b"}
    assert {source for _, source in marks(table)} == {Source("orders", 0), Source("orders", 1)}
    assert set(marks(table).values()) == {1}


def test_other_writers_and_services_take_turns_with_a_stream(spark: SparkSession, tmp_path: Path) -> None:
    table = create(tmp_path)
    inbox = tmp_path / "inbox"
    model: dict[int, str | None] = {}
    for number in range(3):
        lines(inbox, number, *(f"{n},{number}," for n in range(20)))
        run(stream(spark, inbox, table, tmp_path / "checkpoint", max_memtable_entries=3))
        with weir.open(table.uri).writer() as writer:
            writer.upsert([{"id": number, "value": "by hand"}])
        model |= {n: str(number) for n in range(20)} | {number: "by hand"}
        table.maintenance.merge()
    assert contents(table) == model
    assert not table.maintenance.verify().findings
