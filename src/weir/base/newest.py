"""The newest version of a table seen in this process, perhaps with other columns than before.

Whoever writes for long goes by the columns it has begun with, and is not to ask the store before each write
whether they are still those. Whoever alters them, opens the table, or reads and finds them altered, says so.
"""

from __future__ import annotations

from weir.base.table import BaseTable

__all__ = ["SeenVersion", "saw", "seen"]


class SeenVersion:
    """The newest version of a table that :func:`saw` has been told of; 0 if there is none."""

    __slots__ = ("version",)

    def __init__(self) -> None:
        self.version = 0


_seen: dict[str, SeenVersion] = {}


def saw(base: BaseTable) -> None:
    """Tell this process of a version whose columns may be others than those that a writer goes by."""
    known = seen(base)
    known.version = max(known.version, base.version)


def seen(base: BaseTable) -> SeenVersion:
    """Return what :func:`saw` keeps up to date for a table, to be looked at before each write."""
    return _seen.setdefault(base.namespace, SeenVersion())
