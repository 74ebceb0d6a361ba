"""The namespaces below a root, as a process has them."""

from __future__ import annotations

from pathlib import Path

import pytest

import weir
import weir.namespaces
from weir.errors import ConflictError, CorruptionError, InputError
from weir.namespaces import Documents, Write
from weir.namespaces.attributes import Attribute, AttributeType, Kind, Metric
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

        monkeypatch.setattr("weir.namespaces.namespace.ensure_indexes", fail)
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
            with pytest.raises(ConflictError, match="deleted while it was made"):
                docs.write(WRITE)
        assert docs.find() is None
        docs.write(WRITE)
        assert docs.count() == 1
