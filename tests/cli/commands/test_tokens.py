"""Snapshot tokens and the change feed from a shell."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Run

import weir


@pytest.fixture
def people(tmp_path: Path, weir_program: Run) -> Path:
    """A table with two rows in one shard."""
    uri = tmp_path / "people"
    weir_program("create", uri, "--schema", "id: int64!, name: string", "--primary-key", "id", "--no-fsync")
    write(uri, (1, "Ada"), (2, "Grace"))
    return uri


def write(uri: Path, *pairs: tuple[int, str], delete: int | None = None) -> None:
    with weir.open(uri, fsync=False).writer() as writer:
        if pairs:
            writer.upsert([{"id": key, "name": name} for key, name in pairs])
        if delete is not None:
            writer.delete([delete])


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def brief(text: str) -> list[tuple[str, int, str | None]]:
    return [(row["_op"], row["id"], row["name"]) for row in lines(text)]


def test_a_token_shows_what_was_there(people: Path, weir_program: Run) -> None:
    answer = weir_program("snapshot", people)
    (token,) = answer.lines
    assert "1:00:00" in answer.err
    write(people, (1, "Augusta"), (3, "Alan"), delete=2)
    for at, expected in ((("--at", token), ["Ada", "Grace"]), ((), ["Augusta", "Alan"])):
        scanned = weir_program("scan", people, *at, "--json")
        assert [row["name"] for row in sorted(lines(scanned.out), key=lambda row: row["id"])] == expected
        assert weir_program("scan", people, *at, "--count").out == "2\n"
        assert weir_program("scan", people, *at).lines[-1] == "2 rows"
        found = weir_program("get", people, 1, 2, *at, "--json")
        assert [row["name"] for row in lines(found.out)] == (expected if at else expected[:1])
    refused = weir_program("scan", people, "--at", token, "--consistency", "snapshot")
    assert (refused.code, refused.out) == (2, "")
    assert "contradicts" in refused.err
    assert weir_program("scan", people, "--at", token[:-2]).code == 2


def test_a_token_is_kept_for_as_long_as_asked_and_released(people: Path, weir_program: Run) -> None:
    said = lines(weir_program("snapshot", people, "--retain", "2d", "--json").out)[0]
    assert said["retain_seconds"] == 2 * 86400
    assert list(said["shards"].values()) == [2]
    assert len(list(people.glob("_weir/snapshots/*"))) == 1
    released = weir_program("snapshot", people, "--release", said["token"], "--json")
    assert lines(released.out) == [{"released": said["token"]}]
    assert list(people.glob("_weir/snapshots/*")) == []
    loose = weir_program("snapshot", people, "--no-pin")
    assert "until garbage collection passes it" in loose.err
    assert list(people.glob("_weir/snapshots/*")) == []
    assert weir_program("snapshot", people, "--retain", "soon").code == 2


def test_changes_go_on_after_a_token(people: Path, weir_program: Run) -> None:
    first = weir_program("changes", people, "--json")
    assert brief(first.out) == [("upsert", 1, "Ada"), ("upsert", 2, "Grace")]
    token = first.err.split()[-1]
    write(people, (3, "Alan"), delete=1)
    later = weir_program("changes", people, "--since", token, "--before", "--json")
    assert brief(later.out) == [("upsert", 3, "Alan"), ("delete", 1, None)]
    assert [row["_before"] for row in lines(later.out)] == [None, {"id": 1, "name": "Ada"}]
    state = weir_program("snapshot", people).lines[0]
    between = weir_program("changes", people, "--since", token, "--until", state, "--max-rows", 1, "--json")
    assert brief(between.out) == [("upsert", 3, "Alan")]
    rest = weir_program("changes", people, "--since", between.err.split()[-1], "--json")
    assert brief(rest.out) == [("delete", 1, None)]
    assert weir_program("changes", people, "--since", "earliest", "--before", "--json").code == 0


def test_changes_for_people(people: Path, weir_program: Run) -> None:
    write(people, delete=2)
    answer = weir_program("changes", people)
    assert answer.lines[0].split() == ["_op", "_shard", "_position", "_epoch", "id", "name"]
    assert [line.split()[0] for line in answer.lines[1:4]] == ["upsert", "upsert", "delete"]
    assert len(answer.lines[1].split()[1]) == 8
    assert answer.lines[-1] == "3 rows"


def test_a_consumer_goes_on_where_it_was(people: Path, weir_program: Run) -> None:
    assert len(lines(weir_program("changes", people, "--consumer", "c", "--json").out)) == 2
    again = weir_program("changes", people, "--consumer", "c", "--json")
    assert (again.code, again.out, again.err) == (0, "", "")
    write(people, (5, "Edsger"))
    assert brief(weir_program("changes", people, "--consumer", "c", "--json").out) == [
        ("upsert", 5, "Edsger")
    ]
    assert weir_program("changes", people, "--drop-consumer", "c").code == 0
    assert len(lines(weir_program("changes", people, "--consumer", "c", "--json").out)) == 3
    bad = weir_program("changes", people, "--consumer", "../c")
    assert bad.code == 2
    assert "is not the name of a consumer" in bad.err


def test_changes_are_followed_as_they_come(people: Path) -> None:
    """Each is printed before the next is written, so nothing waits in a buffer."""
    command = "import sys; from weir.cli.main import main; main()"
    options = ["--follow", "--poll", "10ms", "--timeout", "20s", "--consumer", "tail", "--json"]
    arguments = [sys.executable, "-c", command, "changes", str(people), *options]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            names = [json.loads(process.stdout.readline())["name"] for _ in range(2)]
            for name in ("Barbara", "Donald"):
                write(people, (7, name))
                names.append(json.loads(process.stdout.readline())["name"])
            assert names == ["Ada", "Grace", "Barbara", "Donald"]
        finally:
            process.kill()


def test_following_ends_when_nothing_has_come_for_long_enough(people: Path, weir_program: Run) -> None:
    answer = weir_program("changes", people, "--follow", "--poll", "5ms", "--timeout", "30ms", "--json")
    assert len(lines(answer.out)) == 2
    assert weir_program("changes", people, "--timeout", "1s").code == 2


def test_tags_from_a_shell(people: Path, weir_program: Run) -> None:
    made = weir_program("snapshot", people, "--tag", "before-import")
    assert made.lines == ["tagged before-import: version 3 of the base table"]
    assert "--drop-tag before-import" in made.err
    write(people, (1, "Augusta"), (3, "Alan"), delete=2)
    assert weir_program("scan", people, "--count", "--at", "before-import").out == "2\n"
    assert len(brief(weir_program("changes", people, "--since", "before-import", "--json").out)) == 3
    token = weir_program("snapshot", people).lines[0]
    assert (
        lines(weir_program("snapshot", people, "--tag", "later", "--at", token, "--json").out)[0]["tag"]
        == "later"
    )
    listed = weir_program("snapshot", people, "--list")
    assert listed.lines[0].split() == ["tag", "base", "version", "made"]
    assert [line.split()[0] for line in listed.lines[1:3]] == ["before-import", "later"]
    assert token in listed.lines[3]
    (said,) = lines(weir_program("snapshot", people, "--list", "--json").out)
    assert [one["tag"] for one in said["tags"]] == ["before-import", "later"]
    assert [one["token"] for one in said["snapshots"]] == [token]
    assert "tag" in weir_program("inspect", people, "tag/later").out
    again = weir_program("snapshot", people, "--tag", "later")
    assert again.code != 0
    assert "already" in again.err
    assert weir_program("snapshot", people, "--drop-tag", "later").code == 0
    assert weir_program("scan", people, "--at", "later").code != 0
    assert weir_program("snapshot", people, "--tag", "x", "--list").code == 2
    assert weir_program("snapshot", people, "--at", token).code == 2
