"""Who makes writes that may be repeated, and repeats whatever it does not know to be done."""

from __future__ import annotations

from uuid import UUID

from tests.simulation.actors import failures_allowed, open_writer, write_once
from tests.simulation.checker import Write
from tests.simulation.jobs import Job
from tests.simulation.scheduler import Process
from tests.simulation.world import World, as_batch

from weir.errors import (
    BackpressureError,
    ConflictError,
    FencedError,
    StorageError,
    WriterClosedError,
    WriterError,
)
from weir.write.shard_writer import ShardWriter

__all__ = ["Repeater"]

_BACK = (0, 0, 1, 3)


class Repeater:
    """A job that numbers its writes, run by one process after another, or by two at once.

    It sends a number once it knows the one before to be done. Whoever takes it over begins again somewhere
    before that.

    Parameters
    ----------
    world : World
        Where.
    job : Job
        What it has to write.
    """

    def __init__(self, world: World, job: Job) -> None:
        self._world = world
        self._job = job

    @property
    def shard(self) -> UUID:
        """Where its writes go."""
        return self._job.shard

    def run(self, process: Process) -> bool:
        """Make what writes are left; return whether to go on in another process."""
        world, job = self._world, self._job
        process.may_sleep = True
        writer = open_writer(world, process, self.shard, job.options)
        if writer is None:
            return not job.is_done
        number = job.place(_BACK)
        while number < job.calls and self._send(process, writer, number):
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
        return not job.is_done

    def repeat_all_begun(self, writer: ShardWriter) -> None:
        """Repeat the last writes that were begun."""
        for write in self._job.writes[self._job.place(_BACK) :]:
            if not self._attempt(writer, write):
                return

    def repeat_what_is_done(self, writer: ShardWriter) -> None:
        """Repeat some of the last writes that are known to be done."""
        done = self._job.done
        for write in self._job.writes[max(done - 1 - self._world.random.choice(_BACK), 0) : done]:
            if not self._attempt(writer, write):
                return

    def _send(self, process: Process, writer: ShardWriter, number: int) -> bool:
        """Make a write until it is done; return False if that is not to be had from this writer."""
        world, job = self._world, self._job
        write = job.writes[number] if number < len(job.writes) else job.begin(world.draw_rows(self.shard))
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
            position = writer.submit(as_batch(write.rows), write.source).result()
        except (FencedError, WriterClosedError, BackpressureError):
            self._world.checker.count("marked writes refused")
            return False
        except StorageError:
            self._world.checker.count("marked writes with a lost answer")
            return None
        self._world.checker.repeated(write, position)
        return True
