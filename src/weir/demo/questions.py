"""Queries that run during the stream, each with the expected result.

A strong read sees every acknowledged event, and perhaps some that are on their way. Events come in time
order, so of what happened before the last acknowledged event it sees exactly everything: questions about
that time have one right answer.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc

from weir.demo.expected import ExpectedFlights
from weir.demo.flights import FLIGHT_SCHEMA
from weir.table.table import Table

__all__ = [
    "DELAYED_MINUTES",
    "Answer",
    "ask_about_delays",
    "ask_about_flight",
    "delays_in_sql",
    "instant_text",
    "judge_delays",
]

DELAYED_MINUTES = 15
_HOUR = 3_600_000_000


@dataclass(frozen=True, slots=True)
class Answer:
    """What a question was answered with.

    Parameters
    ----------
    question : str
        The question.
    answer : str
        The answer from the table.
    right : bool
        Whether it is what the CSV says.
    seconds : float
        How long the answer took.
    flight : str or None
        A flight the answer is about, to ask more.
    """

    question: str
    answer: str
    right: bool
    seconds: float
    flight: str | None = None


def ask_about_delays(table: Table, expected: ExpectedFlights, now: int) -> Answer:
    """Ask which airports had delayed departures in the last hour of stream time, with a strong scan.

    Parameters
    ----------
    table : Table
        The table.
    expected : ExpectedFlights
        What the CSV says.
    now : int
        Time of the last acknowledged event, in microseconds since 1970.
    """
    started = time.monotonic()
    found = table.scan(
        ["id", "origin", "dep_delay"],
        filter=f"departed >= {_literal(now - _HOUR)} AND departed < {_literal(now)} "
        f"AND dep_delay > {DELAYED_MINUTES}",
    ).to_table()
    seconds = time.monotonic() - started
    by_airport = dict(sorted(Counter(found.column("origin").to_pylist()).items()))
    latest = None
    if found.num_rows:
        most = pc.index(found.column("dep_delay"), pc.max(found.column("dep_delay"))).as_py()
        latest = found.column("id")[most].as_py()
    return replace(judge_delays(by_airport, expected, now, seconds), flight=latest)


def delays_in_sql(now: int) -> str:
    """Return the same question as SQL over the view ``flights``: an airport and a number in each row."""
    return (
        "SELECT origin, count(*) FROM flights "
        f"WHERE departed >= {_literal(now - _HOUR)} AND departed < {_literal(now)} "
        f"AND dep_delay > {DELAYED_MINUTES} GROUP BY origin ORDER BY origin"
    )


def judge_delays(
    by_airport: dict[str, int], expected: ExpectedFlights, now: int, seconds: float, how: str = ""
) -> Answer:
    """Return the answer to that question, held against what the CSV says.

    Parameters
    ----------
    by_airport : dict of str to int
        The answer, in the order of the airports.
    expected : ExpectedFlights
        What the CSV says.
    now : int
        Time of the last acknowledged event, in microseconds since 1970.
    seconds : float
        How long the answer took.
    how : str
        How it was asked, for people.
    """
    return Answer(
        f"{how}delayed departures in the hour to {instant_text(now)}, by airport",
        ", ".join(f"{airport} {count}" for airport, count in by_airport.items()) or "none",
        by_airport == expected.delayed_by_airport(now - _HOUR, now, DELAYED_MINUTES),
        seconds,
    )


def ask_about_flight(table: Table, expected: ExpectedFlights, flight: str) -> Answer:
    """Ask for one flight that has departed, with a strong look-up by key."""
    started = time.monotonic()
    found = table.get([flight])
    seconds = time.monotonic() - started
    if found.num_rows != 1:
        return Answer(f"flight {flight}", f"{found.num_rows} rows", False, seconds)
    row = tuple(_plain(found.column(name))[0].as_py() for name in FLIGHT_SCHEMA.names)
    named = dict(zip(FLIGHT_SCHEMA.names, row, strict=True))
    right = dict(zip(FLIGHT_SCHEMA.names, expected.rows[flight], strict=True))
    if named["status"] == "departed":
        # Whether the arrival is already visible depends on what is in flight.
        for name in ("status", "arr_time", "arr_delay", "air_time", "updated"):
            right[name] = named[name]
    text = f"to {named['dest']}, left {named['dep_delay']} min late, {named['status']}"
    return Answer(f"flight {flight}", text, named == right, seconds)


def instant_text(microseconds: int) -> str:
    """Return an instant for people.

    Examples
    --------
    >>> instant_text(1_357_030_800_000_000)
    '2013-01-01 09:00 UTC'
    """
    return f"{datetime.fromtimestamp(microseconds / 1e6, UTC):%Y-%m-%d %H:%M} UTC"


def _literal(microseconds: int) -> str:
    return f"timestamp '{datetime.fromtimestamp(microseconds / 1e6, UTC):%Y-%m-%d %H:%M:%S}'"


def _plain(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column
