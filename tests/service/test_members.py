"""The processes of a root: who lives, and whether this one can work."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.service.test_planted_bugs import Root
from tests.storage.s3 import S3Endpoint, s3_endpoint
from weir.errors import DiskFullError, StorageError
from weir.service.ownership import members as module
from weir.service.ownership.members import Members
from weir.service.ownership.owners import Owners
from weir.storage.local import LocalStore
from weir.storage.open import open_store

__all__ = ["s3_endpoint"]


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


def test_a_backup_in_the_place_of_the_root_is_told(tmp_path: Path, store: LocalStore, here: Members) -> None:
    shutil.copytree(tmp_path / "root", tmp_path / "backup")
    said = f"processes/{here.here.id}.json"
    then = (tmp_path / "backup" / said).read_bytes()
    until(lambda: (tmp_path / "root" / said).read_bytes() != then)
    assert not here.trouble()
    (tmp_path / "root").rename(tmp_path / "former")
    # An announcement may be on its way.
    shutil.copytree(tmp_path / "backup", tmp_path / "root", dirs_exist_ok=True)
    until(lambda: here.is_elsewhere)


def test_a_backup_from_before_the_process_is_told(store: LocalStore, here: Members) -> None:
    """Also where the root's own mark looks as it did: the announcement is missing."""
    said = f"processes/{here.here.id}.json"

    def is_told_without_it() -> bool:
        store.delete([said])  # again where one was on its way
        return here.is_elsewhere

    until(is_told_without_it)


def test_a_backup_on_an_object_store_is_told(s3_endpoint: S3Endpoint, store: LocalStore) -> None:
    objects = open_store(s3_endpoint.new_uri("root"), storage_options=s3_endpoint.options)
    members = Members(objects, "http://here", Members.new_id())
    members.start()
    backup = {one.path: bytes(memoryview(objects.get(one.path))) for one in objects.list("")}
    time.sleep(1.1)  # it has times in seconds
    assert not members.is_elsewhere
    objects.delete([*backup])
    for path, content in backup.items():
        objects.put(path, content)
    until(lambda: members.is_elsewhere)
    members.stop()


def test_nothing_is_answered_from_memory_where_a_backup_took_the_place_of_the_root(
    tmp_path: Path, here: Members
) -> None:
    root = Root(tmp_path / "root")
    root.service.owners = Owners(here)
    root.write("docs", upsert_rows=[{"id": 1, "v": "kept"}])
    shutil.copytree(tmp_path / "root", tmp_path / "backup")
    root.write("docs", upsert_rows=[{"id": 1, "v": "lost"}])
    assert root.values("docs") == {1: "lost"}
    shutil.rmtree(tmp_path / "root")
    shutil.copytree(tmp_path / "backup", tmp_path / "root")
    until(lambda: here.is_elsewhere)
    for method, path, body in (
        ("POST", "/v2/namespaces/docs", {"upsert_rows": [{"id": 2, "v": "refused"}]}),
        ("POST", "/v2/namespaces/docs/query", {"rank_by": ["id", "asc"], "top_k": 10}),
        ("GET", "/v1/namespaces", None),
        ("DELETE", "/v2/namespaces/docs", None),
    ):
        status, answer = root.ask(method, path, body)
        assert status == 503, (path, answer)
        assert "has to be started again" in answer["error"]
    assert root.ask("GET", "/readyz")[0] == 503
    assert root.ask("GET", "/healthz")[0] == 200
    again = Root(tmp_path / "root")
    assert again.values("docs") == {1: "kept"}


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


def test_a_disk_that_is_full_can_be_read(
    store: LocalStore, here: Members, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = threading.Semaphore(0)

    def fail(self: LocalStore, path: str, data: object) -> None:
        refused.release()
        raise DiskFullError("No space left on device")

    monkeypatch.setattr(module, "_SECONDS_SILENT", 0.2)
    monkeypatch.setattr(LocalStore, "put", fail)
    for _ in range(30):
        assert refused.acquire(timeout=60)
        assert not here.trouble()
    assert refused.acquire(timeout=60)


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
