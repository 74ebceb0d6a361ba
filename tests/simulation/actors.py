"""Who lives in a simulation: writers, mergers and readers, made of Weir's own code."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar
from uuid import UUID

import numpy as np
import pyarrow as pa
from tests.simulation.checker import Outcome
from tests.simulation.primitives import SimulatedExecutor
from tests.simulation.scenario import FENCE_HORIZON
from tests.simulation.scheduler import Process
from tests.simulation.world import KEY, ROWS_SCHEMA, SCHEMA, World, as_batch

from weir.base.table import BaseTable
from weir.config import WriterOptions
from weir.engine.concurrent_map import Wave
from weir.errors import (
    BackpressureError,
    ConflictError,
    CorruptionError,
    FencedError,
    InputError,
    LeaseHeldError,
    StorageError,
    WeirError,
    WriterClosedError,
    WriterError,
)
from weir.log.manifest_store import list_shards
from weir.lsm.keys import KeySet
from weir.maintenance.compact import compact
from weir.maintenance.garbage.garbage import collect_garbage
from weir.merge.commit import merge_runs
from weir.merge.plan import MergeTask, plan_merge
from weir.merge.service import merge_generations, merge_rounds
from weir.merge.waves import merge_in_waves
from weir.read.lookup import KeyRouter, get_rows
from weir.read.planner import ScanPlanner
from weir.read.scan import Scan
from weir.rows import as_row_table, upsert_batches
from weir.snapshots.shard_view import ShardView
from weir.snapshots.snapshot import STRONG, Consistency, ReadSnapshot, SnapshotReader, bounded
from weir.write.decision.operation import Kind, Operation, Undecided
from weir.write.decision.row_expression import condition
from weir.write.lease.heartbeat import Heartbeat
from weir.write.memtable.backpressure import MergeBacklog
from weir.write.shard_context import BaseVersions, ShardContext
from weir.write.shard_writer import ShardWriter

__all__ = ["Reader", "Writer", "WritingPlan", "compactor", "merger", "updater"]

T = TypeVar("T")
R = TypeVar("R")
_WORTH_MERGING = 3
_EVEN = condition("value % 2 = 0", SCHEMA, has_new=True)
_PAUSES = 20
_ROWS_PER_FRAGMENT = (2, 4, 1000)


@dataclass(slots=True)
class WritingPlan:
    """What is left to write, by one writer and those who take its place when it dies."""

    shard: UUID
    calls: int
    threads: int
    options: WriterOptions
    is_released: bool = False
    """Whether they are of the released library."""


class Writer:
    """The writer of a shard, with several threads that write.

    Parameters
    ----------
    world : World
        Where.
    plan : WritingPlan
        What to write.
    """

    def __init__(self, world: World, plan: WritingPlan) -> None:
        self._world = world
        self._plan = plan
        self.left_open: list[tuple[Process, ShardWriter]] = []
        """Writers that nobody has closed: processes that hang."""

    def run(self, process: Process) -> bool:
        """Write until nothing is left; return whether to go on in another process."""
        world, plan = self._world, self._plan
        process.may_sleep = True
        process.is_released = plan.is_released
        shard_writer = open_writer(world, process, plan.shard, plan.options)
        if shard_writer is None:
            return plan.calls > 0
        threads = [
            world.scheduler.spawn(process, f"thread{number}", lambda: self._write(process, shard_writer))
            for number in range(plan.threads)
        ]
        world.scheduler.join(*threads)
        end = world.random.random()
        if end < 0.3:
            self.left_open.append((process, shard_writer))
        elif end < 0.5:
            shard_writer.abandon()
        else:
            # A flush that has failed before, in the background, may be reported now.
            with failures_allowed(world, process, faults_before=0):
                shard_writer.close()
        return plan.calls > 0

    def _write(self, process: Process, writer: ShardWriter) -> None:
        world, plan = self._world, self._plan
        while plan.calls > 0:
            plan.calls -= 1
            if world.random.random() < 0.03:
                write_invalid(world, writer, plan.shard)
            if not write_once(world, writer, plan.shard):
                return
            if world.random.random() < 0.1:
                try:
                    writer.flush()
                except (WriterError, StorageError, ConflictError):
                    world.checker.count("flushes failed")
            if world.random.random() < 0.05:
                return
            world.scheduler.sleep(world.random.expovariate(1 / world.scenario.think))


def open_writer(world: World, process: Process, shard: UUID, options: WriterOptions) -> ShardWriter | None:
    """Claim a shard; return None if that fails."""
    backlog = MergeBacklog(
        options.max_unmerged_generations,
        timeout=options.backpressure_timeout,
        where="simulated",
        merge_progress=lambda: world.open_base().details.merged_generation,
    )
    try:
        context = ShardContext.of(
            world.store,
            lambda: ROWS_SCHEMA,
            KEY,
            namespace=world.identity,
            merge_engine=world.scenario.engine,
            options=options,
            flusher=SimulatedExecutor(2, "flush"),
            spec_id=1,
            lease_terms=world.lease_terms(process, options),
            heartbeat=Heartbeat(),
            backlog=backlog,
            versions=BaseVersions(_newest_seen(world), world.open_base),
        )
        wave = Wave()
        absent = None if shard in list_shards(world.store) else wave
        writer = ShardWriter(context, shard, absent=absent)
        world.checker.claimed(shard, writer.epoch)
        return writer
    except (StorageError, FencedError, ConflictError):
        world.checker.count("claims failed")
    except LeaseHeldError:
        world.checker.count("claims refused because of a lease")
    return None


def _newest_seen(world: World) -> Callable[[], BaseTable]:
    """Return what returns the base table as it was when it was first asked for: behind whatever is merged."""
    seen: list[BaseTable] = []

    def known() -> BaseTable:
        if not seen or world.random.random() < 0.2:
            seen[:] = [world.open_base()]
        return seen[0]

    return known


def write_once(world: World, writer: ShardWriter, shard: UUID) -> bool:
    """Make one write and check what its caller is told; return whether the writer can go on."""
    checker = world.checker
    rows = world.draw_rows(shard)
    decides = world.scenario.decides()
    if decides:
        # A delete has a condition too, and then does nothing where there is no row.
        rows = [(key, value, False) for key, value, _ in rows]
    write = checker.began(shard, rows, decides=decides)
    try:
        position = writer.submit(_undecided(rows) if decides else as_batch(rows)).result()
    except (FencedError, WriterClosedError, BackpressureError):
        write.outcome = Outcome.REFUSED
        checker.count("writes refused")
        return False
    except StorageError:
        return True
    except CorruptionError:
        # The library says no more than that a generation, or the base table, cannot be read.
        if not decides or world.scenario.faults == "no faults":
            raise
        write.outcome = Outcome.REFUSED
        checker.count("writes not decided")
        return True
    checker.acknowledged(write, position)
    return True


def _undecided(rows: Sequence[tuple[int, int, bool]]) -> Undecided:
    """Return rows that are written where the present value is even, or there is none."""
    return Undecided((Operation(Kind.UPSERT, as_batch(rows), condition=_EVEN),), ROWS_SCHEMA)


def write_invalid(world: World, writer: ShardWriter, shard: UUID) -> None:
    """Try to write rows of which one is invalid, on the path that the rows of users take."""
    drawn = [(key, value, False) for key, value, _ in world.draw_rows(shard)]
    write = world.checker.began(shard, drawn)
    write.outcome = Outcome.INVALID
    rows: list[dict[str, Any]] = [{"id": key, "value": value} for key, value, _ in drawn]
    spoilt = world.random.choice(rows)
    spoilt.update(world.random.choice([{"id": None}, {"value": "text"}, {"value": 2**63}, {"other": 1}]))
    try:
        for batch in upsert_batches(as_row_table(rows, SCHEMA, KEY), ROWS_SCHEMA):
            writer.submit(batch).result()
    except InputError:
        world.checker.count("invalid writes refused")
    except WeirError as error:
        world.checker.fail("I10", f"invalid rows were taken for valid ones: {rows}; then {error}")
    else:
        world.checker.fail("I10", f"invalid rows were accepted: {rows}")


def merger(world: World, rounds: int, process: Process) -> bool:
    """Merge what is flushed, again and again."""
    for _ in range(rounds):
        world.scheduler.sleep(world.random.expovariate(1 / world.scenario.pace))
        if world.scenario.by_the_clock is not None:
            wait_for_generations(world, world.scenario.by_the_clock)
        with failures_allowed(world, process), world.within_the_horizon():
            merge_once(world)
    return False


def wait_for_generations(world: World, pause: float) -> None:
    """Wait until there is something worth merging, for some time."""
    for _ in range(_PAUSES):
        if world.checker.unmerged() >= _WORTH_MERGING:
            return
        world.scheduler.sleep(pause * world.random.random())


def updater(world: World, rounds: int, process: Process) -> bool:
    """Update rows of the base table to what they are, again and again, as plain Lance does."""
    for _ in range(rounds):
        for _ in range(_PAUSES):
            world.scheduler.sleep(world.random.expovariate(1 / world.scenario.pace))
            if world.checker.merged():
                break
        # Nobody waits for what the library fails with.
        with failures_allowed(world, process), world.within_the_horizon(), suppress(OSError):
            world.checker.count("updates by hand", world.library.update(world.random))
    return False


def compactor(world: World, rounds: int, process: Process) -> bool:
    """Compact the base table, again and again."""
    for _ in range(rounds):
        for _ in range(_PAUSES):
            world.scheduler.sleep(world.random.expovariate(1 / world.scenario.pace))
            if world.checker.merged():
                break
        with failures_allowed(world, process), world.within_the_horizon():
            rows = world.random.choice(_ROWS_PER_FRAGMENT)
            report = compact(world.open_base(), InlineRunner(), rows_per_fragment=rows)
            world.checker.count("fragments compacted", report.fragments_removed)
    return False


def collector(world: World, rounds: int, process: Process) -> bool:
    """Collect garbage, again and again."""
    for _ in range(rounds):
        world.scheduler.sleep(world.random.expovariate(1 / world.scenario.pace))
        with failures_allowed(world, process), world.within_the_horizon():
            collect_once(world, dry_run=world.random.random() < 0.1)
    return False


def collect_once(world: World, *, dry_run: bool) -> None:
    """Collect garbage."""
    assert world.scenario.time is not None
    horizon = world.scenario.time.horizon
    retention = world.random.choice([None, None, horizon, timedelta(hours=2)])
    report = collect_garbage(
        world.open_base(),
        InlineRunner(),
        horizon=horizon,
        fence_horizon=FENCE_HORIZON,
        version_retention=retention,
        dry_run=dry_run,
    )
    world.checker.count("collections")
    world.checker.count("objects found due", report.deleted_objects)


def passing_time(world: World, times: int) -> None:
    """Let minutes, hours and days go by."""
    for _ in range(times):
        world.scheduler.sleep(world.random.expovariate(1 / world.scenario.pace))
        assert world.scenario.time is not None
        if world.let_time_pass(world.random.choice(world.scenario.time.jumps)):
            world.checker.count("times that hours went by")


def merge_once(world: World) -> None:
    """Merge what is flushed, in one of the ways there are."""
    base = world.open_base()
    reader = SnapshotReader(world.store, base)
    found = reader.take_manifests() if world.random.random() < 0.5 else None
    if found is None:
        snapshot = reader.take_newest()
        found = snapshot.base, tuple(view.manifest for view in snapshot.shards)
    base, manifests = found
    if world.scenario.by_the_clock is not None:
        # Everybody begins at the same moment, having seen different generations.
        world.scheduler.sleep(world.scenario.by_the_clock - world.scheduler.now % world.scenario.by_the_clock)
    if not world.scenario.has_waves and world.random.random() < 0.5:
        merge_generations(base, manifests, InlineRunner())
        return
    max_bytes = world.random.choice([1, 60, 120, 1_000_000])
    tasks = plan_merge(world.store, base.details, manifests, max_task_bytes=max_bytes)
    if world.random.random() < 0.3:
        world.scheduler.sleep(world.random.expovariate(1 / world.scenario.pace))
    if world.scenario.has_waves:
        merge_rounds_once(world, tasks)
        return
    for task in tasks:
        merge_runs([task])


def merge_rounds_once(world: World, tasks: Sequence[MergeTask]) -> None:
    """Merge runs of several shards together, in waves or as the library does."""
    if world.random.random() < 0.5:
        # Those of different shards overtake each other.
        one = world.random.choice(world.scenario.shards)
        tasks = [task for task in tasks if task.shard_id == one]
    for group in merge_rounds(tasks):
        for step in group.steps:
            if world.scenario.merges_in_waves():
                merged = merge_in_waves(step, world.open_base(), InlineRunner())
                world.checker.count("merges in waves", not merged.was_already_merged)
            else:
                merge_runs(step)


class InlineRunner:
    """Runs the tasks of a service one after the other."""

    def run(self, function: Callable[[T], R], tasks: Sequence[T]) -> Iterator[R]:
        """Yield the result of every task."""
        return map(function, tasks)


class Reader:
    """A process that reads, and remembers between reads what it has seen.

    Parameters
    ----------
    world : World
        Where.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._snapshots: SnapshotReader | None = None
        self.process: Process | None = None
        """The last process it has run in."""

    def run(self, rounds: int, process: Process) -> bool:
        """Read again and again."""
        self._snapshots, self.process = None, process
        for _ in range(rounds):
            self._world.scheduler.sleep(self._world.random.expovariate(1 / self._world.scenario.think))
            with failures_allowed(self._world, process):
                self.read_once(self._draw_consistency())
        return False

    def read_once(self, consistency: Consistency) -> None:
        """Read in one of the ways there are, and check what is shown."""
        world = self._world
        checker = world.checker
        with world.within_the_horizon():
            if self._snapshots is None:
                self._snapshots = SnapshotReader(world.store, world.open_base())
            window = checker.window(seconds_behind=consistency.max_staleness_ms / 1000)
            keys = world.draw_keys() if world.random.random() < 0.4 else None
            if keys is None:
                rows = scan(world, self._snapshots, consistency)
            else:
                rows = get(world, self._snapshots, consistency, keys)
        if consistency.kind == "snapshot":
            checker.saw_published(window, rows, keys or range(world.scenario.keys), who="snapshot read")
        else:
            checker.saw(window, rows, keys=keys, who=f"{consistency.kind} read")

    def _draw_consistency(self) -> Consistency:
        draw = self._world.random.random()
        if draw < 0.7:
            return STRONG
        return Consistency("snapshot") if draw < 0.9 else bounded(self._world.random.choice([5, 100]))


def scan(world: World, snapshots: SnapshotReader, consistency: Consistency) -> pa.Table:
    """Scan the table."""
    return scan_snapshot(planner_of(world), snapshots.take(consistency), consistency)


def planner_of(world: World) -> ScanPlanner:
    """Return what plans scans of the table; no filter leaves a shard out."""
    return ScanPlanner(world.store, lambda snapshot, _: (snapshot.shards, ()), route_of(world))


def scan_snapshot(planner: ScanPlanner, snapshot: ReadSnapshot, consistency: Consistency) -> pa.Table:
    """Scan what a snapshot shows."""
    return Scan(
        lambda _: planner.plan(snapshot, columns=None, filter=None, limit=None, consistency=consistency)
    ).to_table()


def get(world: World, snapshots: SnapshotReader, consistency: Consistency, keys: list[int]) -> pa.Table:
    """Look keys up."""
    return get_from(world, snapshots.take(consistency), keys)


def get_from(world: World, snapshot: ReadSnapshot, keys: list[int]) -> pa.Table:
    """Look keys up in what a snapshot shows."""
    return get_rows(snapshot, KeySet([pa.array(keys, pa.int64())]), SCHEMA.names, route_of(world))


def route_of(world: World) -> KeyRouter:
    """Return what says which shard holds a key."""

    def route(snapshot: ReadSnapshot, wanted: KeySet) -> Sequence[tuple[ShardView, np.ndarray[Any, Any]]]:
        shards = [world.checker.shard_of(key) for key in wanted.columns[0].to_pylist()]
        return [
            (view, np.array(mine, dtype=np.int64))
            for view in snapshot.shards
            if (mine := [at for at, shard in enumerate(shards) if shard == view.shard_id])
        ]

    return route


@contextmanager
def failures_allowed(world: World, process: Process, *, faults_before: int | None = None) -> Iterator[None]:
    """Let an error pass that an injected fault explains; whatever else goes wrong is a violation."""
    before = process.faults if faults_before is None else faults_before
    try:
        yield
    except (FencedError, ConflictError, WriterClosedError) as error:
        world.checker.count(f"{type(error).__name__} of a service or a reader")
    except (StorageError, CorruptionError) as error:
        if process.faults == before:
            world.checker.unexpected(process.name, error)
    except WeirError as error:
        world.checker.unexpected(process.name, error)
