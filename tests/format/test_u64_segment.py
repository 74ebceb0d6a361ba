"""Segments of 64-bit numbers, against bytes written by hand and a list of numbers."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.format.wire import bytes_field, bytes_fields, number_field

from weir.errors import CorruptionError, InputError
from weir.format import u64_segment
from weir.format.u64_segment import U64Segment

WHERE = "_versions/1.manifest"
U64 = st.integers(0, (1 << 64) - 1)


def ranged(kind: int, start: int, end: int, rest: bytes = b"") -> bytes:
    return bytes_field(kind, number_field(1, start) + number_field(2, end) + rest)


def array(kind: int, *numbers: int, base: int = 0) -> bytes:
    """An array of 2 (1), 4 (2) or 8 (3) bytes a number."""
    letter = {1: "H", 2: "I", 3: "Q"}[kind]
    packed = struct.pack(f"<{len(numbers)}{letter}", *(number - base for number in numbers))
    return bytes_field(kind, (number_field(1, base) if base else b"") + bytes_field(2, packed))


HUGE = (1 << 64) - 1
STORED = {
    "range": (ranged(1, 0, 5), [0, 1, 2, 3, 4]),
    "empty range": (bytes_field(1, b""), []),
    "range with holes": (ranged(2, 3, 9, bytes_field(3, array(1, 4, 7, base=4))), [3, 5, 6, 8]),
    "range with bitmap": (ranged(3, 10, 20, bytes_field(3, b"\x41\x02")), [10, 16, 19]),
    "sorted array of 2 bytes": (bytes_field(4, array(1, 7, 9, 40_000, base=7)), [7, 9, 40_000]),
    "sorted array of 4 bytes": (bytes_field(4, array(2, 7, 1 << 31, base=7)), [7, 1 << 31]),
    "sorted array of 8 bytes": (bytes_field(4, array(3, 0, HUGE)), [0, HUGE]),
    "array": (bytes_field(5, array(1, 9, 3, 5, base=3)), [9, 3, 5]),
    "nothing": (b"", []),
}


@pytest.mark.parametrize("form", STORED)
def test_every_form_is_read_and_written_back_byte_for_byte(form: str) -> None:
    stored, numbers = STORED[form]
    segment = u64_segment.decode(stored, where=WHERE)
    assert list(segment) == numbers
    assert len(segment) == len(numbers)
    assert segment.next == max(numbers, default=-1) + 1
    assert all(number in segment for number in numbers)
    assert not any(number in segment for number in {0, 4, 7, 11, HUGE} - set(numbers))
    assert u64_segment.encode(segment) == stored


def test_a_range_of_everything_is_not_counted_out() -> None:
    stored = ranged(2, 0, HUGE, bytes_field(3, array(3, 1, HUGE - 1)))
    segment = u64_segment.decode(stored, where=WHERE)
    assert len(segment.holes) == 2
    assert HUGE - 2 in segment
    assert HUGE - 1 not in segment


@pytest.mark.parametrize(
    "stored",
    [
        ranged(1, 5, 3),
        ranged(2, 0, 9, bytes_field(3, array(1, 7, 4))),
        ranged(2, 0, 9, bytes_field(3, array(1, 9))),
        ranged(2, 0, 9),
        ranged(3, 0, 9, bytes_field(3, b"\xff")),
        bytes_field(4, array(1, 5, 5)),
        bytes_field(5, bytes_field(1, bytes_field(2, b"\x00"))),
        bytes_field(5, bytes_field(1, number_field(1, HUGE) + bytes_field(2, b"\x01\x00"))),
        bytes_field(5, b""),
        bytes_field(9, b""),
        b"\x0a\x05",
    ],
)
def test_damage(stored: bytes) -> None:
    with pytest.raises(CorruptionError) as caught:
        u64_segment.decode(stored, where=WHERE)
    assert caught.value.where == WHERE


@given(st.lists(U64, max_size=20) | st.sets(st.integers(0, 200), max_size=150).map(sorted))
def test_numbers_come_back(numbers: list[int]) -> None:
    stored = u64_segment.encode(U64Segment.of(numbers))
    assert list(u64_segment.decode(stored, where=WHERE)) == numbers


@given(st.lists(st.integers(0, 40), min_size=1, max_size=30))
def test_a_log_that_grows(steps: list[int]) -> None:
    segment, numbers = U64Segment(), list[int]()
    for passed_over in steps:
        numbers.append(numbers[-1] + 1 + passed_over if numbers else passed_over)
        segment = segment.with_number(numbers[-1])
        with pytest.raises(InputError):
            segment.with_number(numbers[-1])
    assert list(segment) == numbers == list(u64_segment.decode(u64_segment.encode(segment), where=WHERE))


@pytest.mark.parametrize(
    ("rows", "kept", "form"),
    [
        (1000, "true", "range"),
        (1000, "id not in (3, 400)", "range with holes"),
        (1000, "id % 2 = 1", "range with bitmap"),
        (20_000, "id % 1000 = 7", "sorted array"),
        (100_000, "id in (5, 99999)", "sorted array"),
    ],
)
def test_the_library_stores_row_ids_in_the_same_bytes(
    tmp_path: Path, rows: int, kept: str, form: str
) -> None:
    dataset = lance.write_dataset(pa.table({"id": range(rows)}), str(tmp_path), enable_stable_row_ids=True)
    if kept != "true":
        dataset.delete(f"not ({kept})")
        dataset.optimize.compact_files(materialize_deletions_threshold=0.0)
    numbers = dataset.to_table().column("id").to_pylist()
    newest = max((tmp_path / "_versions").glob("*.manifest"), key=lambda path: path.stat().st_mtime_ns)
    data = newest.read_bytes()
    (at,) = struct.unpack("<Q", data[-16:-8])
    (length,) = struct.unpack("<I", data[at : at + 4])
    (fragment,) = bytes_fields(2, data[at + 4 : at + 4 + length])
    (sequence,) = bytes_fields(5, fragment)
    (stored,) = bytes_fields(1, sequence)
    segment = u64_segment.decode(stored, where=WHERE)
    assert (segment.form, list(segment)) == (form, numbers)
    assert u64_segment.encode(replace(segment, encoded=None)) == stored


@pytest.mark.parametrize(
    ("numbers", "form"),
    [
        (range(100), "range"),
        ([*range(50), *range(51, 100)], "range with holes"),
        (range(0, 300, 2), "range with bitmap"),
        (range(0, 100_000, 1000), "sorted array"),
        ([3, 1, 2], "array"),
        ([], "range"),
    ],
)
def test_the_form_that_takes_the_fewest_bytes(numbers: list[int], form: str) -> None:
    assert U64Segment.of(numbers).form == form


def test_what_is_no_number_of_64_bits() -> None:
    for number in (-1, 1 << 64):
        with pytest.raises(InputError, match="64 bits"):
            U64Segment.of([number])
    assert np.uint64(3) not in U64Segment.of([1, 2])
