"""Both ways of merging: by tasks of Weir's, and by the library."""

from __future__ import annotations

import pytest

import weir.merge.commit

LIBRARY_PLACES = ("merge.before_deletes", "merge.between_passes")
TASKS_PLACES = (
    "merge.before_rows",
    "merge.after_rows",
    "merge.between_waves",
    "merge.before_deletions",
    "merge.after_deletions",
)


@pytest.fixture(params=["tasks", "library"])
def merged_by(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Have everything merged one way, then the other; the ways of tests that name a place in one."""
    place = request.node.callspec.params.get("place")
    by: str = request.param
    if place in (LIBRARY_PLACES if by == "tasks" else TASKS_PLACES):
        pytest.skip("the other way of merging comes by there")
    monkeypatch.setattr(weir.merge.commit, "merges_in_waves", lambda base: by == "tasks")
    return by
