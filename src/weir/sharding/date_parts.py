"""Year, month, day and hour of dates and timestamps, vectorised, with their inverses.

The parts are those of DataFusion's ``date_part``: ``day`` is the day of the month, ``hour`` the hour of
the day. A timestamp with a time zone is an instant; **its parts are those of the instant in UTC**,
because the rules of a zone change from release to release of the time-zone database, and a shard value
must not. For columns without a zone, or in UTC, that is exactly ``date_part``.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from weir.sharding.arrow_values import fixed_width_values, valid_mask, with_nulls

__all__ = ["PARTS", "date_part", "has_date_parts", "instants_with", "parts_between"]

PARTS = ("year", "month", "day", "hour")
"""The parts, coarsest first."""

_SECONDS = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_DISTINCT = {"year": 1_000, "month": 12, "day": 31, "hour": 24}

# What DataFusion's calendar can hold; it has no parts, that is null, beyond.
_FIRST_DAY = int(np.datetime64(-262143 - 1970, "Y").astype("datetime64[D]").astype(np.int64))
_LAST_DAY = int(np.datetime64(262143 - 1970, "Y").astype("datetime64[D]").astype(np.int64)) - 1


def has_date_parts(data_type: pa.DataType) -> bool:
    """Whether the type is a date or a timestamp."""
    return bool(pa.types.is_date(data_type) or pa.types.is_timestamp(data_type))


def date_part(part: str, column: pa.Array) -> pa.Array:
    """Return one part of each date or timestamp as ``int32``; null where the value is null.

    Parameters
    ----------
    part : {"year", "month", "day", "hour"}
        Which part; months and days count from 1, the hour of a date is 0.
    column : pyarrow.Array
        Dates or timestamps of any unit, read in UTC.

    Examples
    --------
    >>> import pyarrow as pa
    >>> date_part("month", pa.array([0, 31, None, -1], pa.date32())).to_pylist()
    [1, 2, None, 12]
    """
    width = np.int32 if pa.types.is_date32(column.type) else np.int64
    values = fixed_width_values(column, np.dtype(width)).astype(np.int64)
    valid = valid_mask(column)
    per_day = _per_day(column.type)
    days = values // per_day
    in_calendar = (days >= _FIRST_DAY) & (days <= _LAST_DAY)
    # The hour of a date needs no calendar.
    if not in_calendar.all() and not (part == "hour" and per_day == 1):
        valid = in_calendar if valid is None else valid & in_calendar
    return with_nulls(_parts(part, values, column.type), valid)


def instants_with(parts: Mapping[str, int], data_type: pa.DataType) -> tuple[int, int]:
    """Return the first and last ordinal whose parts are these.

    Parameters
    ----------
    parts : mapping of str to int
        ``year``, or ``year`` and ``month``, and so on without a gap.
    data_type : pyarrow.DataType
        The type of the column.

    Examples
    --------
    >>> import pyarrow as pa
    >>> instants_with({"year": 1970, "month": 2}, pa.date32())
    (31, 58)
    """
    last = len(parts) - 1
    months = (parts["year"] - 1970) * 12 + parts.get("month", 1) - 1
    first_day = _first_day_of(months) + parts.get("day", 1) - 1
    hour = parts.get("hour", 0)
    per_day = _per_day(data_type)
    start = first_day * per_day
    if last == 0:
        return start, _first_day_of(months + 12) * per_day - 1
    if last == 1:
        return start, _first_day_of(months + 1) * per_day - 1
    if last == 2 or per_day == 1:
        return start, start + per_day - 1
    return start + hour * (per_day // 24), start + (hour + 1) * (per_day // 24) - 1


def parts_between(part: str, first: int, last: int, data_type: pa.DataType) -> frozenset[int] | None:
    """Return every value ``part`` takes between two ordinals, or None if that is (nearly) all of them.

    Examples
    --------
    >>> import pyarrow as pa
    >>> sorted(parts_between("month", 50, 100, pa.date32()))
    [2, 3, 4]
    """
    per_day = _per_day(data_type)
    if part == "hour":
        if per_day == 1:
            return frozenset({0})
        step = per_day // 24
        start, stop = first // step, last // step
        if stop - start + 1 >= _DISTINCT[part]:
            return None
        return frozenset(number % 24 for number in range(start, stop + 1))
    start, stop = first // per_day, last // per_day
    if part == "day":
        if stop - start + 1 >= _DISTINCT[part]:
            return None
        days = np.arange(start, stop + 1, dtype=np.int64)
        return frozenset(_parts("day", days, pa.date32()).tolist())
    unit = "datetime64[M]" if part == "month" else "datetime64[Y]"
    start, stop = (
        int(np.int64(day).astype("datetime64[D]").astype(unit).astype(np.int64)) for day in (start, stop)
    )
    if stop - start + 1 >= _DISTINCT[part]:
        return None
    numbers = range(start, stop + 1)
    return frozenset(number % 12 + 1 if part == "month" else number + 1970 for number in numbers)


def _per_day(data_type: pa.DataType) -> int:
    if pa.types.is_date32(data_type):
        return 1
    return 86_400 * _SECONDS["ms" if pa.types.is_date64(data_type) else data_type.unit]


def _first_day_of(months: int) -> int:
    return int(np.datetime64(months, "M").astype("datetime64[D]").astype(np.int64))


def _parts(part: str, values: NDArray[np.int64], data_type: pa.DataType) -> NDArray[np.int32]:
    per_day = _per_day(data_type)
    if part == "hour":
        if per_day == 1:
            return np.zeros(len(values), np.int32)
        return np.asarray(values % per_day // (per_day // 24), np.int32)
    days = (values // per_day).astype("datetime64[D]")
    months = days.astype("datetime64[M]")
    if part == "year":
        return np.asarray(months.astype("datetime64[Y]").astype(np.int64) + 1970, np.int32)
    if part == "month":
        return np.asarray(months.astype(np.int64) % 12 + 1, np.int32)
    return np.asarray((days - months.astype("datetime64[D]")).astype(np.int64) + 1, np.int32)
