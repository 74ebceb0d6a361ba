"""The plans of a snapshot's last scans: one repeated while nothing is written is not planned anew."""

from __future__ import annotations

import re
import threading
from collections.abc import Hashable

from cachetools import LRUCache

from weir.base.table import BaseTable
from weir.read.plan import RowsTask, ScanPlan
from weir.snapshots.snapshot import ReadSnapshot

__all__ = ["RememberedPlans", "can_be_remembered"]

_MOST_PLANS = 16
_MOST_BYTES = 256 << 10
"""Rows from memory that a plan may have: with more it is made again, which takes less than to read them."""

_LONGEST = 4_000
"""Longest filter, in characters, of a plan that is remembered."""

_WORDS = re.compile(r"""'[^']*'|(?:"[^"]*"|`([^`]*)`|([^\W\d]\w*))(\s*\()?""")
"""Texts, and in groups what may be names; the last is there if what follows may be arguments."""
_FIXED_WORDS = frozenset(
    {"and", "between", "escape", "false", "ilike", "in", "is", "like", "not", "null", "or", "true"}
)


class RememberedPlans:
    """The plans of a snapshot that were used last. Safe to use from many threads.

    Held by the snapshot, with which they go.
    """

    def __init__(self) -> None:
        self._plans: LRUCache[Hashable, ScanPlan] = LRUCache(_MOST_PLANS)
        self._lock = threading.Lock()

    @classmethod
    def of(cls, _: ReadSnapshot) -> RememberedPlans:
        """Return those of a snapshot that has none yet."""
        return cls()

    def get(self, key: Hashable) -> ScanPlan | None:
        """Return the plan of a scan, if it is remembered."""
        with self._lock:
            return self._plans.get(key)

    def keep(self, key: Hashable, plan: ScanPlan) -> None:
        """Remember a plan, unless it holds what was looked up or many rows."""
        rows = [task for task in plan.tasks if isinstance(task, RowsTask)]
        if any(task.is_looked_up for task in rows) or sum(task.rows.nbytes for task in rows) > _MOST_BYTES:
            return
        with self._lock:
            self._plans[key] = plan


def can_be_remembered(base: BaseTable, filter: str | None) -> bool:
    """Whether a plan for a filter is the same at every moment.

    Rows may expire, and functions such as ``now()`` change their values: a filter may have columns, literals
    and operators only.
    """
    if base.expiry is not None:
        return False
    if filter is None:
        return True
    if len(filter) > _LONGEST or "--" in filter or "/*" in filter:
        return False
    names = {name.lower() for name in base.schema.names}
    for quoted, word, opened in _WORDS.findall(filter):
        lowered = (quoted or word).lower()
        if lowered in _FIXED_WORDS:
            continue
        if opened or (lowered and lowered not in names):
            return False
    return True
