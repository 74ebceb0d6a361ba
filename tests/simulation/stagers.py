"""Who writes generations beside the log, and has several published at once, again and again if need be."""

from __future__ import annotations

import pyarrow as pa
from tests.simulation.actors import collect_once, failures_allowed, open_writer, write_once
from tests.simulation.checker import Write
from tests.simulation.jobs import Job
from tests.simulation.scheduler import Process
from tests.simulation.world import KEY, World, as_batch

from weir.errors import BackpressureError, FencedError, WeirError, WriterClosedError
from weir.write.flush.staged_generations import StagedGeneration, stage_generation
from weir.write.shard_writer import ShardWriter

__all__ = ["Stager"]

_BACK = (0, 0, 1, 2)
_PARTS = (1, 2, 3)
_PAUSES = (0.0, 0.0, 0.0, 1000.0, 30_000.0, 42_000.0, 60_000.0, 90_000.0)
_LONGEST_SLEEP = 2e5


class Stager:
    """A bulk job, run by one process after another, or by two at once.

    Each commit is some generations, which are staged, and published together under a number. Whoever takes
    the job over publishes what was staged before, or stages everything anew.

    Parameters
    ----------
    world : World
        Where.
    job : Job
        What it has to commit.
    """

    def __init__(self, world: World, job: Job) -> None:
        self._world = world
        self._job = job
        self._staged: dict[int, tuple[StagedGeneration, ...]] = {}
        """By number: the generations of a commit, from the last attempt that got as far as to stage all."""

    def run(self, process: Process) -> bool:
        """Make what commits are left; return whether to go on in another process."""
        world, job = self._world, self._job
        process.may_sleep = True
        process.longest_sleep = _LONGEST_SLEEP
        number = job.place(_BACK)
        writer: ShardWriter | None = None
        while number < job.calls:
            write = self._write(number)
            staged = self._staged.get(number, ())
            if not staged or world.random.random() < 0.3:
                with failures_allowed(world, process, faults_before=-1):
                    staged = self._staged[number] = self._stage(write)
                if world.random.random() < 0.2:
                    # Whoever publishes it is another process.
                    break
            late_by = world.scenario.late_by() if staged else ()
            if late_by:
                self._let_time_pass(process, late_by)
            elif world.scenario.time is not None:
                world.scheduler.sleep(world.random.choice(_PAUSES) * world.random.random())
            writer = writer or open_writer(world, process, job.shard, job.options)
            if writer is None or not staged or not self._publish(writer, number, staged):
                break
            number += 1
            if world.random.random() < 0.3:
                write_once(world, writer, job.shard)
        if writer is not None:
            with failures_allowed(world, process, faults_before=-1):
                # A lease that is held for days is renewed for days.
                writer.close() if world.random.random() < 0.5 else writer.abandon()
        return not job.is_done

    def _let_time_pass(self, process: Process, steps: tuple[float, ...]) -> None:
        """Let what is staged get old, and perhaps be collected, at last beside its publishing."""
        world = self._world

        def collect() -> None:
            with failures_allowed(world, process, faults_before=-1), world.within_the_horizon():
                collect_once(world, dry_run=False)

        for seconds in steps[:-1]:
            world.let_time_pass(seconds)
            collect()
        world.let_time_pass(steps[-1])
        world.scheduler.spawn(process, "collects", collect)

    def _write(self, number: int) -> Write:
        """Return what a commit writes."""
        world, job = self._world, self._job
        if number < len(job.writes):
            return job.writes[number]
        parts = [world.draw_rows(job.shard) for _ in range(world.random.choice(_PARTS))]
        return job.begin([row for part in parts for row in part], [*map(len, parts)])

    def _stage(self, write: Write) -> tuple[StagedGeneration, ...]:
        """Write the generations of a commit."""
        staged, begin = [], 0
        for count in write.parts:
            rows = pa.Table.from_batches([as_batch(write.rows[begin : begin + count])])
            staged.append(
                stage_generation(
                    self._world.store, self._job.shard, rows, KEY, merge_engine=None, shard_spec_id=1
                )
            )
            begin += count
        self._world.checker.count("generations staged", len(staged))
        return tuple(staged)

    def _publish(self, writer: ShardWriter, number: int, staged: tuple[StagedGeneration, ...]) -> bool:
        """Publish what was staged; return False if this writer cannot."""
        world, write = self._world, self._job.writes[number]
        for _ in range(3):
            try:
                position = writer.publish(staged, write.source)
            except (FencedError, WriterClosedError, BackpressureError):
                world.checker.count("publications refused")
                return False
            except WeirError:
                # Staged too long ago, or gone; or nobody knows.
                world.checker.count("publications that failed")
                self._staged.pop(number, None)
                if world.random.random() < 0.3:
                    return False
                if world.random.random() < 0.3 and not write_once(world, writer, write.shard):
                    return False
                continue
            world.checker.repeated(write, position)
            return True
        return False
