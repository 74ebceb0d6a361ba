"""Who makes writes that may be repeated, and repeats whatever it does not know to be done."""

from __future__ import annotations

from uuid import UUID

from tests.simulation.actors import failures_allowed, open_writer, write_once
from tests.simulation.checker import Outcome, Write
from tests.simulation.scheduler import Process
from tests.simulation.world import World, as_batch

from weir.config import WriterOptions
from weir.errors import (
    BackpressureError,
    ConflictError,
    FencedError,
    StorageError,
    WriterClosedError,
    WriterError,
)
from weir.format.source import Source
from weir.shard.writer import ShardWriter

__all__ = ["Repeater"]

_BACK = (0, 0, 1, 3)


class Repeater:
    """A job that numbers its writes, run by one process after another, or by two at once.

    It sends a number once it knows the one before to be done. Whoever takes it over does not know quite
    how far it has got, and begins again somewhere before that.

    Parameters
    ----------
    world : World
        Where.
    name : str
        The name of the source.
    shard : UUID
        Where its writes go.
    calls : int
        How many writes it has to make.
    options : WriterOptions
        Of the writers it opens.
    """

    def __init__(self, world: World, name: str, shard: UUID, *, calls: int, options: WriterOptions) -> None:
        self._world = world
        self._name = name
        self.shard = shard
        self._calls = calls
        self._options = options
        self._writes: list[Write] = []
        """By number, those that have been begun."""

    @property
    def _done(self) -> int:
        """How many writes are known to be done."""
        return sum(write.outcome == Outcome.ACKNOWLEDGED for write in self._writes)

    def run(self, process: Process) -> bool:
        """Make what writes are left; return whether to go on in another process."""
        world = self._world
        process.may_sleep = True
        writer = open_writer(world, process, self.shard, self._options)
        if writer is None:
            return self._done < self._calls
        number = max(self._done - world.random.choice(_BACK), 0)
        while number < self._calls and self._send(process, writer, number):
            number += 1
            if world.random.random() < 0.2:
                write_once(world, writer, self.shard)
            if world.random.random() < 0.2:
                try:
                    writer.flush()
                except (WriterError, StorageError, ConflictError):
                    world.checker.count("flushes failed")
            if world.random.random() < 0.1:
                break
            world.scheduler.sleep(world.random.expovariate(1 / world.scenario.think))
        end = world.random.random()
        if end < 0.5:
            writer.abandon()
        elif end < 0.8:
            with failures_allowed(world, process, faults_before=0):
                writer.close()
        return self._done < self._calls

    def repeat_all_begun(self, writer: ShardWriter) -> None:
        """Repeat the last writes that were begun."""
        for write in self._writes[max(self._done - self._world.random.choice(_BACK), 0) :]:
            if not self._attempt(writer, write):
                return

    def repeat_what_is_done(self, writer: ShardWriter) -> None:
        """Repeat some of the last writes that are known to be done."""
        done = self._done
        for write in self._writes[max(done - 1 - self._world.random.choice(_BACK), 0) : done]:
            if not self._attempt(writer, write):
                return

    def _send(self, process: Process, writer: ShardWriter, number: int) -> bool:
        """Make a write until it is done; return False if that is not to be had from this writer."""
        world = self._world
        if number == len(self._writes):
            source = Source(self._name, number)
            self._writes.append(world.checker.began(self.shard, world.draw_rows(self.shard), source))
        write = self._writes[number]
        while True:
            if world.random.random() < 0.1:
                world.scheduler.spawn(process, "again", lambda: self._attempt(writer, write))
            answer = self._attempt(writer, write)
            if answer is not None:
                return answer
            if world.random.random() < 0.3:
                return False

    def _attempt(self, writer: ShardWriter, write: Write) -> bool | None:
        """Make a write once; return whether it is done, None if the same writer may be asked again."""
        try:
            position = writer.write(as_batch(write.rows), write.source)
        except (FencedError, WriterClosedError, BackpressureError):
            self._world.checker.count("marked writes refused")
            return False
        except StorageError:
            self._world.checker.count("marked writes with a lost answer")
            return None
        self._world.checker.repeated(write, position)
        return True
