"""What a table writer goes by for as long as its table is sharded by one rule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from weir.errors import InputError
from weir.format.source import Source
from weir.sharding.shard_values import ShardValues
from weir.write.columns import FollowedColumns
from weir.write.decision.operation import Operation, Undecided
from weir.write.decision.prepare import routed_by_shard
from weir.write.former_shards import FormerShards
from weir.write.shard_pool import ShardPool

__all__ = ["PartsAfter", "Routed", "WriterParts", "one_batch"]

Routed = tuple[ShardValues, pa.RecordBatch | Undecided]


@dataclass(frozen=True, slots=True)
class WriterParts:
    """The rule, and what follows from it.

    Parameters
    ----------
    spec_id : int
        The shard spec.
    columns : FollowedColumns
        The table's columns, its primary key, and what splits its rows by shard.
    shards : ShardPool
        The shards that were claimed.
    former : FormerShards
        Those of former rules.
    """

    spec_id: int
    columns: FollowedColumns
    shards: ShardPool
    former: FormerShards

    def rerouted(self, writes: Sequence[Routed], *, whole: bool) -> list[Routed]:
        """Return writes that were split by a former rule, split by this one.

        Parameters
        ----------
        writes : sequence of (ShardValues, RecordBatch or Undecided)
            In the order in which they count.
        whole : bool
            Whether the rows of a shard have to be in one batch.
        """
        columns = self.columns.current()
        batches = [write for _, write in writes if isinstance(write, pa.RecordBatch)]
        undecided = [write for _, write in writes if isinstance(write, Undecided)]
        if whole and batches:
            routed: list[Routed] = [
                one_batch(item) for item in columns.router.route(pa.Table.from_batches(batches))
            ]
        else:
            routed = [item for batch in batches for item in columns.router.route(batch)]
        operations: dict[ShardValues, list[Operation]] = {}
        for write in undecided:
            for operation in write.operations:
                routed_by_shard(operation, columns, operations)
        routed += [
            (values, Undecided(tuple(own), undecided[0].schema, undecided[0].all_or_nothing))
            for values, own in operations.items()
        ]
        return routed

    def not_done(self, writes: Sequence[Routed], source: Source) -> list[Routed]:
        """Return what is left of a repeatable write: without the rows that former shards have of it."""
        left: list[Routed] = []
        for values, write in writes:
            if isinstance(write, Undecided):
                operations = tuple(
                    operation.with_rows(rows)
                    for operation in write.operations
                    if (rows := self._not_done(operation.rows, source)).num_rows
                )
                if operations:
                    left.append((values, Undecided(operations, write.schema, write.all_or_nothing)))
            elif (rows := self._not_done(write, source)).num_rows:
                left.append((values, rows))
        return left

    def _not_done(self, rows: pa.RecordBatch, source: Source) -> pa.RecordBatch:
        pending = self.former.pending(rows, source)
        return rows if pending is None else rows.filter(pa.array(pending))


PartsAfter = Callable[[WriterParts], WriterParts | None]
"""Returns the parts of a table that is sharded by another rule by now; None if it is not."""


def one_batch(item: tuple[ShardValues, pa.Table]) -> tuple[ShardValues, pa.RecordBatch]:
    """Return the rows of a shard as one batch.

    Raises
    ------
    InputError
        If they are more than one log entry holds.
    """
    values, rows = item
    batches = rows.combine_chunks().to_batches()
    if len(batches) > 1:
        raise InputError(
            f"the {rows.num_rows} rows for one shard are more than one log entry holds: a text or binary "
            "column has more than 2 GiB",
            where=str(values) or None,
            hint="Write them in parts, each with a number of its own",
        )
    return values, batches[0]
