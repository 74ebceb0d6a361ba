from __future__ import annotations

import time

import pytest

from weir.indexing.library_message import library_message


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("Not found: a.lance, /home/somebody/rust/lance-io/src/local.rs:12:9", "Not found: a.lance"),
        ("it failed, rust/a.rs:3:4 for good", "it failed for good"),
        ("a.rs:1", ""),
        ("the column xrs:1 is unknown", "the column xrs:1 is unknown"),
    ],
)
def test_places_in_the_source_are_left_out(said: str, told: str) -> None:
    assert library_message(OSError(said)) == told


def test_a_long_word_takes_time_in_proportion() -> None:
    """A filter may be one word of any length, and the library repeats it."""

    def seconds(count: int) -> float:
        error = OSError("x" * count)
        taken = []
        for _ in range(5):
            began = time.process_time()
            library_message(error)
            taken.append(time.process_time() - began)
        return min(taken)

    assert seconds(80_000) < 32 * max(seconds(5_000), 1e-5)
