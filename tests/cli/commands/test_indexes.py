"""The commands of ``weir index``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.cli.conftest import Run

import weir

_MORE = b"id,name,born\n4,Edsger,1930-05-11\n5,Barbara,1939-11-07\n"


def _indexes(run: Run, uri: Path) -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in json.loads(run("index", "list", uri, "--json").out)["indexes"]}


def test_an_index_is_created_listed_extended_and_dropped(people: Path, weir_program: Run) -> None:
    weir_program("merge", people)
    created = weir_program("index", "create", people, "name", "--kind", "bitmap")
    assert (created.code, created.out) == (0, "built name_idx: BITMAP on name\n")
    assert _indexes(weir_program, people)["name_idx"]["unindexed_rows"] == 0

    weir_program("ingest", people, "-", "--format", "csv", "--merge", stdin=_MORE)
    behind = _indexes(weir_program, people)["name_idx"]
    assert (behind["kind"], behind["column"], behind["is_maintained"]) == ("BITMAP", "name", True)
    assert (behind["rows"], behind["unindexed_rows"]) == (3, 2)
    assert sum(behind["behind"].values()) > 0
    listed = weir_program("index", "list", people).lines
    assert listed[0].split() == [
        *("index", "kind", "column", "maintained", "segments", "rows", "unindexed", "behind")
    ]
    assert listed[2].split()[:7] == ["name_idx", "BITMAP", "name", "yes", "1", "3", "2"]
    assert "name_idx" in weir_program("status", people).out

    extended = json.loads(weir_program("index", "catch-up", people, "name_idx", "--json").out)
    assert [(one["name"], one["action"]) for one in extended["indexes"]] == [("name_idx", "extended")]
    assert weir_program("index", "catch-up", people).lines[:-1] == [
        "id_idx: nothing to do; 2 segments",
        "name_idx: nothing to do; 2 segments",
    ]
    caught_up = _indexes(weir_program, people)["name_idx"]
    assert (caught_up["unindexed_rows"], caught_up["behind"]) == (0, {})

    assert weir_program("index", "drop", people, "name_idx").out == "dropped name_idx\n"
    assert sorted(_indexes(weir_program, people)) == ["id_idx"]


def test_parameters_and_names_reach_the_index(people: Path, weir_program: Run) -> None:
    weir_program("merge", people)
    arguments = ("index", "create", people, "name", "--kind", "INVERTED", "--name", "words")
    built = weir_program(*arguments, "--param", "with_position=true", "--param", "stem=false", "--json")
    assert json.loads(built.out) == {
        "built": [
            {
                "name": "words",
                "kind": "INVERTED",
                "column": "name",
                "parameters": json.loads(built.out)["built"][0]["parameters"],
            }
        ]
    }
    assert json.loads(built.out)["built"][0]["parameters"]["stem"] is False
    refused = weir_program(*arguments)
    assert refused.code == 2
    assert "has an index" in refused.err
    assert weir_program(*arguments, "--replace").code == 0
    for wrong in ("nonsense=1", "no-value"):
        answer = weir_program("index", "create", people, "born", "--param", wrong)
        assert answer.code == 2
        assert answer.err.startswith("error: ")
    assert sorted(_indexes(weir_program, people)) == ["id_idx", "words"]


def test_auto_builds_what_the_policy_says_once(people: Path, weir_program: Run) -> None:
    weir_program("merge", people)
    arguments = ("index", "auto", people, "--enumerations", "name", "--rows-per-zone", "100", "--json")
    built = json.loads(weir_program(*arguments).out)["built"]
    assert [(one["column"], one["kind"]) for one in built] == [("name", "BITMAP"), ("born", "BTREE")]
    assert json.loads(weir_program(*arguments).out) == {"built": []}
    assert "has every index" in weir_program(*arguments[:-1]).out
    assert len(weir.open(people).indexes.list()) == 3
    assert weir_program("index", "auto", people, "--text", "nowhere").code == 2


def test_what_there_is_not_is_refused(people: Path, weir_program: Run) -> None:
    for arguments in (
        ("drop", people, "nothing"),
        ("drop", people, "id_idx"),
        ("catch-up", people, "nothing"),
        ("catch-up", people, "--retrain-threshold", "0.5"),
        ("create", people, "nothing"),
        ("create", people, "name", "--kind", "nonsense"),
    ):
        answer = weir_program("index", *arguments)
        assert (answer.code, answer.out) == (2, "")
        assert answer.err.startswith("error: ")
    alone = weir_program("index")
    assert alone.code == 0
    for command in ("create", "auto", "list", "drop", "catch-up"):
        assert f"  {command} " in alone.out
