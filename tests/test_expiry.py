"""Rows that expire: no read shows them from that instant on, and upkeep removes them."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import weir
from weir.engine.context import default_context
from weir.errors import FilterError, OptionError, SchemaError, WeirError
from weir.format.snapshot_token import SnapshotToken

START = datetime(2026, 5, 1, tzinfo=UTC)
WEEK = timedelta(days=7)
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("until", pa.timestamp("us", "UTC")),
        pa.field("text", pa.string()),
        pa.field("vector", pa.list_(pa.float32(), 2)),
    ]
)


class Clock:
    """What the machine takes for now."""

    now = START

    def __call__(self) -> datetime:
        """Return it."""
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Have every read judge by a clock that stands still."""
    clock = Clock()
    for module in (
        "lsm.expired_rows",
        "snapshots.capture",
        "snapshots.snapshot",
        "changes.range",
        "maintenance.expire",
        "search.search",
    ):
        monkeypatch.setattr(f"weir.{module}.expiry_instant", clock)
    return clock


def made(path: Path, **options: Any) -> weir.Table:
    """Return a new table."""
    given = {"primary_key": "id", "expire_by": "until", "fsync": False, **options}
    return weir.create(path, SCHEMA, **given)


def row(key: int, days: float | None, text: str = "fish") -> dict[str, Any]:
    """Return a row that expires so many days after the start."""
    until = None if days is None else START + timedelta(days=days)
    return {"id": key, "until": until, "text": text, "vector": [float(key), 0.0]}


def test_no_read_shows_a_row_from_its_instant_on(tmp_path: Path, clock: Clock) -> None:
    """To the microsecond, in every kind of read, wherever the row is."""
    table = made(tmp_path / "t")
    with table.writer() as writer:
        writer.upsert([row(1, 1), row(2, 2), row(3, None)])
        writer.flush()
        table.maintenance.merge()
        table.indexes.create("text", "INVERTED")
        writer.upsert([row(4, 1), row(5, 2)])
        writer.flush()
        writer.upsert([row(6, 1), row(7, 2)])
        for at, left in (
            (timedelta(days=1, microseconds=-1), [1, 2, 3, 4, 5, 6, 7]),
            (timedelta(days=1), [2, 3, 5, 7]),
            (timedelta(days=2, microseconds=-1), [2, 3, 5, 7]),
            (timedelta(days=2), [3]),
        ):
            clock.now = START + at
            for reader in (table, weir.open(table.uri, fsync=False)):
                assert sorted(reader.scan().to_table()["id"].to_pylist()) == left
                assert sorted(reader.scan(["id"], filter="id > 0").to_table()["id"].to_pylist()) == left
                assert reader.scan().count() == len(left)
                assert reader.get([*range(1, 8)], ["id"])["id"].to_pylist() == left
                assert reader.get([1], ["text"]).num_rows == (1 in left)
                assert sorted(reader.search([0.0, 0.0], 9).to_table()["id"].to_pylist()) == left
                assert sorted(reader.search_text("fish", 9).to_table()["id"].to_pylist()) == left
                both = reader.search_hybrid([0.0, 0.0], "fish", 9).to_table()
                assert sorted(both["id"].to_pylist()) == left
                counted = reader.sql("SELECT count(*) AS n FROM t", name="t").to_table()
                assert counted["n"].to_pylist() == [len(left)]
                best = reader.sql("SELECT id, text FROM t ORDER BY id DESC LIMIT 1", name="t").to_table()
                assert best["id"].to_pylist() == left[-1:]


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "kind",
    [
        pa.timestamp("s"),
        pa.timestamp("ms", "UTC"),
        pa.timestamp("us", "Europe/Paris"),
        pa.timestamp("ns"),
        pa.date32(),
        pa.date64(),
    ],
    ids=str,
)
def test_every_type_of_time(tmp_path: Path, clock: Clock, kind: pa.DataType) -> None:
    """In memory, in a generation and in the base table they are judged alike."""
    schema = pa.schema([("id", pa.int64()), ("at", kind)])
    table = weir.create(
        tmp_path / "t", schema, primary_key="id", expire_by="at", expire_after=WEEK, fsync=False
    )
    days = [date(2026, 4, 23), date(2026, 4, 24), date(2026, 4, 25), date(1969, 1, 1), None]
    times = pa.array(days, pa.date32())
    values = times.cast(kind) if pa.types.is_date(kind) else times.cast(pa.timestamp("s")).cast(kind)
    with table.writer() as writer:
        for step in range(3):
            keys = pa.array([step * 10 + number for number in range(5)])
            writer.upsert(pa.table({"id": keys, "at": values}))
            if step < 2:
                writer.flush()
            if not step:
                table.maintenance.merge()
        clock.now = START - timedelta(microseconds=1)
        left = [1, 2, 4, 11, 12, 14, 21, 22, 24]
        assert sorted(table.scan().to_table()["id"].to_pylist()) == left
        assert table.get([*range(25)])["id"].to_pylist() == left
        clock.now = START
        left = [2, 4, 12, 14, 22, 24]
        assert sorted(table.scan().to_table()["id"].to_pylist()) == left
        assert table.get([*range(25)])["id"].to_pylist() == left


def test_the_newest_row_says_when(tmp_path: Path, clock: Clock) -> None:
    """An older version that would live longer does not come back, and a newer one makes the key live on."""
    table = made(tmp_path / "t")
    with table.writer() as writer:
        writer.upsert([row(1, 9), row(2, 1), row(3, 1)])
        writer.flush()
        table.maintenance.merge()
        writer.upsert([row(1, 1), row(2, 9)])
        clock.now = START + timedelta(days=1)
        assert table.get([1, 2, 3])["id"].to_pylist() == [2]
        assert table.maintenance.expire().rows == 2  # those of the base table, of 2 the older version too
        assert table.scan().to_table()["id"].to_pylist() == [2]
        writer.flush()
        table.maintenance.merge()
        assert table.scan().to_table()["id"].to_pylist() == [2]
        assert table.maintenance.expire().rows == 1
        assert lance.dataset(table.uri).to_table()["id"].to_pylist() == [2]


def test_a_filter_fails_on_no_row_that_has_expired(tmp_path: Path, clock: Clock) -> None:
    """Wherever the row is, in every kind of read and in writes by filter."""
    table = made(tmp_path / "t")
    condition = "CAST(text AS INT) > 2"

    def check(expected: list[int]) -> None:
        assert sorted(table.scan(["id"], filter=condition).to_table()["id"].to_pylist()) == expected
        assert table.scan(filter=condition).count() == len(expected)
        assert table.scan(["id"], filter=condition, limit=1).to_table().num_rows == 1
        near = table.search([0.0, 0.0], 9, filter=condition).to_table()
        assert sorted(near["id"].to_pylist()) == expected
        found = table.search_text("7", 9, filter=condition).to_table()
        assert sorted(found["id"].to_pylist()) == expected

    def write(writer: Any, first: int) -> None:
        clock.now = START
        writer.upsert([row(first, 1, "fish"), row(first + 1, 2, "7"), row(first + 2, None, "1")])
        clock.now = START + timedelta(days=1)

    with table.writer() as writer:
        write(writer, 1)
        writer.flush()
        table.maintenance.merge()
        table.indexes.create("text", "INVERTED")
        check([2])
        write(writer, 4)
        writer.flush()
        table.maintenance.merge()  # into a fragment that the index does not cover
        write(writer, 7)
        writer.flush()
        write(writer, 10)
        check([2, 5, 8, 11])
        at = table.snapshot()
        assert writer.delete(where=condition, limit=1).rows == 1
        assert table.update(condition, {"text": "'8'"}).rows == 3
    assert sorted(table.scan(["id"], filter=condition, at=at).to_table()["id"].to_pylist()) == [2, 5, 8, 11]
    assert table.scan(filter=condition).count() == 3
    with pytest.raises(FilterError, match=r"^the filter 'CAST\(text AS INT\) > id / 0' cannot"):
        table.scan(filter="CAST(text AS INT) > id / 0").to_table()


def test_reads_a_moment_apart_share_what_is_cached(tmp_path: Path, clock: Clock) -> None:
    """Not an entry for every instant: the same rows are dead."""
    table = made(tmp_path / "t")
    with table.writer() as writer:
        clock.now = START
        writer.upsert([row(1, 1, "fish"), row(2, 2, "7")])
        writer.flush()
    clock.now = START + timedelta(days=1)
    held = []
    for _ in range(3):
        clock.now += timedelta(seconds=1)
        found = table.scan(["id"], filter="CAST(text AS INT) > 2").to_table()
        assert found["id"].to_pylist() == [2]
        held.append(set(map(str, default_context().cache.held())))
    assert held[1] == held[2]


def test_a_token_judges_by_its_instant(tmp_path: Path, clock: Clock) -> None:
    """Also after the rows were removed, in its text, and in another process."""
    table = made(tmp_path / "t")
    with table.writer() as writer:
        writer.upsert([row(1, 1), row(2, 3)])
        clock.now = START + timedelta(hours=1)
        token = table.snapshot()
        clock.now = START + timedelta(days=2)
        later = table.snapshot()
        writer.flush()
        table.maintenance.merge()
        old = table.snapshot()
        clock.now = START + timedelta(days=4)
        assert table.maintenance.expire().rows == 2
    assert table.scan().count() == 0
    for reader in (table, weir.open(table.uri)):
        for text, left in ((str(token), [1, 2]), (str(later), [2]), (str(old), [2])):
            assert SnapshotToken.parse(text).read_at is not None
            assert sorted(reader.scan(at=text).to_table()["id"].to_pylist()) == left
            assert reader.get([1, 2], at=text)["id"].to_pylist() == left
            assert reader.search([0.0, 0.0], 5, at=text).to_table()["id"].to_pylist() == left


def test_the_token_of_a_search_judges_by_the_instant_of_the_search(tmp_path: Path, clock: Clock) -> None:
    table = made(tmp_path / "t")
    with table.writer() as writer:
        writer.upsert([row(1, 1), row(2, 3)])
    search = table.search([0.0, 0.0], 5)
    assert search.to_table()["id"].to_pylist() == [1, 2]
    clock.now = START + timedelta(days=2)
    token = search.snapshot
    assert table.search([0.0, 0.0], 5).to_table()["id"].to_pylist() == [2]
    again = table.search([0.0, 0.0], 5, at=token)
    assert again.to_table()["id"].to_pylist() == [1, 2]
    assert again.snapshot == token
    assert table.scan(at=str(token)).count() == 2


def test_writes_that_look_find_no_row_that_has_expired(tmp_path: Path, clock: Clock) -> None:
    """A patch does nothing, an insert inserts, a change by filter passes it over."""
    table = made(tmp_path / "t")
    with table.writer() as writer:
        writer.upsert([row(key, 1) for key in range(1, 6)])
        clock.now = START + timedelta(days=1)
        assert writer.patch([{"id": 1, "text": "x"}]).done.num_rows == 0  # type: ignore[union-attr]
        assert writer.insert([row(2, 5)]).done["id"].to_pylist() == [2]  # type: ignore[index]
        assert writer.delete([3], condition="text = 'fish'").done.num_rows == 0  # type: ignore[union-attr]
        assert writer.upsert([row(4, 5)], condition="text = 'no'").done.num_rows == 1  # type: ignore[union-attr]
        assert writer.delete(where="id >= 4").done["id"].to_pylist() == [4]  # type: ignore[index]
        assert table.scan().to_table()["id"].to_pylist() == [2]


def test_the_feed_says_nothing_of_them(tmp_path: Path, clock: Clock) -> None:
    """Neither that they were written nor that they are gone; deletes are told."""
    table = made(tmp_path / "t")
    token = table.snapshot()
    with table.writer() as writer:
        writer.upsert([row(1, 1), row(2, 2)])
        writer.delete([2])
        writer.upsert([row(3, 3)])
        clock.now = START + timedelta(days=1)
        told = [
            (one["_op"], one["id"]) for batch in table.changes(since=token) for one in batch.rows.to_pylist()
        ]
        assert told == [("upsert", 2), ("delete", 2), ("upsert", 3)]
        writer.upsert([row(1, 9), row(3, 9)])
        before = [
            (one["id"], one["_before"] and one["_before"]["id"])
            for batch in table.changes(since=token, before=True)
            for one in batch.rows.to_pylist()
        ]
        assert before == [(2, None), (2, 2), (3, None), (1, None), (3, 3)]
        writer.flush()
        table.maintenance.merge()
        table.maintenance.expire()
        assert sum(batch.rows.num_rows for batch in table.changes(since=token)) == 5


def test_whole_fragments_go_where_rows_are_sorted(tmp_path: Path, clock: Clock) -> None:
    """Of an append-only table sorted by the time, without reading or writing what is left."""
    table = made(tmp_path / "t", primary_key=None, sort_by="until", expire_after=WEEK)
    with table.writer() as writer:
        for day in range(4):
            writer.upsert([row(day, day), row(day, day + 0.5)])
            writer.flush()
            table.maintenance.merge()
    files = {one.metadata.files[0].path for one in lance.dataset(table.uri).get_fragments()}
    clock.now = START + WEEK + timedelta(days=1.7)
    report = table.maintenance.expire()
    assert (report.rows, report.fragments) == (4, 2)
    assert {one.metadata.files[0].path for one in lance.dataset(table.uri).get_fragments()} < files
    assert sorted(table.scan().to_table()["id"].to_pylist()) == [2, 2, 3, 3]
    assert table.maintenance.expire().rows == 0
    clock.now += WEEK
    assert table.maintenance.run().expired.rows == 4
    assert table.scan().count() == 0


def test_a_delete_by_filter_passes_over_appended_rows_that_have_expired(tmp_path: Path, clock: Clock) -> None:
    """They count for no limit, and the filter does not fail on them; on another row it fails by name."""
    table = made(tmp_path / "t", primary_key=None)
    with table.writer() as writer:
        writer.upsert([row(1, 1), row(2, 2, "7"), row(3, 2, "8")])
        clock.now = START + timedelta(days=1)
        result = writer.delete(where="CAST(text AS INT) > 2", limit=1)
        assert (result.rows, result.remaining) == (1, 1)
        assert writer.delete(where="id > 0").rows == 1
        writer.upsert([row(4, 2)])
        with pytest.raises(FilterError, match="cannot be evaluated on every row"):
            writer.delete(where="CAST(text AS INT) > 2")
    assert table.scan().to_table()["id"].to_pylist() == [4]


@pytest.mark.parametrize(
    ("seed", "steps"), [(0, 15), *(pytest.param(seed, 60, marks=pytest.mark.long) for seed in (1, 2))]
)
def test_a_model(tmp_path: Path, clock: Clock, seed: int, steps: int) -> None:
    """A dict of rows and a clock, through everything that moves rows."""
    chance = random.Random(seed)
    table = made(tmp_path / "t", shard_by=weir.bucket("id", 2))
    model: dict[int, float] = {}
    day = 0.0
    writer = table.writer(max_memtable_rows=6)
    for _ in range(steps):
        match chance.choice(["write"] * 3 + ["delete", "time", "flush", "merge", "maintain", "patch"]):
            case "write":
                items = {chance.randrange(8): day + chance.randrange(-1, 5) for _ in range(3)}
                writer.upsert([row(key, days) for key, days in items.items()])
                model |= items
            case "delete":
                key = chance.randrange(8)
                writer.delete([key])
                model.pop(key, None)
            case "patch":
                key = chance.randrange(8)
                done = writer.patch([{"id": key, "until": START + timedelta(days=day + 3)}]).done
                assert done is not None
                assert done.num_rows == (model.get(key, -99.0) > day)
                if done.num_rows:
                    model[key] = day + 3
            case "time":
                day += chance.choice([0.5, 1, 2])
                clock.now = START + timedelta(days=day)
            case "flush":
                writer.flush()
            case "merge":
                table.maintenance.merge()
            case "maintain":
                table.maintenance.run(horizon=timedelta(0))
        live = sorted(key for key, until in model.items() if until > day)
        assert sorted(table.scan().to_table()["id"].to_pylist()) == live
        assert sorted(table.get([*range(8)])["id"].to_pylist()) == live
    writer.close()
    assert table.maintenance.verify().passed


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"expire_by": "missing"}, SchemaError),
        ({"expire_by": "text"}, SchemaError),
        ({"expire_by": "id"}, SchemaError),
        ({"expire_by": None, "expire_after": WEEK}, OptionError),
        ({"expire_after": 7}, OptionError),
        ({"expire_after": -WEEK}, OptionError),
        ({"merge_engine": "first_row"}, OptionError),
    ],
)
def test_bad_options(tmp_path: Path, options: dict[str, Any], kind: type[WeirError]) -> None:
    """Refused before anything is written."""
    with pytest.raises(kind):
        made(tmp_path / "t", **options)
    assert not (tmp_path / "t").exists()


def test_what_is_recorded(tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    """A clone has it, its column stays, and an older Weir refuses the table by the name of the feature."""
    table = made(tmp_path / "t", expire_after=WEEK)
    assert table.expiry == "7 days, 0:00:00 after until"
    with table.writer() as writer:
        writer.upsert([row(1, 1), row(2, 2)])
    copy = weir.clone(table.uri, tmp_path / "copy", fsync=False)
    clock.now = START + WEEK + timedelta(days=1)
    assert copy.scan().to_table()["id"].to_pylist() == [2]
    with pytest.raises(SchemaError, match="expire"):
        table.alter(drop=["until"])
    monkeypatch.setattr("weir.base.table.KNOWN_FEATURES", frozenset())
    with pytest.raises(weir.errors.UnknownFeatureError, match="expiry"):
        weir.open(table.uri)
