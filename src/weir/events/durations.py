"""Durations as people write them: ``"90d"``, ``"1h 30m"``."""

from __future__ import annotations

import re
from datetime import timedelta

from weir.errors import InputError

__all__ = ["parse_duration"]

_PART = re.compile(r"\s*(\d{1,9}(?:\.\d{1,6})?)\s*(us|ms|s|min|m|h|d|w)", re.ASCII)
_UNITS = {
    "us": timedelta(microseconds=1),
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "min": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "w": timedelta(weeks=1),
}


def parse_duration(text: str) -> timedelta:
    """Parse a duration.

    Raises
    ------
    InputError
        If it is not valid.

    Examples
    --------
    >>> parse_duration("1h 30m")
    datetime.timedelta(seconds=5400)
    """
    total, at = timedelta(), 0
    stripped = text.rstrip()
    try:
        while at < len(stripped):
            part = _PART.match(stripped, at)
            if part is None or (part.end() < len(stripped) and stripped[part.end()].isalpha()):
                break
            total += float(part[1]) * _UNITS[part[2]] if "." in part[1] else int(part[1]) * _UNITS[part[2]]
            at = part.end()
    except OverflowError:
        at = 0
    if at == 0 or at < len(stripped):
        raise InputError(
            f"{text!r:.60} is not a duration",
            hint='Write a number and a unit of us, ms, s, m, h, d or w, such as "90d" or "2h"',
        )
    return total
