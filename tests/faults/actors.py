"""What works on the table until it is killed: writers, mergers, a collector of garbage, readers.

Each is a process of its own that goes on without end, chooses by a seed, and tells its journal what it
sends, what it is answered, and every error that it has no reason to expect.
"""

from __future__ import annotations

import logging
import os
import random
import time
import traceback
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pyarrow as pa

import weir
from tests.faults.journal import Journal
from tests.faults.model import Key
from weir.engine.context import default_context
from weir.errors import ConflictError, FencedError, LeaseHeldError, StorageError
from weir.write.table_writer import TableWriter
from weir.write.write_result import WriteResult

__all__ = ["GROUPS", "HORIZON", "KEYS", "ROLES", "SCHEMA", "Place", "found_rows", "run"]

GROUPS = 2
KEYS = frozenset((group, number) for group in range(GROUPS) for number in range(12))
SCHEMA = pa.schema(
    [
        pa.field("group", pa.int32(), nullable=False),
        pa.field("number", pa.int64(), nullable=False),
        pa.field("value", pa.string()),
    ]
)
# Longer than anything takes here, also on a machine with other things to do.
HORIZON = timedelta(seconds=20)


@dataclass(frozen=True, slots=True)
class Place:
    """Where the table is, and by which way it is reached.

    Parameters
    ----------
    uri : str
        Its location.
    options : mapping of str to str, optional
        Storage options; None on local disk.
    """

    uri: str
    options: Mapping[str, str] | None = None

    def opened(self) -> weir.Table:
        """Open the table anew."""
        return weir.open(self.uri, storage_options=self.options, fsync=False)


def run(role: str, seed: int, place: Place, journal: Path) -> None:
    """Work in one role until killed."""
    # That flushes of fenced writers fail is what this is about.
    logging.getLogger("weir").setLevel(logging.CRITICAL)
    told = Journal(journal)
    told.tell("started", process=os.getpid())
    dice = random.Random(seed)
    table: weir.Table | None = None
    while True:
        try:
            table = table or place.opened()
            if role == "reader" and dice.random() < 0.3:
                default_context().cache.clear()
                table = place.opened()
            ROLES[role](table, dice, told)
        except StorageError as error:
            if place.options is None:
                told.tell("unexpected", text=traceback.format_exc())
                return
            # The way to an object store may fail; what was under way is in doubt.
            told.tell("gave up", error=type(error).__name__)
        except Exception:
            told.tell("unexpected", text=traceback.format_exc())
            return


class _Told:
    """A writer's side of the story."""

    def __init__(self, journal: Journal, session: str) -> None:
        self._journal = journal
        self._session = session
        self._count = 0

    def begin(self, keys: list[Key], *, delete: bool) -> str:
        self._count += 1
        name = f"{self._session}-{self._count}"
        self._journal.tell("sends", name=name, writer=self._session, keys=keys, delete=delete)
        return name

    def answered(self, name: str, receipt: WriteResult) -> None:
        (position,) = receipt.positions.values()
        self._journal.tell("acknowledged", name=name, position=position)

    def refused(self, name: str, error: Exception) -> None:
        self._journal.tell("refused", name=name, error=type(error).__name__)


def _write(table: weir.Table, dice: random.Random, journal: Journal) -> None:
    """Claim, write, flush and let go, over and over."""
    told = _Told(journal, f"{os.getpid()}.{dice.randrange(10**6)}")
    options = {
        "takeover": dice.random() < 0.7,
        "max_memtable_rows": dice.choice([3, 10, 1000]),
        "flush_on_close": dice.random() < 0.5,
    }
    try:
        with table.writer(**options) as writer:
            for _ in range(dice.randrange(1, 30)):
                _write_once(writer, dice, told)
                if dice.random() < 0.1:
                    writer.flush()
    except (FencedError, LeaseHeldError) as error:
        journal.tell("gave up", error=type(error).__name__)
        time.sleep(dice.uniform(0, 0.02))


def _write_once(writer: TableWriter, dice: random.Random, told: _Told) -> None:
    group = dice.randrange(GROUPS)
    if dice.random() < 0.25:
        # A tombstone does not say whose it is; a row that never was, deleted along with others, does.
        keys = [*_some_keys(group, dice), (group, dice.randrange(1000, 2**60))]
        name = told.begin(keys, delete=True)
        try:
            told.answered(name, writer.delete([{"group": one, "number": number} for one, number in keys]))
        except (FencedError, LeaseHeldError) as error:
            told.refused(name, error)
            raise
        return
    sent: list[tuple[str, Future[WriteResult]]] = []
    failure: Exception | None = None
    for _ in range(dice.choice([1, 1, 4])):
        keys = _some_keys(group, dice)
        name = told.begin(keys, delete=False)
        rows = [{"group": one, "number": number, "value": name} for one, number in keys]
        try:
            sent.append((name, writer.upsert(rows, wait=False)))
        except (FencedError, LeaseHeldError) as error:
            told.refused(name, error)
            failure = error
            break
    for name, future in sent:
        try:
            told.answered(name, future.result())
        except (FencedError, LeaseHeldError) as error:
            told.refused(name, error)
            failure = error
        except StorageError as error:
            failure = failure or error
    if failure is not None:
        raise failure


def _some_keys(group: int, dice: random.Random) -> list[Key]:
    numbers = sorted(number for one, number in KEYS if one == group)
    return [(group, number) for number in dice.sample(numbers, dice.randrange(1, 5))]


def _merge(table: weir.Table, dice: random.Random, journal: Journal) -> None:
    try:
        report = table.maintenance.merge()
    except ConflictError as error:
        journal.tell("gave up", error=str(error))
    else:
        journal.tell("merged", generations=report.generations)
    time.sleep(dice.uniform(0, 0.2))


def _collect(table: weir.Table, dice: random.Random, journal: Journal) -> None:
    retention = HORIZON if dice.random() < 0.5 else None
    try:
        report = table.maintenance.collect_garbage(horizon=HORIZON, version_retention=retention)
    except ConflictError as error:
        journal.tell("gave up", error=str(error))
    else:
        journal.tell("collected", objects=report.deleted_objects)
    time.sleep(dice.uniform(0, 0.5))


def _read(table: weir.Table, dice: random.Random, journal: Journal) -> None:
    for _ in range(dice.randrange(1, 10)):
        asked = sorted(KEYS)
        began = time.monotonic()
        if dice.random() < 0.5:
            found = table.scan().to_table()
        else:
            asked = dice.sample(asked, dice.randrange(1, 8))
            found = table.get([{"group": group, "number": number} for group, number in asked])
        rows = [[*key, value] for key, value in found_rows(found).items()]
        journal.tell("saw", began=began, asked=asked, rows=rows)


def found_rows(found: pa.Table) -> dict[Key, str]:
    """Return the rows of a read by key, none of which may be doubled."""
    rows = {(row["group"], row["number"]): row["value"] for row in found.to_pylist()}
    if len(rows) != found.num_rows:
        raise AssertionError(f"a key is doubled: {found.to_pylist()}")
    return rows


ROLES: dict[str, Callable[[weir.Table, random.Random, Journal], None]] = {
    "writer": _write,
    "merger": _merge,
    "collector": _collect,
    "reader": _read,
}
