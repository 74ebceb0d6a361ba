from __future__ import annotations

from pathlib import Path

import pytest

from weir.demo.embedded import run_embedded_demo
from weir.demo.options import DemoOptions
from weir.demo.patience import Patience, load
from weir.demo.writer import WriterTask
from weir.errors import WriterError


@pytest.mark.parametrize("busy", [1.0, 4.0])
def test_a_minute_without_progress_is_an_error_that_says_where_it_stands(busy: float) -> None:
    now = [100.0]
    patience = Patience("process 7", lambda: "3 of 8 files", clock=lambda: now[0], load=lambda: busy)
    for progress in (1, 2, 3):
        patience.look(progress)
        now[0] += 59 * busy
        patience.look(progress)
    now[0] += busy
    with pytest.raises(
        WriterError, match=rf"nothing has moved for {60 * busy:.0f} s: 3 of 8 files"
    ) as caught:
        patience.look(3)
    assert caught.value.where == "process 7"
    # Whatever changes is progress.
    patience.look(2)


def test_the_load_never_makes_it_shorter() -> None:
    assert load() >= 1.0


@pytest.mark.long
def test_a_writer_that_stands_still_ends_the_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has acknowledged a batch, and then sleeps."""
    monkeypatch.setattr("weir.demo.patience.PATIENCE_SECONDS", 1.0)
    asleep = """
import time
from weir.demo.writer import Acknowledgement
print(Acknowledgement(0, 10, 0.1).to_line(), flush=True)
time.sleep(1000)
"""
    command = WriterTask.command
    monkeypatch.setattr(WriterTask, "command", lambda task: [*command(task)[:1], "-c", asleep])
    with pytest.raises(WriterError, match="1 of 60 batches are acknowledged"):
        run_embedded_demo(DemoOptions(directory=tmp_path, flights=400, fsync=False))
