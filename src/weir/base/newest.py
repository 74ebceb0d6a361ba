"""Which version of a table somebody in this process has seen, perhaps with other columns than before.

Whoever writes for long goes by the columns it has begun with, and is not to ask the store before each write
whether they are still those. Whoever alters them, opens the table, or reads and finds them altered, says so.
"""

from __future__ import annotations

from weir.base.table import BaseTable

__all__ = ["newest_seen", "saw"]

_seen: dict[str, int] = {}


def saw(base: BaseTable) -> None:
    """Tell this process of a version whose columns may be others than those that a writer goes by."""
    if base.version > _seen.get(base.namespace, 0):
        _seen[base.namespace] = base.version


def newest_seen(base: BaseTable) -> int:
    """Return the newest version of a table that :func:`saw` has been told of; 0 if there is none."""
    return _seen.get(base.namespace, 0)
