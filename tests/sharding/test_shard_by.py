from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from typing import Any

import pyarrow as pa
import pytest

from weir.errors import SchemaError, ShardingError
from weir.sharding.shard_by import (
    ShardBy,
    bucket,
    day,
    expression,
    hour,
    identity,
    month,
    multi_bucket,
    truncate,
    unsharded,
    year,
)

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("region", pa.string()),
        ("ts", pa.timestamp("us")),
        ("kind", pa.dictionary(pa.int8(), pa.string())),
        ("tags", pa.list_(pa.string())),
    ]
)
KEY = ("id", "region", "ts", "kind", "tags")


@pytest.mark.parametrize(
    ("shard_by", "text", "result"),
    [
        (identity("region"), "identity(region)", pa.string()),
        (identity("kind"), "identity(kind)", pa.string()),
        (bucket("id", 8), "bucket(id, 8)", pa.int32()),
        (multi_bucket(["id", "region"], 16), "multi_bucket(id, region, 16)", pa.int32()),
        (truncate("region", 3), "truncate(region, 3)", pa.string()),
        (truncate("id", 1000), "truncate(id, 1000)", pa.int64()),
        (year("ts"), "year(ts)", pa.int32()),
        (month("ts"), "month(ts)", pa.int32()),
        (day("ts"), "day(ts)", pa.int32()),
        (hour("ts"), "hour(ts)", pa.int32()),
        (expression("col0 % 7", ["id"], result_type="int64"), "expression('col0 % 7', id)", pa.int64()),
        (unsharded(), "unsharded()", pa.int32()),
    ],
    ids=str,
)
def test_what_a_table_can_be_sharded_by(shard_by: ShardBy, text: str, result: pa.DataType) -> None:
    assert str(shard_by) == text
    assert shard_by.validate(SCHEMA, KEY) == result
    assert pickle.loads(pickle.dumps(shard_by)) == shard_by
    with pytest.raises((FrozenInstanceError, AttributeError)):
        shard_by.immutable = True  # type: ignore[misc]


def test_a_column_outside_the_key_would_let_rows_move() -> None:
    with pytest.raises(ShardingError, match="would let a row move") as caught:
        bucket("region", 8).validate(SCHEMA, ["id"])
    assert caught.value.where == "region"
    assert caught.value.hint is not None
    assert "immutable=True" in caught.value.hint
    with pytest.raises(ShardingError, match="would let a row move"):
        multi_bucket(["id", "region"], 8).validate(SCHEMA, ["id"])


def test_a_column_outside_the_key_may_be_promised_immutable() -> None:
    assert day("ts", immutable=True).validate(SCHEMA, ["id"]) == pa.int32()


def test_columns_there_are_not_are_refused() -> None:
    with pytest.raises(SchemaError, match="no column 'nope'") as caught:
        bucket("nope", 8).validate(SCHEMA, KEY)
    assert "region" in str(caught.value)
    with pytest.raises(SchemaError, match="occurs 2 times"):
        bucket("id", 8).validate(pa.schema([("id", pa.int64()), ("id", pa.int32())]), ["id"])


@pytest.mark.parametrize(
    "make",
    [
        lambda: bucket("id", 0),
        lambda: bucket("id", "8"),  # type: ignore[arg-type]
        lambda: bucket("id", True),
        lambda: bucket("id", 8.0),  # type: ignore[arg-type]
        lambda: bucket(3, 8),  # type: ignore[arg-type]
        lambda: bucket(["id"], 8),  # type: ignore[arg-type]
        lambda: multi_bucket([], 8),
        lambda: multi_bucket("id", 8),
        lambda: multi_bucket(["id", "id"], 8),
        lambda: truncate("region", 0),
        lambda: truncate("region", None),  # type: ignore[arg-type]
        lambda: expression("", ["id"], result_type="int64"),
        lambda: expression("col0", [], result_type="int64"),
        lambda: expression("col0", ["id"], result_type="number"),
        lambda: identity("id", field_id=""),
    ],
)
def test_malformed_arguments_are_refused_at_once(make: Callable[[], Any]) -> None:
    with pytest.raises(ShardingError):
        make()


@pytest.mark.parametrize(
    "shard_by", [identity("tags"), bucket("tags", 8), year("id"), truncate("ts", 3)], ids=str
)
def test_columns_of_the_wrong_type_are_refused(shard_by: ShardBy) -> None:
    with pytest.raises(ShardingError):
        shard_by.validate(SCHEMA, KEY)
