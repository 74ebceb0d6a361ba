"""Counters, gauges and histograms, and a registry of them, independent of any exporter.

An instrument may have labels: it then keeps one number for every combination of their values it has met.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

__all__ = [
    "COUNT_BOUNDS",
    "DURATION_BOUNDS",
    "Counter",
    "Gauge",
    "Histogram",
    "HistogramValue",
    "Instrument",
    "Registry",
    "Sample",
]

DURATION_BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)
"""Upper bounds of the buckets of a duration, in seconds."""
COUNT_BOUNDS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 1_000.0, 10_000.0, 100_000.0)
"""Upper bounds of the buckets of a number of things."""

LabelValues = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HistogramValue:
    """What a histogram has recorded.

    Parameters
    ----------
    count : int
        How many values.
    sum : float
        Their sum.
    buckets : tuple of (float, int)
        Upper bounds, ascending, and how many values are at most that; the last bound is infinite.
    """

    count: int
    sum: float
    buckets: tuple[tuple[float, int], ...]


@dataclass(frozen=True, slots=True)
class Sample:
    """One number of one instrument, as it was when the registry was read.

    Parameters
    ----------
    name : str
        The instrument.
    labels : tuple of (str, str)
        Names and values of its labels.
    value : float or HistogramValue
        The number.
    """

    name: str
    labels: tuple[tuple[str, str], ...]
    value: float | HistogramValue


class Instrument:
    """What counters, gauges and histograms have in common. Safe to use from many threads.

    Parameters
    ----------
    name : str
        As Prometheus spells names: ``weir_flushes_total``.
    help : str
        What it measures, in one sentence.
    labels : sequence of str
        Names of its labels.
    """

    kind = ""

    def __init__(self, name: str, help: str, labels: Sequence[str] = ()) -> None:
        self.name = name
        self.help = help
        self.labels = tuple(labels)
        self._lock = threading.Lock()

    def samples(self) -> list[Sample]:
        """Return its numbers, by label values."""
        return [
            Sample(self.name, tuple(zip(self.labels, values, strict=True)), number)
            for values, number in sorted(self._numbers().items())
        ]

    def _numbers(self) -> dict[LabelValues, float | HistogramValue]:
        return {}


class Counter(Instrument):
    """A number that only grows.

    Examples
    --------
    >>> requests = Counter("requests_total", "Requests.", ["operation"])
    >>> requests.add(1, "get")
    >>> requests.add(2, "get")
    >>> requests.value("get"), requests.value("put")
    (3.0, 0.0)
    """

    kind = "counter"

    def __init__(self, name: str, help: str, labels: Sequence[str] = ()) -> None:
        super().__init__(name, help, labels)
        self._values: dict[LabelValues, float] = {}
        if not labels:
            self._values[()] = 0.0

    def add(self, amount: float = 1.0, *labels: str) -> None:
        """Count ``amount`` more."""
        with self._lock:
            self._values[labels] = self._values.get(labels, 0.0) + amount

    def value(self, *labels: str) -> float:
        """Return the count."""
        return self._values.get(labels, 0.0)

    def _numbers(self) -> dict[LabelValues, float | HistogramValue]:
        with self._lock:
            return dict(self._values)


class Gauge(Instrument):
    """A number that goes up and down, requested from its owner when the registry is read.

    Examples
    --------
    >>> held = Gauge("held_bytes", "Bytes held.")
    >>> held.observe(lambda: 7)
    >>> held.value()
    7.0
    """

    kind = "gauge"

    def __init__(self, name: str, help: str, labels: Sequence[str] = ()) -> None:
        super().__init__(name, help, labels)
        self._read: dict[LabelValues, Callable[[], float]] = {}

    def observe(self, read: Callable[[], float], *labels: str) -> None:
        """Ask ``read`` for the number from now on."""
        with self._lock:
            self._read[labels] = read

    def value(self, *labels: str) -> float:
        """Return the number; 0 without an owner."""
        read = self._read.get(labels)
        return 0.0 if read is None else float(read())

    def _numbers(self) -> dict[LabelValues, float | HistogramValue]:
        with self._lock:
            known = dict(self._read)
        return {labels: float(read()) for labels, read in known.items()}


class Histogram(Instrument):
    """How values are spread.

    Parameters
    ----------
    bounds : sequence of float
        Upper bounds of the buckets, ascending; one more bucket takes larger values.

    Examples
    --------
    >>> sizes = Histogram("rows", "Rows.", bounds=[1, 10])
    >>> for rows in (1, 5, 50):
    ...     sizes.record(rows)
    >>> sizes.value().buckets
    ((1.0, 1), (10.0, 2), (inf, 3))
    """

    kind = "histogram"

    def __init__(
        self,
        name: str,
        help: str,
        labels: Sequence[str] = (),
        *,
        bounds: Sequence[float] = DURATION_BOUNDS,
    ) -> None:
        super().__init__(name, help, labels)
        self._bounds = tuple(float(bound) for bound in bounds)
        self._recorded: dict[LabelValues, tuple[list[int], list[float]]] = {}

    def record(self, value: float, *labels: str) -> None:
        """Take a value in."""
        with self._lock:
            counts, total = self._recorded.setdefault(labels, ([0] * (len(self._bounds) + 1), [0.0]))
            counts[bisect_left(self._bounds, value)] += 1
            total[0] += value

    def value(self, *labels: str) -> HistogramValue:
        """Return what has been recorded."""
        with self._lock:
            counts, total = self._recorded.get(labels, ([0] * (len(self._bounds) + 1), [0.0]))
            return self._summed(counts, total[0])

    def _numbers(self) -> dict[LabelValues, float | HistogramValue]:
        with self._lock:
            return {
                labels: self._summed(counts, total[0]) for labels, (counts, total) in self._recorded.items()
            }

    def _summed(self, counts: Sequence[int], total: float) -> HistogramValue:
        buckets, so_far = [], 0
        for bound, count in zip((*self._bounds, float("inf")), counts, strict=True):
            so_far += count
            buckets.append((bound, so_far))
        return HistogramValue(so_far, total, tuple(buckets))


One = TypeVar("One", bound=Instrument)


class Registry:
    """Instruments by name."""

    def __init__(self) -> None:
        self._instruments: dict[str, Instrument] = {}

    def counter(self, name: str, help: str, labels: Sequence[str] = ()) -> Counter:
        """Add a counter."""
        return self._added(Counter(name, help, labels))

    def gauge(self, name: str, help: str, labels: Sequence[str] = ()) -> Gauge:
        """Add a gauge."""
        return self._added(Gauge(name, help, labels))

    def histogram(
        self, name: str, help: str, labels: Sequence[str] = (), *, bounds: Sequence[float] = DURATION_BOUNDS
    ) -> Histogram:
        """Add a histogram."""
        return self._added(Histogram(name, help, labels, bounds=bounds))

    def _added(self, instrument: One) -> One:
        assert instrument.name not in self._instruments, f"there are two of {instrument.name}"
        self._instruments[instrument.name] = instrument
        return instrument

    @property
    def instruments(self) -> tuple[Instrument, ...]:
        """All there are, in the order in which they were added."""
        return tuple(self._instruments.values())

    def read(self) -> list[Sample]:
        """Return every number there is, now.

        Examples
        --------
        >>> registry = Registry()
        >>> registry.counter("merges_total", "Merges.").add(2)
        >>> registry.read()
        [Sample(name='merges_total', labels=(), value=2.0)]
        """
        return [sample for one in self.instruments for sample in one.samples()]
