"""What the tests of the demo share: a table that holds what the demo should leave."""

from __future__ import annotations

from pathlib import Path

import pytest

import weir
from weir.demo.events import FlightEvents, load_events
from weir.demo.expected import ExpectedFlights, expected_flights
from weir.demo.flights import FLIGHT_SCHEMA, NUM_SHARDS, PRIMARY_KEY
from weir.table.table import Table

FLIGHTS = 3_000


@pytest.fixture(scope="session")
def events() -> FlightEvents:
    return load_events(FLIGHTS, batch_rows=500)


@pytest.fixture(scope="session")
def expected() -> ExpectedFlights:
    return expected_flights(FLIGHTS)


@pytest.fixture
def empty_table(tmp_path: Path) -> Table:
    return weir.create(
        tmp_path / "flights",
        FLIGHT_SCHEMA,
        primary_key=PRIMARY_KEY,
        shard_by=weir.bucket(PRIMARY_KEY, NUM_SHARDS),
        fsync=False,
    )


@pytest.fixture
def full_table(empty_table: Table, events: FlightEvents) -> Table:
    """Return a table into which all events have been written."""
    replay(empty_table, events, events.num_batches)
    return empty_table


def replay(table: Table, events: FlightEvents, batches: int) -> None:
    """Write the first batches of the stream."""
    with table.writer() as writer:
        for number in range(batches):
            batch = events.batch(number)
            writer.upsert(batch.upserts)
            writer.delete(batch.deletes)
