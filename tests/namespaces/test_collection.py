"""The namespaces below a root, as a process has them."""

from __future__ import annotations

from pathlib import Path

import pytest

import weir.namespaces
from weir.errors import CorruptionError
from weir.namespaces import Documents, Write

WRITE = Write(upserts=Documents.of_rows([{"id": 1, "title": "walrus"}]))


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
