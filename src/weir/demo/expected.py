"""The expected result, computed from the CSV in the plainest way: one line, one flight, one dict entry.

Nothing here is shared with the way the events are made (:mod:`weir.demo.events`): other code reads the
file, and instants come from calendar arithmetic on each line.
"""

from __future__ import annotations

import csv
import io
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import NamedTuple

from weir.demo.flights import FLIGHT_SCHEMA
from weir.demo.source import open_flights
from weir.errors import CorruptionError

__all__ = ["ExpectedFlights", "Value", "expected_flights"]

Value = str | int | None
"""A value of a row; instants are microseconds since 1970."""

_MISSING = "NA"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_COLUMN = {name: number for number, name in enumerate(FLIGHT_SCHEMA.names)}


class _Line(NamedTuple):
    """One line of the file."""

    year: str
    month: str
    day: str
    dep_time: str
    sched_dep_time: str
    dep_delay: str
    arr_time: str
    sched_arr_time: str
    arr_delay: str
    carrier: str
    flight: str
    tailnum: str
    origin: str
    dest: str
    air_time: str
    distance: str
    hour: str
    minute: str
    time_hour: str


@dataclass(frozen=True, slots=True)
class ExpectedFlights:
    """What the table must hold at the end.

    Parameters
    ----------
    rows : dict of str to tuple
        By id, the values of each row in the order of the schema.
    """

    rows: dict[str, tuple[Value, ...]]

    def delayed_by_airport(self, start: int, end: int, more_than: int) -> dict[str, int]:
        """Return how many flights left late from each airport.

        Parameters
        ----------
        start, end : int
            Departures from ``start`` on and before ``end``, in microseconds since 1970.
        more_than : int
            Minutes.
        """
        departed, delay, origin = _COLUMN["departed"], _COLUMN["dep_delay"], _COLUMN["origin"]
        found: Counter[str] = Counter()
        for row in self.rows.values():
            left, late = row[departed], row[delay]
            if isinstance(left, int) and isinstance(late, int) and start <= left < end and late > more_than:
                found[str(row[origin])] += 1
        return dict(sorted(found.items()))


def expected_flights(flights: int | None) -> ExpectedFlights:
    """Compute the right answer.

    Parameters
    ----------
    flights : int or None
        Only so many, from the beginning of the year; None for all.

    Raises
    ------
    MissingDependencyError
        If the package that carries the flights is not installed.
    CorruptionError
        If the file does not have the columns it should.
    """
    rows = {}
    with open_flights() as stream:
        lines = csv.reader(io.TextIOWrapper(stream, "utf-8", newline=""))
        header = tuple(next(lines))
        if header != _Line._fields:
            raise CorruptionError(f"the columns are {', '.join(header)}", where="flights.csv")
        for line in map(_Line._make, islice(lines, flights)):
            if line.dep_time != _MISSING:
                row = _row(line)
                rows[str(row[0])] = row
    return ExpectedFlights(rows)


def _row(line: _Line) -> tuple[Value, ...]:
    scheduled = datetime.fromisoformat(line.time_hour) + timedelta(minutes=int(line.minute))
    departed = scheduled + timedelta(minutes=int(line.dep_delay))
    arr_time, arr_delay, air_time = _number(line.arr_time), _number(line.arr_delay), _number(line.air_time)
    if arr_time is None:
        status, updated = "departed", departed
    else:
        status = "arrived" if arr_delay is not None else "diverted"
        if air_time is None:
            left, landed = _of_day(int(line.dep_time)), _of_day(arr_time)
            while landed < left:
                landed += timedelta(days=1)
            updated = departed + (landed - left)
        else:
            updated = departed + timedelta(minutes=air_time)
    return (
        f"{line.year}-{line.month:>02}-{line.day:>02}/{line.carrier}{line.flight}/{line.origin}",
        status,
        line.carrier,
        int(line.flight),
        None if line.tailnum == _MISSING else line.tailnum,
        line.origin,
        line.dest,
        int(line.distance),
        _microseconds(scheduled),
        int(line.sched_arr_time),
        _microseconds(departed),
        int(line.dep_delay),
        arr_time,
        arr_delay if arr_time is not None else None,
        air_time if arr_time is not None else None,
        _microseconds(updated),
    )


def _number(text: str) -> int | None:
    return None if text == _MISSING else int(text)


def _of_day(clock: int) -> timedelta:
    return timedelta(hours=clock // 100 % 24, minutes=clock % 100)


def _microseconds(instant: datetime) -> int:
    return (instant - _EPOCH) // timedelta(microseconds=1)
