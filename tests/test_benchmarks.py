"""The page of benchmarks: a place for every subject, filled as it was measured."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.context import Result
from benchmarks.environment import Environment
from benchmarks.harness import Case, Measurement, Sense, Target
from benchmarks.page import page_with_figures, places
from benchmarks.subjects import NAMES

PAGE = Path(__file__).resolve().parent.parent / "docs/benchmarks.md"
LAST = "<!-- measured: two -->\nas it was\n<!-- /measured -->\n"
EMPTY = f"# A page\n\n<!-- measured: one -->\n<!-- /measured -->\n\n{LAST}"


def _result(subject: str, *, times: float) -> Result:
    """Return a result of a work for which a peer takes so many times as long."""
    measured = (Measurement("weir", ((0.002, 0.002),)), Measurement("peer", ((0.002 * times,),)))
    case = Case(subject, "a put", measured, (Target("weir", Sense.FASTER, 2, ("peer",)),), rows_per_call=10)
    return Result(subject, "puts of ten rows", ("both: fsync off",), (case,))


def test_every_subject_has_a_place() -> None:
    assert sorted(places(PAGE.read_text(encoding="utf-8"))) == sorted(NAMES)


def test_figures_come_to_their_place_and_stay_nowhere_else(tmp_path: Path) -> None:
    environment = Environment.of(tmp_path)
    once = page_with_figures(EMPTY, environment, _result("one", times=1.5))
    target = "at least 2 times faster than peer: **missed**"
    assert f"| a put | weir | 2 | 2 | 5,000 | 1.50 | 1.50 to 1.50 | {target} |" in once
    assert "|  | peer | 3 | 3 | 3,333 |  |  |  |" in once
    assert "- both: fsync off\n" in once
    assert once.endswith(LAST)

    again = page_with_figures(once, environment, _result("one", times=3))
    assert again.count("| a put |") == 1
    assert "missed" not in again


def test_a_subject_without_a_place_is_named(tmp_path: Path) -> None:
    with pytest.raises(LookupError, match="no place for three:"):
        page_with_figures(EMPTY, Environment.of(tmp_path), _result("three", times=1))
