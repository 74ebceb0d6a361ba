"""The freshness of events, excluding those that waited for Spark to start, and its parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from weir.demo.report import Latency

__all__ = ["Freshness"]

_STARTS = (("freshness_at_start", "for Spark to start"), ("freshness_at_restart", "for it to start again"))


class Freshness:
    """The time from the arrival of files until a strong reader has their events, one driver after the other.

    Files that arrive before the first micro-batch of a driver is over wait for that driver to start, whatever
    else they wait for, and are counted by themselves.
    """

    def __init__(self) -> None:
        self._streamed: list[float] = []
        self._started: list[list[float]] = []
        self._parts: list[Mapping[str, float]] = []

    def begin(self) -> None:
        """Note that another driver starts."""
        self._started.append([])

    def note(
        self, waits: Sequence[float], parts: Mapping[str, float], reader: float, *, at_start: bool
    ) -> None:
        """Note a micro-batch that is over.

        Parameters
        ----------
        waits : sequence of float
            Seconds from the arrival of its files until it was over, each standing for as many events.
        parts : mapping of str to float
            What they went into, in seconds.
        reader : float
            Seconds that a strong reader took to read one of the events then.
        at_start : bool
            Whether its files arrived before the first micro-batch of the driver was over.
        """
        visible = [wait + reader for wait in waits]
        if at_start:
            self._started[-1] += visible
        else:
            self._streamed += visible
            self._parts.append({**parts, "reader": reader})

    def latency(self) -> Latency:
        """Return how long events took while Spark streamed; of a stream as short as its start, since that."""
        seconds = self._streamed or [wait for waits in self._started for wait in waits]
        return Latency.of("freshness", "visible in", seconds)

    def at_starts(self) -> tuple[Latency, ...]:
        """Return how long those took that waited for a driver to start, and for one to start again."""
        starts = zip(_STARTS, self._started, strict=False)
        return tuple(Latency.of(name, text, waits) for (name, text), waits in starts if waits)

    def parts(self) -> dict[str, float]:
        """Return what the time while Spark streamed went into, in seconds, in the mean over micro-batches."""
        names = list(dict.fromkeys(name for parts in self._parts for name in parts))
        return {name: fmean(parts.get(name, 0.0) for parts in self._parts) for name in names}
