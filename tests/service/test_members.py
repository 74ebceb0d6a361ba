"""The processes of a root: who lives, and whether this one can work."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.service.test_planted_bugs import Root
from weir.errors import StorageError
from weir.service.ownership import members as module
from weir.service.ownership.members import Members
from weir.service.ownership.owners import Owners
from weir.storage.local import LocalStore


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalStore:
    monkeypatch.setattr(module, "_SECONDS_BETWEEN", 0.02)
    monkeypatch.setattr(module, "_SECONDS_SILENT", 0.5)
    monkeypatch.setattr(module, "_SECONDS_KNOWN", 0.0)
    return LocalStore(str(tmp_path / "root"), fsync=False)


@pytest.fixture
def here(store: LocalStore) -> Iterator[Members]:
    members = Members(store, "http://here", Members.new_id())
    members.start()
    yield members
    members.stop()


def test_each_knows_the_others(store: LocalStore, here: Members) -> None:
    other = Members(store, "http://other", Members.new_id())
    other.start()
    assert {one.url for one in here.live()} == {"http://here", "http://other"}
    assert not here.trouble()
    other.stop()
    assert [one.url for one in here.live()] == ["http://here"]


@pytest.mark.parametrize("wrong", [-7200.0, 7200.0])
def test_a_clock_that_is_wrong_makes_nobody_gone(
    store: LocalStore, here: Members, monkeypatch: pytest.MonkeyPatch, wrong: float
) -> None:
    other = Members(store, "http://other", Members.new_id())
    other.start()
    right = time.time
    monkeypatch.setattr(time, "time", lambda: right() + wrong)
    assert {one.url for one in here.live()} == {"http://here", "http://other"}
    monkeypatch.undo()
    other.stop()


def test_a_disk_that_is_gone_is_not_written_to_and_is_told(
    tmp_path: Path, store: LocalStore, here: Members
) -> None:
    (tmp_path / "root").rename(tmp_path / "gone")
    (tmp_path / "root").mkdir()
    until(lambda: here.trouble() == "the storage is not the one that was served")
    assert not [*(tmp_path / "root").iterdir()]
    shutil.rmtree(tmp_path / "root")
    (tmp_path / "gone").rename(tmp_path / "root")
    until(lambda: not here.trouble())


def test_storage_that_does_not_answer_is_told_without_waiting_for_it(
    store: LocalStore, here: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck = threading.Event()

    def fail(self: LocalStore, path: str, data: object) -> None:
        stuck.wait(30)
        raise StorageError("nobody answers")

    monkeypatch.setattr(LocalStore, "put", fail)
    until(lambda: here.trouble() == "the storage does not answer")
    monkeypatch.undo()
    stuck.set()
    until(lambda: not here.trouble())


def test_readiness_tells_of_loops_and_of_storage(tmp_path: Path, store: LocalStore, here: Members) -> None:
    root = Root(tmp_path)
    root.service.owners = Owners(here)
    assert root.ask("GET", "/readyz") == (200, {"status": "ready", "s3_connected": True})
    root.service.loops["upkeep"] = lambda: False
    assert root.ask("GET", "/readyz")[0] == 503
    assert root.ask("GET", "/healthz")[0] == 200
    root.service.loops.clear()
    (tmp_path / "root").rename(tmp_path / "gone")
    until(lambda: root.ask("GET", "/readyz")[0] == 503)
    (tmp_path / "gone").rename(tmp_path / "root")
    until(lambda: root.ask("GET", "/readyz")[0] == 200)
