"""Who writes generations beside the log, and has several published at once, again and again if need be."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

import pyarrow as pa
from tests.simulation.actors import failures_allowed, open_writer, write_once
from tests.simulation.checker import Outcome, Write
from tests.simulation.scheduler import Process
from tests.simulation.world import KEY, World, as_batch

from weir.config import WriterOptions
from weir.errors import BackpressureError, FencedError, WeirError, WriterClosedError
from weir.format.source import Source
from weir.shard.publish import StagedGeneration, stage_generation
from weir.shard.writer import ShardWriter

__all__ = ["Stager"]

_BACK = (0, 0, 1, 2)
_PARTS = (1, 2, 3)
_PAUSES = (0.0, 0.0, 0.0, 1000.0, 30_000.0, 42_000.0, 60_000.0, 90_000.0)
_LONGEST_SLEEP = 2e5


@dataclass(slots=True)
class _Load:
    """One commit of a job: what it writes, and what of that has been staged."""

    write: Write
    staged: tuple[StagedGeneration, ...] = ()
    """All of its generations, from the last attempt that got that far. Whoever goes on finds them."""


class Stager:
    """A bulk job, run by one process after another, or by two at once.

    Each commit is some generations, which are staged, and published together under a number. Whoever takes
    the job over publishes what was staged before, or stages everything anew.

    Parameters
    ----------
    world : World
        Where.
    name : str
        The name of the source.
    shard : UUID
        Where its rows go.
    calls : int
        How many commits it has to make.
    options : WriterOptions
        Of the writers it opens.
    """

    def __init__(self, world: World, name: str, shard: UUID, *, calls: int, options: WriterOptions) -> None:
        self._world = world
        self._name = name
        self._shard = shard
        self._calls = calls
        self._options = options
        self._loads: list[_Load] = []

    @property
    def _done(self) -> int:
        return sum(load.write.outcome == Outcome.ACKNOWLEDGED for load in self._loads)

    def run(self, process: Process) -> bool:
        """Make what commits are left; return whether to go on in another process."""
        world = self._world
        process.may_sleep = True
        process.longest_sleep = _LONGEST_SLEEP
        number = max(self._done - world.random.choice(_BACK), 0)
        writer: ShardWriter | None = None
        while number < self._calls:
            load = self._load(number)
            staged = load.staged
            if not staged or world.random.random() < 0.3:
                with failures_allowed(world, process, faults_before=-1):
                    staged = load.staged = self._stage(load.write)
                if world.random.random() < 0.2:
                    # Whoever publishes it is another process.
                    break
            if world.scenario.time is not None:
                world.scheduler.sleep(world.random.choice(_PAUSES) * world.random.random())
            writer = writer or open_writer(world, process, self._shard, self._options)
            if writer is None or not staged or not self._publish(process, writer, load, staged):
                break
            number += 1
            if world.random.random() < 0.3:
                write_once(world, writer, self._shard)
        if writer is not None:
            with failures_allowed(world, process, faults_before=-1):
                # A lease that is held for days is renewed for days.
                writer.close() if world.random.random() < 0.5 else writer.abandon()
        return self._done < self._calls

    def _load(self, number: int) -> _Load:
        """Return a commit; what it writes is the same at every attempt."""
        world = self._world
        if number == len(self._loads):
            parts = [world.draw_rows(self._shard) for _ in range(world.random.choice(_PARTS))]
            rows = [row for part in parts for row in part]
            source = Source(self._name, number)
            self._loads.append(_Load(world.checker.began(self._shard, rows, source, [*map(len, parts)])))
        return self._loads[number]

    def _stage(self, write: Write) -> tuple[StagedGeneration, ...]:
        """Write the generations of a commit."""
        staged, begin = [], 0
        for count in write.parts:
            rows = pa.Table.from_batches([as_batch(write.rows[begin : begin + count])])
            staged.append(stage_generation(self._world.store, self._shard, rows, KEY, shard_spec_id=1))
            begin += count
        self._world.checker.count("generations staged", len(staged))
        return tuple(staged)

    def _publish(
        self, process: Process, writer: ShardWriter, load: _Load, staged: tuple[StagedGeneration, ...]
    ) -> bool:
        """Publish what was staged; return False if this writer cannot."""
        world = self._world
        for _ in range(3):
            try:
                position = writer.publish(staged, load.write.source)
            except (FencedError, WriterClosedError, BackpressureError):
                world.checker.count("publications refused")
                return False
            except WeirError:
                # Staged too long ago, or gone; or nobody knows.
                world.checker.count("publications that failed")
                load.staged = ()
                if world.random.random() < 0.3:
                    return False
                if world.random.random() < 0.3 and not write_once(world, writer, self._shard):
                    return False
                continue
            world.checker.repeated(load.write, position)
            return True
        return False
