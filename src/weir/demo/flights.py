"""The table of the demo: one row for each flight, from its announcement to its landing."""

from __future__ import annotations

import pyarrow as pa

__all__ = ["FLIGHT_SCHEMA", "NUM_SHARDS", "PRIMARY_KEY", "STATUSES"]

_INSTANT = pa.timestamp("us", "UTC")

FLIGHT_SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        ("status", pa.string()),
        ("carrier", pa.string()),
        ("flight", pa.int32()),
        ("tailnum", pa.string()),
        ("origin", pa.string()),
        ("dest", pa.string()),
        ("distance", pa.int32()),
        ("scheduled", _INSTANT),
        ("sched_arr_time", pa.int32()),
        ("departed", _INSTANT),
        ("dep_delay", pa.int32()),
        ("arr_time", pa.int32()),
        ("arr_delay", pa.int32()),
        ("air_time", pa.int32()),
        ("updated", _INSTANT),
    ]
)
"""The columns.

``id`` is the local date, carrier, flight number and origin, ``2013-01-01/UA1545/EWR``: no single column
of the data is unique, and the first three are not either (an airline may use a number for two legs of
one day). ``distance`` is in miles, ``dep_delay``, ``arr_delay`` and ``air_time`` in minutes;
``sched_arr_time`` and ``arr_time`` are the local clock at the destination as ``hhmm``. ``updated`` is
the time of the event that made the row what it is.
"""

PRIMARY_KEY = "id"
NUM_SHARDS = 4

STATUSES = ("scheduled", "departed", "arrived", "diverted")
"""What a flight can be. One that was cancelled has no row."""
