"""The rows of a flush, piece by piece."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weir.write.flush import generation_rows
from weir.write.flush.generation_rows import GenerationRows

PIECE = 1024


@given(puts=st.lists(st.integers(0, 200), min_size=1, max_size=20), seed=st.integers(0, 99))
@settings(max_examples=200, deadline=None)
def test_pieces_hold_the_live_rows_in_their_order(puts: list[int], seed: int) -> None:
    """Puts of 0 to 200 rows of 16 bytes, some of them replaced."""
    generator = np.random.default_rng(seed)
    batches = [
        pa.record_batch({"id": generator.integers(0, 300, count), "value": generator.random(count)})
        for count in puts
    ]
    written = pa.Table.from_batches(batches)
    rows = GenerationRows.of(written, ("id",))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(generation_rows, "_PIECE_BYTES", PIECE)
        pieces = list(rows.pieces())
    assert pa.Table.from_batches(pieces, written.schema).equals(rows.to_table())
    assert all(0 < piece.num_rows <= PIECE // 16 for piece in pieces)
    # Of two that follow each other one at least is no crumb.
    assert all(a.num_rows + b.num_rows >= PIECE // 32 for a, b in pairwise(pieces))


def test_large_puts_of_new_keys_are_handed_on_without_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generation_rows, "_PIECE_BYTES", PIECE)
    put = pa.record_batch({"id": np.arange(1000), "value": np.arange(1000.0)})
    rows = GenerationRows.of(pa.Table.from_batches([put]), ("id",))
    for piece in rows.pieces():
        assert piece.column("value").buffers()[1].address == put.column("value").buffers()[1].address
