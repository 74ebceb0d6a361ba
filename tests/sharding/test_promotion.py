from __future__ import annotations

import pyarrow as pa
import pytest

from weir.errors import ShardingError
from weir.sharding.promotion import conform, is_promotion, plain_type


@pytest.mark.parametrize(
    ("recorded", "current"),
    [
        (pa.int8(), pa.int64()),
        (pa.uint8(), pa.int16()),
        (pa.uint16(), pa.uint64()),
        (pa.float16(), pa.float64()),
        (pa.string(), pa.large_string()),
        (pa.large_string(), pa.string()),
        (pa.string(), pa.dictionary(pa.int8(), pa.string())),
        (pa.binary(4), pa.binary()),
        (pa.timestamp("s", "UTC"), pa.timestamp("us", "UTC")),
        (pa.time32("s"), pa.time64("us")),
        (pa.date32(), pa.date64()),
        (pa.decimal128(10, 2), pa.decimal128(12, 3)),
        (pa.decimal128(10, 2), pa.decimal256(50, 2)),
        (pa.bool_(), pa.bool_()),
    ],
    ids=str,
)
def test_promotions(recorded: pa.DataType, current: pa.DataType) -> None:
    assert is_promotion(recorded, current)


@pytest.mark.parametrize(
    ("recorded", "current"),
    [
        (pa.int64(), pa.int32()),
        (pa.int32(), pa.uint64()),
        (pa.uint32(), pa.int32()),
        (pa.int32(), pa.float64()),
        (pa.float64(), pa.float32()),
        (pa.int32(), pa.string()),
        (pa.string(), pa.binary()),
        (pa.binary(), pa.binary(4)),
        (pa.timestamp("us"), pa.timestamp("s")),
        (pa.timestamp("s", "UTC"), pa.timestamp("us")),
        (pa.date64(), pa.date32()),
        (pa.decimal128(10, 2), pa.decimal128(10, 3)),
        (pa.decimal128(10, 2), pa.decimal128(11, 1)),
        (pa.bool_(), pa.int8()),
    ],
    ids=str,
)
def test_other_changes(recorded: pa.DataType, current: pa.DataType) -> None:
    assert not is_promotion(recorded, current)


@pytest.mark.parametrize(
    ("promoted", "recorded"),
    [
        (pa.array([5, None, -5]), pa.int8()),
        (pa.array([1.5, None, float("nan")]), pa.float32()),
        (pa.array(["a", None], pa.large_string()), pa.string()),
        (pa.array(["a", None, "a"]).dictionary_encode(), pa.string()),
        (pa.array([7_000_000, None], pa.timestamp("us")), pa.timestamp("s")),
    ],
    ids=lambda value: str(value.type if isinstance(value, pa.Array) else value),
)
def test_values_that_fit_are_taken_back(promoted: pa.Array, recorded: pa.DataType) -> None:
    conformed = conform(promoted, recorded, name="c")
    assert conformed.type == recorded
    assert conformed.cast(plain_type(promoted.type)).to_pylist()[:2] == promoted.to_pylist()[:2]


@pytest.mark.parametrize(
    ("promoted", "recorded"),
    [
        (pa.array([5, 128]), pa.int8()),
        (pa.array([1.5, 0.1]), pa.float32()),
        (pa.array([7_000_001], pa.timestamp("us")), pa.timestamp("s")),
    ],
    ids=lambda value: str(value.type if isinstance(value, pa.Array) else value),
)
def test_values_that_do_not_fit_are_refused(promoted: pa.Array, recorded: pa.DataType) -> None:
    with pytest.raises(ShardingError, match="column 'c' does not fit") as caught:
        conform(promoted, recorded, name="c")
    assert caught.value.where == "c"
