"""Wall clocks of zones as arrays, against ``zoneinfo``, in the years that Arrow knows and in later ones."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from zoneinfo import ZoneInfo

import pyarrow as pa
import pytest

import weir
from weir.schema.zone_clocks import instants_shown

ZONES = [
    "Europe/Berlin",
    "America/New_York",
    "America/Santiago",  # the clocks are set at midnight
    "Africa/Casablanca",  # by the moon
    "Australia/Lord_Howe",  # set by half an hour
    "Antarctica/Troll",  # set by two hours
    "Asia/Kolkata",
    "UTC",
]
SUMMERS = (2026, 2037, 2038, 2040, 2060, 2150)


def shown_at(local: datetime, zone: ZoneInfo) -> list[datetime]:
    """Return the instants at which the clocks of a zone show a time."""
    found = {local.replace(tzinfo=zone, fold=fold).astimezone(UTC) for fold in (0, 1)}
    return [one for one in found if one.astimezone(zone).replace(tzinfo=None) == local]


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("unit", ["us", "ns"])
def test_a_time_is_what_the_clocks_of_its_zone_show(zone: str, unit: str) -> None:
    random, clocks = Random(zone), ZoneInfo(zone)
    times = [datetime(2020, 1, 1) + timedelta(seconds=random.randrange(150 * 31_556_952)) for _ in range(300)]
    times += [
        datetime(year, month, day, hour, 30)
        for year in (2036, 2037, 2038, 2039, 2061, 2099, 2100)
        for month in (3, 4, 9, 10, 11)
        for day in (1, 7, 14, 28)
        for hour in (0, 1, 2, 3, 23)
    ]
    clear = [one for one in times if len(shown_at(one, clocks)) == 1]
    kind = pa.timestamp(unit)
    found = instants_shown(pa.array([*clear, None], kind), zone)
    assert found.type == pa.timestamp(unit, zone)
    micros = found.cast(pa.timestamp("us", "UTC")).to_pylist()
    assert micros == [*(shown_at(one, clocks)[0] for one in clear), None]
    chunks = instants_shown(pa.chunked_array([clear[:3], clear[3:]], kind), zone)
    assert chunks.combine_chunks().equals(found.slice(0, len(clear)))


@pytest.mark.parametrize("year", [2026, 2040])
def test_a_time_that_is_never_shown_or_twice_is_refused(year: int) -> None:
    last_sundays = (
        max(one for one in (datetime(year, month, day, 2, 30) for day in range(24, 32)) if one.weekday() == 6)
        for month in (3, 10)
    )
    for local in last_sundays:
        with pytest.raises(ValueError, match=r"exist|pass over|ambiguous|twice"):
            instants_shown(pa.array([local], pa.timestamp("us")), "Europe/Berlin")


def test_nanoseconds_and_fixed_offsets_are_kept() -> None:
    late = pa.scalar("2040-07-01 12:00:00.123456789").cast(pa.timestamp("ns"))
    early = pa.scalar("1969-12-31 23:59:59.000000001").cast(pa.timestamp("ns"))
    found = instants_shown(pa.array([late, early]), "America/New_York").cast(pa.int64()).to_pylist()
    assert found == [late.value + 4 * 3600 * 10**9, early.value + 5 * 3600 * 10**9]
    moved = instants_shown(pa.array([late]), "+05:30")
    assert moved.cast(pa.int64()).to_pylist() == [late.value - 19_800 * 10**9]


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York"])
def test_filters_and_keys_mean_the_clock_on_the_wall_in_summers_to_come(tmp_path: Path, zone: str) -> None:
    schema = pa.schema([pa.field("at", pa.timestamp("us", zone), nullable=False), ("n", pa.int64())])
    table = weir.create(tmp_path / "t", schema, primary_key="at", fsync=False)
    noons = [datetime(year, month, 1, 12, tzinfo=ZoneInfo(zone)) for year in SUMMERS for month in (1, 7)]
    table.upsert([{"at": noon, "n": noon.year} for noon in noons])
    for _ in range(2):
        for noon in noons:
            text = f"{noon:%Y-%m-%d %H:%M:%S}"
            for condition in (f"at = '{text}'", f"at >= '{text}' AND at <= '{text}'", f"at IN ('{text}')"):
                found = table.scan(filter=condition).to_table().to_pylist()
                assert [row["at"].astimezone(UTC) for row in found] == [noon.astimezone(UTC)], condition
            assert table.get([text])["n"].to_pylist() == [noon.year]
        table.maintenance.merge()
