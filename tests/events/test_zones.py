"""Zones and pruning: which index each field has, what a plan says of it, and the same answers with it."""

from __future__ import annotations

import re
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

import weir
from tests.events.calendars import check_calendars
from tests.forked_program import weir_python
from weir.events.store import EventStore

_WRITE = """
import sys, pyarrow as pa, weir
from decimal import Decimal
store = weir.events.create(sys.argv[1], buckets=1, events_per_zone=512, fsync=False)
fields = {"status": ["ok", "slow", "lost"], "ms": "int", "host": "string", "at": "datetime", "ok": "bool",
          "fee": "decimal(12,2)"}
store.define("call", fields)
n = 20_000
instants = pa.array([1_700_000_000_000_000 + i * 1_000_000 for i in range(n)], pa.timestamp("us", "UTC"))
with store.writer() as writer:
    writer.ingest("call", pa.table({
        "context_id": [f"c{i // 100}" for i in range(n)],
        "timestamp": instants,
        "status": ["lost" if i % 1000 == 0 else "slow" if i < 600 else "ok" for i in range(n)],
        "ms": list(range(n)),
        "host": [f"h{i // 500}" for i in range(n)],
        "at": instants,
        "ok": [i % 1000 != 0 for i in range(n)],
        "fee": pa.array([Decimal(i) / 100 for i in range(n)], pa.decimal128(12, 2)),
    }))
"""
"""What another process writes, whose rows are in memory nowhere here."""

_QUERIES = [
    ("QUERY call WHERE status = slow COUNT", "EnumBitmap(status)", 599),
    ("QUERY call WHERE status != ok COUNT", "EnumBitmap(status)", 619),
    ("QUERY call WHERE NOT ok COUNT", "EnumBitmap(ok)", 20),
    ("QUERY call WHERE ms BETWEEN 700 AND 720 COUNT", "ZoneRange(ms)", 21),
    ("QUERY call WHERE fee >= 7 AND fee < 7.205 COUNT", "ZoneRange(fee)", 21),
    ('QUERY call WHERE fee = "7.2" COUNT', "ZoneRange(fee)", 1),
    ("QUERY call WHERE host = h7 COUNT", "ZoneBloom(host)", 500),
    ('QUERY call WHERE at >= "2023-11-15T03:00:00Z" COUNT', "TemporalRange(at)", 2800),
    ('QUERY call SINCE "2023-11-15T03:00:00Z" COUNT', "TemporalRange(timestamp)", 2800),
    ('QUERY call USING at UNTIL "2023-11-14T22:14:20Z" COUNT', "TemporalRange(at)", 60),
]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> EventStore:
    path = tmp_path_factory.mktemp("zones") / "store"
    subprocess.run([*weir_python(), _WRITE, str(path)], check=True)
    return weir.events.open(path, fsync=False)


def _pruned(text: str) -> tuple[int, int]:
    found = re.search(r"zones: (\d+) read, (\d+) pruned", text)
    assert found is not None
    return int(found[1]), int(found[2])


def _check(store: EventStore, source: str) -> None:
    for text, strategy, count in _QUERIES:
        result = store.execute(text)
        assert result.to_table().to_pylist() == [{"count": count}], text
        explained = result.explain()
        assert strategy in next(line for line in explained.splitlines() if source in line), text
        read, pruned = _pruned(explained)
        assert read + pruned == 40, text
        assert pruned >= (18 if strategy.startswith("EnumBitmap") else 33), text


def test_zones_of_generations_are_pruned(store: EventStore) -> None:
    _check(store, "generation 1: reads")
    # Without an index of a generation that is so small everything is read.
    assert "FullScan(context_id)" in store.replay("c7").explain()


def test_zones_of_the_base_table_are_pruned(store: EventStore) -> None:
    store.maintain()
    _check(store, "base table")
    replayed = store.replay("c7")
    assert "BTree(context_id)" in replayed.explain()
    assert replayed.to_table().column("ms").to_pylist() == list(range(700, 800))
    indexes = {index.column: index for index in store.tables["events"].indexes.list()}
    assert indexes["f_status"].library_kind == "Bitmap"
    zones = indexes["f_ms"].definition
    assert zones is not None
    assert zones.parameters["rows_per_zone"] == 512


_WRITE_LATE = """
import sys, pyarrow as pa, weir
store = weir.events.create(sys.argv[1], buckets=1, events_per_zone=512, fsync=False)
store.define("call", {"ms": "int"})
store.define("other", {"ms": "int"})
n, minute = 20_000, 60_000_000
with store.writer() as writer:
    for start in range(0, n, 1_000):
        for name in ("call", "other"):
            # One of a hundred is of any time of the two weeks.
            at = [i * 7919 % n if i % 100 == 0 else i for i in range(start, start + 1_000)]
            writer.ingest(name, pa.table({
                "context_id": [f"c{i % 7}" for i in range(1_000)],
                "timestamp": pa.array([1_700_000_000_000_000 + i * minute for i in at],
                                      pa.timestamp("us", "UTC")),
                "ms": at,
            }))
"""
_WRITE_DUE = """
import sys, pyarrow as pa, weir
store = weir.events.create(sys.argv[1], buckets=1, events_per_zone=512, fsync=False)
store.define("task", {"due": "datetime | null"})
n, minute, instants = 20_000, 60_000_000, pa.timestamp("us", "UTC")
with store.writer() as writer:
    # One of a hundred is due at any time of the two weeks, and some of those never.
    due = [(None if i % 400 == 0 else i * 7919 % n) if i % 100 == 0 else i for i in range(n)]
    writer.ingest("task", pa.table({
        "context_id": [f"c{i % 7}" for i in range(n)],
        "timestamp": pa.array([1_700_000_000_000_000 + i * minute for i in range(n)], instants),
        "due": pa.array([None if i is None else (i - 10_000) * minute for i in due], instants),
    }))
"""


def test_a_calendar_knows_the_days_of_a_field_whose_zones_are_all_wide(tmp_path: Path) -> None:
    """Events are in the order of their timestamp, which is not that of their other times."""
    subprocess.run([*weir_python(), _WRITE_DUE, str(tmp_path / "store")], check=True)
    with weir.events.open(tmp_path / "store", fsync=False) as store:
        due = [one for one in store.query("task").to_table().column("due").to_pylist() if one is not None]
        for source in ("generation 1: reads", "base table"):
            # Days before 1970 and after; instants of a day, a moment of it, one after another.
            for first, last in (("1969-12-30", "1969-12-30"), ("1969-12-31", "1970-01-01")):
                since = datetime.fromisoformat(f"{first}T00:00:00Z")
                until = datetime.fromisoformat(f"{last}T00:00:00Z") + timedelta(days=1)
                wanted = sum(since <= one < until for one in due)
                assert wanted > 1400
                for text in (
                    f'QUERY task USING due SINCE "{since}" UNTIL "{until}"',
                    f'QUERY task WHERE due >= "{since}" AND due < "{until}"',
                    f'QUERY task WHERE due BETWEEN "{since}" AND "{until - timedelta(microseconds=1)}"',
                ):
                    result = store.execute(f"{text} COUNT")
                    assert result.to_table().to_pylist() == [{"count": wanted}], text
                    explained = result.explain()
                    line = next(line for line in explained.splitlines() if source in line)
                    assert "TemporalRange(due), Calendar(due)" in line
                    read = re.search(r"rows: ([\d,]+) read", explained)
                    # The library rounds what it has read to three digits.
                    assert read is not None
                    assert abs(int(read[1].replace(",", "")) - wanted) < 10
            one = due[100]
            result = store.execute(f'QUERY task WHERE due IN ("{one}", "{one + timedelta(minutes=1)}") COUNT')
            assert result.to_table().to_pylist() == [
                {"count": due.count(one) + due.count(one + timedelta(minutes=1))}
            ]
            assert "Calendar(due)" in result.explain()
            replayed = store.execute('REPLAY task FOR c1 SINCE "2023-11-15" UNTIL "2023-11-16"')
            assert "TemporalRange(timestamp), Calendar(timestamp)" in replayed.explain()
            # The last days of timestamp need no end. Of many days, of all up to one, and of all to come in a
            # field, it is not asked.
            lately = datetime.now(UTC) - timedelta(days=30)
            assert "Calendar(timestamp)" in store.execute(f'QUERY task SINCE "{lately}"').explain()
            assert "Calendar" not in store.execute(f'QUERY task WHERE due >= "{lately}"').explain()
            for text in (
                f'SINCE "{lately}"',
                'SINCE "1969-12-01" UNTIL "1970-01-02"',
                'SINCE "1969-12-31"',
                'UNTIL "1970-01-01"',
            ):
                assert "Calendar" not in store.execute(f"QUERY task USING due {text} COUNT").explain()
            check_calendars(store)
            store.maintain()


def test_events_that_came_late_do_not_keep_zones_from_being_pruned(tmp_path: Path) -> None:
    """Every zone of events in order of arrival has some of them."""
    subprocess.run([*weir_python(), _WRITE_LATE, str(tmp_path / "store")], check=True)
    query = 'QUERY call SINCE "2023-11-20T00:00:00Z" UNTIL "2023-11-21T00:00:00Z" COUNT'
    with weir.events.open(tmp_path / "store", fsync=False) as store:
        for source in ("generation 1: reads", "base table"):
            result = store.execute(query)
            explained = result.explain()
            assert "TemporalRange(timestamp)" in next(
                line for line in explained.splitlines() if source in line
            )
            read, pruned = _pruned(explained)
            assert read + pruned == 79
            assert read <= 8
            assert result.to_table().column("count").to_pylist()[0] > 1400
            replayed = store.replay("c3").to_table().column("event_id").to_pylist()
            assert replayed == sorted(replayed)
            store.maintain()


def test_a_plan_names_no_field_that_is_not_read(store: EventStore) -> None:
    explained = store.execute("QUERY call WHERE ms > 19990 RETURN [host]").explain()
    assert "ms" in explained
    assert "host" in explained
    for name in ("status", "at", "ok"):
        assert re.search(rf"\b(f_)?{name}\b", explained) is None, explained


def test_what_came_since_is_found_by_indexes(store: EventStore, tmp_path: Path) -> None:
    store.export(tmp_path / "export")
    query = "QUERY call COUNT, MAX ms BY status"
    with weir.events.create(tmp_path / "other", buckets=2, fsync=False) as other:
        other.define("call", {name: kind.to_json() for name, kind in store.types()["call"].fields.items()})
        payload = {"status": "ok", "ms": 1, "host": "h", "at": 1_700_000_000, "ok": True, "fee": 1}
        with other.writer() as writer:
            first = writer.append("call", "c1", payload).ids
            other.remember("calls", query)
            subscription = other.subscribe("one")
            assert [batch.rows.num_rows for batch in subscription] == [1]
            subscription.commit()
            # Their ids are lower than those that have been seen.
            assert other.restore(tmp_path / "export").events == 20_000
            assert other.show("calls").to_table().equals(other.execute(query).to_table())
            writer.flush()
            other.maintain()
            indexes = {index.column: index.num_rows for index in other.tables["events"].indexes.list()}
            assert indexes["arrival_id"] == 20_001
            given = sum(batch.rows.num_rows for batch in other.subscribe("one"))
            assert given == 20_000
            for number in range(2):
                first += writer.append("call", "c2", {**payload, "ms": 99_999 + number}).ids
                shown = other.show("calls").to_table()
                assert shown.equals(other.execute(query).to_table())
                assert max(shown.column("max_ms").to_pylist()) == 99_999 + number
                writer.flush()
                other.maintain()
        found = other.execute("QUERY call WHERE host = h ").to_table().column("event_id").to_pylist()
        assert found == first
