"""The namespaces below a root, as a process has them."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import weir
import weir.namespaces
from weir.errors import (
    ConflictError,
    CorruptionError,
    InputError,
    LeaseHeldError,
    NamespaceNotFoundError,
    StorageError,
)
from weir.namespaces import Documents, Write
from weir.namespaces.attributes import Attribute, AttributeType, Kind, Metric
from weir.namespaces.decision import prepare
from weir.namespaces.definition import Definition
from weir.namespaces.tables import Tables
from weir.namespaces.write import Declaration
from weir.storage.local import LocalStore

WRITE = Write(upserts=Documents.of_rows([{"id": 1, "title": "walrus"}]))


def declared(name: str) -> dict[str, Declaration]:
    """An attribute of whole numbers."""
    return {name: Declaration(Attribute(name=name, type=AttributeType(Kind.INT)))}


def test_names_that_are_asked_for_are_not_kept(tmp_path: Path) -> None:
    with weir.namespaces.open(tmp_path, fsync=False) as namespaces:
        docs = namespaces.namespace("docs")
        assert namespaces.namespace("docs") is docs
        docs.write(WRITE)
        for number in range(500):
            assert namespaces.namespace(f"none-{number}").find() is None
        assert [*namespaces._known] == ["docs"]
        assert namespaces.open_here() == [docs]
        del docs
        # Its table is open here, and so it is the same one for whoever comes next.
        assert namespaces.namespace("docs").count() == 1
        namespaces.namespace("docs").delete()
        assert namespaces.open_here() == []


@pytest.mark.parametrize("deleted", [True, False])
def test_upkeep_of_a_namespace_that_is_deleted_meanwhile_has_not_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deleted: bool
) -> None:
    with weir.namespaces.open(tmp_path, fsync=False) as namespaces:
        docs = namespaces.namespace("docs")
        docs.write(WRITE)
        opened = docs.opened()

        def fail(*given: object) -> None:
            if deleted:
                docs.delete()
            raise CorruptionError("a file of the table is missing")

        monkeypatch.setattr("weir.namespaces.upkeep.ensure_indexes", fail)
        docs.compact()
        assert opened.last_upkeep.failures == (0 if deleted else 1)


def test_what_another_process_adds_to_a_namespace_as_it_is_made_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with weir.namespaces.open(tmp_path, fsync=False) as here, weir.namespaces.open(tmp_path) as there:
        put = LocalStore.put_if_absent

        def put_and_changed(store: LocalStore, path: str, data: bytes) -> None:
            put(store, path, data)
            if path.startswith("catalog/"):
                there.namespace("docs").declare(declared("theirs"))

        monkeypatch.setattr(LocalStore, "put_if_absent", put_and_changed)
        docs = here.namespace("docs")
        docs.create(Definition.new(Kind.UINT, Metric.COSINE))
        docs.declare(declared("ours"))
        assert {*docs.definition.attributes} == {"ours", "theirs"}


def test_an_attribute_that_another_process_has_dropped_can_be_declared_again(tmp_path: Path) -> None:
    with weir.namespaces.open(tmp_path, fsync=False) as here, weir.namespaces.open(tmp_path) as there:
        docs, theirs = here.namespace("docs"), there.namespace("docs")
        docs.write(WRITE)
        for _ in range(3):
            docs.declare(declared("age"))
            assert "age" in theirs.definition.attributes
            docs.declare({"age": Declaration(None)})
            theirs.declare(declared("age"))
            theirs.declare({"age": Declaration(None)})


def test_a_column_whose_attribute_is_declared_again_meanwhile_is_not_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with weir.namespaces.open(tmp_path, fsync=False) as here, weir.namespaces.open(tmp_path) as there:
        docs, theirs = here.namespace("docs"), there.namespace("docs")
        theirs.write(WRITE)
        docs.declare(declared("age"))
        replace = type(docs)._replace

        def replace_and_declare(namespace: Any, definition: Definition, known: Any) -> Any:
            made = replace(namespace, definition, known)
            if namespace is docs and "age" not in definition.attributes:
                theirs.write(Write(upserts=Documents.of_rows([{"id": 1, "age": 7}])))
            return made

        monkeypatch.setattr(type(docs), "_replace", replace_and_declare)
        docs.declare({"age": Declaration(None)})
        monkeypatch.undo()
        assert [one["age"] for one in theirs.get([1]).to_pylist()] == [7]


@pytest.mark.parametrize("changes", ["writes", "is defined anew"])
def test_what_another_thread_adds_while_the_definition_changes_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: str
) -> None:
    others = [Write(upserts=Documents.of_rows([{"id": 2, "theirs": 5}]))]

    with weir.namespaces.open(tmp_path, fsync=False) as namespaces:
        docs = namespaces.namespace("docs")
        docs.write(WRITE)

        def another_writes() -> None:
            while others:
                docs.write(others.pop())

        if changes == "writes":

            def prepared(*given: Any) -> Any:
                another_writes()
                return prepare(*given)

            monkeypatch.setattr(weir.namespaces.namespace, "prepare", prepared)
            docs.write(Write(upserts=Documents.of_rows([{"id": 3, "ours": 6}])))
        else:

            def changed(definition: Definition) -> Definition:
                another_writes()
                return replace(definition, read_only=True)

            docs.redefine(changed)
            assert docs.definition.read_only
        assert not others
        assert docs.get([2], ["theirs"])["theirs"].to_pylist() == [5]
        assert {*docs.definition.attributes} == {"title", "theirs"} | (
            {"ours"} if changes == "writes" else set()
        )


def test_a_copy_is_not_taken_for_what_another_process_has_made_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with weir.namespaces.open(tmp_path, fsync=False) as here, weir.namespaces.open(tmp_path) as there:
        here.namespace("docs").write(WRITE)
        clone = Tables.clone

        def cloned(*given: object) -> weir.Table:
            there.namespace("copy").write(WRITE)
            return clone(*given)  # type: ignore[arg-type]

        monkeypatch.setattr(Tables, "clone", cloned)
        with pytest.raises(InputError, match="already"):
            here.namespace("copy").copy_from(here.namespace("docs"))


def test_tables_that_dead_processes_left_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with weir.namespaces.open(tmp_path, fsync=False, holder="one") as namespaces:
        docs = namespaces.namespace("docs")

        def dies(*given: object) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as dying:
            dying.setattr(Tables, "drop", dies)
            docs.write(WRITE)
            with pytest.raises(KeyboardInterrupt):
                docs.delete()
            dying.setattr("weir.namespaces.tables.make_text_index", dies)
            dying.setattr(Tables, "create", _half_made)
            with pytest.raises(KeyboardInterrupt):
                docs.write(WRITE)
        assert len(namespaces.store.list_directories("namespaces/docs")) == 2
        assert "docs" in namespaces.dirty.marked()
        assert docs.remove_leftovers() == 2
        assert not [*namespaces.store.list("namespaces")]
        assert docs.find() is None
        assert namespaces.names() == []
        docs.write(WRITE)
        assert docs.remove_leftovers() == 0
        assert docs.count() == 1


def _half_made(tables: Tables, directory: str, definition: Definition) -> weir.Table:
    place = Path(tables._uri(directory, definition))
    (place / "data").mkdir(parents=True)
    (place / "data" / "part.lance").write_bytes(b"rows")
    raise KeyboardInterrupt


def test_whoever_sleeps_while_it_makes_a_namespace_does_not_name_a_table_that_was_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with weir.namespaces.open(tmp_path, fsync=False) as namespaces:
        docs = namespaces.namespace("docs")
        create = Tables.create

        def sleeps(tables: Tables, directory: str, definition: Definition) -> weir.Table:
            table = create(tables, directory, definition)
            with weir.namespaces.open(tmp_path, fsync=False) as others:
                assert others.namespace("docs").remove_leftovers() == 1
            return table

        with monkeypatch.context() as sleeping:
            sleeping.setattr(Tables, "create", sleeps)
            with pytest.raises(ConflictError, match="deleted while it was being created"):
                docs.write(WRITE)
        assert docs.find() is None
        docs.write(WRITE)
        assert docs.count() == 1


def test_a_copy_of_an_older_state_has_the_attributes_of_that_time(tmp_path: Path) -> None:
    with weir.namespaces.open(tmp_path, fsync=False) as namespaces:
        docs, copy = namespaces.namespace("docs"), namespaces.namespace("copy")
        docs.write(WRITE)
        token = docs.token(timedelta(minutes=1))
        docs.write(Write(upserts=Documents.of_rows([{"id": 2, "title": "seal", "year": 2026}])))
        copy.copy_from(docs, token)
        assert copy.get([1, 2]).to_pylist() == [{"id": 1, "title": "walrus"}]
        copy.write(Write(upserts=Documents.of_rows([{"id": 3, "title": "orca", "year": 1}])))
        assert copy.get([3]).to_pylist() == [{"id": 3, "title": "orca", "year": 1}]


@pytest.mark.parametrize("as_what", [Kind.STRING, Kind.INT])
def test_values_of_an_attribute_that_was_dropped_do_not_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, as_what: Kind
) -> None:
    with weir.namespaces.open(tmp_path, fsync=False) as namespaces:
        docs, copy = namespaces.namespace("docs"), namespaces.namespace("copy")
        docs.write(Write(upserts=Documents.of_rows([{"id": 1, "n": 1}, {"id": 2, "title": "seal"}])))
        token = docs.token(timedelta(minutes=1))

        def fail(*given: object, **named: object) -> None:
            raise StorageError("nobody answers")

        with monkeypatch.context() as broken:
            broken.setattr(weir.Table, "alter", fail)
            with pytest.raises(StorageError):
                docs.declare({"title": Declaration(None)})
        docs.declare({"title": Declaration(None)})
        copy.copy_from(docs, token)
        new = "orca" if as_what is Kind.STRING else 3
        for one in (docs, copy):
            assert one.get([1, 2]).to_pylist() == [{"id": 1, "n": 1}, {"id": 2, "n": None}]
            one.write(Write(patches=Documents.of_rows([{"id": 1, "title": new}])))
            assert one.get([1, 2], ["title"])["title"].to_pylist() == [new, None]


def test_nobody_waits_for_a_copy_to_be_told_that_there_is_none_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, told, clone = threading.Event(), threading.Event(), Tables.clone

    def slow(*given: Any) -> weir.Table:
        begun.set()
        assert told.wait(60)
        return clone(*given)

    monkeypatch.setattr(Tables, "clone", slow)
    with weir.namespaces.open(tmp_path, fsync=False) as namespaces, ThreadPoolExecutor(1) as threads:
        docs, copy = namespaces.namespace("docs"), namespaces.namespace("copy")
        docs.write(WRITE)
        copying = threads.submit(copy.copy_from, docs)
        assert begun.wait(60)
        assert copy.find() is None
        told.set()
        assert copying.result() == copy.count() == 1


def test_whoever_writes_while_a_namespace_is_deleted_makes_it_anew(tmp_path: Path) -> None:
    stopped = threading.Event()
    with weir.namespaces.open(tmp_path, fsync=False) as namespaces:
        docs = namespaces.namespace("docs")

        def write() -> int:
            times = 0
            while not stopped.is_set():
                docs.write(WRITE)
                times += 1
            return times

        with ThreadPoolExecutor(3) as threads:
            writing = [threads.submit(write) for _ in range(3)]
            try:
                for _ in range(20):
                    with suppress(NamespaceNotFoundError):
                        docs.delete()
            finally:
                stopped.set()
            assert all(one.result() for one in writing)


def test_deleting_waits_for_nobody_who_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    with (
        weir.namespaces.open(tmp_path, fsync=False, engine=weir.Engine(), lease_ttl=60.0) as namespaces,
        weir.namespaces.open(tmp_path, fsync=False, engine=weir.Engine()) as others,
    ):
        docs = namespaces.namespace("docs")
        docs.write(WRITE)
        with monkeypatch.context() as waiting:
            waiting.setattr("weir.maintenance.closed_shards.time", SimpleNamespace(sleep=waited.append))
            others.namespace("docs").delete()
            assert others.namespace("docs").find() is None
            [left] = namespaces.store.list_directories("namespaces/docs")
            # Whoever wrote it may not have noticed: nothing of it is removed before its lease has run out.
            with pytest.raises(LeaseHeldError):
                others.namespace("docs").remove_leftovers()
        assert not waited
        docs.write(Write(upserts=Documents.of_rows([{"id": "text", "title": "seal"}])))
        assert docs.get(["text"], ["title"])["title"].to_pylist() == ["seal"]
        monkeypatch.setattr("weir.maintenance.closed_shards._may_be_written", lambda *_: False)
        assert others.namespace("docs").remove_leftovers() == 1
        assert left not in namespaces.store.list_directories("namespaces/docs")
        assert docs.count() == 1


@pytest.mark.parametrize("deleted", [True, False])
def test_who_has_not_noticed_that_its_namespace_is_another_ones_ends_in_order(
    tmp_path: Path, deleted: bool
) -> None:
    with (
        weir.namespaces.open(tmp_path, fsync=False, engine=weir.Engine()) as namespaces,
        weir.namespaces.open(tmp_path, fsync=False, engine=weir.Engine(), takeover=True) as others,
    ):
        namespaces.namespace("docs").write(WRITE)
        docs = others.namespace("docs")
        docs.delete() if deleted else docs.write(WRITE)
        namespaces.close()
        assert namespaces.open_here() == []
        assert deleted or docs.count() == 1


def test_upkeep_of_a_namespace_that_another_process_took_over_has_not_failed(tmp_path: Path) -> None:
    with (
        weir.namespaces.open(tmp_path, fsync=False, engine=weir.Engine()) as namespaces,
        weir.namespaces.open(tmp_path, fsync=False, engine=weir.Engine(), takeover=True) as others,
    ):
        docs = namespaces.namespace("docs")
        docs.write(WRITE)
        opened = docs.opened()
        others.namespace("docs").write(WRITE)
        assert not docs.maintain()
        assert (opened.last_upkeep.failures, opened.is_dirty, docs.is_writing) == (0, False, False)
