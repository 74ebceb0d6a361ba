from __future__ import annotations

import pickle
import threading
from datetime import datetime

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.sharding.oracles import field_ids, library_values

from weir.errors import SchemaError, ShardingError
from weir.format.index_details import ShardFieldSpec, ShardSpec
from weir.sharding.router import Router
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
from weir.sharding.shard_values import ShardValues
from weir.sharding.spec import build_spec

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("region", pa.string()),
        ("ts", pa.timestamp("us")),
        ("score", pa.float64()),
        ("flag", pa.bool_()),
        ("payload", pa.list_(pa.float32(), 4)),
    ]
)
IDS = field_ids(SCHEMA)
KEY = tuple(SCHEMA.names)


def router(*shard_by: ShardBy, schema: pa.Schema = SCHEMA) -> Router:
    return Router(build_spec(shard_by, SCHEMA, KEY, IDS), schema, field_ids(schema))


def rows(count: int, seed: int = 0) -> pa.RecordBatch:
    random = np.random.default_rng(seed)
    regions = np.array(["EU", "US", "", "日本", None], object)[random.integers(0, 5, count)]
    return pa.RecordBatch.from_arrays(
        [
            pa.array(random.integers(-1000, 1000, count), mask=random.random(count) < 0.1),
            pa.array(regions, pa.string()),
            pa.array(random.integers(0, 2 * 10**15, count)).cast(pa.timestamp("us")),
            pa.array(np.where(random.random(count) < 0.2, np.nan, random.integers(-2, 2, count) / 2)),
            pa.array(random.random(count) < 0.5, mask=random.random(count) < 0.1),
            pa.FixedSizeListArray.from_arrays(pa.array(random.random(count * 4), pa.float32()), 4),
        ],
        schema=SCHEMA,
    )


ROUTERS = {
    "bucket": router(bucket("id", 8)),
    "bucket of text": router(bucket("region", 3)),
    "identity": router(identity("region")),
    "identity of floats": router(identity("score")),
    "identity of bools": router(identity("flag")),
    "unsharded": router(unsharded()),
    "multi_bucket": router(multi_bucket(["region", "id"], 5)),
    "truncate": router(truncate("region", 1)),
    "dates": router(year("ts"), month("ts")),
    "hour": router(hour("ts"), bucket("id", 4)),
    "expression": router(expression("abs(col0) % 7", ["id"], result_type="int64")),
    "three": router(identity("flag"), day("ts"), bucket("id", 2)),
}


def assert_same_rows(one: pa.RecordBatch | pa.Table, other: pa.RecordBatch | pa.Table) -> None:
    """Compare rows, a NaN being like another."""
    assert one.drop_columns(["score"]).equals(other.drop_columns(["score"]))
    np.testing.assert_array_equal(one["score"].to_numpy(), other["score"].to_numpy())


def value_rows(one: Router, batch: pa.RecordBatch | pa.Table) -> list[str]:
    """Return the values of every row as text, one row at a time."""
    return [str(one.route(batch.slice(at, 1))[0][0]) for at in range(batch.num_rows)]


@pytest.mark.covering
@pytest.mark.parametrize("one", ROUTERS.values(), ids=ROUTERS.keys())
@pytest.mark.parametrize("as_table", [False, True])
def test_every_row_goes_to_one_shard_and_keeps_its_place(one: Router, as_table: bool) -> None:
    batch: pa.RecordBatch | pa.Table = rows(200)
    if as_table:
        batch = pa.Table.from_batches([batch.slice(0, 70), batch.slice(70, 0), batch.slice(70)])
    expected = value_rows(one, batch)
    routed = one.route(batch)
    assert len({values for values, _ in routed}) == len(routed)
    assert [str(values) for values, _ in routed] == list(dict.fromkeys(expected))
    for values, part in routed:
        assert type(part) is type(batch)
        numbers = [at for at, text in enumerate(expected) if text == str(values)]
        assert_same_rows(part, batch.take(pa.array(numbers)))


@pytest.mark.parametrize("one", ROUTERS.values(), ids=ROUTERS.keys())
def test_partition_says_the_same_without_moving_rows(one: Router) -> None:
    batch = rows(150, seed=1)
    partition = one.partition(batch)
    assert [str(partition.values[at]) for at in partition.shards] == value_rows(one, batch)
    for numbers, (_, part) in zip(partition.rows(), one.route(batch), strict=True):
        assert_same_rows(part, batch.take(pa.array(numbers)))


@pytest.mark.parametrize(
    "shard_by",
    [
        [bucket("id", 8)],
        [bucket("region", 1000)],
        [bucket("ts", 3)],
        [bucket("score", 64)],
        [bucket("flag", 2)],
        [identity("region")],
        [unsharded()],
        [bucket("id", 3), identity("flag"), identity("region")],
    ],
    ids=lambda wanted: ", ".join(map(str, wanted)),
)
def test_rows_go_where_the_library_sends_them(shard_by: list[ShardBy]) -> None:
    spec = build_spec(shard_by, SCHEMA, KEY, IDS)
    batch = rows(300, seed=2)
    partition = Router(spec, SCHEMA, IDS).partition(batch)
    ours = [[value.scalar.as_py() for value in partition.values[at].values] for at in partition.shards]
    theirs = library_values(batch, spec)
    assert ours == [list(values) for values in zip(*(column.to_pylist() for column in theirs), strict=True)]


@given(st.lists(st.tuples(st.one_of(st.none(), st.text(max_size=3)), st.integers(0, 3)), min_size=1))
def test_values_of_several_fields_are_told_apart(pairs: list[tuple[str | None, int]]) -> None:
    schema = pa.schema([("a", pa.string()), ("b", pa.int8())])
    batch = pa.RecordBatch.from_pylist([{"a": a, "b": b} for a, b in pairs], schema)
    spec = build_spec([identity("a"), identity("b")], schema, ["a", "b"], {"a": 0, "b": 1})
    routed = Router(spec, schema, {"a": 0, "b": 1}).route(batch)
    assert [tuple(one.scalar.as_py() for one in values.values) for values, _ in routed] == list(
        dict.fromkeys(pairs)
    )
    assert [part.num_rows for _, part in routed] == [pairs.count(pair) for pair in dict.fromkeys(pairs)]


def test_rows_of_one_shard_are_not_copied() -> None:
    batch = rows(100)
    for one in (router(unsharded()), router(bucket("id", 1)), Router(ShardSpec(0, ()), SCHEMA, IDS)):
        ((_, part),) = one.route(batch)
        assert part is batch
    single = batch.slice(7, 1)
    assert router(bucket("id", 8)).route(single)[0][1] is single


def test_no_rows_go_nowhere() -> None:
    one = router(bucket("id", 8))
    assert one.route(rows(0)) == []
    assert one.partition(SCHEMA.empty_table()).values == ()


def test_rows_may_hold_fewer_columns_in_any_order() -> None:
    batch = rows(50)
    one = router(bucket("id", 8), identity("region"))
    assert one.source_columns == {"id", "region"}
    few = batch.select(["region", "id"])
    assert [values for values, _ in one.route(few)] == [values for values, _ in one.route(batch)]
    with pytest.raises(SchemaError, match="lack column 'region'") as caught:
        one.route(batch.select(["id"]))
    assert caught.value.where == "region"


def test_a_column_the_table_has_lost_reads_as_null() -> None:
    without = SCHEMA.remove(SCHEMA.get_field_index("region"))
    ids = {name: IDS[name] for name in without.names}
    spec = build_spec([identity("region"), multi_bucket(["region", "id"], 4)], SCHEMA, KEY, IDS)
    batch = rows(60)
    nulls = batch.set_column(1, SCHEMA.field("region"), pa.nulls(60, pa.string()))
    lost = Router(spec, without, ids).partition(batch.select(without.names))
    kept = Router(spec, SCHEMA, IDS).partition(nulls)
    assert lost.values == kept.values
    assert lost.shards.tolist() == kept.shards.tolist()


def test_a_renamed_column_is_found_by_its_field_id() -> None:
    renamed = pa.schema([field.with_name(field.name + "_new") for field in SCHEMA])
    spec = build_spec([bucket("id", 8)], SCHEMA, KEY, IDS)
    batch = rows(40)
    moved = Router(spec, renamed, field_ids(renamed)).partition(batch.rename_columns(renamed.names))
    assert moved.values == Router(spec, SCHEMA, IDS).partition(batch).values


@pytest.mark.parametrize(
    "shard_by",
    [bucket("n", 16), multi_bucket(["n"], 16), identity("n"), truncate("n", 10)],
    ids=str,
)
def test_equal_values_keep_their_shard_when_a_column_is_promoted(shard_by: ShardBy) -> None:
    narrow, wide = pa.schema([("n", pa.int32())]), pa.schema([("n", pa.int64())])
    spec = build_spec(shard_by, narrow, ["n"], {"n": 0})
    numbers = pa.record_batch({"n": pa.array([5, -5, 0, None, 2**31 - 1], pa.int32())})
    before = Router(spec, narrow, {"n": 0}).partition(numbers)
    after = Router(spec, wide, {"n": 0}).partition(numbers.cast(wide))
    assert before.values == after.values
    assert before.shards.tolist() == after.shards.tolist()


def test_values_beyond_the_recorded_type_have_a_bucket_but_no_identity() -> None:
    narrow, wide = pa.schema([("n", pa.int32())]), pa.schema([("n", pa.int64())])
    grown = pa.record_batch({"n": pa.array([2**40, 5])})
    buckets = Router(build_spec(bucket("n", 16), narrow, ["n"], {"n": 0}), wide, {"n": 0})
    assert len(buckets.partition(grown).shards) == 2
    identities = Router(build_spec(identity("n"), narrow, ["n"], {"n": 0}), wide, {"n": 0})
    with pytest.raises(ShardingError, match="column 'n' does not fit int32"):
        identities.route(grown)


def test_a_column_changed_to_another_kind_is_refused_by_name() -> None:
    spec = build_spec(bucket("n", 16), pa.schema([("n", pa.int32())]), ["n"], {"n": 0})
    changed = Router(spec, pa.schema([("n", pa.string())]), {"n": 0})
    with pytest.raises(
        ShardingError, match="is now string, and shard values are computed from int32"
    ) as caught:
        changed.route(pa.record_batch({"n": ["5"]}))
    assert caught.value.where == "n"


def test_dictionaries_and_views_are_routed_by_their_values() -> None:
    texts = ["EU", None, "US", "EU"]
    plain = pa.schema([("r", pa.string())])
    for shard_by in (identity("r"), bucket("r", 8), truncate("r", 1)):
        expected = None
        for column in (
            pa.array(texts),
            pa.array(texts).dictionary_encode(),
            pa.array(texts, pa.string_view()),
            pa.array(texts, pa.large_string()),
        ):
            batch = pa.record_batch({"r": column})
            spec = build_spec(shard_by, plain, ["r"], {"r": 0})
            partition = Router(spec, batch.schema, {"r": 0}).partition(batch)
            expected = expected or partition.values
            assert partition.values == expected


def test_a_spec_of_the_library_is_evaluated_by_the_types_of_the_table() -> None:
    field = ShardFieldSpec("bucket", (0,), "bucket", None, "int32", {"num_buckets": "8"})
    one = Router(ShardSpec(1, (field,)), SCHEMA, IDS)
    routed = one.route(pa.record_batch({"id": pa.array([1, 3, -5])}))
    assert [str(values) for values, _ in routed] == ["bucket=4", "bucket=3", "bucket=6"]


@pytest.mark.parametrize(
    ("field", "message"),
    [
        (ShardFieldSpec("f", (0,), "zorder", None, "int64"), "unknown shard transform"),
        (ShardFieldSpec("f", (0,), "identity", "col0", "int64"), "must have a transform or an expression"),
        (ShardFieldSpec("f", (0,), None, None, "int64"), "must have a transform or an expression"),
        (ShardFieldSpec("f", (0, 1), "identity", None, "int64"), "has 2 source columns"),
        (ShardFieldSpec("f", (), "bucket", None, "int32", {"num_buckets": "8"}), "has 0 source columns"),
        (
            ShardFieldSpec("f", (0,), "identity", None, "int64", {"weir:source_types": "int64;int64"}),
            "records 2 source types for 1 columns",
        ),
        (ShardFieldSpec("f", (0,), "identity", None, "int9000"), "unknown type name"),
    ],
)
def test_specs_that_cannot_be_evaluated_are_refused_at_the_first_row(
    field: ShardFieldSpec, message: str
) -> None:
    one = Router(ShardSpec(1, (field,)), SCHEMA, IDS)
    with pytest.raises(ShardingError, match=message):
        one.route(rows(3))


def test_one_router_serves_many_threads() -> None:
    one = router(bucket("id", 64), identity("region"))
    batch = rows(500)
    expected = one.partition(batch)
    found: list[tuple[ShardValues, ...]] = []

    def route() -> None:
        found.extend(one.partition(batch).values for _ in range(20))

    threads = [threading.Thread(target=route) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 80
    assert set(found) == {expected.values}


def test_routers_reach_other_processes() -> None:
    one = router(bucket("id", 8), expression("col0 % 7", ["id"], result_type="int64"))
    batch = rows(50)
    expected = one.partition(batch)
    assert pickle.loads(pickle.dumps(one)).partition(batch).values == expected.values


def test_dates_are_split_as_the_calendar_says() -> None:
    moments = [
        datetime(2024, 2, 29, 23, 59),
        datetime(2024, 3, 1),
        datetime(2023, 2, 1),
        datetime(2024, 2, 1),
    ]
    batch = pa.record_batch({"ts": pa.array(moments, pa.timestamp("us"))})
    routed = router(year("ts"), month("ts")).route(batch)
    assert [(str(values), part.num_rows) for values, part in routed] == [
        ("ts_year=2024, ts_month=2", 2),
        ("ts_year=2024, ts_month=3", 1),
        ("ts_year=2023, ts_month=2", 1),
    ]
