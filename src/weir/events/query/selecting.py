"""Selecting events by conditions that a scan decides: where few are left, other columns are read of these.

Bitmaps know which events have a value. What they leave is looked through for conditions on numbers by the
columns of these. With all conditions in the scan it would read those again that the bitmaps have decided.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
from datafusion import col
from numpy.typing import NDArray

from weir.events.language import tree
from weir.events.query.conditions import condition_of, fields_of_condition
from weir.events.query.planner import EVERYTHING, QueryPlan
from weir.events.query.reading import StepsRead
from weir.events.query.sessions import frame_of
from weir.events.visibility import all_of

__all__ = ["few_rows", "is_selection"]

_MOST_ROWS = 10_000
"""Rows that are worth being read one by one."""
_MOST_CANDIDATES = 200_000
"""Rows of which a few columns are read sooner than zones are looked at that may leave some away."""
_NUMBER = "number"
_COUNT_BYTES = 1024
_BY_BITMAP = ("enum", "bool")
_BY_ZONES = ("int", "float")


def is_selection(plan: QueryPlan) -> bool:
    """Whether all that is asked is which events a scan finds, in the order of their ids."""
    return (
        plan.grouping is None
        and not plan.order
        and plan.query.limit is None
        and not plan.query.offset
        and plan.window == EVERYTHING
        and any(plan.conditions)
        and plan.read.is_decided_by_scan
    )


def few_rows(plan: QueryPlan) -> pa.Table | None:
    """Return the rows of a selection in the order of their ids, by internal names; None if they are many."""
    (step,) = plan.read.steps
    later = _conditions_of(plan, _BY_ZONES)
    exact = replace(step, conditions=tuple(one for one in step.conditions if one not in later))
    is_counted = False
    if later and _conditions_of(plan, _BY_BITMAP):
        candidates, is_counted = _candidates(replace(plan.read, steps=(exact,)))
        if candidates > _MOST_CANDIDATES:
            exact, later = step, ()
    else:
        exact, later = step, ()
    wanted = {plan.scope.get(field).internal for one in later for field in fields_of_condition(one)}
    narrow = replace(
        plan.read,
        steps=(replace(step, columns=tuple(one for one in step.columns if one.internal in wanted)),),
    )

    def choose(rows: pa.Table) -> NDArray[np.int64]:
        found: NDArray[np.int64] = np.arange(rows.num_rows)
        if later:
            (named,) = narrow.named(rows)
            frame = frame_of(named.append_column(_NUMBER, pa.array(found)))
            condition = all_of(
                condition_of(one, plan.scope, lambda column: col(column.internal)) for one in later
            )
            assert condition is not None
            found = np.sort(
                frame.filter(condition).select(col(_NUMBER)).to_arrow_table().column(0).to_numpy()
            )
        if len(found) > _MOST_ROWS:
            raise _TooManyError
        return found

    try:
        scan = replace(plan.read, steps=(exact,)).scan(recent=is_counted)
        rows = scan.chosen(narrow.column_names, choose)
    except _TooManyError:
        return None
    (events,) = plan.read.named(rows)
    ids = events.column(plan.scope.core(0)[0].internal).to_numpy()
    return events.take(pa.array(np.argsort(ids)))


def _candidates(read: StepsRead) -> tuple[int, bool]:
    """Return about how many events a read finds, and whether a snapshot was taken to count them.

    It decides how they are read, and not which: of a version of the base table they are counted once.
    """
    (step,) = read.steps
    asked = (step.type.name, step.conditions, read.bounds)
    base = read.table.internals.base
    known = base.engine.cache.get(("candidates", base.namespace, base.version_key, *asked))
    if isinstance(known, int):
        return known, False
    counted = read.scan().count()
    # The newest version, which the count has looked for.
    base = read.table.internals.base
    key = ("candidates", base.namespace, base.version_key, *asked)
    base.engine.cache.put(key, counted, _COUNT_BYTES, base.lifetime)
    return counted, True


def _conditions_of(plan: QueryPlan, kinds: tuple[str, ...]) -> tuple[tree.Condition, ...]:
    """Return the conditions that are on fields of some kinds alone."""
    return tuple(
        one
        for one in plan.read.steps[0].conditions
        if all(plan.scope.get(field).type.kind in kinds for field in fields_of_condition(one))
    )


class _TooManyError(Exception):
    """More rows than are worth being read one by one."""
