"""Columns that change beside Spark: batches that add them, streams that write and read meanwhile."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from tests.spark.sink_kit import create, frame, lines, run, save, stream

import weir


def _rows(table: weir.Table) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = weir.open(table.uri).scan().to_table().sort_by("id").to_pylist()
    return rows


@pytest.mark.everywhere
def test_a_batch_adds_the_columns_it_has(spark: SparkSession, tmp_path: Path) -> None:
    table = create(tmp_path)
    save(frame(spark, [(1, "a")], "id long, value string"), table)
    data = frame(spark, [(2, 2.5, None), (3, 0.5, "delete")], "id long, size double, _op string")
    with pytest.raises(Exception, match="no column 'size'"):
        save(data, table)
    assert table.internals.follow().names == ["id", "value"]
    save(data, table, mergeSchema=True)
    assert _rows(table) == [
        {"id": 1, "value": "a", "size": None},
        {"id": 2, "value": None, "size": 2.5},
    ]
    version = weir.open(table.uri).status().base_version
    # What cannot be the table's adds nothing.
    wrong = frame(spark, [("x", 1)], "value string, other int")
    with pytest.raises(Exception, match="primary-key column 'id' is missing"):
        save(wrong, table, mergeSchema=True)
    with pytest.raises(Exception, match="'other', and nothing says of which type"):
        save(spark.sql("SELECT 1L AS id, NULL AS other"), table, mergeSchema=True)
    assert weir.open(table.uri).status().base_version == version
    # Columns that are there are not added once more.
    save(frame(spark, [(4, "d")], "id long, value string"), table, mergeSchema=True)
    assert weir.open(table.uri).schema.names == ["id", "value", "size"]


def test_batches_that_add_the_same_column_at_once(spark: SparkSession, tmp_path: Path) -> None:
    table = create(tmp_path)
    errors: list[Exception] = []

    def write(number: int) -> None:
        columns = f"id long, size double, own{number} int"
        try:
            save(frame(spark, [(number, number / 2, number)], columns), table, mergeSchema=True)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    rows = _rows(table)
    assert [(row["id"], row["size"], row[f"own{row['id']}"]) for row in rows] == [
        (number, number / 2, number) for number in range(3)
    ]
    assert sorted(rows[0]) == ["id", "own0", "own1", "own2", "size", "value"]


def test_a_stream_writes_on_while_columns_change(spark: SparkSession, tmp_path: Path) -> None:
    """As long as the columns that the query names are there; each micro-batch looks."""
    schema = pa.schema(
        [pa.field("id", pa.int64(), nullable=False), ("value", pa.string()), ("n", pa.int32())]
    )
    table = create(tmp_path, schema=schema)
    inbox = tmp_path / "inbox"
    lines(inbox, 0, "1,a,")
    source = spark.readStream.schema("id long, value string, _op string").csv(str(inbox))
    query = (
        source.writeStream.format("weir")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(processingTime="100 milliseconds")
        .start(table.uri)
    )
    try:
        _wait(lambda: len(_rows(table)) == 1)
        epochs = {shard.epoch for shard in table.status().shards}
        table.alter(widen={"n": pa.int64()}, add=[pa.field("gate", pa.string())])
        table.alter(rename={"n": "number"})
        lines(inbox, 1, "2,b,", "3,c,")
        _wait(lambda: len(_rows(table)) == 3)
        assert [row["value"] for row in _rows(table)] == ["a", "b", "c"]
        assert {shard.epoch for shard in table.status().shards} == epochs == {1}
        table.alter(drop=["value"])
        lines(inbox, 2, "4,d,")
        with pytest.raises(StreamingQueryException, match="no column 'value'"):
            query.awaitTermination(120)
    finally:
        query.stop()
    assert [row["id"] for row in _rows(table)] == [1, 2, 3]


def test_a_stream_of_changes_ends_or_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    table = create(tmp_path)
    with table.writer() as writer:
        writer.upsert([{"id": 1, "value": "a"}])

    def read(name: str, **options: str) -> Any:
        reader = spark.readStream.format("weir").option("readChangeFeed", "true").options(**options)
        return (
            reader.load(table.uri)
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / name / "checkpoint"))
            .trigger(processingTime="100 milliseconds")
            .start(str(tmp_path / name / "rows"))
        )

    def found(name: str) -> list[tuple[int, str | None]]:
        path = tmp_path / name / "rows"
        # A file is there before the batch that it is of is committed.
        if not list(path.glob("_spark_metadata/[0-9]*")):
            return []
        rows = spark.read.parquet(str(path)).collect()
        return sorted((row["id"], row[1]) for row in rows)

    ends = read("ends", startingFrom="earliest")
    keeps = read("keeps", startingFrom="earliest", schemaChange="keep")
    narrow = read("narrow", startingFrom="earliest", columns="id, value")
    try:
        for name in ("ends", "keeps", "narrow"):
            _wait(lambda name=name: found(name) == [(1, "a")])
        table.alter(add=[pa.field("n", pa.int32())])
        with table.writer() as writer:
            writer.upsert([{"id": 2, "value": "b", "n": 7}])
        with pytest.raises(StreamingQueryException, match="altered since the stream began: n"):
            ends.awaitTermination(120)
        table.alter(rename={"value": "n", "n": "value"})
        with table.writer() as writer:
            writer.upsert([{"id": 3, "n": "c", "value": 8}])
        _wait(lambda: found("keeps") == [(1, "a"), (2, "b"), (3, "c")])
        with pytest.raises(StreamingQueryException, match="altered since the stream began: value"):
            narrow.awaitTermination(120)
    finally:
        for query in (ends, keeps, narrow):
            query.stop()
    with pytest.raises(Exception, match="schemaChange is 'fail' or 'keep'"):
        read("wrong", schemaChange="perhaps").awaitTermination(120)


def test_a_query_goes_on_after_its_columns_were_renamed(spark: SparkSession, tmp_path: Path) -> None:
    table = create(tmp_path)
    lines(tmp_path / "inbox", 0, "1,a,")
    run(stream(spark, tmp_path / "inbox", table, tmp_path / "checkpoint"))
    table.alter(rename={"value": "old"})
    lines(tmp_path / "inbox", 1, "2,b,")
    run(stream(spark, tmp_path / "inbox", table, tmp_path / "checkpoint", mergeSchema=True))
    assert _rows(table) == [{"id": 1, "old": "a", "value": None}, {"id": 2, "old": None, "value": "b"}]


def _wait(until: Any) -> None:
    deadline = time.monotonic() + 120
    while not until():
        assert time.monotonic() < deadline
        time.sleep(0.1)
