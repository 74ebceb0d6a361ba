"""Upkeep: what is written is merged, also that of processes that are gone; what nobody uses is let go of."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path

import lance
import pytest

import weir
import weir.namespaces
from tests.service.test_planted_bugs import Root
from weir.engine import failpoint
from weir.namespaces import Documents, Namespace, Namespaces, Write
from weir.namespaces.statistics import Statistics, statistics_of
from weir.service import upkeep
from weir.service.context import Service
from weir.service.keys.store import KeyStore
from weir.service.options import ServiceOptions
from weir.service.telemetry import Telemetry
from weir.service.upkeep import Upkeep
from weir.table.maintenance import TableMaintenance


def opened(root: Path, process: str) -> Namespaces:
    return weir.namespaces.open(root, fsync=False, holder=process, engine=weir.Engine(maintenance="off"))


@contextmanager
def looked_after(namespaces: Namespaces) -> Iterator[Upkeep]:
    """Run a loop of upkeep for the length of a block."""
    service = Service(namespaces, KeyStore(namespaces.store), ServiceOptions(fsync=False))
    loop = Upkeep(service, Telemetry(weir.Engine().metrics, namespaces), 0.02)
    loop.start()
    try:
        yield loop
        assert service.loops["upkeep"]()
    finally:
        assert loop.stop(60)


def test_an_error_that_nobody_expected_does_not_end_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds: list[int] = []

    def fails(_: Upkeep) -> None:
        rounds.append(1)
        raise RuntimeError("dictionary changed size during iteration")

    monkeypatch.setattr(Upkeep, "_sweep", fails)
    with opened(tmp_path, "here") as namespaces, looked_after(namespaces):
        until(lambda: len(rounds) > 2)


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


def write(namespace: Namespace, id: int) -> None:
    namespace.write(Write(upserts=Documents.of_rows([{"id": id, "title": "walrus"}])))


def is_merged(namespace: Namespace) -> bool:
    status = namespace.opened().table.status()
    return not any(one.unflushed_rows or one.unmerged_generations for one in status.shards)


def marks(root: Path) -> set[str]:
    # A directory that goes meanwhile is passed over.
    return {f"{Path(at).name}/{name}" for at, _, names in os.walk(root / "dirty") for name in names}


def test_what_nobody_uses_is_merged_and_let_go_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "_SECONDS_UNUSED", 0.1)
    monkeypatch.setattr(upkeep, "_HORIZON", timedelta(hours=1))
    with ExitStack() as closing:
        namespaces, others = (closing.enter_context(opened(tmp_path, one)) for one in ("a", "b"))
        write(namespaces.namespace("docs"), 1)
        assert marks(tmp_path) == {"a/docs"}
        with looked_after(namespaces):
            until(lambda: not namespaces.open_here())
        # Nobody waits for a lease.
        write(others.namespace("docs"), 2)
        assert others.namespace("docs").count() == 2
        assert marks(tmp_path) == {"a/docs", "b/docs"}


def test_garbage_goes_when_nothing_is_written_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "_SECONDS_UNUSED", 0.05)
    monkeypatch.setattr(upkeep, "_HORIZON", timedelta(0))
    with opened(tmp_path, "a") as namespaces:
        docs = namespaces.namespace("docs")
        for id in range(3):
            write(docs, id)
            docs.compact()
        logs = [*(tmp_path / "namespaces" / "docs").rglob("wal/*.arrow")]
        assert logs
        with looked_after(namespaces):
            until(lambda: not marks(tmp_path))
        assert not namespaces.open_here()
        assert docs.count() == 3
        left = [*(tmp_path / "namespaces" / "docs").rglob("*_gen_*")]
        assert not left
        # Nor former versions of the documents: a namespace would grow with every write.
        assert len(lance.dataset(docs.opened().table.uri).versions()) == 1


def test_former_versions_go_while_a_namespace_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[timedelta | None] = []

    def run(_: TableMaintenance, *, version_retention: timedelta | None = None) -> None:
        asked.append(version_retention)

    monkeypatch.setattr(TableMaintenance, "run", run)
    with opened(tmp_path, "a") as namespaces:
        docs = namespaces.namespace("docs")
        write(docs, 1)
        for _ in range(2):
            docs.compact()
            docs.opened().pruned_at -= 3600
        docs.compact()
        docs.compact()
    assert asked == [None, timedelta(minutes=15), timedelta(minutes=15), None]


def test_what_a_process_left_is_found_by_its_mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "_SWEPT_AT_ONCE", 0)
    gone = opened(tmp_path, "gone")
    for name in (".docs", "more"):
        write(gone.namespace(name), 1)
    held = gone.namespace("more").opened().writer()
    gone.namespace(".docs").close()
    with opened(tmp_path, "here") as namespaces, looked_after(namespaces):
        until(lambda: "here/%2Edocs" in marks(tmp_path))
        assert is_merged(namespaces.namespace(".docs"))
        # Somebody writes it still.
        assert "gone/more" in marks(tmp_path)
        assert not is_merged(namespaces.namespace("more"))
        held.close()
        until(lambda: is_merged(namespaces.namespace("more")))
        until(lambda: marks(tmp_path) == {"here/%2Edocs", "here/more"})
    gone.close()


def test_what_nobody_has_marked_is_found_in_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "_SWEPT_AT_ONCE", 2)
    names = [f"docs-{number}" for number in range(5)]
    with weir.namespaces.open(tmp_path, fsync=False) as library:
        for name in names:
            write(library.namespace(name), 1)
    assert not marks(tmp_path)
    with opened(tmp_path, "here") as namespaces, looked_after(namespaces):
        until(lambda: marks(tmp_path) == {f"here/{name}" for name in names})
        assert all(is_merged(namespaces.namespace(name)) for name in names)


def test_a_write_that_comes_when_its_table_is_let_go_of_is_done(tmp_path: Path) -> None:
    with opened(tmp_path, "a") as namespaces:
        docs = namespaces.namespace("docs")
        write(docs, 1)
        docs.compact()
        before = docs.opened()
        assert docs.rest(0.0)
        assert not docs.is_open
        assert docs.opened() is not before
        write(docs, 2)
        assert not docs.rest(0.0), "there is something to merge"
        docs.compact()
        assert docs.rest(0.0)
        assert docs.count() == 2


def test_a_namespace_that_is_deleted_while_it_is_merged_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = Root(tmp_path)
    root.write("docs", upsert_rows=[{"id": 1, "v": 1}])
    begun, go, reached = threading.Event(), threading.Event(), failpoint.reach

    def held(place: str) -> None:
        if place == "merge.before_commit":
            begun.set()
            assert go.wait(60)
        reached(place)

    monkeypatch.setattr(failpoint, "reach", held)
    docs = root.namespaces.namespace("docs")
    table = docs.definition.table
    with ThreadPoolExecutor(1) as threads:
        merged = threads.submit(docs.maintain)
        assert begun.wait(60)
        # Nobody waits for a merge that may take minutes.
        assert root.ask("DELETE", "/v2/namespaces/docs")[0] == 200
        assert root.ask("POST", "/v2/namespaces/docs/query", {"rank_by": ["id", "asc"]})[0] == 404
        go.set()
        merged.result()
    root.write("docs", upsert_rows=[{"id": 2, "v": 2}])
    assert root.values("docs") == {2: 2}
    docs.remove_leftovers()
    assert table not in root.namespaces.store.list_directories("namespaces/docs")
    assert root.values("docs") == {2: 2}


def test_a_write_beside_a_deletion_makes_the_namespace_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = Root(tmp_path)
    root.write("docs", upsert_rows=[{"id": 1, "v": 1}])

    def deleted_before(namespace: Namespace) -> Statistics:
        monkeypatch.undo()
        namespace.delete()
        return statistics_of(namespace)

    monkeypatch.setattr("weir.service.context.statistics_of", deleted_before)
    root.write("docs", upsert_rows=[{"id": 2, "v": 2}])
    assert root.values("docs") == {2: 2}


def test_what_was_written_to_a_deleted_table_goes_a_day_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upkeep, "_SECONDS_BETWEEN_EXPIRIES", 0.0)
    with opened(tmp_path, "a") as namespaces:
        docs = namespaces.namespace("docs")
        write(docs, 1)
        table = docs.definition.table
        docs.delete()
        namespaces.store.put(f"namespaces/docs/{table}/data/late.lance", b"rows")
        with looked_after(namespaces):
            until(lambda: "a/docs" in marks(tmp_path))
            assert namespaces.names() == []
            monkeypatch.setattr("weir.namespaces.tables._KEPT", timedelta(seconds=-5))
            until(lambda: not [*namespaces.store.list("unnamed")])
        assert not [*namespaces.store.list("namespaces")]
