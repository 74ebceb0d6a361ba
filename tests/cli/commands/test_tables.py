"""Commands about a table as a whole, and the program itself."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import lance
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.cli.conftest import Run

import weir
from weir.base.details_commit import update_details
from weir.base.table import BaseTable


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
    assert json.loads(weir_program("scan", tmp_path / "t", "--json").out) == {"id": 1, "vec": [1, 2]}


def test_adopt_makes_a_table_of_a_dataset(tmp_path: Path, weir_program: Run) -> None:
    place = tmp_path / "d"
    lance.write_dataset(pa.table({"code": ["UA", "AA"], "n": [1, 2]}), str(place))
    refused = weir_program("adopt", place)
    assert refused.code == 2
    assert "no primary key" in refused.err
    answer = weir_program("adopt", place, "--primary-key", "code", "--shard-by", "bucket(code, 2)")
    assert (answer.code, answer.err) == (0, "")
    assert answer.out.startswith(f"adopted {place}")
    assert weir.open(place).sharded_by == "bucket(code, 2)"
    again = weir_program("adopt", place, "--json")
    assert again.code == 2
    assert "a Weir table already" in again.err
    # What a former table has left there is set aside when that is asked for.
    assert (
        weir_program("ingest", place, "-", "--format", "jsonl", stdin=b'{"code": "DL", "n": 3}\n').code == 0
    )
    lance.write_dataset(pa.table({"code": ["UA"], "n": [9]}), str(place), mode="overwrite")
    assert "set_aside" in weir_program("adopt", place, "--primary-key", "code").err
    said = weir_program("adopt", place, "--primary-key", "code", "--set-aside", "--json")
    assert said.code == 0
    assert json.loads(said.out)["primary_key"] == ["code"]
    assert json.loads(weir_program("scan", place, "--json").out) == {"code": "UA", "n": 9}


def test_alter_changes_columns_at_once(people: Path, weir_program: Run) -> None:
    before = weir.open(people).schema
    spare = next(field.name for field in before if field.name != "id")
    answer = weir_program(
        *("alter", people, "--add", "gate string", "--add", "n: int32", "--add", "at: struct(x: int8)"),
        *("--rename", f"{spare}=other", "--json"),
    )
    assert answer.code == 0
    said = json.loads(answer.out)
    assert said["uri"] == str(people)
    assert said["schema"].endswith("gate: string, n: int32, at: struct(x: int8)")
    answer = weir_program(
        *("alter", people, "--widen", "n=int64", "--widen", "at.x=int16", "--drop", "gate"),
        *("--add", "at.y vector(2, float16)"),
    )
    assert answer.code == 0
    assert "altered" in answer.out
    assert answer.out.rstrip().endswith("n: int64, at: struct(x: int16, y: vector(2, float16))")
    assert "other" in weir.open(people).schema.names


def test_alter_changes_when_rows_expire(people: Path, weir_program: Run) -> None:
    answer = weir_program("alter", people, "--expire-by", "born", "--expire-after", "365d")
    assert answer.code == 0
    assert "365 days" in answer.out
    assert weir.open(people).expiry == "365 days, 0:00:00 after born"
    assert weir.open(people).scan().count() == 1
    refused = weir_program("alter", people, "--never-expire", "--expire-after", "7d")
    assert refused.code == 2
    said = weir_program("alter", people, "--never-expire", "--json")
    assert json.loads(said.out)["expiry"] is None
    assert weir.open(people).scan().count() == 3
    assert "are not sorted" in weir_program("alter", people, "--sort-by", "born").err


def test_alter_splits_rows_into_other_shards(people: Path, weir_program: Run) -> None:
    before = weir.open(people).scan().count()
    assert weir_program("alter", people, "--shard-by", "bucket(id, 5)").code == 0
    assert weir.open(people).status().sharded_by == "bucket(id, 5)"
    assert weir.open(people).scan().count() == before
    refused = weir_program("alter", people, "--shard-by", "bucket(id, 3)", "--drop", "gate")
    assert refused.code == 2
    assert "cannot be combined" in refused.err


def test_alter_says_what_is_wrong_and_changes_nothing(people: Path, weir_program: Run) -> None:
    before = weir.open(people).schema
    for arguments, says in (
        ((), "nothing to alter"),
        (("--drop", "nope"), "no column 'nope'"),
        (("--drop", "id"), "primary key"),
        (("--add", "gate"), "a name and a type"),
        (("--add", "gate strung"), "unknown type 'strung'"),
        (("--add", "gate string!"), "cannot be without nulls"),
        (("--rename", "a"), "--rename takes OLD=NEW"),
        (("--rename", "a=b", "--rename", "a=c"), "names 'a' twice"),
        (("--widen", "id="), "--widen takes"),
    ):
        answer = weir_program("alter", people, *arguments)
        assert answer.code == 2
        assert says in answer.err
    assert weir.open(people).schema == before


def test_status_tells_what_waits(people: Path, weir_program: Run) -> None:
    said = json.loads(weir_program("status", people, "--json").out)
    assert said["unmerged_rows"] == 3
    assert said["unflushed_rows"] == 0
    assert said["sharded_by"] == "bucket(id, 4)"
    assert sum(shard["unmerged_rows"] for shard in said["shards"]) == 3
    text = weir_program("status", people).out
    assert "3 rows for a merge, 0 for a flush" in text
    assert "bucket=" in text


def test_storage_options_reach_the_store(weir_program: Run) -> None:
    answer = weir_program("status", "s3://bucket/table", "--storage-option", "nonsense=1")
    assert answer.code == 2
    assert "nonsense" in answer.err


def test_the_version_and_help_are_printed(weir_program: Run) -> None:
    assert weir_program("--version").out == f"weir {weir.__version__}\n"
    for arguments in ((), ("--help",)):
        answer = weir_program(*arguments)
        assert answer.code == 0
        for command in (
            "create",
            "ingest",
            "scan",
            "get",
            "sql",
            "status",
            "merge",
            "index",
            "recover",
            "demo",
        ):
            assert f"  {command} " in answer.out
            assert weir_program(command, "--help").out.startswith(f"Usage: weir {command} ")


def test_clone_and_drop(people: Path, weir_program: Run, tmp_path: Path) -> None:
    token = json.loads(weir_program("snapshot", people, "--json").out)["token"]
    copy = tmp_path / "copy"
    made = weir_program("clone", people, copy, "--at", token, "--json")
    assert made.code == 0
    assert json.loads(made.out)["uri"] == str(copy)
    refused = weir_program("drop", copy)
    assert refused.code == 2
    assert "--yes" in refused.err
    assert weir_program("scan", copy, "--count").out == "3\n"
    assert json.loads(weir_program("drop", copy, "--yes", "--json").out)["objects"] > 0
    assert weir_program("scan", copy, "--count").code == 2
    assert weir_program("scan", people, "--count").out == "3\n"


def test_a_drop_says_whom_it_waits_for(people: Path, weir_program: Run) -> None:
    writer = weir.open(people, engine=weir.Engine()).writer(lease_ttl=1.0, takeover=True)
    writer.upsert([{"id": 1}])
    refused = weir_program("drop", people, "--yes")
    assert refused.code == 2
    assert "takeover" in refused.err
    writer.upsert([{"id": 2}])
    answer = weir_program("drop", people, "--yes", "--takeover", "--json")
    assert answer.code == 0, answer.err
    assert json.loads(answer.out)["objects"] > 0
    assert f"waiting: process {os.getpid()} on " in answer.err
    assert len(answer.err.splitlines()) == 1


def test_a_table_of_a_newer_weir_is_refused(people: Path, weir_program: Run) -> None:
    store = weir.open(people).internals.store
    with pytest.MonkeyPatch.context() as newer:
        newer.setattr("weir.base.table.KNOWN_FEATURES", frozenset({"invented"}))
        update_details(BaseTable.open(store), lambda details: replace(details, features=("invented",)))
    for command in ("status", "scan", "merge", "verify"):
        answer = weir_program(command, people)
        assert answer.code in (1, 2)
        assert "does not know: invented" in answer.err + answer.out
