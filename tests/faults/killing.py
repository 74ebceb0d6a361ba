"""Rounds in which real processes work on one table, and are killed at any moment."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import weir
from tests.faults.actors import KEYS, SCHEMA, Place, found_rows, run
from tests.faults.journal import lines_told, read_journal
from tests.faults.model import Change, Model, Observation, Write
from tests.faults.proxy import Seeded, proxied
from tests.storage.s3 import serve_s3
from weir.engine.context import default_context

__all__ = ["CAST", "Killing", "killing_on_s3"]

CAST = ("writer", "writer", "writer", "merger", "merger", "collector", "reader")
_LONGEST_PAUSE = 0.3
_SHARE_OF_FAULTS = 0.04
_LATE_SECONDS = 0.5
_PAUSES = 0.2
_MOST_DONE = 12
_MOST_WRITTEN = 80
"""Lines that a writer may tell before it is killed: two for each write, which takes a moment."""
_PATIENCE = 10.0


@dataclass(frozen=True, slots=True)
class _Life:
    """What is left of a process that has died."""

    role: str
    journal: Path
    died_at: float
    was_killed: bool


@dataclass
class Killing:
    """A table, and the rounds that have been played on it.

    Parameters
    ----------
    directory : Path
        An empty directory, for the journals.
    seed : int
        Chooses what the processes do and how long they live. What the operating system makes of it
        differs from run to run.
    place : Place, optional
        Where the table is to be, for whoever checks it. Default: on local disk, in ``directory``.
    way : Place, optional
        By which way the processes reach it. Default: the same.
    longest_life : float
        Seconds after which a process is killed, or later if it has done little by then.
    on_their_way : float
        Seconds that a request of a process may need to arrive when the process is dead.
    """

    directory: Path
    seed: int
    place: Place | None = None
    way: Place | None = None
    longest_life: float = 1.2
    on_their_way: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._dice = random.Random(self.seed)
        self._model = Model()
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["tests.faults.actors", "weir.table.table"])
        self._place = self.place or Place(str(self.directory / "table"))
        self._way = self.way or self._place
        self._table = weir.create(
            self._place.uri,
            SCHEMA,
            primary_key=["group", "number"],
            shard_by=weir.identity("group"),
            storage_options=self._place.options,
            fsync=False,
        )
        self._feed = self._table.changes(consumer="model", batch_rows=1)
        self._feed.commit()

    def play(self) -> None:
        """Play one round: everybody lives twice or for long; then the table meets the model."""
        seeds = [self._dice.randrange(2**32) for _ in CAST]
        with ThreadPoolExecutor(len(CAST)) as pool:
            lives = list(chain.from_iterable(pool.map(self._live, CAST, seeds)))
        time.sleep(self.on_their_way)
        self.counts["rounds"] += 1
        self.counts["processes"] += len(lives)
        self._check(lives)

    def _live(self, role: str, seed: int) -> list[_Life]:
        dice = random.Random(seed)
        # A collection is one long piece of work: it gets one long life.
        longest, lives = (3 * self.longest_life, 1) if role == "collector" else (self.longest_life, 2)
        return [self._live_once(role, dice, longest) for _ in range(lives)]

    def _live_once(self, role: str, dice: random.Random, longest: float) -> _Life:
        """Start a process, let it work, sometimes let it stand still for a while, and kill it."""
        journal = self.directory / f"{self.counts['rounds']}-{role}-{dice.randrange(2**32)}.journal"
        arguments = (role, dice.randrange(2**32), self._way, journal)
        process = self._context.Process(target=run, args=arguments, daemon=True)
        process.start()
        assert process.pid is not None
        # By what it has done as well as by time: on a busy machine nobody would live to do anything.
        most = _MOST_WRITTEN if role == "writer" else _MOST_DONE
        least, began = dice.choice((0, dice.randrange(1, most))), time.monotonic()
        process.join(dice.uniform(0.05, longest))
        while (
            process.exitcode is None
            and lines_told(journal) < least
            and time.monotonic() - began < _PATIENCE * longest
        ):
            process.join(0.02)
        if dice.random() < _PAUSES and process.exitcode is None:
            os.kill(process.pid, signal.SIGSTOP)
            time.sleep(dice.uniform(0.05, _LONGEST_PAUSE))
            os.kill(process.pid, signal.SIGCONT)
            process.join(dice.uniform(0.0, self.longest_life / 2))
        process.kill()
        process.join()
        was_killed = process.exitcode == -signal.SIGKILL
        process.close()
        return _Life(role, journal, time.monotonic() + self.on_their_way, was_killed)

    def _check(self, lives: list[_Life]) -> None:
        writes: list[Write] = []
        seen: list[Observation] = []
        for life in lives:
            self.counts[f"{life.role}s killed"] += life.was_killed
            told = list(read_journal(life.journal))
            for one in told:
                self.counts[_counted(one)] += 1
                self.counts["objects collected"] += one.get("objects", 0)
                self.counts["generations merged"] += one.get("generations", 0)
                assert one["event"] != "unexpected", f"{life.role}: {one['text']}"
            writes += _writes(told, life.died_at)
            seen += _observations(told)
        default_context().cache.clear()
        table = self._place.opened()
        self._model.follow(writes, self._changes(table))
        for observation in seen:
            self._model.check(observation)
        keys = [{"group": group, "number": number} for group, number in sorted(KEYS)]
        rows = self._model.rows
        assert found_rows(table.scan().to_table()) == rows, "the scan is not what the log says"
        assert found_rows(table.get(keys)) == rows, "the lookups are not what the log says"
        assert table.scan().count() == len(rows), "the count is not what the log says"
        self.counts["writes in doubt that had landed"] = self._model.landed_in_doubt
        for life in lives:
            life.journal.unlink(missing_ok=True)

    def _changes(self, table: weir.Table) -> list[Change]:
        changes = []
        feed = table.changes(consumer="model")
        for batch in feed:
            for row in batch.rows.to_pylist():
                key = (row["group"], row["number"])
                value = row["value"] if row["_op"] == "upsert" else None
                changes.append(Change(row["group"], row["_position"], row["_epoch"], key, value))
        feed.commit()
        return changes


@contextmanager
def killing_on_s3(directory: Path, seed: int, longest_life: float = 15.0) -> Iterator[Killing]:
    """Serve S3 to processes that are killed, by a way on which requests are lost, late or doubled.

    Parameters
    ----------
    directory : Path
        An empty directory, for the journals.
    seed : int
        Chooses what the processes and the way do.
    longest_life : float
        Seconds after which a process is killed at the latest. It has a client to open, and a simulated
        service to wait for.
    """
    with serve_s3() as endpoint, proxied(endpoint, Seeded(seed, _SHARE_OF_FAULTS)) as proxy:
        proxy.delay_seconds = _LATE_SECONDS
        uri = endpoint.new_uri()
        yield Killing(
            directory,
            seed,
            Place(uri, endpoint.options),
            Place(uri, proxy.options),
            longest_life=longest_life,
            on_their_way=3 * _LATE_SECONDS,
        )


def _counted(one: dict[str, Any]) -> str:
    if one["event"] in ("gave up", "refused"):
        return f"{one['event']}: {one['error']}"
    return str(one["event"])


def _writes(told: list[dict[str, Any]], died_at: float) -> list[Write]:
    answers = {one["name"]: one for one in told if one["event"] in ("acknowledged", "refused")}
    writes = []
    for one in told:
        if one["event"] != "sends":
            continue
        answer = answers.get(one["name"])
        writes.append(
            Write(
                name=one["name"],
                writer=one["writer"],
                keys=frozenset((group, number) for group, number in one["keys"]),
                is_delete=one["delete"],
                began=one["at"],
                ended=died_at if answer is None else answer["at"],
                position=None if answer is None else answer.get("position"),
                is_refused=answer is not None and answer["event"] == "refused",
            )
        )
    return writes


def _observations(told: list[dict[str, Any]]) -> list[Observation]:
    return [
        Observation(
            began=one["began"],
            ended=one["at"],
            asked=frozenset((group, number) for group, number in one["asked"]),
            found={(group, number): value for group, number, value in one["rows"]},
        )
        for one in told
        if one["event"] == "saw"
    ]
