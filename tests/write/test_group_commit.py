"""Concurrent writes share WAL entries, keep their order, and fail together."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest

from tests.write.conftest import SHARD, WAL_SCHEMA, OpenWriter, rows, wait_until
from weir.format import layout
from weir.format.source import SourceMarks
from weir.format.wal_entry import WalEntry
from weir.log.manifest_store import read_latest_manifest
from weir.log.wal import Wal
from weir.storage.interface import Bytes
from weir.storage.local import LocalStore
from weir.write.group_commit import GroupCommit, PendingWrite
from weir.write.memtable.memtable_set import MemTables
from weir.write.replay import replayed_memtables


class Slow(LocalStore):
    def put_if_absent(self, path: str, data: Bytes | Sequence[Bytes]) -> None:
        time.sleep(0.005)
        super().put_if_absent(path, data)


def test_many_threads_need_few_entries(store: LocalStore, open_writer: OpenWriter) -> None:
    writer = open_writer(Slow(store.uri, fsync=False))
    threads, writes = 32, 10

    def work(thread: int) -> list[int]:
        return [writer.submit(rows((thread * 1000 + n, "x"))).result() for n in range(writes)]

    with ThreadPoolExecutor(threads) as pool:
        found = list(pool.map(work, range(threads)))
    for positions in found:
        assert positions == sorted(positions)
        assert len(set(positions)) == writes
    entries = len(store.list(layout.wal_directory(SHARD))) - 1
    assert writer.unflushed_rows == threads * writes
    # One thread alone would need as many entries as writes.
    assert entries <= threads * writes / 4


def test_futures_keep_the_order_of_calls(store: LocalStore, open_writer: OpenWriter) -> None:
    writer = open_writer(store)
    with ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(writer.submit(rows((1, str(n)))).result) for n in range(50)]
        positions = [future.result() for future in futures]
    assert positions == sorted(positions)
    assert newest_values(store) == {1: "49"}


def newest_values(store: LocalStore) -> dict[int, str]:
    """Return what the next writer of the shard would replay."""
    manifest = read_latest_manifest(store, SHARD)
    assert manifest is not None
    tail = Wal(store, SHARD, namespace=f"{store.uri} read anew").read_tail(manifest)
    newest = replayed_memtables(1, WAL_SCHEMA, tail, SourceMarks())[-1].newest(("id",))
    return dict(zip(newest.column("id").to_pylist(), newest.column("value").to_pylist(), strict=True))


def test_an_interruption_right_after_a_write_does_not_fence_its_writer(
    store: LocalStore, open_writer: OpenWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = open_writer(store)
    append = MemTables.append

    def is_interrupted(memtables: MemTables, position: int, entry: WalEntry, queued: int) -> None:
        monkeypatch.undo()
        append(memtables, position, entry, queued)
        raise KeyboardInterrupt

    monkeypatch.setattr(MemTables, "append", is_interrupted)
    with pytest.raises(KeyboardInterrupt):
        writer.submit(rows((1, "interrupted"))).result()
    writer.submit(rows((2, "next"))).result()
    assert newest_values(store) == {1: "interrupted", 2: "next"}
    writer.flush()
    assert writer.unflushed_rows == 0


def queued(commits: GroupCommit, batch: pa.RecordBatch) -> PendingWrite:
    pending = PendingWrite(commits, batch, batch.nbytes)
    pending.enqueue()
    return pending


def test_a_failed_group_fails_all_its_writes() -> None:
    def fail(group: Sequence[PendingWrite]) -> int:
        raise OSError(f"{len(group)} writes")

    commits = GroupCommit(fail, max_bytes=1000, max_delay=0)
    pending = [queued(commits, rows((n, "x"))) for n in range(3)]
    for one in pending:
        with pytest.raises(OSError, match="3 writes"):
            one.result()


def test_a_group_ends_at_the_byte_limit() -> None:
    sizes: list[int] = []

    def write(group: Sequence[PendingWrite]) -> int:
        sizes.append(len(group))
        return len(sizes)

    batch = rows((1, "x"))
    commits = GroupCommit(write, max_bytes=2 * batch.nbytes, max_delay=0)
    pending = [queued(commits, batch) for _ in range(5)]
    assert [one.result() for one in pending] == [1, 1, 2, 2, 3]
    assert sizes == [2, 2, 1]


def test_delay_gathers_writes_and_the_byte_limit_ends_it_early() -> None:
    batch = rows((1, "x"))
    groups: list[int] = []

    def write(group: Sequence[PendingWrite]) -> int:
        groups.append(len(group))
        return len(groups)

    commits = GroupCommit(write, max_bytes=3 * batch.nbytes, max_delay=30.0)
    with ThreadPoolExecutor(3) as pool:
        barrier = threading.Barrier(3)

        def one() -> int:
            barrier.wait()
            return queued(commits, batch).result()

        futures = [pool.submit(one) for _ in range(3)]
        # Without the byte limit this would take the whole delay.
        assert [future.result(timeout=20) for future in futures] == [1, 1, 1]
    assert groups == [3]


def test_a_write_that_comes_wakes_nobody_who_waits_for_another() -> None:
    commits = GroupCommit(lambda group: 1, max_bytes=10**9, max_delay=1.0)
    first = queued(commits, rows((0, "x")))
    asked = 0

    def is_done() -> bool:
        nonlocal asked
        asked += 1
        return first.settled

    leader = threading.Thread(target=commits.settle, args=[first])
    leader.start()
    wait_until(lambda: commits._leader is not None)
    waiting = threading.Thread(target=commits._lead_or_wait, args=[is_done])
    waiting.start()
    wait_until(lambda: asked > 0)
    for number in range(100):
        queued(commits, rows((number, "x")))
        # For whoever is woken to look.
        time.sleep(0.002)
    leader.join()
    waiting.join()
    assert asked <= 5
