"""What another process, or another thread, does to a namespace between the parts of a write."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

import weir.namespaces
from weir import Source
from weir.errors import NamespaceReadOnlyError
from weir.namespaces import Documents, MarkedWrite, Namespace, Patch, Write
from weir.namespaces.filter.expression import Comparison, Operator
from weir.write.table_writer import TableWriter

FIRST = Documents.of_rows([{"id": 1, "n": 1}, {"id": 2, "n": 1}])
PATCH = Documents.of_rows([{"id": 1, "n": 2}])
ALL = Comparison("n", Operator.GT, 0)


@pytest.mark.parametrize(
    "write",
    [
        Write(patches=PATCH),
        Write(patches=PATCH, patch_condition=ALL),
        Write(patch_where=Patch(ALL, {"n": 2})),
        Write(patches=Documents.of_rows([{"id": 1, "n": 2, "brought": 3}])),
    ],
    ids=["patch", "condition", "filter", "new attribute"],
)
@pytest.mark.parametrize("is_marked", [False, True])
def test_a_patch_keeps_the_attributes_that_another_process_has_just_added(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Write, is_marked: bool
) -> None:
    with (
        weir.namespaces.open(tmp_path, fsync=False, holder="one") as here,
        weir.namespaces.open(tmp_path, fsync=False, holder="two") as there,
    ):
        docs, same = here.namespace("docs"), there.namespace("docs")
        same.write(Write(upserts=FIRST))
        assert docs.count() == 2
        claim = TableWriter.claim

        def claim_late(writer: TableWriter) -> None:
            monkeypatch.setattr(TableWriter, "claim", claim)
            same.write(Write(upserts=Documents.of_rows([{"id": 1, "n": 1, "added": "kept"}])))
            same.close()  # and it hands over
            claim(writer)

        monkeypatch.setattr(TableWriter, "claim", claim_late)
        if is_marked:
            marked = MarkedWrite(write, Source.once("key"), lambda *_: None)
            assert docs.write_once(marked).written.patched
        else:
            assert docs.write(write).patched
        assert TableWriter.claim is claim
        (row,) = docs.get([1], ["n", "added"]).to_pylist()
        assert row == {"id": 1, "n": 2, "added": "kept"}


def test_what_is_read_only_changes_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with weir.namespaces.open(tmp_path, fsync=False) as namespaces:
        docs = namespaces.namespace("docs")
        docs.write(Write(upserts=FIRST))
        begun, go_on = threading.Event(), threading.Event()
        apply = TableWriter.apply

        def apply_late(writer: TableWriter, *arguments: object) -> object:
            begun.set()
            assert go_on.wait(60)
            return apply(writer, *arguments)

        monkeypatch.setattr(TableWriter, "apply", apply_late)
        slow = threading.Thread(target=docs.write, args=[Write(upserts=PATCH)])
        slow.start()
        assert begun.wait(60)
        setting = threading.Thread(target=docs.set_read_only, args=[True])
        setting.start()
        setting.join(0.3)
        assert setting.is_alive()  # until nothing is written any more
        go_on.set()
        for thread in (slow, setting):
            thread.join(60)
            assert not thread.is_alive()
        assert docs.get([1], ["n"]).to_pylist() == [{"id": 1, "n": 2}]


@pytest.mark.parametrize("deciding", [False, True])
def test_a_write_that_was_allowed_a_moment_ago_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deciding: bool
) -> None:
    with weir.namespaces.open(tmp_path, fsync=False) as namespaces:
        docs = namespaces.namespace("docs")
        docs.write(Write(upserts=FIRST))
        allowed = Namespace._for_write

        def allowed_late(self: Namespace, write: Write) -> object:
            found = allowed(self, write)
            docs.set_read_only(True)
            return found

        monkeypatch.setattr(Namespace, "_for_write", allowed_late)
        with pytest.raises(NamespaceReadOnlyError):
            docs.write(Write(patches=PATCH) if deciding else Write(upserts=PATCH))
        assert docs.get([1], ["n"]).to_pylist() == [{"id": 1, "n": 1}]
