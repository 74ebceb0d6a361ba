"""The demo of the event store, with some flights."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pandas")

from weir.demo.event_store import run_event_demo


@pytest.mark.long
def test_every_answer_is_that_of_pandas_after_kills(tmp_path: Path) -> None:
    checks = run_event_demo(tmp_path / "flights", flights=4_000, kills=2)
    assert len(checks) == 10
    assert all(checks.values()), checks
