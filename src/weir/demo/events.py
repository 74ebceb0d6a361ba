"""The flights as a stream of events in time order, built a whole column at a time.

=========  =============================================  =====================================
event      when                                           what it does to the row of the flight
=========  =============================================  =====================================
scheduled  a day before the scheduled departure           upsert
departed   scheduled departure and departure delay        upsert
arrived    departure and time in the air; where that was  upsert
           not reported, the difference of the clocks
cancelled  scheduled departure, if it never departed      delete
=========  =============================================  =====================================

Instants are computed by adding minutes to instants in UTC, so midnight and daylight saving time need no
care. A flight that was diverted has an arrival time and no arrival delay; of some that departed no
arrival is known, and they stay ``departed``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from weir.demo.flights import FLIGHT_SCHEMA, STATUSES
from weir.demo.source import open_flights
from weir.errors import CorruptionError

__all__ = ["ARRIVED", "CANCELLED", "DEPARTED", "SCHEDULED", "EventBatch", "FlightEvents", "load_events"]

SCHEDULED, DEPARTED, ARRIVED, CANCELLED = range(4)

_MINUTE = 60 * 1_000_000
_LEAD = 24 * 60 * _MINUTE
_MINUTES_OF_DAY = 24 * 60
_DIVERTED = STATUSES.index("diverted")

Integers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class EventBatch:
    """Some events that follow each other.

    Parameters
    ----------
    number : int
        Which batch of the stream, from 0.
    upserts : pyarrow.Table
        Rows in the schema of the demo, in time order.
    deletes : pyarrow.Array
        Keys of the flights that were cancelled. A cancelled flight has no later event, so they can be
        deleted after the upserts.
    """

    number: int
    upserts: pa.Table
    deletes: pa.Array

    @property
    def num_events(self) -> int:
        """Number of events."""
        return int(self.upserts.num_rows) + len(self.deletes)


@dataclass(frozen=True, slots=True, eq=False)
class FlightEvents:
    """All events in time order.

    Parameters
    ----------
    facts : pyarrow.Table
        What is known about each flight from the beginning, one row for each.
    departed, dep_delay, arr_time, arr_delay, air_time : ndarray of int64
        What becomes known later, by flight.
    has_arr_delay, has_air_time : ndarray of bool
        Whether it does become known.
    time : ndarray of int64
        When each event happens, in microseconds since 1970, ascending.
    kind : ndarray of int64
        What happens.
    flight : ndarray of int64
        To which flight.
    batch_rows : int
        Events of a batch.
    """

    facts: pa.Table
    departed: Integers
    dep_delay: Integers
    arr_time: Integers
    arr_delay: Integers
    air_time: Integers
    has_arr_delay: Flags
    has_air_time: Flags
    time: Integers
    kind: Integers
    flight: Integers
    batch_rows: int

    @property
    def num_events(self) -> int:
        """Number of events."""
        return len(self.time)

    @property
    def num_batches(self) -> int:
        """Number of batches."""
        return -(-self.num_events // self.batch_rows)

    def end_of(self, batch: int) -> int:
        """Return the number of events up to the end of a batch."""
        return min((batch + 1) * self.batch_rows, self.num_events)

    def batch(self, number: int) -> EventBatch:
        """Return one batch of events."""
        span = slice(number * self.batch_rows, self.end_of(number))
        time, kind, flight = self.time[span], self.kind[span], self.flight[span]
        cancelled = kind == CANCELLED
        deletes = self.facts.column("id").take(pa.array(flight[cancelled])).combine_chunks()
        upserts = self._rows(time[~cancelled], kind[~cancelled], flight[~cancelled])
        return EventBatch(number, upserts, deletes)

    def _rows(self, time: Integers, kind: Integers, flight: Integers) -> pa.Table:
        unknown_departure, unknown_arrival = kind < DEPARTED, kind < ARRIVED
        no_delay, no_air_time = ~self.has_arr_delay[flight], ~self.has_air_time[flight]
        status = np.where((kind == ARRIVED) & no_delay, _DIVERTED, kind)
        facts = self.facts.take(pa.array(flight))
        later = {
            "status": pa.array(STATUSES).take(pa.array(status)),
            "departed": _column(self.departed[flight], unknown_departure, "departed"),
            "dep_delay": _column(self.dep_delay[flight], unknown_departure, "dep_delay"),
            "arr_time": _column(self.arr_time[flight], unknown_arrival, "arr_time"),
            "arr_delay": _column(self.arr_delay[flight], unknown_arrival | no_delay, "arr_delay"),
            "air_time": _column(self.air_time[flight], unknown_arrival | no_air_time, "air_time"),
            "updated": _column(time, np.zeros(len(time), dtype=np.bool_), "updated"),
        }
        columns = [later.get(name) for name in FLIGHT_SCHEMA.names]
        filled = [
            facts.column(name) if column is None else column
            for name, column in zip(FLIGHT_SCHEMA.names, columns, strict=True)
        ]
        return pa.table(filled, schema=FLIGHT_SCHEMA)


def load_events(flights: int | None, batch_rows: int) -> FlightEvents:
    """Read the flights and put their events in order.

    Parameters
    ----------
    flights : int or None
        Only so many, from the beginning of the year; None for all.
    batch_rows : int
        Events of a batch.

    Raises
    ------
    MissingDependencyError
        If the package that carries the flights is not installed.
    CorruptionError
        If the key is not unique.
    """
    with open_flights() as stream:
        table = pa_csv.read_csv(stream, convert_options=_CSV_OPTIONS)
    if flights is not None:
        table = table.slice(0, flights)
    facts = _facts(table)
    scheduled = facts.column("scheduled").cast(pa.int64()).to_numpy()
    has_departed, has_arrived = _known(table, "dep_time"), _known(table, "arr_time")
    dep_delay, air_time = _minutes(table, "dep_delay"), _minutes(table, "air_time")
    departed = scheduled + dep_delay * _MINUTE
    by_clock = (_clock(table, "arr_time") - _clock(table, "dep_time")) % _MINUTES_OF_DAY
    arrived = departed + np.where(_known(table, "air_time"), air_time, by_clock) * _MINUTE
    happened = (
        (SCHEDULED, scheduled - _LEAD, np.ones(len(scheduled), dtype=np.bool_)),
        (DEPARTED, departed, has_departed),
        (ARRIVED, arrived, has_departed & has_arrived),
        (CANCELLED, scheduled, ~has_departed),
    )
    numbers = np.arange(len(scheduled), dtype=np.int64)
    time = np.concatenate([when[did] for _, when, did in happened])
    kind = np.concatenate([np.full(np.count_nonzero(did), one, dtype=np.int64) for one, _, did in happened])
    flight = np.concatenate([numbers[did] for _, _, did in happened])
    # By time; what happens to one flight in the same minute keeps its order.
    order = np.lexsort((flight, kind, time))
    return FlightEvents(
        facts=facts,
        departed=departed,
        dep_delay=dep_delay,
        arr_time=_minutes(table, "arr_time"),
        arr_delay=_minutes(table, "arr_delay"),
        air_time=air_time,
        has_arr_delay=_known(table, "arr_delay"),
        has_air_time=_known(table, "air_time"),
        time=time[order],
        kind=kind[order],
        flight=flight[order],
        batch_rows=batch_rows,
    )


_CSV_OPTIONS = pa_csv.ConvertOptions(
    column_types={
        "year": pa.string(),
        "month": pa.string(),
        "day": pa.string(),
        "time_hour": pa.timestamp("us", "UTC"),
        **dict.fromkeys(("carrier", "tailnum", "origin", "dest"), pa.string()),
        **dict.fromkeys(
            ("dep_time", "dep_delay", "arr_time", "arr_delay", "air_time", "minute"), pa.float64()
        ),
        **dict.fromkeys(("sched_arr_time", "flight", "distance"), pa.int32()),
    },
    strings_can_be_null=True,
)


def _facts(table: pa.Table) -> pa.Table:
    scheduled = pa.array(
        table.column("time_hour").cast(pa.int64()).to_numpy() + _minutes(table, "minute") * _MINUTE
    )
    date = pc.binary_join_element_wise(
        table.column("year"),
        pc.utf8_lpad(table.column("month"), 2, "0"),
        pc.utf8_lpad(table.column("day"), 2, "0"),
        "-",
    )
    number = pc.binary_join_element_wise(
        table.column("carrier"), table.column("flight").cast(pa.string()), ""
    )
    identity = pc.binary_join_element_wise(date, number, table.column("origin"), "/")
    if pc.count_distinct(identity).as_py() != table.num_rows:
        raise CorruptionError("two flights have the same id", where="flights.csv")
    names = ("carrier", "flight", "tailnum", "origin", "dest", "distance", "sched_arr_time")
    return pa.table(
        {
            "id": identity,
            "scheduled": scheduled.cast(FLIGHT_SCHEMA.field("scheduled").type),
            **{name: table.column(name) for name in names},
        }
    ).combine_chunks()


def _known(table: pa.Table, name: str) -> Flags:
    known: Flags = table.column(name).is_valid().to_numpy()
    return known


def _minutes(table: pa.Table, name: str) -> Integers:
    """Return a column of numbers, 0 where nothing is known."""
    numbers: Integers = table.column(name).fill_null(0).cast(pa.int64()).to_numpy()
    return numbers


def _clock(table: pa.Table, name: str) -> Integers:
    """Return the minutes since midnight of a clock that reads ``hhmm``; midnight can be 2400."""
    hours, minutes = np.divmod(_minutes(table, name), 100)
    clock: Integers = hours * 60 + minutes
    return clock


def _column(values: Integers, missing: Flags, name: str) -> pa.Array:
    kind = FLIGHT_SCHEMA.field(name).type
    plain = pa.int64() if pa.types.is_timestamp(kind) else kind
    return pa.array(values.astype(plain.to_pandas_dtype()), plain, mask=missing).cast(kind)
