"""The power is cut while everybody writes."""

from __future__ import annotations

import os
import subprocess
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


def test_the_power_is_back_although_somebody_copied_the_mounts(tmp_path: Path) -> None:
    if not can_cut(tmp_path / "probe"):
        pytest.skip("needs the right to mount a file system that can be shut down, as root")
    with disk(tmp_path) as power:
        (power.mounted / "a").write_text("there")
        os.sync()
        command = ["unshare", "--mount", "sh", "-c", "echo copied; read _"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
            assert holder.stdout is not None
            assert holder.stdout.readline() == b"copied\n"
            power.cut()
            with pytest.raises(TimeoutError, match="mounted"):
                power.unmount(patience=0.2)
            holder.communicate(b"go on\n")
            power.wait_until_free()
        power.mount()
        assert (power.mounted / "a").read_text() == "there"
