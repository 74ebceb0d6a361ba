"""Finding keys: the index and the matcher against a plain dict, over every key type."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given

from weir.format.keys import SUPPORTED_TYPES
from weir.lsm import keys as keys_module
from weir.lsm.keys import KeyIndex, KeyMatcher, KeySet

SMALL = st.integers(0, 6)


TYPES = (
    *SUPPORTED_TYPES,
    *(pa.date32(), pa.timestamp("us", "UTC"), pa.decimal128(9, 2), pa.decimal256(40, 0), pa.binary(16)),
)


def column(numbers: list[int], kind: pa.DataType) -> pa.Array:
    if pa.types.is_boolean(kind):
        return pa.array([number % 2 == 1 for number in numbers], kind)
    if pa.types.is_integer(kind) or pa.types.is_decimal(kind):
        return pa.array(numbers, kind)
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return pa.array(numbers, pa.int32() if pa.types.is_date(kind) else pa.int64()).cast(kind)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return pa.array(["x" * number for number in numbers], kind)
    if pa.types.is_fixed_size_binary(kind):
        return pa.array([number.to_bytes(16, "big") for number in numbers], kind)
    return pa.array([b"\x00" * number for number in numbers], kind)


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_hashes_tell_the_values_of_every_type_apart(kind: pa.DataType) -> None:
    distinct = column(list(range(100)), kind)
    expected = 2 if pa.types.is_boolean(kind) else 100
    assert len(set(KeySet([distinct]).hashes.tolist())) == expected


@pytest.mark.one_in(2)
@pytest.mark.parametrize("kinds", [*((kind,) for kind in TYPES), (pa.string(), pa.uint8())], ids=str)
@given(data=st.data())
def test_index_and_matcher_equal_a_dict(kinds: tuple[pa.DataType, ...], data: st.DataObject) -> None:
    row = st.tuples(*(SMALL for _ in kinds))
    stored = data.draw(st.lists(row, max_size=12))
    wanted = data.draw(st.lists(row, max_size=12))
    if any(pa.types.is_boolean(kind) for kind in kinds):
        stored, wanted = ([tuple(n % 2 for n in one) for one in rows] for rows in (stored, wanted))

    def as_set(rows: list[tuple[int, ...]]) -> KeySet:
        return KeySet([column([one[at] for one in rows], kind) for at, kind in enumerate(kinds)])

    newest = {key: at for at, key in enumerate(stored)}
    found, rows = KeyIndex.build(as_set(stored)).lookup(as_set(wanted))
    expected = [(at, newest[key]) for at, key in enumerate(wanted) if key in newest]
    assert list(zip(found.tolist(), rows.tolist(), strict=True)) == expected

    if not stored:
        return
    matcher = KeyMatcher(as_set(stored))
    assert matcher.count == len(newest)
    hit, numbers = matcher.match(as_set(wanted).columns)
    assert hit.tolist() == [at for at, key in enumerate(wanted) if key in newest]
    number_of = dict(zip(stored, matcher.number_of_row.tolist(), strict=True))
    assert numbers.tolist() == [number_of[wanted[at]] for at in hit]


def test_equal_hashes_of_different_keys_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    def constant(columns: list[pa.Array]) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
        return np.zeros(len(columns[0]), dtype=np.uint64)

    monkeypatch.setattr(keys_module, "hash_keys", constant)
    index = KeyIndex.build(KeySet([pa.array(["5", "6", "7", "6"])]))
    found, rows = index.lookup(KeySet([pa.array(["7", "8", "6"])]))
    assert list(zip(found.tolist(), rows.tolist(), strict=True)) == [(0, 2), (2, 3)]
    merged = KeyIndex.merge([KeyIndex.build(KeySet([pa.array([key])])) for key in ("5", "6", "7", "6")])
    found, rows = merged.lookup(KeySet([pa.array(["7", "8", "6"])]))
    assert list(zip(found.tolist(), rows.tolist(), strict=True)) == [(0, 2), (2, 3)]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("kind", TYPES, ids=str)
@given(lists=st.lists(st.lists(SMALL, max_size=5), min_size=1, max_size=5))
def test_a_merged_index_equals_one_that_is_built(kind: pa.DataType, lists: list[list[int]]) -> None:
    merged = KeyIndex.merge([KeyIndex.build(KeySet([column(one, kind)])) for one in lists])
    built = KeyIndex.build(KeySet([column([number for one in lists for number in one], kind)]))
    assert merged.hashes.tolist() == built.hashes.tolist()
    assert merged.rows.tolist() == built.rows.tolist()
    assert merged.keys.columns == built.keys.columns


@pytest.mark.parametrize("kind", [pa.int8(), pa.date32()], ids=str)
@given(lists=st.lists(st.lists(st.integers(-6, 6), max_size=3), min_size=1, max_size=4))
def test_keys_follow_if_all_ascend_and_they_are_greater(kind: pa.DataType, lists: list[list[int]]) -> None:
    *others, newer = (KeySet([pa.array(keys, pa.int32()).cast(kind)]) for keys in lists)
    *before, last = lists
    ascend = all(keys == sorted(set(keys)) for keys in lists)
    greater = bool(last) and all(key < last[0] for keys in before for key in keys)
    assert newer.follow(others) == (ascend and greater)


def test_texts_and_several_columns_are_not_known_to_follow() -> None:
    numbers = pa.array([1, 2])
    assert KeySet([numbers]).follow([])
    assert not KeySet([numbers, numbers]).follow([])
    assert not KeySet([pa.array(["a", "b"])]).follow([])


def test_composite_numbers_do_not_overflow() -> None:
    many = [pa.array(np.arange(3000)) for _ in range(8)]
    matcher = KeyMatcher(KeySet(many))
    rows, numbers = matcher.match([one[::-1] for one in many])
    assert rows.tolist() == list(range(3000))
    assert numbers.tolist() == matcher.number_of_row[::-1].tolist()
