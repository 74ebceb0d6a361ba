"""Parsing of instants and dates."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from math import floor, isfinite

from weir.errors import InputError

__all__ = ["EPOCH", "YEARS", "from_micros", "now_micros", "parse_date", "parse_instant", "to_micros"]

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
YEARS = (datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC))
"""The first and the last valid instant; their days are the first and the last valid date."""
_LEAST, _MOST = ((one - EPOCH) // _MICROSECOND for one in YEARS)
# Numbers below each are of the unit: 10**11 s is the year 5138, 10**11 ms the year 1973.
_UNITS = ((10**11, 10**6), (10**14, 10**3), (10**17, 1))


def to_micros(instant: datetime) -> int:
    """Return an instant as microseconds since 1970; one without offset is UTC."""
    if instant.tzinfo is None:
        instant = instant.replace(tzinfo=UTC)
    return (instant - EPOCH) // _MICROSECOND


def from_micros(micros: int) -> datetime:
    """Return the instant this many microseconds after 1970."""
    return EPOCH + timedelta(microseconds=micros)


def now_micros() -> int:
    """Return the current instant, by the wall clock."""
    return to_micros(datetime.now(UTC))


def parse_instant(value: object) -> int:
    """Return an instant as microseconds since 1970.

    Parameters
    ----------
    value : str, int, float, Decimal or datetime
        ISO 8601 with offset (without one, UTC); a number of seconds, milliseconds, microseconds or
        nanoseconds, distinguished by magnitude; a datetime.

    Raises
    ------
    InputError
        If it is not an instant, or outside the years 1 to 9999.

    Examples
    --------
    >>> parse_instant("2026-11-01T01:00:00+01:00"), parse_instant(1793491200), parse_instant("2026-11-01")
    (1793491200000000, 1793491200000000, 1793491200000000)
    """
    try:
        if isinstance(value, datetime):
            micros = to_micros(value)
        elif isinstance(value, str):
            micros = to_micros(_from_text(value))
        elif isinstance(value, (int, float, Decimal)) and not isinstance(value, bool) and isfinite(value):
            micros = _from_number(value)
        else:
            raise ValueError
    except (ValueError, OverflowError, ArithmeticError):
        raise InputError(
            f"{value!r:.80} is no time",
            hint="Give ISO 8601, such as 2026-11-01T08:30:00Z, or a number of s, ms, us or ns since 1970",
        ) from None
    if not _LEAST <= micros <= _MOST:
        raise InputError(f"{value!r:.80} is not within the years 1 to 9999")
    return micros


def _from_text(text: str) -> datetime:
    if not text[:4].isascii() or not text[:4].isdigit() or text != text.strip() or "W" in text.upper():
        raise ValueError(text)
    # Weeks and days of the year are ISO 8601 too, but written by nobody on purpose.
    if len(text) > 4 and text[4] != "-":
        raise ValueError(text)
    return datetime.fromisoformat(text)


def _from_number(number: int | float | Decimal) -> int:
    exact = Decimal(repr(number)) if isinstance(number, float) else Decimal(number)
    for bound, factor in _UNITS:
        if abs(exact) < bound:
            return floor(exact * factor)
    return floor(number) // 1000


def parse_date(value: object) -> date:
    """Parse a date, given as ``"YYYY-MM-DD"`` or as a date.

    Raises
    ------
    InputError
        If it is not valid.
    """
    if isinstance(value, date) and not isinstance(value, datetime):
        return value
    if isinstance(value, str) and _DAY.fullmatch(value):
        try:
            return date.fromisoformat(value)
        except ValueError:
            pass
    raise InputError(f"{value!r:.80} is no date", hint='Give "YYYY-MM-DD"')
