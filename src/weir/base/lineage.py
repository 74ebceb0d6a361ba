"""The history of a table that this process follows: a new one once a backup was restored in its place.

Objects never change under their names, and that is what caches rely on. A backup that is put in the place of
a table breaks it: what comes after the moment it was taken has the names of before, and other contents.
Nothing can be trusted then that was remembered of the table, so from the moment that a process notices,
everything is remembered under another lineage, which is part of every cache key.
"""

from __future__ import annotations

import threading

__all__ = ["begin_another", "lineage_of", "lineages", "namespace_of"]

lineages: dict[str, int] = {}
"""The number of the followed history of each table that had more than one."""
_lock = threading.Lock()


def lineage_of(table: str) -> int:
    """Return the number of the table's history that this process follows, from 0.

    Parameters
    ----------
    table : str
        Identity and location of the table.
    """
    return lineages.get(table, 0)


def namespace_of(table: str) -> str:
    """Return what identifies the objects of a table in this process, for caches; each history has its own.

    Parameters
    ----------
    table : str
        Identity and location of the table.

    Examples
    --------
    >>> namespace_of("flights /data/flights")
    'flights /data/flights'
    """
    number = lineage_of(table)
    return f"{table} {number}" if number else table


def begin_another(table: str, seen: int) -> None:
    """Go by another history from now on, unless another thread has noticed since ``seen`` was current.

    Examples
    --------
    >>> begin_another("example", lineage_of("example"))
    >>> lineage_of("example")
    1
    """
    with _lock:
        if lineages.get(table, 0) == seen:
            lineages[table] = seen + 1
