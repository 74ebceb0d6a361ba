"""The clocks of a time zone as arrays: the instants at which they are set, and how far from UTC they are.

Arrow knows how the clocks are set up to the year 2037. ``zoneinfo`` knows it for every year, but tells it of
one instant at a time. So it is asked about the days of every year that occurs, once.
"""

from __future__ import annotations

from calendar import isleap
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import pairwise
from zoneinfo import ZoneInfo

import numpy as np
from numpy.typing import NDArray

from weir.events.instants import YEARS, from_micros, to_micros

__all__ = ["Clocks", "clocks_of"]

_Instants = NDArray[np.int64]
_MICROSECOND = timedelta(microseconds=1)
_SECOND = 1_000_000
_DAY = 86_400 * _SECOND
_BEFORE_ALL = -(1 << 62)
# Within a day of them a local time may be of a year that Python does not have.
_FIRST, _LAST = to_micros(YEARS[0]) + _DAY, to_micros(YEARS[1]) - _DAY


@dataclass(frozen=True, slots=True)
class Clocks:
    """How the clocks of a zone go in some years. All numbers are microseconds, instants since 1970.

    Parameters
    ----------
    set_at : int64 array
        The instants from which on an offset holds, ascending.
    offsets : int64 array
        What the clocks show, less UTC.
    """

    set_at: _Instants
    offsets: _Instants

    def shown(self, instants: _Instants) -> _Instants:
        """Return what the clocks show at some instants."""
        found: _Instants = instants + self.offsets[np.searchsorted(self.set_at, instants, side="right") - 1]
        return found

    def first_shown(self, shown: _Instants) -> _Instants:
        """Return when the clocks first show some times, or later ones where they pass over them."""
        before_set = np.maximum.accumulate(self.set_at[1:] + self.offsets[:-1])
        at = np.searchsorted(before_set, shown, side="right")
        found: _Instants = np.maximum(self.set_at[at], shown - self.offsets[at])
        return found


def clocks_of(zone: str, instants: _Instants) -> Clocks:
    """Return the clocks of a zone in the years of some instants, and in the years next to these."""
    years = np.unique(instants.view("datetime64[us]").astype("datetime64[Y]").astype(np.int64)) + 1970
    near = np.unique(np.clip(np.concatenate([years - 1, years, years + 1]), YEARS[0].year, YEARS[1].year))
    of_years = [_of_year(zone, int(year)) for year in near]
    return Clocks(*(np.concatenate(parts) for parts in zip(*of_years, strict=True)))


@lru_cache(32768)
def _of_year(name: str, year: int) -> tuple[_Instants, _Instants]:
    zone = ZoneInfo(name)
    first = to_micros(datetime(year, 1, 1, tzinfo=UTC))
    days = [first + day * _DAY for day in range(366 + isleap(year))]
    changes = [change for start, end in pairwise(days) for change in _changes(zone, start, end)]
    # What the clocks show on the first day of all may be of the year before.
    set_at = [_BEFORE_ALL if year == YEARS[0].year else first, *changes]
    offsets = [_offset(zone, first), *(_offset(zone, change) for change in changes)]
    return np.array(set_at, np.int64), np.array(offsets, np.int64)


def _changes(zone: ZoneInfo, start: int, end: int) -> Iterator[int]:
    """Yield when the clocks are set after an instant and up to another, within a day of it."""
    if _offset(zone, start) == _offset(zone, end):
        return
    if end - start <= _SECOND:
        yield end
        return
    middle = start + (end - start) // _SECOND // 2 * _SECOND
    yield from _changes(zone, start, middle)
    yield from _changes(zone, middle, end)


def _offset(zone: ZoneInfo, instant: int) -> int:
    offset = from_micros(min(max(instant, _FIRST), _LAST)).astimezone(zone).utcoffset()
    assert offset is not None
    return offset // _MICROSECOND
