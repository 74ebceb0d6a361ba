"""A store against lists of dicts, through whatever may happen to it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import weir
from tests.events.calendars import check_calendars
from weir.engine.context import default_context
from weir.errors import ConflictError, FencedError, InputError, LeaseHeldError
from weir.events.store import EventStore
from weir.events.zones import build_indexes

CONTEXTS = st.sampled_from(["a", "b", "c", "d"])
NUMBERS = st.integers(-3, 3)
NOW = datetime(2026, 1, 1, tzinfo=UTC)
REMEMBERED = {
    "rows": "QUERY x WHERE n > 0",
    "groups": "QUERY x COUNT, TOTAL n, MIN n, COUNT UNIQUE g PER month BY context_id",
    "top": "QUERY x ORDER BY n DESC LIMIT 3",
    "links": "QUERY x FOLLOWED BY y LINKED BY context_id",
}


class Machine(RuleBasedStateMachine):
    """Events by context in the order of acknowledgement, as the store ought to have them."""

    @initialize(buckets=st.integers(1, 3))
    def begin(self, buckets: int) -> None:
        self.place = tempfile.mkdtemp(prefix="weir-machine-")
        self.store: EventStore = weir.events.create(f"{self.place}/store", buckets=buckets, fsync=False)
        self.store.define("x", {"n": "int", "g": ["u", "v"]})
        self.store.define("y", {"n": "int | null"})
        self.writer = self.store.writer()
        self.events: list[dict[str, Any]] = []
        self.columns = {"x": ["n", "g"], "y": ["n"]}
        self.remembered: set[str] = set()
        self.kept_for: dict[str, timedelta] = {}
        self.committed: set[int] = set()
        self.highest = 0
        self.clock = 0

    def teardown(self) -> None:
        if hasattr(self, "writer"):
            self.writer.close()
            check_calendars(self.store)
            self.store.close()
            shutil.rmtree(self.place, ignore_errors=True)

    def version(self, context: str) -> int:
        return max((one["event_id"] for one in self.events if one["context_id"] == context), default=0)

    def took(self, kind: str, context: str, event_id: int, at: datetime, payload: dict[str, Any]) -> None:
        assert event_id > self.highest
        self.highest = event_id
        event = {"event_id": event_id, "context_id": context, "event_type": kind, "timestamp": at, **payload}
        if self.is_kept(event):
            self.events.append(event)

    def is_kept(self, event: dict[str, Any]) -> bool:
        age = self.kept_for.get(event["event_type"])
        return age is None or event["timestamp"] >= datetime.now(UTC) - age

    def at(self, late: int) -> datetime:
        self.clock += 1
        return NOW + timedelta(hours=self.clock) - timedelta(days=20 * late)

    @rule(context=CONTEXTS, n=NUMBERS, g=st.sampled_from("uv"), late=st.integers(0, 5))
    def append(self, context: str, n: int, g: str, late: int) -> None:
        at = self.at(late)
        done = self.writer.append(
            "x", context, {"n": n, "g": g}, timestamp=at, expected=self.version(context)
        )
        self.took("x", context, done.version, at, {"n": n, "g": g})

    @rule(context=CONTEXTS, n=NUMBERS)
    def append_what_others_have_changed(self, context: str, n: int) -> None:
        with pytest.raises(ConflictError):
            self.writer.append("y", context, {"n": n}, expected=self.version(context) + 1)

    @rule(context=CONTEXTS, numbers=st.lists(NUMBERS, min_size=1, max_size=4))
    def append_all(self, context: str, numbers: list[int]) -> None:
        at = self.at(0)
        events = [
            ("xy"[number % 2], {"n": number, **({} if number % 2 else {"g": "u"})}) for number in numbers
        ]
        done = self.writer.append_all(context, [(kind, payload, at) for kind, payload in events])
        for event_id, (kind, payload) in zip(done.ids, events, strict=True):
            self.took(kind, context, event_id, at, payload)

    @rule(contexts=st.lists(CONTEXTS, min_size=1, max_size=6), n=NUMBERS)
    def ingest(self, contexts: list[str], n: int) -> None:
        at = self.at(0)
        rows = pa.table({"context_id": contexts, "n": [n] * len(contexts), "timestamp": [at] * len(contexts)})
        done = self.writer.ingest("y", rows)
        by_id = sorted(zip(done.ids.to_pylist(), contexts, strict=True))
        assert [context for _, context in by_id] == contexts
        for event_id, context in by_id:
            self.took("y", context, event_id, at, {"n": n})

    @rule(contexts=st.lists(CONTEXTS, min_size=1, max_size=4), n=NUMBERS)
    def ingest_all(self, contexts: list[str], n: int) -> None:
        at = self.at(1)
        rows = pa.table({"context_id": contexts, "n": [n] * len(contexts), "timestamp": [at] * len(contexts)})
        groups = rows.append_column("g", pa.array(["v"] * len(contexts)))
        done = self.writer.ingest_all([("x", groups), ("y", rows)]).ids.to_pylist()
        for event_id, context in zip(done, contexts, strict=False):
            self.took("x", context, event_id, at, {"n": n, "g": "v"})
        for event_id, context in zip(done[len(contexts) :], contexts, strict=True):
            self.took("y", context, event_id, at, {"n": n})

    @rule(context=CONTEXTS, n=NUMBERS, late=st.integers(0, 5))
    def store_by_a_command(self, context: str, n: int, late: int) -> None:
        at, version = self.at(late), self.version(context)
        with pytest.raises(ConflictError):
            self.store.execute(f"STORE y FOR {context} EXPECT {version + 1} PAYLOAD {{}}")
        text = f'STORE y FOR {context} AT "{at.isoformat()}" EXPECT {version} PAYLOAD {{"n": {n}}}'
        self.took("y", context, self.store.execute(text).version, at, {"n": n})

    @rule(context=CONTEXTS, n=NUMBERS)
    def store_a_batch_by_a_command(self, context: str, n: int) -> None:
        at = self.at(0)
        begin = f'FOR {context} AT "{at.isoformat()}" PAYLOAD'
        with pytest.raises(InputError):
            self.store.execute(f'BATCH [ STORE y {begin} {{}} ; STORE x {begin} {{"n": {n}}} ]')
        done = self.store.execute(f'BATCH [ STORE y {begin} {{}} ; STORE x {begin} {{"n": {n}, "g": "v"}} ]')
        self.took("y", context, done.ids[0], at, {})
        self.took("x", context, done.ids[1], at, {"n": n, "g": "v"})

    @rule()
    def flush(self) -> None:
        self.writer.flush()
        default_context().cache.clear()

    @rule()
    def merge(self) -> None:
        self.writer.flush()
        self.store.tables["events"].maintenance.merge()
        build_indexes(self.store.tables["events"], self.store._catalog(True))

    @rule()
    def maintain(self) -> None:
        self.store.maintain()

    @rule()
    def take_over(self) -> None:
        taken = self.store.writer(takeover=True)
        for context in "abcd":
            at = self.at(0)
            done = taken.append("y", context, {}, timestamp=at)
            self.took("y", context, done.version, at, {})
        # It is fenced where it had the shard, and finds it held where it had not.
        with pytest.raises((FencedError, LeaseHeldError)):
            self.writer.append("y", "a", {})
        self.writer.__exit__(FencedError, FencedError("taken over"), None)
        self.writer = taken

    @rule()
    def open_again(self) -> None:
        self.writer.close()
        self.store.close()
        default_context().cache.clear()
        self.store = weir.events.open(f"{self.place}/store", fsync=False)
        self.writer = self.store.writer()

    @rule()
    def die(self) -> None:
        """What is in memory only is lost."""
        self.writer.__exit__(RuntimeError, RuntimeError("died"), None)
        default_context().cache.clear()
        self.store = weir.events.open(f"{self.place}/store", fsync=False)
        self.writer = self.store.writer()

    @rule()
    def widen(self) -> None:
        self.store.define("x", {"n": "float", "g": ["u", "v", "w"]})

    @rule(number=st.integers(0, 2))
    def define(self, number: int) -> None:
        name = f"more{number}"
        fields = {"n": "int | null", **dict.fromkeys([*self.columns["y"][1:], name], "string | null")}
        self.store.define("y", fields)
        if name not in self.columns["y"]:
            self.columns["y"].append(name)

    @rule(context=CONTEXTS)
    def forget(self, context: str) -> None:
        self.store.forget(context)
        self.events = [one for one in self.events if one["context_id"] != context]

    @rule(kind=st.sampled_from("xy"), late=st.one_of(st.none(), st.integers(0, 4)))
    def retain(self, kind: str, late: int | None) -> None:
        if late is None:
            self.kept_for.pop(kind, None)
            self.store.execute(f"RETAIN {kind} EVER")
            return
        # Events are of whole hours: while half of one goes by, none becomes too old.
        floor = NOW + timedelta(hours=self.clock) - timedelta(days=20 * late, minutes=30)
        self.kept_for[kind] = datetime.now(UTC) - floor
        self.store.retain(kind, self.kept_for[kind])
        self.events = [one for one in self.events if self.is_kept(one)]

    @rule(commits=st.booleans())
    def subscribe(self, commits: bool) -> None:
        subscription = self.store.subscribe("all")
        rows = [row for batch in subscription for row in batch.rows.to_pylist()]
        wanted = [one for one in self.events if one["event_id"] not in self.committed]
        for context in "abcd":
            found = [row["event_id"] for row in rows if row["context_id"] == context]
            assert found == [one["event_id"] for one in wanted if one["context_id"] == context]
        if commits:
            subscription.commit()
            self.committed.update(one["event_id"] for one in wanted)

    @rule(format=st.sampled_from(["parquet", "snp"]), buckets=st.integers(1, 3))
    def export_and_restore(self, format: str, buckets: int) -> None:
        folder, place = f"{self.place}/export", f"{self.place}/copy"
        assert self.store.export(folder, format=format).events == len(self.events)
        assert self.store.restore(folder).events == 0
        with weir.events.create(place, buckets=buckets, fsync=False) as copy:
            assert copy.restore(folder).events == len(self.events)
            assert copy.replay().to_table().equals(self.store.replay().to_table())
            assert copy.types() == self.store.types()
        shutil.rmtree(place)

    @precondition(lambda self: bool(getattr(self, "remembered", ())))
    @rule(drops=st.booleans())
    def refresh_or_drop(self, drops: bool) -> None:
        name = min(self.remembered)
        if drops:
            self.store.execute(f"DROP {name}")
            self.remembered.remove(name)
        else:
            self.store.refresh(name)
            assert self.store.materializations()[name].lag == 0

    @precondition(lambda self: len(getattr(self, "remembered", REMEMBERED)) < len(REMEMBERED))
    @rule(name=st.sampled_from(sorted(REMEMBERED)))
    def remember(self, name: str) -> None:
        if name not in self.remembered:
            self.store.remember(name, REMEMBERED[name])
            self.remembered.add(name)

    @invariant()
    def replays_are_the_order_of_acknowledgement(self) -> None:
        rows = self.store.replay().to_table().to_pylist()
        # Where types give a name different types, it has that of the type before it.
        found = [
            {name.rpartition(".")[2]: value for name, value in row.items() if value is not None}
            for row in rows
        ]
        assert found == self.events
        for context in "ab":
            own = [one["event_id"] for one in self.events if one["context_id"] == context]
            assert self.store.replay(context).to_table().column("event_id").to_pylist() == own
            assert self.store.version(context) == (own[-1] if own else 0)

    @invariant()
    def queries_are_answered(self) -> None:
        counted = self.store.execute("QUERY x WHERE n >= 1 AND g != v COUNT, TOTAL n").to_table().to_pylist()
        numbers = [
            one["n"] for one in self.events if one["event_type"] == "x" and one["n"] >= 1 and one["g"] != "v"
        ]
        assert counted == [{"count": len(numbers), "total_n": sum(numbers) if numbers else None}]

    @invariant()
    def what_is_shown_is_the_query(self) -> None:
        for name in getattr(self, "remembered", ()):
            assert self.store.show(name).to_table().equals(self.store.execute(REMEMBERED[name]).to_table()), (
                name
            )


def test_a_store_is_what_lists_of_dicts_say_after_every_command() -> None:
    """Each once: of so many rules the few runs of a short test leave out most."""
    one = Machine()
    one.begin(buckets=2)
    steps: list[Callable[[], None]] = [
        *(partial(one.remember, name) for name in REMEMBERED),
        *(partial(one.append, context, n=n, g="u", late=n) for n, context in enumerate("abc")),
        partial(one.append_what_others_have_changed, "a", n=1),
        partial(one.append_all, "a", numbers=[1, 2, 3]),
        partial(one.subscribe, commits=True),
        one.flush,
        partial(one.ingest, ["b", "a", "b"], n=2),
        partial(one.export_and_restore, "snp", buckets=3),
        one.merge,
        partial(one.store_by_a_command, "c", n=3, late=1),
        one.die,
        partial(one.ingest_all, ["c", "d"], n=-1),
        partial(one.forget, "b"),
        partial(one.subscribe, commits=True),
        partial(one.store_a_batch_by_a_command, "b", n=1),
        one.widen,
        partial(one.define, 1),
        partial(one.retain, "x", late=0),
        one.take_over,
        partial(one.append, "d", n=2, g="v", late=3),
        one.maintain,
        partial(one.retain, "x", late=None),
        partial(one.refresh_or_drop, drops=False),
        partial(one.append, "d", n=3, g="v", late=4),
        one.open_again,
        partial(one.refresh_or_drop, drops=True),
        partial(one.subscribe, commits=False),
        partial(one.export_and_restore, "parquet", buckets=1),
    ]
    try:
        for step in steps:
            step()
            one.replays_are_the_order_of_acknowledgement()
            one.queries_are_answered()
            one.what_is_shown_is_the_query()
    finally:
        one.teardown()


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_a_store_is_what_lists_of_dicts_say_for_long() -> None:
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
