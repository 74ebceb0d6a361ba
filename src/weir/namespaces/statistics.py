"""The size of a namespace, and how much of it waits to be merged and indexed."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

import weir
from weir.namespaces.documents import row_bytes

if TYPE_CHECKING:
    from weir.namespaces.namespace import Namespace

__all__ = ["Statistics", "measure", "statistics_of"]

_SECONDS_KNOWN = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Statistics:
    """What a namespace holds.

    Parameters
    ----------
    rows : int
        Documents, about: what waits to be merged counts as new ones.
    bytes : int
        What they take, about.
    waiting_rows, waiting_bytes : int
        What waits to be merged or indexed.
    unindexed_rows : int
        Rows that no vector index covers.
    updated_at : datetime
        When something was written last.
    """

    rows: int
    bytes: int
    waiting_rows: int
    waiting_bytes: int
    unindexed_rows: int
    updated_at: datetime

    def with_waiting(self, rows: int, bytes: int) -> Statistics:
        """Return the statistics after additional, still unmerged writes."""
        return replace(
            self,
            rows=self.rows + rows,
            bytes=self.bytes + bytes,
            waiting_rows=self.waiting_rows + rows,
            waiting_bytes=self.waiting_bytes + bytes,
            unindexed_rows=self.unindexed_rows + rows,
        )


def measure(table: weir.Table, updated_at: datetime) -> Statistics:
    """Return what a table holds."""
    status = table.status()
    rows = sum(shard.unmerged_rows + shard.unflushed_rows for shard in status.shards)
    waiting = sum(shard.unmerged_bytes + shard.unflushed_bytes for shard in status.shards)
    behind = max((index.unindexed_rows for index in status.indexes), default=0)
    vectors = [index for index in status.indexes if index.kind.startswith("IVF")]
    uncovered = max((index.unindexed_rows for index in vectors), default=status.base_rows)
    each = row_bytes(table.schema)
    return Statistics(
        rows=status.base_rows + rows,
        bytes=(status.base_rows + rows) * each,
        waiting_rows=rows + behind,
        waiting_bytes=waiting + behind * each,
        unindexed_rows=uncovered + rows,
        updated_at=updated_at,
    )


def statistics_of(namespace: Namespace, *, fresh: bool = False) -> Statistics:
    """Return what a namespace holds, as it was two seconds ago or later; or, ``fresh``, as it is.

    Of concurrent callers only one reads: the others get the previous result.
    """
    asked, last = time.monotonic(), namespace.last_opened
    known = None if fresh or last is None else last.statistics
    if known is not None and asked - known[0] <= _SECONDS_KNOWN:
        return known[1]
    opened = namespace.opened()
    known = opened.statistics
    if known is not None and not fresh:
        if asked - known[0] <= _SECONDS_KNOWN or not opened.measuring.acquire(blocking=False):
            return known[1]
    else:
        opened.measuring.acquire()
    try:
        known, now = opened.statistics, time.monotonic()
        if known is not None and known[0] > asked:
            return known[1]
        found = measure(opened.table, opened.updated_at())
        opened.statistics = (now, found)
        return found
    finally:
        opened.measuring.release()
