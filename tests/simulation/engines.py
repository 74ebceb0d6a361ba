"""What the versions of a key come to under the merge engines of a simulation, one after the other."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence

from weir.format.merge_engine import EngineKind, MergeEngine

__all__ = ["Combine", "Row", "State", "combining", "folded", "state_after"]

State = dict[int, int]
Row = tuple[int, int, bool]
"""Key, value, and whether it is a delete."""
Combine = Callable[[int, int], int]
"""Makes one value of an older and a newer one."""

_FUNCTIONS: Mapping[str, Combine] = {"sum": operator.add, "max": max}


def combining(engine: MergeEngine | None) -> Combine:
    """Return what an engine makes of two values; without one, the newer."""
    if engine is None:
        return lambda _, new: new
    if engine.kind is EngineKind.FIRST_ROW:
        return lambda old, _: old
    ((_, function),) = engine.functions
    return _FUNCTIONS[function]


def state_after(state: Mapping[int, int], rows: Sequence[Row], combine: Combine) -> State:
    """Return a state after some rows. What is written after a delete begins anew."""
    changed = dict(state)
    for key, value, dead in rows:
        if dead:
            changed.pop(key, None)
        else:
            changed[key] = combine(changed[key], value) if key in changed else value
    return changed


def folded(rows: Sequence[Row], engine: MergeEngine | None) -> list[Row]:
    """Return the rows of a generation that some rows of the log are flushed to.

    With an engine a delete stays before the row that came after it: what is below is not to count.
    """
    deletes = {key: (key, value, True) for key, value, dead in rows if dead}
    state: State = {}
    last: dict[int, Row] = {}
    for row in rows:
        state = state_after(state, [row], combining(engine))
        last[row[0]] = row
    live = [(key, value, False) for key, value in state.items()]
    if engine is None:
        return [*live, *(row for row in last.values() if row[2])]
    return [*live, *deletes.values()]
