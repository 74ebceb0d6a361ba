"""What errors advise at the command line: its own commands and options, and no Python."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.conftest import Run

import weir
from weir.cli.advice import advice_for_shell, error_for_shell
from weir.errors import OptionError

_SOURCE = Path(weir.__file__).parent
_PYTHON = re.compile(
    r"\b(?:table|writer|store|feed)\.[a-z_]+|\bweir\.[a-zA-Z]+|\b[a-z_]+=(?:True|\.\.\.)"
    r"|\b(?:changes|count|get|merge|repair|scan|snapshot|writer)\(\)"
)
# What these packages advise reaches no command line, or is advice on calls that it does not have.
_OTHERS = ("namespaces", "service", "spark", "demo", "format", "storage")
_PYTHON_ALONE = {
    # Arguments of Python's own: merge engines, patches, lists of operations and queries.
    "base/merge_engine.py",
    "rows/coerce.py",
    "search/text/query.py",
    "sharding/shard_by.py",
    "sharding/spec.py",
    "events/store.py",
    "events/writer.py",
    "write/columns.py",
    "write/table_writer.py",
}


def _hints() -> Iterator[tuple[str, str]]:
    """Yield every text that stands where an error takes its hint, with its place."""
    for path in sorted(_SOURCE.rglob("*.py")):
        place = path.relative_to(_SOURCE)
        if place.parts[0] in _OTHERS or place.as_posix() in _PYTHON_ALONE:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.keyword) and node.arg == "hint":
                yield f"{place}:{node.value.lineno}", _text(node.value)
            elif isinstance(node, ast.Assign) and any("HINT" in ast.unparse(one) for one in node.targets):
                yield f"{place}:{node.lineno}", _text(node.value)


def _text(value: ast.expr) -> str:
    """Return the constant parts of a text, and something for the others."""
    if isinstance(value, ast.JoinedStr):
        return "".join(_text(one) for one in value.values)
    if isinstance(value, ast.FormattedValue):
        return "x"
    if isinstance(value, ast.BinOp):
        return _text(value.left) + _text(value.right)
    if isinstance(value, ast.IfExp):
        return f"{_text(value.body)} {_text(value.orelse)}"
    return value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else ""


def test_no_hint_of_the_library_is_left_in_python() -> None:
    hints = list(_hints())
    assert len([text for _, text in hints if _PYTHON.search(text)]) > 15
    left = {place: said for place, text in hints if _PYTHON.search(said := advice_for_shell(text))}
    assert left == {}


@pytest.mark.parametrize(
    ("advice", "said"),
    [
        (
            'Create one: table.indexes.create("text", "INVERTED")',
            "Create one: weir index create URI text --kind INVERTED",
        ),
        (
            'Rebuild it: table.indexes.create("text", "INVERTED", with_position=True)',
            "Rebuild it: weir index create URI text --kind INVERTED --param with_position=true",
        ),
        (
            'Drop all but one, such as table.indexes.drop("text_idx")',
            "Drop all but one, such as weir index drop URI text_idx",
        ),
        (
            "Join them: weir repair, or table.maintenance.repair()",
            "Join them: weir repair",
        ),
        (
            "If it is a clone: weir repair --as-clone, or repair(as_clone=True).",
            "If it is a clone: weir repair --as-clone.",
        ),
        (
            "Pass a token of table.snapshot(), or of a feed that began at one",
            "Pass a token of weir snapshot, or of weir changes that began at one",
        ),
        (
            "Create it with weir.create, or check the location",
            "Create it with weir create, or check the location",
        ),
    ],
)
def test_advice(advice: str, said: str) -> None:
    assert advice_for_shell(advice) == said


def test_options_are_named_as_they_are_typed() -> None:
    error = OptionError("version_retention must be at least horizon", where="version_retention")
    assert error_for_shell(error, ["horizon", "version-retention"]) == (
        "--version-retention must be at least horizon [--version-retention]"
    )
    assert error_for_shell(error, []) == str(error)


def test_a_table_that_is_not_there(tmp_path: Path, weir_program: Run) -> None:
    answer = weir_program("scan", tmp_path / "none")
    assert answer.code == 2
    assert "weir create" in answer.err
    assert "weir.create" not in answer.err


def test_a_shard_that_another_writer_holds(tmp_path: Path, weir_program: Run) -> None:
    # Of one engine they would share the shard.
    table = weir.create(tmp_path / "t", [{"id": 1}], primary_key="id", fsync=False, engine=weir.Engine())
    (tmp_path / "rows.jsonl").write_text('{"id": 2}\n')
    with table.writer() as writer:
        writer.upsert([{"id": 3}])
        held = weir_program("ingest", tmp_path / "t", tmp_path / "rows.jsonl", "--no-fsync")
        assert held.code == 2
        assert "weir ingest --takeover" in held.err
        assert "table." not in held.err
        waited = weir_program(
            "ingest", tmp_path / "t", tmp_path / "rows.jsonl", "--wait", "200ms", "--no-fsync"
        )
        assert waited.code == 2
        taken = weir_program("ingest", tmp_path / "t", tmp_path / "rows.jsonl", "--takeover", "--no-fsync")
        assert taken.code == 0, taken.err
        with pytest.raises(weir.errors.FencedError):
            writer.upsert([{"id": 4}])
    assert table.scan().count() == 3
