"""Subscriptions: events in arrival order, from the position of a named subscriber on."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from datafusion import Expr
from numpy.typing import NDArray

from weir.errors import CorruptionError, ObjectNotFoundError
from weir.events.catalog import Catalog
from weir.events.catalog_reads import read_with_catalog
from weir.events.clock import HybridClock
from weir.events.cursors import Cursor, arrivals
from weir.events.names import CORE_NAMES
from weir.events.query.replaying import merged_columns, merged_rows
from weir.events.query.running import observe
from weir.events.visibility import arrived_after, arrived_between, events_scan, of_types
from weir.read.scan import Scan
from weir.storage.interface import ObjectStore
from weir.table.table import Table

__all__ = ["Subscription", "SubscriptionBatch"]

_FORMAT = 1


@dataclass(frozen=True, slots=True)
class SubscriptionBatch:
    """A batch of events of a subscription.

    Parameters
    ----------
    rows : Table
        The events, in arrival order.
    cursor : Cursor
        The position after these events.
    """

    rows: pa.Table
    cursor: Cursor


class Subscription:
    """Events for a named subscriber. Iterate for current events, and again for newer ones.

    Made by :meth:`weir.events.store.EventStore.subscribe`. Uncommitted events are delivered again to the next
    subscription of the name. For one thread.

    Parameters
    ----------
    store : ObjectStore
        Where the position of the name is stored.
    table : Table
        The events table.
    catalog : callable
        Returns the newest catalog.
    clock : HybridClock
        Observes the events that are read.
    name : str
        The name.
    types : sequence of str, optional
        The types. Default: all.
    batch_rows : int
        Events of a batch, at most.
    most_ids : int
        About how many ids of further events to hold in memory.
    """

    def __init__(
        self,
        store: ObjectStore,
        table: Table,
        catalog: Callable[[], Catalog],
        clock: HybridClock,
        name: str,
        types: Sequence[str] | None,
        batch_rows: int = 65_536,
        most_ids: int = 4_000_000,
    ) -> None:
        self._store = store
        self._table = table
        self._catalog = catalog
        self._clock = clock
        self._types = None if types is None else tuple(dict.fromkeys(types))
        self._batch_rows = batch_rows
        # Of whole batches.
        self._most_ids = most_ids // batch_rows * batch_rows or batch_rows
        self._path = f"subscriptions/{name}.json"
        self._given = self._stored()
        self._known: Catalog | None = None
        self.name = name

    def _stored(self) -> Cursor:
        try:
            data = bytes(self._store.get(self._path))
        except ObjectNotFoundError:
            return Cursor()
        try:
            stored = json.loads(data)
            if stored["format"] != _FORMAT:
                raise ValueError(stored["format"])
            return Cursor.from_json(stored["seen"])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CorruptionError(
                f"the place of a subscription cannot be read: {error!r:.100}",
                where=f"{self._store.uri}/{self._path}",
            ) from error

    def __iter__(self) -> Iterator[SubscriptionBatch]:
        """Yield batches of current events that were not delivered yet.

        With many events, the ids are read first, and then the rows batch by batch. Events forgotten meanwhile
        are omitted.
        """
        most = self._batch_rows
        few, catalog = self._read(lambda catalog: self._scan(catalog, self._unseen(catalog), most + 1))
        if few.num_rows <= most:
            few = self._in_order(few)
            yield from self._batch(few, arrivals(few), catalog)
            return
        through: Cursor | None = None
        while True:
            arrived, newest = self._arrived(through)
            if len(arrived) == 0:
                return
            # What comes from here on is for the next iteration.
            through = through or newest
            for start in range(0, len(arrived), most):
                part = arrived[start : start + most]
                between = [arrived_between(int(part[0]), int(part[-1]))]
                rows, catalog = self._read(partial(self._scan, conditions=between))
                rows = self._in_order(rows)
                rows = rows.filter(pc.is_in(pa.array(arrivals(rows)), pa.array(part)))
                yield from self._batch(rows, part, catalog)

    def _read(self, scan: Callable[[Catalog], Scan]) -> tuple[pa.Table, Catalog]:
        """Return the rows of a scan, and a catalog that knows all their types and fields."""
        known = self._known or self._catalog()
        rows, self._known = read_with_catalog(known, self._catalog, lambda catalog: scan(catalog).to_table())
        return rows, self._known

    def _batch(
        self, rows: pa.Table, arrived: NDArray[np.int64], catalog: Catalog
    ) -> Iterator[SubscriptionBatch]:
        self._given = self._given.advanced(arrived)
        if rows.num_rows:
            observe(self._clock, rows.column("event_id"))
            types = [catalog.type(name) for name in self._names(catalog)]
            yield SubscriptionBatch(merged_rows(rows, types, merged_columns(types)), self._given)

    def _names(self, catalog: Catalog) -> Sequence[str]:
        return tuple(catalog.types) if self._types is None else self._types

    def _arrived(self, through: Cursor | None) -> tuple[NDArray[np.int64], Cursor]:
        """Return the lowest arrival ids of events not delivered yet, and the end of all of them."""
        catalog = self._catalog()
        found, newest = np.empty(0, np.int64), self._given
        columns = ["event_id", "arrival_id"]
        for batch in self._scan(catalog, self._unseen(catalog), columns=columns).to_batches():
            arrived = arrivals(pa.Table.from_batches([batch]))
            fresh = self._given.beyond(arrived)
            if through is not None:
                fresh &= ~through.beyond(arrived)
            arrived = arrived[fresh]
            newest = newest.advanced(arrived)
            found = np.concatenate([found, arrived])
            if len(found) > 2 * self._most_ids:
                found = np.partition(found, self._most_ids)[: self._most_ids]
        return np.sort(found)[: self._most_ids], newest

    def _unseen(self, catalog: Catalog) -> list[Expr]:
        seen = self._given.least(int(catalog.options["buckets"]))
        return [] if seen is None else [arrived_after(seen)]

    def _scan(
        self,
        catalog: Catalog,
        conditions: list[Expr],
        limit: int | None = None,
        columns: Sequence[str] | None = None,
    ) -> Scan:
        names = self._names(catalog)
        if self._types is not None:
            conditions = [*conditions, of_types(names)]
        held = dict.fromkeys(
            column
            for name in names
            for columns_ in catalog.type(name).columns.values()
            for column in columns_
        )
        wanted = columns or [*CORE_NAMES, "arrival_id", *held]
        return events_scan(self._table, catalog, wanted, conditions, limit)

    def _in_order(self, rows: pa.Table) -> pa.Table:
        """Return those rows that were not delivered yet, in arrival order."""
        arrived = arrivals(rows)
        at = np.flatnonzero(self._given.beyond(arrived))
        return rows.take(pa.array(at[np.argsort(arrived[at], kind="stable")]))

    def resume(self, cursor: Cursor) -> None:
        """Continue from the position of a batch delivered earlier, committed or not."""
        self._given = cursor

    def commit(self) -> None:
        """Record everything up to the last delivered batch as processed."""
        self._store.put(self._path, json.dumps({"format": _FORMAT, "seen": self._given.to_json()}).encode())
