"""Ten million events into one store: whether the last come as fast as the first, and in how much memory."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from unittest.mock import patch

from benchmarks.context import Context, Result
from benchmarks.events import Batch, created
from benchmarks.harness import Case, Measurement, Sense, Target
from weir.demo.typed_events import loaded, typed_batches

__all__ = ["run"]

_BATCHES = 10
"""Batches of about 10,000 events that are timed as one."""
_MOST_MEBIBYTES = 1024
_TRIAL_FLIGHTS = 40_000


@dataclass(frozen=True, slots=True)
class _Stretch:
    """A year of flights written, and kept up.

    Parameters
    ----------
    events : int
        How many.
    seconds : tuple of float
        Of every so many batches.
    processor : float
        Seconds of the processor that writing them took.
    upkeep : float
        Seconds that upkeep took afterwards.
    mebibytes : float
        The most memory that the process has had by then.
    """

    events: int
    seconds: tuple[float, ...]
    processor: float
    upkeep: float
    mebibytes: float


def run(context: Context) -> Result:
    """Write the flights of a year again and again, from a process of their own."""
    with patch.dict(os.environ, ARROW_DEFAULT_MEMORY_POOL="system"):
        frugal = _written(context, "event-growth, the system's allocator")
    stretches = _written(context, "event-growth")
    first, last = stretches[0], stretches[-1]
    names = f"the first {first.events:,}", f"the last {last.events:,}"
    measurements = tuple(
        Measurement(name, (one.seconds,)) for name, one in zip(names, (first, last), strict=True)
    )
    speeds = ", ".join(f"{one.events / sum(one.seconds):,.0f}" for one in stretches)
    processor = ", ".join(f"{one.processor / one.events * 1e6:.1f}" for one in stretches)
    upkeep = ", ".join(f"{one.upkeep:.1f}" for one in stretches)
    memory = _memory(stretches)
    seconds = sum(map(sum, (one.seconds for one in frugal))) / sum(
        map(sum, (one.seconds for one in stretches))
    )
    return Result(
        "event-growth",
        f"{sum(one.events for one in stretches):,} events in batches of 10,000 into one store, fsync on",
        (
            f"events a second, stretch by stretch: {speeds}",
            f"microseconds of the processor for an event, stretch by stretch: {processor}",
            f"seconds that upkeep took after each: {upkeep}",
            f"at most so many MiB resident by the end of each: {memory}",
            f"with `ARROW_DEFAULT_MEMORY_POOL=system`: {_memory(frugal)} (to be {_MOST_MEBIBYTES:,}), in "
            f"{seconds:.2f} of the time",
        ),
        [
            Case(
                "event-growth",
                f"ingest of {_BATCHES} batches",
                measurements,
                (Target(names[1], Sense.WITHIN, 1.2, (names[0],)),),
                rows_per_call=first.events // len(first.seconds),
            )
        ],
    )


def _memory(stretches: Sequence[_Stretch]) -> str:
    return ", ".join(f"{one.mebibytes:,.0f}" for one in stretches)


def _written(context: Context, name: str) -> list[_Stretch]:
    flights = loaded(_TRIAL_FLIGHTS if context.scale.quick else None)
    carriers = sorted(flights.facts.column("carrier").unique().to_pylist())
    ours, theirs = multiprocessing.Pipe()
    # Its memory is that of nobody else, and has no more of the flights than it is writing.
    arguments = context.directory / name, context.scale.events, carriers, theirs
    process = multiprocessing.get_context("spawn").Process(target=_write, args=arguments)
    process.start()
    theirs.close()
    found: list[_Stretch] = []
    batches = typed_batches(flights)
    try:
        while True:
            said = ours.recv()
            if said is None:
                ours.send(list(itertools.islice(batches, _BATCHES)))
                continue
            found.append(said)
            batches = typed_batches(flights)
            events = sum(one.events for one in found)
            context.say(f"{name}: {events:,} events, at most {found[-1].mebibytes:,.0f} MiB resident")
    except EOFError:
        process.join()
    if process.exitcode:
        raise RuntimeError(f"the process that writes has failed: {process.exitcode}")
    return found


def _write(place: Path, events: int, carriers: list[str], connection: Connection) -> None:
    written = 0
    with created(place, carriers) as store, store.writer() as writer:
        while written < events:
            seconds, before, used = [], written, 0.0
            for group in _asked_for(connection):
                began, used_before = time.perf_counter(), time.process_time()
                for batch in group:
                    writer.ingest_all(batch)
                if len(group) == _BATCHES:
                    seconds.append(time.perf_counter() - began)
                used += time.process_time() - used_before
                written += sum(rows.num_rows for batch in group for _, rows in batch)
            began = time.perf_counter()
            store.maintain()
            upkeep = time.perf_counter() - began
            connection.send(_Stretch(written - before, tuple(seconds), used, upkeep, _most_mebibytes()))
    connection.close()


def _asked_for(connection: Connection) -> Iterator[list[Batch]]:
    """Yield the batches of a year as they are asked for: nobody makes any while others are timed."""
    while True:
        connection.send(None)
        group = connection.recv()
        if not group:
            return
        yield group


def _most_mebibytes() -> float:
    # The most that the system reports of a process counts that which has started it.
    status = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmHWM"))
