"""Both ways of merging: by tasks of Weir's, and by the library."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

import weir.merge.commit
from weir.base.table import BaseTable
from weir.engine.runner import ThreadRunner
from weir.merge.plan import MergeTask
from weir.merge.result import MergeResult
from weir.merge.waves import merge_in_waves

LIBRARY_PLACES = ("merge.before_deletes", "merge.between_passes")
TASKS_PLACES = (
    "merge.before_rows",
    "merge.after_rows",
    "merge.between_waves",
    "merge.before_deletions",
    "merge.after_deletions",
)


def in_waves(tasks: Sequence[MergeTask], base: BaseTable, *, is_newest: bool = False) -> MergeResult:
    """Merge by tasks on threads of this process."""
    return merge_in_waves(tasks, base, ThreadRunner())


@pytest.fixture(params=["tasks", "library"])
def merged_by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Have everything merged one way, then the other; the ways of tests that name a place in one."""
    place = request.node.callspec.params.get("place")
    by: str = request.param
    if place in (LIBRARY_PLACES if by == "tasks" else TASKS_PLACES):
        pytest.skip("the other way of merging comes by there")
    if by == "tasks":
        monkeypatch.setattr(weir.merge.commit, "merge_by_library", in_waves)
    return by
