from __future__ import annotations

from datetime import datetime
from itertools import pairwise

import numpy as np
import pytest

from weir.demo.events import ARRIVED, CANCELLED, DEPARTED, SCHEDULED, FlightEvents, load_events
from weir.demo.expected import ExpectedFlights, expected_flights
from weir.demo.flights import FLIGHT_SCHEMA

_ALL_FLIGHTS = 336_776
_CANCELLED = 8_255


def test_the_whole_year_is_about_a_million_events_in_time_order() -> None:
    events = load_events(None, batch_rows=1_000)
    assert events.facts.num_rows == _ALL_FLIGHTS
    assert events.num_events == 1_001_615
    assert np.all(np.diff(events.time) >= 0)
    assert np.count_nonzero(events.kind == SCHEDULED) == _ALL_FLIGHTS
    assert np.count_nonzero(events.kind == CANCELLED) == _CANCELLED
    assert np.count_nonzero(events.kind == DEPARTED) == _ALL_FLIGHTS - _CANCELLED
    # Every flight is announced before anything else happens to it, and arrives after it left.
    when = {
        kind: np.full(_ALL_FLIGHTS, -1, dtype=np.int64) for kind in (SCHEDULED, DEPARTED, ARRIVED, CANCELLED)
    }
    for kind, times in when.items():
        times[events.flight[events.kind == kind]] = events.time[events.kind == kind]
    for kind in (DEPARTED, CANCELLED):
        happened = when[kind] >= 0
        assert np.all(when[SCHEDULED][happened] < when[kind][happened])
    arrived = when[ARRIVED] >= 0
    assert np.all(when[DEPARTED][arrived] < when[ARRIVED][arrived])
    assert not np.any((when[CANCELLED] >= 0) & (when[DEPARTED] >= 0))


def test_one_flight_after_the_other_they_leave_the_expected_rows(
    events: FlightEvents, expected: ExpectedFlights
) -> None:
    left: dict[str, tuple[object, ...]] = {}
    for number in range(events.num_batches):
        batch = events.batch(number)
        assert batch.number == number
        assert batch.upserts.schema.equals(FLIGHT_SCHEMA)
        for row in batch.upserts.to_pylist():
            left[row["id"]] = tuple(_plain(value) for value in row.values())
        for key in batch.deletes.to_pylist():
            del left[key]
    assert left == expected.rows
    assert sum(events.batch(number).num_events for number in range(events.num_batches)) == events.num_events


def test_batches_cover_the_stream_without_gaps(events: FlightEvents) -> None:
    ends = [events.end_of(number) for number in range(-1, events.num_batches)]
    assert ends[0] == 0
    assert ends[-1] == events.num_events
    assert all(0 < after - before <= events.batch_rows for before, after in pairwise(ends))


def test_the_expected_rows_of_some_flights_are_those_of_the_almanac() -> None:
    rows = expected_flights(2_000).rows
    names = FLIGHT_SCHEMA.names
    first = dict(zip(names, rows["2013-01-01/UA1545/EWR"], strict=True))
    assert first["status"] == "arrived"
    assert first["scheduled"] == _at("2013-01-01 10:15")
    assert first["departed"] == _at("2013-01-01 10:17")
    assert first["updated"] == _at("2013-01-01 14:04")
    assert (first["dest"], first["arr_time"], first["arr_delay"]) == ("IAH", 830, 11)
    diverted = dict(zip(names, rows["2013-01-01/9E3325/JFK"], strict=True))
    assert (diverted["status"], diverted["arr_delay"]) == ("diverted", None)
    # It left at 19:39 and its clock said 0:29 when it stood still: past midnight.
    assert diverted["updated"] == _at("2013-01-02 05:29")
    no_arrival = dict(zip(names, rows["2013-01-01/EV4204/EWR"], strict=True))
    assert (no_arrival["status"], no_arrival["arr_time"]) == ("departed", None)


def test_some_flights_only(events: FlightEvents) -> None:
    assert load_events(1, batch_rows=500).facts.column("id").to_pylist() == ["2013-01-01/UA1545/EWR"]
    assert events.facts.num_rows == 3_000


def _at(text: str) -> int:
    return int(datetime.fromisoformat(f"{text}+00:00").timestamp()) * 1_000_000


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        assert value.microsecond == 0
        return int(value.timestamp()) * 1_000_000
    return value


@pytest.mark.parametrize("number", [0, 7])
def test_a_batch_is_the_same_each_time_it_is_made(events: FlightEvents, number: int) -> None:
    one, other = events.batch(number), events.batch(number)
    assert one.upserts.equals(other.upserts)
    assert one.deletes.equals(other.deletes)
