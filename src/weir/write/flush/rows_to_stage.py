"""Collecting rows of many shards for staged generations, with few in memory and each shard's together."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from weir.sharding.router import Router
from weir.sharding.shard_values import ShardValues

__all__ = ["RowsToStage"]

_MAX_HELD_BYTES = 128 * 1024 * 1024
"""How many bytes of rows are held before those of the shard that has most are staged."""

_ROUTED_TOGETHER_BYTES = 16 * 1024 * 1024
"""How many bytes of rows are split by shard at once: some thousand rows come at a time, and a generation of
as many pieces takes half as long again to write."""


class RowsToStage:
    """Splits rows by shard and holds them, up to a size.

    Parameters
    ----------
    router : Router
        Splits rows by shard.
    stage : callable
        Stages rows of one shard, which then leave the buffer.
    """

    def __init__(self, router: Router, stage: Callable[[ShardValues, pa.Table], None]) -> None:
        self._router = router
        self._stage = stage
        self._unrouted: list[pa.Table] = []
        self._unrouted_bytes = 0
        self._held: dict[ShardValues, list[pa.Table]] = {}
        self._nbytes: dict[ShardValues, int] = {}

    def add(self, rows: pa.Table) -> None:
        """Take rows in the schema of log entries."""
        self._unrouted.append(rows)
        self._unrouted_bytes += rows.nbytes
        held = self._unrouted_bytes + sum(self._nbytes.values())
        if self._unrouted_bytes >= _ROUTED_TOGETHER_BYTES or held > _MAX_HELD_BYTES:
            self._route()
        while sum(self._nbytes.values()) > _MAX_HELD_BYTES:
            shard = max(self._nbytes, key=self._nbytes.__getitem__)
            self._stage(shard, self.take(shard))

    def held(self) -> dict[ShardValues, int]:
        """Return how many bytes of rows of every shard are held, those with few first."""
        if self._unrouted:
            self._route()
        return dict(sorted(self._nbytes.items(), key=lambda one: one[1]))

    def take(self, shard: ShardValues) -> pa.Table:
        """Return the buffered rows of a shard, and remove them."""
        self._nbytes.pop(shard)
        return pa.concat_tables(self._held.pop(shard))

    def _route(self) -> None:
        rows = pa.concat_tables(self._unrouted)
        self._unrouted, self._unrouted_bytes = [], 0
        for shard, own in self._router.route(rows.combine_chunks()):
            self._held.setdefault(shard, []).append(own)
            self._nbytes[shard] = self._nbytes.get(shard, 0) + own.nbytes
