"""A table on a disk that fails now and then: what is acknowledged is there, what is refused says why.

A preloaded library (``failing_io.c``) has some calls of a process on the files of the table fail with EIO,
ENOSPC or EDQUOT, Lance's calls too, and has others move fewer bytes than they were asked to. Each round is
one process: it writes, flushes, reads, merges, compacts, collects and takes snapshots, with its wall clock an
hour or a day ahead or back, and says what was acknowledged and what was read. Every error has to be one of
Weir's; every read that gave an answer has to have given a right one; and after every round the table opens
without the faults, has every acknowledged write, takes another one, and is found whole.
"""

from __future__ import annotations

import atexit
import json
import os
import random
import struct
import subprocess
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

import weir
from tests.forked_program import forked_program
from weir.engine.context import default_context
from weir.errors import WeirError

__all__ = ["FailingDisk", "compiled"]

SCHEMA = pa.schema([("id", pa.int64()), ("n", pa.int64())])
_HERE = Path(__file__).parent
_ROUNDS_OF_A_TABLE = 20
"""Nobody collects the table, so that each round has more versions to verify: they would take ever longer."""

_STEPS = 14
_KEYS = 8
_PERMILLES = (2, 5, 20, 60)
_CLOCK_STEPS = (0.0, 3600.0, -3600.0, 86400.0, -86400.0)


def compiled(folder: Path, name: str) -> Path:
    """Compile a library to be preloaded, and return it."""
    library = folder / f"{name}.so"
    command = ["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(_HERE / f"{name}.c"), "-ldl"]
    subprocess.run(command, check=True, capture_output=True)
    return library


class FailingDisk:
    """A table, and processes for which its disk fails.

    Parameters
    ----------
    directory : Path
        Where the table is kept.
    seed : int
        Chooses what is done and what fails.
    """

    def __init__(self, directory: Path, seed: int) -> None:
        self.directory = directory
        self.counts: Counter[str] = Counter()
        self._dice = random.Random(seed)
        self._uri = directory
        libraries = [compiled(directory, name) for name in ("failing_io", "shifted_clock")]
        self._set_clock(0.0)
        # Each round is a process of its own. To import Weir would take longer than all that it does.
        open_until_the_end = ExitStack()
        atexit.register(open_until_the_end.close)
        self._program = open_until_the_end.enter_context(
            forked_program(
                "tests.faults.failing_io:main",
                ["weir.table.table"],
                {"LD_PRELOAD": ":".join(map(str, libraries)), "SHIFTED_CLOCK": str(directory / "clock")},
            )
        )
        # Of each key, what may be its value: the last acknowledged one, and all that was in doubt since.
        self._allowed: dict[int, set[int | None]] = {}

    def play(self, permille: int | None = None) -> None:
        """Play a round.

        Raises
        ------
        AssertionError
            If a promise was broken.
        """
        if not self.counts["rounds"] % _ROUNDS_OF_A_TABLE:
            self._begin_a_table(self.counts["rounds"] // _ROUNDS_OF_A_TABLE)
        permille = permille or self._dice.choice(_PERMILLES)
        seed, shift = self._dice.randrange(2**31), self._dice.choice(_CLOCK_STEPS)
        self._set_clock(shift)
        environment = {**os.environ, "FAILING_IO_LATER": f"{seed}:{permille}:{self._uri}"}
        command = [*self._program, str(self._uri), str(seed)]
        ran = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=600, check=False
        )
        where = f"seed {seed}, {permille} of 1,000 calls fail, clock {shift:+.0f} s"
        assert ran.returncode == 0, f"{where}: the process ended with {ran.returncode}: {ran.stderr[-3_000:]}"
        for line in ran.stdout.splitlines():
            self._believe(json.loads(line), where)
        default_context().cache.clear()
        table = weir.open(self._uri)
        self._check(table.scan().to_table().to_pylist(), f"{where}: after it")
        with table.writer(takeover=True) as writer:
            writer.upsert([{"id": key, "n": seed + key} for key in range(2)])
        self._allowed.update({key: {seed + key} for key in range(2)})
        table.maintenance.merge()
        self._check(weir.open(self._uri).scan().to_table().to_pylist(), f"{where}: after a merge")
        found = weir.open(self._uri).maintenance.verify().errors
        # A pin that was lost to a fault keeps nothing: its token is refused by name.
        errors = [one for one in found if one.check != "token.expired"]
        assert not errors, f"{where}: {errors}"
        self.counts["rounds"] += 1

    def _begin_a_table(self, number: int) -> None:
        self._set_clock(0.0)
        self._uri = self.directory / f"table-{number}"
        self._allowed = {key: {None} for key in range(_KEYS)}
        weir.create(self._uri, SCHEMA, primary_key="id", shard_by=weir.bucket("id", 2))

    def _set_clock(self, shift: float) -> None:
        """Shift the wall clock of all rounds. They have the file mapped."""
        with open(self.directory / "clock", "r+b" if (self.directory / "clock").exists() else "wb") as clock:
            clock.write(struct.pack("d", shift))

    def _believe(self, event: dict[str, Any], where: str) -> None:
        if "write" in event:
            values, acknowledged = event["write"]
            self.counts["writes acknowledged" if acknowledged else "writes refused"] += 1
            for text, value in values.items():
                key = int(text)
                self._allowed[key] = {value} if acknowledged else {value, *self._allowed[key]}
        elif "read" in event:
            self.counts["reads that gave an answer"] += 1
            self._check([{"id": key, "n": n} for key, n in event["read"]], f"{where}: a read in it")
        elif "refused" in event:
            self.counts[f"refused: {event['refused']}"] += 1
        else:
            raise AssertionError(f"{where}: an error that is not Weir's: {event['raw']}")

    def _check(self, rows: list[dict[str, int]], what: str) -> None:
        found = {row["id"]: row["n"] for row in rows}
        assert len(found) == len(rows), f"{what}: a key is there twice"
        for key, values in self._allowed.items():
            assert found.get(key) in values, f"{what}: {key} is {found.get(key)}, not one of {values}"


class _Round:
    """What a process does."""

    def __init__(self, uri: str, seed: int) -> None:
        self._dice = random.Random(seed)
        self._table = weir.open(uri)
        self._table.scan().count()
        self._number = seed

    def play(self) -> None:
        # Only from here on, so that what fails is what is tried and not the start of an interpreter.
        os.environ["FAILING_IO"] = os.environ["FAILING_IO_LATER"]
        services = self._table.maintenance
        others: list[Callable[[], object]] = [
            self._read,
            self._read,
            self._look_up,
            services.merge,
            services.compact,
            lambda: services.collect_garbage(horizon=timedelta(0), version_retention=timedelta(0)),
            lambda: self._table.snapshot(retain=timedelta(hours=1)),
        ]
        for _ in range(_STEPS):
            if self._dice.random() < 0.4:
                self._reported(self._write)
            else:
                self._reported(self._dice.choice(others))

    def _reported(self, work: Callable[[], object]) -> None:
        try:
            work()
        except WeirError as error:
            _tell(refused=type(error).__name__)
        except BaseException as error:
            _tell(raw="".join(traceback.format_exception(error)))

    def _write(self) -> None:
        options = {
            "flush_on_close": self._dice.random() < 0.5,
            "max_memtable_rows": self._dice.choice([3, 1000]),
        }
        with self._table.writer(takeover=True, **options) as writer:
            for _ in range(self._dice.randrange(1, 6)):
                keys = self._dice.sample(range(_KEYS), self._dice.randrange(1, 4))
                delete = self._dice.random() < 0.2
                values: dict[int, int | None] = {}
                for key in keys:
                    self._number += 1
                    values[key] = None if delete else self._number
                acknowledged = False
                try:
                    if delete:
                        writer.delete(keys)
                    else:
                        writer.upsert([{"id": key, "n": value} for key, value in values.items()])
                    acknowledged = True
                finally:
                    _tell(write=[values, acknowledged])

    def _read(self) -> None:
        rows = self._table.scan().to_table().to_pylist()
        _tell(read=[[row["id"], row["n"]] for row in rows])

    def _look_up(self) -> None:
        rows = self._table.get(list(range(_KEYS))).to_pylist()
        _tell(read=[[row["id"], row["n"]] for row in rows])


def _tell(**event: object) -> None:
    print(json.dumps(event), flush=True)


def main() -> int:
    """Play a round in this process: the location of the table, and the seed, are its arguments."""
    uri, seed = sys.argv[-2:]
    _Round(uri, int(seed)).play()
    return 0
