"""Durations as people type them: ``90s``, ``15m``, ``1d 12h``."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TypeAlias

from weir.errors import OptionError

__all__ = ["Duration", "as_duration", "as_seconds", "parse_duration"]

Duration: TypeAlias = timedelta | float
"""A length of time: a timedelta, or seconds as a number."""


_UNITS = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_PART_OF_DURATION = r"\s*(\d+(?:\.\d+)?)\s*(ms|[smhd])\s*"


def as_duration(value: Duration, option: str) -> timedelta:
    """Return a length of time as a timedelta.

    Raises
    ------
    OptionError
        If it is neither a timedelta nor a number of seconds, or below 0, or too long for the calendar.

    Examples
    --------
    >>> as_duration(90, "horizon")
    datetime.timedelta(seconds=90)
    """
    length = value
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            length = timedelta(seconds=value)
        except (OverflowError, ValueError):
            length = timedelta(-1)
    if isinstance(length, timedelta) and length >= timedelta():
        return length
    raise OptionError(
        f"{option} must be a timedelta, or seconds as a number, of at least 0, got {value!r}", where=option
    )


def as_seconds(value: Duration, option: str) -> float:
    """Return a length of time in seconds. Raises as :func:`as_duration`."""
    return as_duration(value, option).total_seconds()


def parse_duration(text: str, option: str) -> timedelta:
    """Return the length of time of a text like ``15m``, ``36h`` or ``1d 12h``.

    Raises
    ------
    OptionError
        If it is none, or too long for the calendar.

    Examples
    --------
    >>> parse_duration("1h30m", "horizon")
    datetime.timedelta(seconds=5400)
    """
    try:
        if re.fullmatch(f"({_PART_OF_DURATION})+", text, re.ASCII):
            parts = re.findall(_PART_OF_DURATION, text)
            return sum((timedelta(**{_UNITS[unit]: float(number)}) for number, unit in parts), timedelta())
    except OverflowError:
        pass
    raise OptionError(
        f"a length of time is a number with a unit, got {text!r}",
        where=option,
        hint="Units are ms, s, m, h and d: 90s, 15m, 36h, 7d",
    )
