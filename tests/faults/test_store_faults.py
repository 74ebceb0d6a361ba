"""An object store that fails, stumbles and repeats itself, by a seed; the promises hold all the same."""

from __future__ import annotations

import math
import random
import time
from collections import Counter
from dataclasses import replace
from datetime import timedelta

import pytest

import weir
from tests.faults.actors import GROUPS, KEYS, SCHEMA, found_rows
from tests.faults.model import Change, Key, Model, Write
from tests.faults.proxy import Proxy, Seeded, proxied
from tests.storage.s3 import S3Endpoint, s3_endpoint
from weir.engine.context import default_context
from weir.errors import FencedError, LeaseHeldError, StorageError
from weir.write.table_writer import TableWriter

__all__ = ["s3_endpoint"]

SHARE = 0.08
STEPS = 15


class Story:
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


def changes_of(table: weir.Table) -> list[Change]:
    changes = []
    for batch in table.changes(consumer="model"):
        for row in batch.rows.to_pylist():
            value = row["value"] if row["_op"] == "upsert" else None
            key = (row["group"], row["number"])
            changes.append(Change(row["group"], row["_position"], row["_epoch"], key, value))
    return changes


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long)])
def test_a_store_that_stumbles(s3_endpoint: S3Endpoint, seed: int) -> None:
    uri = s3_endpoint.new_uri()
    made = weir.create(
        uri,
        SCHEMA,
        primary_key=["group", "number"],
        shard_by=weir.identity("group"),
        storage_options=s3_endpoint.options,
    )
    made.changes(consumer="model").commit()
    with proxied(s3_endpoint, Seeded(seed, SHARE)) as proxy:
        story = Story(seed, opened(uri, proxy))
        for _ in range(STEPS):
            story.step()
        happened = {fault for _, fault in proxy.seen}
    assert len(happened) > 5, "next to everything that can happen has happened"
    # Now that all is well again: what is there, for somebody who has not been there before.
    default_context().cache.clear()
    table = weir.open(uri, storage_options=s3_endpoint.options)
    model = Model()
    model.follow(story.writes, changes_of(table))
    assert found_rows(table.scan().to_table()) == model.rows
    assert found_rows(table.get([{"group": one, "number": two} for one, two in sorted(KEYS)])) == model.rows
    with table.writer(takeover=True) as writer:
        for group in range(GROUPS):
            writer.delete([{"group": group, "number": 99}])
    table.maintenance.merge()
    assert found_rows(table.scan(consistency="snapshot").to_table()) == model.rows


def opened(uri: str, proxy: Proxy) -> weir.Table:
    for _ in range(20):
        try:
            return weir.open(uri, storage_options=proxy.options)
        except StorageError:
            continue
    raise AssertionError("the store never answered")
