"""The change feed: what is in it, how it is cut into batches, where it goes on, and who it waits for.

That it yields what was written, whatever happens to the table, is shown by test_time_travel.py.
"""

from __future__ import annotations

import logging
import subprocess
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import hypothesis.strategies as st
import lance
import pyarrow as pa
import pytest
from hypothesis import given, settings
from tests.forked_program import weir_python
from tests.snapshots.stores import LossyStore

import weir
from weir.base.schema import FEED_NAMES
from weir.base.table import BaseTable
from weir.changes import before_image as row_before
from weir.changes.before_image import previous_rows
from weir.changes.feed import ChangeBatch, ChangeFeed
from weir.changes.rows import change_schema
from weir.engine import failpoint
from weir.engine.context import default_context
from weir.errors import (
    ConflictError,
    CorruptionError,
    FencedError,
    InputError,
    ObjectExistsError,
    OptionError,
    PreconditionError,
    SchemaError,
    SnapshotExpiredError,
    StorageError,
)
from weir.format import feed_consumer, layout
from weir.format.feed_consumer import CONSUMERS, consumer_path
from weir.log.wal import Wal
from weir.read import lookup
from weir.snapshots.tokens import live_roots
from weir.storage.open import open_store
from weir.table.table import Table

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("name", pa.string()),
        pa.field("tags", pa.list_(pa.string())),
    ]
)
SHARD = UUID("aaaaaaaa-1111-4222-8333-bbbbbbbbbbbb")
NOW = timedelta(0)
Written = tuple[int, str | None]


def rows(*pairs: tuple[int, str]) -> list[dict[str, Any]]:
    return [{"id": key, "name": name, "tags": [name, None]} for key, name in pairs]


def listed(change: ChangeBatch) -> list[Written]:
    """Return key and name of every change; of a delete no name."""
    for row in change.rows.to_pylist():
        assert (row["name"] is None) == (row["tags"] is None) == (row["_op"] == "delete")
    return list(zip(change.rows["id"].to_pylist(), change.rows["name"].to_pylist(), strict=True))


def read(feed: ChangeFeed) -> list[Written]:
    return [one for change in feed for one in listed(change)]


def opened(uri: str) -> tuple[Table, LossyStore]:
    store = LossyStore(open_store(uri, fsync=False))
    return Table(store, BaseTable.open(store)), store


@pytest.fixture
def table(tmp_path: Path) -> weir.Table:
    return weir.create(tmp_path / "t", SCHEMA, primary_key="id", fsync=False)


def collect(table: weir.Table) -> None:
    """Delete everything that nobody needs."""
    for _ in range(2):
        table.maintenance.collect_garbage(horizon=NOW, version_retention=NOW)
    default_context().cache.clear()


# --- What is in it -----------------------------------------------------------------------------


def test_every_row_of_every_write_is_there_in_order(table: weir.Table) -> None:
    with table.writer(flush_on_close=False) as writer:
        writer.upsert(rows((1, "a"), (2, "b"), (1, "c")))
        writer.delete([2, 7])
        writer.upsert(rows((2, "d")))
        (shard,) = writer.epochs
    (change,) = table.changes()
    assert change.rows.schema == table.changes().schema
    assert change.rows.schema.names == ["id", "name", "tags", "_op", "_shard", "_position", "_epoch"]
    assert listed(change) == [(1, "a"), (2, "b"), (1, "c"), (2, None), (7, None), (2, "d")]
    assert change.rows["_op"].to_pylist() == ["upsert"] * 3 + ["delete"] * 2 + ["upsert"]
    assert change.rows["_position"].to_pylist() == [2, 2, 2, 3, 3, 4]
    assert set(change.rows["_epoch"].to_pylist()) == {1}
    assert set(change.rows["_shard"].to_pylist()) == {str(shard)}
    assert (change.shard_id, change.position, change.epoch) == (shard, 4, 1)


def test_the_row_before_every_change(table: weir.Table) -> None:
    with table.writer(flush_on_close=False) as writer:
        writer.upsert(rows((1, "base"), (2, "base"), (9, "base")))
        writer.flush()
        table.maintenance.merge()
        writer.upsert(rows((2, "generation"), (3, "generation")))
        writer.flush()
        writer.upsert(rows((4, "log")))
        writer.delete([9])
        token = table.snapshot()
        writer.upsert(rows((1, "x"), (1, "y"), (2, "z"), (5, "new")))
        writer.delete([1, 3, 5, 6, 9])
        writer.upsert(rows((1, "again"), (4, "last"), (9, "back")))
    (change,) = table.changes(token, before=True)
    before = change.rows["_before"]
    assert before.type == pa.struct([pa.field(field.name, field.type) for field in SCHEMA])
    names = [None if one is None else one["name"] for one in before.to_pylist()]
    assert list(zip(change.rows["id"].to_pylist(), names, strict=True)) == [
        (1, "base"),
        (1, "x"),
        (2, "generation"),
        (5, None),
        (1, "y"),
        (3, "generation"),
        (5, "new"),
        (6, None),
        (9, None),
        (1, None),
        (4, "log"),
        (9, None),
    ]
    present = [one for one in before.to_pylist() if one is not None]
    assert all(one["tags"] == [one["name"], None] for one in present)
    one_by_one = [change.rows for change in table.changes(token, before=True, batch_rows=1)]
    assert len(one_by_one) == 3
    assert pa.concat_tables(one_by_one).to_pylist() == change.rows.to_pylist()


@given(st.lists(st.tuples(st.integers(0, 4), st.sampled_from("ab")), max_size=40))
def test_previous_rows_equal_a_dict(keys: list[tuple[int, str]]) -> None:
    last: dict[tuple[int, str], int] = {}
    expected = []
    for at, key in enumerate(keys):
        expected.append(last.get(key, -1))
        last[key] = at
    columns = [
        pa.chunked_array([pa.array([key[0] for key in keys], pa.int64())]),
        pa.chunked_array([pa.array([key[1] for key in keys], pa.string())]),
    ]
    assert previous_rows(columns).tolist() == expected


def test_rows_are_looked_up_once_per_batch(table: weir.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    with table.writer(flush_on_close=False) as writer:
        writer.upsert(rows(*((n, "first") for n in range(3000))))
        writer.flush()
        token = table.snapshot()
        for start in range(0, 3000, 500):
            writer.upsert(rows(*((n, "second") for n in range(start, start + 500))))
    lookups = []
    get_rows = lookup.get_rows

    def counted(snapshot: Any, keys: Any, *rest: Any) -> pa.Table:
        lookups.append(len(keys))
        return get_rows(snapshot, keys, *rest)

    monkeypatch.setattr(row_before, "get_rows", counted)
    found = list(table.changes(token, before=True, batch_rows=1000))
    assert lookups == [1000, 1000, 1000]
    before = [one["name"] for change in found for one in change.rows["_before"].to_pylist()]
    assert before == ["first"] * 3000


def test_fences_failures_and_takeovers(table: weir.Table) -> None:
    """In it is what is in the log: also what a failed call left there, and nothing that was refused."""
    failing, store = opened(table.uri)
    writers = [failing.writer(flush_on_close=False)]
    writers[0].upsert(rows((1, "one")))
    store.lose = [StorageError]
    with pytest.raises(StorageError, match="the answer was lost"):
        writers[0].upsert(rows((2, "in doubt")))
    writers[0].upsert(rows((3, "three")))
    writers.append(table.writer(takeover=True, flush_on_close=False))
    writers[1].upsert(rows((4, "four")))
    with pytest.raises(FencedError):
        writers[0].upsert(rows((5, "fenced")))
    writers.append(table.writer(takeover=True, flush_on_close=False))
    writers[2].upsert(rows((6, "six")))
    writers[2].flush()
    writers[2].delete([1])
    for writer in writers:
        writer.__exit__(RuntimeError, RuntimeError("gone"), None)
    assert read(table.changes()) == [
        (1, "one"),
        (2, "in doubt"),
        (3, "three"),
        (4, "four"),
        (6, "six"),
        (1, None),
    ]
    epochs = [(change.position, change.epoch) for change in table.changes(batch_rows=1)]
    assert [epoch for _, epoch in epochs] == [1, 1, 1, 2, 3, 3]
    assert [position for position, _ in epochs] == [2, 3, 4, 6, 8, 9]


def test_what_the_library_writes_is_in_it(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    key = {"lance-schema:unenforced-primary-key": "true"}
    schema = SCHEMA.set(0, SCHEMA.field("id").with_metadata(key))
    dataset = lance.write_dataset(pa.Table.from_pylist(rows((1, "base"), (2, "base")), schema), uri)
    dataset.initialize_mem_wal(bucket_column="id", num_buckets=1)
    table = weir.open(uri, fsync=False)
    start = table.snapshot()
    library_writer = dataset.mem_wal_writer(str(SHARD))
    library_writer.put(pa.Table.from_pylist(rows((2, "library"), (3, "library")), schema))
    library_writer.delete(pa.table({"id": [1]}))
    middle = table.snapshot()
    with table.writer(flush_on_close=False) as writer:
        writer.upsert(rows((3, "weir")))
        writer.flush()
    changes = list(table.changes(start, before=True, batch_rows=1))
    assert [listed(change) for change in changes] == [
        [(2, "library"), (3, "library")],
        [(1, None)],
        [(3, "weir")],
    ]
    before = [one for change in changes for one in change.rows["_before"].to_pylist()]
    assert [None if one is None else one["name"] for one in before] == ["base", None, "base", "library"]
    assert read(table.changes(middle)) == [(3, "weir")]
    # Nothing tells what was in the table before it had a log.
    assert read(table.changes()) == [(2, "library"), (3, "library"), (1, None), (3, "weir")]
    assert [row["name"] for row in table.scan(at=middle).to_table().sort_by("id").to_pylist()] == [
        "library",
        "library",
    ]


# --- Batches and places ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> tuple[weir.Table, dict[str, list[Written]]]:
    """A table of three shards, and what was written in each."""
    table = weir.create(
        tmp_path_factory.mktemp("history") / "t",
        SCHEMA,
        primary_key="id",
        shard_by=weir.bucket("id", 3),
        fsync=False,
    )
    written: dict[str, list[Written]] = {}
    for life in range(3):
        with table.writer(max_memtable_rows=12, flush_on_close=life != 1) as writer:
            for number in range(12):
                pairs = [(key, f"{life}.{number}") for key in range(number % 5, number % 5 + 4)]
                for key, name in pairs:
                    (shard,) = writer.upsert(rows((key, name))).positions
                    written.setdefault(str(shard), []).append((key, name))
        if life < 2:
            table.maintenance.merge()
    return table, written


def by_shard(changes: list[ChangeBatch]) -> dict[str, list[Written]]:
    found: dict[str, list[Written]] = {}
    for change in changes:
        found.setdefault(str(change.shard_id), []).extend(listed(change))
    return found


@pytest.mark.parametrize("before", [False, True])
@settings(max_examples=settings().max_examples // 2)
@given(stops=st.lists(st.integers(1, 12), max_size=6), batch_rows=st.integers(1, 40))
def test_a_feed_goes_on_exactly_after_any_batch(
    history: tuple[weir.Table, dict[str, list[Written]]], before: bool, stops: list[int], batch_rows: int
) -> None:
    table, written = history
    changes: list[ChangeBatch] = []
    place = None
    for stop in [*stops, 10**6]:
        feed = table.changes(place, before=before, batch_rows=batch_rows)
        for number, change in enumerate(feed, start=1):
            assert feed.token == change.token
            changes.append(change)
            if number == stop:
                break
        place = str(feed.token)
    assert by_shard(changes) == written
    assert all(change.rows.num_rows for change in changes)
    if before:
        held: dict[int, str | None] = {}
        for change in changes:
            for row in change.rows.to_pylist():
                assert (row["_before"] or {"name": None})["name"] == held.get(row["id"])
                held[row["id"]] = row["name"]


def test_a_feed_is_read_again_for_what_came_since(table: weir.Table) -> None:
    feed = table.changes()
    with table.writer(flush_on_close=False) as writer:
        assert read(feed) == []
        for number in range(3):
            writer.upsert(rows((number, "a")))
            writer.upsert(rows((number, "b")))
            assert read(feed) == [(number, "a"), (number, "b")]
            assert feed.token == table.snapshot(retain=None)
    assert read(feed) == []
    assert table.scan(at=feed.token).count() == 3


def test_the_rows_of_one_write_stay_together(table: weir.Table) -> None:
    with table.writer(flush_on_close=False) as writer:
        for size in (5, 1, 1, 1, 7):
            writer.upsert(rows(*((n, "a") for n in range(size))))
    sizes = {
        batch_rows: [change.rows.num_rows for change in table.changes(batch_rows=batch_rows)]
        for batch_rows in (1, 2, 3, 6, 15, 100)
    }
    assert sizes == {
        1: [5, 1, 1, 1, 7],
        2: [5, 2, 8],
        3: [5, 3, 7],
        6: [6, 9],
        15: [15],
        100: [15],
    }


def test_a_feed_ends_at_a_token(table: weir.Table) -> None:
    tokens = [table.snapshot()]
    with table.writer(flush_on_close=False) as writer:
        for number in range(4):
            writer.upsert(rows((number, "a")))
            tokens.append(table.snapshot())
            if number == 1:
                writer.flush()
                table.maintenance.merge()
    for first, start in enumerate(tokens):
        for last, end in enumerate(tokens):
            if last < first:
                with pytest.raises(OptionError, match="is older than the one to read since"):
                    table.changes(start, until=end)
                continue
            feed = table.changes(start, until=str(end), before=True)
            assert read(feed) == [(number, "a") for number in range(first, last)]
            assert feed.token == end.unpinned()
            assert read(feed) == []
    assert read(table.changes(until=tokens[2])) == [(0, "a"), (1, "a")]


def test_a_stream_for_anything_that_speaks_arrow(table: weir.Table) -> None:
    with table.writer(flush_on_close=False) as writer:
        writer.upsert(rows((1, "a")))
        writer.delete([1])
    reader = table.changes(before=True, batch_rows=1).to_reader()
    found = reader.read_all()
    assert found.column("_op").to_pylist() == ["upsert", "delete"]
    assert found.schema == table.changes(before=True).schema
    found.validate(full=True)


def test_keys_and_columns_of_every_kind(tmp_path: Path) -> None:
    schema = pa.schema(
        [
            pa.field("site", pa.string(), nullable=False),
            pa.field("number", pa.uint16(), nullable=False),
            ("vector", pa.list_(pa.float32(), 2)),
            ("place", pa.struct([("x", pa.int8()), ("y", pa.binary())])),
            ("seen", pa.timestamp("us", "UTC")),
            ("large", pa.large_string()),
        ]
    )
    table = weir.create(tmp_path / "t", schema, primary_key=["site", "number"], fsync=False)
    row = {
        "site": "é",
        "number": 65535,
        "vector": [1.5, -2.0],
        "place": {"x": -1, "y": b"\0"},
        "seen": datetime(2026, 1, 2, tzinfo=UTC),
        "large": "text",
    }
    empty = {"site": "", "number": 0, "vector": None, "place": None, "seen": None, "large": None}
    with table.writer(flush_on_close=False) as writer:
        writer.upsert([row, empty])
        writer.flush()
        table.maintenance.merge()
        writer.upsert([{**row, "large": "more"}])
        token = table.snapshot()
        writer.delete([("é", 65535), ("", 0)])
        writer.upsert([row])
    (change,) = table.changes(token, before=True)
    change.rows.validate(full=True)
    assert change.rows["_before"].to_pylist() == [{**row, "large": "more"}, empty, None]
    assert table.scan(at=token).count() == 2


def test_the_rows_before_are_those_before_a_merge_that_has_only_deleted(tmp_path: Path) -> None:
    base = pa.Table.from_pylist(rows((1, "base"), (2, "base")), schema=SCHEMA)
    lance.write_dataset(base, str(tmp_path / "adopted"))
    table = weir.adopt(tmp_path / "adopted", primary_key="id", fsync=False)
    with table.writer() as writer:
        writer.delete([1])
        writer.upsert(rows((2, "new")))
    with failpoint.armed("merge.before_commit", "raise"), pytest.raises(failpoint.FailpointError):
        table.maintenance.merge()
    assert BaseTable.open(open_store(table.uri, fsync=False)).dataset.count_rows() == 1
    (change,) = table.changes(before=True)
    assert [one["name"] for one in change.rows["_before"].to_pylist()] == ["base", "base"]


# --- Where it can begin ------------------------------------------------------------------------


def test_what_was_collected_is_said(table: weir.Table) -> None:
    tokens = []
    with table.writer(flush_on_close=False) as writer:
        for number in range(3):
            writer.upsert(rows((number, "a")))
            tokens.append(table.snapshot(retain=None))
            writer.flush()
            table.maintenance.merge()
        kept = table.snapshot(retain=None)
        writer.upsert(rows((7, "later")))
    collect(table)
    table = weir.open(table.uri, fsync=False)
    with pytest.raises(SnapshotExpiredError, match=r"WAL entry \d+ of shard .* is gone") as caught:
        table.changes()
    assert "since='earliest'" in str(caught.value)
    for before in (False, True):
        with pytest.raises(SnapshotExpiredError, match="is gone"):
            list(table.changes(tokens[0], before=before))
        assert read(table.changes("earliest", before=before)) == [(7, "later")]
    assert read(table.changes(kept)) == [(7, "later")]
    with pytest.raises(SnapshotExpiredError):
        table.changes(consumer="late")
    assert list(open_store(table.uri, fsync=False).list(CONSUMERS)) == []


def test_an_entry_that_vanishes_on_the_way_is_named(table: weir.Table) -> None:
    with table.writer(flush_on_close=False) as writer:
        for number in range(4):
            writer.upsert(rows((number, "a")))
        (shard,) = writer.epochs
    feed = table.changes(batch_rows=1)
    default_context().cache.clear()
    (Path(table.uri) / layout.wal_path(shard, 4)).unlink()
    changes = iter(feed)
    assert [listed(next(changes)), listed(next(changes))] == [[(0, "a")], [(1, "a")]]
    with pytest.raises(SnapshotExpiredError, match="WAL entry 4 of shard"):
        next(changes)
    assert feed.token.shards[0].position == 3


def test_a_damaged_entry_is_named(table: weir.Table) -> None:
    with table.writer(flush_on_close=False) as writer:
        (shard,) = writer.upsert(rows((1, "a"))).positions
    path = Path(table.uri) / layout.wal_path(shard, 2)
    path.write_bytes(path.read_bytes()[:-9])
    default_context().cache.clear()
    with pytest.raises(CorruptionError, match="position 2"):
        list(table.changes())


def test_a_place_is_no_state(table: weir.Table) -> None:
    with table.writer(flush_on_close=False) as writer:
        writer.upsert(rows((1, "a")))
        writer.upsert(rows((1, "b")))
    first = next(iter(table.changes(batch_rows=1))).token
    assert read(table.changes(str(first))) == [(1, "b")]
    for ask in (lambda: table.scan(at=first).to_table(), lambda: table.changes(first, before=True)):
        with pytest.raises(InputError, match="marks a position in the change feed"):
            ask()
    # With the rows before the changes, every place is a state as well.
    state = next(iter(table.changes(batch_rows=1, before=True))).token
    assert table.scan(at=state).to_table().column("name").to_pylist() == ["a"]


def stored_for_consumers(table: weir.Table) -> list[str]:
    """Return what Weir keeps beside the table's files, but for their checksums."""
    paths = [meta.path for meta in open_store(table.uri, fsync=False).list("_weir")]
    return [path for path in paths if not path.startswith("_weir/checksums/")]


@pytest.mark.parametrize(
    "options",
    [
        {"batch_rows": 0},
        {"batch_rows": True},
        {"batch_rows": 1.5},
        {"consumer": ""},
        {"consumer": "../up"},
        {"max_age": timedelta(days=1)},
        {"max_wal_entries": 5},
        {"consumer": "a", "max_age": timedelta(0)},
        {"consumer": "a", "max_age": "60"},
        {"consumer": "a", "max_age": timedelta.max},
        {"consumer": "a", "max_wal_entries": 0},
    ],
)
def test_options_are_checked_before_anything_is_stored(table: weir.Table, options: dict[str, Any]) -> None:
    with pytest.raises(OptionError):
        table.changes(**options)
    assert stored_for_consumers(table) == []


@pytest.mark.parametrize("name", ["_op", "_position", "_before"])
def test_columns_that_the_feed_adds_cannot_be_the_tables(
    tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    schema = SCHEMA.append(pa.field(name, pa.int8()))
    with pytest.raises(SchemaError, match=f"{name!r} is reserved: the change feed adds"):
        weir.create(tmp_path / "t", schema, primary_key="id", fsync=False)
    lance.write_dataset(schema.empty_table(), str(tmp_path / "t"))
    with caplog.at_level(logging.WARNING, "weir"):
        table = weir.adopt(tmp_path / "t", primary_key="id", fsync=False)
    (said,) = (one.event_fields for one in caplog.records)  # type: ignore[attr-defined]
    assert (said["event"], said["column"]) == ("table.without_change_feed", name)
    with pytest.raises(SchemaError, match=name):
        table.changes(before=True)
    if name == "_before":
        assert list(table.changes()) == []
    with pytest.raises(SchemaError, match="_epoch"):
        table.alter(add=[pa.field("_epoch", pa.int8())])
    with pytest.raises(SchemaError, match="_epoch"):
        table.alter(rename={"name": "_epoch"})
    # Its other columns evolve, and it has a feed once its own is called something else.
    table.alter(add=[pa.field("more", pa.int8())])
    table.alter(rename={name: "renamed"})
    assert list(table.changes(before=True)) == []


def test_names_that_are_refused_are_those_that_the_feed_adds() -> None:
    assert set(change_schema(pa.schema([]), before=True).names) == FEED_NAMES


# --- Consumers ---------------------------------------------------------------------------------


def write(table: weir.Table, *pairs: tuple[int, str]) -> None:
    with table.writer() as writer:
        writer.upsert(rows(*pairs))


def test_a_consumer_goes_on_where_it_acknowledged(table: weir.Table) -> None:
    write(table, (1, "a"))
    feed = table.changes(consumer="billing")
    assert read(feed) == [(1, "a")]
    # Not acknowledged: the next one gets it again.
    assert read(table.changes(consumer="billing")) == [(1, "a")]
    feed.commit()
    feed.commit()
    write(table, (2, "b"))
    assert read(table.changes(consumer="billing")) == [(2, "b")]
    code = """
import sys, weir
feed = weir.open(sys.argv[1]).changes(consumer="billing")
for change in feed:
    print(change.rows["id"].to_pylist())
    feed.commit()
"""
    done = subprocess.run(
        [*weir_python(), code, table.uri], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout == "[2]\n"
    assert read(table.changes(consumer="billing")) == []
    table.drop_consumer("billing")
    table.drop_consumer("billing")
    assert read(table.changes(consumer="billing")) == [(1, "a"), (2, "b")]


def test_a_consumer_has_a_place_of_its_own(table: weir.Table) -> None:
    token = table.snapshot()
    write(table, (1, "a"))
    assert read(table.changes(token, consumer="one")) == [(1, "a")]
    feed = table.changes(token, consumer="one")
    read(feed)
    feed.commit()
    write(table, (2, "b"))
    # The same call on every run: where it began counts for a new consumer alone.
    for since in (token, "earliest", table.snapshot()):
        assert read(table.changes(since, consumer="one")) == [(2, "b")]
    with pytest.raises(OptionError, match="without a consumer"):
        table.changes(token).commit()


def test_a_consumer_keeps_what_it_has_not_read(table: weir.Table) -> None:
    write(table, (1, "a"))
    slow = table.changes(consumer="slow", before=True)
    quick = table.changes(consumer="quick")
    for number in range(2, 6):
        write(table, (number % 3, f"write {number}"))
        table.maintenance.merge()
        collect(table)
        read(quick)
        quick.commit()
    expected = [(1, "a"), *((number % 3, f"write {number}") for number in range(2, 6))]
    table = weir.open(table.uri, fsync=False)
    slow = table.changes(consumer="slow", before=True, batch_rows=1)
    found = list(slow)
    assert [one for change in found for one in listed(change)] == expected
    before = [one for change in found for one in change.rows["_before"].to_pylist()]
    assert [one and one["name"] for one in before] == [None, None, None, "a", "write 2"]
    slow.commit()
    collect(table)
    with pytest.raises(SnapshotExpiredError):
        table.changes()
    assert read(table.changes(consumer="slow", before=True)) == []
    assert read(table.changes(consumer="quick")) == []
    write(table, (8, "next"))
    assert read(table.changes(consumer="slow", before=True)) == [(8, "next")]


def test_a_shard_that_begins_later_is_kept_for_a_consumer(tmp_path: Path) -> None:
    table = weir.create(tmp_path / "t", SCHEMA, primary_key="id", shard_by=weir.bucket("id", 4), fsync=False)
    table.changes(consumer="early")
    write(table, *((number, "a") for number in range(8)))
    table.maintenance.merge()
    collect(table)
    assert sorted(read(table.changes(consumer="early"))) == [(number, "a") for number in range(8)]


def test_the_roots_of_consumers(table: weir.Table) -> None:
    store = open_store(table.uri, fsync=False)
    write(table, (1, "a"))
    write(table, (2, "b"))
    plain = table.changes(consumer="plain", max_age=timedelta(hours=2))
    state = table.snapshot()
    table.release(state)
    table.changes(state, consumer="state", before=True)
    now = datetime.now(UTC)
    roots = {root.holder: root for root in live_roots(store, now)}
    (cut,) = state.shards
    assert set(roots) == {"consumer plain", "consumer state"}
    assert roots["consumer plain"].base_version is None
    assert [shard.manifest_version for shard in roots["consumer plain"].shards] == [None]
    assert roots["consumer plain"].first_position(cut.shard_id) == 0
    assert roots["consumer state"].base_version == state.base_version
    assert [shard.manifest_version for shard in roots["consumer state"].shards] == [cut.manifest_version]
    assert roots["consumer state"].first_position(cut.shard_id) == cut.first_position
    # The log of a shard that neither has seen is needed from its beginning.
    assert roots["consumer state"].first_position(UUID(int=5)) == 0
    list(plain)
    plain.commit()
    (root,) = (root for root in live_roots(store, now) if root.holder == "consumer plain")
    assert root.first_position(cut.shard_id) == cut.position + 1
    later = now + timedelta(hours=3)
    assert [root.holder for root in live_roots(store, later)] == ["consumer state"]
    assert live_roots(store, now + timedelta(days=8)) == ()


def test_a_consumer_that_is_silent_for_too_long_is_dropped(table: weir.Table) -> None:
    write(table, (1, "a"))
    feed = table.changes(consumer="silent", max_age=timedelta(milliseconds=20))
    time.sleep(0.05)
    assert live_roots(open_store(table.uri, fsync=False), datetime.now(UTC)) == ()
    with pytest.raises(SnapshotExpiredError, match=r"'silent' has been dropped: .* its limit is") as caught:
        table.changes(consumer="silent", max_age=timedelta(days=1))
    assert "drop_consumer('silent')" in str(caught.value)
    # What it has in hand it may still acknowledge, and whatever is gone by then is named.
    assert read(feed) == [(1, "a")]
    feed.commit()
    table.drop_consumer("silent")
    assert read(table.changes(consumer="silent")) == [(1, "a")]


def test_a_consumer_that_is_too_far_behind_is_dropped(table: weir.Table) -> None:
    feed = table.changes(consumer="behind", max_wal_entries=4)
    store = open_store(table.uri, fsync=False)
    for number in range(2):
        write(table, (number, "a"))  # a fence and an entry
        assert len(live_roots(store, datetime.now(UTC))) == 1
    with table.writer(flush_on_close=False) as writer:
        writer.upsert(rows((3, "a")))
        # What no generation covers is kept anyway, and not for anybody.
        assert len(live_roots(store, datetime.now(UTC))) == 1
        writer.flush()
    assert live_roots(store, datetime.now(UTC)) == ()
    with pytest.raises(SnapshotExpiredError, match="6 log entries were kept for it, and its limit is 4"):
        table.changes(consumer="behind")
    table.maintenance.merge()
    collect(table)
    with pytest.raises(SnapshotExpiredError, match="WAL entry 2 of shard"):
        list(feed)
    table.drop_consumer("behind")
    table.changes(table.snapshot(), consumer="behind", max_wal_entries=4)


def test_limits_stay_until_they_are_set_anew(table: weir.Table) -> None:
    def stored() -> tuple[timedelta, int, bool]:
        data = store.get(consumer_path("one"))
        consumer = feed_consumer.decode(data, where="here")
        return consumer.max_age, consumer.max_wal_entries, consumer.before

    store = open_store(table.uri, fsync=False)
    table.changes(table.snapshot(), consumer="one")
    assert stored() == (timedelta(days=7), 1_000_000, False)
    table.changes(consumer="one", max_age=timedelta(days=1), before=True).commit()
    table.changes(consumer="one", max_wal_entries=9)
    assert stored() == (timedelta(days=1), 9, False)


def test_two_feeds_of_one_consumer_do_not_overwrite_each_other(table: weir.Table) -> None:
    write(table, (1, "a"))
    one, other = table.changes(consumer="same"), weir.open(table.uri).changes(consumer="same")
    read(one)
    one.commit()
    write(table, (2, "b"))
    assert read(other) == [(1, "a"), (2, "b")]
    with pytest.raises(ConflictError, match="'same' was moved on by another feed"):
        other.commit()
    assert read(table.changes(consumer="same")) == [(2, "b")]
    table.drop_consumer("same")
    with pytest.raises(ConflictError, match="'same' has been dropped"):
        one.commit()


def test_lost_answers_do_not_lose_a_consumers_place(table: weir.Table) -> None:
    write(table, (1, "a"))
    table, store = opened(table.uri)
    store.lose = [ObjectExistsError]
    feed = table.changes(consumer="one")
    read(feed)
    store.lose = [PreconditionError]
    feed.commit()
    write(weir.open(table.uri), (2, "b"))
    read(feed)
    store.lose = [StorageError]
    with pytest.raises(StorageError, match="the answer was lost"):
        feed.commit()
    feed.commit()
    feed.commit()
    assert read(table.changes(consumer="one")) == []


def test_two_that_make_one_consumer_at_once(table: weir.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    table, store = opened(table.uri)
    put = store.put_if_absent

    def late(path: str, data: Any) -> None:
        if path.startswith(CONSUMERS):
            monkeypatch.undo()
            weir.open(table.uri).changes(consumer="one")
        put(path, data)

    monkeypatch.setattr(store, "put_if_absent", late)
    with pytest.raises(ConflictError, match="created by another process"):
        table.changes(consumer="one")
    assert list(table.changes(consumer="one")) == []


@pytest.mark.parametrize(
    "name", ["../snapshots/a", "..", "/tmp/a", "a/../../b", "a\0", "a\n", "%2e%2e", "a" * 101]
)
def test_no_name_leads_out_of_the_directory_of_consumers(table: weir.Table, name: str) -> None:
    token = table.snapshot()
    for use in (lambda: table.changes(consumer=name), lambda: table.drop_consumer(name)):
        with pytest.raises(OptionError, match="is not the name of a consumer"):
            use()
    assert stored_for_consumers(table) == [f"_weir/snapshots/{token.pin}.json"]


def test_rows_that_the_library_appended_are_in_reads_and_not_in_the_feed(table: weir.Table) -> None:
    token = table.snapshot()
    write(table, (1, "weir"))
    table.maintenance.merge()
    lance.write_dataset(pa.Table.from_pylist(rows((2, "lance")), table.schema), table.uri, mode="append")
    later = table.snapshot()
    write(table, (2, "replaced"))
    assert table.scan(at=later).count() == table.scan().count() == 2
    assert read(table.changes(token)) == [(1, "weir"), (2, "replaced")]
    # Where it was there before a change, it is the row before.
    (change,) = table.changes(later, before=True)
    assert [one["name"] for one in change.rows["_before"].to_pylist()] == ["lance"]


def test_what_else_lies_among_the_consumers_is_left_alone(table: weir.Table) -> None:
    store = open_store(table.uri, fsync=False)
    table.changes(consumer="one")
    for path in ("notes.txt", "a b.json", "deeper/one.json"):
        store.put(f"{CONSUMERS}/{path}", b"something")
    assert [root.holder for root in live_roots(store, datetime.now(UTC))] == ["consumer one"]


def test_a_log_of_which_nothing_follows_a_kept_fence(table: weir.Table) -> None:
    """Collection keeps fence entries for longer: they are no sign that what lies between them is there."""
    with table.writer(flush_on_close=False) as writer:
        for number in range(4):
            writer.upsert(rows((number, "a")))
        (shard,) = writer.epochs
        writer.flush()
    with table.writer(flush_on_close=False) as writer:
        writer.upsert(rows((9, "b")))
    # What is not merged is never collected.
    table.maintenance.merge()
    store = open_store(table.uri, fsync=False)
    store.delete([layout.wal_path(shard, position) for position in (2, 3)])
    default_context().cache.clear()
    assert Wal(store, shard, namespace="another").exists(1)
    with pytest.raises(SnapshotExpiredError, match="WAL entry 3 of shard"):
        table.changes()
    assert read(table.changes("earliest")) == [(2, "a"), (3, "a"), (9, "b")]


def test_a_token_from_before_a_backup_was_restored(table: weir.Table) -> None:
    write(table, (1, "a"))
    token = table.snapshot()
    (cut,) = token.shards
    ahead = replace(token, shards=(replace(cut, position=cut.position + 3),))
    for read_it in (
        lambda: table.scan(at=ahead).to_table(),
        lambda: list(table.changes(token, until=ahead)),
    ):
        with pytest.raises(SnapshotExpiredError, match=f"WAL entry {cut.position + 1} of shard"):
            read_it()


def test_a_consumer_that_is_behind_reads_on_with_a_limit_after_collection(tmp_path: Path) -> None:
    """What its place needs is kept, and what a state between its place and the end would need is not."""
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("n", pa.int64())])
    table = weir.create(tmp_path / "t", schema, primary_key="id", fsync=False)
    table.changes(consumer="behind", before=True).commit()
    told = []
    with table.writer() as writer:
        for n in range(6):
            writer.upsert([{"id": 1, "n": n}])
            told.append({"id": 1, "n": n - 1} if n else None)
            if n % 2:
                writer.flush()
        table.maintenance.merge()
        writer.upsert([{"id": 1, "n": 6}])
        told.append({"id": 1, "n": 5})
        for _ in range(3):
            table.maintenance.collect_garbage(horizon=timedelta(0), version_retention=timedelta(0))
        found = []
        for _ in told:
            feed = weir.open(table.uri, fsync=False).changes(consumer="behind", before=True, max_rows=1)
            found += [row["_before"] for change in feed for row in change.rows.to_pylist()]
            feed.commit()
    assert found == told


def test_a_resharded_table_that_nobody_has_written_to_has_no_changes(tmp_path: Path) -> None:
    table = weir.create(tmp_path / "t", SCHEMA, primary_key="id", fsync=False)
    table.alter(shard_by=weir.bucket("id", 2))
    assert list(weir.open(table.uri, fsync=False).changes(before=True)) == []
