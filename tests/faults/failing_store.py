"""An object store that fails, stumbles and repeats itself, by a seed; the promises hold all the same.

Each round is a table of its own behind a proxy that does what networks and object stores do: it loses answers
of requests that were done, throttles, sends requests twice, cuts connections. One process does a little of
everything and never gives up; then the table meets the model, without the proxy.
"""

from __future__ import annotations

import math
import random
import time
from collections import Counter
from dataclasses import replace
from datetime import timedelta

import weir
from tests.faults.actors import GROUPS, KEYS, SCHEMA, found_rows
from tests.faults.model import Change, Key, Model, Write
from tests.faults.proxy import Fault, Proxy, Seeded, proxied
from tests.storage.s3 import S3Endpoint
from weir.engine.context import default_context
from weir.errors import FencedError, LeaseHeldError, StorageError
from weir.write.table_writer import TableWriter

__all__ = ["FailingStore"]

_SHARE = 0.08
_STEPS = 15


class FailingStore:
    """Tables on an object store that fails now and then.

    Parameters
    ----------
    endpoint : S3Endpoint
        The store itself.
    seed : int
        Chooses what is done and what fails.
    """

    def __init__(self, endpoint: S3Endpoint, seed: int) -> None:
        self.counts: Counter[str] = Counter()
        self._endpoint = endpoint
        self._dice = random.Random(seed)

    def play(self) -> None:
        """Play a round.

        Raises
        ------
        AssertionError
            If a promise was broken.
        """
        seed = self._dice.randrange(2**31)
        try:
            self._play(seed)
        except AssertionError as broken:
            raise AssertionError(f"seed {seed}: {broken}") from broken
        self.counts["rounds"] += 1

    def _play(self, seed: int) -> None:
        uri, options = self._endpoint.new_uri(), self._endpoint.options
        made = weir.create(
            uri,
            SCHEMA,
            primary_key=["group", "number"],
            shard_by=weir.identity("group"),
            storage_options=options,
        )
        made.changes(consumer="model").commit()
        with proxied(self._endpoint, Seeded(seed, _SHARE)) as proxy:
            story = _Story(seed, _opened(uri, proxy))
            for _ in range(_STEPS):
                story.step()
            self._count(story, proxy)
        # Now that all is well again: what is there, for somebody who has not been there before.
        default_context().cache.clear()
        table = weir.open(uri, storage_options=options)
        model = Model()
        model.follow(story.writes, _changes_of(table))
        keys = [{"group": one, "number": two} for one, two in sorted(KEYS)]
        assert found_rows(table.scan().to_table()) == model.rows, "the scan is not what the log says"
        assert found_rows(table.get(keys)) == model.rows, "the lookups are not what the log says"
        with table.writer(takeover=True) as writer:
            for group in range(GROUPS):
                writer.delete([{"group": group, "number": 99}])
        table.maintenance.merge()
        merged = found_rows(table.scan(consistency="snapshot").to_table())
        assert merged == model.rows, "the base table is not what the log says"
        self.counts["writes in doubt that had landed"] += model.landed_in_doubt

    def _count(self, story: _Story, proxy: Proxy) -> None:
        for (_, fault), number in proxy.seen.items():
            self.counts["requests" if fault is Fault.NONE else f"requests: {fault.name}"] += number
        acknowledged = sum(write.position is not None for write in story.writes)
        self.counts["writes acknowledged"] += acknowledged
        self.counts["writes refused or in doubt"] += len(story.writes) - acknowledged
        for name, number in story.failures.items():
            self.counts[f"steps that failed: {name}"] += number


class _Story:
    """One process that does a little of everything, and never gives up."""

    def __init__(self, seed: int, table: weir.Table) -> None:
        self.dice = random.Random(seed)
        self.table = table
        self.writes: list[Write] = []
        self.failures: Counter[str] = Counter()
        self._writer: TableWriter | None = None
        self._sessions = 0

    def step(self) -> None:
        choice = self.dice.random()
        try:
            if choice < 0.6:
                self._write()
            elif choice < 0.7:
                self._open().flush()
            elif choice < 0.8:
                self.table.maintenance.merge()
            elif choice < 0.85:
                self.table.maintenance.collect_garbage(horizon=timedelta(0))
            elif choice < 0.9:
                self._close()
            else:
                default_context().cache.clear()
                found_rows(self.table.scan().to_table())
        except (StorageError, FencedError) as error:
            self.failures[type(error).__name__] += 1
            if isinstance(error, FencedError):
                # Nobody else writes, and no lease of a test runs out.
                raise AssertionError("fenced by itself") from error

    def _open(self) -> TableWriter:
        if self._writer is None:
            self._sessions += 1
            # The lease of the writer before may not have been released: the store failed.
            self._writer = self.table.writer(takeover=True, max_memtable_rows=6)
        return self._writer

    def _close(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()

    def _write(self) -> None:
        writer = self._open()
        group = self.dice.randrange(GROUPS)
        numbers = sorted(number for one, number in KEYS if one == group)
        keys: list[Key] = [(group, number) for number in self.dice.sample(numbers, self.dice.randrange(1, 5))]
        is_delete = self.dice.random() < 0.2
        if is_delete:
            # A tombstone does not say whose it is; a row that never was, deleted along with others, does.
            keys.append((group, 1000 + len(self.writes)))
        write = Write(
            name=f"{self._sessions}-{len(self.writes)}",
            writer=str(self._sessions),
            keys=frozenset(keys),
            is_delete=is_delete,
            began=time.monotonic(),
            ended=math.inf,
        )
        try:
            if write.is_delete:
                receipt = writer.delete([{"group": one, "number": number} for one, number in keys])
            else:
                rows = [{"group": one, "number": number, "value": write.name} for one, number in keys]
                receipt = writer.upsert(rows)
        except StorageError:
            self.writes.append(write)
            raise
        except (FencedError, LeaseHeldError):
            self.writes.append(replace(write, ended=time.monotonic(), is_refused=True))
            raise
        (position,) = receipt.positions.values()
        self.writes.append(replace(write, ended=time.monotonic(), position=position))


def _changes_of(table: weir.Table) -> list[Change]:
    changes = []
    for batch in table.changes(consumer="model"):
        for row in batch.rows.to_pylist():
            value = row["value"] if row["_op"] == "upsert" else None
            key = (row["group"], row["number"])
            changes.append(Change(row["group"], row["_position"], row["_epoch"], key, value))
    return changes


def _opened(uri: str, proxy: Proxy) -> weir.Table:
    for _ in range(20):
        try:
            return weir.open(uri, storage_options=proxy.options)
        except StorageError:
            continue
    raise AssertionError("the store never answered")
