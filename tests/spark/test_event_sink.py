"""The sink of the format "weir-events" without Spark: what tasks stage, and what the driver makes of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pytest

import weir
from weir.errors import SchemaError
from weir.events.store import EventStore
from weir.format.source import Source
from weir.spark import event_writer
from weir.spark.event_options import EventWriteOptions
from weir.spark.event_writer import EventRows, NumberedRows

SOURCE = Source("job", 1)


@pytest.fixture
def store(tmp_path: Path) -> EventStore:
    store = weir.events.create(tmp_path / "store", buckets=3, fsync=False)
    store.define("a", {"n": "int", "word": "string | null"})
    return store


@pytest.fixture
def everything_is_staged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_writer, "inline_bytes", lambda task: 0)


def options(store: EventStore) -> EventWriteOptions:
    return EventWriteOptions.parse({"path": store.path, "type": "a", "lease_wait": "0", "fsync": "false"})


def results(
    store: EventStore, parts: Sequence[Sequence[int]], monkeypatch: pytest.MonkeyPatch
) -> list[NumberedRows]:
    """Return what the tasks of a batch make of numbers, which are of seven contexts."""
    rows = EventRows.of(options(store), store)
    found = []
    for part, numbers in enumerate(parts):
        monkeypatch.setattr(event_writer, "task_number", lambda part=part: part)
        table = pa.table({"context_id": [f"c{n % 7}" for n in numbers], "n": pa.array(numbers, pa.int64())})
        found.append(rows.result(table.to_batches(max_chunksize=10)))
    return found


def commit(store: EventStore, found: list[NumberedRows], source: Source | None = SOURCE) -> None:
    with options(store).open() as opened:
        event_writer._commit(opened, options(store), found, source)


def stories(store: EventStore) -> dict[str, list[int]]:
    rows = weir.events.open(store.path).replay().to_table().to_pylist()
    ids = [row["event_id"] for row in rows]
    assert ids == sorted(set(ids))
    found: dict[str, list[int]] = {}
    for row in rows:
        found.setdefault(row["context_id"], []).append(row["n"])
    return found


def of_contexts(numbers: Sequence[int]) -> dict[str, list[int]]:
    return {f"c{of}": [n for n in numbers if n % 7 == of] for of in range(7)}


# The numbers fall: an order by anything but that of the rows and parts would show.
PARTS = [range(100, 60, -1), range(60, 50, -1), (), range(50, 0, -1)]
ALL = [n for part in PARTS for n in part]


@pytest.mark.usefixtures("everything_is_staged")
def test_what_tasks_have_staged_is_published_as_it_is(
    store: EventStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = results(store, PARTS, monkeypatch)
    assert stories(store) == {}
    monkeypatch.setattr(weir.events.writer, "staged_anew", None)
    commit(store, found)
    assert stories(store) == of_contexts(ALL)
    assert not event_writer._routed(store, found).changes
    # What comes after comes above it, in this process and in others; so does the next batch.
    with store.writer() as writer:
        versions = {f"c{n}": store.version(f"c{n}") for n in range(7)}
        for context, version in versions.items():
            assert writer.append("a", context, {"n": 1000}, expected=version).version > version
    commit(store, results(store, [range(200, 207)], monkeypatch), Source("job", 2))
    assert stories(store) == {
        name: [*n, 1000, 200 + (int(name[1]) - 4) % 7] for name, n in of_contexts(ALL).items()
    }


@pytest.mark.usefixtures("everything_is_staged")
@pytest.mark.parametrize("appended", ["c0", "c1", "c2", "c3"])
def test_what_others_append_meanwhile_comes_before(
    store: EventStore, monkeypatch: pytest.MonkeyPatch, appended: str
) -> None:
    found = results(store, PARTS, monkeypatch)
    with store.writer() as writer:
        first = writer.append("a", appended, {"n": 1000})
    commit(store, found)
    expected = of_contexts(ALL)
    expected[appended] = [1000, *expected[appended]]
    assert stories(store) == expected
    assert store.version(appended) > first.version


@pytest.mark.usefixtures("everything_is_staged")
def test_a_batch_is_written_once_however_it_is_parted(
    store: EventStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    routed = event_writer._routed(store, results(store, PARTS, monkeypatch))
    with store.writer() as writer:
        # Killed after the first of three shards.
        one_shard = weir.events.batches.RoutedEvents(
            (), routed.staged[:1], routed.first_tick, routed.end_tick, routed.spec_id
        )
        writer.ingest_routed(one_shard, SOURCE)
    assert 0 < sum(map(len, stories(store).values())) < 100
    for parts in ([ALL], [ALL[:30], ALL[30:]], PARTS):
        commit(store, results(store, parts, monkeypatch))
        assert stories(store) == of_contexts(ALL)


@pytest.mark.usefixtures("everything_is_staged")
def test_parts_that_are_larger_than_their_share_of_ids_are_numbered_anew(
    store: EventStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_writer, "TICKS_OF_A_PART", 8)
    commit(store, results(store, PARTS, monkeypatch))
    assert stories(store) == of_contexts(ALL)


@pytest.mark.usefixtures("everything_is_staged")
def test_who_is_forgotten_meanwhile_begins_anew(store: EventStore, monkeypatch: pytest.MonkeyPatch) -> None:
    with store.writer() as writer:
        writer.append("a", "c1", {"n": 1000})
    found = results(store, PARTS, monkeypatch)
    store.forget("c1")
    store.maintain()
    commit(store, found)
    assert stories(store) == of_contexts(ALL)


def test_few_go_through_the_log_beside_many(store: EventStore, monkeypatch: pytest.MonkeyPatch) -> None:
    # Of one shard the rows of the second part are staged, between those of others.
    monkeypatch.setattr(event_writer, "inline_bytes", lambda task: 0 if task == 1 else 1 << 20)
    parts = [range(100, 60, -1), [60, 53, 46, 39], range(30, 0, -1)]
    found = results(store, parts, monkeypatch)
    routed = event_writer._routed(store, found)
    assert (len(routed.changes), [len(all_of) for _, all_of in routed.staged]) == (1, [3])
    commit(store, found)
    assert stories(store) == of_contexts([n for part in parts for n in part])


def test_an_error_counts_rows_from_the_first_of_the_partition(
    store: EventStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = EventRows.of(options(store), store)
    table = pa.table({"context_id": ["c"] * 25, "n": [*range(23), None, 24]})
    with pytest.raises(SchemaError, match="event 'a', field 'n', row 23: null is not allowed"):
        rows.result(table.to_batches(max_chunksize=10))
    assert stories(store) == {}
