"""Calendars: beside every column of instants one of their days, whose bitmap knows the events of each day.

A zone is read if its first and its last instant enclose what is asked for, so one late event makes it wide.
The calendar says which days there are in between.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from weir.events.field_types import INSTANT

__all__ = ["DAYS_OF_TIMESTAMP", "calendar_of", "calendars", "with_days"]


def calendar_of(column: str) -> str:
    """Return the name of the column with the days, in UTC, of a column of instants."""
    return f"day_{column}"


DAYS_OF_TIMESTAMP = calendar_of("timestamp")


def calendars(columns: Mapping[str, str]) -> dict[str, str]:
    """Return the columns of days for columns of the catalog, with the text of their type.

    Examples
    --------
    >>> calendars({"f_at": "timestamp[us, tz=UTC]", "f_plan": "string"})
    {'day_f_at': 'date32[day]'}
    """
    return {calendar_of(name): str(pa.date32()) for name, text in columns.items() if text == str(INSTANT)}


def with_days(columns: Mapping[str, pa.Array | pa.ChunkedArray]) -> dict[str, pa.Array | pa.ChunkedArray]:
    """Return columns of the events table with the days of their instants."""
    days = {calendar_of(name): one.cast(pa.date32()) for name, one in columns.items() if one.type == INSTANT}
    return {**columns, **days}
