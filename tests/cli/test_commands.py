"""The commands, through the real entry of the program."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.cli.conftest import Run

import weir

_PEOPLE = b"id,name,born\n1,Ada,1815-12-10\n2,Grace,\n3,,1912-06-23\n"
_ROWS = [
    {"id": 1, "name": "Ada", "born": "1815-12-10"},
    {"id": 2, "name": "Grace", "born": None},
    {"id": 3, "name": None, "born": "1912-06-23"},
]


@pytest.fixture
def people(tmp_path: Path, weir_program: Run) -> Path:
    """Return a table of three people in four shards."""
    uri = tmp_path / "people"
    created = weir_program(
        *("create", uri, "--schema", "id: int64!, name: string, born: date"),
        *("--primary-key", "id", "--shard-by", "bucket(id, 4)", "--no-fsync"),
    )
    assert created.code == 0, created.err
    (tmp_path / "people.csv").write_bytes(_PEOPLE)
    ingested = weir_program("ingest", uri, tmp_path / "people.csv", "--no-fsync")
    assert ingested.code == 0, ingested.err
    return uri


def _json_lines(text: str) -> list[dict[str, Any]]:
    return sorted((json.loads(line) for line in text.splitlines()), key=lambda row: row["id"])


def test_create_says_what_was_created(tmp_path: Path, weir_program: Run) -> None:
    uri = tmp_path / "t"
    answer = weir_program(
        *("create", uri, "--schema", "site: string, id: int32, vec: vector(4)", "--primary-key", "site, id"),
        *("--shard-by", "identity(site), truncate(id, 100)", "--json"),
    )
    assert answer.code == 0
    said = json.loads(answer.out)
    assert said["uri"] == str(uri)
    assert said["primary_key"] == ["site", "id"]
    assert said["schema"] == "site: string!, id: int32!, vec: vector(4)"
    assert not said["library_writable"]
    assert said["library_note"]
    assert weir.open(uri).primary_key == ("site", "id")


def test_create_takes_the_columns_of_a_file(tmp_path: Path, weir_program: Run) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"id": [1], "vec": pa.array([[1.0, 2.0]], pa.list_(pa.float32(), 2))}), path)
    answer = weir_program("create", tmp_path / "t", "--schema-from", path, "--primary-key", "id")
    assert answer.code == 0
    assert answer.err == ""
    assert "id: int64!, vec: vector(2)" in answer.out
    assert weir_program("ingest", tmp_path / "t", path).code == 0
    assert _json_lines(weir_program("scan", tmp_path / "t", "--json").out) == [{"id": 1, "vec": [1, 2]}]


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
    assert "base table version" in text.out
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


def test_status_tells_what_waits(people: Path, weir_program: Run) -> None:
    said = json.loads(weir_program("status", people, "--json").out)
    assert said["unmerged_rows"] == 3
    assert said["unflushed_rows"] == 0
    assert said["sharded_by"] == "bucket(id, 4)"
    assert sum(shard["unmerged_rows"] for shard in said["shards"]) == 3
    text = weir_program("status", people).out
    assert "3 rows for a merge, 0 for a flush" in text
    assert "bucket=" in text


def test_merge_says_what_it_merged(people: Path, weir_program: Run) -> None:
    said = json.loads(weir_program("merge", people, "--json").out)
    assert said["rows_upserted"] == 3
    assert said["rows_deleted"] == 0
    again = weir_program("merge", people)
    assert again.out == f"nothing to merge; the base table has version {said['version']}\n"
    assert weir_program("status", people).out.count("0 rows for a merge") == 1


def test_gc_says_what_it_collects_and_why(people: Path, weir_program: Run) -> None:
    weir_program("merge", people)
    before = sorted(people.rglob("*"))
    planned = weir_program("gc", people, "--dry-run")
    assert planned.code == 0
    assert sorted(people.rglob("*")) == before
    assert planned.lines[0].startswith("0 objects (0 bytes) would be deleted, ")
    assert planned.lines[0].endswith(" would wait for the horizon; nothing was written")
    assert planned.out.count("generation 1 in ") == len(list((people / "_mem_wal").iterdir()))
    assert "merged, and no manifest lists it" in planned.out
    assert "they fence writers that may be asleep" in planned.out

    marked = json.loads(weir_program("gc", people, "--horizon", "0s", "--json").out)
    assert (marked["dry_run"], marked["deleted_objects"]) == (False, 0)
    assert planned.lines[0].split(", ")[1].startswith(f"{marked['waiting_objects']} (")
    assert json.loads(weir_program("gc", people, "--dry-run", "--json").out)["deleted_objects"] == 0
    due = json.loads(weir_program("gc", people, "--horizon", "0s", "--dry-run", "--json").out)
    assert due["dry_run"] is True
    done = weir_program("gc", people, "--horizon", "0s", "--version-retention", "1d")
    assert f"{due['deleted_objects']} objects (" in done.lines[0]
    assert done.lines[0].endswith(" deleted, 0 (0 bytes) marked, to be deleted after the horizon")
    kinds = {one["kind"]: one for one in due["items"]}
    assert {one["shard_id"] for one in due["items"]} <= {
        path.name for path in (people / "_mem_wal").iterdir()
    }
    assert kinds["generation"]["reason"] == "merged, and no manifest lists it"
    gone = set(before) - set(people.rglob("*"))
    assert len([path for path in gone if path.suffix]) >= due["deleted_objects"]
    assert weir_program("scan", people, "--count").out == "3\n"
    assert json.loads(weir_program("gc", people, "--json").out)["items"] == []


def test_storage_options_reach_the_store(weir_program: Run) -> None:
    answer = weir_program("status", "s3://bucket/table", "--storage-option", "nonsense=1")
    assert answer.code == 2
    assert "nonsense" in answer.err


def test_the_version_and_help_are_printed(weir_program: Run) -> None:
    assert weir_program("--version").out == f"weir {weir.__version__}\n"
    for arguments in ((), ("--help",)):
        answer = weir_program(*arguments)
        assert answer.code == 0
        for command in ("create", "ingest", "scan", "get", "status", "merge", "gc", "demo"):
            assert f"  {command} " in answer.out
            assert weir_program(command, "--help").out.startswith(f"Usage: weir {command} ")


@pytest.fixture
def reports(tmp_path: Path) -> Path:
    """Return a table with texts and vectors, and a full-text index."""
    schema = pa.schema([("id", pa.int64()), ("remarks", pa.string()), ("place", pa.list_(pa.float32(), 2))])
    table = weir.create(tmp_path / "reports", schema, primary_key="id", fsync=False)
    lance.dataset(table.uri).create_scalar_index("remarks", "INVERTED", with_position=True)
    with table.writer() as writer:
        writer.upsert(
            [
                {"id": 1, "remarks": "late departure", "place": [0.0, 1.0]},
                {"id": 2, "remarks": "snow, late", "place": [3.0, 4.0]},
                {"id": 3, "remarks": "snow", "place": [5.0, 5.0]},
            ]
        )
    return tmp_path / "reports"


def test_search_finds_by_vector_by_text_and_by_both(reports: Path, weir_program: Run) -> None:
    def found(*options: str) -> list[dict[str, Any]]:
        answer = weir_program("search", reports, *options, "--columns", "id", "--json")
        assert (answer.code, answer.err) == (0, "")
        return [json.loads(line) for line in answer.out.splitlines()]

    assert found("--vector", "[0, 0]", "--k", "2") == [{"id": 1, "_distance": 1}, {"id": 2, "_distance": 25}]
    assert [row["_query_index"] for row in found("--vector", "[[0, 0], [5, 5]]", "--k", "1")] == [0, 1]
    assert [row["id"] for row in found("--vector", "[1, 1]", "--filter", "id > 1")] == [2, 3]
    assert {row["id"] for row in found("--text", "late")} == {1, 2}
    assert [row["id"] for row in found("--text", "late departure", "--phrase")] == [1]
    both = found("--vector", "[5, 5]", "--text", "snow", "--fusion", "weighted")
    assert both[0]["id"] == 3
    assert both[0].keys() == {"id", "_distance", "_score", "_relevance"}


def test_search_explains_and_refuses(reports: Path, weir_program: Run) -> None:
    text = weir_program("search", reports, "--vector", "[0, 0]", "--explain")
    assert "no vector index" in text.out
    for options, said in (
        ((), "--vector"),
        (("--vector", "[1"), "not JSON"),
        (("--vector", "3"), "JSON array"),
        (("--vector", "[1]"), "dimension 2"),
        (("--vector", "[NaN, 1]"), "no distance"),
        (("--text", "the"), "no word"),
        (("--phrase", "--vector", "[1, 2]"), "--text"),
        (("--text", "snow", "--k", "0"), "k must be"),
    ):
        answer = weir_program("search", reports, *options)
        assert answer.code == 2
        assert said in answer.err
        assert answer.out == ""
