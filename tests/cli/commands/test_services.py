"""Commands that keep a table in order."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cli.conftest import Run


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
