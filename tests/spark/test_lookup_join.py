"""Rows of a data frame with the rows of a table that have their keys."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import weir
from weir.errors import KeyValueError, SchemaError
from weir.spark import lookup_join
from weir.spark.lookup_join import _LookUps
from weir.spark.options import TableLocation
from weir.spark.types import selected, spark_schema

SCHEMA = pa.schema(
    [
        pa.field("place", pa.string(), nullable=False),
        pa.field("part", pa.uint16(), nullable=False),
        pa.field("name", pa.string()),
        pa.field("tags", pa.list_(pa.string())),
    ]
)


@pytest.fixture
def table(tmp_path: Path) -> weir.Table:
    table = weir.create(tmp_path / "parts", SCHEMA, primary_key=["place", "part"], fsync=False)
    with table.writer(flush_on_close=False) as writer:
        writer.upsert([{"place": "a", "part": n, "name": f"a{n}", "tags": ["x"] * n} for n in range(4)])
        writer.flush()
        table.maintenance.merge()
        # Not merged: a newer row, one that is gone, and a new one.
        writer.upsert([{"place": "a", "part": 1, "name": "newer", "tags": None}])
        writer.delete([{"place": "a", "part": 2}])
        writer.upsert([{"place": "b", "part": 1, "name": "b1", "tags": []}])
    return table


EXPECTED: dict[int, tuple[str | None, list[str] | None]] = {
    0: ("a0", []),
    1: ("newer", None),
    2: (None, None),
    3: ("b1", []),
    4: (None, None),
    5: (None, None),
    6: ("newer", None),
}
ROWS = [(0, "a", 0), (1, "a", 1), (2, "a", 2), (3, "b", 1), (4, "c", 1), (5, None, 1), (6, "a", 1)]


def test_what_an_executor_does(table: weir.Table) -> None:
    work = _LookUps(
        TableLocation(table.uri), ("at", "number"), spark_schema(selected(SCHEMA, ["name", "tags"])), True
    )
    schema = pa.schema([("row", pa.int32()), ("at", pa.string()), ("number", pa.int32())])
    columns = [
        pa.array(values, kind) for values, kind in zip(zip(*ROWS, strict=True), schema.types, strict=True)
    ]
    rows = pa.RecordBatch.from_arrays(columns, schema=schema)
    whole, none, two = work(iter([rows, rows.slice(0, 0), rows.slice(4, 2)]))
    assert {one["row"]: (one["name"], one["tags"]) for one in whole.to_pylist()} == EXPECTED
    assert none.schema == whole.schema
    assert (none.num_rows, two.num_rows) == (0, 2)
    below = rows.set_column(2, "number", pa.array([-1] * 7, pa.int32()))
    with pytest.raises(KeyValueError, match="'number' is no key of the table, whose 'part' is uint16"):
        list(work(iter([below])))


@pytest.mark.parametrize(
    ("key", "given"),
    [
        (pa.timestamp("us", "UTC"), pa.timestamp("us")),
        (pa.timestamp("us"), pa.timestamp("us", "Europe/Oslo")),
        (pa.timestamp("us"), pa.int64()),
        (pa.int64(), pa.bool_()),
        (pa.date32(), pa.int32()),
        (pa.string(), pa.float64()),
        (pa.string(), pa.decimal128(20, 1)),
        (pa.timestamp("us", "UTC"), pa.date32()),
        (pa.date32(), pa.timestamp("us", "UTC")),
    ],
)
def test_a_key_of_another_kind_is_refused(tmp_path: Path, key: pa.DataType, given: pa.DataType) -> None:
    schema = pa.schema([pa.field("at", key, nullable=False), ("name", pa.string())])
    table = weir.create(tmp_path / "t", schema, primary_key="at", fsync=False)
    work = _LookUps(TableLocation(table.uri), ("own",), spark_schema(selected(schema, ["name"])), True)
    one = pa.array([1], pa.int32() if given.bit_width == 32 else pa.int64())
    rows = pa.record_batch({"own": one.cast(given)})
    with pytest.raises(KeyValueError, match="column 'own' is"):
        list(work(iter([rows])))


def test_a_batch_and_an_inner_join(spark: SparkSession, table: weir.Table) -> None:
    data = spark.createDataFrame(ROWS, "row INT, at STRING, number INT")
    found = lookup_join(data, table, ["at", "number"]).collect()
    assert {one["row"]: (one["name"], one["tags"]) for one in found} == EXPECTED
    inner = lookup_join(data, table, ["at", "number"], ["name"], how="inner").collect()
    assert sorted((one["row"], one["name"]) for one in inner) == [
        (row, name) for row, (name, _) in EXPECTED.items() if name is not None
    ]


def test_a_stream_sees_what_was_written_last(spark: SparkSession, table: weir.Table, tmp_path: Path) -> None:
    orders = weir.create(
        tmp_path / "orders",
        pa.schema(
            [pa.field("order", pa.int64(), nullable=False), ("place", pa.string()), ("part", pa.int32())]
        ),
        primary_key="order",
        fsync=False,
    )
    with orders.writer() as writer:
        writer.upsert([{"order": row, "place": place, "part": part} for row, place, part in ROWS])
    changes = spark.readStream.format("weir").option("readChangeFeed", "true").load(orders.uri)
    joined = lookup_join(changes.select("order", "place", "part"), table, ["place", "part"], ["name"])
    query = (
        joined.writeStream.format("memory")
        .queryName("looked_up")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    rows = spark.table("looked_up").collect()
    assert {one["order"]: one["name"] for one in rows} == {row: name for row, (name, _) in EXPECTED.items()}


def test_what_does_not_fit_is_refused_by_name(spark: SparkSession, table: weir.Table) -> None:
    data = spark.createDataFrame([(1, "a")], "number INT, name STRING")
    with pytest.raises(KeyValueError, match="'nothing' is missing"):
        lookup_join(data, table, ["nothing", "number"])
    with pytest.raises(KeyValueError, match="place, part, and 1 columns"):
        lookup_join(data, table, "number")
    with pytest.raises(SchemaError, match="both have a column 'name'"):
        lookup_join(data, table, ["name", "number"])
    with pytest.raises(SchemaError, match="nowhere"):
        lookup_join(data, table, ["name", "number"], ["nowhere"])
