"""A deletion file that is another one, or has other rows in it, brings no deleted row back in any read."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import lance
import pyarrow as pa
import pytest

import weir
from weir.base import deleted_rows
from weir.engine.context import default_context
from weir.errors import CorruptionError
from weir.format.deletion_file import deleted_rows as rows_of
from weir.format.snapshot_token import SnapshotToken

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("text", pa.string()),
        pa.field("vector", pa.list_(pa.float32(), 2)),
    ]
)
REPLACED = 60


def rows(keys: range, text: str) -> list[dict[str, object]]:
    return [{"id": key, "text": f"{text} {key}", "vector": [float(key), 0.0]} for key in keys]


class Place:
    """A table whose newest deletion file has another one before it."""

    def __init__(self, uri: Path) -> None:
        self.uri = uri
        table = weir.create(uri, SCHEMA, primary_key="id")
        for keys, text in ((range(200), "old"), (range(30), "new"), (range(30, REPLACED), "new")):
            with table.writer() as writer:
                writer.upsert(rows(keys, text))
            table.maintenance.merge()
        self.token = table.snapshot()
        with table.writer(flush_on_close=False) as writer:
            writer.upsert(rows(range(40, 45), "later"))
        self.former, self.path = sorted(uri.glob("_deletions/*"), key=lambda one: one.stat().st_mtime_ns)
        self.kept = self.path.read_bytes()

    def opened(self) -> weir.Table:
        default_context().cache.clear()
        return weir.open(self.uri)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(tmp_path_factory.mktemp("deletions") / "t")


@pytest.fixture
def place(made: Place) -> Iterator[Place]:
    yield made
    made.path.write_bytes(made.kept)
    default_context().cache.clear()


def another(place: Place) -> bytes:
    return place.former.read_bytes()


def other_rows(place: Place) -> bytes:
    """Delete as many rows, and others: the first row that was replaced comes back."""
    column = pa.array([*range(1, REPLACED), 150], pa.uint32())
    with pa.ipc.open_file(place.kept) as file:
        batch = pa.record_batch([column], schema=file.schema)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    made: bytes = sink.getvalue().to_pybytes()
    assert rows_of(made, place.path.name) == REPLACED
    return made


def update(table: weir.Table, _: SnapshotToken) -> object:
    return table.update(where="text = 'old 3'", set={"text": "'seen'"})


READS: dict[str, Callable[[weir.Table, SnapshotToken], object]] = {
    "scan": lambda table, _: table.scan().to_table(),
    "filter": lambda table, _: table.scan(filter="id < 10").to_table(),
    "count": lambda table, _: table.scan().count(),
    "bounded": lambda table, _: table.scan(consistency="bounded(100)").to_table(),
    "published": lambda table, _: table.scan(consistency="snapshot").to_table(),
    "token": lambda table, token: table.scan(at=token).to_table(),
    "get": lambda table, _: table.get([0, 1, 2]),
    "get at a token": lambda table, token: table.get([0], at=token),
    "sql": lambda table, _: table.sql("SELECT count(*) FROM t").to_table(),
    "search": lambda table, _: table.search([3.0, 0.0], column="vector", k=3).to_table(),
    "text": lambda table, _: table.search_text("old", column="text").to_table(),
    "changes": lambda table, token: list(table.changes(since=token, before=True)),
    "update": update,
    "delete": lambda table, _: table.delete(where="text = 'old 3'"),
    "patch": lambda table, _: table.patch([{"id": 3, "text": "patched"}]),
}


@pytest.mark.parametrize("damage", [another, other_rows])
@pytest.mark.parametrize("read", READS)
def test_no_read_is_wrong(place: Place, read: str, damage: Callable[[Place], bytes]) -> None:
    place.path.write_bytes(damage(place))
    with pytest.raises(CorruptionError) as raised:
        READS[read](place.opened(), place.token)
    assert str(place.path) in str(raised.value)


def test_what_is_whole_is_looked_at_once(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    table = place.opened()
    table.scan().count()
    asked = []
    monkeypatch.setattr(deleted_rows, "_problem", lambda *one: asked.append(one))
    monkeypatch.setattr(deleted_rows, "decode_files", lambda *_, **__: pytest.fail("a warm read has looked"))
    table.scan().count()
    table.get([1])
    monkeypatch.undo()
    monkeypatch.setattr(deleted_rows, "_problem", lambda *one: asked.append(one))
    place.opened().scan().count()
    assert not asked


@pytest.mark.parametrize("divided", [False, True])
def test_of_what_lance_has_deleted_the_number_tells(tmp_path: Path, divided: bool) -> None:
    """It records no checksum."""
    Place(tmp_path / "t")
    lance.dataset(tmp_path / "t").delete("id >= 100")
    table = weir.open(tmp_path / "t")
    assert table.scan().count() == 100
    assert table.maintenance.verify().passed
    *_, former, newest = sorted((tmp_path / "t").glob("_deletions/*"), key=lambda one: one.stat().st_mtime_ns)
    shutil.copyfile(former, newest)
    default_context().cache.clear()
    table = weir.open(tmp_path / "t")
    with table.writer() as writer:
        writer.upsert(rows(range(5), "more"))
    for work in (
        table.scan().count,
        table.maintenance.compact,
        lambda: table.maintenance.merge(divided=divided),
    ):
        with pytest.raises(CorruptionError) as raised:
            work()
        assert newest.name in str(raised.value)
    assert [one.check for one in table.maintenance.verify().errors if newest.name in one.where] == [
        "base.checksum"
    ]
