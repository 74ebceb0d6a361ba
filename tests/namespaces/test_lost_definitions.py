"""A namespace whose definition is gone or damaged is not taken for one that there is not."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

import weir.namespaces
from tests.storage.s3 import S3Endpoint, s3_endpoint
from weir.errors import CorruptionError, NamespaceNotFoundError, PreconditionError
from weir.namespaces import Documents, Namespaces, Write
from weir.namespaces.names import directory_of
from weir.storage.interface import ObjectStore
from weir.storage.local import LocalStore

__all__ = ["s3_endpoint"]

WRITE = Write(upserts=Documents.of_rows([{"id": 1, "title": "walrus"}, {"id": 2, "title": "seal"}]))
NAME = ".docs"


@pytest.fixture(params=["disk", "s3"])
def reopened(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Namespaces]:
    """A function that opens a root anew, in which there are two namespaces."""
    if request.param == "disk":
        root, options = str(tmp_path), None
    else:
        endpoint: S3Endpoint = request.getfixturevalue("s3_endpoint")
        root, options = endpoint.new_uri("root"), endpoint.options

    def opened() -> Namespaces:
        return weir.namespaces.open(root, storage_options=options, fsync=False, holder="one")

    with opened() as namespaces:
        for name in (NAME, "other"):
            namespaces.namespace(name).write(WRITE)
    return opened


def _gone(store: ObjectStore, path: str) -> None:
    store.delete([path])


def _emptied(store: ObjectStore, path: str) -> None:
    store.put(path, b"")


def _cut(length: int) -> Callable[[ObjectStore, str], None]:
    return lambda store, path: store.put(path, bytes(store.get(path))[:length])


@pytest.mark.parametrize(
    "damage", [_gone, _emptied, _cut(20), _cut(32), _cut(-1)], ids=["gone", "empty", "20", "32", "by one"]
)
@pytest.mark.parametrize("is_open", [False, True])
def test_every_call_is_refused_by_name(
    reopened: Callable[[], Namespaces], damage: Callable[[ObjectStore, str], None], is_open: bool
) -> None:
    path = f"catalog/{directory_of(NAME)}.json"
    with reopened() as namespaces:
        docs, other = namespaces.namespace(NAME), namespaces.namespace("other")
        if is_open:
            assert docs.count() == 2
        stored = namespaces.store.get(path)
        damage(namespaces.store, path)
        calls: list[Callable[[], object]] = [
            docs.find,
            docs.count,
            docs.delete,
            docs.remove_leftovers,
            docs.look_after_abandoned,
            lambda: docs.get([1]),
            lambda: docs.write(WRITE),
            lambda: docs.copy_from(other),
            lambda: namespaces.namespace("copy").copy_from(docs),
        ]
        for call in calls:
            with pytest.raises(CorruptionError) as refused:
                call()
            assert refused.value.where == f"{namespaces.store.uri}/{path}"
        # It is told of, and whoever opens it learns the rest.
        assert namespaces.names() == [NAME, "other"]
        assert other.count() == 2
        namespaces.store.put(path, stored)
        assert docs.count() == 2
        docs.delete()
        assert namespaces.names() == ["other"]
        assert docs.remove_leftovers() == 0


def test_one_that_nobody_made_and_one_that_was_deleted_are_not_there(
    reopened: Callable[[], Namespaces],
) -> None:
    with reopened() as namespaces:
        docs = namespaces.namespace(NAME)
        docs.delete()
        for one in (docs, namespaces.namespace("none")):
            with pytest.raises(NamespaceNotFoundError):
                one.count()
        docs.write(WRITE)
        assert docs.count() == 2


def test_what_another_process_writes_to_a_table_that_was_deleted_is_a_leftover(
    reopened: Callable[[], Namespaces], monkeypatch: pytest.MonkeyPatch
) -> None:
    with reopened() as namespaces, reopened() as others:
        docs = namespaces.namespace(NAME)
        table = docs.definition.table
        directory = f"namespaces/{directory_of(NAME)}"
        if not namespaces.store.is_local:
            directory = f"namespaces/{NAME}"
        docs.delete()
        # A merge that another process has under way: what it wrote before is gone, and it goes on.
        late = f"{directory}/{table}/data/late.lance"
        namespaces.store.put(late, b"rows")
        for one in (docs, others.namespace(NAME)):
            assert one.find() is None
        assert namespaces.names() == ["other"]
        docs.write(WRITE)
        assert others.namespace(NAME).count() == 2
        docs.delete()
        assert others.namespace(NAME).find() is None
        assert docs.remove_leftovers() == 1
        assert docs.find() is None
        assert not [*namespaces.store.list(directory)]
        assert namespaces.with_old_notes() == []
        namespaces.store.put(late, b"rows")
        monkeypatch.setattr("weir.namespaces.tables._KEPT", timedelta(seconds=-5))
        assert namespaces.with_old_notes() == [NAME]
        assert docs.remove_leftovers() == 1
        assert namespaces.with_old_notes() == []
        assert not [*namespaces.store.list("unnamed")]


def test_upkeep_removes_no_table_that_an_older_definition_does_not_name(tmp_path: Path) -> None:
    with weir.namespaces.open(tmp_path, fsync=False, holder="one") as namespaces:
        docs = namespaces.namespace("docs")
        docs.write(WRITE)
        docs.delete()
        docs.write(WRITE)
        table = docs.definition.table
        shutil.rmtree(tmp_path / "catalog" / ".weir-swaps")
        with pytest.raises(CorruptionError, match="the table of the namespace 'docs' is gone"):
            docs.count()
        assert docs.remove_leftovers() == 0
        assert table in namespaces.store.list_directories("namespaces/docs")


def test_a_swap_whose_answer_is_lost_is_found_to_be_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with weir.namespaces.open(tmp_path, fsync=False) as namespaces:
        docs = namespaces.namespace("docs")
        docs.write(WRITE)
        docs.delete()
        swap = LocalStore.compare_and_swap

        def swapped(store: LocalStore, path: str, data: bytes, expected: str) -> str:
            swap(store, path, data, expected)
            raise PreconditionError("the answer to the first attempt was lost")

        monkeypatch.setattr(LocalStore, "compare_and_swap", swapped)
        docs.create(_definition(namespaces))
        assert docs.count() == 0
        docs.delete()
        assert docs.find() is None


def _definition(namespaces: Namespaces) -> weir.namespaces.definition.Definition:
    other = namespaces.namespace("other")
    other.write(WRITE)
    made = other.definition
    return type(made).new(made.id_kind, made.metric)
