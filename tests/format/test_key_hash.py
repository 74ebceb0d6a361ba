"""The key hash: the vectorised form against one key at a time, and both against the library's filters."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weir.errors import SchemaError
from weir.format.key_hash import hash_keys, siphash13

ROTATIONS = ((0, 1, 13), (2, 3, 16), (0, 3, 21), (2, 1, 17))


def simple_siphash(message: bytes, compressions: int, finalisations: int, key: bytes) -> int:
    """SipHash-c-d as its authors describe it, one step at a time."""
    low, high = int.from_bytes(key[:8], "little"), int.from_bytes(key[8:], "little")
    initial = b"somepseudorandomlygeneratedbytes"
    v = [
        int.from_bytes(initial[at : at + 8], "big") ^ part
        for at, part in zip((0, 8, 16, 24), (low, high) * 2, strict=True)
    ]

    def rounds(count: int) -> None:
        for _ in range(count):
            for target, turned, bits in ROTATIONS:
                v[target] = (v[target] + v[turned]) % (1 << 64)
                v[turned] = (v[turned] << bits | v[turned] >> (64 - bits)) % (1 << 64) ^ v[target]
                if (target, turned) in ((0, 1), (2, 1)):
                    v[target] = (v[target] << 32 | v[target] >> 32) % (1 << 64)

    words = message + b"\x00" * (-(len(message) + 1) % 8) + bytes([len(message) % 256])
    for at in range(0, len(words), 8):
        word = int.from_bytes(words[at : at + 8], "little")
        v[3] ^= word
        rounds(compressions)
        v[0] ^= word
    v[2] ^= 0xFF
    rounds(finalisations)
    return v[0] ^ v[1] ^ v[2] ^ v[3]


def message(values: tuple[object, ...], types: Sequence[pa.DataType]) -> bytes:
    """What is hashed for one key, written from its description."""
    parts = b""
    for value, type in zip(values, types, strict=True):
        parts += bytes([value is None])
        if isinstance(value, int) and type in (pa.int32(), pa.int64()):
            parts += value.to_bytes(type.bit_width // 8, "little", signed=True)
        elif isinstance(value, str) and type == pa.string():
            parts += value.encode() + b"\xff"
        elif isinstance(value, bytes) and type == pa.binary():
            parts += len(value).to_bytes(8, "little") + value
    return parts


def hash_rows(columns: Sequence[pa.Array]) -> list[int]:
    types = [column.type for column in columns]
    rows = zip(*(column.to_pylist() for column in columns), strict=True)
    return [simple_siphash(message(row, types), 1, 3, bytes(16)) for row in rows]


def test_the_simple_siphash_is_the_published_one() -> None:
    # The worked example of the SipHash paper, appendix A: SipHash-2-4, key 00..0f, message 00..0e.
    assert simple_siphash(bytes(range(15)), 2, 4, bytes(range(16))) == 0xA129CA6149BE45E5


@given(st.binary(max_size=600))
def test_one_message(data: bytes) -> None:
    assert siphash13(data) == simple_siphash(data, 1, 3, bytes(16))


@given(data=st.data())
def test_columns_hash_as_their_rows(
    key_columns: Callable[..., st.SearchStrategy[list[pa.Array]]], data: st.DataObject
) -> None:
    columns = data.draw(key_columns(nulls=data.draw(st.booleans())))
    hashes = hash_keys(columns)
    assert hashes.dtype == np.uint64
    assert hashes.tolist() == hash_rows(columns)


@given(data=st.data())
def test_a_key_hashes_alike_alone_and_among_others(
    key_columns: Callable[..., st.SearchStrategy[list[pa.Array]]], data: st.DataObject
) -> None:
    columns = data.draw(key_columns())
    hashes = hash_keys(columns)
    alone = [hash_keys([column.slice(row, 1) for column in columns])[0] for row in range(len(hashes))]
    assert hashes.tolist() == alone


def test_more_rows_than_a_block() -> None:
    numbers = pa.array(range(20_000))
    texts = pa.array(["k" * (row % 41) for row in range(20_000)])
    columns = [numbers, texts]
    hashes = hash_keys(columns)
    for row in (0, 1, 8191, 8192, 16384, 19_999):
        assert hashes[row] == hash_rows([column.slice(row, 1) for column in columns])[0]
    assert len(np.unique(hashes)) == 20_000
    assert hash_keys([numbers])[19_999] == hash_rows([numbers.slice(19_999, 1)])[0]


def test_very_long_keys_among_short_ones() -> None:
    texts = ["a", "b" * 300_000, "c" * 513, "", "d" * 100_000] + ["e" * length for length in range(500, 530)]
    column = pa.array(texts)
    hashes = hash_keys([column])
    assert hashes[[0, 2, 3]].tolist() == hash_rows([column.take([0, 2, 3])])
    assert hashes[[1, 4]].tolist() == [siphash13(b"\x00" + texts[row].encode() + b"\xff") for row in (1, 4)]
    assert hashes[5:].tolist() == hash_rows([column.slice(5)])


@pytest.mark.parametrize("rows", [0, 1, 8, 9])
def test_no_values_at_all(rows: int) -> None:
    for type in (pa.int64(), pa.string(), pa.binary()):
        column = pa.nulls(rows, type)
        assert hash_keys([column]).tolist() == [siphash13(b"\x01")] * rows


def test_what_cannot_be_hashed_is_refused() -> None:
    with pytest.raises(SchemaError, match="at least one column"):
        hash_keys([])
    with pytest.raises(SchemaError, match="double"):
        hash_keys([pa.array([0.5])])
    with pytest.raises(SchemaError, match="2 rows"):
        hash_keys([pa.array([1]), pa.array([1, 2])])
