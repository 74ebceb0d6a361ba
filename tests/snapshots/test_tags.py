"""States of a table by name and by instant, and that collection keeps what has a name."""

from __future__ import annotations

import os
import pickle
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from tests.storage.s3 import S3Endpoint, s3_endpoint

import weir
from weir.engine import failpoint
from weir.engine.context import default_context
from weir.errors import CorruptionError, InputError, OptionError, SnapshotExpiredError, StorageError
from weir.format.tag import TAGS, is_tag_name, tag_path
from weir.snapshots.tokens import live_roots
from weir.storage.open import open_store

__all__ = ["s3_endpoint"]

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])


def rows(*ids: int, name: str) -> list[dict[str, Any]]:
    return [{"id": one, "name": name} for one in ids]


def names(found: pa.Table) -> dict[int, str]:
    assert len(set(found.column("id").to_pylist())) == found.num_rows
    return dict(zip(found.column("id").to_pylist(), found.column("name").to_pylist(), strict=True))


def filled(uri: str | Path, **options: Any) -> weir.Table:
    """Return a table with rows in the base table, in a generation, and in the log alone."""
    made = weir.create(uri, SCHEMA, primary_key="id", shard_by=weir.bucket("id", 2), **options)
    with made.writer(flush_on_close=False) as writer:
        writer.upsert(rows(1, 2, 3, name="base"))
        writer.flush()
        made.maintenance.merge()
        writer.upsert(rows(2, 4, name="generation"))
        writer.flush()
        writer.upsert(rows(4, 5, name="log"))
        writer.delete([3])
    return made


THEN = {1: "base", 2: "generation", 4: "log", 5: "log"}
LATER = dict.fromkeys(range(1, 7), "later") | {7: "later still"}


def change_everything(table: weir.Table) -> None:
    with table.writer() as writer:
        writer.upsert(rows(1, 2, 3, 4, 5, 6, name="later"))
        writer.flush()
        table.maintenance.merge()
        writer.upsert(rows(7, name="later still"))
    table.maintenance.merge()
    table.maintenance.compact()


def collect(table: weir.Table) -> None:
    for _ in range(3):
        table.maintenance.collect_garbage(horizon=timedelta(0), version_retention=timedelta(0))
    default_context().cache.clear()


@pytest.fixture
def table(tmp_path: Path) -> weir.Table:
    return filled(tmp_path / "t", fsync=False)


def test_every_read_takes_the_name_of_a_state(table: weir.Table, tmp_path: Path) -> None:
    table.indexes.create("name", "INVERTED")
    tag = table.tags.create("before-import")
    change_everything(table)
    assert [one.name for one in table.tags.list()] == ["before-import"]
    assert names(table.scan().to_table()) == LATER
    for opened in (table, weir.open(table.uri, fsync=False), pickle.loads(pickle.dumps(table))):
        scan = opened.scan(at="before-import")
        assert names(scan.to_table()) == names(pickle.loads(pickle.dumps(scan)).to_table()) == THEN
        assert names(opened.get([1, 7], at="before-import")) == {1: "base"}
        assert opened.sql("SELECT count(*) AS n FROM t", at="before-import").to_pylist() == [{"n": 4}]
        assert opened.search_text("log", at="before-import").to_table().num_rows == 2
        assert opened.scan(at=tag.token).count() == 4
    assert {
        row["id"] for change in table.changes(since="before-import") for row in change.rows.to_pylist()
    } == {*range(1, 8)}
    assert not list(table.changes(since="before-import", until="before-import"))
    clone = weir.clone(table.uri, tmp_path / "clone", at="before-import", fsync=False)
    assert names(clone.scan().to_table()) == THEN
    assert not clone.tags.list()


def test_collection_keeps_what_has_a_name_until_it_is_dropped(table: weir.Table) -> None:
    table.tags.create("kept")
    table.tags.create("also", at="kept")
    for _ in range(2):
        change_everything(table)
        collect(table)
        assert not table.maintenance.verify().findings
        for name in ("kept", "also"):
            assert names(weir.open(table.uri, fsync=False).scan(at=name).to_table()) == THEN
    token = table.tags.list()[0].token
    table.tags.drop("kept")
    table.tags.drop("kept")
    collect(table)
    assert names(table.scan(at="also").to_table()) == THEN
    table.tags.drop("also")
    collect(table)
    with pytest.raises(InputError, match="no tag of that name"):
        table.scan(at="kept")
    with pytest.raises(SnapshotExpiredError):
        weir.open(table.uri, fsync=False).scan(at=token).to_table()
    with pytest.raises(SnapshotExpiredError):
        table.tags.create("too-late", at=token)
    assert not table.tags.list()
    assert names(table.scan().to_table()) == LATER


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "../up",
        "a/b",
        "-x",
        ".x",
        "a b",
        "é",
        "x" * 101,
        "w3.abc",
        "w1.",
        "earliest",
        "a:b",
        7,
        None,
    ],
)
def test_what_cannot_be_a_name(table: weir.Table, name: Any) -> None:
    for call in (table.tags.create, table.tags.drop):
        with pytest.raises(OptionError, match="not the name of a tag"):
            call(name)
    assert not os.path.exists(f"{table.uri}/{TAGS}")


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", ["a", "2026", "2026-01-31", "release-1.2_final", "W3.x", "w3", "x" * 100])
def test_what_can_be_a_name(table: weir.Table, name: str) -> None:
    assert is_tag_name(name)
    table.tags.create(name)
    assert table.scan(at=name).count() == 4


def test_a_name_is_given_once(table: weir.Table) -> None:
    table.tags.create("one")
    change_everything(table)
    with pytest.raises(InputError, match="already has a tag 'one'"):
        table.tags.create("one")
    assert names(table.scan(at="one").to_table()) == THEN
    table.tags.drop("one")
    table.tags.create("one")
    assert names(table.scan(at="one").to_table()) == LATER


def test_one_of_many_that_give_the_same_name_does(table: weir.Table) -> None:
    together, done = threading.Barrier(6), []

    def create() -> None:
        together.wait()
        try:
            done.append(weir.open(table.uri, fsync=False).tags.create("one"))
        except InputError as error:
            assert "already" in str(error)

    threads = [threading.Thread(target=create) for _ in range(6)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len(done) == 1
    assert table.tags.list() == done


def test_what_is_about_to_be_collected_gets_no_name(
    table: weir.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A collection that has looked for names, and has said what it deletes, then goes on."""
    token = table.snapshot(retain=None)
    change_everything(table)
    table.maintenance.collect_garbage(horizon=timedelta(0), version_retention=timedelta(0))
    refused: list[SnapshotExpiredError] = []

    def reach(name: str) -> None:
        if name == "garbage.after_mark":
            # Between the last look for names and the deletion.
            monkeypatch.setattr("weir.maintenance.garbage.garbage.live_roots", lambda *_: given())

    def given() -> tuple[Any, ...]:
        found = live_roots(open_store(table.uri, fsync=False), datetime.now(UTC))
        with pytest.raises(SnapshotExpiredError) as caught:
            weir.open(table.uri, fsync=False).tags.create("late", at=token)
        refused.append(caught.value)
        return found

    monkeypatch.setattr(failpoint, "reach", reach)
    collect(table)
    assert refused
    assert not table.tags.list()


def test_a_lost_answer_does_not_lose_a_name(table: weir.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    from weir.errors import ObjectExistsError
    from weir.storage.local import LocalStore

    put = LocalStore.put_if_absent

    def twice(self: LocalStore, path: str, data: Any) -> None:
        put(self, path, data)
        if path.startswith(TAGS):
            raise ObjectExistsError("the first answer was lost", where=path)

    monkeypatch.setattr(LocalStore, "put_if_absent", twice)
    table.tags.create("mine")
    with pytest.raises(InputError, match="already"):
        table.tags.create("mine")

    def fails(self: LocalStore, path: str, data: Any) -> None:
        raise StorageError("no", where=path)

    monkeypatch.setattr(LocalStore, "put_if_absent", fails)
    with pytest.raises(StorageError):
        table.tags.create("other")
    assert [tag.name for tag in table.tags.list()] == ["mine"]


def test_a_damaged_tag_stops_collection_and_is_found(table: weir.Table) -> None:
    table.tags.create("one")
    path = Path(table.uri, tag_path("one"))
    path.write_text(path.read_text().replace("created_at", "creeated_at"))
    with pytest.raises(CorruptionError, match="checksum"):
        table.maintenance.collect_garbage()
    assert [one.check for one in table.maintenance.verify().findings] == ["tag.unreadable"]
    with pytest.raises(CorruptionError):
        table.scan(at="one")
    table.tags.drop("one")
    table.tags.create("two")
    os.rename(Path(table.uri, tag_path("two")), Path(table.uri, tag_path("three")))
    assert [one.check for one in table.maintenance.verify().findings] == ["tag.name"]


@pytest.mark.long
def test_tags_on_an_object_store(s3_endpoint: S3Endpoint) -> None:
    table = filled(s3_endpoint.new_uri(), storage_options=s3_endpoint.options)
    table.tags.create("kept")
    change_everything(table)
    collect(table)
    assert names(table.scan(at="kept").to_table()) == THEN
    assert names(table.scan().to_table()) == LATER


# --- By instant --------------------------------------------------------------------------------


def now_after_a_pause() -> datetime:
    """Return an instant between what was written and what will be, by clocks of some milliseconds."""
    time.sleep(0.05)
    instant = datetime.now(UTC)
    time.sleep(0.05)
    return instant


def test_an_instant_shows_what_was_there(tmp_path: Path) -> None:
    table = weir.create(tmp_path / "t", SCHEMA, primary_key="id", shard_by=weir.bucket("id", 2), fsync=False)
    expected: list[tuple[datetime, dict[int, str], list[str]]] = []

    def note() -> None:
        found = table.scan().to_table()
        expected.append((now_after_a_pause(), names(found), found.schema.names))

    steps: list[Callable[[], object]] = [
        lambda: writer.upsert(rows(1, 2, name="a")),
        lambda: writer.flush(),
        lambda: writer.upsert(rows(2, 3, name="b")),
        lambda: table.maintenance.merge(),
        lambda: writer.delete([1]),
        lambda: writer.flush(),
        lambda: table.alter(add=[pa.field("more", pa.string())]),
        lambda: writer.upsert(rows(4, name="c")),
        lambda: table.maintenance.merge(),
        lambda: table.maintenance.compact(),
        lambda: writer.upsert(rows(5, name="d")),
    ]
    with table.writer() as writer:
        note()
        for step in steps:
            step()
            note()
    change_everything(table)
    for instant, rows_then, columns in expected:
        for at in (instant, instant.isoformat(), instant.astimezone(timezone(timedelta(hours=-5)))):
            found = weir.open(table.uri, fsync=False).scan(at=at).to_table()
            assert (names(found), found.schema.names) == (rows_then, columns)
    instant, rows_then, _ = expected[5]
    table.tags.create("by-time", at=instant)
    collect(table)
    assert names(table.scan(at="by-time").to_table()) == rows_then


def test_an_instant_of_which_something_was_collected_is_refused(table: weir.Table) -> None:
    instants = [now_after_a_pause()]
    for number in range(3):
        with table.writer() as writer:
            writer.upsert(rows(1, name=str(number)))
        instants.append(now_after_a_pause())
    table.maintenance.merge()
    instants.append(now_after_a_pause())
    collect(table)
    for instant in instants[:-2]:
        with pytest.raises(SnapshotExpiredError, match="is gone"):
            weir.open(table.uri, fsync=False).scan(at=instant).to_table()
    assert names(table.scan(at=instants[-1]).to_table()) == THEN | {1: "2"}


def test_what_is_no_instant(table: weir.Table) -> None:
    for at, said in (
        (datetime.now(), "no time zone"),
        ("2026-01-31 12:00", "no time zone"),
        ("2026-01-31T25:00Z", "not an instant"),
        (datetime.now(UTC) + timedelta(hours=1), "in the future"),
        ("2026-01-31", "no tag of that name"),
        (7, "token or its text"),
    ):
        with pytest.raises(InputError, match=said):
            table.scan(at=at)  # type: ignore[arg-type]
    with pytest.raises(SnapshotExpiredError):
        table.scan(at=datetime(2001, 1, 1, tzinfo=UTC))


@pytest.mark.long
def test_an_instant_on_an_object_store(s3_endpoint: S3Endpoint) -> None:
    """Whose clock counts whole seconds."""
    table = filled(s3_endpoint.new_uri(), storage_options=s3_endpoint.options)
    time.sleep(1.1)
    instant = datetime.now(UTC)
    time.sleep(1.1)
    change_everything(table)
    assert names(table.scan(at=instant).to_table()) == THEN
    assert names(table.scan().to_table()) == LATER


def test_of_a_table_whose_rows_expire_it_is_judged_then(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("at", pa.timestamp("us", "UTC"))])
    table = weir.create(tmp_path / "t", schema, primary_key="id", expire_by="at", fsync=False)
    ends = datetime.now(UTC) + timedelta(seconds=0.4)
    table.upsert([{"id": 1, "at": ends}, {"id": 2, "at": ends + timedelta(hours=1)}])
    before = now_after_a_pause()
    time.sleep(max((ends - datetime.now(UTC)).total_seconds(), 0) + 0.1)
    assert table.scan().count() == 1
    assert table.scan(at=before).count() == (2 if before < ends else 1)


def test_a_version_that_lance_removed_is_not_taken_for_the_one_before(table: weir.Table) -> None:
    """The number after the last one by then has to be there, or nobody knows."""
    with table.writer() as writer:
        writer.flush()
    table.maintenance.merge()
    instant = now_after_a_pause()
    for _ in range(3):
        table.upsert(rows(9, name="x"))
        with table.writer() as writer:
            writer.flush()
        table.maintenance.merge()
    versions = sorted(one["version"] for one in lance.dataset(table.uri).versions())
    path = Path(lance.dataset(table.uri).uri, "_versions")
    newest_by_then = [
        one for one in path.iterdir() if datetime.fromtimestamp(one.stat().st_mtime, UTC) <= instant
    ]
    (last,) = sorted(newest_by_then, key=lambda one: one.stat().st_mtime)[-1:]
    last.unlink()
    default_context().cache.clear()
    with pytest.raises(SnapshotExpiredError):
        weir.open(table.uri, fsync=False).scan(at=instant).to_table()
    assert len(versions) > 3
