"""Answers that are read long after they were asked for, whole queries in SQL, and comparisons."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import weir
from weir.errors import InputError, OptionError, QueryError, TableError
from weir.events.durations import parse_duration
from weir.events.result import Result
from weir.events.store import EventStore
from weir.table.reader import TableReader
from weir.table.table import Table

FIELDS: dict[str, Any] = {"n": "int | null", "side": "string | null"}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EventStore]:
    with weir.events.create(tmp_path / "store", buckets=2) as opened:
        opened.define("order", FIELDS)
        opened.define("line-item", {"n": "int | null", "at": "datetime | null", "on": "date | null"})
        with opened.writer() as writer:
            for number, context in enumerate(["u", "v", "u"]):
                writer.append("order", context, {"n": number, "side": "left"})
            writer.append("line-item", "u", {"n": 7})
        yield opened


def asked(store: EventStore) -> dict[str, Result]:
    return {
        "language": store.execute("QUERY order RETURN [n]"),
        "call": store.query("order", columns=["n"]),
        "condition": store.query("order", where="n IS NOT NULL", columns=["n"]),
        "sql": store.sql('SELECT n FROM "order" ORDER BY n'),
        "replay": store.replay(type="order"),
        "REPLAY": store.execute("REPLAY order FOR u"),
    }


def exported(store: EventStore, folder: Path) -> pa.Table:
    store.export(folder)
    with weir.events.create(folder / "copy") as copy:
        copy.restore(folder)
        return copy.replay().to_table()


def test_what_is_forgotten_before_an_answer_is_read_is_not_in_it(store: EventStore) -> None:
    results = asked(store)
    store.forget("u")
    found = {name: result.to_table().column("n").to_pylist() for name, result in results.items()}
    assert found == {name: [] if name == "REPLAY" else [1] for name in results}


def test_an_answer_has_what_came_by_a_version_that_was_defined_before_it_is_read(store: EventStore) -> None:
    results = asked(store)
    store.define("order", {**FIELDS, "n": "float | null"})
    with store.writer() as writer:
        writer.append("order", "u", {"n": 2.5})
    found = {name: result.to_table().column("n").to_pylist() for name, result in results.items()}
    assert found == {name: [0, 2, 2.5] if name == "REPLAY" else [0, 1, 2, 2.5] for name in results}


READS: dict[str, Callable[[EventStore, Path], Any]] = {
    "language": lambda store, _: store.execute("QUERY order").to_table(),
    "sequence": lambda store, _: store.execute(
        "QUERY order FOLLOWED BY line-item LINKED BY context_id"
    ).to_table(),
    "top": lambda store, _: store.execute("QUERY order ORDER BY n DESC LIMIT 2").to_table(),
    "aggregate": lambda store, _: store.execute("QUERY order COUNT, MAX n BY side").to_table(),
    "condition": lambda store, _: store.query("order", where="n > 1").to_table(),
    "sql": lambda store, _: store.sql('SELECT max(n) FROM "order"').to_table(),
    "replay": lambda store, _: store.replay().to_table(),
    "rows": lambda store, _: store.show("rows").to_table(),
    "groups": lambda store, _: store.show("groups").to_table(),
    "subscription": lambda store, _: pa.concat_tables(batch.rows for batch in store.subscribe("s")),
    "export": exported,
}


@pytest.mark.parametrize("read", READS)
def test_an_answer_knows_of_the_types_of_all_that_it_reads(
    store: EventStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: str
) -> None:
    """Also if they are defined after it has read the catalog, and before it reads the events."""
    store.remember("rows", "QUERY order")
    store.remember("groups", "QUERY order COUNT, MAX n BY side")
    with weir.events.open(store.path) as other:
        scan = Table.scan

        def late(read: Callable[..., Any]) -> Callable[..., Any]:
            def read_late(*arguments: Any, **options: Any) -> Any:
                monkeypatch.undo()
                other.define("order", {"n": "float | null", "side": "string | null", "note": "string | null"})
                other.define("refund", {"n": "int", "why": "string"})
                with other.writer(hold=False) as writer:
                    writer.append("order", "u", {"n": 2.5, "side": "left", "note": "new"})
                    writer.append("refund", "u", {"n": 7, "why": "broken"})
                return read(*arguments, **options)

            return read_late

        monkeypatch.setattr(Table, "scan", late(scan))
        monkeypatch.setattr(TableReader, "rows_after", late(TableReader.rows_after))
        found = READS[read](store, tmp_path / "first")
        assert Table.scan is scan
        with weir.events.open(store.path) as afresh:
            assert found.equals(READS[read](afresh, tmp_path / "second"))


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ('SELECT n FROM "order" WHERE 1 = 0', []),
        ('SELECT n FROM "order" LIMIT 0', []),
        ('SELECT count(*) AS c FROM "order" WHERE false', [{"c": 0}]),
        ('SELECT o.n FROM "order" o JOIN "line-item" i ON i.n > o.n AND false', []),
        (
            'SELECT n, (SELECT max(n) FROM "line-item") AS most FROM "order" WHERE n = 1',
            [{"n": 1, "most": 7}],
        ),
        (
            'SELECT n FROM "order" WHERE n > 1 AND n < (SELECT max(n) FROM "line-item")',
            [{"n": 2}],
        ),
        (
            'SELECT (SELECT count(*) FROM "order") AS a, (SELECT min(side) FROM "order") AS b',
            [{"a": 3, "b": "left"}],
        ),
        ('SELECT count(*) AS c FROM datafusion.public."order"', [{"c": 3}]),
    ],
)
def test_sql_over_tables_that_a_plan_does_not_show(
    store: EventStore, query: str, rows: list[dict[str, Any]]
) -> None:
    assert store.sql(query).to_table().to_pylist() == rows


def test_sides_have_a_column_that_no_query_has(store: EventStore) -> None:
    groups = "QUERY order COUNT BY side"
    rows = store.execute(f"COMPARE {groups} WITH {groups}").to_table().to_pylist()
    assert rows == [{"side_2": which, "side": "left", "count": 3} for which in ("left", "right")]
    assert store.execute("COMPARE QUERY order COUNT WITH QUERY order COUNT").to_table().column_names == [
        "side",
        "count",
    ]
    store.define("other", {"n": "string"})
    with pytest.raises(QueryError, match="different types"):
        store.execute("COMPARE QUERY order RETURN [n] WITH QUERY other RETURN [n]").to_table()


def test_a_replay_returns_fields_by_their_name_also_with_their_type(store: EventStore) -> None:
    for text, names in (
        ("REPLAY order FOR u RETURN [order.n]", ["n"]),
        ("REPLAY order FOR u RETURN [n]", ["n"]),
        ('REPLAY FOR u RETURN ["line-item.at", order.side]', ["at", "side"]),
    ):
        found = store.execute(text)
        assert found.to_table().column_names[4:] == names
        assert found.warnings == ()


def test_two_aggregates_of_one_name_are_refused(store: EventStore) -> None:
    store.define("visit", {"page": "string", "unique_page": "string"})
    with pytest.raises(QueryError, match="'count_unique_page'"):
        store.execute("QUERY visit COUNT UNIQUE page, COUNT unique_page")
    assert store.execute("QUERY visit COUNT, COUNT").to_table().column_names == ["count"]


@pytest.mark.parametrize("bad", [None, 5, b"QUERY", ["QUERY"]])
def test_what_is_no_text_or_no_sequence_is_refused(store: EventStore, bad: Any) -> None:
    with store.writer() as writer:
        refused: list[Callable[[], object]] = [
            lambda: store.execute(bad),
            lambda: store.remember("kept", bad),
            lambda: store.subscribe("s", types=5),  # type: ignore[arg-type]
            lambda: store.query("order", columns=b"n"),  # type: ignore[arg-type]
            lambda: writer.append_all("u", bad),
            lambda: writer.ingest_all(bad),
            lambda: writer.ingest("order", pa.table({"context_id": ["u"]}), source="job"),
        ]
        for call in refused:
            with pytest.raises(InputError):
                call()
    with pytest.raises(TableError):
        store.show(["kept"])  # type: ignore[arg-type]
    with pytest.raises(OptionError):
        store.maintain(horizon=5)  # type: ignore[arg-type]
    assert store.materializations() == {}


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("timestamp", pa.scalar(253_402_300_800_000_000, pa.timestamp("us", "UTC"))),
        ("at", pa.scalar(253_402_300_800_000_000, pa.timestamp("us"))),
        ("at", pa.scalar(-62_135_596_801, pa.timestamp("s"))),
        ("on", pa.scalar(2_932_897, pa.date32())),
        ("on", pa.scalar(-719_163, pa.date32())),
    ],
)
def test_ingested_times_are_of_years_that_others_can_read(
    store: EventStore, column: str, value: pa.Scalar
) -> None:
    good = pa.scalar(0, pa.int32() if column == "on" else pa.int64()).cast(value.type)
    table = pa.table({"context_id": ["x"] * 3, column: pa.array([good.as_py(), None, None], value.type)})
    bad = table.set_column(
        1, column, pa.chunked_array([pa.array([good.as_py(), None], value.type), pa.repeat(value, 1)])
    )
    with store.writer() as writer:
        with pytest.raises(InputError, match=rf"line-item.*{column}.*row 2.*years 1 to 9999"):
            writer.ingest("line-item", bad)
        assert writer.ingest("line-item", table).rows == 3
    assert store.replay("x").to_table().num_rows == 3


def test_lengths_of_time_in_every_unit() -> None:
    units = {"us": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400, "w": 604800}
    assert {unit: parse_duration(f"3{unit}").total_seconds() / 3 for unit in units} == units
    assert parse_duration("1h 5min 2s").total_seconds() == 3902
