"""Plans of the change feed: every change once, within limits, on any machine, and at a known cost."""

from __future__ import annotations

import math
import pickle
import subprocess
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import given, settings
from tests.forked_program import weir_python

import weir
from weir.base.table import BaseTable
from weir.changes.plan import PlanLimits, admit
from weir.changes.range import ChangeRange
from weir.engine.context import default_context
from weir.errors import InputError, OptionError, SnapshotExpiredError
from weir.format import layout
from weir.format.ipc_framing import StreamSize
from weir.format.snapshot_token import SnapshotToken
from weir.format.wal_entry import wal_schema
from weir.storage.counting import CountingStore
from weir.storage.interface import Bytes
from weir.storage.open import open_store
from weir.table.table import Table

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])
SHARDS = 3
Listed = dict[str, list[tuple[int, str, int, str | None]]]


def rows(*ids: int, name: str) -> list[dict[str, Any]]:
    return [{"id": one, "name": name} for one in ids]


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> weir.Table:
    """A table of three shards with writes of different sizes, deletes, flushes, merges and a take-over."""
    path = tmp_path_factory.mktemp("plans") / "t"
    made = weir.create(path, SCHEMA, primary_key="id", shard_by=weir.bucket("id", SHARDS), fsync=False)
    for life in range(3):
        with made.writer(max_memtable_rows=25, flush_on_close=life == 1, takeover=True) as writer:
            for number in range(6):
                writer.upsert(rows(*range(number, number + 2 + 3 * (number % 3)), name=f"{life}.{number}"))
            writer.delete([number, number + 1])
        if life == 1:
            made.maintenance.merge()
    return made


def listed(parts: list[pa.Table]) -> Listed:
    """Return key, operation, position and row before of every change, per shard."""
    found: Listed = {}
    for part in parts:
        for row in part.to_pylist():
            before = row.get("_before")
            change = (row["id"], row["_op"], row["_position"], before and before["name"])
            found.setdefault(row["_shard"], []).append(change)
    return found


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("range_entries", [None, 1, 2, 7])
def test_the_ranges_of_a_plan_hold_every_change_once(
    history: weir.Table, before: bool, range_entries: int | None
) -> None:
    whole = listed([change.rows for change in history.changes(before=before)])
    feed = history.changes(before=before)
    plan = feed.plan(range_entries=range_entries)
    assert feed.token == plan.since
    assert plan.until == feed.latest()
    assert listed([one.to_table() for one in plan.ranges]) == whole
    if range_entries is not None and not before:
        assert all(0 < one.position - one.begin.position <= range_entries for one in plan.ranges)
    else:
        assert len(plan.ranges) == SHARDS
    assert list(history.changes(plan.until, before=before)) == []
    again = history.changes(plan.since, until=plan.until, before=before).plan()
    assert listed([one.to_table() for one in again.ranges]) == whole


@settings(max_examples=settings().max_examples // 2)
@given(limits=st.lists(st.integers(1, 60), min_size=1, max_size=5), before=st.booleans(), plans=st.booleans())
def test_limited_reads_add_up_to_the_whole(
    history: weir.Table, limits: list[int], before: bool, plans: bool
) -> None:
    whole = listed([change.rows for change in history.changes(before=before)])
    largest = max(change.rows.num_rows for change in history.changes(batch_rows=1))
    parts: list[pa.Table] = []
    place = None
    for number in range(1000):
        limit = limits[number % len(limits)]
        feed = history.changes(place, before=before, max_rows=limit)
        if plans:
            plan = feed.plan()
            found = [one.to_table() for one in plan.ranges]
            assert plan.rows == sum(part.num_rows for part in found)
            place = plan.until
        else:
            found = [change.rows for change in feed]
            place = feed.token
        assert sum(part.num_rows for part in found) <= max(limit, largest)
        if not any(part.num_rows for part in found):
            break
        parts += found
    assert listed(parts) == whole
    assert place == history.changes().latest()


@given(
    sizes=st.lists(st.lists(st.integers(0, 20), max_size=8), max_size=4),
    max_rows=st.none() | st.integers(1, 40),
    max_bytes=st.none() | st.integers(1, 40_000),
)
def test_admission_stays_within_its_limits_and_goes_on(
    sizes: list[list[int]], max_rows: int | None, max_bytes: int | None
) -> None:
    # Rows of some entries are long, those of others short.
    entries = {
        UUID(int=n): [
            (at, StreamSize(size, size * (1_500 if at % 2 else 10))) for at, size in enumerate(some, 1)
        ]
        for n, some in enumerate(sizes)
    }
    admitted = admit({shard: iter(some) for shard, some in entries.items()}, PlanLimits(max_rows, max_bytes))
    for shard, one in admitted.items():
        read = [size for at, size in entries[shard] if at <= one.position]
        assert (one.rows, one.nbytes) == (sum(size.rows for size in read), sum(size.nbytes for size in read))
    rows = sum(one.rows for one in admitted.values())
    nbytes = sum(one.nbytes for one in admitted.values())
    nonempty = [size for some in entries.values() for _, size in some if size.rows]
    most_rows, most_bytes = max_rows or math.inf, max_bytes or math.inf
    within = rows <= most_rows and nbytes <= most_bytes
    assert within or sum(one.rows > 0 for one in admitted.values()) == 1
    assert bool(rows) == bool(nonempty)
    if sum(one.rows for one in nonempty) <= most_rows and sum(one.nbytes for one in nonempty) <= most_bytes:
        assert {shard: one.position for shard, one in admitted.items()} == {
            shard: len(some) for shard, some in entries.items() if some
        }


def test_bytes_are_limited_wherever_the_rows_are_stored(tmp_path: Path) -> None:
    """In the log under either count, the process's or the store's, and in generations beside the log."""
    table = weir.create(tmp_path / "t", SCHEMA, primary_key="id", fsync=False)
    with table.writer(flush_on_close=False) as writer:
        for number in range(4):
            writer.upsert(rows(number, name="x" * 10_000))
            writer.upsert(rows(number + 10, name="short"))
    long = pa.table(
        {
            "id": range(100, 140),
            "name": [Random(n).randbytes(1_500).hex() for n in range(40)],
            "_tombstone": [False] * 40,
        },
        schema=wal_schema(SCHEMA),
    )
    (values,) = table.internals.router.partition(long).values
    staged = table.internals.stage(values, long, spec_id=1)
    with table.writer() as writer:
        writer.publish_routed([(values, [staged])])
    for forget in (False, True):
        if forget:
            default_context().cache.clear()
        place: SnapshotToken | str = "earliest"
        found = []
        for _ in range(20):
            plan = table.changes(place).plan(max_bytes=25_000)
            if not plan.ranges:
                break
            place = plan.until
            assert plan.rows is not None
            assert plan.nbytes is not None
            found.append(StreamSize(plan.rows, plan.nbytes))
        first, second, beside = [one for one in found if one.rows]
        assert [one.rows for one in (first, second, beside)] == [4, 4, 40]
        assert all(20_000 < one.nbytes <= 25_000 for one in (first, second))
        # Alone, since it is larger than the limit by itself; its text has four bits in a byte.
        assert 40 * 1_500 < beside.nbytes < 40 * 6_000
        assert all(one.nbytes == 0 for one in found if not one.rows)


def test_a_large_write_in_a_quiet_shard_gets_through(tmp_path: Path) -> None:
    """Though a busier shard always has something that fits."""
    table = weir.create(tmp_path / "t", SCHEMA, primary_key="id", shard_by=weir.bucket("id", 2), fsync=False)
    with table.writer(flush_on_close=False) as writer:
        shards = {n: next(iter(writer.upsert(rows(n, name="first")).positions)) for n in range(9)}
        quiet = 0
        busy = next(n for n, shard in shards.items() if shard != shards[quiet])
        place = table.snapshot(retain=None)
        writer.upsert(rows(*[quiet] * 50, name="large"))
        for _ in range(60):
            for _ in range(3):
                writer.upsert(rows(busy, name="busy"))
            feed = table.changes(place, max_rows=2)
            if any(change.rows.num_rows == 50 for change in feed):
                return
            place = feed.token
    pytest.fail("the large write was never admitted")


def test_ranges_are_read_in_another_process(history: weir.Table, tmp_path: Path) -> None:
    code = """
import pickle, sys
import pyarrow as pa
for task in sys.argv[1:]:
    with open(task, "rb") as file:
        part = pickle.load(file)
    with pa.OSFile(task + ".arrow", "wb") as sink, pa.ipc.new_file(sink, part.schema) as writer:
        writer.write_table(part.to_table())
"""
    plan = history.changes(before=True).plan()
    whole = listed([change.rows for change in history.changes(before=True)])
    tasks = []
    for number, one in enumerate(plan.ranges):
        data = pickle.dumps(one)
        assert len(data) < 4_000
        tasks.append(tmp_path / str(number))
        tasks[-1].write_bytes(data)
    subprocess.run([*weir_python(), code, *map(str, tasks)], timeout=120, check=True)
    parts = [pa.ipc.open_file(task.with_suffix(".arrow")).read_all() for task in tasks]
    assert listed(parts) == whole


def test_a_range_names_what_is_gone(history: weir.Table, tmp_path: Path) -> None:
    table = weir.create(tmp_path / "t", SCHEMA, primary_key="id", fsync=False)
    with table.writer(flush_on_close=False) as writer:
        for number in range(4):
            writer.upsert(rows(number, name="a"))
        (shard,) = writer.epochs
    (part,) = table.changes().plan().ranges
    part = pickle.loads(pickle.dumps(part))
    assert isinstance(part, ChangeRange)
    default_context().cache.clear()
    (Path(table.uri) / layout.wal_path(shard, 3)).unlink()
    with pytest.raises(SnapshotExpiredError, match="WAL entry 3 of shard"):
        part.to_table()
    with pytest.raises(SnapshotExpiredError, match="WAL entry 3 of shard"):
        table.changes().plan(max_rows=100)


@pytest.mark.parametrize(
    "options", [{"max_rows": 0}, {"max_bytes": 0}, {"range_entries": 0}, {"max_rows": True}]
)
def test_numbers_are_checked(history: weir.Table, options: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match="whole number of at least 1"):
        history.changes().plan(**options)


# --- What it costs -----------------------------------------------------------------------------


@pytest.fixture
def counted(tmp_path: Path) -> tuple[Table, CountingStore, int]:
    """A table of three shards that was read before, the store it counts on, and its number of entries."""
    weir.create(tmp_path / "t", SCHEMA, primary_key="id", shard_by=weir.bucket("id", SHARDS), fsync=False)
    with weir.open(tmp_path / "t", fsync=False).writer(flush_on_close=False) as writer:
        for number in range(5):
            writer.upsert(rows(*range(12), name=str(number)))
    default_context().cache.clear()
    store = CountingStore(open_store(tmp_path / "t", fsync=False))
    table = Table(store, BaseTable.open(store))
    positions = sum(cut.position for cut in table.snapshot(retain=None).shards)
    return table, store, positions


def test_what_a_plan_costs(
    counted: tuple[Table, CountingStore, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    table, store, entries = counted
    brought = []

    def get_range(path: str, start: int, length: int) -> Bytes:
        brought.append(length)
        return CountingStore.get_range(store, path, start, length)

    monkeypatch.setattr(store, "get_range", get_range)
    feed = table.changes(table.snapshot(retain=None))
    store.reset()
    feed.latest()
    # Per shard: the next manifest, that this one is there, the next log entry, and the manifest once more.
    assert dict(store.counts) == {"list_directories": 1, "get": 4 * SHARDS, "get_range": SHARDS}
    store.reset()
    assert feed.plan().ranges == ()
    assert dict(store.counts) == {"list_directories": 1, "get": 4 * SHARDS, "get_range": SHARDS}
    whole = table.changes("earliest")
    brought.clear()
    limited = whole.plan(max_rows=1_000)
    # The next log entry is looked for; and the rows of every entry are counted with one short read.
    assert brought == [96] * (SHARDS + entries)
    assert limited.rows == 60
    brought.clear()
    whole.plan(max_rows=1_000)
    assert brought == [96] * SHARDS


def test_what_reading_costs(counted: tuple[Table, CountingStore, int]) -> None:
    table, store, entries = counted
    plan = table.changes("earliest").plan()
    store.reset()
    assert sum(one.to_table().num_rows for one in plan.ranges) == 60
    # Each entry once. Some writers count from 0, under one of two names: that is looked for once per log.
    assert dict(store.counts) == {"get": entries + 2 * SHARDS}


def test_a_feed_does_not_push_out_what_readers_hold(counted: tuple[Table, CountingStore, int]) -> None:
    table, _, _ = counted
    held = default_context().cache.nbytes
    assert sum(change.rows.num_rows for change in table.changes("earliest")) == 60
    assert default_context().cache.nbytes == held
    table.scan().count()
    assert default_context().cache.nbytes > held


# --- Acknowledging a plan ----------------------------------------------------------------------


def test_a_consumer_acknowledges_what_others_have_read(tmp_path: Path) -> None:
    table = weir.create(tmp_path / "t", SCHEMA, primary_key="id", shard_by=weir.bucket("id", 2), fsync=False)
    other = weir.create(tmp_path / "o", SCHEMA, primary_key="id", fsync=False)
    with table.writer() as writer:
        for number in range(6):
            writer.upsert(rows(*range(number, number + 4), name=str(number)))
    feed = table.changes(consumer="stream")
    first = feed.plan(max_rows=8)
    feed.commit(str(first.until))
    second = table.changes(consumer="stream").plan()
    seen = [one.to_table() for one in (*first.ranges, *second.ranges)]
    assert sum(part.num_rows for part in seen) == 24
    feed.commit(second.until)
    feed.commit(second.until)
    assert list(table.changes(consumer="stream")) == []
    for place, message in (
        (first.until, "has acknowledged more"),
        (other.snapshot(retain=None), "belongs to table"),
        ("w1.AAAA", "not the text of a snapshot token"),
    ):
        with pytest.raises(InputError, match=message):
            feed.commit(place)
    assert list(table.changes(consumer="stream")) == []
