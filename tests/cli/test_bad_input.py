"""Bad input: one line on standard error, exit code 2, no traceback, and nothing written."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.conftest import Run

_SCHEMA = "id: int64!, name: string, vec: vector(2)"


@pytest.fixture
def table(tmp_path: Path, weir_program: Run) -> Path:
    uri = tmp_path / "table"
    created = weir_program("create", uri, "--schema", _SCHEMA, "--primary-key", "id", "--no-fsync")
    assert created.code == 0, created.err
    return uri


def _tree(directory: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in directory.rglob("*") if path.is_file()}


def _refused(run: Run, tree: Path, *arguments: object, stdin: bytes = b"") -> str:
    """Check that the program refuses, and return what it says."""
    before = _tree(tree)
    answer = run(*arguments, stdin=stdin)
    assert answer.code == 2
    assert answer.out == ""
    assert answer.err.startswith("error: ")
    assert answer.err.endswith("\n")
    assert answer.err.count("\n") == 1
    assert "Traceback" not in answer.err
    assert _tree(tree) == before
    return answer.err


@pytest.mark.parametrize(
    ("file_format", "data", "said"),
    [
        ("csv", b"id,name\nx,Ada\n", "standard input, row 1, column 'id'"),
        (
            "csv",
            b"id,name\n1,Ada\n,Bob\n",
            "primary-key column 'id' is missing or null [standard input, row 2",
        ),
        ("csv", b"name\nAda\n", "primary-key column 'id' is missing"),
        ("csv", b"id,nome\n1,Ada\n", "no column 'nome'"),
        ("csv", b"id,id\n1,2\n", "column 'id' occurs twice"),
        ("csv", b'id,vec\n1,"[1]"\n', "row 1, column 'vec'"),
        ("csv", b"", "the file is empty"),
        ("jsonl", b'{"id": 1}\n{"id": "x"}\n', "standard input, row 2, column 'id'"),
        (
            "jsonl",
            b'{"id": 1}\n{"name": "x"}\n',
            "primary-key column 'id' is missing or null [standard input, row 2",
        ),
        ("jsonl", b'{"id": 1, "nome": 2}\n', "no column 'nome'"),
        ("jsonl", b'{"id": 1, "id": 2}\n', "id"),
        ("jsonl", b'{"id": \n', "not JSON"),
        ("parquet", b"rubbish", "standard input"),
        ("arrow", b"rubbish", "standard input"),
    ],
)
def test_rows_that_do_not_fit(
    table: Path, weir_program: Run, file_format: str, data: bytes, said: str
) -> None:
    assert said in _refused(weir_program, table, "ingest", table, "-", "--format", file_format, stdin=data)


def test_the_columns_of_every_file_are_checked_before_anything_is_written(
    table: Path, tmp_path: Path, weir_program: Run
) -> None:
    (tmp_path / "good.csv").write_text("id\n1\n")
    (tmp_path / "bad.csv").write_text("id,nome\n2,x\n")
    said = _refused(weir_program, table, "ingest", table, tmp_path / "good.csv", tmp_path / "bad.csv")
    assert f"no column 'nome' [{tmp_path / 'bad.csv'}" in said


def test_an_error_says_how_many_rows_are_written_already(
    table: Path, tmp_path: Path, weir_program: Run
) -> None:
    (tmp_path / "good.csv").write_text("id\n" + "".join(f"{number}\n" for number in range(1_500)))
    (tmp_path / "bad.jsonl").write_text('{"id": 7000}\n{"id": 7001, "vec": [1]}\n')
    answer = weir_program("ingest", table, tmp_path / "good.csv", tmp_path / "bad.jsonl", "--no-fsync")
    assert answer.code == 2
    assert f"[{tmp_path / 'bad.jsonl'}, row 2, column 'vec']. The 1,500 rows before it" in answer.err
    assert answer.err.count("\n") == 1
    # Nothing of the bad batch, and everything before it.
    assert weir_program("scan", table, "--count").out == "1500\n"
    assert weir_program("scan", table, "--count", "--filter", "id >= 7000").out == "0\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("scan", "TABLE", "--filter", "id >"), "the filter 'id >' cannot be used"),
        (("scan", "TABLE", "--filter", "nope > 1"), "the filter 'nope > 1' cannot be used"),
        (("scan", "TABLE", "--filter", ""), "a filter is SQL text"),
        (("scan", "TABLE", "--columns", "nope"), "no column 'nope'"),
        (("scan", "TABLE", "--columns", "id,,name"), "columns"),
        (("scan", "TABLE", "--limit", "-1"), "--limit must be"),
        (("scan", "TABLE", "--limit", "many"), "--limit"),
        (("scan", "TABLE", "--consistency", "weak"), "unknown consistency 'weak'"),
        (("scan", "TABLE", "--count", "--explain"), "only one of"),
        (("get", "TABLE", "x"), "'x' does not fit key column 'id'"),
        (("get", "TABLE"), "Missing argument"),
        (("gc", "TABLE", "--horizon", "soon"), "a length of time is a number with a unit, got 'soon'"),
        (("gc", "TABLE", "--horizon", "15"), "horizon"),
        (("gc", "TABLE", "--horizon", "1h", "--version-retention", "1m"), "--version-retention must be"),
        (("get", "TABLE", "1", "--columns", "nope"), "no column 'nope'"),
        (("create", "TABLE", "--schema", "id: int64", "--primary-key", "id"), "already"),
        (("create", "NEW", "--schema", "id: int46", "--primary-key", "id"), "unknown type 'int46'"),
        (("create", "NEW", "--schema", "id: int64, id: int8", "--primary-key", "id"), "more than once"),
        (("create", "NEW", "--schema", "id: int64", "--primary-key", "nope"), "'nope' is not in the schema"),
        (("create", "NEW", "--schema", "id: list(int64)", "--primary-key", "id"), "id"),
        (("create", "NEW", "--schema", "id: int64"), "--primary-key"),
        (("create", "NEW", "--primary-key", "id"), "--schema"),
        (
            ("create", "NEW", "--schema", "id: int64", "--primary-key", "id", "--shard-by", "hash(id)"),
            "unknown shard transform 'hash'",
        ),
        (
            (
                "create",
                "NEW",
                "--schema",
                "id: int64",
                "--primary-key",
                "id",
                "--shard-by",
                "bucket(nope, 4)",
            ),
            "no column 'nope'",
        ),
        (
            ("create", "NEW", "--schema", "id: int64", "--primary-key", "id", "--shard-by", "year(id)"),
            "year",
        ),
        (("create", "NEW", "--schema-from", "NEW.csv", "--primary-key", "id"), "no such file"),
        (("scan", "NEW"), "no table"),
        (("status", "NEW"), "no table"),
        (("merge", "NEW"), "no table"),
        (("get", "NEW", "1"), "no table"),
        (("ingest", "NEW", "-", "--format", "csv"), "no table"),
        (("scan", "ftp://host/t"), "ftp"),
        (("ingest", "TABLE", "NEW.csv"), "no such file"),
        (("ingest", "TABLE", "-"), "--format"),
        (("ingest", "TABLE", "-", "--format", "xml"), "--format"),
        (("ingest", "TABLE", "-", "-", "--format", "csv"), "only once"),
        (("ingest", "TABLE", "-", "--format", "csv", "--batch-rows", "0"), "batch-rows must be at least 1"),
        (("ingest", "TABLE", "-", "--format", "csv", "--delimiter", "::"), "one character"),
        (
            ("ingest", "TABLE", "-", "--format", "csv", "--delete", "--op-column", "op"),
            "--delete and --op-column",
        ),
        (
            ("ingest", "TABLE", "-", "--format", "csv", "--op-column", "name"),
            "'name' is a column of the table",
        ),
        (("scan", "TABLE", "--storage-option", "nonsense"), "NAME=VALUE"),
        (("scan", "TABLE", "--nonsense"), "--nonsense"),
        (("nonsense",), "nonsense"),
        (("demo", "--flights", "0"), "--flights"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_arguments_that_make_no_sense(
    table: Path, tmp_path: Path, weir_program: Run, arguments: tuple[str, ...], said: str
) -> None:
    real = {"TABLE": str(table), "NEW": str(tmp_path / "new"), "NEW.csv": str(tmp_path / "new.csv")}
    assert said in _refused(weir_program, tmp_path, *(real.get(one, one) for one in arguments))
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("option", [("--delete",), ("--op-column", "op")])
def test_deletes_where_a_tombstone_cannot_be_stored(
    tmp_path: Path, weir_program: Run, option: tuple[str, ...]
) -> None:
    uri = tmp_path / "t"
    weir_program("create", uri, "--schema", "id: int64, name: string!", "--primary-key", "id")
    data = b"op,id\ndelete,1\n"
    said = _refused(weir_program, uri, "ingest", uri, "-", "--format", "csv", *option, stdin=data)
    assert "name cannot be null" in said


def test_corruption_is_reported_with_its_path(table: Path, weir_program: Run) -> None:
    assert weir_program("ingest", table, "-", "--format", "csv", stdin=b"id\n1\n").code == 0
    manifests = sorted(table.rglob("_mem_wal/*/manifest/*.binpb"))
    for manifest in manifests:
        manifest.write_bytes(b"\xff" * 20)
    said = _refused(weir_program, table, "scan", table)
    assert any(manifest.name in said for manifest in manifests)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("missing", "the file cannot be read: No such file or directory"),
        ("directory", "the file cannot be read: Is a directory"),
        ("binary", "fields is not JSON: 'utf-8' codec can't decode"),
        ("deep", "fields is not JSON"),
    ],
)
def test_files_of_events_that_cannot_be_read(tmp_path: Path, weir_program: Run, name: str, said: str) -> None:
    uri = tmp_path / "store"
    assert weir_program("events", "create", uri, "--no-fsync").code == 0
    (tmp_path / "directory").mkdir()
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    (tmp_path / "deep").write_bytes(b"[" * 100_000)
    file = tmp_path / name
    error = _refused(weir_program, tmp_path, "events", "define", uri, "e", f"@{file}", "--no-fsync")
    assert said in error
    assert str(file) in error
