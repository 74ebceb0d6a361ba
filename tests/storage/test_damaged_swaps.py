"""An object that was swapped on a local disk is in a file of another name: errors name that file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import weir
import weir.namespaces
from weir.errors import CorruptionError
from weir.namespaces import Documents, Write
from weir.service.keys.key import Role
from weir.service.keys.store import KeyStore
from weir.storage.local import LocalStore

SCHEMA = pa.schema([("id", pa.int64()), ("n", pa.int64())])


def _table(root: Path) -> weir.Table:
    table = weir.create(root / "t", SCHEMA, primary_key="id", fsync=False, maintenance="off")
    for number in range(3):
        with table.writer() as writer:
            writer.upsert({"id": [number], "n": [1]})
        feed = table.changes(consumer="billing") if number else table.changes("earliest", consumer="billing")
        for _ in feed:
            feed.commit()
    return table


def _lease(root: Path) -> Callable[[], object]:
    table = _table(root)
    return lambda: table.writer().upsert({"id": [3], "n": [3]})


def _consumer(root: Path) -> Callable[[], object]:
    table = _table(root)
    return lambda: list(table.changes(consumer="billing"))


def _definition(root: Path) -> Callable[[], object]:
    namespaces = weir.namespaces.open(root, fsync=False)
    for row in ({"id": 1}, {"id": 2, "title": "walrus"}):
        namespaces.namespace("docs").write(Write(upserts=Documents.of_rows([row])))
    return namespaces.namespace("docs").count


def _events(root: Path) -> Callable[[], object]:
    weir.events.create(root, fsync=False).define("signup", {"plan": "string"})
    return lambda: weir.events.open(root, fsync=False)


def _key(root: Path) -> Callable[[], object]:
    keys = KeyStore(LocalStore(root, fsync=False))
    key, _ = keys.create("one", Role.ADMIN, ["*"])
    keys.rotate(key.id)
    return lambda: keys.get(key.id)


@pytest.mark.parametrize(
    ("made", "name"),
    [
        (_lease, "lease.json"),
        (_consumer, "billing.json"),
        (_definition, "docs.json"),
        (_events, "catalog.json"),
        (_key, "*.json"),
    ],
)
@pytest.mark.parametrize("cut", [None, -1], ids=["flipped", "cut"])
def test_the_file_is_named(
    tmp_path: Path, made: Callable[[Path], Callable[[], object]], name: str, cut: int | None
) -> None:
    call = made(tmp_path)
    found = [one for one in tmp_path.rglob(f".weir-swaps/{name}/*/*") if one.stat().st_size]
    file = max(found)
    content = file.read_bytes()
    file.write_bytes(bytes([*content[:40], content[40] ^ 1, *content[41:]]) if cut is None else content[:cut])
    with pytest.raises(CorruptionError) as refused:
        call()
    assert refused.value.where == str(file)
    if (tmp_path / "t").exists():
        found_by_verify = weir.open(tmp_path / "t", fsync=False).maintenance.verify().findings
        assert str(file) in {one.where for one in found_by_verify}
