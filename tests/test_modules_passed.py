"""The lists of modules in ``docs/architecture.md`` are what a call passes."""

from __future__ import annotations

from difflib import SequenceMatcher

import pytest
from docs.modules_passed import PAGE, lists_in, modules_passed

# What goes by the clock, such as a look at the manifest now and then, may come in between; and who moves a
# function is not to be held up by a list.
_PART_THAT_MAY_DIFFER = 0.25

_LISTED = lists_in(PAGE.read_text(encoding="utf-8"))


def test_every_call_has_its_list() -> None:
    assert list(_LISTED) == ["write", "scan", "search", "merge"]


@pytest.mark.parametrize("call", _LISTED)
def test_a_call_passes_what_is_listed_in_that_order(call: str) -> None:
    listed, seen = _LISTED[call], modules_passed(call)
    in_order = SequenceMatcher(None, listed, seen, autojunk=False).get_matching_blocks()
    same = sum(block.size for block in in_order)
    assert max(len(listed), len(seen)) - same <= _PART_THAT_MAY_DIFFER * len(listed), (
        f"run `python -m docs.modules_passed`: {set(listed) ^ set(seen)}"
    )


@pytest.mark.parametrize(("call", "most"), [("write", 20), ("scan", 27)])
def test_a_call_goes_straight(call: str, most: int) -> None:
    assert len(modules_passed(call)) <= most
