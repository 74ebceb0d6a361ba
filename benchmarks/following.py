"""Strong reads while another process writes: what it costs to see every acknowledged write."""

from __future__ import annotations

import itertools
import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from multiprocessing.synchronize import Event

import numpy as np
import pyarrow as pa

import weir
from benchmarks.context import Context, Result
from benchmarks.harness import Case, Contender, Sense, Target, measure
from benchmarks.samples import SCHEMA, SampleRows

__all__ = ["run"]

_CALLS = 200
_KEYS = 1_000
_WRITES_PER_SECOND = 100
_FACTOR = 2.0

_STRONG = "weir, strong"
_ALONE = "weir, strong, nobody writes"
_BOUNDED = "weir, bounded(1000)"


def run(context: Context) -> Result:
    """Measure lookups of keys in the base table, beside a process that writes and beside none."""
    rows = context.scale.base_rows
    uri = str(context.directory / "following")
    context.say("following: writing the table")
    table = weir.create(uri, SCHEMA, primary_key="id", fsync=False)
    with table.writer() as writer:
        writer.upsert(SampleRows(1).table(np.arange(rows)))
    table.maintenance.merge()
    keys = [int(key) for key in np.random.default_rng(1).integers(0, rows, _KEYS)]
    context.say("following: lookups")
    measurements = measure(
        [
            Contender(_STRONG, partial(_lookups, uri, keys, "strong", writing=True)),
            Contender(_ALONE, partial(_lookups, uri, keys, "strong", writing=False)),
            Contender(_BOUNDED, partial(_lookups, uri, keys, "bounded(1000)", writing=True)),
        ],
        rounds=context.scale.rounds,
        calls=_CALLS,
        warm_up=20,
    )
    return Result(
        "following",
        f"get of one key of {rows:,} base rows, while another process writes",
        (
            f"{_STRONG}: another process makes {_WRITES_PER_SECOND} durable writes of one row a second, and "
            "every lookup sees those acknowledged before it: it probes for the next WAL entry of the shard, "
            "and reads those that are new",
            f"{_ALONE}: the same without the other process; {_BOUNDED}: with it, looking for what is new "
            "once a second",
            "local disk, one shard, fsync off; the writer takes its share of the processors, too",
        ),
        (
            Case(
                "following",
                "key in the base table",
                measurements,
                (Target(_STRONG, Sense.WITHIN, _FACTOR, (_ALONE,)),),
            ),
        ),
    )


@contextmanager
def _lookups(uri: str, keys: list[int], consistency: str, *, writing: bool) -> Iterator[Callable[[], object]]:
    table = weir.open(uri)
    turn = itertools.cycle(keys)

    def look_up() -> pa.Table:
        return table.get([next(turn)], consistency=consistency)

    if not writing:
        yield look_up
        return
    # Not forked: this process has threads.
    processes = multiprocessing.get_context("spawn")
    begun, done = processes.Event(), processes.Event()
    writer = processes.Process(target=_write, args=(uri, begun, done))
    writer.start()
    try:
        while not begun.wait(1.0):
            if not writer.is_alive():
                raise RuntimeError(f"the process that writes ended with {writer.exitcode}")
        yield look_up
    finally:
        done.set()
        writer.join()


def _write(uri: str, begun: Event, done: Event) -> None:
    """Write rows with ids of their own until told to stop."""
    samples = SampleRows(2)
    with weir.open(uri, fsync=False).writer() as writer:
        for number in itertools.count(1):
            writer.upsert(samples.table(np.array([-number])))
            begun.set()
            if done.wait(1 / _WRITES_PER_SECOND):
                return
