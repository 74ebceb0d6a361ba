"""Subscriptions, retention, forgetting, and materialisations that always equal their query."""

from __future__ import annotations

import itertools
import os
import shutil
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import lance
import pyarrow as pa
import pytest

import weir
from tests.events.runners import Pickling
from weir.engine import failpoint
from weir.engine.context import default_context
from weir.errors import InputError, QueryError, SnapshotExpiredError, TableError
from weir.events import materializations
from weir.events import store as store_module
from weir.events.catalog import Catalog, Forgotten
from weir.events.catalog_store import StoredCatalog
from weir.events.clock import HybridClock, process_clock
from weir.events.cursors import Cursor
from weir.events.erasing import raised
from weir.events.materialization_table import Kept, MaterializationTable
from weir.events.materializations import Materialization
from weir.events.query.parts import Fresh
from weir.events.query.planner import plan_query
from weir.events.query.reading import StepsRead
from weir.events.saving import Saving
from weir.events.store import EventStore
from weir.events.subscriptions import Subscription
from weir.events.visibility import visible
from weir.read.scan import Scan
from weir.snapshots import shard_view
from weir.table.maintenance import TableMaintenance
from weir.table.table import Table

NOW = timedelta(0)
FIELDS: dict[str, Any] = {"n": "int | null", "g": "string | null", "x": "decimal(10,2) | null"}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EventStore]:
    with weir.events.create(tmp_path / "store", buckets=2) as opened:
        opened.define("a", FIELDS)
        opened.define("b", {"n": "int | null"})
        yield opened


def numbers(store: EventStore, kind: str = "a") -> list[int]:
    found: list[int] = store.query(kind, columns=["n"]).to_table().column("n").to_pylist()
    return found


def test_a_subscription_goes_on_from_what_was_committed(store: EventStore) -> None:
    with store.writer() as writer:
        ids = [writer.append("ab"[n % 2], f"c{n % 3}", {"n": n}).version for n in range(9)]
        subscription = store.subscribe("billing")
        assert [row["event_id"] for batch in subscription for row in batch.rows.to_pylist()] == ids
        assert list(subscription) == []
        assert [batch.rows.num_rows for batch in store.subscribe("billing")] == [9]
        subscription.commit()
        assert list(store.subscribe("billing")) == []
        later = writer.append("a", "c1", {"n": 9})
        writer.flush()
        store.maintain()
        assert [
            row["event_id"] for batch in store.subscribe("billing") for row in batch.rows.to_pylist()
        ] == later.ids
    only_b = [row for batch in store.subscribe("other", types=["b"]) for row in batch.rows.to_pylist()]
    assert [row["n"] for row in only_b] == [1, 3, 5, 7]
    for bad in ({"name": ""}, {"name": "x", "types": ["nothing"]}, {"name": "x", "types": "a"}):
        with pytest.raises(InputError):
            store.subscribe(**bad)


def in_small_batches(store: EventStore, *types: str) -> Subscription:
    """Return a subscription that holds few rows and ids at a time."""
    return Subscription(
        store._store,
        store._table,
        lambda: store._catalog(True),
        process_clock,
        "small",
        types or None,
        batch_rows=3,
        most_ids=7,
    )


def test_many_events_come_in_batches_that_can_be_gone_on_from(store: EventStore, tmp_path: Path) -> None:
    with store.writer() as writer:
        ids = [writer.append("ab"[n % 2], f"c{n % 5}", {"n": n}).version for n in range(23)]
        writer.flush()
        store.maintain()
        ids += [writer.append("ab"[n % 2], f"c{n % 5}", {"n": n}).version for n in range(23, 30)]
    batches = [(batch.rows.column("event_id").to_pylist(), batch.cursor) for batch in in_small_batches(store)]
    assert [one for rows, _ in batches for one in rows] == ids
    assert {len(rows) for rows, _ in batches} == {3}
    for at, (_, cursor) in enumerate(batches):
        rest = in_small_batches(store)
        rest.resume(cursor)
        found = [one for batch in rest for one in batch.rows.column("event_id").to_pylist()]
        assert found == ids[3 * at + 3 :]
    of_b = [n for batch in in_small_batches(store, "b") for n in batch.rows.column("n").to_pylist()]
    assert of_b == [n for n in range(30) if n % 2]
    # Of restored events the order is that in which they came, and not that of their ids.
    store.export(tmp_path / "export")
    with weir.events.create(tmp_path / "copy", buckets=3) as copy:
        copy.define("b", {"n": "int | null"})
        with copy.writer() as writer:
            first = writer.append("b", "c0", {"n": 99}).version
        copy.restore(tmp_path / "export")
        restored = [
            one for batch in in_small_batches(copy) for one in batch.rows.column("event_id").to_pylist()
        ]
    assert restored[0] == first
    assert sorted(restored[1:]) == ids


def test_a_subscription_stops_at_what_was_there_and_skips_what_is_forgotten(store: EventStore) -> None:
    with store.writer() as writer:
        for n in range(20):
            writer.append("a", f"c{n % 2}", {"n": n})
        subscription = in_small_batches(store)
        found: list[int] = []
        for batch in subscription:
            found += batch.rows.column("n").to_pylist()
            if found == [0, 1, 2]:
                writer.append("a", "later", {"n": 100})
                store.forget("c1")
    assert found == [0, 1, 2, *range(4, 20, 2)]
    assert [batch.rows.column("n").to_pylist() for batch in subscription] == [[100]]


def test_what_is_retained_away_is_gone_and_stays_gone(store: EventStore) -> None:
    with store.writer() as writer:
        for n, at in enumerate(["2020-01-01", None, "2021-01-01"]):
            writer.append("a", "c", {"n": n}, timestamp=at)
            writer.append("b", "c", {"n": n}, timestamp=at)
        store.execute('RETAIN a FOR "30d"')
        assert (numbers(store), numbers(store, "b")) == ([1], [0, 1, 2])
        assert [row["n"] for batch in store.subscribe("s") for row in batch.rows.to_pylist()] == [0, 1, 1, 2]
        writer.append("a", "c", {"n": 3}, timestamp="2020-01-01")
        assert numbers(store) == [1]
        store.execute("RETAIN a FOR EVER")
        assert numbers(store) == [1]
        writer.append("a", "c", {"n": 4}, timestamp="2020-01-01")
        assert numbers(store) == [1, 4]
        assert store.maintain(horizon=NOW).erasure.events == 3
        assert (numbers(store), numbers(store, "b")) == ([1, 4], [0, 1, 2])
    store.maintain(horizon=NOW)
    assert lance.dataset(f"{store.path}/events").count_rows() == 5
    for bad in (timedelta(0), 5, "30d"):
        with pytest.raises(InputError):
            store.retain("a", bad)  # type: ignore[arg-type]
    with pytest.raises(InputError):
        store.retain("nothing", None)


def test_types_that_are_kept_for_as_long_are_one_condition(store: EventStore) -> None:
    names = [f"kind{number}" for number in range(12)]
    with store.writer() as writer:
        for number, name in enumerate(names):
            store.define(name, {"n": "int"})
            for n, at in enumerate(["2020-01-01", "2024-01-01", None]):
                writer.append(name, f"c{number % 3}", {"n": n}, timestamp=at)
            store.retain(name, timedelta(days=30))
            if number % 2:
                store.retain(name, None)
                writer.append(name, "c", {"n": 3}, timestamp="2020-01-01")
        store.retain("b", timedelta(days=1))
        assert len(visible(store._catalog(True))) == 2 + 6
        wanted = [(name, n) for number, name in enumerate(names) for n in ([2, 3] if number % 2 else [2])]
        for step in (lambda: None, partial(store.maintain, horizon=NOW)):
            step()
            rows = store.replay().to_table().to_pylist()
            assert [(row["event_type"], row["n"]) for row in rows] == wanted
        assert len(visible(store._catalog(True))) == 2
    some = [
        (row["event_type"], row["n"])
        for batch in store.subscribe("s", names[3:9])
        for row in batch.rows.to_pylist()
    ]
    assert some == [(name, n) for name, n in wanted if name in names[3:9]]


def test_a_forgotten_context_is_gone_and_may_begin_anew(store: EventStore) -> None:
    with store.writer() as writer:
        last = [writer.append("a", context, {"n": n}) for n, context in enumerate(["u", "v", "u"])][-1]
        store.execute("FORGET u")
        assert (store.version("u"), numbers(store)) == (0, [1])
        again = writer.append("a", "u", {"n": 5}, expected=0)
        assert again.version > last.version
        assert numbers(store) == [1, 5]
        assert store.maintain(horizon=NOW).erasure.events == 2
        assert numbers(store) == [1, 5]
    store.maintain(horizon=NOW)
    assert lance.dataset(f"{store.path}/events").count_rows() == 2
    with pytest.raises(InputError):
        store.forget("")


def test_a_query_has_few_conditions_however_many_are_forgotten(store: EventStore) -> None:
    """With one for each, a thousand take minutes to plan, and two thousand are refused."""
    there: list[tuple[str, int]] = []

    def append(context: str) -> None:
        writer.append("a", context, {"n": len(appended)})
        there.append((context, len(appended)))
        appended.append(context)

    appended: list[str] = []
    with store.writer() as writer:
        for number in range(50):
            # Some begin anew after they were forgotten, at once or later.
            for context in (f"once{number}", f"again{number % 7}", f"kept{number % 3}"):
                append(context)
            for context in (f"once{number}", *([f"again{number % 7}"] if number % 4 == 0 else [])):
                store.forget(context)
                there = [one for one in there if one[0] != context]
            if number % 8 == 7:
                assert numbers(store) == [n for _, n in there]
        assert len(store._catalog(True).forgotten) == 57
        assert len(visible(store._catalog(True))) <= 16 + 7
        assert store.maintain(horizon=NOW).erasure.events == len(appended) - len(there)
        assert store._catalog(True).forgotten == ()
        assert numbers(store) == [n for _, n in there]


def test_events_are_looked_at_again_only_after_many_more_are_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if as many stay apart as are united at a time: here every shard has one."""
    looks: list[int] = []
    unite = raised

    def counted(table: Table, forgotten: Sequence[Forgotten]) -> dict[Forgotten, Forgotten]:
        looks.append(len(forgotten))
        return unite(table, forgotten)

    monkeypatch.setattr(store_module, "raised", counted)
    with weir.events.create(tmp_path / "store", buckets=16, fsync=False) as store, store.writer() as writer:
        store.define("a", {"n": "int"})
        rows = pa.table({"context_id": [f"c{n}" for n in range(60)], "n": list(range(60))})
        writer.ingest("a", rows)
        for number in range(48):
            store.forget(f"c{number}")
        for _ in range(3):
            store.forget("c47")
        assert len(looks) <= 2
        assert numbers(store) == list(range(48, 60))


def test_what_was_forgotten_leaves_every_file(store: EventStore) -> None:
    folder = Path(store.path)
    store.remember("remembered", "QUERY a")
    with store.writer() as writer:
        for number in range(12):
            writer.append("a", f"user-{number % 2}", {"g": f"SECRET{number % 2}"})
    store.show("remembered").to_table()
    store.maintain()
    store.forget("user-1")

    def held_by() -> list[str]:
        files = [one for one in folder.rglob("*") if one.is_file()]
        return sorted(str(one) for one in files if b"SECRET1" in one.read_bytes())

    assert held_by()
    for _ in range(3):
        store.maintain(horizon=timedelta(0))
    assert held_by() == []
    assert store.replay().to_table().num_rows == 6


@pytest.mark.parametrize("by", ["pin", "tag"])
def test_what_was_forgotten_leaves_every_file_once_nothing_holds_it(store: EventStore, by: str) -> None:
    folder, table = Path(store.path), store.tables["events"]
    with store.writer() as writer:
        for number in range(12):
            writer.append("a", f"user-{number % 2}", {"g": f"SECRET{number % 2}"})
    store.maintain()
    token = table.snapshot()
    if by == "tag":
        table.tags.create("held", at=token)
        table.release(token)
    store.forget("user-1")
    for _ in range(4):
        store.maintain(horizon=NOW)
    assert table.scan(["event_id"]).count() == 6
    assert table.scan(["event_id"], at=token).count() == 12
    if by == "tag":
        table.tags.drop("held")
    else:
        table.release(token)
    for _ in range(2):
        store.maintain(horizon=NOW)
    assert [one for one in folder.rglob("*") if one.is_file() and b"SECRET1" in one.read_bytes()] == []
    default_context().cache.clear()
    with pytest.raises(SnapshotExpiredError):
        table.scan(["event_id"], at=token).count()


def test_what_was_forgotten_leaves_the_files_of_what_is_remembered_no_more(
    store: EventStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(store.path)

    def held_by() -> list[str]:
        files = [one for one in folder.rglob("*") if one.is_file()]
        return sorted(str(one.relative_to(folder)) for one in files if b"SECRET" in one.read_bytes())

    store.remember("rows", "QUERY a")
    store.remember("groups", "QUERY a COUNT BY g")
    store.remember("dropped", "QUERY a COUNT BY context_id")
    with store.writer() as writer:
        writer.append("a", "SECRET", {"g": "SECRET"})
        for name in ("rows", "groups", "dropped"):
            store.refresh(name)
        store.maintain(horizon=NOW)
        # What is stored by a new version of the type lies beside what the former one has stored.
        store.define("a", {**FIELDS, "new": "int | null"})
        for name in ("rows", "groups"):
            store.refresh(name)
        with failpoint.armed("drop.after_saying_so", "raise"), suppress(failpoint.FailpointError):
            store.drop("dropped")
        store.maintain(horizon=NOW)
        writer.append("a", "other", {"g": "other"})
        store.forget("SECRET")
        for name in ("rows", "groups"):
            store.refresh(name)
        for _ in range(2):
            store.maintain(horizon=NOW)
    # A version of the catalog that named it is kept until the next that comes a while later.
    assert {Path(one).parts[0] for one in held_by()} <= {".weir-swaps"}
    for one in (folder / ".weir-swaps").rglob("*"):
        os.utime(one, (1, 1))
    monkeypatch.setattr("weir.events.erasing._FORMER_KEPT", NOW)
    store.maintain(horizon=NOW)
    assert held_by() == []
    assert store.show("groups").to_table().to_pylist() == [{"g": "other", "count": 1}]


def test_what_an_earlier_round_has_erased_leaves_the_files_though_it_died(
    store: EventStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(store.path, "events", "data")
    with store.writer() as writer:
        for number in range(40):
            writer.append("a", "SECRET" if number == 7 else "other", {"n": number})
    store.maintain(horizon=NOW)
    store.forget("SECRET")

    def dies(*arguments: object, **options: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        broken.setattr(TableMaintenance, "compact", dies)
        with pytest.raises(KeyboardInterrupt):
            store.maintain(horizon=NOW)
    for _ in range(2):
        store.maintain(horizon=NOW)
    assert [one for one in folder.iterdir() if b"SECRET" in one.read_bytes()] == []
    assert len(numbers(store)) == 39


def test_rows_that_are_too_old_for_what_is_remembered_are_not_kept(store: EventStore) -> None:
    store.remember("new", "QUERY a", keep_age=timedelta(days=1))
    with store.writer() as writer:
        writer.append("a", "c", {"n": 1}, timestamp="2020-01-01")
        writer.append("a", "c", {"n": 2})
    assert store.show("new").to_table().column("n").to_pylist() == [2]
    assert store.materializations()["new"].rows == 1


@pytest.mark.parametrize("query", ["QUERY a", "QUERY a COUNT", "QUERY a ORDER BY n LIMIT {most} OFFSET 1"])
def test_the_longest_ages_and_limits_are_those_of_everything(store: EventStore, query: str) -> None:
    query = query.format(most=(1 << 63) - 1)
    store.retain("a", timedelta.max)
    store.remember("all", query, keep_age=None if "LIMIT" in query else timedelta.max)
    with store.writer() as writer:
        for n, at in enumerate(["0001-01-01", None, None]):
            writer.append("a", "c", {"n": n}, timestamp=at)
            assert store.show("all").to_table().equals(store.execute(query).to_table())


def test_a_sequence_whose_links_are_of_two_types_by_now_is_told_of_and_dropped(store: EventStore) -> None:
    store.remember("pairs", "QUERY a FOLLOWED BY b LINKED BY n COUNT")
    store.define("b", {"n": "float | null"})
    with pytest.raises(QueryError, match="linked by a field of one type"):
        store.show("pairs")
    info = store.materializations()["pairs"]
    assert (info.incremental, list(info.schema)) == (False, [])
    assert list(store.tables) == ["events"]
    store.maintain()
    store.drop("pairs")
    assert store.materializations() == {}


def test_ids_are_above_those_that_were_erased(store: EventStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """No row tells of them any more, and the clock of the next process is behind."""
    store.remember("all", "QUERY a COUNT")
    with store.writer() as writer:
        erased = writer.append("a", "u", {"n": 1}).version
    followed = store.subscribe("follower")
    assert [batch.rows.num_rows for batch in followed] == [1]
    followed.commit()
    store.forget("u")
    store.maintain(horizon=NOW)
    monkeypatch.setattr(store_module, "process_clock", HybridClock(partial(int, 1_000_000_000_000_000)))
    with weir.events.open(store.path) as again, again.writer() as writer:
        assert writer.append("a", "u", {"n": 2}, expected=0).version > erased
        assert [batch.rows.column("n").to_pylist() for batch in again.subscribe("follower")] == [[2]]
        assert again.show("all").to_table().to_pylist() == [{"count": 1}]


@pytest.mark.parametrize("query", ["QUERY a", "QUERY a COUNT BY n"])
def test_what_is_kept_of_many_answers_stays_in_few_pieces(
    store: EventStore, monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    pieces: list[int] = []
    keep = MaterializationTable.keep

    def counted(self: MaterializationTable, kept: Kept) -> Kept:
        pieces.append(kept.rows.column(0).num_chunks)
        return keep(self, kept)

    monkeypatch.setattr(MaterializationTable, "keep", counted)
    store.remember("all", query)
    with store.writer() as writer:
        for n in range(25):
            writer.append("a", "c1", {"n": n})
            shown = store.show("all").to_table()
            assert sorted(shown.column("n").to_pylist()) == list(range(n + 1))
            store._saving.settle()
    assert max(pieces) <= 10


def test_a_shown_query_is_planned_once_and_judged_when_it_is_read(
    store: EventStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.remember("all", "QUERY a COUNT")
    plans: list[Any] = []
    judged: list[int] = []

    def planned(*arguments: Any) -> Any:
        plans.append(plan_query(*arguments))
        return plans[-1]

    def fresh(self: Materialization, *arguments: Any) -> Fresh:
        judged.append(self.plan.read.now or 0)
        return fresh_of(self, *arguments)

    fresh_of = Materialization._fresh
    monkeypatch.setattr(materializations, "plan_query", planned)
    monkeypatch.setattr(Materialization, "_fresh", fresh)
    clock = itertools.count(1)
    monkeypatch.setattr(materializations, "now_micros", clock.__next__)
    shown = store.show("all")
    asked = next(clock)
    assert shown.to_table().to_pylist() == [{"count": 0}]
    assert len(plans) == 1
    assert judged[0] > asked


def test_what_is_shown_is_stored_once_nothing_is_left_to_be_done_for_the_answer(
    store: EventStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.remember("all", "QUERY a COUNT")
    done: list[str] = []
    begin, read = Saving.begin, StoredCatalog.read

    def begun(self: Saving, *arguments: Any) -> bool:
        done.append("stored")
        return begin(self, *arguments)

    def looked_at(self: StoredCatalog) -> Catalog:
        done.append("catalog")
        return read(self)

    monkeypatch.setattr(Saving, "begin", begun)
    monkeypatch.setattr(StoredCatalog, "read", looked_at)
    with store.writer() as writer:
        writer.append("a", "c", {"n": 1})
        done.clear()
        assert store.show("all").to_table().to_pylist() == [{"count": 1}]
    assert done.count("stored") == 1
    assert done[-1] == "stored"


def test_ids_are_above_what_was_shown(store: EventStore, monkeypatch: pytest.MonkeyPatch) -> None:
    with store.writer() as writer:
        shown = writer.append("a", "u", {"n": 1}).version
    store.remember("all", "QUERY a COUNT")
    monkeypatch.setattr(store_module, "process_clock", HybridClock(partial(int, 1_000_000_000_000_000)))
    with weir.events.open(store.path) as again, again.writer() as writer:
        assert again.show("all").to_table().to_pylist() == [{"count": 1}]
        others = [writer.append("a", f"other{n}", {"n": 2}).version for n in range(4)]
    assert min(others) > shown


def test_floats_are_remembered_to_the_last_bit(store: EventStore) -> None:
    store.define("f", {"x": "float", "g": "string"})
    store.remember("floats", "QUERY f TOTAL x, AVG x BY g")
    store.remember("least", "QUERY f MIN x BY g")
    with store.writer() as writer:
        for values in ([0.1], [0.2, 0.3], [1e16, 0.7, -1e16]):
            writer.append_all("c", [("f", {"x": x, "g": "g"}) for x in values])
            assert (
                store.show("floats")
                .to_table()
                .equals(store.execute("QUERY f TOTAL x, AVG x BY g").to_table())
            )
    assert {name: one.incremental for name, one in store.materializations().items()} == {
        "floats": False,
        "least": True,
    }


QUERIES = {
    "rows": "QUERY a WHERE n > 2 OR g IS NULL",
    "groups": "QUERY a COUNT, COUNT n, TOTAL x, AVG x, MIN g, MAX n, COUNT UNIQUE n, COUNT UNIQUE g PER week"
    " BY g",
    "sums": "QUERY a COUNT, COUNT n, TOTAL x, AVG x, MIN x, MAX x, MIN g, MAX g, MIN n, MAX n PER week BY n",
    "all": "QUERY a COUNT, AVG x, COUNT UNIQUE g, MIN n",
    "top": "QUERY a ORDER BY x DESC, n LIMIT 3 OFFSET 1 RETURN [n]",
    "largest": "QUERY a COUNT BY g ORDER BY count DESC LIMIT 2",
    "sequence": "QUERY a FOLLOWED BY b LINKED BY context_id COUNT BY a.g",
    "one": "QUERY b FOR c1 SINCE 2026-01-10 TOTAL n PER day",
}


@pytest.mark.parametrize("share", [3, pytest.param(1, marks=pytest.mark.long)])
def test_show_always_equals_the_query(store: EventStore, share: int) -> None:
    """One query of so many is shown after each step, others after the next, and all in the end."""
    random = Random(5)
    for name, query in QUERIES.items():
        store.remember(name, query)
    writer = store.writer()

    def append(count: int) -> None:
        for _ in range(count):
            kind, payload = random.choice("ab"), {"n": random.choice([None, *range(6)])}
            if kind == "a":
                more = {"g": random.choice(["x", "it's", None]), "x": random.randrange(50)}
                payload |= more
            at = datetime(2026, 1, random.randrange(1, 29), tzinfo=UTC)
            writer.append(kind, f"c{random.randrange(3)}", payload, timestamp=at)

    def evolve() -> None:
        store.define(
            "a", {"n": "float | null", "g": "string | null", "x": "decimal(12,3) | null", "z": "int | null"}
        )

    age = datetime.now(UTC) - datetime(2026, 1, 12, tzinfo=UTC)
    steps: list[Any] = [
        lambda: append(8),
        writer.flush,
        lambda: append(5),
        lambda: store.forget("c2"),
        lambda: store.maintain(horizon=NOW),
        lambda: store.retain("a", age),
        lambda: append(4),
        evolve,
        lambda: append(4),
    ]
    for number, step in enumerate(steps):
        step()
        for place, (name, query) in enumerate(QUERIES.items()):
            if (place + number) % share and number < len(steps) - 1:
                continue
            wanted = store.execute(query).to_table()
            assert store.show(name).to_table().equals(wanted), (number, name)
        if number % 2:
            assert store.execute("SHOW groups").to_table().equals(store.execute(QUERIES["groups"]).to_table())
    writer.close()
    described = store.materializations()
    assert {name: one.incremental for name, one in described.items() if not one.incremental} == {
        "sequence": False
    }
    assert {one.lag for one in described.values()} == {0}
    assert described["all"].rows == 1


@pytest.mark.parametrize("name", QUERIES)
def test_what_is_new_is_read_by_parts_too(store: EventStore, name: str) -> None:
    store.remember(name, QUERIES[name])
    with store.writer() as writer:
        for round in range(3):
            for n in range(9):
                at = datetime(2026, 1, 5 + n + round, tzinfo=UTC)
                payload = {"n": n, "g": random_text(n), "x": n}
                writer.append("a", f"c{n % 2}", payload, timestamp=at)
                writer.append("b", f"c{n % 2}", {"n": n}, timestamp=at)
            if round == 1:
                store.maintain()
            wanted = store.execute(QUERIES[name]).to_table()
            assert store.shown(name, Pickling()).to_table().equals(wanted)
            assert store.show(name).to_table().equals(wanted)


def random_text(n: int) -> str | None:
    return ["x", "it's", None][n % 3]


def test_who_else_shows_is_noticed(store: EventStore) -> None:
    """What a process keeps of what is stored counts as long as nobody has written it anew."""
    store.remember("all", "QUERY a COUNT BY g")
    with weir.events.open(store.path) as other, store.writer() as writer:
        for n in range(1, 5):
            writer.append("a", "c", {"n": n, "g": "x"})
            for one in (store, other) if n % 2 else (other, store):
                assert one.show("all").to_table().to_pylist() == [{"g": "x", "count": n}]
        # Of two that store the same at most one does.
        store.refresh("all")
        described = other.materializations()["all"]
        assert described.lag == 0
        assert described.refreshes <= 6
        other.drop("all")
        with pytest.raises(TableError):
            store.show("all")
        other.remember("all", "QUERY a COUNT")
        assert store.show("all").to_table().to_pylist() == [{"count": 4}]


def test_nothing_is_kept_of_what_was_dropped_or_is_of_a_former_version(store: EventStore) -> None:
    for name in ("dropped", "dropped_elsewhere", "stays"):
        store.remember(name, "QUERY a")
    assert len(store._kept) == 3
    store.drop("dropped")
    assert len(store._kept) == 2
    with weir.events.open(store.path) as other:
        other.drop("dropped_elsewhere")
    store.define("a", {**FIELDS, "new": "int | null"})
    store.maintain()
    store.show("stays").to_table()
    (place,) = store._kept
    assert "/v2." in place


@pytest.mark.parametrize("name", ["rows", "groups"])
@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("later", [0, 1])
def test_a_store_that_was_put_back_is_shown_as_it_is_now(
    store: EventStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, first: int, later: int
) -> None:
    """What a process keeps may have events that the backup lacks."""
    monkeypatch.setattr(shard_view, "_MANIFEST_TRUST_SECONDS", -1.0)
    queries = {"rows": "QUERY a RETURN [n]", "groups": "QUERY a COUNT, TOTAL n"}

    def add(number: int) -> None:
        with weir.events.open(store.path) as one, one.writer(takeover=True) as writer:
            writer.append("a", "c", {"n": number})

    def check(count: int) -> None:
        found = store.show(name).to_table().to_pylist()
        store._saving.settle()
        assert found == store.execute(queries[name]).to_table().to_pylist()
        assert store.execute("QUERY a COUNT").to_table().to_pylist() == [{"count": count}]

    store.remember(name, queries[name])
    for _ in range(first):
        add(1)
    check(first)
    shutil.copytree(store.path, tmp_path / "backup")
    add(10)
    check(first + 1)
    shutil.rmtree(store.path)
    shutil.copytree(tmp_path / "backup", store.path)
    for _ in range(later):
        add(100)
    check(first + later)
    add(1000)
    check(first + later + 1)


def test_a_show_after_new_events_reads_the_log_alone_while_they_are_in_it(
    store: EventStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.remember("all", "QUERY a COUNT BY g")
    scanned: list[Cursor | None] = []
    scan = StepsRead.scan

    def noted(self: StepsRead, after: Cursor | None = None, **options: Any) -> Scan:
        scanned.append(after)
        return scan(self, after, **options)

    monkeypatch.setattr(StepsRead, "scan", noted)
    scans: list[int] = []
    with store.writer() as writer:

        def shown(kind: str, times: int = 1) -> None:
            for _ in range(times):
                writer.append(kind, f"c{len(scans) % 3}", {"n": len(scans)})
                scanned.clear()
                found = store.show("all").to_table().to_pylist()
                store._saving.settle()
                scans.append(len(scanned))
                assert found == store.execute("QUERY a COUNT BY g").to_table().to_pylist()

        shown("a", 5)
        assert scans[1:] == [0] * 4
        # Events of others, of which nothing is stored, are not met again and again either.
        shown("b", 3)
        assert scans[5:] == [0] * 3
        writer.flush()
        store.maintain()
        shown("b", 3)
        shown("a", 2)
        # Once, since the log need not have all of them any more.
        assert scans[8:] == [1, 0, 0, 0, 0]
        store.forget("c1")
        shown("a", 2)
        # What is stored may have events of the context: it begins anew.
        assert scans[13:] == [1, 0]


def test_who_shows_need_not_wait_for_what_is_being_stored(
    store: EventStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.remember("all", "QUERY a COUNT BY g")
    stored, may_store, read = MaterializationTable.save, threading.Event(), Materialization._fresh
    news: list[int] = []

    def late(*arguments: Any, **options: Any) -> bool:
        assert may_store.wait(60)
        return stored(*arguments, **options)

    def counted(*arguments: Any) -> Fresh:
        fresh = read(*arguments)
        news.append(fresh.events)
        return fresh

    monkeypatch.setattr(MaterializationTable, "save", late)
    monkeypatch.setattr(Materialization, "_fresh", counted)
    with store.writer() as writer, ThreadPoolExecutor(1) as elsewhere:
        try:
            for n in range(1, 4):
                writer.append("a", "c", {"n": n, "g": "x"})
                shown = elsewhere.submit(lambda: store.show("all").to_table().to_pylist())
                assert shown.result(30) == [{"g": "x", "count": n}]
        finally:
            may_store.set()
        # The second and the third go on from the first, which is being stored.
        assert news == [1, 1, 2]
        store.refresh("all")
        assert news == [1, 1, 2, 2]
        described = store.materializations()["all"]
        assert (described.lag, described.refreshes) == (0, 3)


def test_upkeep_refreshes_what_is_remembered(store: EventStore) -> None:
    store.remember("all", "QUERY a COUNT")
    with store.writer() as writer:
        for n in range(3):
            writer.append("a", "c", {"n": n})
        assert store.materializations()["all"].lag == 3
        store.maintain()
    described = store.materializations()["all"]
    assert (described.lag, described.refreshed_events, described.refreshes) == (0, 3, 2)
    assert described.refresh_time
    assert described.refresh_time > timedelta(0)


def test_what_is_kept_is_bounded(store: EventStore) -> None:
    store.execute("REMEMBER QUERY a AS newest KEEP 3 ROWS")
    store.execute('REMEMBER QUERY a COUNT AS recent FOR "30d"')
    with store.writer() as writer:
        for n in range(8):
            writer.append("a", "c", {"n": n}, timestamp="2020-01-01" if n % 2 else None)
            assert store.show("newest").to_table().column("n").to_pylist() == list(range(n + 1))[-3:]
    # Of many answers in a row not all are stored.
    store.refresh("newest")
    assert store.materializations()["newest"].rows == 3
    # Both: of the newest those that are not too old, whether it is kept or run afresh.
    store.execute('REMEMBER QUERY a AS few KEEP 3 ROWS FOR "30d"')
    store.execute('REMEMBER QUERY a COUNT AS counted KEEP 3 ROWS FOR "30d"')
    assert store.show("few").to_table().column("n").to_pylist() == [6]
    assert store.show("counted").to_table().to_pylist() == [{"count": 1}]
    assert store.show("recent").to_table().to_pylist() == [{"count": 4}]
    # A call takes the command too, with what it keeps.
    store.remember("fewer", 'REMEMBER QUERY a AS few KEEP 3 ROWS FOR "30d"', keep_rows=2)
    fewer = store.materializations()["fewer"]
    assert (fewer.keep_rows, fewer.keep_age) == (2, timedelta(days=30))
    assert store.show("fewer").to_table().column("n").to_pylist() == [6]


def test_materialisations_by_name(store: EventStore) -> None:
    store.remember("daily", "QUERY a COUNT PER day")
    for refused in (
        lambda: store.remember("daily", "QUERY a"),
        lambda: store.show("nothing"),
        lambda: store.refresh("nothing"),
        lambda: store.drop("nothing"),
        lambda: store.execute("DROP nothing"),
    ):
        with pytest.raises(TableError):
            refused()
    for query in ("QUERY a LIMIT 3", "QUERY nothing", "PING", "QUERY", "QUERY a WHERE n = x"):
        with pytest.raises(QueryError):
            store.remember("other", query)
    assert list(store.materializations()) == ["daily"]
    store.drop("daily")
    assert store.execute("SHOW MATERIALIZATIONS").to_table().num_rows == 0
    store.remember("daily", "QUERY a COUNT")
    assert store.show("daily").to_table().to_pylist() == [{"count": 0}]


def test_upkeep_looks_for_what_was_erased_until_it_has_left_the_files(
    store: EventStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compactions of everything and collections of versions come to an end, and begin with every erasure."""
    done: list[str] = []
    for name in ("compact", "collect_garbage"):
        real = getattr(TableMaintenance, name)

        def counted(self: TableMaintenance, real: Any = real, name: str = name, **options: Any) -> Any:
            if options.get("max_deleted") == 0.0 or options.get("version_retention") is not None:
                done.append(name)
            return real(self, **options)

        monkeypatch.setattr(TableMaintenance, name, counted)

    def upkeep(horizon: timedelta = NOW) -> list[str]:
        done.clear()
        store.maintain(horizon=horizon)
        return sorted(set(done))

    store.remember("groups", "QUERY a COUNT BY context_id")
    with store.writer() as writer:
        for number in range(12):
            writer.append("a", f"c{number % 3}", {"n": number})
        assert upkeep() == []
        for context in ("c0", "c1"):
            store.forget(context)
            assert upkeep() == ["collect_garbage", "compact"]
            # Former versions stay for the horizon, and their files for another.
            assert upkeep(timedelta(hours=1)) == ["collect_garbage"]
            assert upkeep() == ["collect_garbage"]
            assert upkeep() == []
        # Nobody could store the answer anew, which has what was forgotten.
        store.forget("c2")
        with monkeypatch.context() as held:
            held.setattr(
                "weir.events.materialization_table.MaterializationTable.save", lambda *_, **__: False
            )
            assert upkeep() == ["collect_garbage", "compact"]
            assert upkeep() == ["collect_garbage", "compact"]
    assert upkeep() == ["collect_garbage", "compact"]
    assert (upkeep(), upkeep()) == (["collect_garbage"], [])
    assert store.show("groups").to_table().num_rows == 0
