"""The clocks of a time zone as arrays: the instants at which they are set, and how far from UTC they are.

Arrow knows how the clocks are set up to the year 2037. ``zoneinfo`` knows it for every year, but tells it of
one instant at a time. So it is asked about the days of every year that occurs, once.

It stands this far down because filters and keys, event queries and whatever else reads a wall clock need it.
"""

from __future__ import annotations

import re
from calendar import isleap
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import pairwise
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

__all__ = ["Clocks", "clocks_of", "instants_shown"]

_Instants = NDArray[np.int64]
_MICROSECOND = timedelta(microseconds=1)
_SECOND = 1_000_000
_DAY = 86_400 * _SECOND
_BEFORE_ALL = -(1 << 62)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_YEARS = (1, 9999)
# Within a day of them a local time may be of a year that Python does not have.
_FIRST = (datetime(1, 1, 2, tzinfo=UTC) - _EPOCH) // _MICROSECOND
_LAST = (datetime(9999, 12, 31, tzinfo=UTC) - _EPOCH) // _MICROSECOND - 1
_ARROW_ENDS = pa.scalar(datetime(2037, 1, 1), pa.timestamp("us"))
_FIXED = re.compile(r"[+-][0-9]{2}:?[0-9]{2}")


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

    def shown_once(self, shown: _Instants) -> _Instants:
        """Return when the clocks show some times.

        Raises
        ------
        ValueError
            They never show one of them, or show it twice.
        """
        before_set = np.maximum.accumulate(self.set_at[1:] + self.offsets[:-1])
        at = np.searchsorted(before_set, shown, side="right")
        found: _Instants = shown - self.offsets[at]
        if np.any(found < self.set_at[at]):
            raise ValueError("the clocks pass over it when they are set")
        after = np.minimum(at + 1, len(self.set_at) - 1)
        again = shown - self.offsets[after]
        if np.any((again >= self.set_at[after]) & (again != found)):
            raise ValueError("the clocks show it twice")
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
    near = np.unique(np.clip(np.concatenate([years - 1, years, years + 1]), *_YEARS))
    of_years = [_of_year(zone, int(year)) for year in near]
    return Clocks(*(np.concatenate(parts) for parts in zip(*of_years, strict=True)))


def instants_shown(local: pa.Array | pa.ChunkedArray, zone: str) -> pa.Array | pa.ChunkedArray:
    """Return when the clocks of a zone show some times, in any year.

    Parameters
    ----------
    local : Array or ChunkedArray
        The times, without a zone, in microseconds or nanoseconds.
    zone : str
        The zone, as Arrow takes it.

    Raises
    ------
    ValueError
        The clocks never show one of them, or show it twice.

    Examples
    --------
    >>> noon = pa.array([datetime(2040, 7, 1, 12)], pa.timestamp("us"))
    >>> instants_shown(noon, "Europe/Berlin")[0].as_py().isoformat()
    '2040-07-01T12:00:00+02:00'
    """
    is_late = pc.greater_equal(local, _ARROW_ENDS)
    if _FIXED.fullmatch(zone) or not pc.any(is_late).as_py():
        return pc.assume_timezone(local, zone)
    if isinstance(local, pa.ChunkedArray):
        return pa.chunked_array([instants_shown(chunk, zone) for chunk in local.chunks])
    early = pc.assume_timezone(pc.if_else(is_late, None, local), zone)
    late = pc.drop_null(pc.filter(local, is_late))
    # What is less than a microsecond stays as it is.
    shown = late.cast(pa.timestamp("us"), safe=False).cast(pa.int64()).to_numpy()
    moved = pa.array(clocks_of(zone, shown).shown_once(shown) - shown).cast(pa.duration("us"))
    found = pc.add(late, moved.cast(pa.duration(local.type.unit))).cast(pa.int64()).cast(early.type)
    return pc.replace_with_mask(early, pc.fill_null(is_late, False), found)


@lru_cache(32768)
def _of_year(name: str, year: int) -> tuple[_Instants, _Instants]:
    zone = ZoneInfo(name)
    first = (datetime(year, 1, 1, tzinfo=UTC) - _EPOCH) // _MICROSECOND
    days = [(at, _offset(zone, at)) for at in range(first, first + (366 + isleap(year)) * _DAY, _DAY)]
    changes = [change for start, end in pairwise(days) for change in _changes(zone, start, end)]
    # What the clocks show on the first day of all may be of the year before.
    since = _BEFORE_ALL if year == _YEARS[0] else first
    set_at, offsets = zip((since, days[0][1]), *changes, strict=True)
    return np.array(set_at, np.int64), np.array(offsets, np.int64)


def _changes(zone: ZoneInfo, start: tuple[int, int], end: tuple[int, int]) -> Iterator[tuple[int, int]]:
    """Yield when the clocks are set after an instant and up to another, within a day of it, and to what.

    Each instant has its offset beside it, which is asked for once.
    """
    if start[1] == end[1]:
        return
    if end[0] - start[0] <= _SECOND:
        yield end
        return
    at = start[0] + (end[0] - start[0]) // _SECOND // 2 * _SECOND
    middle = at, _offset(zone, at)
    yield from _changes(zone, start, middle)
    yield from _changes(zone, middle, end)


def _offset(zone: ZoneInfo, instant: int) -> int:
    at = _EPOCH + timedelta(microseconds=min(max(instant, _FIRST), _LAST))
    offset = at.astimezone(zone).utcoffset()
    assert offset is not None
    return offset // _MICROSECOND
