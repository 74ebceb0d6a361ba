"""What checks the promises of event stores finds one that breaks them: bugs are planted, and each is seen."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from datafusion import col

import weir
from tests.events.model import Model
from weir.errors import ConflictError
from weir.events import payloads
from weir.events.calendar import with_days
from weir.events.clock import SHARD_BITS, HybridClock
from weir.events.language import tree
from weir.events.materializations import Materialization
from weir.events.query import running
from weir.events.query.conditions import condition_of
from weir.events.query.reading import StepsRead
from weir.events.query.replaying import ReplayPlan
from weir.events.query.sessions import session
from weir.events.store import EventStore
from weir.events.visibility import all_of
from weir.events.writer import EventWriter
from weir.read.scan import Scan

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


class Checked:
    """A store and the events that it has acknowledged."""

    def __init__(self, path: Path) -> None:
        self.store: EventStore = weir.events.create(path, buckets=3, fsync=False)
        self.store.define("a", {"n": "int", "g": ["u", "v", "w"]})
        self.store.define("b", {"n": "int"})
        self.model = Model({"a": {"n": "int", "g": "enum"}, "b": {"n": "int"}})

    def fill(self, count: int = 24) -> None:
        """Acknowledge events of four contexts, of which some are in a generation and some are not."""
        with self.store.writer() as writer:
            for number in range(count):
                kind = "ab"[number % 3 == 2]
                payload: dict[str, Any] = {"n": number * 5 % 11}
                if kind == "a":
                    payload["g"] = "uvw"[number * 7 % 5 % 3]
                at, context = NOON + timedelta(minutes=number), f"c{number % 4}"
                done = writer.append(kind, context, payload, timestamp=at)
                core = {"event_id": done.version, "context_id": context, "event_type": kind, "timestamp": at}
                self.model.events.append({**core, **payload})
                if number == count // 2:
                    writer.flush()

    def same(self, text: str) -> None:
        assert self.store.execute(text).to_table().to_pylist() == self.model.query(text), text


def check_acknowledged_is_durable(one: Checked) -> None:
    """Whoever opens the store anew has what was acknowledged."""
    one.fill(6)
    with weir.events.open(one.store.path) as fresh:
        found = fresh.replay().to_table().column("event_id").to_pylist()
    assert found == [event["event_id"] for event in one.model.events]


def check_replays_are_in_order(one: Checked) -> None:
    """Events come in the order of their ids, which is that of acknowledgement in a context."""
    one.fill()
    ids = [event["event_id"] for event in one.model.events]
    assert ids == sorted(ids)
    assert one.store.replay().to_table().column("event_id").to_pylist() == ids
    own = [event["event_id"] for event in one.model.events if event["context_id"] == "c1"]
    assert one.store.replay("c1").to_table().column("event_id").to_pylist() == own


def check_conditions_select(one: Checked) -> None:
    """Every condition selects what it says, and also where it is negated."""
    one.fill()
    for condition in ("g != u", "NOT g = u", "n != 3", "NOT (g = v OR n > 4)", "g NOT IN (u, w)"):
        one.same(f"QUERY a WHERE {condition}")
        one.same(f"QUERY a WHERE {condition} COUNT")


def check_times_select(one: Checked) -> None:
    """A window of time has the events of its days and no others."""
    one.fill()
    one.same('QUERY a SINCE "2026-01-01T12:05:00Z" UNTIL "2026-01-01T12:15:00Z"')
    one.same('QUERY a WHERE timestamp BETWEEN "2026-01-01T12:02:00Z" AND "2026-01-01T12:07:00Z" COUNT')
    one.same('QUERY b WHERE timestamp = "2026-01-01T12:05:00Z"')


def check_the_first_are_the_first(one: Checked) -> None:
    """The first rows of an order are those of all rows."""
    one.fill()
    one.same("QUERY a ORDER BY n DESC LIMIT 3")
    one.same("QUERY a WHERE g != u ORDER BY n LIMIT 2 OFFSET 1")


def check_sequences(one: Checked) -> None:
    """Conditions select events before they are matched."""
    one.fill()
    one.same("QUERY a FOLLOWED BY b LINKED BY context_id WHERE b.n > 4")
    one.same("QUERY b PRECEDED BY a LINKED BY context_id WHERE a.g = u COUNT")


def check_remembered(one: Checked) -> None:
    """What is shown is the query, after every batch of events."""
    queries = {"all": "QUERY a COUNT, TOTAL n BY g", "rows": "QUERY a WHERE n > 2"}
    for name, query in queries.items():
        one.store.remember(name, query)
    for _ in range(3):
        one.fill(6)
        for name, query in queries.items():
            assert one.store.show(name).to_table().equals(one.store.execute(query).to_table()), name


def check_forgotten_is_gone(one: Checked) -> None:
    """Of a forgotten context there is nothing, wherever one looks."""
    one.fill()
    one.store.remember("rows", "QUERY a")
    one.store.forget("c1")
    answers = [one.store.replay(), one.store.query("a"), one.store.show("rows")]
    tables = [answer.to_table() for answer in answers]
    tables += [batch.rows for batch in one.store.subscribe("late")]
    assert all("c1" not in table.column("context_id").to_pylist() for table in tables)
    assert one.store.version("c1") == 0


def check_expected_versions(one: Checked) -> None:
    """Of two that expect the same version, one wins."""
    one.fill(4)
    with one.store.writer() as writer:
        version = one.store.version("c1")
        writer.append("b", "c1", {"n": 1}, expected=version)
        with refused():
            writer.append("b", "c1", {"n": 2}, expected=version)
    assert one.store.execute("QUERY b FOR c1 COUNT").to_table().column("count").to_pylist() == [1]


def check_ids_rise_though_clocks_step_back(one: Checked) -> None:
    """Ids rise however the wall clock goes."""
    walls = iter([1_000_000, 5_000_000, 2_000_000, 2_000_000, 6_000_000])
    clock = HybridClock(lambda: next(walls))
    ids = [clock.ticks(1) for _ in range(5)]
    assert ids == sorted(set(ids))


class refused:  # noqa: N801 - reads as a word
    """What is not refused is a failed check."""

    def __enter__(self) -> None: ...

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> bool:
        assert isinstance(error, ConflictError), "it was not refused"
        return True


CHECKS: dict[str, Callable[[Checked], None]] = {
    "acknowledged": check_acknowledged_is_durable,
    "order": check_replays_are_in_order,
    "conditions": check_conditions_select,
    "times": check_times_select,
    "first": check_the_first_are_the_first,
    "sequences": check_sequences,
    "remembered": check_remembered,
    "forgotten": check_forgotten_is_gone,
    "expected": check_expected_versions,
    "clock": check_ids_rise_though_clocks_step_back,
}


def acknowledges_before_the_log(patch: pytest.MonkeyPatch) -> None:
    """Appends return while their rows are still to be written."""

    def later(self: EventWriter, table: pa.Table, shards: set[int], source: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(pa.table({"rows": []}))
        return done

    patch.setattr(EventWriter, "_enqueue", later)
    patch.setattr(EventWriter, "_in_turn", lambda self, enqueue, written: written(enqueue()[0], None))


def drops_neighbours(patch: pytest.MonkeyPatch) -> None:
    """A zone that has the value is passed over by ``!=``, with all the others in it."""
    held = running.selected
    patch.setattr(StepsRead, "_pushed", lambda self, step: [])

    def selected(plan: Any, step: int, frame: Any) -> Any:
        for condition in plan.conditions[step]:
            inner = condition.condition if isinstance(condition, tree.Not) else condition
            if isinstance(inner, tree.Comparison) and (inner.operator == "!=") != (inner is not condition):
                rows = frame.to_arrow_table()
                values = rows.column(plan.scope.get(inner.field).internal)
                equal = pc.equal(values.cast(pa.string()), str(inner.value.value)).to_numpy()
                zones = np.arange(len(equal)) // 4
                frame = session().from_arrow(rows.filter(~np.isin(zones, zones[equal])))
        return held(plan, step, frame)

    patch.setattr(running, "selected", selected)


def replays_shard_by_shard(patch: pytest.MonkeyPatch) -> None:
    """The events of one shard come after those of another."""

    def rows(self: ReplayPlan) -> pa.Table:
        table = self.bounded(self.scan().to_table())
        ids = table.column("event_id").to_numpy()
        return table.take(np.lexsort((ids, ids & ((1 << SHARD_BITS) - 1))))

    patch.setattr(ReplayPlan, "rows", rows)


def keeps_another_calendar(patch: pytest.MonkeyPatch) -> None:
    """The days of events are those that it is at the other side of the world."""

    def another(columns: dict[str, pa.Array]) -> dict[str, pa.Array]:
        away = {
            name: pc.add(one, pa.scalar(timedelta(hours=13)))
            for name, one in columns.items()
            if name == "timestamp"
        }
        return {**with_days({**columns, **away}), **columns}

    patch.setattr(payloads, "with_days", another)


def prunes_the_first(patch: pytest.MonkeyPatch) -> None:
    """Zones that may have one of the first rows are passed over."""
    held = Scan.chosen

    def chosen(self: Scan, first: Any, choose: Any) -> pa.Table:
        return held(self, first, lambda rows: choose(rows.slice(0, rows.num_rows * 2 // 3)))

    patch.setattr(Scan, "chosen", chosen)


def conditions_after_matching(patch: pytest.MonkeyPatch) -> None:
    """Matches are selected, not the events that are matched."""
    held_rows, held = running.sequence_rows, running.selected
    patch.setattr(StepsRead, "_pushed", lambda self, step: [])

    def selected(plan: Any, step: int, frame: Any) -> Any:
        return held(replace(plan, conditions=((),) * len(plan.conditions)), step, frame)

    def sequence_rows(plan: Any, steps: Any) -> Any:
        conditions = [
            condition_of(one, plan.scope, lambda column: col(column.internal))
            for of_step in plan.conditions
            for one in of_step
        ]
        whole = all_of(conditions)
        assert whole is not None
        return held_rows(plan, steps).filter(whole)

    patch.setattr(running, "selected", selected)
    patch.setattr(running, "sequence_rows", sequence_rows)


def counts_what_came_twice(patch: pytest.MonkeyPatch) -> None:
    """The mark stays where it was while the rows move on."""
    held = StepsRead.fresh_of
    patch.setattr(StepsRead, "fresh_of", lambda self, rows, after: (held(self, rows, after)[0], after))


def looks_at_no_erasure(patch: pytest.MonkeyPatch) -> None:
    """What is remembered is not looked at for what is gone."""
    patch.setattr(Materialization, "_is_stale", lambda self, mark: False)


def shows_the_forgotten_to_subscribers(patch: pytest.MonkeyPatch) -> None:
    """Subscriptions read past the catalog."""
    patch.setattr("weir.events.visibility.visible", lambda catalog, types=None, now=None: [])


def takes_any_version(patch: pytest.MonkeyPatch) -> None:
    """Expected versions are not looked at."""
    patch.setattr(EventWriter, "_check_version", lambda self, context, shard, expected: None)


def takes_ids_from_the_wall(patch: pytest.MonkeyPatch) -> None:
    """Ids are what the clock on the wall says."""
    patch.setattr(HybridClock, "ticks", lambda self, count: self._wall())


BUGS: list[tuple[str, Callable[[pytest.MonkeyPatch], None]]] = [
    ("acknowledged", acknowledges_before_the_log),
    ("conditions", drops_neighbours),
    ("order", replays_shard_by_shard),
    ("times", keeps_another_calendar),
    ("first", prunes_the_first),
    ("sequences", conditions_after_matching),
    ("remembered", counts_what_came_twice),
    ("forgotten", looks_at_no_erasure),
    ("forgotten", shows_the_forgotten_to_subscribers),
    ("expected", takes_any_version),
    ("clock", takes_ids_from_the_wall),
]


@pytest.mark.one_in(2)
@pytest.mark.parametrize("check", CHECKS)
def test_the_store_keeps_its_promise(tmp_path: Path, check: str) -> None:
    one = Checked(tmp_path / "store")
    CHECKS[check](one)
    one.store.close()


@pytest.mark.parametrize(("check", "bug"), BUGS, ids=[bug.__name__ for _, bug in BUGS])
def test_a_planted_bug_is_found(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    check: str,
    bug: Callable[[pytest.MonkeyPatch], None],
) -> None:
    one = Checked(tmp_path / "store")
    bug(monkeypatch)
    with pytest.raises(AssertionError):
        CHECKS[check](one)
