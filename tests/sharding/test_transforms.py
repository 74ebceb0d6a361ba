from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.sharding.oracles import datafusion_values

from weir.errors import ShardingError
from weir.sharding.murmur3 import murmur3
from weir.sharding.transforms import (
    Bucket,
    DatePart,
    Identity,
    MultiBucket,
    Transform,
    Truncate,
    Unsharded,
    transform_named,
)
from weir.sharding.value_set import ordinal

INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
WIDTHS = [1, 2, 7, 10, 100, 127, 128, 1_000_003, 2**40]


def evaluate(transform: Transform, *columns: pa.Array) -> pa.Array:
    types = [column.type for column in columns]
    result = transform.evaluate(columns, types)
    assert result.type == transform.result_type(types)
    return result


def edge_integers(data_type: pa.DataType) -> pa.Array:
    limits = np.iinfo(data_type.to_pandas_dtype())
    values = [limits.min, limits.min + 1, 0, 1, 5, 7, 99, limits.max - 1, limits.max]
    values += [] if limits.min == 0 else [-1, -5, -7, -99]
    return pa.array([*values, None], data_type)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("data_type", INTEGERS, ids=str)
def test_truncated_integers_are_those_of_datafusion(data_type: pa.DataType, width: int) -> None:
    column = edge_integers(data_type)
    expected = datafusion_values({"c": column}, f"c - (c % {width})").cast(data_type)
    assert evaluate(Truncate(width), column).equals(expected)
    assert evaluate(Truncate(width), column.slice(4, 3)).equals(expected.slice(4, 3))


@pytest.mark.parametrize("width", [1, 7, 100, 10**8])
@pytest.mark.parametrize(
    "data_type",
    [pa.decimal128(5, 2), pa.decimal128(18, 4), pa.decimal128(38, 2), pa.decimal256(60, 5)],
    ids=str,
)
def test_truncated_decimals_are_those_of_datafusion(data_type: pa.DataType, width: int) -> None:
    texts = ["0", "0.01", "-0.01", "12.34", "-12.34", "99.99", "-99.99", "999.99"]
    column = pa.array([*(Decimal(text) for text in texts), None]).cast(data_type)
    expected = datafusion_values({"c": column}, f"c - (c % {width})").cast(data_type)
    assert evaluate(Truncate(width), column).equals(expected)


@pytest.mark.parametrize("width", [1, 7, 100])
@pytest.mark.parametrize("data_type", [pa.float32(), pa.float64()], ids=str)
def test_truncated_floats_are_those_of_datafusion(data_type: pa.DataType, width: int) -> None:
    column = pa.array([-7.5, 7.5, None, np.nan, np.inf, -np.inf, 1e20, -0.0, 1e-30, 699.99], data_type)
    expected = datafusion_values({"c": column}, f"c - (c % {width})")
    got = evaluate(Truncate(width), column)
    assert got.null_count == 1
    np.testing.assert_array_equal(
        got.to_numpy(zero_copy_only=False), expected.to_numpy(zero_copy_only=False), strict=True
    )


@pytest.mark.parametrize("data_type", [pa.string(), pa.large_string()], ids=str)
@given(texts=st.lists(st.one_of(st.none(), st.text(max_size=8)), min_size=1), width=st.integers(1, 9))
def test_truncated_texts_are_those_of_datafusion(
    data_type: pa.DataType, texts: list[str | None], width: int
) -> None:
    column = pa.array(texts, data_type)
    expected = datafusion_values({"c": column}, f"left(c, {width})").cast(data_type)
    assert evaluate(Truncate(width), column).equals(expected)


@pytest.mark.parametrize("width", [1, 3, 10])
@pytest.mark.parametrize(
    "column",
    [
        pa.array(range(-40, 40)),
        pa.array(range(80), pa.uint8()),
        pa.array([Decimal(number).scaleb(-1) for number in range(-40, 40)], pa.decimal128(5, 1)),
        pa.array([number / 3 for number in range(-40, 40)]),
        pa.array([number / 3 for number in range(-40, 40)], pa.float32()),
        pa.array(["", "a", "ab", "abc", "abcd", "abd", "b", "é", "éé", "ééé", "éééz", "日本語テキスト"]),
    ],
    ids=lambda column: str(column.type) if isinstance(column, pa.Array) else str(column),
)
def test_preimages_of_truncate_hold_every_source_value(column: pa.Array, width: int) -> None:
    transform = Truncate(width)
    for value, result in zip(column, evaluate(transform, column), strict=True):
        preimage = transform.preimage(ordinal(result), column.type)
        source = ordinal(value)
        assert preimage is not None
        assert source is not None
        assert preimage.holds(source)


def test_preimages_of_truncated_integers_hold_nothing_else() -> None:
    numbers = pa.array(range(-40, 41))
    results = evaluate(Truncate(10), numbers).to_pylist()
    for result in set(results):
        preimage = Truncate(10).preimage(result, pa.int64())
        assert preimage is not None
        held = [number for number in range(-30, 31) if preimage.holds(number)]
        assert held == [
            n for n, r in zip(range(-40, 41), results, strict=True) if r == result and abs(n) <= 30
        ]


def test_identity_is_the_column() -> None:
    column = pa.array(["EU", None, ""])
    assert evaluate(Identity(), column) is column


def test_identity_has_one_nan_and_one_zero() -> None:
    column = pa.array([0.0, -0.0, np.nan, -np.nan, None])
    result = evaluate(Identity(), column)
    bits = result.slice(0, 4).to_numpy().view(np.uint64)
    assert bits[0] == bits[1] == 0
    assert bits[2] == bits[3]
    assert result.null_count == 1


def test_bucket_of_null_is_0_as_in_the_library() -> None:
    assert evaluate(Bucket(8), pa.array([None, 1], pa.int64())).to_pylist() == [0, 4]


def test_multi_bucket_is_null_only_where_all_columns_are() -> None:
    numbers = pa.array([1, None, None], pa.int64())
    texts = pa.array(["a", "a", None])
    result = evaluate(MultiBucket(8), numbers, texts).to_pylist()
    assert result[1] == evaluate(Bucket(8), texts).to_pylist()[1]
    assert result[2] is None


def test_multi_bucket_of_one_column_is_its_bucket() -> None:
    numbers = pa.array(range(100))
    assert evaluate(MultiBucket(16), numbers).equals(evaluate(Bucket(16), numbers))


def test_buckets_are_spread_evenly() -> None:
    numbers, texts = pa.array(range(10_000)), pa.array([f"site-{number % 40}" for number in range(10_000)])
    for result in (evaluate(Bucket(8), numbers), evaluate(MultiBucket(8), texts, numbers)):
        counts = np.bincount(result.to_numpy(), minlength=8)
        assert counts.min() > 1_100
        assert counts.max() < 1_400


def test_bucket_takes_promoted_numbers_by_their_source_type() -> None:
    promoted = pa.array([1, 2, 3])
    assert Bucket(8).evaluate([promoted], [pa.int32()]).to_pylist() == [2, 7, 1]
    assert murmur3(promoted).tolist() != murmur3(promoted.cast(pa.int32())).tolist()


def test_unsharded_is_always_0() -> None:
    assert evaluate(Unsharded()).to_pylist() == [0]


@pytest.mark.parametrize(
    ("transform", "source"),
    [
        (Identity(), pa.list_(pa.int8())),
        (Bucket(8), pa.list_(pa.int8())),
        (Bucket(8), pa.null()),
        (MultiBucket(8), pa.struct([])),
        (Truncate(3), pa.bool_()),
        (Truncate(3), pa.binary()),
        (Truncate(3), pa.float16()),
        (Truncate(3), pa.date32()),
        (DatePart("year"), pa.int64()),
        (DatePart("year"), pa.string()),
        (DatePart("hour"), pa.time64("us")),
    ],
    ids=str,
)
def test_columns_that_do_not_fit_are_refused(transform: Transform, source: pa.DataType) -> None:
    with pytest.raises(ShardingError, match="cannot take"):
        transform.result_type([source])


@pytest.mark.parametrize("number", [0, -1, 1025])
def test_numbers_of_buckets_out_of_range_are_refused(number: int) -> None:
    with pytest.raises(ShardingError, match="1 to 1024"):
        Bucket(number)
    with pytest.raises(ShardingError, match="1 to 1024"):
        MultiBucket(number)


@pytest.mark.parametrize("width", [0, -3, 2**63])
def test_widths_out_of_range_are_refused(width: int) -> None:
    with pytest.raises(ShardingError, match="width"):
        Truncate(width)


@pytest.mark.parametrize(
    "transform",
    [
        *(Identity(), Unsharded(), Bucket(8), MultiBucket(16), Truncate(3)),
        *(DatePart(part) for part in ("year", "month", "day", "hour")),
    ],
    ids=str,
)
def test_transforms_are_read_back_by_name(transform: Transform) -> None:
    assert transform.name is not None
    assert transform_named(transform.name, transform.parameters) == transform


@pytest.mark.parametrize(
    ("name", "parameters", "message"),
    [
        ("zorder", {}, "unknown shard transform"),
        ("bucket", {}, "lacks its parameter 'num_buckets'"),
        ("bucket", {"num_buckets": "many"}, "not an integer"),
        ("truncate", {"num_buckets": "8"}, "lacks its parameter 'width'"),
    ],
)
def test_malformed_transforms_are_refused(name: str, parameters: dict[str, str], message: str) -> None:
    with pytest.raises(ShardingError, match=message):
        transform_named(name, parameters)
