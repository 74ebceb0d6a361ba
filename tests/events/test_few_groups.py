"""Groups of a few events by Arrow compute, compared with DataFusion."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import weir
from weir.events.catalog import Catalog
from weir.events.language.parser import parse
from weir.events.query import states
from weir.events.query.few_groups import few_results, few_states
from weir.events.query.planner import QueryPlan, plan_query
from weir.events.query.sessions import frame_of
from weir.events.query.states import of_states, states_of
from weir.events.store import EventStore

FIELDS: dict[str, Any] = {
    "s": "string | null",
    "e": ["a", "b", "c"],
    "i": "int | null",
    "f": "float | null",
    "b": "bool | null",
    "d": "date | null",
    "t": "datetime | null",
    "m": "decimal(12,2) | null",
    "w": "decimal(38,2) | null",
    "l": "list<int> | null",
}
BY_ARROW = [
    "COUNT",
    "COUNT, COUNT s, TOTAL i, AVG i, MIN i, MAX i",
    "COUNT l BY s",
    "COUNT, TOTAL m, MIN m, MAX m, MIN s, MAX s, MIN d, MAX d BY b, d",
    "COUNT, AVG i PER month BY s, e",
    "COUNT i PER day USING d",
    'COUNT, TOTAL i PER hour IN "Europe/Berlin" BY m',
    'COUNT b PER week IN "Pacific/Apia" USING t BY t',
    "MIN context_id, MAX event_type, MAX event_id BY context_id, i",
]
BY_DATAFUSION = ["TOTAL f", "MIN f", "COUNT BY f", "TOTAL w", "COUNT UNIQUE s", "MAX t"]
TEXTS = [None, "", "it's", "\u00e4", "1:a,1:b", "null", "\U0001f600", "\uffff", "z"]
DATES = [None, "0001-01-01", "1969-12-31", "2026-03-29", "2026-10-25", "9999-12-31"]
INTS = [None, 0, -1, 7, (1 << 57) - 1, 1 - (1 << 58)]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EventStore]:
    random = Random(3)
    with weir.events.create(tmp_path_factory.mktemp("few") / "store", buckets=2) as made:
        made.define("a", FIELDS)
        with made.writer() as writer:
            for number in range(120):
                day = random.choice(DATES)
                hour = timedelta(minutes=random.randrange(60 * 24))
                payload = {
                    "s": random.choice(TEXTS),
                    "e": random.choice("abc"),
                    "i": random.choice(INTS[: 4 if number < 80 else 6]),
                    "f": random.choice([None, 0.0, -0.0, 0.1]),
                    "b": random.choice([None, True, False]),
                    "d": day,
                    "t": datetime(1969, 12, 31, tzinfo=UTC) + random.randrange(20_000) * 3 * hour,
                    "m": random.choice([None, Decimal("0.01"), Decimal("-9999999999.99")]),
                    "w": random.choice([None, Decimal("1.25")]),
                    "l": random.choice([None, [], [1, 2]]),
                }
                at = datetime(2026, random.choice([3, 10]), random.randrange(24, 31), tzinfo=UTC) + hour
                writer.append("a", f"c{random.randrange(5)}", payload, timestamp=at)
        yield made


def planned(store: EventStore, text: str) -> tuple[QueryPlan, pa.Table]:
    query: Any = parse(f"QUERY a {text}")
    catalog: Catalog = store._catalog(True)
    plan = plan_query(store.tables["events"], catalog, query)
    (events,) = plan.read.named(plan.read.scan().to_table())
    return plan, events


@pytest.mark.parametrize("text", BY_ARROW)
@pytest.mark.parametrize("rows", [120, 1, 0])
def test_states_and_results_are_those_of_datafusion(
    store: EventStore, text: str, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, events = planned(store, text)
    assert plan.grouping is not None
    events = events.slice(0, rows)
    by_arrow = few_states(plan.grouping, events)
    assert by_arrow is not None
    by_datafusion = states_of(plan, frame_of(events))
    assert by_arrow.schema == by_datafusion.schema
    assert by_arrow.sort_by("key").equals(by_datafusion.sort_by("key"))

    shown = of_states(plan, by_arrow)
    assert few_results(plan, by_arrow) is not None or "AVG i" in text
    monkeypatch.setattr(states, "few_results", lambda *_: None)
    assert shown.equals(of_states(plan, by_datafusion))


@pytest.mark.parametrize("text", BY_DATAFUSION)
def test_what_the_two_might_not_agree_on_is_left_to_datafusion(store: EventStore, text: str) -> None:
    plan, events = planned(store, text)
    assert plan.grouping is not None
    assert few_states(plan.grouping, events) is None


def test_an_average_that_is_rounded_twice_is_left_to_datafusion(store: EventStore) -> None:
    for text in ("AVG i", "AVG m"):
        plan, events = planned(store, text)
        assert few_results(plan, states_of(plan, frame_of(events))) is None
    plan, events = planned(store, "WHERE i < 100 AND i >= -1 AVG i")
    assert few_results(plan, states_of(plan, frame_of(events))) is not None


def test_show_is_the_query(tmp_path: Path) -> None:
    texts = [*BY_ARROW, *BY_DATAFUSION, "COUNT BY s ORDER BY count DESC LIMIT 2"]
    queries = {f"q{at}": f'QUERY a WHERE e != "c" AND i < 100 {text}' for at, text in enumerate(texts)}
    with weir.events.create(tmp_path / "store", buckets=1) as store:
        store.define("a", FIELDS)
        for name, query in queries.items():
            store.remember(name, query)
        with store.writer() as writer:
            for number in range(24):
                payload = {"e": "abc"[number % 3], "i": number, "s": TEXTS[number % 9], "m": f"{number}.5"}
                writer.append("a", f"c{number % 7}", payload)
                if number % 8 == 7:
                    for name, query in queries.items():
                        assert store.show(name).to_table().equals(store.execute(query).to_table()), query
