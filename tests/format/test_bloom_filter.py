"""Bloom filters, bit for bit those of the library."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weir.errors import CorruptionError, InputError
from weir.format.bloom_filter import FALSE_POSITIVE_RATE, BloomFilter
from weir.format.key_hash import hash_keys
from weir.format.keys import SUPPORTED_TYPES

WHERE = "_mem_wal/x/y_gen_1/bloom_filter.bin"
HASHES = st.lists(st.integers(0, (1 << 64) - 1), max_size=50).map(lambda values: np.array(values, np.uint64))


@pytest.mark.one_in(3)
@pytest.mark.parametrize("number", range(len(SUPPORTED_TYPES)), ids=map(str, SUPPORTED_TYPES))
def test_the_library_makes_the_same_filter(
    library_generation: Callable[..., Any], keys_of_every_type: list[pa.Array], number: int
) -> None:
    keys = keys_of_every_type[number]
    stored = library_generation([keys]).bloom_filter(1)
    assert BloomFilter.build(hash_keys([keys])).to_bytes() == stored
    assert BloomFilter.from_bytes(stored, where=WHERE).contains(hash_keys([keys])).all()


@pytest.mark.parametrize("numbers", [(3, 9), (11, 2), (0, 8, 9), (4, 7, 10), (3, 11, 9, 2)])
def test_the_library_makes_the_same_filter_of_composite_keys(
    library_generation: Callable[..., Any], keys_of_every_type: list[pa.Array], numbers: tuple[int, ...]
) -> None:
    keys = [keys_of_every_type[number] for number in numbers]
    stored = library_generation(keys).bloom_filter(1)
    assert BloomFilter.build(hash_keys(keys)).to_bytes() == stored


def test_the_library_does_not_size_its_filter_by_the_rows(library_generation: Callable[..., Any]) -> None:
    keys = pa.array(range(20_000))
    stored = library_generation([keys]).bloom_filter(1)
    hashes = hash_keys([keys])
    assert BloomFilter.build(hashes, expected_keys=8192).to_bytes() == stored
    assert BloomFilter.build(hashes).nbytes > len(stored)


def simple_contains(data: bytes, hash: int) -> bool:
    """Membership in a split-block filter as the Parquet format describes it."""
    salts = (0x47B6137B, 0x44974D91, 0x8824AD5B, 0xA2B7289D, 0x705495C7, 0x2DF1424B, 0x9EFC4947, 0x5C6BFB31)
    block = (hash >> 32) * (len(data) // 32) >> 32
    for number, salt in enumerate(salts):
        at = 32 * block + 4 * number
        word = int.from_bytes(data[at : at + 4], "little")
        if not word >> ((hash & 0xFFFFFFFF) * salt % (1 << 32) >> 27) & 1:
            return False
    return True


@given(HASHES, HASHES, st.integers(1, 300))
def test_membership(added: np.ndarray[Any, Any], asked: np.ndarray[Any, Any], expected_keys: int) -> None:
    built = BloomFilter.build(added, expected_keys=expected_keys)
    assert built.contains(added).all()
    data = built.to_bytes()
    read = BloomFilter.from_bytes(data, where=WHERE)
    assert read.to_bytes() == data
    answers = read.contains(asked)
    assert answers.dtype == np.bool_
    assert answers.tolist() == [simple_contains(data, hash) for hash in asked.tolist()]


@given(st.binary(min_size=1, max_size=300), HASHES)
def test_any_blocks_are_a_filter(data: bytes, asked: np.ndarray[Any, Any]) -> None:
    if len(data) % 32:
        with pytest.raises(CorruptionError, match=f"{len(data)} bytes"):
            BloomFilter.from_bytes(data, where=WHERE)
    else:
        answers = BloomFilter.from_bytes(pa.py_buffer(data), where=WHERE).contains(asked)
        assert answers.tolist() == [simple_contains(data, hash) for hash in asked.tolist()]


def test_no_bytes_are_no_filter() -> None:
    with pytest.raises(CorruptionError, match="0 bytes"):
        BloomFilter.from_bytes(b"", where=WHERE)


@pytest.mark.parametrize("count", [1_000, 100_000])
def test_few_absent_keys_pass(count: int) -> None:
    keys = hash_keys([pa.array(range(count))])
    absent = hash_keys([pa.array(range(count, count + 50_000))])
    built = BloomFilter.build(keys)
    assert built.contains(keys).all()
    assert built.contains(absent).mean() < 2 * FALSE_POSITIVE_RATE


def test_a_filter_for_no_keys_is_refused() -> None:
    with pytest.raises(InputError, match="0 keys"):
        BloomFilter.build(np.empty(0, np.uint64), expected_keys=0)
