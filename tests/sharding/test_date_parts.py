from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
import pytest
from tests.sharding.oracles import datafusion_values

from weir.sharding.date_parts import PARTS, date_part, instants_with, parts_between

LIMITS = np.iinfo(np.int64)
DAY = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}
# The first and last days of DataFusion's calendar, in days since 1970.
CALENDAR = (-96_465_292, 95_026_236)


def instants(unit: str) -> pa.Array:
    day = DAY[unit]
    random = np.random.default_rng(3)
    values = random.integers(-40_000, 80_000, 300) * day + random.integers(0, day, 300)
    edges = [0, -1, 1, day, day - 1, -day, LIMITS.min, LIMITS.max, LIMITS.min // 2, LIMITS.max // 2]
    edges += [edge * day for edge in CALENDAR if LIMITS.min <= edge * day <= LIMITS.max]
    edges += [edge * day - 1 for edge in CALENDAR if LIMITS.min <= edge * day - 1 <= LIMITS.max]
    every_ninth = np.arange(len(edges) + 300) % 9 == 8
    return pa.array(np.concatenate([np.array(edges), values]), mask=every_ninth)


COLUMNS = {
    **{f"timestamp_{unit}": instants(unit).cast(pa.timestamp(unit)) for unit in DAY},
    "utc": instants("us").cast(pa.timestamp("us", "UTC")),
    "date32": pa.array(
        [0, -1, 31, 59, 60, 11_016, *CALENDAR, CALENDAR[0] - 1, CALENDAR[1] + 1, 2**31 - 1, -(2**31), None],
        pa.int32(),
    ).cast(pa.date32()),
    "date64": instants("ms").view(pa.date64()),
}


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("column", COLUMNS.values(), ids=COLUMNS.keys())
def test_parts_are_those_of_datafusion(column: pa.Array, part: str) -> None:
    expected = datafusion_values({"c": column}, f"date_part('{part}', c)")
    assert date_part(part, column).equals(expected)
    assert date_part(part, column.slice(5, 9)).equals(expected.slice(5, 9))


def test_instants_of_a_zone_are_read_in_utc() -> None:
    new_year_in_berlin = pa.array([0], pa.timestamp("s", "Europe/Berlin"))
    just_before = pa.array([-1800], pa.timestamp("s", "Europe/Berlin"))
    assert date_part("hour", new_year_in_berlin).to_pylist() == [0]
    assert date_part("year", just_before).to_pylist() == [1969]


@pytest.mark.parametrize(
    ("data_type", "depth"),
    [
        *((pa.date32(), depth) for depth in (1, 2, 3)),
        *itertools.product([pa.date64(), pa.timestamp("s"), pa.timestamp("us")], [1, 2, 3, 4]),
    ],
    ids=str,
)
def test_instants_with_parts_are_exactly_those_with_them(data_type: pa.DataType, depth: int) -> None:
    stored = pa.int32() if pa.types.is_date32(data_type) else pa.int64()
    moments = [(1970, 1, 1, 0), (1969, 12, 31, 23), (2000, 2, 29, 13), (2100, 2, 28, 7), (-5, 3, 1, 1)]
    for moment in moments:
        parts = dict(zip(PARTS, moment, strict=True))
        wanted = {part: parts[part] for part in PARTS[:depth]}
        first, last = instants_with(wanted, data_type)
        around = pa.array([first - 1, first, (first + last) // 2, last, last + 1], stored).view(data_type)
        inside = np.logical_and.reduce(
            [np.array(date_part(part, around).to_pylist()) == value for part, value in wanted.items()]
        )
        assert inside.tolist() == [False, True, True, True, False]


@pytest.mark.parametrize("data_type", [pa.date32(), pa.timestamp("s")], ids=str)
@pytest.mark.parametrize("part", PARTS)
def test_parts_between_are_all_that_occur(data_type: pa.DataType, part: str) -> None:
    unit = 1 if pa.types.is_date32(data_type) else 3_600
    stored = pa.int32() if unit == 1 else pa.int64()
    for start, length in itertools.product([0, -5, 58, 10_957, -20_000], [0, 1, 20, 40, 200, 340, 800]):
        first, last = start * unit, (start + length) * unit
        occurring = date_part(
            part, pa.array(range(first, last + 1, unit), stored).view(data_type)
        ).to_pylist()
        found = parts_between(part, first, last, data_type)
        if found is None:
            assert len(set(occurring)) >= {"month": 12, "day": 28, "hour": 24}[part]
        else:
            assert found == set(occurring)
