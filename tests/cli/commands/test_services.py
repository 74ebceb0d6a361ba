"""Commands that keep a table in order."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from tests.cli.conftest import Run

import weir


def test_merge_says_what_it_merged(people: Path, weir_program: Run) -> None:
    said = json.loads(weir_program("merge", people, "--json").out)
    assert said["rows_upserted"] == 3
    assert said["rows_deleted"] == 0
    again = weir_program("merge", people)
    assert again.out == f"nothing to merge; the base table has version {said['version']}\n"
    assert weir_program("status", people).out.count("0 rows for a merge") == 1


def test_merge_and_maintain_wait_for_a_share(people: Path, weir_program: Run) -> None:
    weir_program("merge", people)
    with weir.open(people).writer() as writer:
        writer.upsert([{"id": 1, "name": "Grace"}])
    waits = weir_program("merge", people, "--min-share", "0.5")
    assert waits.out.startswith("1 row left to wait for more; the base table has version ")
    maintained = json.loads(weir_program("maintain", people, "--min-share", "0.5", "--json").out)
    assert maintained["merge"]["rows_left"] == 1
    young = weir_program("merge", people, "--min-share", "0.5", "--max-age", "1d")
    assert young.out.startswith("1 row left to wait for more")
    refused = weir_program("merge", people, "--min-share", "0.5", "--max-age", "soon")
    assert (refused.code, "max-age" in refused.err) == (2, True)
    old = weir_program("maintain", people, "--min-share", "0.5", "--max-age", "0s", "--json")
    assert json.loads(old.out)["merge"]["rows_upserted"] == 1
    with weir.open(people).writer() as writer:
        writer.upsert([{"id": 1, "name": "Ada"}])
    assert json.loads(weir_program("merge", people, "--min-share", "0.3", "--json").out)["rows_upserted"] == 1
    refused = weir_program("merge", people, "--min-share", "-1")
    assert (refused.code, "at least 0" in refused.err) == (2, True)


def test_gc_says_what_it_collects_and_why(people: Path, weir_program: Run) -> None:
    weir_program("merge", people)
    before = sorted(people.rglob("*"))
    # Within the horizon what is merged stays on its list, for whoever opened the table before.
    planned = weir_program("gc", people, "--horizon", "0s", "--dry-run")
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


def test_compact_says_how_many_fragments_became_how_many(people: Path, weir_program: Run) -> None:
    weir_program("merge", people)
    for key in (4, 5):
        row = f"id,name\n{key},x\n".encode()
        weir_program("ingest", people, "-", "--format", "csv", "--merge", stdin=row)
    fragments = len(weir.open(people).internals.base.dataset.get_fragments())
    first = weir_program("compact", people, "--max-deleted", "0.2", "--rows-per-fragment", "1000")
    assert first.out.startswith(f"{fragments} fragments became 1; the base table has version ")
    again = json.loads(weir_program("compact", people, "--json").out)
    assert (again["tasks"], again["fragments_removed"]) == (0, 0)
    assert weir_program("compact", people).out.startswith("nothing to compact; ")
    for wrong in (("--rows-per-fragment", "0"), ("--max-deleted", "2")):
        assert weir_program("compact", people, *wrong).code == 2


def test_recover_flushes_what_was_left_and_says_what_it_left_alone(people: Path, weir_program: Run) -> None:
    assert weir_program("recover", people).out == "nothing to recover: every row is in a generation\n"
    table = weir.open(people, fsync=False)
    with table.writer(flush_on_close=False) as writer:
        writer.upsert([{"id": key, "name": "left"} for key in range(20)])
    with table.writer() as writer:
        writer.upsert([{"id": 1, "name": "alive"}])
        text = weir_program("recover", people).lines
        assert text[0] == f"{table.status().unmerged_rows - 3} rows of 3 shards flushed"
        assert len(text) == 2
        assert "was left alone: " in text[1]
        said = json.loads(weir_program("recover", people, "--json").out)
        assert (said["recovered"], said["rows"], len(said["shards"])) == (0, 0, 1)
        assert "its lease is held since" in said["shards"][0]["skipped"]
    assert json.loads(weir_program("recover", people, "--unleased", "--json").out)["shards"] == []


def test_maintain_does_everything_once(people: Path, weir_program: Run) -> None:
    weir_program("index", "create", people, "name")
    said = json.loads(weir_program("maintain", people, "--horizon", "0s", "--json").out)
    assert list(said) == ["merge", "compact", "indexes", "garbage"]
    assert said["merge"]["rows_upserted"] == 3
    assert {one["name"] for one in said["indexes"]["indexes"]} == {"id_idx", "name_idx"}
    (line,) = weir_program("maintain", people, "--horizon", "0s").lines
    assert line.startswith("0 generations merged, 0 fragments compacted, 0 of 2 indexes caught up, ")
    assert len(lance.dataset(people).versions()) > 1
    weir_program("maintain", people, "--horizon", "0s", "--version-retention", "0s")
    assert len(lance.dataset(people).versions()) == 1
    for every in ("soon", "0s"):
        assert weir_program("maintain", people, "--every", every).code == 2


def test_maintain_looks_after_a_database(tmp_path: Path, weir_program: Run) -> None:
    """Every table that has a write spec, with what writers have left that take no lease."""
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])
    rows = pa.Table.from_pylist([{"id": 1, "name": "Ada"}], schema)
    lance.write_dataset(rows, tmp_path / "plain.lance")
    first = weir.create(tmp_path / "first.lance", schema, primary_key="id")
    with first.writer() as writer:
        writer.upsert(rows)
    (shard,) = first.status().shards
    dataset = lance.dataset(first.uri)
    theirs = dataset.mem_wal_writer(str(shard.shard_id), max_wal_flush_interval_ms=1)
    try:
        theirs.put(pa.Table.from_pylist([{"id": 2, "name": "Grace"}], schema))
        said = [json.loads(line) for line in weir_program("maintain", tmp_path, "--json").lines]
        assert [(one["table"], one["merge"]["rows_upserted"]) for one in said] == [("first", 1)]
        assert first.status().unflushed_rows == 1
        weir.create(tmp_path / "second.lance", schema, primary_key="id")
        said = weir_program("maintain", tmp_path, "--quiet-for", "0s").lines
        assert [line.split(",")[0] for line in said] == [
            "first: 1 generation merged",
            "second: 0 generations merged",
        ]
        assert weir.open(first.uri).status().base_rows == 2
    finally:
        with suppress(OSError, RuntimeError):
            theirs.close()


@pytest.mark.one_in(2)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_maintain_goes_on_until_a_signal(people: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-m", "weir.cli.main", "maintain", str(people), "--every", "10ms", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        rounds = [json.loads(process.stdout.readline()) for _ in range(3)]
        process.send_signal(number)
        rest = process.stdout.read()
        assert process.wait() == 0
        assert process.stderr.read() == ""
    assert [one["merge"]["rows_upserted"] for one in rounds] == [3, 0, 0]
    # The round that was under way is finished, and its line is whole.
    assert all(json.loads(line) for line in rest.splitlines())


def test_maintain_goes_on_with_a_backup_that_is_put_in_the_place_of_the_table(
    people: Path, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "weir.cli.main", "maintain", str(people), "--every", "300ms", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.send_signal(signal.SIGSTOP)
        backup = shutil.copytree(people, tmp_path / "backup")
        # What a round writes there needs a directory, and that is not made in another table's place.
        shutil.rmtree(backup / "_weir")
        people.rename(tmp_path / "former")
        backup.rename(people)
        with weir.open(people, engine=weir.Engine(maintenance="off")).writer() as writer:
            writer.delete([1])
        process.send_signal(signal.SIGCONT)
        # The round that meets it fails, and says so; the next one opens the table that is there now.
        assert json.loads(process.stdout.readline())["garbage"]
        process.send_signal(signal.SIGTERM)
        process.stdout.read()
        assert process.wait() == 0
        assert process.stderr.read().count("error: the directory was removed or moved") == 1
    assert weir.open(people).status().base_rows == 2


def test_repair_says_what_it_would_do(people: Path, weir_program: Run) -> None:
    assert weir_program("repair", people).out == "nothing to repair\n"
    assert json.loads(weir_program("repair", people, "--dry-run", "--json").out)["repairs"] == []
    assert weir_program("repair", people, "--prefer", "me").code == 2
