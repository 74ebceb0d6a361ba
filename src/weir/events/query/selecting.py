"""Selects events by the conditions a scan can decide; if few are left, other columns are read for these only.

Bitmaps give the events with a value. The columns of numeric conditions are then read for the remaining events
only. With all conditions in one scan, columns that the bitmaps have decided would be read again.
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
"""Largest number of rows to read one by one."""
_MOST_CANDIDATES = 200_000
"""Number of rows up to which reading a few columns is faster than checking zones."""
_NUMBER = "number"
_COUNT_BYTES = 1024
_BY_BITMAP = ("enum", "bool")
_BY_ZONES = ("int", "float")


def is_selection(plan: QueryPlan) -> bool:
    """Whether the query only selects the events of a scan, in id order."""
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
    """Return the rows of a selection in id order, with internal names; None if they are many."""
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
    """Return the approximate number of events a read finds, and whether a snapshot was taken to count them.

    It only decides how they are read, so events of a base table version are counted once.
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
    """Return the conditions that use only fields of some kinds."""
    return tuple(
        one
        for one in plan.read.steps[0].conditions
        if all(plan.scope.get(field).type.kind in kinds for field in fields_of_condition(one))
    )


class _TooManyError(Exception):
    """There are too many rows to read one by one."""
