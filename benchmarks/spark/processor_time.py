"""Processor time of this process and all that it has started, Spark's Java and its Python workers among them.

It says what work costs where the time that passes says what else the machine was doing.
"""

from __future__ import annotations

import os
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["ProcessorTimes", "processor_seconds"]

_PROCESSES = Path("/proc")
_PARENT = 1
_TIMES = slice(11, 15)
"""Fields of ``stat`` after the name, which is in parentheses: of the process, and of children that ended."""


class ProcessorTimes:
    """What the calls of several contenders took of the processor."""

    def __init__(self) -> None:
        self._seconds: dict[str, list[float]] = defaultdict(list)

    @contextmanager
    def metered(
        self, name: str, call: Callable[[], None], *, warm_up: int = 0
    ) -> Iterator[Callable[[], None]]:
        """Yield a call that is metered until the end of the context, from the ``warm_up``-th on."""
        calls, before = 0, None

        def counted() -> None:
            nonlocal calls, before
            if calls == warm_up:
                before = processor_seconds()
            call()
            calls += 1

        yield counted
        after = processor_seconds()
        if before is not None and after is not None:
            self._seconds[name].append((after - before) / (calls - warm_up))

    def describe(self) -> str:
        """Return the median of the turns of every contender, for people."""
        told = (f"{name} {statistics.median(one) * 1e3:,.0f} ms" for name, one in self._seconds.items())
        return "processor time of a call, in all processes: " + (", ".join(told) or "not known here")


def processor_seconds() -> float | None:
    """Return the processor time that has been used so far; None where the system does not say.

    Examples
    --------
    >>> before = processor_seconds()
    >>> before is None or processor_seconds() >= before
    True
    """
    children: dict[int, list[int]] = defaultdict(list)
    used: dict[int, int] = {}
    for entry in _PROCESSES.glob("[0-9]*"):
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        process = int(entry.name)
        children[int(fields[_PARENT])].append(process)
        used[process] = sum(map(int, fields[_TIMES]))
    if os.getpid() not in used:
        return None
    ticks, left = 0, [os.getpid()]
    while left:
        process = left.pop()
        ticks += used[process]
        left += children[process]
    return ticks / os.sysconf("SC_CLK_TCK")
