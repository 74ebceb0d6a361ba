from __future__ import annotations

from tests.demo.conftest import replay

from weir.demo.crash import check_after_crash
from weir.demo.events import CANCELLED, DEPARTED, FlightEvents
from weir.demo.expected import ExpectedFlights
from weir.demo.questions import DELAYED_MINUTES, ask_about_delays, ask_about_flight
from weir.table.table import Table

_HOUR = 3_600_000_000


def test_answers_in_mid_stream_are_right_whatever_is_on_its_way(
    empty_table: Table, events: FlightEvents, expected: ExpectedFlights
) -> None:
    asked = 0
    for batches in range(2, events.num_batches - 2, 2):
        replay(empty_table, events, batches)
        acknowledged = batches - 2
        now = int(events.time[events.end_of(acknowledged) - 1])
        delays = ask_about_delays(empty_table, expected, now)
        assert delays.right
        if delays.flight is not None:
            asked += 1
            assert ask_about_flight(empty_table, expected, delays.flight).right
    assert asked > 3


def test_a_wrong_answer_is_found(full_table: Table, events: FlightEvents, expected: ExpectedFlights) -> None:
    delayed = (events.kind == DEPARTED) & (events.dep_delay[events.flight] > DELAYED_MINUTES)
    number, now = int(events.flight[delayed][0]), int(events.time[delayed][0]) + _HOUR // 2
    flight = events.facts.column("id")[number].as_py()
    assert ask_about_delays(full_table, expected, now).right
    row = full_table.get([flight]).to_pylist()[0]
    with full_table.writer() as writer:
        writer.upsert([{**row, "dep_delay": 0}])
    assert not ask_about_delays(full_table, expected, now).right
    assert not ask_about_flight(full_table, expected, flight).right
    with full_table.writer() as writer:
        writer.delete([flight])
    assert not ask_about_flight(full_table, expected, flight).right


def test_the_check_after_a_crash_passes_when_nothing_acknowledged_is_gone(
    empty_table: Table, events: FlightEvents
) -> None:
    replay(empty_table, events, 10)
    for acknowledged in (9, 8, 7):
        check = check_after_crash(empty_table, events, acknowledged)
        assert check.passed
        assert check.acknowledged_events == events.end_of(acknowledged)
        assert (check.ahead > 0) == (acknowledged < 9)


def test_the_check_after_a_crash_finds_what_is_lost(empty_table: Table, events: FlightEvents) -> None:
    replay(empty_table, events, 10)
    check = check_after_crash(empty_table, events, 10)
    assert not check.passed
    # Every event of the batch is lost, but for those of one flight that count once, and the deletes.
    batch = events.batch(10)
    gone = set(batch.upserts.column("id").to_pylist()) - set(batch.deletes.to_pylist())
    later = {
        events.facts.column("id")[int(flight)].as_py()
        for number in range(11, 15)
        for flight in events.flight[events.end_of(number - 1) : events.end_of(number)][
            events.kind[events.end_of(number - 1) : events.end_of(number)] == CANCELLED
        ]
    }
    assert check.lost == len(gone - later)


def test_the_check_after_a_crash_finds_a_delete_that_is_lost(
    empty_table: Table, events: FlightEvents
) -> None:
    replay(empty_table, events, events.num_batches)
    cancelled = int(events.flight[events.kind == CANCELLED][0])
    with empty_table.writer() as writer:
        writer.upsert(events.facts.slice(cancelled, 1))
    check = check_after_crash(empty_table, events, events.num_batches - 1)
    assert (check.lost, check.undeleted) == (0, 1)
    assert not check.passed
