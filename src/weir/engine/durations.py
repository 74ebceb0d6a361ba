"""Lengths of time as people type them: ``90s``, ``15m``, ``1d 12h``."""

from __future__ import annotations

import re
from datetime import timedelta

from weir.errors import OptionError

__all__ = ["parse_duration"]

_UNITS = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_PART_OF_DURATION = r"\s*(\d+(?:\.\d+)?)\s*(ms|[smhd])\s*"


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
