"""Real processes whose wall clocks are hours apart, and jump while they are at work."""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tests
import weir
from weir import errors

ROOT = Path(tests.__path__[0]).parent
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])
HOUR = 3600.0
# A process in a process namespace of its own is taken for one of another machine: it shares no uptime.
_ELSEWHERE = (["unshare", "--pid", "--fork"], ["unshare", "--map-root-user", "--pid", "--fork"])


class Process:
    """A process of :mod:`tests.faults.clocks`, and its clock."""

    def __init__(self, uri: Path, library: Path, clock: Path, before: list[str]) -> None:
        self._clock = clock
        self.set_clock(0.0)
        self._process = subprocess.Popen(
            [*before, sys.executable, "-m", "tests.faults.clocks", str(uri)],
            cwd=ROOT,
            env={**os.environ, "LD_PRELOAD": str(library), "SHIFTED_CLOCK": str(clock)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def set_clock(self, shift: float) -> None:
        """Set the wall clock so many seconds before or after the right time."""
        with open(self._clock, "r+b" if self._clock.exists() else "wb") as file:
            file.write(struct.pack("d", shift))

    def do(self, name: str, *arguments: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([name, arguments]) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        if "error" in answer:
            raise getattr(errors, answer["error"])(answer["text"])
        return answer["result"]

    def end(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(60)
        self._process.stdout.close()


Start = Callable[..., Process]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc")
    if sys.platform != "linux" or compiler is None:
        pytest.skip("needs Linux and a C compiler to shift the clock of a process")
    built = tmp_path_factory.mktemp("clock") / "shifted_clock.so"
    source = Path(__file__).with_name("shifted_clock.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", built, source, "-ldl"], check=True)
    return built


@pytest.fixture
def start(tmp_path: Path, library: Path) -> Iterator[Start]:
    weir.create(tmp_path / "table", SCHEMA, primary_key="id", fsync=False)
    started: list[Process] = []

    def start_one(*, elsewhere: bool = False) -> Process:
        before = elsewhere_command() if elsewhere else []
        clock = tmp_path / f"clock-{len(started)}"
        started.append(Process(tmp_path / "table", library, clock, before))
        return started[-1]

    yield start_one
    for process in started:
        process.end()


def elsewhere_command() -> list[str]:
    for way in _ELSEWHERE:
        if shutil.which(way[0]) and subprocess.run([*way, "true"], capture_output=True).returncode == 0:
            return way
    pytest.skip("needs the right to make a process namespace")


def test_the_clock_of_a_process_can_be_set(start: Start) -> None:
    process = start()
    for shift in (0.0, 6 * HOUR, -6 * HOUR):
        process.set_clock(shift)
        assert abs(process.do("now") - time.time() - shift) < 60


@pytest.mark.long
@pytest.mark.parametrize("shift", [6 * HOUR, pytest.param(-6 * HOUR, marks=pytest.mark.long)])
def test_writers_of_one_machine_need_no_right_time(start: Start, shift: float) -> None:
    """Their leases go by the uptime, which they have in common."""
    holder, claimer = start(), start()
    positions = [holder.do("write", 1, "holder")]
    claimer.set_clock(shift)
    with pytest.raises(errors.LeaseHeldError):
        claimer.do("write", 2, "polite")
    # In the middle of its session, forward and back: it holds its lease as before.
    for jump in (shift, -shift, 0.0):
        holder.set_clock(jump)
        positions.append(holder.do("write", 1, f"after a jump of {jump}"))
        with pytest.raises(errors.LeaseHeldError):
            claimer.do("write", 2, "polite")
    positions.append(claimer.do("write", 3, "taken over", True))
    holder.set_clock(shift)
    with pytest.raises(errors.FencedError):
        holder.do("write", 1, "late")
    positions.append(claimer.do("write", 4, "after"))
    assert len(set(positions)) == len(positions), "two writes were acknowledged at one position"
    expected = {"1": "after a jump of 0.0", "3": "taken over", "4": "after"}
    assert holder.do("scan") == claimer.do("scan") == expected


@pytest.mark.parametrize("shift", [pytest.param(6 * HOUR, marks=pytest.mark.long), -6 * HOUR])
def test_writers_of_two_machines_with_wrong_clocks_never_share_a_position(start: Start, shift: float) -> None:
    """A clock that is hours ahead takes a lease for run out; the fence entry keeps the two apart."""
    holder, claimer = start(), start(elsewhere=True)
    positions = [holder.do("write", 1, "holder")]
    claimer.set_clock(shift)
    expected = {"1": "holder"}
    if shift < 0:
        with pytest.raises(errors.LeaseHeldError):
            claimer.do("write", 2, "polite")
        positions.append(holder.do("write", 1, "still there"))
        expected = {"1": "still there"}
        positions.append(claimer.do("write", 2, "claimed", True))
    else:
        positions.append(claimer.do("write", 2, "claimed"))
    with pytest.raises(errors.FencedError):
        holder.do("write", 1, "late")
    positions.append(claimer.do("write", 3, "after"))
    assert len(set(positions)) == len(positions), "two writes were acknowledged at one position"
    assert holder.do("scan") == {**expected, "2": "claimed", "3": "after"}


def test_a_collector_whose_clock_jumps(start: Start) -> None:
    """The time of a collection is that of the file system, which all processes have in common."""
    writer, collector = start(), start()
    for number in range(4):
        writer.do("write", number, "first")
        writer.do("flush")
    token, kept = collector.do("snapshot", 1.0), collector.do("snapshot", 100.0)
    then = writer.do("scan")
    writer.do("write", 0, "second")
    writer.do("flush")
    assert writer.do("merge") == 5
    now = writer.do("scan")
    # Back, and forward past the horizon and past the time of a token: nothing is due, nothing runs out.
    for hours in (0.0, -6.0, 0.5, 6.0, 48.0):
        collector.set_clock(hours * HOUR)
        assert collector.do("collect", 15.0) == 0
        assert writer.do("scan") == now
        assert writer.do("scan", token) == writer.do("scan", kept) == then
    # The marks are of that time too, whatever the clock of their collector said.
    assert collector.do("collect", 0.0) > 0
    collector.set_clock(-6 * HOUR)
    collector.do("collect", 0.0)
    assert writer.do("scan") == now
    assert writer.do("scan", kept) == then
    # The writer goes on, its log collected up to its feet; so does one whose clock is wrong.
    writer.do("write", 5, "third")
    writer.set_clock(-6 * HOUR)
    writer.do("write", 6, "fourth")
    assert collector.do("scan") == {**now, "5": "third", "6": "fourth"}
