"""Runs one seed from beginning to end."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from tests.simulation.actors import (
    InlineRunner,
    Reader,
    Writer,
    WritingPlan,
    collect_once,
    collector,
    compactor,
    failures_allowed,
    merger,
    open_writer,
    passing_time,
    scan,
    updater,
    write_once,
)
from tests.simulation.consumers import Consumer
from tests.simulation.damage import damage_and_look
from tests.simulation.jobs import Job
from tests.simulation.outlived import Outlived
from tests.simulation.power import power_cuts
from tests.simulation.repeaters import Repeater
from tests.simulation.scheduler import Process, StuckError, Task
from tests.simulation.stagers import Stager
from tests.simulation.time_limit import SEED_SECONDS, TookTooLongError, time_limit
from tests.simulation.travellers import Traveller
from tests.simulation.violation import Violation
from tests.simulation.world import World

from weir.config import WriterOptions
from weir.errors import FencedError
from weir.merge.service import merge_generations
from weir.snapshots.snapshot import STRONG, Consistency, SnapshotReader
from weir.write.shard_writer import ShardWriter

__all__ = ["Report", "simulate"]

_PATIENCE_SECONDS = 60.0
_CLAIM_ATTEMPTS = 8
_DAMAGE_CHANCE = 0.2
_GARBAGE_CHANCE = 0.4
_LONG_REST_SECONDS = 1000.0
_SKIPPED_REST = 0.5
_SKIPPED_REST_OF_SHORT = 0.7
_REMEMBERED_CHANCE = 0.5
_SEEDS_BETWEEN_COLLECTIONS = 256
_AT_ONCE = (1, 1, 2)
_RELEASED_LAST_CHANCE = 0.3
_seeds_run = itertools.count()


@dataclass(frozen=True, slots=True)
class Report:
    """What a seed came to.

    Parameters
    ----------
    seed : int
        The seed.
    violations : tuple of Violation
        Invariants that did not hold.
    trace_hash : str
        Equal for two runs exactly if the same happened in the same order.
    counts : dict of str to int
        How often what happened.
    trace : tuple of str
        What happened, line by line.
    """

    seed: int
    violations: tuple[Violation, ...]
    trace_hash: str
    counts: dict[str, int] = field(repr=False)
    trace: tuple[str, ...] = field(repr=False, default=())


def simulate(
    seed: int, *, kind: str | None = None, is_long: bool | None = None, seconds: float = SEED_SECONDS
) -> Report:
    """Run one seed. To be called within :func:`~tests.simulation.substitution.substituted`.

    Parameters
    ----------
    seed : int
        Decides everything.
    kind : str, optional
        The kind of scenario, if the seed is not to decide that: a name in :mod:`tests.simulation.scenario`.
    is_long : bool, optional
        Whether the history is long, if the seed is not to decide that.
    seconds : float
        Real time after which it is ended, and reported with where it stood.
    """
    if not next(_seeds_run) % _SEEDS_BETWEEN_COLLECTIONS:
        gc.collect()
    world = World(seed, kind, is_long)
    scheduler, checker = world.scheduler, world.checker
    scheduler.spawn(world.control, "main", _Run(world).main)
    failures: list[tuple[Task, BaseException]] = []
    try:
        with time_limit(seconds, scheduler.stop):
            try:
                scheduler.run()
                failures = list(scheduler.failures)
                if not scheduler.stopped:
                    checker.fail("progress", f"nothing moves, and these wait: {', '.join(_waiting(world))}")
            finally:
                scheduler.close(world.processes)
    except (StuckError, TookTooLongError) as error:
        checker.unexpected("scheduler", error)
    for task, failure in failures:
        checker.unexpected(task.name, failure)
    checker.count("operations", world.store.operations)
    checker.count("wall clocks set wrong", sum(process.has_wrong_clock for process in world.processes))
    checker.count(f"scenario {world.scenario.kind}")
    checker.count(f"faults {world.scenario.faults}")
    return Report(
        seed,
        tuple(checker.violations),
        world.store.trace_hash,
        checker.counts,
        tuple(world.store.trace),
    )


def _waiting(world: World, *but: Process) -> list[str]:
    others = [process for process in world.processes if process.alive and process not in but]
    return [task.name for process in others for task in process.tasks if not task.done]


class _Run:
    """The people of one simulation, and what becomes of them."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._writers: list[Writer] = []
        self._readers: list[Reader] = []
        self._travellers: list[Traveller] = []
        self._consumers: list[Consumer] = []
        self._repeaters: list[Repeater] = []

    def main(self) -> None:
        """Let everybody live, and compare what is left with the model."""
        world = self._world
        world.set_up()
        writing, others = self._start()
        world.scheduler.join(*others)
        # Some of the writers may stand still for hours. What follows goes on without them.
        world.scheduler.join_within(_PATIENCE_SECONDS, writing)
        world.calm()
        if not world.scenario.comes_to_rest():
            self._in_process("last reader", self._read_unmerged)
            world.scheduler.stop()
            return
        all_done = all(task.done for task in writing)
        self._in_process("recovery", self._recover)
        recovered = world.checker.ends()
        self._in_process("collection", self._let_everything_be_collected)
        world.scheduler.join(*writing)
        if not all_done or world.checker.ends() != recovered:
            self._in_process("second recovery", self._recover)
        self._read_at_rest()
        world.scheduler.stop()

    def _start(self) -> tuple[list[Task], list[Task]]:
        """Start everybody; return the tasks of writers and those of all others."""
        world, scenario = self._world, self._world.scenario
        writing, others = [], []
        for number in range(scenario.number_of("writers")):
            is_released = scenario.has_released_writer()
            plan = WritingPlan(
                world.random.choice(scenario.shards),
                calls=scenario.number_of("calls"),
                threads=scenario.number_of("threads"),
                options=scenario.draw_options(takes_over=is_released),
                is_released=is_released,
            )
            self._writers.append(Writer(world, plan))
            writing.append(world.supervised(f"writer{number}", self._writers[-1].run))
        for number in range(scenario.number_of("repeaters")):
            repeater = Repeater(world, self._drawn_job(f"job{number}"))
            self._repeaters.append(repeater)
            writing += [
                world.supervised(f"job{number}.{attempt}", repeater.run)
                for attempt in range(world.random.choice(_AT_ONCE))
            ]
        for number in range(scenario.number_of("stagers") if scenario.has_stagers else 0):
            stager = Stager(world, self._drawn_job(f"load{number}"))
            writing += [
                world.supervised(f"load{number}.{attempt}", stager.run)
                for attempt in range(world.random.choice(_AT_ONCE))
            ]
        for number in range(scenario.number_of("outlived") if scenario.has_outlived else 0):
            outlived = Outlived(world, f"outlived{number}")
            run = partial(outlived.run, scenario.number_of("rounds"))
            writing.append(world.supervised(f"outlived{number}", run))
        for number in range(scenario.number_of("mergers")):
            merges = scenario.number_of("merges")
            others.append(world.supervised(f"merger{number}", partial(merger, world, merges)))
        for name, service in (("updater", updater), ("compactor", compactor)):
            for number in range(scenario.number_of(f"{name}s") if scenario.has_any(f"{name}s") else 0):
                merges = scenario.number_of("merges")
                others.append(world.supervised(f"{name}{number}", partial(service, world, merges)))
        for number in range(scenario.number_of("readers")):
            self._readers.append(Reader(world))
            run = partial(self._readers[-1].run, scenario.number_of("reads"))
            others.append(world.supervised(f"reader{number}", run))
        for number in range(scenario.number_of("travellers")):
            self._travellers.append(Traveller(world))
            run = partial(self._travellers[-1].run, scenario.number_of("rounds"))
            others.append(world.supervised(f"traveller{number}", run))
        for number in range(scenario.number_of("consumers")):
            self._consumers.append(Consumer(world, f"consumer{number}"))
            run = partial(self._consumers[-1].run, scenario.number_of("rounds"))
            others.append(world.supervised(f"consumer{number}", run))
        if scenario.time is not None:
            for number in range(world.random.choice([1, 1, 2])):
                run = partial(collector, world, scenario.number_of("collections"))
                others.append(world.supervised(f"collector{number}", run))
            times = partial(passing_time, world, world.random.choice([2, 4, 6]))
            others.append(world.scheduler.spawn(world.control, "time", times))
        if scenario.power_cuts:
            cuts = partial(power_cuts, world, scenario.power_cuts)
            others.append(world.scheduler.spawn(world.control, "power", cuts))
        return writing, others

    def _drawn_job(self, name: str) -> Job:
        world, scenario = self._world, self._world.scenario
        shard = world.random.choice(scenario.shards)
        return Job(world, name, shard, scenario.number_of("calls"), scenario.draw_options())

    def _in_process(self, name: str, function: Callable[[Process], object]) -> None:
        process = self._world.process(name, may_crash=False)
        scheduler = self._world.scheduler
        scheduler.join(scheduler.spawn(process, "main", partial(function, process)))

    def _recover(self, process: Process) -> None:
        """Take over every shard, and merge everything."""
        world = self._world
        for shard in world.scenario.shards:
            for _ in range(_CLAIM_ATTEMPTS):
                writer = open_writer(world, process, shard, WriterOptions(takeover=True))
                if writer is None:
                    continue
                write_once(world, writer, shard)
                for repeater in self._repeaters:
                    if repeater.shard == shard:
                        repeater.repeat_all_begun(writer)
                if world.random.random() < _REMEMBERED_CHANCE:
                    # What they see now is flushed, merged and collected when they look again.
                    for reader in self._readers:
                        self._read_afterwards(reader)
                    write_once(world, writer, shard)
                try:
                    writer.close()
                except FencedError:
                    continue  # by one that has just woken up
                break
            else:
                world.checker.fail("progress", "a shard cannot be claimed with no faults about")
        if self._repeaters and world.random.random() < _RELEASED_LAST_CHANCE:
            self._in_process("released recovery", self._write_as_released)
        snapshot = SnapshotReader(world.store, world.open_base()).take_newest()
        manifests = [view.manifest for view in snapshot.shards]
        merge_generations(snapshot.base, manifests, InlineRunner())

    def _write_as_released(self, process: Process) -> None:
        """Leave a shard as a writer of the released library does, with no record of marks."""
        world = self._world
        process.is_released = True
        shard = world.random.choice(self._repeaters).shard
        writer = open_writer(world, process, shard, WriterOptions(takeover=True))
        if writer is not None:
            write_once(world, writer, shard)
            with failures_allowed(world, process):
                writer.close()

    def _let_everything_be_collected(self, process: Process) -> None:
        """Collect until nothing is left to collect, while those who stood still wake up."""
        world = self._world
        awake = [(owner, writer) for one in self._writers for owner, writer in one.left_open if owner.alive]
        for seconds in () if world.scenario.time is None else world.scenario.time.rest:
            # What readers remember shows in the first steps. The longer ones need not be taken every time.
            if not world.scenario.is_long:
                is_skipped = world.random.random() < _SKIPPED_REST_OF_SHORT
            else:
                is_skipped = seconds >= _LONG_REST_SECONDS and world.random.random() < _SKIPPED_REST
            if is_skipped:
                continue
            collect_once(world, dry_run=False)
            world.let_time_pass(seconds)
            if awake and world.random.random() < 0.5:
                self._write_afterwards(*awake.pop())
            if world.random.random() < (0.5 if world.scenario.is_long else 0.25):
                for reader in self._readers:
                    self._read_afterwards(reader)
        for owner, writer in awake:
            self._write_afterwards(owner, writer)

    def _write_afterwards(self, process: Process, writer: ShardWriter) -> None:
        scheduler = self._world.scheduler
        write = partial(write_once, self._world, writer, writer.shard_id)
        scheduler.join(scheduler.spawn(process, "afterwards", write))

    def _read_afterwards(self, reader: Reader) -> None:
        scheduler = self._world.scheduler
        if reader.process is not None and reader.process.alive:
            read = partial(reader.read_once, STRONG)
            scheduler.join(scheduler.spawn(reader.process, "afterwards", read))

    def _read_at_rest(self) -> None:
        scheduler = self._world.scheduler
        for reader in self._readers:
            self._read_afterwards(reader)
        for traveller in self._travellers:
            if traveller.process is not None and traveller.process.alive:
                scheduler.join(scheduler.spawn(traveller.process, "afterwards", traveller.read_all))
        for consumer in self._consumers:
            if consumer.process is not None and consumer.process.alive:
                scheduler.join(scheduler.spawn(consumer.process, "afterwards", consumer.read_rest))
        if self._repeaters:
            self._in_process("last repeater", self._repeat_what_is_done)
        self._in_process("last reader", self._compare)
        if self._world.random.random() < (
            _DAMAGE_CHANCE if self._world.scenario.is_long else _DAMAGE_CHANCE / 2
        ):
            self._in_process("vandal", partial(damage_and_look, self._world))

    def _repeat_what_is_done(self, process: Process) -> None:
        """Repeat writes with marks after all else has come to rest: nothing may come of it."""
        world = self._world
        for shard in sorted({repeater.shard for repeater in self._repeaters}):
            writer = open_writer(world, process, shard, WriterOptions(takeover=True))
            if writer is None:
                world.checker.fail("progress", "a shard cannot be claimed with no faults about")
                continue
            for repeater in self._repeaters:
                if repeater.shard == shard:
                    repeater.repeat_what_is_done(writer)
            writer.close()

    def _read_unmerged(self, process: Process) -> None:
        """Compare what there is with the model, though some still write, or stand still."""
        world, checker = self._world, self._world.checker
        snapshots = SnapshotReader(world.store, world.open_base())
        window = checker.window()
        checker.saw(window, scan(world, snapshots, STRONG), who="final read")
        checker.check_writes()

    def _compare(self, process: Process) -> None:
        world, checker = self._world, self._world.checker
        base = world.open_base()
        snapshots = SnapshotReader(world.store, base)
        window = checker.window()
        published = scan(world, snapshots, Consistency("snapshot"))
        checker.saw_published(window, published, range(world.scenario.keys), who="snapshot read")
        checker.finish(scan(world, snapshots, STRONG), base.dataset.scanner().to_table())
        if world.scenario.time is None or self._travellers or self._consumers:
            return
        if world.random.random() < (_GARBAGE_CHANCE if world.scenario.is_long else _GARBAGE_CHANCE / 4):
            # Writers that still stand wake up; what they write must be there before the rounds are counted.
            time_passed = world.let_time_pass(200_000.0)
            world.scheduler.sleep(1.0)
            world.calm()
            for _ in range(3):
                collect_once(world, dry_run=False)
                time_passed &= world.let_time_pass(200_000.0)
            # A collection of somebody else that goes on beside the last ones marks anew what they marked;
            # and whoever stands still in a hurry has time stand still.
            if time_passed and not _waiting(world, world.control, process):
                checker.no_garbage_is_left()
