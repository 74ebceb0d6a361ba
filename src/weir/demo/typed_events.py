"""The flights as typed events of aircraft, in time order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from weir.demo.events import ARRIVED, FlightEvents, load_events

__all__ = ["UNKNOWN", "event_types", "loaded", "typed_batches"]

UNKNOWN = "unknown"
"""The context of flights without a known aircraft."""

_DIVERTED = 4
_NAMES = ("scheduled", "departed", "arrived", "cancelled", "diverted")
_FROM = ("scheduled", "departed", "cancelled")
_TO = ("scheduled", "arrived", "diverted")


def event_types(carriers: list[str]) -> dict[str, dict[str, Any]]:
    """Return the types of events, with their fields."""
    common: dict[str, Any] = {"flight": "string", "carrier": carriers}
    return {
        "scheduled": {**common, "origin": "string", "dest": "string", "distance": "int"},
        "departed": {**common, "origin": "string", "delay": "int"},
        "arrived": {**common, "dest": "string", "delay": "int", "air_time": "int | null"},
        "diverted": {**common, "dest": "string", "air_time": "int | null"},
        "cancelled": {**common, "origin": "string"},
    }


def typed_batches(events: FlightEvents) -> Iterator[list[tuple[str, pa.Table]]]:
    """Yield the events batch by batch, those of a type together."""
    context = pc.fill_null(events.facts.column("tailnum"), UNKNOWN).combine_chunks()
    for start in range(0, len(events.time), events.batch_rows):
        rows = slice(start, start + events.batch_rows)
        flight, time = events.flight[rows], events.time[rows]
        # Who lands elsewhere arrives late by nothing that was noted.
        elsewhere = (events.kind[rows] == ARRIVED) & ~events.has_arr_delay[flight]
        kind = np.where(elsewhere, _DIVERTED, events.kind[rows])
        yield [
            (name, _table(name, events, context, flight[kind == code], time[kind == code]))
            for code, name in enumerate(_NAMES)
            if (kind == code).any()
        ]


def _table(name: str, events: FlightEvents, context: pa.Array, flight: Any, time: Any) -> pa.Table:
    rows = pa.array(flight)
    facts = events.facts.take(rows)
    columns = {
        "context_id": context.take(rows),
        "timestamp": pa.array(time).cast(pa.timestamp("us", "UTC")),
        "flight": facts.column("id"),
        "carrier": facts.column("carrier"),
    }
    if name in _FROM:
        columns["origin"] = facts.column("origin")
    if name in _TO:
        columns["dest"] = facts.column("dest")
    if name == "scheduled":
        columns["distance"] = facts.column("distance").cast(pa.int64())
    if name == "departed":
        columns["delay"] = pa.array(events.dep_delay[flight])
    if name == "arrived":
        columns["delay"] = pa.array(events.arr_delay[flight])
    if name in ("arrived", "diverted"):
        columns["air_time"] = pa.array(events.air_time[flight], mask=~events.has_air_time[flight])
    return pa.table(columns)


def loaded(flights: int | None) -> FlightEvents:
    """Return the events of some flights, or all, for batches of 10,000."""
    return load_events(flights, 10_000)
