"""Large batches of events: numbered where they are read, published by the holder of their shards.

The ids of a shard rise in the order of its log, and only its holder knows the last one. Each reader of a part
of a batch, on whatever machine, assigns ids from its own range above all existing ids at the start of the
batch, and stages its rows with them. The holder of the shards keeps those ids if they are still above all ids
in the shard by then, in the order of the parts, and assigns others if not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from weir.events.clock import SHARD_BITS, HybridClock, process_clock
from weir.events.versions import highest_above, shards_of
from weir.sharding.router import Router
from weir.sharding.shard_values import ShardValues
from weir.table.internals import StagedGeneration
from weir.table.table import Table

__all__ = ["TICKS_OF_A_PART", "PartNumbers", "RoutedEvents", "next_tick", "renumbered", "staged_anew"]

TICKS_OF_A_PART = 1 << 20
"""Ids reserved for each part, per shard."""


@dataclass(frozen=True, slots=True)
class RoutedEvents:
    """Events that were checked, numbered and routed.

    Parameters
    ----------
    changes : sequence of (ShardValues, Table)
        Shards whose events go through the log, in the schema of log entries. They get new ids.
    staged : sequence of (ShardValues, sequence of StagedGeneration)
        Shards whose events were staged, in commit order.
    first_tick, end_tick : int or None
        The bounds of the staged ids, if these are in order; otherwise None.
    spec_id : int
        The shard spec that they were routed by.
    """

    changes: Sequence[tuple[ShardValues, pa.Table]]
    staged: Sequence[tuple[ShardValues, Sequence[StagedGeneration]]]
    first_tick: int | None
    end_tick: int
    spec_id: int

    @property
    def shards(self) -> list[ShardValues]:
        """The shards that have events."""
        return [shard for shard, _ in (*self.changes, *self.staged)]

    @property
    def rows(self) -> int:
        """The number of events."""
        of_log = sum(int(table.num_rows) for _, table in self.changes)
        return of_log + sum(one.flushed.physical_rows for _, all_of in self.staged for one in all_of)


def next_tick(table: Table) -> int:
    """Return a tick above those of all existing events."""
    process_clock.observe(highest_above(table, process_clock.now()))
    return process_clock.ticks(1)


class PartNumbers:
    """Assigns ids to the events of one part.

    Parameters
    ----------
    router : Router
        Routes events to shards.
    first_tick : int
        The first tick to use.
    """

    def __init__(self, router: Router, first_tick: int) -> None:
        self._router = router
        self._next = np.full(1 << SHARD_BITS, first_tick, np.int64)

    def take(self, contexts: pa.Array) -> pa.Array:
        """Return ids for the next events, given their contexts."""
        shards, _ = shards_of(self._router, contexts)
        order = np.argsort(shards, kind="stable")
        counts = np.bincount(shards, minlength=len(self._next))
        starts = np.cumsum(counts) - counts
        place = np.empty(len(shards), np.int64)
        place[order] = np.arange(len(shards)) - starts[shards[order]]
        ids = (self._next[shards] + place) << SHARD_BITS | shards
        self._next += counts
        return pa.array(ids)


def renumbered(rows: pa.Table, shard: int, clock: HybridClock) -> pa.Table:
    """Return events of a shard with the next ids, in order."""
    at = rows.schema.get_field_index("event_id")
    first = clock.ticks(rows.num_rows)
    ids = np.arange(first, first + rows.num_rows, dtype=np.int64) << SHARD_BITS | shard
    return rows.set_column(at, rows.schema.field(at), pa.array(ids))


def staged_anew(
    table: Table,
    shard: ShardValues,
    number: int,
    staged: Iterable[StagedGeneration],
    *,
    spec_id: int,
    clock: HybridClock,
) -> list[StagedGeneration]:
    """Stage events again with the next ids, holding one generation in memory at a time."""
    internals = table.internals
    made = []
    for one in staged:
        rows = internals.staged_rows(one).sort_by("event_id")
        made.append(internals.stage(shard, renumbered(rows, number, clock), spec_id=spec_id))
    return made
