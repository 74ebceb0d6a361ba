"""``weir inspect`` and ``weir verify`` through the real entry of the program."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.conftest import Run
from tests.storage.s3 import S3Endpoint, s3_endpoint

from weir.format.layout import reversed_name

__all__ = ["s3_endpoint"]


@pytest.fixture
def people(tmp_path: Path, weir_program: Run) -> Path:
    uri = tmp_path / "people"
    weir_program("create", uri, "--schema", "id: int64!, name: string", "--primary-key", "id", "--no-fsync")
    rows = b'{"id": 1, "name": "Ada"}\n{"id": 2, "name": "\x1b[31mred"}\n'.replace(b"\x1b", b"\\u001b")
    assert weir_program("ingest", uri, "-", "--format", "jsonl", "--no-fsync", stdin=rows).code == 0
    return uri


def entry(people: Path, position: int) -> Path:
    (path,) = people.glob(f"_mem_wal/*/wal/{reversed_name(position)}.arrow")
    return path


def test_inspect_prints_a_table_and_its_objects(people: Path, weir_program: Run) -> None:
    overview = weir_program("inspect", people)
    assert overview.code == 0
    assert overview.lines[0] == f"table {people}"
    assert any(line.split()[:2] == ["primary_key", "id"] for line in overview.lines)
    (shard,) = (people / "_mem_wal").iterdir()
    by_name = weir_program("inspect", people, f"{shard.name[:8]}/wal/2", "--rows")
    by_path = weir_program("inspect", entry(people, 2), "--rows")
    assert by_name.code == 0
    assert by_name.out == by_path.out
    assert ["writer_epoch", "1"] in [line.split() for line in by_name.lines]
    assert by_name.lines[-1] == "2 rows"
    assert "\x1b" not in by_name.out


def test_inspect_prints_json(people: Path, weir_program: Run) -> None:
    said = json.loads(weir_program("inspect", entry(people, 2), "--rows", "--json").out)
    assert (said["kind"], said["facts"]["rows"], said["problems"]) == ("WAL entry", 2, [])
    assert said["rows"][0] == {"id": 1, "name": "Ada", "_tombstone": False}
    for what in ("details", "snapshots"):
        assert json.loads(weir_program("inspect", people, what, "--json").out)["problems"] == []


def test_inspect_shows_what_is_left_of_a_broken_object(people: Path, weir_program: Run) -> None:
    path = entry(people, 2)
    path.write_bytes(path.read_bytes()[:-40])
    answer = weir_program("inspect", path)
    assert answer.code == 1
    assert ["writer_epoch", "1"] in [line.split() for line in answer.lines]
    assert answer.err.startswith("error: ")
    assert str(path) in answer.err
    assert len(answer.err.splitlines()) == 1
    said = json.loads(weir_program("inspect", path, "--json").out)
    assert str(path) in said["problems"][0]


def test_inspect_refuses_what_it_does_not_know(people: Path, weir_program: Run) -> None:
    for what in ("nothing", "../people", "/etc/passwd"):
        answer = weir_program("inspect", people, what)
        assert (answer.code, answer.out) == (2, "")
        assert answer.err.startswith("error: ")


def test_verify_says_that_all_is_well(people: Path, weir_program: Run) -> None:
    answer = weir_program("verify", people)
    assert (answer.code, len(answer.lines)) == (0, 1)
    assert answer.out.endswith("0 errors, 0 warnings\n")
    said = json.loads(weir_program("verify", people, "--json", "--skip-base-rows").out)
    assert (said["passed"], said["shards"], said["generations"], said["findings"]) == (True, 1, 1, [])


def test_verify_prints_a_line_for_each_finding_and_fails(people: Path, weir_program: Run) -> None:
    (bloom_filter,) = people.glob("_mem_wal/*/*_gen_1/bloom_filter.bin")
    bloom_filter.unlink()
    warned = weir_program("verify", people)
    assert warned.code == 0
    assert warned.lines[0].startswith("warning bloom_filter.missing: ")
    (page_data,) = people.glob("_mem_wal/*/*_gen_1/_pk_index/page_data.lance")
    page_data.unlink()
    answer = weir_program("verify", people)
    assert answer.code == 1
    assert len(answer.lines) == 3
    assert answer.lines[0].startswith("error key_index.unreadable: ")
    assert answer.lines[0].endswith(f"[{page_data}]")
    assert answer.lines[-1].endswith("1 error, 1 warning")
    said = json.loads(weir_program("verify", people, "--json").out)
    assert [one["check"] for one in said["findings"]] == ["key_index.unreadable", "bloom_filter.missing"]


@pytest.mark.long
def test_both_on_s3(s3_endpoint: S3Endpoint, weir_program: Run) -> None:
    uri = s3_endpoint.new_uri()
    options = [f"--storage-option={name}={value}" for name, value in s3_endpoint.options.items()]
    weir_program("create", uri, "--schema", "id: int64!", "--primary-key", "id", *options)
    assert weir_program("ingest", uri, "-", "--format", "jsonl", *options, stdin=b'{"id": 1}\n').code == 0
    overview = weir_program("inspect", uri, "--json", *options)
    assert overview.code == 0, overview.err
    (shard,) = json.loads(overview.out)["facts"]["shards"]
    path = f"{uri}/_mem_wal/{shard['shard_id']}/lease.json"
    assert json.loads(weir_program("inspect", path, "--json", *options).out)["kind"] == "lease"
    assert weir_program("verify", uri, *options).code == 0
