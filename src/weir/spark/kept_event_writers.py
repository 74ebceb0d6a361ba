"""Event writers that live on between the micro-batches of a streaming query.

As :mod:`weir.spark.kept_writers` keeps those of tables: paused, in nobody's way, and nothing depends on them.
What a micro-batch leaves in the log is flushed when it has become much, or old, not when the batch ends.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import dataclass

from weir.errors import WeirError
from weir.events.batches import RoutedEvents
from weir.events.event_table import EVENTS
from weir.events.store import EventStore
from weir.events.writer import EventWriter
from weir.format.source import Source
from weir.spark.event_options import EventWriteOptions
from weir.spark.write_options import MAX_TAIL_ENTRIES

__all__ = ["KeptEventWriters", "process_event_writers"]

_MOST = 8


@dataclass(frozen=True, slots=True)
class _Kept:
    """A writer that has its shards by turns, its store, and what it was made for."""

    store: EventStore
    writer: EventWriter
    options: EventWriteOptions

    def serves(self, store: EventStore, options: EventWriteOptions) -> bool:
        """Whether it writes to this store, and not to one that was there before."""
        return self.options == options and self.store.tables[EVENTS].identity == store.tables[EVENTS].identity


class KeptEventWriters:
    """The event writers of some streaming queries. Safe to use from many threads.

    Parameters
    ----------
    most : int, default 8
        How many are kept: those that were used last.
    """

    def __init__(self, most: int = _MOST) -> None:
        self._most = most
        self._kept: dict[str, _Kept] = {}
        self._lock = threading.Lock()

    def ingest(
        self, store: EventStore, options: EventWriteOptions, events: RoutedEvents, source: Source
    ) -> None:
        """Append the events of a micro-batch with the writer of its query, and keep it.

        Parameters
        ----------
        store : EventStore
            The store, opened for this micro-batch.
        options : EventWriteOptions
            The options of the write.
        events : RoutedEvents
            The events.
        source : Source
            The mark of the micro-batch; its name is that of the query.

        Raises
        ------
        LeaseHeldError, FencedError, StorageError
            As for :meth:`weir.events.writer.EventWriter.ingest_routed`.
        """
        with self._lock:
            kept = self._kept.pop(source.name, None)
        if kept is not None and not kept.serves(store, options):
            _close(kept)
            kept = None
        if kept is None:
            opened = options.open()
            writer = opened.writer(
                hold=False,
                lease_wait=options.lease_wait,
                takeover=options.takeover,
                max_memtable_entries=MAX_TAIL_ENTRIES,
                flush_on_close=False,
            )
            kept = _Kept(opened, writer, options)
        try:
            kept.writer.ingest_routed(events, source)
        except BaseException:
            _close(kept)
            raise
        with self._lock:
            self._kept[source.name] = kept
            surplus = [self._kept.pop(name) for name in list(self._kept)[: -self._most]]
        for one in surplus:
            _close(one)


def _close(kept: _Kept) -> None:
    # What it has written is durable, and whatever it has left to flush another writer flushes.
    with suppress(WeirError):
        kept.store.close()


process_event_writers = KeptEventWriters()
"""Those of this process."""
