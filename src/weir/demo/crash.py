"""The check after the writing process was killed: whether every acknowledged event is there."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from weir.demo.events import CANCELLED, FlightEvents
from weir.demo.writer import BATCHES_IN_FLIGHT
from weir.table.table import Table

__all__ = ["CrashCheck", "check_after_crash"]


@dataclass(frozen=True, slots=True)
class CrashCheck:
    """What a killed writer left.

    Parameters
    ----------
    acknowledged_events : int
        Events that were acknowledged.
    acknowledged_rows : int
        Rows there must be for them.
    lost : int
        Rows that are missing, or older than what was acknowledged.
    undeleted : int
        Rows whose delete was acknowledged, but that still exist.
    ahead : int
        Rows from events that were durable though not acknowledged yet.
    """

    acknowledged_events: int
    acknowledged_rows: int
    lost: int
    undeleted: int
    ahead: int

    @property
    def passed(self) -> bool:
        """Whether everything that was acknowledged is there."""
        return self.lost == 0 and self.undeleted == 0


def check_after_crash(
    table: Table, events: FlightEvents, last_batch: int, in_flight: int = BATCHES_IN_FLIGHT
) -> CrashCheck:
    """Hold the table against all acknowledged events, with a strong scan.

    Parameters
    ----------
    table : Table
        The table.
    events : FlightEvents
        All events.
    last_batch : int
        The last batch that was acknowledged; -1 if none was.
    in_flight : int
        How many batches may be durable though they were not acknowledged yet.
    """
    end = events.end_of(last_batch)
    newest = np.full(events.facts.num_rows, -1, dtype=np.int64)
    # NumPy assigns in order, so the last event of each flight stays.
    newest[events.flight[:end]] = np.arange(end)
    seen = newest >= 0
    cancelled = np.zeros(len(newest), dtype=np.bool_)
    cancelled[seen] = events.kind[newest[seen]] == CANCELLED
    # A delete that was on its way may have arrived.
    on_the_way = slice(end, events.end_of(last_batch + in_flight))
    may_be_gone = np.zeros(len(newest), dtype=np.bool_)
    may_be_gone[events.flight[on_the_way][events.kind[on_the_way] == CANCELLED]] = True

    found = table.scan(["id", "updated"]).to_table()
    place = pc.index_in(events.facts.column("id"), value_set=found.column("id")).fill_null(-1).to_numpy()
    there = place >= 0
    updated = found.column("updated").cast(pa.int64()).fill_null(0).to_numpy()
    state = np.full(len(newest), np.iinfo(np.int64).min)
    state[there] = updated[place[there]]
    acknowledged = np.where(seen, events.time[newest], np.iinfo(np.int64).min)

    wanted = seen & ~cancelled & ~may_be_gone
    return CrashCheck(
        acknowledged_events=end,
        acknowledged_rows=int(np.count_nonzero(seen & ~cancelled)),
        lost=int(np.count_nonzero(wanted & (state < acknowledged))),
        undeleted=int(np.count_nonzero(cancelled & there)),
        ahead=int(np.count_nonzero(there & (state > acknowledged))),
    )
