"""PER in the local time of zones, against ``zoneinfo``, in all years."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import pyarrow as pa
import pytest

import weir
from tests.events.model import bucket
from weir.events.field_types import INSTANT
from weir.events.language.building import UNITS
from weir.events.query.buckets import bucket_starts

ZONES = [
    "Europe/Berlin",
    "Europe/Dublin",
    "America/New_York",
    "America/Santiago",  # the clocks are set at midnight
    "America/Sao_Paulo",
    "America/Toronto",  # were set half an hour before midnight
    "America/St_Johns",
    "Africa/Casablanca",  # by the moon
    "Asia/Kolkata",
    "Asia/Kathmandu",
    "Australia/Lord_Howe",  # set by half an hour
    "Pacific/Apia",  # a day is missing
    "Antarctica/Troll",  # set by two hours
]
SPANS = [(1840, 1900), (1900, 2030), (2030, 2101)]


@pytest.mark.parametrize("zone", ZONES)
def test_buckets_begin_as_the_clocks_of_a_zone_say(zone: str) -> None:
    random = Random(zone)
    for first, end in SPANS:
        start, seconds = datetime(first, 1, 1, tzinfo=UTC), (end - first) * 365 * 86_400
        instants: list[datetime | None] = [
            start + timedelta(seconds=random.randrange(seconds), microseconds=random.randrange(1_000_000))
            for _ in range(30)
        ]
        # And close to when the clocks may be set.
        instants += [
            datetime(year, month, day, hour, minute, tzinfo=UTC)
            for year in (random.randrange(first, end) for _ in range(2))
            for month in (3, 4, 9, 10)
            for day in (random.randrange(1, 31), 28)
            for hour, minute in ((0, 30), (1, 0), (13, 59), (23, 0))
        ]
        instants += [datetime(2, 1, 1, tzinfo=UTC), datetime(9999, 12, 29, tzinfo=UTC), None]
        for unit in UNITS:
            found = bucket_starts(pa.array(instants, INSTANT), unit, zone).to_pylist()
            wanted = [None if one is None else bucket(one, unit, zone) for one in instants]
            assert found == wanted


def test_days_of_summers_to_come_begin_by_the_clocks(tmp_path: Path) -> None:
    with weir.events.create(tmp_path / "store", buckets=1) as store, store.writer() as writer:
        store.define("a", {"at": "datetime"})
        for hour in (21, 22, 23):
            writer.append("a", "c", {"at": f"2050-07-01T{hour}:30:00Z"})
        found = store.execute('QUERY a USING at COUNT PER day IN "Europe/Berlin"').to_table().to_pylist()
    assert found == [
        {"bucket": datetime(2050, 6, 30, 22, tzinfo=UTC), "count": 1},
        {"bucket": datetime(2050, 7, 1, 22, tzinfo=UTC), "count": 2},
    ]
