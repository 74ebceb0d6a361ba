"""Options of the format ``"weir-events"``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from weir.errors import OptionError
from weir.events import EventStore
from weir.events import open as open_events
from weir.format.source import Source
from weir.spark.options import TableLocation, as_switch, as_whole_number, split_options

__all__ = ["EventReadOptions", "EventWriteOptions"]

_READ = ("type", "context", "since", "until", "using", "rowsPerPartition", "maxRowsPerTrigger")
_WRITE = ("type", "source", "sequence", "lease_wait", "takeover", "fsync")
_ROWS = 1_000_000
_LEASE_WAIT_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class EventReadOptions:
    """The options of a read. A value that can be pickled.

    Parameters
    ----------
    location : TableLocation
        The event store.
    type : str or None
        The type of events; None for all, with the columns of all of them.
    context, since, until, using : str or None
        As for :meth:`weir.events.EventStore.replay`.
    rows_per_partition : int
        Approximate number of events of the base table per task.
    max_rows : int or None
        Approximate number of events per micro-batch.
    """

    location: TableLocation
    type: str | None
    context: str | None
    since: str | None
    until: str | None
    using: str | None
    rows_per_partition: int
    max_rows: int | None

    @staticmethod
    def parse(options: Mapping[str, str]) -> EventReadOptions:
        """Parse the options that Spark passes.

        Raises
        ------
        OptionError
            If an option is unknown or not valid.
        """
        location, given = split_options(options, _READ, of="weir-events")
        most = given.get("maxRowsPerTrigger")
        return EventReadOptions(
            location,
            given.get("type"),
            given.get("context"),
            given.get("since"),
            given.get("until"),
            given.get("using"),
            as_whole_number("rowsPerPartition", given.get("rowsPerPartition", str(_ROWS)), least=1),
            None if most is None else as_whole_number("maxRowsPerTrigger", most, least=1),
        )

    def open(self) -> EventStore:
        """Open the event store."""
        return open_events(self.location.uri, storage_options=self.location.storage_options or None)


@dataclass(frozen=True, slots=True)
class EventWriteOptions:
    """The options of a write. A value that can be pickled.

    Parameters
    ----------
    location : TableLocation
        The event store.
    type : str
        The type of the events.
    source : Source or None
        Makes a batch write repeatable (options ``source`` and ``sequence``).
    lease_wait : float
        Seconds to wait for shards that another writer holds.
    takeover : bool
        Whether to take these over.
    fsync : bool
        As for :func:`weir.events.open`.
    """

    location: TableLocation
    type: str
    source: Source | None
    lease_wait: float
    takeover: bool
    fsync: bool = True

    @staticmethod
    def parse(options: Mapping[str, str]) -> EventWriteOptions:
        """Parse the options that Spark passes.

        Raises
        ------
        OptionError
            If an option is unknown, missing or not valid.
        """
        location, given = split_options(options, _WRITE, of="weir-events")
        if "type" not in given:
            raise OptionError(
                "the type of the events is not named", where="type", hint='Add .option("type", "signup")'
            )
        source = None
        if "source" in given or "sequence" in given:
            if "source" not in given or "sequence" not in given:
                raise OptionError("source and sequence go together", where="source")
            source = Source(given["source"], as_whole_number("sequence", given["sequence"]))
        wait = given.get("lease_wait", str(_LEASE_WAIT_SECONDS))
        try:
            lease_wait = float(wait)
        except ValueError:
            raise OptionError(
                f"the option 'lease_wait' is a number of seconds, got {wait!r:.40}", where="lease_wait"
            ) from None
        takeover = as_switch("takeover", given.get("takeover", "false"))
        fsync = as_switch("fsync", given.get("fsync", "true"))
        return EventWriteOptions(location, given["type"], source, lease_wait, takeover, fsync)

    def open(self) -> EventStore:
        """Open the event store."""
        return open_events(
            self.location.uri, fsync=self.fsync, storage_options=self.location.storage_options or None
        )
