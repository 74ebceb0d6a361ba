"""The power is cut while everybody writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.power import Cuts, can_cut, disk


@pytest.mark.long
def test_a_table_is_open_and_right_after_the_power_was_cut(tmp_path: Path) -> None:
    if not can_cut(tmp_path / "probe"):
        pytest.skip("needs the right to mount a file system that can be shut down, as root")
    with disk(tmp_path) as power:
        cuts = Cuts(tmp_path, power, seed=7)
        for _ in range(2):
            cuts.play()
        assert cuts.counts["cuts"] == 2
