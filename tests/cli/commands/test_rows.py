"""Commands that write and read rows, through the real entry of the program."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.cli.conftest import Run

import weir

_ROWS = [
    {"id": 1, "name": "Ada", "born": "1815-12-10"},
    {"id": 2, "name": "Grace", "born": None},
    {"id": 3, "name": None, "born": "1912-06-23"},
]


def _json_lines(text: str) -> list[dict[str, Any]]:
    return sorted((json.loads(line) for line in text.splitlines()), key=lambda row: row["id"])


def test_scan_prints_rows_as_json_and_as_text(people: Path, weir_program: Run) -> None:
    answer = weir_program("scan", people, "--json")
    assert answer.code == 0
    assert _json_lines(answer.out) == _ROWS
    text = weir_program("scan", people)
    assert text.lines[0].split() == ["id", "name", "born"]
    assert text.lines[-1] == "3 rows"
    assert sorted(line.split() for line in text.lines[1:-1]) == [
        ["1", "Ada", "1815-12-10"],
        ["2", "Grace", "null"],
        ["3", "null", "1912-06-23"],
    ]


def test_scan_filters_projects_limits_and_counts(people: Path, weir_program: Run) -> None:
    filtered = weir_program("scan", people, "--columns", "name,id", "--filter", "id > 1", "--json")
    assert _json_lines(filtered.out) == [{"name": "Grace", "id": 2}, {"name": None, "id": 3}]
    assert list(json.loads(filtered.lines[0])) == ["name", "id"]
    assert len(weir_program("scan", people, "--limit", "2", "--json").lines) == 2
    assert weir_program("scan", people, "--limit", "0", "--json").out == ""
    assert weir_program("scan", people, "--count", "--filter", "id > 1").out == "2\n"
    assert json.loads(weir_program("scan", people, "--count", "--json").out) == {"count": 3}


def test_scan_sees_as_much_as_the_consistency_says(people: Path, weir_program: Run) -> None:
    assert weir_program("scan", people, "--count", "--consistency", "snapshot").out == "0\n"
    assert weir_program("scan", people, "--count", "--consistency", "bounded(1000)").out == "3\n"
    assert weir_program("merge", people).code == 0
    assert weir_program("scan", people, "--count", "--consistency", "snapshot").out == "3\n"


def test_scan_explains_what_it_would_read(people: Path, weir_program: Run) -> None:
    text = weir_program("scan", people, "--explain", "--filter", "id = 1")
    assert "base version" in text.out
    assert "pruned" in text.out
    assert json.loads(weir_program("scan", people, "--explain", "--filter", "id = 1", "--json").out)[
        "plan"
    ] == (text.lines)


def test_scan_shows_people_the_first_rows_and_says_so(tmp_path: Path, weir_program: Run) -> None:
    uri = tmp_path / "t"
    weir_program("create", uri, "--schema", "id: int64", "--primary-key", "id", "--no-fsync")
    data = "".join(f'{{"id": {number}}}\n' for number in range(150)).encode()
    assert weir_program("ingest", uri, "-", "--format", "jsonl", "--no-fsync", stdin=data).code == 0
    answer = weir_program("scan", uri)
    assert answer.lines[-1] == "100 rows"
    assert "first 100 rows" in answer.err
    assert weir_program("scan", uri, "--limit", "120").lines[-1] == "120 rows"
    assert len(weir_program("scan", uri, "--json").lines) == 150


def test_values_cannot_drive_the_terminal(tmp_path: Path, weir_program: Run) -> None:
    uri = tmp_path / "t"
    weir_program("create", uri, "--schema", "id: int64, text: string", "--primary-key", "id")
    row = json.dumps({"id": 1, "text": "[red]\x1b[31m" + "x" * 200}).encode()
    weir_program("ingest", uri, "-", "--format", "jsonl", stdin=row)
    out = weir_program("scan", uri).out
    assert "\x1b" not in out
    assert "[red]\\u001b[31mxxx" in out
    assert "x…" in out


@pytest.mark.parametrize("suffix", ["parquet", "csv", "arrow", "jsonl"])
def test_rows_written_to_a_file_can_be_ingested_again(
    people: Path, tmp_path: Path, weir_program: Run, suffix: str
) -> None:
    path = tmp_path / f"rows.{suffix}"
    answer = weir_program("scan", people, "--output", path, "--json")
    assert json.loads(answer.out) == {"rows": 3, "output": str(path)}
    assert answer.code == 0
    copy = tmp_path / "copy"
    weir_program("create", copy, "--schema", "id: int64!, name: string, born: date", "--primary-key", "id")
    assert weir_program("ingest", copy, path).code == 0
    assert _json_lines(weir_program("scan", copy, "--json").out) == _ROWS
    assert sorted(one.name for one in tmp_path.iterdir()) == ["copy", "people", "people.csv", path.name]


@pytest.mark.parametrize("suffix", ["parquet", "csv", "arrow", "jsonl"])
def test_values_that_are_stored_as_others_come_back(tmp_path: Path, weir_program: Run, suffix: str) -> None:
    words = pa.dictionary(pa.int32(), pa.string())
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            ("word", words),
            ("words", pa.list_(words)),
            ("more", pa.large_list(words)),
            ("by_name", pa.map_(pa.string(), words)),
            ("json", pa.json_()),
        ]
    )
    texts = ['said "hi"\\n', '""', None, "", "x"]
    tables = [
        weir.create(tmp_path / name, schema, primary_key="id", fsync=False) for name in ("first", "second")
    ]
    for number, text in enumerate(texts):
        json = None if text is None else '{"a":"b"}'
        lists = {"words": [text], "more": [text], "by_name": [("name", text)]}
        tables[0].upsert([{"id": number, "word": text, **lists, "json": json}])
        if number == 2:
            tables[0].maintenance.merge()
    file = tmp_path / f"rows.{suffix}"
    saved = weir_program("scan", tables[0].uri, "--output", file)
    assert (saved.code, saved.err) == (0, "")
    ingested = weir_program("ingest", tables[1].uri, file, "--no-fsync")
    assert ingested.code == 0, ingested.err
    found = [table.scan().to_table().sort_by("id").to_pylist() for table in tables]
    assert found[0] == found[1]
    assert [row["word"] for row in found[1]] == texts


def test_an_output_file_that_fails_leaves_nothing(people: Path, tmp_path: Path, weir_program: Run) -> None:
    (tmp_path / "rows.csv").mkdir()
    for output in (tmp_path / "none" / "rows.csv", tmp_path / "rows.txt", tmp_path / "rows.csv"):
        answer = weir_program("scan", people, "--output", output)
        assert answer.code == 2
        assert answer.err.startswith("error: ")
    assert sorted(one.name for one in tmp_path.iterdir()) == ["people", "people.csv", "rows.csv"]


def test_get_finds_rows_by_key(people: Path, weir_program: Run) -> None:
    answer = weir_program("get", people, "3", "1", "3", "7", "--json")
    assert answer.code == 0
    assert [json.loads(line) for line in answer.lines] == [_ROWS[2], _ROWS[0]]
    assert answer.err == "1 of the keys has no row\n"
    assert weir_program("get", people, "2", "--columns", "name").lines == ["name ", "Grace", "1 row"]
    assert weir_program("get", people, "7", "8", "--json").out == ""


def test_a_key_that_begins_with_a_dash(people: Path, weir_program: Run) -> None:
    refused = weir_program("get", people, "-5")
    assert refused.code == 2
    assert "Write -- before a value that begins with a dash: weir get ... -- -5" in refused.err
    assert weir_program("get", people, "--", "-5").code == 0


def test_get_finds_rows_by_composite_key(tmp_path: Path, weir_program: Run) -> None:
    uri = tmp_path / "t"
    weir_program("create", uri, "--schema", "site: string, id: int32, v: int8", "--primary-key", "site,id")
    weir_program("ingest", uri, "-", "--format", "csv", stdin=b'site,id,v\nJFK,1,5\n"a,b",2,6\n')
    answer = weir_program("get", uri, "JFK,1", '["a,b", 2]', "--columns", "v", "--json")
    assert answer.lines == ['{"v":5}', '{"v":6}']


def test_ingest_reports_what_it_did(people: Path, tmp_path: Path, weir_program: Run) -> None:
    (tmp_path / "more.jsonl").write_text('{"id": 4, "name": "Edsger"}\n{"id": 1, "name": "Ada L."}\n')
    answer = weir_program(
        "ingest",
        people,
        tmp_path / "people.csv",
        tmp_path / "more.jsonl",
        "--batch-rows",
        "1",
        "--merge",
        "--json",
    )
    said = json.loads(answer.out)
    assert answer.err == ""
    assert {name: said[name] for name in ("files", "rows", "upserted", "deleted", "dry_run")} == {
        "files": 2,
        "rows": 5,
        "upserted": 5,
        "deleted": 0,
        "dry_run": False,
    }
    assert said["rows_per_second"] > 0
    assert said["merge"]["rows_upserted"] == 4
    assert weir_program("scan", people, "--count", "--consistency", "snapshot").out == "4\n"
    assert json.loads(weir_program("get", people, "1", "--json").out)["name"] == "Ada L."


def test_ingest_takes_upserts_and_deletes_from_one_file(people: Path, weir_program: Run) -> None:
    data = b"op,id,name\ndelete,1,\nupsert,2,Grace H.\ndelete,3,\nupsert,3,Alan\nupsert,9,x\ndelete,9,\n"
    answer = weir_program("ingest", people, "-", "--format", "csv", "--op-column", "op", "--json", stdin=data)
    assert json.loads(answer.out)["rows"] == 6
    assert [(row["id"], row["name"]) for row in _json_lines(weir_program("scan", people, "--json").out)] == [
        (2, "Grace H."),
        (3, "Alan"),
    ]


def test_ingest_deletes_the_keys_in_a_file(people: Path, tmp_path: Path, weir_program: Run) -> None:
    (tmp_path / "gone.csv").write_text("why,id\nx,1\ny,3\nz,77\n")
    answer = weir_program("ingest", people, tmp_path / "gone.csv", "--delete", "--json")
    assert json.loads(answer.out)["deleted"] == 3
    assert [row["id"] for row in _json_lines(weir_program("scan", people, "--json").out)] == [2]


def test_a_dry_run_writes_nothing(people: Path, weir_program: Run) -> None:
    before = weir_program("status", people, "--json").out
    answer = weir_program(
        "ingest", people, "-", "--format", "csv", "--dry-run", "--merge", stdin=b"id,name\n9,x\n"
    )
    assert answer.out == "1 row of 1 file fit the table; nothing was written\n"
    after = json.loads(weir_program("status", people, "--json").out)
    assert [shard["wal_position"] for shard in after["shards"]] == [
        shard["wal_position"] for shard in json.loads(before)["shards"]
    ]


def test_sql_queries_fresh_rows(people: Path, weir_program: Run) -> None:
    query = "SELECT count(*) AS people, max(born) AS youngest FROM t"
    answer = weir_program("sql", people, query)
    assert answer.code == 0
    assert [line.split() for line in answer.lines] == [
        ["people", "youngest"],
        ["3", "1912-06-23"],
        ["1", "row"],
    ]
    assert weir_program("sql", people, query, "--json").out == '{"people":3,"youngest":"1912-06-23"}\n'
    assert weir_program("sql", people, query, "--consistency", "snapshot", "--json").out == (
        '{"people":0,"youngest":null}\n'
    )
    token = weir_program("snapshot", people).lines[0]
    weir_program("ingest", people, "-", "--format", "csv", stdin=b"id,name\n4,Edsger\n")
    named = ("sql", people, "SELECT count(*) AS n FROM somebody", "--name", "somebody", "--json")
    assert weir_program(*named).out == '{"n":4}\n'
    assert weir_program(*named, "--at", token).out == '{"n":3}\n'


def test_sql_explains_and_writes_files(people: Path, tmp_path: Path, weir_program: Run) -> None:
    query = "SELECT name FROM t WHERE id > 1 ORDER BY id"
    explained = weir_program("sql", people, query, "--explain")
    assert explained.lines[0].startswith("reads ")
    plan = json.loads(weir_program("sql", people, query, "--explain", "--json").out)["plan"]
    assert plan == explained.lines
    path = tmp_path / "names.csv"
    assert weir_program("sql", people, query, "--output", path).out == f"2 rows written to {path}\n"
    assert path.read_text().splitlines()[0].strip('"') == "name"
    for arguments in (
        ("SELECT nothing FROM t",),
        ("DROP TABLE t",),
        (query, "--explain", "--output", path),
        (query, "--output", tmp_path / "names.txt"),
    ):
        refused = weir_program("sql", people, *arguments)
        assert (refused.code, refused.out) == (2, "")


def test_sql_shows_people_the_first_rows_and_says_so(people: Path, weir_program: Run) -> None:
    query = "SELECT a.id FROM t a, t b, t c, t d, t e"
    answer = weir_program("sql", people, query)
    assert answer.lines[-1] == "100 rows"
    assert "first 100 of 243 rows" in answer.err
    assert len(weir_program("sql", people, query, "--json").lines) == 243
