"""Rows out, wherever they go: Arrow streams, pandas, Polars, other processes."""

from __future__ import annotations

import multiprocessing
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

import weir
from weir.errors import MissingDependencyError
from weir.lsm.strategy import TermStrategy, choose_strategies

SCHEMA = pa.schema(
    [pa.field("id", pa.int64(), nullable=False), ("name", pa.string()), ("v", pa.list_(pa.float32(), 2))]
)
ROWS = [{"id": n, "name": f"n{n}", "v": [float(n), 0.0]} for n in range(10)]


@pytest.fixture
def table(tmp_path: Path) -> weir.Table:
    table = weir.create(tmp_path / "t", SCHEMA, primary_key="id", fsync=False)
    with table.writer() as writer:
        writer.upsert(ROWS[:5])
    table.maintenance.merge()
    with table.writer() as writer:
        writer.upsert(ROWS[5:])
    return table


def results(table: weir.Table) -> dict[str, weir.Scan | weir.Search | weir.SqlQuery]:
    return {
        "scan": table.scan(["id", "name"]),
        "search": table.search([3.0, 0.0], k=10, columns=["id", "name"]),
        "sql": table.sql("SELECT id, name FROM t"),
    }


@pytest.mark.parametrize("kind", ["scan", "search", "sql"])
def test_rows_go_wherever_arrow_is_spoken(table: weir.Table, kind: str) -> None:
    rows = results(table)[kind]
    expected = {(row["id"], row["name"]) for row in ROWS}
    for frame in (pl.DataFrame(rows), rows.to_polars()):
        assert set(frame.select("id", "name").rows()) == expected
    assert {(row["id"], row["name"]) for row in rows.to_pylist()} == expected
    assert set(map(tuple, rows.to_pandas()[["id", "name"]].to_numpy())) == expected
    for read in (pa.table(rows), rows.to_reader().read_all(), pa.Table.from_batches(rows.to_batches())):
        assert {(row["id"], row["name"]) for row in read.to_pylist()} == expected


def test_a_library_that_is_missing_is_named(table: weir.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "polars", None)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingDependencyError, match="pip install polars"):
        table.scan().to_polars()
    with pytest.raises(MissingDependencyError, match="pip install pandas"):
        table.scan().to_pandas()


def test_a_pickled_scan_reads_the_rows_of_when_it_was_pickled(table: weir.Table) -> None:
    scan = table.scan(["id"], filter="id < 4", limit=2)
    sent = pickle.dumps((scan, table.scan(filter="id < 4")))
    with table.writer() as writer:
        writer.delete([0, 1, 2, 3])
    limited, whole = pickle.loads(sent)
    assert limited.count() == 2
    assert sorted(whole.to_table()["id"].to_pylist()) == [0, 1, 2, 3]
    assert scan.count() == 0
    token = table.snapshot()
    assert pickle.loads(pickle.dumps(table.scan(at=token))).count() == 6


def test_scans_and_tables_go_to_other_processes(table: weir.Table) -> None:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.map(count, [table.scan(filter="id >= 5"), table]) == [5, 10]


def count(one: object) -> int:
    if isinstance(one, weir.Scan):
        return one.count()
    assert isinstance(one, weir.Table)
    return one.scan().count()


# Now and then a child does not come out of the fork itself, where the libraries' own handlers run: it is
# ended, and another one is forked.
FORKING = """
import os, signal, sys, time, weir
table = weir.open(sys.argv[1], fsync=False)
table.scan().count()

def use_everything():
    for use in (
        table.scan, table.writer, table.status, table.snapshot,
        lambda: weir.open(sys.argv[1]),
        lambda: weir.create(sys.argv[1] + "-2", [{"id": 1}], primary_key="id"),
        lambda: weir.clone(sys.argv[1], sys.argv[1] + "-3"),
        lambda: weir.drop(sys.argv[1]),
        lambda: weir.events.open(sys.argv[1]),
    ):
        try:
            use()
        except weir.errors.ForkedProcessError as error:
            assert "forkserver" in str(error)
        else:
            raise SystemExit(2)

for _ in range(5):
    came_out, answer = os.pipe()
    child = os.fork()
    if not child:
        os.write(answer, b"x")
        code = 1
        try:
            use_everything()
            code = 0
        finally:
            os._exit(code)
    os.set_blocking(came_out, False)
    deadline = time.monotonic() + 10
    is_out = False
    while not is_out and time.monotonic() < deadline:
        time.sleep(0.01)
        try:
            is_out = bool(os.read(came_out, 1))
        except BlockingIOError:
            pass
    if is_out:
        break
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), table.scan().count())
"""


def test_a_forked_child_says_at_once_what_to_do(table: weir.Table) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORKING, table.uri],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.stdout.split() == ["0", "10"], done.stderr


def test_reads_that_have_not_run_say_what_was_asked_for(table: weir.Table) -> None:
    token = table.snapshot(retain=None)
    for at in (None, token):
        scan = table.scan(["id"], filter="id > 3", limit=4, at=at)
        assert repr(scan) == "Scan(columns=['id'], filter='id > 3', limit=4)"
    assert repr(table.scan()) == "Scan()"
    keys = f"id IN ({', '.join(map(str, range(1000)))})"
    assert len(repr(table.scan(filter=keys))) < 150
    query = "SELECT count(*) FROM t WHERE id < 3"
    assert repr(table.sql(query)) == f"SqlQuery(query={query!r})"
    shown = table.scan(filter="id > 3")._repr_html_()
    assert "<th>filter</th><td>&#x27;id &gt; 3&#x27;</td>" in shown
    assert "to_pandas()" in shown


def test_tables_and_reports_show_themselves_in_a_notebook(table: weir.Table) -> None:
    shown = table._repr_html_()
    assert "<th>primary key</th><td>id</td>" in shown
    assert "<td>name</td><td>string</td><td>yes</td>" in shown
    report = table.maintenance.merge()
    assert f"<th>rows_upserted</th><td>{report.rows_upserted}</td>" in report._repr_html_()
    status = table.status()._repr_html_()
    assert str(table.status().shards[0].shard_id) in status
    assert (
        "&lt;"
        in weir.create(table.uri + "-2", pa.schema([("<id>", pa.int64())]), primary_key="<id>")._repr_html_()
    )


def test_only_a_plan_that_is_looked_at_says_how_a_filter_is_answered(
    table: weir.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []

    def noting(*given: Any) -> tuple[TermStrategy, ...]:
        asked.append(given)
        return choose_strategies(*given)

    monkeypatch.setattr("weir.read.planner.choose_strategies", noting)
    scan = table.scan(["id"], filter="name >= 'n3'")
    assert scan.to_table().num_rows == scan.count() == sum(one.num_rows for one in scan.to_batches()) == 7
    assert not asked
    assert "where name >= 'n3' by FullScan(name)" in scan.explain()
    assert asked
