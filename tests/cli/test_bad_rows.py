"""Rows of files that do not fit the table: skipped or put into quarantine, counted, and the rest written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.cli.conftest import Run

_SCHEMA = "id: int64!, name: string, vec: vector(2), born: date"


@pytest.fixture
def table(tmp_path: Path, weir_program: Run) -> Path:
    uri = tmp_path / "table"
    created = weir_program("create", uri, "--schema", _SCHEMA, "--primary-key", "id", "--no-fsync")
    assert created.code == 0, created.err
    return uri


def _ingested(
    run: Run, table: Path, file: Path, *options: object
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Ingest with quarantine; return the report, and what is in quarantine."""
    bad = table.parent / "bad.jsonl"
    answer = run(
        *("ingest", table, file, "--on-bad-row", "quarantine", "--quarantine", bad),
        *("--json", "--no-fsync", *options),
    )
    assert answer.code == 0, answer.err
    lines = bad.read_text().splitlines() if bad.exists() else []
    return json.loads(answer.out), [json.loads(line) for line in lines]


def _ids(run: Run, table: Path) -> list[int]:
    return sorted(json.loads(line)["id"] for line in run("scan", table, "--json").lines)


def test_csv(table: Path, tmp_path: Path, weir_program: Run) -> None:
    file = tmp_path / "people.csv"
    file.write_bytes(
        b"id,name,vec,born\n"
        b'1,Ada,"[1, 2]",1815-12-10\n'
        b"2,too few\n"
        b'3,Grace,"[1]",1906-12-09\n'
        b"\n"
        b"4,Alan,,1912-06-31\n"
        b'5,"quoted, ""and""\nbroken",,\n'
        b",nobody,,\n"
        b"six,Barbara,,\n"
        b"7,\xff,,\n"
        b"8,Edsger,,,more\n"
        b"9,,,\n"
    )
    report, bad = _ingested(weir_program, table, file)
    assert (report["rows"], report["upserted"], report["bad_rows"]) == (10, 3, 7)
    assert _ids(weir_program, table) == [1, 5, 9]
    # In the order in which each step of reading finds them.
    bad.sort(key=lambda one: int(one["row"]))
    assert [one["row"] for one in bad] == [2, 3, 4, 6, 7, 8, 9]
    assert {one["file"] for one in bad} == {str(file)}
    few, vector, date, key, number, text, many = bad
    assert few["reason"] == "the row has 2 values, and the header 4"
    assert few["record"] == "2,too few"
    assert vector["reason"].startswith("a value does not fit column 'vec' of type vector(2)")
    assert json.loads(vector["record"]) == {
        "id": "3",
        "name": "Grace",
        "vec": "[1]",
        "born": "1906-12-09",
    }
    assert "'born'" in date["reason"]
    assert "1912-06-31" in date["reason"]
    assert key["reason"] == "primary-key column 'id' is missing or null"
    assert "'id'" in number["reason"]
    assert "UTF" in text["reason"]
    assert json.loads(text["record"])["name"] == "\\xff"
    assert many["reason"] == "the row has 5 values, and the header 4"
    assert report["first_bad"] == report["first_bad"][:10]
    quoted = weir_program("get", table, "5", "--json")
    assert json.loads(quoted.out)["name"] == 'quoted, "and"\nbroken'


def test_values_of_csv_are_read_as_without_quarantine(table: Path, tmp_path: Path, weir_program: Run) -> None:
    file = tmp_path / "people.tsv"
    file.write_bytes(b'id\tname\tvec\tborn\n1\tNA\t\t2020-01-01\n2\t"NA"\t"[0.5, 1e3]"\tNA\n3\t""\t\t\n')
    plain = tmp_path / "plain"
    created = weir_program("create", plain, "--schema", _SCHEMA, "--primary-key", "id", "--no-fsync")
    assert created.code == 0, created.err
    assert weir_program("ingest", plain, file, "--null", "NA", "--no-fsync").code == 0
    report, bad = _ingested(weir_program, table, file, "--null", "NA")
    assert (report["bad_rows"], bad) == (0, [])
    assert weir_program("scan", table, "--json").out == weir_program("scan", plain, "--json").out


def test_json_lines(table: Path, tmp_path: Path, weir_program: Run) -> None:
    file = tmp_path / "people.jsonl"
    file.write_bytes(
        b'{"id": 1, "name": "Ada", "vec": [1, 2]}\n'
        b'{"id": \n'
        b"\n"
        b"[3]\n"
        b'{"id": 4, "nome": "Alan"}\n'
        b'{"id": 5, "vec": [1]}\n'
        b'{"id": null}\n'
        b'{"id": 7, "name": 7}\n'
        b'{"id": 8, "nome": 8}\n'
        b'{"id": 9}'
    )
    report, bad = _ingested(weir_program, table, file)
    assert (report["rows"], report["upserted"], report["bad_rows"]) == (9, 2, 7)
    assert _ids(weir_program, table) == [1, 9]
    bad.sort(key=lambda one: int(one["row"]))
    assert [(one["row"], one["record"]) for one in bad] == [
        (2, '{"id": '),
        (3, "[3]"),
        (4, '{"id": 4, "nome": "Alan"}'),
        (5, '{"id": 5, "vec": [1]}'),
        (6, '{"id":null,"name":null,"vec":null,"born":null}'),
        (7, '{"id": 7, "name": 7}'),
        (8, '{"id": 8, "nome": 8}'),
    ]
    assert bad[2]["reason"] == "the table has no column 'nome'"


@pytest.mark.parametrize("suffix", [".parquet", ".arrow", ".arrows"])
def test_columnar(table: Path, tmp_path: Path, weir_program: Run, suffix: str) -> None:
    file = tmp_path / f"people{suffix}"
    rows = pa.table({"id": pa.array([1, 2**63, None, 4], pa.uint64()), "name": ["a", "b", "c", "d"]})
    if suffix == ".parquet":
        pq.write_table(rows, file)
    else:
        new = pa.ipc.new_file if suffix == ".arrow" else pa.ipc.new_stream
        with new(file, rows.schema) as writer:
            writer.write_table(rows)
    report, bad = _ingested(weir_program, table, file)
    assert (report["rows"], report["upserted"], report["bad_rows"]) == (4, 2, 2)
    assert _ids(weir_program, table) == [1, 4]
    assert [one["row"] for one in bad] == [2, 3]
    assert json.loads(bad[0]["record"]) == {"id": 2**63, "name": "b"}


def test_batches_and_numbers_after_bad_rows(table: Path, tmp_path: Path, weir_program: Run) -> None:
    lines = [f"{row},x" if row % 7 else f"bad{row},x" for row in range(1, 3001)]
    lines[1499] = ",x"
    file = tmp_path / "people.csv"
    file.write_text("id,name\n" + "\n".join(lines) + "\n")
    report, bad = _ingested(weir_program, table, file, "--batch-rows", "250")
    wrong = sorted([*range(7, 3001, 7), 1500])
    assert sorted(one["row"] for one in bad) == wrong
    assert report["upserted"] == 3000 - len(wrong)
    assert _ids(weir_program, table) == sorted(set(range(1, 3001)) - set(wrong))
    assert len(report["first_bad"]) == 10


def test_the_last_row_of_a_key_decides_among_the_good_ones(
    table: Path, tmp_path: Path, weir_program: Run
) -> None:
    file = tmp_path / "people.jsonl"
    file.write_text(
        '{"op": "upsert", "id": 1, "name": "a"}\n{"op": "upsert", "id": 2, "name": "b"}\n'
        '{"op": "remove", "id": 2}\n{"op": "delete", "id": 1}\n{"op": "upsert", "name": "c"}\n'
    )
    report, bad = _ingested(weir_program, table, file, "--op-column", "op")
    assert [one["row"] for one in bad] == [3, 5]
    assert (report["upserted"], report["deleted"]) == (1, 1)
    assert _ids(weir_program, table) == [2]


def test_skipped_rows_are_counted_and_the_first_ten_shown(
    table: Path, tmp_path: Path, weir_program: Run
) -> None:
    file = tmp_path / "people.csv"
    file.write_text("id,name\n1,Ada\n" + "".join(f"x{row},\x1b[31m\n" for row in range(12)))
    answer = weir_program("ingest", table, file, "--on-bad-row", "skip", "--no-fsync")
    assert answer.code == 0
    assert answer.lines[1] == "12 bad rows left out"
    assert answer.lines[2] == f"  {file}"
    assert answer.lines[3].startswith("    row 2: a value does not fit column 'id' of type int64")
    assert answer.lines[-1] == "  and 2 more"
    assert len(answer.lines) == 14
    assert "\x1b" not in answer.out


def test_a_dry_run_says_what_would_be_left_out_and_writes_nothing(
    table: Path, tmp_path: Path, weir_program: Run
) -> None:
    file = tmp_path / "people.csv"
    file.write_text("id,name\n1,Ada\nx,Bob\n")
    bad = tmp_path / "bad.jsonl"
    answer = weir_program(
        "ingest", table, file, "--on-bad-row", "quarantine", "--quarantine", bad, "--dry-run"
    )
    assert answer.lines[:2] == [
        "1 row of 1 file fit the table; nothing was written",
        "1 bad row found",
    ]
    assert not bad.exists()
    assert weir_program("scan", table, "--count").out == "0\n"


def test_quarantine_is_added_to_and_can_be_made_a_table(
    table: Path, tmp_path: Path, weir_program: Run
) -> None:
    file = tmp_path / "people.csv"
    file.write_text("id,name\nx,Ada\n")
    _ingested(weir_program, table, file)
    _, bad = _ingested(weir_program, table, file)
    assert len(bad) == 2
    quarantine = tmp_path / "quarantine"
    created = weir_program(
        *("create", quarantine, "--schema-from", tmp_path / "bad.jsonl", "--primary-key", "file,row"),
        "--no-fsync",
    )
    assert created.code == 0, created.err
    assert weir_program("ingest", quarantine, tmp_path / "bad.jsonl", "--no-fsync").code == 0
    assert weir_program("scan", quarantine, "--count").out == "1\n"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--on-bad-row", "quarantine"), "--quarantine"),
        (("--quarantine", "bad.jsonl"), "--on-bad-row quarantine"),
        (("--on-bad-row", "shrug"), "on-bad-row"),
        (("--on-bad-row", "quarantine", "--quarantine", "/nowhere/bad.jsonl"), "/nowhere/bad.jsonl"),
    ],
)
def test_refused(table: Path, tmp_path: Path, weir_program: Run, options: tuple[str, ...], said: str) -> None:
    file = tmp_path / "people.csv"
    file.write_text("id,name\nx,Ada\n")
    answer = weir_program("ingest", table, file, *options)
    assert (answer.code, answer.out) == (2, "")
    assert said in answer.err
    assert answer.err.count("\n") == 1


def test_columns_that_do_not_fit_are_an_error_all_the_same(
    table: Path, tmp_path: Path, weir_program: Run
) -> None:
    file = tmp_path / "people.csv"
    file.write_text("id,nome\n1,Ada\n")
    answer = weir_program("ingest", table, file, "--on-bad-row", "skip")
    assert answer.code == 2
    assert "no column 'nome'" in answer.err
