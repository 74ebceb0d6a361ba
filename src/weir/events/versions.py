"""The versions of contexts, as known to the holder of their shard, and the shard of a context."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from weir.events.catalog import Catalog
from weir.events.clock import SHARD_BITS
from weir.events.cursors import arrivals
from weir.events.visibility import arrived_above, of_context, scan_events
from weir.sharding.router import Router
from weir.sharding.shard_values import ShardValues
from weir.table.table import Table

__all__ = ["ContextVersions", "highest_above", "shards_of"]

_MOST = 100_000


class ContextVersions:
    """The versions of contexts in held shards: each is read once, then kept.

    Used under the lock of its writer.

    Parameters
    ----------
    table : Table
        The events table.
    catalog : callable
        Returns the newest catalog if its argument is true.
    """

    def __init__(self, table: Table, catalog: Callable[[bool], Catalog]) -> None:
        self._table = table
        self._catalog = catalog
        self._known: dict[str, tuple[int, int]] = {}
        self._erasures = -1
        self._shards: dict[str, int] = {}
        self._values: dict[int, ShardValues] = {}

    def shard_of(self, context: str) -> int:
        """Return the number of the shard of a context."""
        found = self._shards.get(context)
        if found is None:
            found = int(self.shards_of(pa.array([context], pa.string()))[0])
            if len(self._shards) >= _MOST:
                self._shards.clear()
            self._shards[context] = found
        return found

    def shards_of(self, contexts: pa.Array) -> NDArray[np.int64]:
        """Return the numbers of the shards of contexts."""
        numbers, values = shards_of(self._table.internals.router, contexts)
        for one in values:
            self.number_of(one)
        return numbers

    def number_of(self, values: ShardValues) -> int:
        """Return the number of a shard."""
        number = _number(values)
        self._values[number] = values
        return number

    def values_of(self, shard: int) -> ShardValues:
        """Return the shard values of a shard that was looked up before."""
        return self._values[shard]

    def knows(self, context: str) -> bool:
        """Whether the version of a context is known."""
        return context in self._known

    def put(self, context: str, shard: int, version: int) -> None:
        """Record the version of a context, once its rows are queued."""
        if len(self._known) >= _MOST:
            self._known.clear()
        self._known[context] = version, shard

    def clear_outdated(self) -> None:
        """Drop versions that may have changed without a write to their shard, by forgetting or retention."""
        catalog = self._catalog(True)
        if catalog.erasures != self._erasures or any(
            one.age is not None for one in catalog.retention.values()
        ):
            self._known.clear()
            self._erasures = catalog.erasures

    def get(self, context: str, shard: int) -> int:
        """Return the version of a context whose shard is held, 0 if it has no events.

        An unknown version is read: rows queued for the context must be durable by then.
        """
        found = self._known.get(context)
        if found is None:
            rows = scan_events(self._table, self._catalog(True), ["event_id"], [of_context(context)])
            version = pc.max(rows.column("event_id")).as_py() or 0
            self.put(context, shard, version)
            return version
        return found[0]

    def clear(self, shards: Iterable[int] | None) -> None:
        """Drop the known versions of some shards, or of all."""
        if shards is None:
            self._known.clear()
        else:
            gone = set(shards)
            self._known = {name: one for name, one in self._known.items() if one[1] not in gone}

    def highest_above(self, event_id: int) -> int:
        """Return the highest id of all events if it is above a given one, else 0."""
        return highest_above(self._table, event_id)

    def shards_above(self, event_id: int) -> set[int]:
        """Return the numbers of the shards with an event that arrived at a higher id."""
        arrived = arrivals(_arrived_above(self._table, event_id))
        return {int(one) for one in np.unique(arrived & ((1 << SHARD_BITS) - 1))}


def shards_of(router: Router, contexts: pa.Array) -> tuple[NDArray[np.int64], tuple[ShardValues, ...]]:
    """Return the numbers of the shards of contexts, and those shards."""
    partition = router.partition(pa.record_batch({"context_id": contexts}))
    numbers = np.asarray([_number(one) for one in partition.values], dtype=np.int64)
    return numbers[partition.shards], partition.values


def highest_above(table: Table, event_id: int) -> int:
    """Return the highest id of all events if it is above a given one, else 0."""
    rows = _arrived_above(table, event_id)
    return max((pc.max(rows.column(name)).as_py() or 0 for name in rows.column_names), default=0)


def _arrived_above(table: Table, event_id: int) -> pa.Table:
    return table.scan(["event_id", "arrival_id"], filter=arrived_above(event_id)).to_table()


def _number(shard: ShardValues) -> int:
    return int(shard.values[0].scalar.as_py())
