"""Event writers that are kept between the micro-batches of a streaming query.

Like the table writers in :mod:`weir.spark.kept_writers`: paused between micro-batches, blocking no other
writer, and never required for correctness. Rows of a micro-batch are flushed from the log once there are many
or they are old, not when the batch ends.
"""

from __future__ import annotations

from dataclasses import dataclass

from weir.events.batches import RoutedEvents
from weir.events.event_table import EVENTS
from weir.events.store import EventStore
from weir.events.writer import EventWriter
from weir.format.source import Source
from weir.spark.event_options import EventWriteOptions
from weir.spark.kept_pool import MOST_KEPT, KeptPool, close_quietly
from weir.spark.write_options import MAX_TAIL_ENTRIES

__all__ = ["KeptEventWriters", "process_event_writers"]


@dataclass(frozen=True, slots=True)
class _Kept:
    """A writer that takes turns, its store, and the options it was opened with."""

    store: EventStore
    writer: EventWriter
    options: EventWriteOptions

    def serves(self, store: EventStore, options: EventWriteOptions) -> bool:
        """Whether it writes to this store, and not to a former one at the same location."""
        return self.options == options and self.store.tables[EVENTS].identity == store.tables[EVENTS].identity

    def close(self) -> None:
        """Close the store and the writer."""
        self.store.close()


class KeptEventWriters:
    """The event writers of several streaming queries. Thread-safe.

    Parameters
    ----------
    most : int, default 8
        How many to keep: the most recently used ones.
    """

    def __init__(self, most: int = MOST_KEPT) -> None:
        self._pool: KeptPool[_Kept] = KeptPool(most, close_quietly)

    def ingest(
        self, store: EventStore, options: EventWriteOptions, events: RoutedEvents, source: Source
    ) -> None:
        """Append the events of a micro-batch with the writer of its query, and keep the writer.

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
        kept = self._pool.take(source.name, lambda one: one.serves(store, options))
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
            close_quietly(kept)
            raise
        self._pool.keep(source.name, kept)


process_event_writers = KeptEventWriters()
"""The kept writers of this process."""
