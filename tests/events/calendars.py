"""What a calendar has to be: for every column of instants the days of its values."""

from __future__ import annotations

import pyarrow as pa

from weir.events.store import EventStore

__all__ = ["check_calendars"]


def check_calendars(store: EventStore) -> int:
    """Compare every calendar of a store with its instants; return how many days they have."""
    rows = store.tables["events"].scan().to_table()
    days = 0
    for field in rows.schema:
        if field.type == pa.timestamp("us", "UTC"):
            instants = rows.column(field.name).to_pylist()
            calendar = rows.column(f"day_{field.name}").to_pylist()
            assert calendar == [None if one is None else one.date() for one in instants], field.name
            days += len(set(calendar) - {None})
    return days
