"""Export, restore, and the command line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pytest

import weir
from tests.events.calendars import check_calendars
from weir.cli.event_shell import completions
from weir.cli.main import main
from weir.errors import CorruptionError, InputError
from weir.events import store as store_module
from weir.events.charts import svg_chart, text_chart
from weir.events.store import EventStore
from weir.read.scan import Scan

FIELDS = {
    "n": "int",
    "x": "float | null",
    "s": "string | null",
    "d": "date | null",
    "at": "datetime | null",
    "m": "decimal(10,2) | null",
    "l": "list<int> | null",
    "w": "list<list<float> | null> | null",
    "k": ["a", "b", None],
}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EventStore]:
    with weir.events.create(tmp_path / "store", buckets=2) as opened:
        opened.define("full", FIELDS)
        opened.define("other", {"n": "int"})
        with opened.writer() as writer:
            for n in range(6):
                writer.append("other", f"c{n % 2}", {"n": n}, timestamp=f"2026-01-0{n + 1}")
                writer.append(
                    "full",
                    f"c{n % 3}",
                    {
                        "n": n,
                        "x": n / 3,
                        "s": "it's\n",
                        "d": "2026-01-02",
                        "at": 1700000000.25,
                        "m": "1.50",
                        "l": [n],
                        "w": [[float("inf"), -0.5], None],
                    },
                )
            writer.append("full", "c9", {"n": -1})
        yield opened


@pytest.mark.parametrize("format", ["parquet", "snp"])
def test_a_restored_store_gives_the_same_answers(store: EventStore, tmp_path: Path, format: str) -> None:
    folder = tmp_path / "export"
    assert store.export(folder, format=format).events == 13
    assert store.export(folder, format=format).events == 13
    with weir.events.create(tmp_path / "copy", buckets=4) as copy:
        assert copy.restore(folder).events == 13
        assert copy.replay().to_table().equals(store.replay().to_table())
        assert copy.types() == store.types()
        # Six days of others, one of those that have just come, one of their field.
        assert check_calendars(copy) == 8
        assert copy.restore(folder).events == 0
        assert sum(batch.rows.num_rows for batch in copy.subscribe("s")) == 13
        with copy.writer() as writer:
            assert writer.append(
                "other", "c1", {"n": 9}, expected=store.version("c1")
            ).version > store.version("c9")


@pytest.mark.parametrize("format", ["parquet", "snp"])
def test_an_export_has_the_events_of_one_file_at_a_time_and_none_that_came_meanwhile(
    store: EventStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: str
) -> None:
    with weir.events.create(tmp_path / "beside") as beside:
        beside.define("full", FIELDS)
        for one in (store, beside, store):
            one.execute('STORE full FOR c1 PAYLOAD {"n": 50}')
        # Its id is between those of others, as that of a process whose clock is behind.
        beside.export(tmp_path / "late")
    expected = store.replay().to_table()
    read: list[int] = []
    to_table = Scan.to_table

    def counted(scan: Scan) -> pa.Table:
        found = to_table(scan)
        if "timestamp" in found.column_names:
            read.append(found.num_rows)
            if len(read) == 1:
                with weir.events.open(store.path) as other:
                    assert other.restore(tmp_path / "late").events == 1
                    other.execute('STORE other FOR late PAYLOAD {"n": 51}')
        return found

    monkeypatch.setattr(store_module, "FILE_ROWS", 3)
    with monkeypatch.context() as patched:
        patched.setattr(Scan, "to_table", counted)
        report = store.export(tmp_path / "export", format=format)
    assert report.events == expected.num_rows == 15
    assert max(read) <= 4
    with weir.events.create(tmp_path / "copy") as copy:
        copy.restore(tmp_path / "export")
        assert copy.replay().to_table().equals(expected)


def test_an_export_leaves_nothing_of_one_before_it(store: EventStore, tmp_path: Path) -> None:
    """Whoever reads the folder as it is finds no event twice, and none that is forgotten."""
    folder = tmp_path / "export"
    store.export(folder)
    (folder / "events" / "notes.txt").write_text("not ours")
    for context in {row["context_id"] for row in store.query("other", columns=[]).to_table().to_pylist()}:
        store.forget(context)
    for format in ("parquet", "snp"):
        store.export(folder, format=format)
        listed = {one["path"] for one in json.loads((folder / "manifest.json").read_text())["files"]}
        found = {str(one.relative_to(folder)) for one in (folder / "events").rglob("*") if one.is_file()}
        assert found == {*listed, "events/notes.txt"}
        assert not any(path.startswith("events/other/") for path in listed)


def test_restored_events_come_to_those_who_follow(store: EventStore, tmp_path: Path) -> None:
    store.export(tmp_path / "export")
    with weir.events.create(tmp_path / "copy", buckets=2) as copy:
        copy.define("other", {"n": "int"})
        copy.remember("counted", "QUERY other COUNT, TOTAL n")
        with copy.writer() as writer:
            writer.append("other", "c0", {"n": 100})
        subscription = copy.subscribe("s")
        assert [batch.rows.num_rows for batch in subscription] == [1]
        assert copy.show("counted").to_table().to_pylist() == [{"count": 1, "total_n": 100}]
        copy.restore(tmp_path / "export")
        assert [batch.rows.num_rows for batch in subscription] == [13]
        assert copy.show("counted").to_table().to_pylist() == [{"count": 7, "total_n": 115}]


def test_two_who_restore_one_export_write_each_event_once(
    store: EventStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Written again, an event would come to those who follow again, and be counted twice."""
    store.export(tmp_path / "export")
    place = tmp_path / "copy"
    with weir.events.create(place, buckets=2) as first, weir.events.open(place) as second:
        looks: list[int] = []
        missing = second._missing

        def overtaken(rows: pa.Table) -> pa.Table:
            found = missing(rows)
            looks.append(found.num_rows)
            if len(looks) == 3:
                # The second has looked at both files, and at one of them again.
                assert first.restore(tmp_path / "export").events == 13
                first.remember("counted", "QUERY full COUNT, TOTAL n")
                assert sum(batch.rows.num_rows for batch in followed) == 13
            return found

        followed = first.subscribe("s")
        monkeypatch.setattr(second, "_missing", overtaken)
        assert second.restore(tmp_path / "export").events == 0
        assert list(followed) == []
        assert first.replay().to_table().equals(store.replay().to_table())
        counted = store.execute("QUERY full COUNT, TOTAL n").to_table()
        assert first.show("counted").to_table().equals(counted)


def test_an_export_spares_the_place_of_a_store(store: EventStore) -> None:
    with pytest.raises(InputError, match="an event store is there"):
        store.export(store.path)
    assert not (Path(store.path) / "manifest.json").exists()


def test_what_is_damaged_is_not_restored(store: EventStore, tmp_path: Path) -> None:
    folder = tmp_path / "export"
    with pytest.raises(InputError):
        store.export(folder, format="csv")
    with weir.events.create(tmp_path / "copy") as copy:
        with pytest.raises(InputError):
            copy.restore(tmp_path / "nothing")
        store.export(folder)
        victim = next(iter((folder / "events" / "other").iterdir()))
        good = victim.read_bytes()
        victim.write_bytes(good[:-3] + b"xyz")
        with pytest.raises(CorruptionError):
            copy.restore(folder)
        victim.unlink()
        with pytest.raises(CorruptionError):
            copy.restore(folder)
        assert copy.types() == {}
        victim.write_bytes(good)
        copy.define("other", {"n": "string"})
        with pytest.raises(InputError):
            copy.restore(folder)
        assert list(copy.types()) == ["other"]
        assert copy.replay().to_table().num_rows == 0


def test_charts(store: EventStore) -> None:
    table = store.execute("PLOT QUERY other COUNT, TOTAL n PER day").to_table()
    drawn = text_chart(table)
    assert "2026-01-06" in drawn
    assert "█" in drawn
    assert svg_chart(table).count("<polyline") == 2
    assert datetime(2026, 1, 1).strftime("%Y") in svg_chart(table)


def test_the_shell_completes(store: EventStore) -> None:
    assert "other" in completions(store, "ot")
    assert "QUERY" in completions(store, "qu")
    assert completions(store, "") == []


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = str(tmp_path / "shop")

    def weir_events(*arguments: str) -> str:
        code = main(["events", *arguments])
        assert code in (0, None), arguments
        return capsys.readouterr().out

    weir_events("create", place, "--buckets", "2")
    weir_events("define", place, "order", json.dumps({"amount": "int"}))
    version = int(weir_events("append", place, "order", "u", '{"amount": 5}', "--expected", "0"))
    assert json.loads(weir_events("query", place, "QUERY order COUNT", "--json")) == {"count": 1}
    assert json.loads(weir_events("replay", place, "u", "--json"))["event_id"] == version
    weir_events("remember", place, "all", "QUERY order COUNT")
    assert json.loads(weir_events("show", place, "all", "--json")) == {"count": 1}
    weir_events(
        "remember", place, "few", "QUERY order RETURN [amount]", "--keep-rows", "1", "--keep-age", "1d"
    )
    few = json.loads(weir_events("query", place, "SHOW MATERIALIZATIONS", "--json").splitlines()[-1])
    assert (few["name"], few["keep_rows"], few["keep_age"]) == ("few", 1, 86_400_000_000)
    timed = json.dumps({"amount": "int", "at": "datetime | null"})
    weir_events("define", place, "order", timed, "--version", "7")
    assert "order        7" in weir_events("query", place, "SHOW TYPES")
    assert weir_events("replay", place, "--using", "at", "--since", "2026-01-01", "--json") == ""
    weir_events("export", place, str(tmp_path / "out"))
    weir_events("create", f"{place}2", "--flush-threshold", "10", "--events-per-zone", "4")
    options = json.loads((tmp_path / "shop2" / "catalog.json").read_text())["options"]
    assert options == {"buckets": 4, "flush_threshold": 10, "events_per_zone": 4}
    weir_events("restore", f"{place}2", str(tmp_path / "out"))
    weir_events("query", place, "PLOT QUERY order COUNT PER day", "--svg", str(tmp_path / "plot.svg"))
    assert (tmp_path / "plot.svg").read_text().startswith("<svg")
    assert weir_events("query", place, "PING").strip() == "PONG"
    # A plan is shown in whole lines.
    explained = weir_events("query", place, "EXPLAIN QUERY order WHERE amount > 4")
    assert "reads event_id, context_id, timestamp, amount" in explained
    for drawn in ("PING", "QUERY order", 'STORE order FOR u PAYLOAD {"amount": 6}'):
        assert main(["events", "query", place, drawn, "--svg", str(tmp_path / "plot.svg")]) == 2
        assert "only a PLOT can be drawn" in capsys.readouterr().err
    assert json.loads(weir_events("query", place, "QUERY order COUNT", "--json")) == {"count": 1}
