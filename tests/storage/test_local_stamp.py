from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from weir.storage.local_stamp import stamp_of

SECOND = 1_000_000_000


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that was changed so far was changed a minute ago, by both clocks."""
    for name in ("time_ns", "monotonic_ns"):
        clock = getattr(time, name)
        monkeypatch.setattr(time, name, lambda clock=clock: clock() + 60 * SECOND)


def files(directory: Path) -> list[Path]:
    """Make a directory with a file, and return both."""
    (directory / "names").mkdir()
    (directory / "names/one").write_bytes(b"content")
    return [directory / "names", directory / "names/one"]


def overwrite(directory: Path) -> None:
    """Put other bytes of the same length in place of a file's, and its time of before."""
    before = os.stat(directory / "names/one")
    (directory / "names/one").write_bytes(b"tnetnoc")
    os.utime(directory / "names/one", ns=(before.st_atime_ns, before.st_mtime_ns))


def replace(directory: Path) -> None:
    shutil.copytree(directory / "names", directory / "copy")
    shutil.rmtree(directory / "names")
    os.rename(directory / "copy", directory / "names")


def come_and_go(directory: Path) -> None:
    (directory / "names/two").touch()
    (directory / "names/two").unlink()


def put_another(directory: Path) -> None:
    (directory / "new").write_bytes(b"content")
    (directory / "new").replace(directory / "names/one")


CHANGES: dict[str, Callable[[Path], None]] = {
    "a name comes": lambda directory: (directory / "names/two").touch(),
    "a name comes and goes": come_and_go,
    "a name changes": lambda directory: os.rename(directory / "names/one", directory / "names/two"),
    "a link comes": lambda directory: os.link(directory / "names/one", directory / "names/two"),
    "a file is replaced": put_another,
    "a file is overwritten": overwrite,
    "the directory is replaced": replace,
    "the directory goes": lambda directory: shutil.rmtree(directory / "names"),
}


@pytest.mark.usefixtures("later")
@pytest.mark.parametrize("change", CHANGES)
def test_a_stamp_differs_after_a_change(on_disk: Path, change: str) -> None:
    looked_at = list(map(str, files(on_disk)))
    before = stamp_of(looked_at)
    assert before is not None
    assert before == stamp_of(looked_at)
    # The clock of the file system moves in steps of up to 10 ms.
    time.sleep(0.02)
    CHANGES[change](on_disk)
    assert before != stamp_of(looked_at)


def test_what_was_changed_just_now_has_no_stamp(on_disk: Path) -> None:
    assert [stamp_of([str(path)]) for path in files(on_disk)] == [None, None]


@pytest.mark.parametrize("seconds", [2.0, 60.0, 86_400.0])
def test_a_clock_that_was_set_back_gives_another_stamp(
    on_disk: Path, monkeypatch: pytest.MonkeyPatch, later: None, seconds: float
) -> None:
    """From then on the file system may give a change the time of an earlier one."""
    looked_at = list(map(str, files(on_disk)))
    clock = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: clock() + 2 * 86_400 * SECOND)
    before = stamp_of(looked_at)
    monkeypatch.setattr(time, "time_ns", lambda: clock() + round((2 * 86_400 - seconds) * SECOND))
    assert None is not before != stamp_of(looked_at)


@pytest.mark.usefixtures("later")
def test_what_is_not_there_has_no_stamp(on_disk: Path) -> None:
    assert stamp_of([str(on_disk / "none")]) is None


@pytest.mark.usefixtures("later")
def test_a_file_system_without_a_block_device_has_no_stamps() -> None:
    if not os.path.isdir("/proc/self") or os.major(os.stat("/proc").st_dev):
        pytest.skip("there is no such file system here")
    assert stamp_of(["/proc/sys"]) is None
