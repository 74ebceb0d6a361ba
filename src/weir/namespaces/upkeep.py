"""Upkeep of an open namespace: merges, indexes, and what other processes have left."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from weir.errors import FencedError, LeaseHeldError, TableNotFoundError, WeirError
from weir.maintenance.garbage.garbage import DEFAULT_HORIZON
from weir.namespaces.indexes import ensure_indexes
from weir.namespaces.opened import LastUpkeep, Opened

__all__ = ["keep_up", "recover"]


def keep_up(opened: Opened, is_gone: Callable[[], bool]) -> bool:
    """Flush and merge what this process has written, keep the indexes up; return whether it still could.

    Parameters
    ----------
    opened : Opened
        The namespace.
    is_gone : callable
        Whether it was deleted, asked where something failed.

    Raises
    ------
    WeirError
        If a part of it failed. The next call continues.
    """
    dirty_since, opened.dirty_since = opened.dirty_since, None
    try:
        with opened.keeping_up:
            opened.flush()
            opened.table.maintenance.merge()
            ensure_indexes(opened.table, opened.definition)
            opened.table.maintenance.run(version_retention=_retention_that_is_due(opened))
    except TableNotFoundError:
        return False
    except FencedError:
        # Another process writes the namespace now, and looks after it.
        opened.forget_writer()
        return False
    except BaseException as error:
        if isinstance(error, WeirError) and is_gone():
            return False
        opened.dirty_since = dirty_since or time.monotonic()
        opened.last_upkeep = opened.last_upkeep.failed(error)
        raise
    opened.last_upkeep = LastUpkeep("success", datetime.now(UTC))
    return True


def recover(opened: Opened, name: str) -> bool:
    """Recover and merge what a process that is gone has left; return whether there was anything.

    Raises
    ------
    LeaseHeldError
        If what is left is still held.
    """
    status = opened.table.status()
    left = [one for one in status.shards if one.unflushed_rows or one.unmerged_generations]
    if any(one.lease == "held" for one in left):
        raise LeaseHeldError("another process writes the namespace", where=name)
    if not left:
        return False
    opened.table.maintenance.recover()
    ensure_indexes(opened.table, opened.definition)
    opened.table.maintenance.run()
    return True


def _retention_that_is_due(opened: Opened) -> timedelta | None:
    """Return how long to keep former versions; None for most rounds: to remove some lists every file."""
    now = time.monotonic()
    if now - opened.pruned_at < DEFAULT_HORIZON.total_seconds():
        return None
    opened.pruned_at = now
    return DEFAULT_HORIZON
