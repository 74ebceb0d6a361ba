"""The language against a naive interpreter, wherever the events are: log, generations, base table, all."""

from __future__ import annotations

import re
from pathlib import Path
from random import Random
from typing import Any

import pytest

import weir
from tests.events.model import Model
from tests.events.random_queries import (
    KINDS,
    TYPES,
    as_given,
    moment,
    random_count,
    random_payload,
    random_query,
)
from tests.events.runners import Pickling
from weir.engine.context import default_context
from weir.errors import InputError, QueryError
from weir.events.clock import HybridClock
from weir.events.language.parser import parse
from weir.events.query import selecting
from weir.events.query.parts import run_query_by_parts, run_replay_by_parts
from weir.events.query.planner import plan_query
from weir.events.store import EventStore
from weir.read.scan import Scan

STATES = ["log", "flushed", "merged", "mixed"]
_WORDS = re.compile(r'"(?:[^"\\]|\\.)*"|[\w.-]+|[!<>]=|\S')


def filled(place: Path, state: str, events: int = 90) -> tuple[EventStore, Model]:
    random = Random(7)
    store = weir.events.create(place, buckets=2)
    for name, fields in TYPES.items():
        store.define(name, fields)
    model = Model(KINDS)
    writer = store.writer()
    for number in range(events):
        name = random.choice(list(TYPES))
        payload, context, at = random_payload(random, name), f"user-{random.randrange(4)}", moment(random)
        appended = writer.append(name, context, as_given(payload), timestamp=at)
        model.events.append(
            {
                "event_id": appended.ids[0],
                "context_id": context,
                "event_type": name,
                "timestamp": at,
                **payload,
            }
        )
        if state == "mixed" and number in (events // 3, 2 * events // 3):
            writer.flush()
            if number == events // 3:
                store.tables["events"].maintenance.merge()
    if state in ("flushed", "merged"):
        writer.flush()
    if state == "merged":
        # With the indexes of the base table.
        store.maintain()
    # What this process has flushed it still has in memory: from here on it is read.
    default_context().cache.clear()
    return store, model


def by_parts(store: EventStore, text: str) -> list[dict[str, Any]]:
    plan = plan_query(store.tables["events"], store._catalog(True), parse(text))  # type: ignore[arg-type]
    found: list[dict[str, Any]] = run_query_by_parts(plan, HybridClock(), Pickling()).to_pylist()
    return found


def compare(found: list[dict[str, Any]], wanted: list[dict[str, Any]], text: str) -> None:
    assert len(found) == len(wanted), text
    for one, other in zip(found, wanted, strict=True):
        assert list(one) == list(other), text
        for name in one:
            if name.startswith("avg_"):
                assert one[name] == pytest.approx(other[name]), text
            else:
                assert one[name] == other[name], (text, name)


@pytest.mark.parametrize("queries", [5, pytest.param(40, marks=pytest.mark.long)])
@pytest.mark.parametrize("state", STATES)
def test_random_queries_are_answered_as_by_hand_also_by_parts(
    tmp_path: Path, state: str, queries: int
) -> None:
    store, model = filled(tmp_path / "store", state)
    random = Random(STATES.index(state))
    with store:
        for text in [random_query(random) for _ in range(queries)] + [
            random_count(random) for _ in range(queries // 2)
        ]:
            try:
                wanted = model.query(text)
                if any(
                    isinstance(value, int) and abs(value) >= 1 << 63
                    for row in wanted
                    for value in row.values()
                ):
                    continue
                found = store.execute(text).to_table().to_pylist()
            except Exception as error:
                raise AssertionError(text) from error
            compare(found, wanted, text)
            compare(by_parts(store, text), wanted, text)


@pytest.mark.parametrize("texts", [300, pytest.param(20_000, marks=pytest.mark.long)])
@pytest.mark.timeout(1800)
def test_whatever_is_asked_ends_in_an_answer_or_a_refusal(tmp_path: Path, texts: int) -> None:
    """Queries in which a name or a value is replaced by one of another query."""
    random = Random(4)

    def replaceable(word: str) -> bool:
        return not (word.isalpha() and word.isupper()) and re.match(r'["\w-]', word) is not None

    answered = refused = 0
    with filled(tmp_path / "store", "mixed")[0] as store:
        for _ in range(texts):
            words, others = (_WORDS.findall(random_query(random)) for _ in range(2))
            at = random.choice([at for at, word in enumerate(words) if replaceable(word)])
            words[at] = random.choice([word for word in others if replaceable(word)])
            try:
                store.execute(" ".join(words)).to_table()
                answered += 1
            except InputError as error:
                assert "line " in str(error), words
                refused += 1
    assert min(answered, refused) > texts / 10


@pytest.mark.parametrize("state", ["log", "flushed", "merged"])
def test_decimals_are_compared_to_the_last_digit_by_whoever_reads_them(tmp_path: Path, state: str) -> None:
    """As floats, neighbours of so many digits are equal."""
    most, next_to_it = f"{'9' * 33}.99999", f"{'9' * 33}.99998"
    values = [most, f"-{most}", next_to_it, "0.00001", "-0.00001", 0, None]
    with weir.events.create(tmp_path / "store", buckets=1) as store, store.writer() as writer:
        store.define("a", {"m": "decimal(38,5) | null"})
        writer.append_all("c", [("a", {"m": value}) for value in values])
        if state != "log":
            writer.flush()
        if state == "merged":
            store.maintain()
        default_context().cache.clear()
        for condition, count in (
            (f"m = {most}", 1),
            (f'm >= "{next_to_it}"', 2),
            (f"m < {next_to_it}", 4),
            (f"m != -{most}", 5),
            ("m > 0", 3),
            ("m BETWEEN -0.000019 AND 0.000011", 3),
            ("NOT (m < 0)", 4),
            (f"m IN (0, {most})", 2),
            ("m < 1e40", 6),
            ("m = 0.000001", 0),
        ):
            found = store.execute(f"QUERY a WHERE {condition} COUNT").to_table().to_pylist()
            assert found == [{"count": count}], condition


EXTREMES = {
    "QUERY a WHERE n = -9223372036854775808": 1,
    "QUERY a WHERE n >= -1e30": 4,
    "QUERY a WHERE f > 1e299": 4,
    "QUERY a WHERE f = 1e300": 3,
    "QUERY a WHERE f > 1e400": 0,
    'QUERY a SINCE "1500-01-01"': 3,
    'QUERY a SINCE "2263-01-01"': 1,
    "QUERY a COUNT PER year": 4,
    'QUERY a COUNT PER day IN "Europe/Berlin"': 4,
    'QUERY a WHERE s = "back\\\\slash\'\\"; DROP `x` -- \\u0000"': 1,
}


def test_conditions_are_as_deep_and_as_long_as_the_language_takes_them(tmp_path: Path) -> None:
    deepest, mixed = 199, "n = 3"
    for level in range(198):
        mixed = f"({mixed} {'OR' if level % 2 else 'AND'} n != {level})"
    conditions = {
        "(" * deepest + "n = 3" + ")" * deepest: 1,
        "NOT " * deepest + "n = 3": 15,
        "NOT (" * 99 + "n = 3" + ")" * 99: 15,
        mixed: 16,
        " OR ".join(f"n = {n}" for n in range(300)): 16,
        " AND ".join(f"n != {n}" for n in range(10, 300)): 8,
        f"n IN ({', '.join(map(str, range(3, 5000)))})": 14,
    }
    with weir.events.create(tmp_path / "store", buckets=1) as store, store.writer() as writer:
        store.define("a", {"n": "int | null"})
        writer.append_all("c", [("a", {"n": n if n % 5 else None}) for n in range(20)])
        for step in (lambda: None, store.maintain):
            step()
            for condition, wanted in conditions.items():
                text = f"QUERY a WHERE {condition}"
                assert store.execute(text).to_table().num_rows == wanted, text[:40]
                assert store.execute(f"{text} COUNT").to_table().to_pylist() == [{"count": wanted}], text[:40]


def test_a_sequence_is_matched_by_one_time_and_bounded_by_another(tmp_path: Path) -> None:
    """SINCE, UNTIL and PER go by the timestamp or the field of USING, whatever USING TIME says."""
    with weir.events.create(tmp_path / "store", buckets=1) as store, store.writer() as writer:
        for name in "ab":
            store.define(name, {"at": "datetime", "day": "date"})
        for name, at in (("a", "2026-01-01"), ("b", "2026-01-02")):
            writer.append(name, "c", {"at": at, "day": "2026-03-03"}, timestamp="2026-02-02")
        sequence = "QUERY a FOLLOWED BY b LINKED BY context_id USING TIME at COUNT"
        for bounds, count in (
            ("SINCE 2026-02-01", 1),
            ("UNTIL 2026-02-01", 0),
            ("USING at UNTIL 2026-02-01", 1),
            ("USING at UNTIL 2026-01-02", 0),
            ("USING day SINCE 2026-03-03", 1),
            ("USING day UNTIL 2026-03-03", 0),
        ):
            found = store.execute(f"{sequence} {bounds}").to_table().to_pylist()
            assert found == [{"count": count}], bounds
        for using, bucket in (("", "2026-02-02"), ("USING at", "2026-01-01"), ("USING day", "2026-03-03")):
            found = store.execute(f"{sequence} PER day {using}").to_table().to_pylist()
            assert [str(row["bucket"].date()) for row in found] == [bucket]


def test_replays_by_parts_are_in_the_order_of_ids(tmp_path: Path) -> None:
    store, _ = filled(tmp_path / "store", "mixed")
    with store:
        for arguments in ({}, {"context": "user-1"}, {"type": "order", "using": "at", "since": "2026-03-28"}):
            plan = store.plan_replay(**arguments)
            found = run_replay_by_parts(plan, HybridClock(), Pickling())
            assert found.num_rows > 5
            assert found.equals(store.replay(**arguments).to_table())


@pytest.mark.parametrize("state", ["log", "merged"])
def test_the_least_and_the_greatest_values_are_found(tmp_path: Path, state: str) -> None:
    with weir.events.create(tmp_path / "store", buckets=1) as store:
        store.define("a", {"n": "int", "f": "float", "s": "string | null"})
        with store.writer() as writer:
            for at in ("0001-01-01", "1969-12-31T23:59:59.999999Z", "9999-12-31T23:59:59.999999Z"):
                writer.append("a", "u", {"n": 1, "f": 1e300}, timestamp=at)
            writer.append(
                "a", "u", {"n": -(1 << 63), "f": float("inf"), "s": "back\\slash'\"; DROP `x` -- \0"}
            )
            if state == "merged":
                writer.flush()
                store.tables["events"].maintenance.merge()
        for text, rows in EXTREMES.items():
            assert store.execute(text).to_table().num_rows == rows, text


@pytest.mark.parametrize("by", ["", " BY n"])
def test_totals_do_not_overflow(tmp_path: Path, by: str) -> None:
    large, huge = (1 << 62) + 1, 10**38 - 1
    with weir.events.create(tmp_path / "store") as store:
        store.define("a", {"n": "int", "x": "int", "d": "decimal(38,0) | null"})
        with store.writer() as writer:
            writer.append("a", "c", {"n": 1, "x": large})
            store.remember("total", f"QUERY a TOTAL x, AVG x{by}")
            writer.append_all("c", [("a", {"n": 1, "x": x, "d": huge}) for x in (large, large)])
            for refused in (
                lambda: store.execute(f"QUERY a TOTAL x{by}"),
                lambda: store.execute(f"QUERY a TOTAL d{by}"),
                lambda: store.show("total"),
            ):
                with pytest.raises(QueryError, match="more digits"):
                    refused().to_table()
            assert store.execute(f"QUERY a AVG x{by}").to_table().column("avg_x").to_pylist() == [
                float(large)
            ]
            with pytest.raises(QueryError, match="more digits"):
                store.remember("refused", f"QUERY a TOTAL d{by}")
            assert set(store.materializations()) == {"total"}
            writer.append("a", "c", {"n": 1, "x": -large})
            writer.append("a", "c", {"n": 1, "x": -large})
            assert store.show("total").to_table().column("total_x").to_pylist() == [large]


def test_what_a_selection_may_find_is_counted_once_for_a_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: list[int] = []
    count = Scan.count

    def counted(scan: Scan) -> int:
        counts.append(count(scan))
        return counts[-1]

    monkeypatch.setattr(Scan, "count", counted)
    there: list[tuple[str, int]] = []
    with weir.events.create(tmp_path / "store", buckets=1) as store, store.writer() as writer:
        store.define("a", {"kind": ["x", "y"], "n": "int"})
        for most in (1000, 0):
            monkeypatch.setattr(selecting, "_MOST_CANDIDATES", most)
            for n in range(20):
                there.append(("xy"[n % 2], n))
                writer.append("a", "c", {"kind": "xy"[n % 2], "n": n})
            store.maintain()
            counts.clear()
            for above in (5, 9):
                writer.append("a", "c", {"kind": "x", "n": above + 1})
                there.append(("x", above + 1))
                found = store.execute(f"QUERY a WHERE kind = x AND n > {above}").to_table()
                wanted = [n for kind, n in there if kind == "x" and n > above]
                assert found.column("n").to_pylist() == wanted
            assert len(counts) == 1
