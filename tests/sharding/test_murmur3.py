from __future__ import annotations

import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.sharding.oracles import bytes_as_blocks, library_buckets, simple_murmur3

from weir.errors import ShardingError
from weir.sharding.murmur3 import buckets, can_hash, murmur3, murmur3_multi

# With this many buckets the library shows all bits of the hash but the sign.
MOST_BUCKETS = 2**31 - 1

INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
TIMES = [
    *(pa.date32(), pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")),
    *(pa.timestamp("s"), pa.timestamp("ms", "UTC"), pa.timestamp("us"), pa.timestamp("ns", "Europe/Berlin")),
]


def with_some_nulls(values: pa.Array) -> pa.Array:
    every_fifth = pa.array([number % 5 == 4 for number in range(len(values))])
    return pa.compute.if_else(every_fifth, pa.scalar(None, values.type), values)


def integers(data_type: pa.DataType) -> pa.Array:
    limits = np.iinfo(data_type.to_pandas_dtype())
    random = np.random.default_rng(7)
    values = random.integers(limits.min, limits.max, 200, limits.dtype, endpoint=True)
    values[:6] = [limits.min, limits.max, 0, 1, limits.max // 2, limits.max - 1]
    return pa.array(values)


def times(data_type: pa.DataType) -> pa.Array:
    random = np.random.default_rng(8)
    if pa.types.is_time(data_type):
        values = random.integers(0, 80_000, 200)
    else:
        limits = np.iinfo(np.int32 if data_type.bit_width == 32 else np.int64)
        values = random.integers(limits.min, limits.max, 200)
        values[:3] = [limits.min, limits.max, -1]
    stored = pa.int32() if data_type.bit_width == 32 else pa.int64()
    return pa.array(values).cast(stored).view(data_type)


def floats(data_type: pa.DataType) -> pa.Array:
    dtype = np.dtype(data_type.to_pandas_dtype())
    limits = np.finfo(dtype)
    edges = [0.0, -0.0, np.nan, -np.nan, np.inf, -np.inf, limits.tiny, limits.max, limits.min, 1.5, 0.1]
    values = np.concatenate(
        [np.array(edges, dtype), np.random.default_rng(9).normal(0, 1e4, 100).astype(dtype)]
    )
    return pa.array(values)


TEXTS = ["", "a", "ab", "abc", "abcd", "abcde", "é", "日本語", "👩‍👩‍👧‍👦", "x" * 999, "user-42", "\x00", "ÿþ"]

SUPPORTED: dict[str, pa.Array] = {
    "bool": pa.array([True, False] * 10),
    **{str(data_type): integers(data_type) for data_type in INTEGERS},
    **{str(data_type): times(data_type) for data_type in TIMES},
    **{str(data_type): floats(data_type) for data_type in (pa.float32(), pa.float64())},
    **{str(data_type): pa.array(TEXTS * 3, data_type) for data_type in (pa.string(), pa.large_string())},
}


@pytest.mark.parametrize("values", SUPPORTED.values(), ids=SUPPORTED.keys())
def test_hashes_are_those_of_the_library(values: pa.Array) -> None:
    column = with_some_nulls(values)
    expected = library_buckets(column, MOST_BUCKETS)
    assert buckets(murmur3(column), MOST_BUCKETS).tolist() == expected
    for offset, length in ((3, len(column) - 3), (5, 7), (4, 1), (2, 1), (len(column), 0)):
        got = buckets(murmur3(column.slice(offset, length)), MOST_BUCKETS).tolist()
        assert got == expected[offset : offset + length]


@given(st.lists(st.one_of(st.none(), st.text(max_size=40)), min_size=1, max_size=30))
def test_text_hashes_are_those_of_the_library(texts: list[str | None]) -> None:
    column = pa.array(texts, pa.string())
    assert buckets(murmur3(column), MOST_BUCKETS).tolist() == library_buckets(column, MOST_BUCKETS)


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (pa.array([1, 2, 3], pa.int32()), [2, 7, 1]),
        (pa.array([1, 3, -5], pa.int64()), [4, 3, 6]),
        (pa.array(["a", "b", "hello", "user-42"]), [1, 5, 0, 3]),
    ],
)
def test_buckets_do_not_change_from_release_to_release(column: pa.Array, expected: list[int]) -> None:
    assert buckets(murmur3(column), 8).tolist() == expected


def decimal_blocks(value: Decimal, width: int) -> list[int]:
    unscaled = int(value.scaleb(2)).to_bytes(width, "little", signed=True)
    return list(struct.unpack(f"<{width // 4}I", unscaled))


OWN: dict[str, tuple[pa.Array, Callable[[Any], list[int]], int | None]] = {
    "binary": (pa.array([b"", b"\xff", b"abc", b"\x80abcdefg"], pa.binary()), bytes_as_blocks, None),
    "large_binary": (pa.array([b"\xff\xfe", b"12345"], pa.large_binary()), bytes_as_blocks, None),
    "binary_view": (pa.array([b"\xff\xfe", b"1" * 30], pa.binary_view()), bytes_as_blocks, None),
    "fixed": (pa.array([b"\xff\xfe\x00", b"abc", b"def"], pa.binary(3)), bytes_as_blocks, None),
    "string_view": (
        pa.array(["a" * 30, "", "é"], pa.string_view()),
        lambda text: bytes_as_blocks(text.encode()),
        None,
    ),
    "float16": (
        pa.array(np.array([1.5, 0.0, 65504.0], np.float16)),
        lambda value: list(struct.unpack("<I", struct.pack("<f", value))),
        4,
    ),
    "decimal128": (
        pa.array([Decimal("1.50"), Decimal("-99999.99"), Decimal(0)], pa.decimal128(20, 2)),
        lambda value: decimal_blocks(value, 16),
        16,
    ),
    "decimal256": (
        pa.array([Decimal("1.50"), Decimal("-99999.99")], pa.decimal256(50, 2)),
        lambda value: decimal_blocks(value, 32),
        32,
    ),
}


@pytest.mark.parametrize(("column", "blocks", "length"), OWN.values(), ids=OWN.keys())
def test_types_the_library_refuses_hash_as_documented(
    column: pa.Array, blocks: Callable[[Any], list[int]], length: int | None
) -> None:
    expected = []
    for value in column.to_pylist():
        size = len(value.encode() if isinstance(value, str) else value) if length is None else length
        expected.append(simple_murmur3(blocks(value), size))
    assert murmur3(column).tolist() == expected
    assert [int(murmur3(column.slice(row, 1))[0]) for row in range(len(column))] == expected


@pytest.mark.parametrize("data_type", [pa.date64(), pa.duration("us")], ids=str)
def test_more_64_bit_types_hash_as_integers(data_type: pa.DataType) -> None:
    numbers = pa.array([0, 86_400_000, -86_400_000])
    assert murmur3(numbers.cast(data_type)).tolist() == murmur3(numbers).tolist()


def test_a_null_leaves_the_seed() -> None:
    seed = np.array([1, 2, 3], np.uint32)
    hashes = murmur3(pa.array([None, 5, None], pa.int64()), seed)
    assert hashes.tolist()[::2] == [1, 3]
    assert hashes[1] != 2


def test_several_columns_are_chained_and_nulls_passed_over() -> None:
    numbers = pa.array([7, None, 7, None], pa.int32())
    texts = pa.array(["abc", "abc", None, None])
    hashes, valid = murmur3_multi([numbers, texts])
    of_7, of_abc = simple_murmur3([7], 4), simple_murmur3([0x61, 0x62, 0x63], 3)
    assert hashes.tolist() == [simple_murmur3([0x61, 0x62, 0x63], 3, of_7), of_abc, of_7, 0]
    assert valid is not None
    assert valid.tolist() == [True, True, True, False]
    assert murmur3_multi([texts.slice(0, 1)])[0].tolist() == [of_abc]


def test_where_a_column_has_no_nulls_every_row_has_a_hash() -> None:
    _, valid = murmur3_multi([pa.array([None, 1]), pa.array([1, 2])])
    assert valid is None


@pytest.mark.parametrize(
    ("source", "promoted"),
    [
        *((pa.int8(), wide) for wide in (pa.int16(), pa.int32(), pa.int64())),
        *((pa.int32(), wide) for wide in (pa.int64(),)),
        *((pa.uint8(), wide) for wide in (pa.int16(), pa.uint32(), pa.uint64(), pa.int64())),
        *((pa.uint32(), wide) for wide in (pa.int64(), pa.uint64())),
    ],
    ids=str,
)
def test_promoted_integers_hash_as_before(source: pa.DataType, promoted: pa.DataType) -> None:
    before = with_some_nulls(integers(source))
    after = before.cast(promoted)
    expected = murmur3(before).tolist()
    assert murmur3(after, source_type=source).tolist() == expected
    assert [int(murmur3(after.slice(row, 1), source_type=source)[0]) for row in range(20)] == expected[:20]
    if promoted.bit_width == 64:
        assert murmur3(after).tolist() != expected, "promotion would move keys, were the type not recorded"


def test_integers_that_outgrew_the_source_type_hash_as_64_bits() -> None:
    column = pa.array([5, 2**40, -(2**31) - 1, None])
    hashes = murmur3(column, source_type=pa.int32())
    assert hashes.tolist()[1:] == murmur3(column).tolist()[1:]
    assert hashes[0] == murmur3(pa.array([5], pa.int32()))[0]
    assert hashes[1] == murmur3(column.slice(1, 1), source_type=pa.int32())[0]


def test_promoted_floats_hash_as_before() -> None:
    before = floats(pa.float32())
    assert murmur3(before.cast(pa.float64()), source_type=pa.float32()).tolist() == murmur3(before).tolist()
    outgrown = pa.array([0.1, 1e300])
    assert murmur3(outgrown, source_type=pa.float32()).tolist() == murmur3(outgrown).tolist()


@pytest.mark.parametrize(
    "values", [pa.array([[1]]), pa.array([{"a": 1}]), pa.nulls(1)], ids=lambda v: str(v.type)
)
def test_other_types_are_refused(values: pa.Array) -> None:
    assert not can_hash(values.type)
    if values.null_count == 0:
        with pytest.raises(ShardingError, match="cannot be hashed"):
            murmur3(values)


@pytest.mark.parametrize(
    "bits", [(np.uint32, 0x7F800001, pa.float32()), (np.uint64, 0x7FF0000000000001, pa.float64())]
)
def test_a_signalling_nan_is_the_one_nan_and_no_warning(bits: tuple[Any, int, pa.DataType]) -> None:
    unsigned, pattern, kind = bits
    column = pa.array(np.array([pattern] * 20, unsigned)).view(kind)
    assert murmur3(column).tolist() == murmur3(pa.array([float("nan")] * 20, kind)).tolist()
