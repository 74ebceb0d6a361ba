"""One simulated table: its store, its processes, and what everybody in it uses."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from uuid import UUID

import pyarrow as pa
from tests.simulation.checker import Checker
from tests.simulation.library import KEY_INDEX, FileWriter, Library
from tests.simulation.scenario import Scenario
from tests.simulation.scheduler import Process, Scheduler, Task
from tests.simulation.store import FaultRates, SimulatedStore

from weir.base.table import TABLE_ID, BaseTable
from weir.config import WriterOptions
from weir.format.field_ids import FieldId, interned, with_field_ids
from weir.format.index_details import IndexDetails, ShardSpec
from weir.format.lease import LeaseOwner
from weir.format.merge_engine import FEATURE, MERGE_ENGINE
from weir.format.merge_engine import encode as encode_merge_engine
from weir.format.wal_entry import wal_schema
from weir.write.lease.lease_terms import LeaseTerms

__all__ = ["KEY", "ROWS_SCHEMA", "SCHEMA", "World", "as_batch", "is_certainly_dead"]

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("value", pa.int64())])
ROWS_SCHEMA = interned(with_field_ids(wal_schema(SCHEMA), (FieldId(0), FieldId(1))))
KEY = ("id",)
_CALM = FaultRates()


class World:
    """Everything of one simulation.

    Parameters
    ----------
    seed : int
        Decides everything.
    kind : str, optional
        The kind of scenario, if the seed is not to decide that.
    is_long : bool, optional
        Whether the history is long, if the seed is not to decide that.
    """

    current: World

    def __init__(self, seed: int, kind: str | None = None, is_long: bool | None = None) -> None:
        self.seed = seed
        self.scheduler = Scheduler(seed)
        self.random = self.scheduler.random
        self.scenario = Scenario.draw(self.random, kind, is_long)
        self.store = SimulatedStore(
            self.scheduler, _CALM, local=self.scenario.is_local, fsync=self.scenario.power_cuts > 0
        )
        self.library = Library(self.store, SCHEMA, KEY)
        FileWriter.library = self.library
        World.current = self
        self.holders: dict[str, Process] = {}
        """Processes by the id under which they hold leases."""
        self.checker = Checker(
            self.store, self.library, self.scenario.shards, self.holders, self.scenario.engine
        )
        self.checker.has_wrong_clocks = self.scenario.rates.wrong_clock > 0
        self.store.observer = self.checker
        self.processes: list[Process] = []
        self.control = self.process("control", may_crash=False)
        self.boots = 0
        """How often the machines have started anew."""
        self.hurried = 0
        """How many are at work who have to be done within the horizon."""
        self._next_value = 0

    @property
    def identity(self) -> str:
        """Identity of the table."""
        return f"table-{self.seed}"

    def process(self, name: str, *, may_crash: bool = True) -> Process:
        """Start a process."""
        process = Process(
            name,
            # Half of what leases allow for: two clocks may be wrong in opposite ways.
            skew=self.random.uniform(-0.1, 0.1),
            machine=self.random.randrange(2),
            may_crash=may_crash,
        )
        self.processes.append(process)
        return process

    def supervised(self, name: str, main: Callable[[Process], bool]) -> Task:
        """Run a process; whenever it dies, or ``main`` returns True, another takes its place."""

        def supervise() -> None:
            for number in range(8):
                process = self.process(f"{name}.{number}")
                task = self.scheduler.spawn(process, "main", partial(main, process))
                self.scheduler.join(task)
                if process.alive and not task.result:
                    return
                self.scheduler.sleep(self.random.expovariate(2))

        return self.scheduler.spawn(self.control, name, supervise, delay=self.random.random() * 0.05)

    def set_up(self) -> None:
        """Create the table."""
        recorded, engine = {TABLE_ID: self.identity}, self.scenario.engine
        if engine is not None:
            ids = {name: number for number, name in enumerate(SCHEMA.names)}
            recorded[MERGE_ENGINE] = encode_merge_engine(engine, ids, {})
        details = IndexDetails(
            shard_specs=(ShardSpec(1),),
            maintained_indexes=(KEY_INDEX,),
            features=() if engine is None else (FEATURE,),
            writer_config_defaults=recorded,
        )
        self.library.create_base(details)
        self.store.rates = self.scenario.rates

    def calm(self) -> None:
        """End all faults, and wait until what they have delayed has landed."""
        self.store.rates = _CALM
        while self.store.in_flight:
            self.scheduler.sleep(1.0)

    @contextmanager
    def within_the_horizon(self) -> Iterator[None]:
        """Do something that may fail if garbage collection passes it: no hours go by meanwhile."""
        self.hurried += 1
        try:
            yield
        finally:
            self.hurried -= 1

    def let_time_pass(self, seconds: float) -> bool:
        """Let hours go by as soon as nobody is in a hurry; return whether that came about."""
        for _ in range(200):
            if not self.hurried:
                self.store.note(f"{seconds} seconds go by")
                self.scheduler.jump(seconds)
                return True
            self.scheduler.sleep(self.scenario.think)
        return False

    def open_base(self) -> BaseTable:
        """Open the base table."""
        return BaseTable.open(self.store)

    def lease_terms(self, process: Process, options: WriterOptions) -> LeaseTerms:
        """Return how a writer of a process takes its lease."""
        holder = LeaseOwner(
            host=f"machine{process.machine}",
            process_id=self.processes.index(process),
            process_started=0,
            system=f"system{process.machine}.{self.boots}",
            holder_id=self.random.randbytes(16).hex(),
        )
        self.holders[holder.holder_id] = process
        if options.takeover:
            self.checker.takes_over.add(holder.holder_id)
        return LeaseTerms(ttl=options.lease_ttl, takeover=options.takeover, holder=holder)

    def is_certainly_dead(self, holder: LeaseOwner) -> bool:
        """Stand in for :func:`weir.write.lease.lease_owner.is_certainly_dead`."""
        process, own = self.holders[holder.holder_id], self.scheduler.task
        assert own is not None
        return process.machine == own.process.machine and not process.alive

    def draw_rows(self, shard: UUID) -> list[tuple[int, int, bool]]:
        """Return some rows to write: key, value, whether it is a delete."""
        place = self.scenario.shards.index(shard)
        keys = range(place, self.scenario.keys, len(self.scenario.shards))
        rows = []
        for _ in range(self.random.choice([1, 1, 1, 2, 3])):
            self._next_value += 1
            rows.append(
                (self.random.choice(keys), self._next_value, self.random.random() < self.scenario.deletes)
            )
        return rows

    def draw_keys(self) -> list[int]:
        """Return some distinct keys to look up."""
        return self.random.sample(range(self.scenario.keys), self.random.choice([1, 2, self.scenario.keys]))


def as_batch(rows: Sequence[tuple[int, int, bool]]) -> pa.RecordBatch:
    """Return rows in the schema of the log."""
    keys, values, dead = zip(*rows, strict=True)
    return pa.RecordBatch.from_arrays(
        [pa.array(keys, pa.int64()), pa.array(values, pa.int64()), pa.array(dead, pa.bool_())],
        schema=ROWS_SCHEMA,
    )


def is_certainly_dead(holder: LeaseOwner) -> bool:
    """Stand in for :func:`weir.write.lease.lease_owner.is_certainly_dead`."""
    return World.current.is_certainly_dead(holder)
