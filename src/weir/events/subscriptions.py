"""Subscriptions: events in the order in which they came, from where a name has got to."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from datafusion import Expr, col, lit

from weir.errors import CorruptionError, ObjectNotFoundError
from weir.events.catalog import Catalog
from weir.events.clock import HybridClock
from weir.events.cursors import Cursor, arrivals
from weir.events.event_types import EventType
from weir.events.names import CORE_NAMES
from weir.events.query.replaying import merged_columns, merged_rows
from weir.events.query.running import observe
from weir.events.visibility import any_of, arrived_after, scan_events
from weir.storage.interface import ObjectStore
from weir.table.table import Table

__all__ = ["Subscription", "SubscriptionBatch"]

_FORMAT = 1


@dataclass(frozen=True, slots=True)
class SubscriptionBatch:
    """Some events of a subscription.

    Parameters
    ----------
    rows : Table
        The events, in the order in which they came.
    cursor : Cursor
        How far the subscription has come with them.
    """

    rows: pa.Table
    cursor: Cursor


class Subscription:
    """Events for a name. Iterate for what is there now, and again for what has come since.

    Made by :meth:`weir.events.store.EventStore.subscribe`. What was not committed comes again to the
    next subscription of the name. Used by one thread.

    Parameters
    ----------
    store : ObjectStore
        Where the name's place is kept.
    table : Table
        The events table.
    catalog : callable
        Returns the newest catalog.
    clock : HybridClock
        Is told what was read.
    name : str
        The name.
    types : sequence of str, optional
        The types. Default: all there are.
    batch_rows : int
        Events of a batch.
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
    ) -> None:
        self._store = store
        self._table = table
        self._catalog = catalog
        self._clock = clock
        self._types = None if types is None else tuple(dict.fromkeys(types))
        self._batch_rows = batch_rows
        self._path = f"subscriptions/{name}.json"
        self._given = self._stored()
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
        """Yield batches of what is there now and was not given yet."""
        catalog = self._catalog()
        types = [catalog.type(name) for name in (catalog.types if self._types is None else self._types)]
        columns = merged_columns(types)
        rows = self._rows(catalog, types)
        for start in range(0, rows.num_rows, self._batch_rows):
            batch = rows.slice(start, self._batch_rows)
            self._given = self._given.advanced(arrivals(batch))
            observe(self._clock, batch.column("event_id"))
            yield SubscriptionBatch(merged_rows(batch, types, columns), self._given)

    def _rows(self, catalog: Catalog, types: Sequence[EventType]) -> pa.Table:
        conditions: list[Expr] = []
        if self._types is not None:
            of_types = any_of(col("event_type") == lit(kind.name) for kind in types)
            conditions.append(of_types if of_types is not None else lit(False))
        seen = self._given.least(int(catalog.options["buckets"]))
        if seen is not None:
            conditions.append(arrived_after(seen))
        held = dict.fromkeys(
            column for kind in types for columns in kind.columns.values() for column in columns
        )
        rows = scan_events(self._table, catalog, [*CORE_NAMES, "arrival_id", *held], conditions)
        arrived = arrivals(rows)
        fresh = self._given.beyond(arrived)
        rows = rows.filter(pa.array(fresh))
        return rows.take(pa.array(arrived[fresh].argsort(kind="stable")))

    def resume(self, cursor: Cursor) -> None:
        """Go on from the place of a batch that was given before, committed or not."""
        self._given = cursor

    def commit(self) -> None:
        """Say that everything up to the batch last given has been dealt with."""
        self._store.put(self._path, json.dumps({"format": _FORMAT, "seen": self._given.to_json()}).encode())
