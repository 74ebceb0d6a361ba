"""A shard on a real directory, and a store whose answers can be lost."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from traceback import format_stack
from uuid import UUID

import pyarrow as pa
import pytest

from weir.config import WriterOptions
from weir.format.wal_entry import wal_schema
from weir.storage.interface import ObjectStore
from weir.storage.local import LocalStore
from weir.table import kept_writer
from weir.write.lease.heartbeat import Heartbeat
from weir.write.lease.lease_owner import new_lease_owner
from weir.write.lease.lease_terms import LeaseTerms
from weir.write.lease.released_leases import ReleasedLeases
from weir.write.memtable.backpressure import MergeBacklog, UnflushedBytes
from weir.write.shard_context import ShardContext
from weir.write.shard_writer import ShardWriter

SHARD = UUID("11111111-2222-4333-8444-555555555555")
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("value", pa.string())])
WAL_SCHEMA = wal_schema(SCHEMA)

OpenWriter = Callable[..., ShardWriter]


def rows(*pairs: tuple[int, str | None]) -> pa.RecordBatch:
    """Return a batch of upserts (a value) and tombstones (None)."""
    return pa.record_batch(
        [
            pa.array([key for key, _ in pairs], pa.int64()),
            pa.array([value for _, value in pairs], pa.string()),
            pa.array([value is None for _, value in pairs], pa.bool_()),
        ],
        schema=WAL_SCHEMA,
    )


def wait_until(condition: Callable[[], bool]) -> None:
    """Return when something has happened that another thread does.

    It is asked for less and less often: asking takes from the time of the thread that is waited for.
    """
    deadline, pause = time.monotonic() + 180, 0.002
    while not condition():
        if time.monotonic() >= deadline:
            stacks = ["".join(format_stack(frame)[-4:]) for frame in sys._current_frames().values()]
            pytest.fail("nothing happened; the threads are here:\n" + "\n".join(stacks))
        time.sleep(pause)
        pause = min(1.2 * pause, 0.1)


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "table", fsync=False)


@pytest.fixture
def open_writer() -> Iterator[OpenWriter]:
    # Writers that tests before this one kept would end in the middle of it, and meet its failpoints.
    for kept in kept_writer._living.all():
        kept.let_go()
    with ThreadPoolExecutor(2) as flusher:
        opened: list[ShardWriter] = []

        def open_one(
            store: ObjectStore,
            namespace: str = "",
            *,
            lease_terms: LeaseTerms | None = None,
            heartbeat: Heartbeat | None = None,
            unflushed: UnflushedBytes | None = None,
            backlog: MergeBacklog | None = None,
            **options: object,
        ) -> ShardWriter:
            context = ShardContext.of(
                store,
                lambda: WAL_SCHEMA,
                ("id",),
                namespace=store.uri + namespace,
                merge_engine=None,
                options=WriterOptions.from_keywords(**options),
                flusher=flusher,
                lease_terms=lease_terms,
                heartbeat=heartbeat,
                unflushed=unflushed,
                backlog=backlog,
            )
            writer = ShardWriter(context, SHARD)
            opened.append(writer)
            return writer

        yield open_one
        for writer in opened:
            writer.abandon()


@contextmanager
def another_machine() -> Iterator[LeaseTerms]:
    """Stand in for a process elsewhere for the length of a block: yields the terms of its writers."""
    holder = replace(new_lease_owner(), host="elsewhere", system="system of elsewhere")
    with pytest.MonkeyPatch.context() as patch:
        others = ReleasedLeases()
        patch.setattr("weir.write.lease.lease.released_leases", others)
        patch.setattr("weir.write.lease.lease_terms.released_leases", others)
        yield LeaseTerms(holder=holder)


def positions(entries: Sequence[object]) -> list[int]:
    return [entry.position for entry in entries]  # type: ignore[attr-defined]
