"""The newest version of a table seen in this process, perhaps with other columns than before.

A long-running writer uses the columns it started with, and should not ask the store before each write whether
they are current. Code that alters them, opens the table, or reads and finds them altered, reports it here.
"""

from __future__ import annotations

from weir.base.table import BaseTable

__all__ = ["SeenVersion", "saw", "seen"]


class SeenVersion:
    """The newest version of a table reported to :func:`saw`; 0 if there is none."""

    __slots__ = ("version",)

    def __init__(self) -> None:
        self.version = 0


_seen: dict[str, SeenVersion] = {}


def saw(base: BaseTable) -> None:
    """Report a version whose columns may differ from those that a writer uses."""
    known = seen(base)
    known.version = max(known.version, base.version)


def seen(base: BaseTable) -> SeenVersion:
    """Return the record that :func:`saw` updates for a table, to check before each write."""
    return _seen.setdefault(base.namespace, SeenVersion())
