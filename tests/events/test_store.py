"""Types, appending, versions and refusals."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import pyarrow as pa
import pytest

import weir
from weir.engine import failpoint
from weir.errors import (
    ConflictError,
    CorruptionError,
    FencedError,
    InputError,
    LeaseHeldError,
    QueryError,
    TableExistsError,
    TableNotFoundError,
    WriterClosedError,
)
from weir.events import store as store_module
from weir.events.clock import HybridClock
from weir.events.event_table import add_columns
from weir.events.store import EventStore
from weir.events.writer import Appended

SIGNUP: dict[str, Any] = {"plan": ["free", "pro"], "country": "string | null", "amount": "decimal(12,2)"}


READS: dict[str, Callable[[EventStore, Path], object]] = {
    "rows": lambda store, _: store.execute("QUERY a").to_table(),
    "count": lambda store, _: store.execute("QUERY a COUNT").to_table(),
    "groups": lambda store, _: store.execute("QUERY a COUNT BY n").to_table(),
    "condition": lambda store, _: store.query("a", where="n = 1").to_table(),
    "sql": lambda store, _: store.sql("SELECT count(*) FROM a").to_table(),
    "replay": lambda store, _: store.replay("far").to_table(),
    "version": lambda store, _: store.version("far"),
    "show": lambda store, _: store.show("all").to_table(),
    "subscription": lambda store, _: list(store.subscribe("one")),
    "export": lambda store, folder: store.export(folder),
}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EventStore]:
    with weir.events.create(tmp_path / "store", buckets=2) as opened:
        opened.define("signup", SIGNUP)
        opened.define("order", {"amount": "int", "at": "datetime | null"})
        yield opened


@pytest.fixture(scope="module")
def refusing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EventStore]:
    """A store that whatever is refused leaves as it was."""
    with weir.events.create(tmp_path_factory.mktemp("refusing") / "store", buckets=2) as opened:
        opened.define("signup", SIGNUP)
        opened.define("order", {"amount": "int", "at": "datetime | null"})
        yield opened


def ids(store: EventStore) -> list[int]:
    found: list[int] = store.replay().to_table().column("event_id").to_pylist()
    return found


def test_an_event_comes_back_as_it_was_stored(store: EventStore) -> None:
    with store.writer() as writer:
        result = writer.append(
            "signup", "u", {"plan": "pro", "amount": "9.90"}, timestamp="2026-01-01T02:00+01:00"
        )
    assert store.replay("u", type="signup").to_table().to_pylist() == [
        {
            "event_id": result.version,
            "context_id": "u",
            "event_type": "signup",
            "timestamp": datetime(2026, 1, 1, 1, tzinfo=UTC),
            "plan": "pro",
            "country": None,
            "amount": Decimal("9.90"),
        }
    ]


def test_a_store_is_made_once_and_opened_where_it_is(tmp_path: Path) -> None:
    with pytest.raises(TableNotFoundError):
        weir.events.open(tmp_path / "nothing")
    weir.events.create(tmp_path / "store").close()
    with pytest.raises(TableExistsError):
        weir.events.create(tmp_path / "store")
    with weir.events.open(tmp_path / "store") as store:
        assert store.path == str(tmp_path / "store")
    with pytest.raises(WriterClosedError):
        store.replay()


def test_a_store_without_its_catalog_is_not_taken_for_none(tmp_path: Path) -> None:
    with weir.events.create(tmp_path / "store", buckets=1) as store:
        store.define("signup", SIGNUP)
        with store.writer() as writer:
            writer.append("signup", "user", {"plan": "free", "amount": 1})
    catalog = tmp_path / "store" / "catalog.json"
    catalog.unlink()
    for call in (weir.events.open, weir.events.create):
        with pytest.raises(CorruptionError, match="the catalog of the event store is gone") as refused:
            call(tmp_path / "store")
        assert refused.value.where == str(catalog)


@pytest.mark.parametrize(
    "options",
    [
        {"buckets": 0},
        {"buckets": 2000},
        {"buckets": True},
        {"flush_threshold": 0},
        {"events_per_zone": 0},
    ],
)
def test_options_have_bounds(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        weir.events.create(tmp_path / "store", **options)
    assert not (tmp_path / "store").exists()


# --- Types ---------------------------------------------------------------------------------------


def test_types_from_dataclasses_arrow_and_pydantic(store: EventStore) -> None:
    import pydantic

    @dataclasses.dataclass
    class Paid:
        amount: Annotated[Decimal, "decimal(12,2)"]
        kind: Literal["card", "cash"]
        on: date
        note: str | None = None

    class Seen(pydantic.BaseModel):
        at: datetime
        tags: list[str]
        price: Decimal = pydantic.Field(max_digits=9, decimal_places=2)

    store.define("paid", Paid)
    store.define("seen", Seen)
    store.define("moved", pa.schema([pa.field("x", pa.float32(), nullable=False), ("n", pa.int16())]))
    texts = {
        name: {field: str(of) for field, of in kind.fields.items()} for name, kind in store.types().items()
    }
    assert texts["paid"] == {
        "amount": "decimal(12,2)",
        "kind": "enum(card, cash)",
        "on": "date",
        "note": "string | null",
    }
    assert texts["seen"] == {"at": "datetime", "tags": "list<string>", "price": "decimal(9,2)"}
    assert texts["moved"] == {"x": "float", "n": "int | null"}


def test_a_column_whose_definition_died_does_not_hinder_a_field_of_its_name(store: EventStore) -> None:
    with weir.events.open(store.path) as other:
        # As far as a process comes that dies before it has written the catalog.
        add_columns(store._table, {"f_x": "int64"})
        other.define("late", {"x": "string"})
        store.define("whole", {"x": "int"})
        with store.writer() as writer:
            writer.append("late", "c", {"x": "text"})
            writer.append("whole", "c", {"x": 1})
        for name, value in (("late", "text"), ("whole", 1)):
            assert other.query(name, columns=["x"]).to_table().column("x").to_pylist() == [value]


@pytest.mark.parametrize(
    "query",
    [
        "QUERY signup WHERE n = 1",
        'QUERY signup USING at SINCE "2026-01-01" UNTIL "2026-01-02"',
        'QUERY signup WHERE at = "2026-01-01"',
        "QUERY signup FOLLOWED BY late LINKED BY context_id WHERE late.n = 1",
    ],
)
def test_a_condition_on_a_field_that_another_process_has_just_defined(store: EventStore, query: str) -> None:
    with weir.events.open(store.path) as other:
        other.define("signup", {**SIGNUP, "n": "int | null", "at": "datetime | null"})
        other.define("late", {"n": "int"})
        with other.writer() as writer:
            writer.append("signup", "c", {"plan": "free", "amount": 1, "n": 1, "at": "2026-01-01"})
            writer.append("late", "c", {"n": 1})
        assert store.execute(query).to_table().num_rows == 1


@dataclasses.dataclass
class Tagged:
    tags: list[Literal["a", "b"]]


def nested(depth: int) -> pa.Schema:
    of: pa.DataType = pa.int64()
    for _ in range(depth):
        of = pa.list_(of)
    return pa.schema([("x", of)])


@pytest.mark.parametrize(
    "fields",
    [
        Tagged,
        nested(9),
        {"event_id": "int"},
        {"timestamp": "datetime"},
        {"a": "text"},
        {"a": []},
        {"a": ["x", "x"]},
        {"a": "decimal(40,2)"},
        {"a": "decimal(3,4)"},
        {"a.b": "int"},
        {"": "int"},
        {1: "int"},
        {"a": 5},
        "fields",
        None,
    ],
)
def test_types_that_cannot_be_are_refused(refusing: EventStore, fields: Any) -> None:
    before = refusing.types()
    with pytest.raises(InputError):
        refusing.define("other", fields)
    assert refusing.types() == before


def test_names_are_no_longer_than_those_of_files(store: EventStore, tmp_path: Path) -> None:
    long = "ö" * 100
    for name in ("ö" * 101, "a" * 129):
        with pytest.raises(InputError, match="at most 128 characters and 200 bytes"):
            store.define(name, {})
        with pytest.raises(InputError, match="at most"):
            store.subscribe(name)
    store.define(long, {})
    with store.writer() as writer:
        writer.append(long, "c", {})
    subscription = store.subscribe(long)
    assert [batch.rows.num_rows for batch in subscription] == [1]
    subscription.commit()
    assert list(store.subscribe(long)) == []
    assert store.export(tmp_path / "export").events == 1


def test_a_new_version_adds_and_widens(store: EventStore) -> None:
    with store.writer() as writer:
        writer.append("signup", "u", {"plan": "pro", "amount": 1})
        writer.append("order", "u", {"amount": 7})
        store.define(
            "signup",
            {**SIGNUP, "plan": ["free", "pro", "team"], "amount": "decimal(14,4)", "n": "int | null"},
        )
        store.define("order", {"amount": "float", "at": "datetime | null"}, version=2)
        writer.append("signup", "u", {"plan": "team", "amount": "1.2345", "n": 5})
        writer.append("order", "u", {"amount": 0.5})
    assert {name: list(kind.versions) for name, kind in store.types().items()} == {
        "signup": [1, 2],
        "order": [1, 2],
    }
    rows = store.execute("QUERY signup WHERE amount >= 1 RETURN [plan, amount, n]").to_table().to_pylist()
    assert [(row["plan"], row["amount"], row["n"]) for row in rows] == [
        ("pro", Decimal("1.0000"), None),
        ("team", Decimal("1.2345"), 5),
    ]
    assert store.execute("QUERY order TOTAL amount").to_table().to_pylist() == [{"total_amount": 7.5}]


@pytest.mark.parametrize(
    "fields",
    [
        {"plan": ["free", "pro"], "country": "string | null"},
        {**SIGNUP, "n": "int"},
        {**SIGNUP, "plan": ["free"]},
        {**SIGNUP, "country": "string"},
        {**SIGNUP, "amount": "decimal(12,3)"},
        {**SIGNUP, "amount": "float"},
    ],
)
def test_a_new_version_may_do_nothing_else(refusing: EventStore, fields: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="signup"):
        refusing.define("signup", fields)
    refusing.define("signup", SIGNUP)
    assert list(refusing.types()["signup"].versions) == [1]


# --- Refusals ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("payload", "field"),
    [
        ({"amount": 1}, "plan"),
        ({"plan": None, "amount": 1}, "plan"),
        ({"plan": "gold", "amount": 1}, "plan"),
        ({"plan": "pro", "amount": 1, "other": 1}, "other"),
        ({"plan": "pro", "amount": "1.001"}, "amount"),
        ({"plan": "pro", "amount": "1_0"}, "amount"),
        ({"plan": "pro", "amount": " 1"}, "amount"),
        ({"plan": "pro", "amount": "\uff11"}, "amount"),
        ({"plan": "pro", "amount": "x"}, "amount"),
        ({"plan": "pro", "amount": True}, "amount"),
        ({"plan": "pro", "amount": 10**10}, "amount"),
        ({"plan": "pro", "amount": 1, "country": 5}, "country"),
        ({"plan": "pro", "amount": 1, "country": "\ud800"}, "country"),
    ],
)
def test_a_payload_that_does_not_fit_names_event_and_field(
    refusing: EventStore, payload: dict[str, Any], field: str
) -> None:
    with refusing.writer() as writer:
        with pytest.raises(InputError) as refused:
            writer.append("signup", "u", payload)
        assert "signup" in str(refused.value)
        assert field in str(refused.value)
        with pytest.raises(InputError):
            writer.append_all("u", [("order", {"amount": 1}), ("signup", payload)])
    assert ids(refusing) == []


@pytest.mark.parametrize(
    "arguments",
    [
        ("nothing", "u", {}),
        ("", "u", {}),
        ("order", "", {"amount": 1}),
        ("order", 5, {"amount": 1}),
        ("order", "u", {"amount": "3"}),
        ("order", "u", {"amount": True}),
        ("order", "u", {"amount": 1.5}),
        ("order", "u", {"amount": 1.0}),
        ("order", "u", {"amount": 1 << 63}),
        ("order", "u", {"amount": 1, "at": "soon"}),
        ("order", "u", [1]),
        ("order", "u", {"amount": 1}, "yesterday"),
        ("order", "u", {"amount": 1}, None, -1),
        ("order", "u", {"amount": 1}, None, "0"),
    ],
)
def test_what_cannot_be_appended_is_refused(refusing: EventStore, arguments: tuple[Any, ...]) -> None:
    with refusing.writer() as writer, pytest.raises(InputError):
        writer.append(*arguments)
    assert ids(refusing) == []


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("QUERY nothing", 7),
        ("QUERY order WHERE nothing = 1", 19),
        ('QUERY order WHERE amount = "3"', 28),
        ("QUERY order WHERE amount = true", 28),
        ("QUERY order WHERE amount", 19),
        ("QUERY order WHERE at > never", 24),
        ("QUERY signup WHERE plan = 1", 27),
        ("QUERY order USING amount SINCE 2026-01-01", 19),
        ("QUERY order SINCE soon", 19),
        ("QUERY order COUNT BY nothing", 22),
        ("QUERY order TOTAL at", 19),
        ("QUERY signup AVG plan", 18),
        ('QUERY order COUNT PER day IN "Nowhere/At-All"', 30),
        ("QUERY order COUNT ORDER BY amount", 28),
        ("QUERY order FOLLOWED BY order LINKED BY context_id", 25),
        ("QUERY order FOLLOWED BY signup LINKED BY amount", 42),
        ("QUERY order FOLLOWED BY signup LINKED BY context_id WHERE amount = 1", 59),
        (
            "QUERY order FOLLOWED BY signup LINKED BY context_id WHERE order.amount = 1 OR signup.plan = pro",
            79,
        ),
        ("PLOT QUERY order COUNT", 12),
        ('DEFINE new FIELDS {"event_id": "int"}', 8),
        ('STORE order FOR "" PAYLOAD {"amount": 1}', 17),
        ('STORE order FOR u AT soon PAYLOAD {"amount": 1}', 22),
        ('STORE order FOR u PAYLOAD {"amount": 1.5}', 7),
        ('BATCH [ STORE order FOR u PAYLOAD {"amount": 1} ; STORE order FOR u PAYLOAD {"amount": 1.5} ]', 57),
        ("BATCH [ STORE order FOR u PAYLOAD {} ; STORE nothing FOR u PAYLOAD {} ]", 15),
        ('BATCH [ STORE order FOR u PAYLOAD {"amount": 1} ; STORE nothing FOR u PAYLOAD {} ]', 57),
    ],
)
def test_commands_that_cannot_be_are_refused_by_their_place(
    refusing: EventStore, text: str, place: int
) -> None:
    with pytest.raises(QueryError, match=f"line 1, column {place}]"):
        refusing.execute(text)


def test_a_number_of_a_command_is_refused_as_it_was_written(refusing: EventStore) -> None:
    with pytest.raises(QueryError, match=r"field 'amount': 1\.50 is no int"):
        refusing.execute('STORE order FOR u PAYLOAD {"amount": 1.50}')


# --- Versions and order --------------------------------------------------------------------------


def test_expected_versions_decide(store: EventStore) -> None:
    with store.writer() as writer:
        first = writer.append("order", "u", {"amount": 1}, expected=0)
        with pytest.raises(ConflictError):
            writer.append("order", "u", {"amount": 2}, expected=0)
        second = writer.append("order", "u", {"amount": 3}, expected=first.version)
        assert second.version > first.version
        with pytest.raises(ConflictError):
            writer.append_all("u", [("order", {"amount": 4})], expected=first.version)
    with store.writer() as writer:
        with pytest.raises(ConflictError):
            writer.append("order", "u", {"amount": 5}, expected=first.version)
        writer.append("order", "u", {"amount": 6}, expected=second.version)
    amounts = store.replay("u").to_table().column("order.amount").to_pylist()
    assert amounts == [1, 3, 6]
    assert store.version("u") > second.version
    assert store.version("nobody") == 0


def test_many_threads_and_one_expected_version(store: EventStore) -> None:
    with store.writer() as writer, ThreadPoolExecutor(8) as pool:

        def append(number: int) -> bool:
            try:
                writer.append("order", "u", {"amount": number}, expected=0)
            except ConflictError:
                return False
            return True

        assert sum(pool.map(append, range(24))) == 1
        results = list(
            pool.map(lambda number: writer.append("order", f"c{number % 3}", {"amount": number}), range(60))
        )
    assert len({one.version for one in results}) == 60
    assert ids(store) == sorted(ids(store))


def test_what_is_on_its_way_to_the_log_counts_for_an_expected_version(
    store: EventStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Versions that were known may have ended, so they are read again: without what is not durable yet.
    store.retain("signup", timedelta(days=1))
    synced = os.fsync

    def slowly(descriptor: int) -> None:
        time.sleep(0.1)
        synced(descriptor)

    with store.writer() as writer, ThreadPoolExecutor(3) as pool:
        writer.append("order", "u", {"amount": 0})
        monkeypatch.setattr(os, "fsync", slowly)

        def append(number: int) -> bool:
            time.sleep(number * 0.04)
            try:
                writer.append("order", "v", {"amount": number}, expected=0)
            except ConflictError:
                return False
            return True

        assert sum(pool.map(append, range(3))) == 1
    assert store.replay("v").to_table().num_rows == 1


def test_two_writers_take_turns(store: EventStore) -> None:
    with store.writer(hold=False) as one, store.writer(hold=False) as other:
        versions = [0]
        for number in range(6):
            writer = one if number % 2 else other
            versions.append(writer.append("order", "u", {"amount": number}, expected=versions[-1]).version)
            with pytest.raises(ConflictError):
                (other if number % 2 else one).append("order", "u", {"amount": 99}, expected=versions[-2])
    assert ids(store) == versions[1:]


def test_events_of_one_name_are_appended_once(store: EventStore) -> None:
    events = [("order", {"amount": 1}), ("order", {"amount": 2})]
    with store.writer(hold=False) as one, store.writer(hold=False) as other, ThreadPoolExecutor(8) as pool:
        first = one.append_all("u", events, expected=0, once="a")
        # Its own version is no conflict, for another writer neither, which knows nothing of it yet.
        assert one.append_all("u", events, expected=0, once="a") == first
        assert other.append_all("u", events, expected=0, once="a") == first
        with pytest.raises(ConflictError):
            other.append_all("u", events, expected=0, once="b")
        second = other.append_all("u", events, expected=first.version, once="b")
        assert one.append_all("u", events, once="b") == second

        def append(number: int) -> Appended:
            return (one, other)[number % 2].append_all(f"c{number % 3}", events, once=f"n{number % 6}")

        results = [*pool.map(append, range(24))]
    assert results[:6] * 4 == results
    found = ids(store)
    assert len(found) == len({*found}) == 2 * (2 + 6)
    assert {*found} >= {one for result in (first, second, *results) for one in result.ids}
    with store.writer() as writer:
        for bad in ("", "x" * 201, 7):
            with pytest.raises(InputError):
                writer.append_all("u", events, once=bad)  # type: ignore[arg-type]
        assert writer.append_all("u", events, expected=0, once="a") == first


@pytest.mark.parametrize("point", ["wal.before_append", "wal.after_append"])
def test_events_of_one_name_whose_append_failed_are_there_once(store: EventStore, point: str) -> None:
    with store.writer() as writer:
        before = writer.append("order", "u", {"amount": 0}).version
        with failpoint.armed(point, "raise"), pytest.raises(failpoint.FailpointError):
            writer.append_all("u", [("order", {"amount": 1})], expected=before, once="a")
        # Whether it is there, the log alone knows: with it the version is another one.
        again = writer.append_all("u", [("order", {"amount": 1})], expected=before, once="a")
        assert writer.append_all("u", [("order", {"amount": 1})], expected=before, once="a") == again
    assert ids(store) == [before, again.version]


def test_who_holds_a_shard_keeps_it_until_it_is_taken_over(store: EventStore) -> None:
    with store.writer() as holder:
        first = holder.append("order", "u", {"amount": 1})
        with store.writer() as other, pytest.raises(LeaseHeldError):
            other.append("order", "u", {"amount": 2})
        with store.writer(takeover=True) as taker:
            second = taker.append("order", "u", {"amount": 3}, expected=first.version)
            with pytest.raises(FencedError):
                holder.append("order", "u", {"amount": 4})
    assert ids(store) == [first.version, second.version]


def test_a_writer_that_was_fenced_stops_neither_commands_nor_upkeep(store: EventStore) -> None:
    with store.writer() as fenced:
        fenced.append("order", "u", {"amount": 1})
        with weir.events.open(store.path) as other, other.writer(takeover=True) as taker:
            taker.append("order", "u", {"amount": 2})
        store.forget("u")
        assert store.maintain(horizon=timedelta(0)).erasure.events == 2
        store.flush()
        appended = store.execute('STORE order FOR u EXPECT 0 PAYLOAD {"amount": 3}')
    assert ids(store) == [appended.version]


def test_a_command_goes_by_another_writer_once_its_own_is_fenced(store: EventStore) -> None:
    with store.writer() as fenced:
        first = fenced.append("order", "u", {"amount": 1})
        with weir.events.open(store.path) as other, other.writer(takeover=True) as taker:
            second = taker.append("order", "u", {"amount": 2})
        third = store.execute('STORE order FOR u PAYLOAD {"amount": 3}')
    assert ids(store) == [first.version, second.version, third.version]


def test_ids_rise_over_clocks_that_step_back(store: EventStore, monkeypatch: pytest.MonkeyPatch) -> None:
    versions = []
    for wall in (2_000_000_000_000_000, 1_000_000_000_000_000, 1_500_000_000_000_000):
        # Another process, whose clock knows nothing of the former's.
        monkeypatch.setattr(store_module, "process_clock", HybridClock(partial(int, wall)))
        with weir.events.open(store.path) as again, again.writer() as writer:
            versions.append(writer.append("order", "u", {"amount": 1}).version)
    assert versions == sorted(versions)
    assert ids(store) == versions


@pytest.mark.parametrize("read", ["claim", "count"])
def test_a_clock_that_steps_back_after_a_look_at_others(
    store: EventStore, monkeypatch: pytest.MonkeyPatch, read: str
) -> None:
    """What another process has written is below the clock at the look, and above it afterwards."""
    wall = [1_500_000_000_000_000]
    monkeypatch.setattr(store_module, "process_clock", HybridClock(lambda: wall[0]))
    with weir.events.open(store.path) as other, other.writer() as writer:
        first = writer.append("order", "u", {"amount": 1}).version
    wall[0] = 2_000_000_000_000_000
    monkeypatch.setattr(store_module, "process_clock", HybridClock(lambda: wall[0]))
    with weir.events.open(store.path) as again, again.writer() as writer:
        if read == "count":
            assert again.execute("QUERY order COUNT").to_table().to_pylist() == [{"count": 1}]
        else:
            with pytest.raises(ConflictError):
                writer.append("order", "u", {"amount": 1}, expected=1)
        wall[0] = 1_000_000_000_000_000
        second = writer.append("order", "u" if read == "claim" else "v", {"amount": 2}).version
    assert second > first
    if read == "claim":
        assert store.version("u") == second


@pytest.mark.parametrize("read", READS)
def test_an_event_has_a_higher_id_than_all_that_its_process_has_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: str
) -> None:
    """Also than those of a process whose clock is ahead, in a shard that was held before."""

    def clock(seconds: int) -> None:
        monkeypatch.setattr(store_module, "process_clock", HybridClock(lambda: seconds * 1_000_000))

    clock(1_000_000_000)
    with weir.events.create(tmp_path / "store", buckets=8, fsync=False) as store, store.writer() as writer:
        store.define("a", {"n": "int"})
        store.remember("all", "QUERY a COUNT")
        writer.append("a", "near", {"n": 0})
        with monkeypatch.context() as elsewhere:
            ahead = HybridClock(lambda: 2_000_000_000_000_000)
            elsewhere.setattr(store_module, "process_clock", ahead)
            with weir.events.open(store.path, fsync=False) as other, other.writer() as far_writer:
                far = far_writer.append("a", "far", {"n": 1}).version
        READS[read](store, tmp_path / "export")
        assert writer.append("a", "near", {"n": 2}).version > far


def test_two_clocks_with_the_same_tick_give_no_id_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two processes whose clocks stand still each takes what it knows of, and one more."""
    with weir.events.create(tmp_path / "store", buckets=1) as store:
        store.define("order", {"amount": "int"})
        clocks = [HybridClock(partial(int, 1_500_000_000_000_000)) for _ in range(2)]
        ids = []
        for n in range(6):
            monkeypatch.setattr(store_module, "process_clock", clocks[n % 2])
            with weir.events.open(store.path) as opened, opened.writer(hold=False) as writer:
                ids.append(writer.append("order", f"u{n}", {"amount": n}).version)
        assert ids == sorted(set(ids))
        assert store.execute("QUERY order COUNT").to_table().to_pylist() == [{"count": 6}]


def test_all_or_none(store: EventStore) -> None:
    with store.writer() as writer:
        done = writer.append_all("u", [("order", {"amount": 1}), ("signup", {"plan": "pro", "amount": 2})])
        with pytest.raises(InputError):
            writer.append_all("u", [])
        with pytest.raises(InputError):
            writer.append_all("u", [("order",)])  # type: ignore[list-item]
    rows = store.replay("u").to_table().to_pylist()
    assert [row["event_id"] for row in rows] == done.ids
    assert [(row["event_type"], row["order.amount"], row["signup.amount"]) for row in rows] == [
        ("order", 1, None),
        ("signup", None, Decimal("2.00")),
    ]


def test_ingest_in_the_order_of_the_table_and_once(store: EventStore) -> None:
    table = pa.table({"context_id": [f"c{number % 5}" for number in range(50)], "amount": list(range(50))})
    with store.writer() as writer:
        first = writer.ingest("order", table, source=weir.Source("job", 1))
        again = writer.ingest("order", table, source=weir.Source("job", 1))
        assert (first.rows, again.rows) == (50, 0)
        for bad in (table.drop_columns(["amount"]), table.append_column("x", table["amount"]), "rows"):
            with pytest.raises(InputError):
                writer.ingest("order", bad)
        with pytest.raises(InputError, match="row 1"):
            writer.ingest("order", pa.table({"context_id": ["a", ""], "amount": [1, 2]}))
        with pytest.raises(InputError, match="amount"):
            writer.ingest("order", pa.table({"context_id": ["a"], "amount": [1.5]}))
    assert store.replay().to_table().column("order.amount").to_pylist() == list(range(50))
    assert ids(store) == first.ids.to_pylist()


def test_tables_of_several_types_are_ingested_as_one_write(store: EventStore) -> None:
    orders = pa.table({"context_id": [f"c{number % 5}" for number in range(20)], "amount": list(range(20))})
    plans = pa.table({"context_id": ["c1", "c2"], "plan": ["pro", "free"], "amount": [1, 2]})
    with store.writer() as writer:
        batch = [("order", orders), ("signup", plans), ("order", orders.slice(0, 3))]
        first = writer.ingest_all(batch, source=weir.Source("job", 1))
        again = writer.ingest_all(batch, source=weir.Source("job", 1))
        assert (first.rows, again.rows) == (25, 0)
        assert writer.ingest_all([]).rows == 0
        bad: Any
        for bad in (
            [("order", orders), ("nothing", orders)],
            [("order", orders), ("signup", plans.drop_columns(["plan"]))],
            [("order", orders), ("signup", pa.table({"context_id": [""], "plan": ["pro"], "amount": [1]}))],
            [("order",)],
            [orders],
        ):
            with pytest.raises(InputError):
                writer.ingest_all(bad)
    rows = store.replay().to_table().to_pylist()
    assert [row["event_id"] for row in rows] == first.ids.to_pylist() == sorted(first.ids.to_pylist())
    assert [row["event_type"] for row in rows] == ["order"] * 20 + ["signup"] * 2 + ["order"] * 3
    assert [row["order.amount"] for row in rows] == [*range(20), None, None, 0, 1, 2]
    assert [row["plan"] for row in rows if row["plan"]] == ["pro", "free"]


def test_whole_numbers_are_decimals_as_far_as_they_fit(store: EventStore) -> None:
    plans = {"context_id": ["c", "c"], "plan": ["pro", "pro"]}
    with store.writer() as writer:
        writer.ingest("signup", pa.table({**plans, "amount": [7, 9_999_999_999]}))
        with pytest.raises(InputError, match="amount"):
            writer.ingest("signup", pa.table({**plans, "amount": [7, 10_000_000_000]}))
    assert store.query("signup").to_table().column("amount").to_pylist() == [
        Decimal(7),
        Decimal(9_999_999_999),
    ]


def test_sql_sees_types_as_tables(store: EventStore) -> None:
    with store.writer() as writer:
        writer.append("signup", "u", {"plan": "pro", "amount": 1})
        writer.append("order", "u", {"amount": 5})
    joined = 'SELECT s.plan, o.amount FROM signup s JOIN "order" o ON s.context_id = o.context_id'
    assert store.sql(joined).to_table().to_pylist() == [{"plan": "pro", "amount": 5}]
    assert store.query("signup", where="plan = 'pro'", columns=["plan"]).to_table().num_rows == 1
    for bad in ("plan = ", "nothing = 1", "1 = 1; DROP TABLE signup"):
        with pytest.raises(QueryError):
            store.query("signup", where=bad).to_table()
    with pytest.raises(QueryError):
        store.sql("DELETE FROM signup").to_table()


def test_only_what_is_needed_is_read(store: EventStore, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("DEBUG", logger="weir.events.projection"):
        explained = store.execute("QUERY signup WHERE plan = pro RETURN [amount]").explain()
    assert "plan" in explained
    assert "amount" in explained
    assert "country" not in explained
    assert "f_plan" in caplog.text
    assert "country" not in caplog.text
    caplog.clear()
    with caplog.at_level("DEBUG", logger="weir.events.projection"):
        store.execute("REPLAY signup FOR u RETURN [amount]").to_table()
    assert "f_amount" in caplog.text
    assert "f_plan" not in caplog.text
