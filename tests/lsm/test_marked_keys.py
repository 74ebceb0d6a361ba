"""Numbers that lie close together, looked up in a table of marks."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from weir.lsm.marked_keys import MarkedKeys, lie_close


@pytest.mark.parametrize("kind", ["int8", "uint8", "int16", "int32", "uint32", "int64", "uint64"])
@pytest.mark.parametrize("end", ["least", "greatest", "middle"])
def test_each_number_has_a_bit_for_every_set_that_has_it(kind: str, end: str) -> None:
    limits, generator = np.iinfo(kind), np.random.default_rng(1)
    least, greatest = int(limits.min), int(limits.max)
    low = {"least": least, "greatest": greatest - 99, "middle": (least + greatest) // 2}[end]
    sets = [np.array([low + int(at) for at in generator.integers(0, 100, 30)], kind) for _ in range(11)]
    asked = np.array([least, greatest, *range(low, min(low + 120, greatest + 1))], kind)
    marked = MarkedKeys.of([pa.array(one) for one in sets])
    assert marked is not None
    marks = marked.marks_of(asked)
    for at, one in enumerate(sets):
        assert np.array_equal(marks >> at & 1 != 0, np.isin(asked, one))


def test_all_numbers_of_a_narrow_type_may_be_keys() -> None:
    keys = np.arange(-128, 128).astype(np.int8)
    marked = MarkedKeys.of([pa.array(keys)])
    assert marked is not None
    assert marked.marks_of(keys).all()


@pytest.mark.parametrize("count", [8, 9, 64])
def test_there_may_be_as_many_sets_as_a_number_has_bits(count: int) -> None:
    marked = MarkedKeys.of([pa.array([at]) for at in range(count)])
    assert marked is not None
    assert marked.marks_of(np.arange(count)).tolist() == [1 << at for at in range(count)]


@pytest.mark.parametrize(
    "sets",
    [
        [pa.array([0, 1 << 40])],
        [pa.array([-(1 << 63)]), pa.array([(1 << 63) - 1])],
        [pa.array(["a", "b"])],
        [pa.array([], pa.int64())],
        [pa.array([at]) for at in range(65)],
    ],
    ids=["apart", "as far apart as can be", "texts", "none", "many sets"],
)
def test_others_are_left_to_the_key_index(sets: list[pa.Array]) -> None:
    assert MarkedKeys.of(sets) is None


def test_one_set_shows_whether_its_keys_lie_close() -> None:
    assert lie_close(pa.array([7, 5, 1 << 20]))
    assert not lie_close(pa.array([7, 1 << 40]))
    assert not lie_close(pa.array(["a"]))
