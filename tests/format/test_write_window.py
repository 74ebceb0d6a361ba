"""The window of single writes: values, their bytes, and what is forgotten."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weir.errors import CorruptionError
from weir.format import write_window
from weir.format.write_window import DoneWrite, WriteWindow, decode_answer, encode_answer

WRITES = st.dictionaries(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    st.builds(
        DoneWrite, st.integers(0, (1 << 63) - 1), st.integers(0, (1 << 64) - 1), st.binary(max_size=20)
    ),
    max_size=9,
)


@given(done=st.lists(st.booleans(), max_size=300))
def test_an_answer_says_which_rows_were_done(done: list[bool]) -> None:
    answer = encode_answer(np.array(done, dtype=bool))
    read = decode_answer(answer, len(done))
    assert read is not None
    assert read.tolist() == done
    assert (decode_answer(answer, len(done) + 1) is None) == (not all(done))


def test_an_answer_about_many_rows_is_small() -> None:
    done = np.ones(1_000_000, dtype=bool)
    done[77] = False
    assert len(encode_answer(done)) < 1000


@given(st.lists(WRITES, max_size=8))
def test_a_window_returns_what_it_was_given(groups: list[dict[str, DoneWrite]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(write_window, "SEGMENT_IDS", 4)
        window, expected = WriteWindow(), dict[str, DoneWrite]()
        for group in groups:
            new = {write_id: done for write_id, done in group.items() if write_id not in expected}
            window = window.with_done(new)
            expected |= new
        read = WriteWindow.decode(window.encode(), where="here")
        assert read == window
        for one in (window, read):
            assert len(one) == len(expected)
            assert {write_id: one.get(write_id) for write_id in expected} == expected
            assert one.get("another") is None
            assert one.known([*expected, "another"]) == set(expected)
            assert one.known([]) == set()


def test_the_oldest_are_forgotten_and_65536_are_not() -> None:
    window = WriteWindow()
    for start in range(0, 200_000, 500):
        window = window.with_done({str(n): DoneWrite(n, n // 500) for n in range(start, start + 500)})
        assert len(window) <= 65_536 + 2 * write_window.SEGMENT_IDS
    assert all(window.get(str(n)) == DoneWrite(n, n // 500) for n in range(200_000 - 65_536, 200_000))
    assert window.get("0") is None
    stored = window.encode()
    assert sum(map(len, stored)) < 24 * len(window)
    assert WriteWindow.decode(stored, where="here").get("199999") == DoneWrite(199_999, 399)


def test_large_answers_are_forgotten_earlier(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_window, "MAX_WINDOW_BYTES", 1 << 20)
    random = np.random.default_rng(1)
    window = WriteWindow()
    for n in range(200):
        window = window.with_done({str(n): DoneWrite(0, n, random.bytes(20_000))})
    assert sum(map(len, window.encode())) < (1 << 20) + (200 << 10)
    assert window.get("199") is not None
    assert window.get("0") is None


@pytest.mark.parametrize("segment", [b"", b"\x01\x00\x00", b"\x02\x00\x00\x00" + bytes(31), bytes(4) + b"no"])
def test_what_is_no_segment_is_refused(segment: bytes) -> None:
    with pytest.raises(CorruptionError, match="write ids"):
        WriteWindow.decode([segment], where="here")
