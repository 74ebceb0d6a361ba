"""SIGKILL in the middle of refresh, export, restore, forgetting and retention, late events among them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import lance
import pytest

import weir
import weir.events
from tests.crashes import kill_at, run
from weir.errors import InputError
from weir.events.store import EventStore

REMEMBERED = {
    "rows": "QUERY a WHERE n > 2",
    "groups": "QUERY a COUNT, TOTAL n, COUNT UNIQUE n, AVG n PER month BY g",
    "top": "QUERY a ORDER BY n DESC LIMIT 3",
    "sequence": "QUERY a FOLLOWED BY b LINKED BY context_id COUNT BY a.g",
}


def refresh(place: str) -> None:
    store = weir.events.open(place, fsync=False)
    for name in store.materializations():
        store.refresh(name)


def export(place: str, folder: str) -> None:
    format = "snp" if folder.endswith("snp") else "parquet"
    weir.events.open(place, fsync=False).export(folder, format=format)


def restore(place: str, folder: str) -> None:
    weir.events.open(place, fsync=False).restore(folder)


def forget(place: str) -> None:
    weir.events.open(place, fsync=False).forget("c1")


def retain(place: str) -> None:
    weir.events.open(place, fsync=False).retain("a", timedelta(days=365))


def maintain(place: str) -> None:
    weir.events.open(place, fsync=False).maintain(horizon=timedelta(0))


def add(store: EventStore, random: Random, count: int) -> None:
    """Events, every fourth of them late by years."""
    with store.writer(takeover=True) as writer:
        for number in range(count):
            late = random.randrange(0, 1500) if number % 4 == 0 else 0
            at = datetime.now(UTC) - timedelta(days=late)
            kind = random.choice("ab")
            payload: dict[str, Any] = {"n": random.randrange(6)}
            if kind == "a":
                payload |= {"g": random.choice("uv")}
            writer.append(kind, f"c{random.randrange(3)}", payload, timestamp=at)
            if number == count // 2:
                writer.flush()


def made(path: Path) -> EventStore:
    store = weir.events.create(path, buckets=2, fsync=False)
    store.define("a", {"n": "int", "g": ["u", "v"]})
    store.define("b", {"n": "int"})
    for name, query in REMEMBERED.items():
        store.remember(name, query)
    add(store, Random(1), 24)
    return store


def events(store: EventStore) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = store.replay().to_table().to_pylist()
    return found


def check_remembered(store: EventStore) -> None:
    for name, query in REMEMBERED.items():
        assert store.show(name).to_table().equals(store.execute(query).to_table()), name


def check_gone(store: EventStore, present: list[dict[str, Any]]) -> None:
    assert events(store) == present
    given = [row for batch in store.subscribe("new") for row in batch.rows.to_pylist()]
    assert sorted(row["event_id"] for row in given) == [row["event_id"] for row in present]
    check_remembered(store)


def of_files(store: EventStore) -> int:
    return int(lance.dataset(f"{store.path}/events").count_rows())


@pytest.mark.long
@pytest.mark.parametrize(
    "point",
    [
        "wal.before_append",
        "wal.after_append@2",
        pytest.param("claim.between_epoch_and_fence", marks=pytest.mark.long),
        pytest.param("create.before_publish", marks=pytest.mark.long),
    ],
)
def test_what_is_shown_is_the_query_though_its_refresh_was_killed(tmp_path: Path, point: str) -> None:
    with made(tmp_path / "store") as store:
        for number in range(2):
            if point.startswith("create"):
                # What is remembered of another version is in another table.
                store.define(
                    "a",
                    {
                        "n": "int",
                        "g": ["u", "v", "w"],
                        **{f"x{at}": "int | null" for at in range(number + 1)},
                    },
                )
            kill_at(point, refresh, store.path)
            check_remembered(store)
            # Whatever is shown is kept: there is nothing to refresh before there is something new.
            add(store, Random(number), 9)
        assert not run(refresh, store.path).was_killed
        check_remembered(store)
        assert {one.lag for one in store.materializations().values()} == {0}


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("format", "at"),
    [
        ("parquet", 3),
        ("snp", 2),
        pytest.param("parquet", 1, marks=pytest.mark.long),
        pytest.param("parquet", 2, marks=pytest.mark.long),
        pytest.param("snp", 4, marks=pytest.mark.long),
        pytest.param("snp", 5, marks=pytest.mark.long),
    ],
)
def test_an_export_that_was_killed_is_none_and_may_be_repeated(tmp_path: Path, format: str, at: int) -> None:
    folder = str(tmp_path / format)
    with made(tmp_path / "store") as store:
        kill_at(f"local_put.before_rename@{at}", export, store.path, folder)
        with weir.events.create(tmp_path / "other", buckets=3, fsync=False) as other:
            with pytest.raises(InputError):
                other.restore(folder)
            assert events(other) == []
            assert not run(export, store.path, folder).was_killed
            assert other.restore(folder).events == 24
            assert events(other) == events(store)


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "point",
    [
        "wal.before_append",
        "wal.after_append",
        pytest.param("wal.after_append@3", marks=pytest.mark.long),
    ],
)
def test_a_restore_that_was_killed_may_be_repeated(tmp_path: Path, point: str) -> None:
    folder = str(tmp_path / "parquet")
    with made(tmp_path / "store") as store:
        store.export(folder)
        wanted = events(store)
    with weir.events.create(tmp_path / "other", buckets=3, fsync=False) as other:
        kill_at(point, restore, other.path, folder)
        found = events(other)
        assert all(one in wanted for one in found)
        assert len({one["event_id"] for one in found}) == len(found) < len(wanted)
        given = [row["event_id"] for batch in other.subscribe("early") for row in batch.rows.to_pylist()]
        assert sorted(given) == [one["event_id"] for one in found]
        # The killed process has left its shards to nobody.
        with other.writer(takeover=True) as writer:
            assert other.restore(folder).events == len(wanted) - len(found)
            assert other.restore(folder).events == 0
            assert events(other) == wanted
            later = writer.append("b", "c1", {"n": 1})
        assert later.version > wanted[-1]["event_id"]


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("step", "point"),
    [
        (forget, "wal.after_append"),
        (retain, "merge.before_commit"),
        pytest.param(forget, "wal.before_append", marks=pytest.mark.long),
        pytest.param(retain, "wal.before_append", marks=pytest.mark.long),
        pytest.param(retain, "wal.after_append", marks=pytest.mark.long),
        pytest.param(forget, "merge.before_commit", marks=pytest.mark.long),
        pytest.param(forget, "merge.after_commit", marks=pytest.mark.long),
        pytest.param(retain, "merge.after_commit", marks=pytest.mark.long),
    ],
)
def test_what_is_erased_stays_erased_though_upkeep_was_killed(
    tmp_path: Path, step: Callable[[str], None], point: str
) -> None:
    with made(tmp_path / "store") as store:
        before = events(store)
        # Killed before the catalog says so, nothing has happened; after it all of it has.
        kill_at("local_swap.before_link", step, store.path)
        check_gone(store, before)
        assert not run(step, store.path).was_killed
        floor = datetime.now(UTC) - timedelta(days=365)
        present = [
            one
            for one in before
            if (
                one["context_id"] != "c1"
                if step is forget
                else one["event_type"] != "a" or one["timestamp"] >= floor
            )
        ]
        assert 0 < len(present) < len(before)
        check_gone(store, present)
        kill_at(point, maintain, store.path)
        check_gone(store, present)
        for _ in range(2):
            with store.writer(takeover=True) as writer:
                # Whoever was killed holds no shard any more.
                present += [appended(store, writer, context) for context in ("c0", "c1", "c2")]
                store.maintain(horizon=timedelta(0))
            check_gone(store, present)
        store.maintain(horizon=timedelta(0))
        check_gone(store, present)
        assert of_files(store) == len(present)


def appended(store: EventStore, writer: Any, context: str) -> dict[str, Any]:
    event_id = writer.append("b", context, {"n": 4}).version
    return next(one for one in events(store) if one["event_id"] == event_id)
