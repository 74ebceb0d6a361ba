"""A writer that pauses: others may have its shards, and it goes on where nobody did."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

import weir
from weir.errors import FencedError, LeaseHeldError, WriterClosedError
from weir.format.wal_entry import wal_schema
from weir.log.wal import Wal
from weir.storage.counting import CountingStore
from weir.write.claim import claim_shard
from weir.write.fencing import AppendCheck

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("value", pa.string())])


@pytest.fixture
def table(tmp_path: Path) -> weir.Table:
    return weir.create(
        tmp_path / "table", SCHEMA, primary_key="id", shard_by=weir.bucket("id", 3), fsync=False
    )


def rows(ids: range, value: str) -> pa.Table:
    return pa.table({"id": list(ids), "value": [value] * len(ids)}, SCHEMA)


def contents(table: weir.Table) -> dict[int, str]:
    found = weir.open(table.uri).scan().to_table()
    return dict(zip(found.column("id").to_pylist(), found.column("value").to_pylist(), strict=True))


def test_going_on_costs_two_round_trips_for_each_shard(table: weir.Table) -> None:
    store = CountingStore(table.internals.store)
    with weir.Table(store, table.internals.base).writer(flush_on_close=False) as writer:
        for number in range(4):
            store.reset()
            assert len(writer.upsert(rows(range(30), str(number))).positions) == 3
            writer.pause()
            if number > 1:
                assert dict(store.counts) == {"compare_and_swap": 6, "put_if_absent": 3}
            assert {shard.lease for shard in table.status().shards} == {"released"}
        assert set(writer.epochs.values()) == {1}
        store.reset()
    assert not store.counts
    assert contents(table) == dict.fromkeys(range(30), "3")


def test_others_claim_while_a_write_after_a_brief_pause_is_under_way(
    table: weir.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The write has looked at the leases by then; the fences of the claims stop it."""
    before, turn, due = AppendCheck.before, threading.Lock(), [1]

    def looked(check: AppendCheck, position: int, *, epoch: int, in_doubt: bool) -> None:
        before(check, position, epoch=epoch, in_doubt=in_doubt)
        if epoch > 1:
            return
        with turn:
            if due:
                due.clear()
                with weir.Engine().open(table.uri).writer() as second:
                    second.upsert(rows(range(30), "second"))

    late = rows(range(30), "late"), weir.Source("orders", 2)
    with table.writer(flush_on_close=False) as first:
        first.upsert(rows(range(30), "first"), source=weir.Source("orders", 1))
        first.pause(brief=True)
        monkeypatch.setattr(AppendCheck, "before", looked)
        with pytest.raises(FencedError, match="claimed with epoch 2"):
            first.upsert(late[0], source=late[1])
    assert contents(table) == dict.fromkeys(range(30), "second")
    with table.writer() as again:
        assert len(again.upsert(late[0], source=late[1]).positions) == 3
    assert contents(table) == dict.fromkeys(range(30), "late")
    assert not table.maintenance.verify().findings


def test_others_write_meanwhile(table: weir.Table) -> None:
    with table.writer() as first:
        first.upsert(rows(range(20), "first"))
        with pytest.raises(LeaseHeldError), weir.Engine().open(table.uri).writer() as second:
            second.upsert(rows(range(10, 30), "second"))
        first.pause()
        with weir.open(table.uri).writer() as second:
            second.upsert(rows(range(10, 30), "second"))
            with pytest.raises(FencedError, match="taken over by another writer of this process"):
                first.upsert(rows(range(20), "late"))
        with pytest.raises(FencedError):
            first.upsert(rows(range(20), "late"))
    assert contents(table) == dict.fromkeys(range(10), "first") | dict.fromkeys(range(10, 30), "second")
    assert not table.maintenance.verify().findings


def test_whoever_claims_without_a_lease_is_noticed_too(table: weir.Table) -> None:
    with table.writer(flush_on_close=False) as writer:
        writer.upsert([{"id": 1, "value": "a"}])
        writer.pause()
        (shard,) = writer.epochs
        wal = Wal(table.internals.store, shard, namespace="library")
        claim_shard(table.internals.store, wal, shard, wal_schema(SCHEMA))
        with pytest.raises(FencedError, match="claimed with epoch 2"):
            writer.upsert([{"id": 1, "value": "b"}])
    assert contents(table) == {1: "a"}


def test_a_pause_waits_for_flushes_and_a_flush_ends_it(table: weir.Table) -> None:
    with table.writer(max_memtable_entries=2, flush_on_close=False) as writer:
        for number in range(5):
            writer.upsert(rows(range(30), str(number)))
            writer.pause()
            flushed = [shard.unmerged_generations for shard in table.status().shards]
            assert flushed == [(number + 1) // 2] * 3
        writer.flush()
        assert {shard.lease for shard in table.status().shards} == {"held"}
        assert {shard.unmerged_generations for shard in table.status().shards} == {3}
        table.maintenance.merge()
        writer.pause()
        table.maintenance.collect_garbage()
        writer.upsert(rows(range(15), "after"))
        writer.pause()
    assert {shard.lease for shard in table.status().shards} == {"released"}
    assert contents(table) == dict.fromkeys(range(15), "after") | dict.fromkeys(range(15, 30), "4")
    with pytest.raises(WriterClosedError):
        writer.pause()


def test_a_writer_that_closes_in_a_pause_flushes(table: weir.Table) -> None:
    with table.writer() as writer:
        writer.upsert(rows(range(30), "a"))
        writer.pause()
    assert {(shard.unflushed_rows, shard.lease) for shard in table.status().shards} == {(0, "released")}
    with table.writer() as writer:
        writer.upsert(rows(range(30), "b"))
        writer.pause()
        with table.writer() as other:
            other.upsert(rows(range(30), "c"))
        with pytest.raises(FencedError):
            writer.close()
    assert contents(table) == dict.fromkeys(range(30), "c")


def test_pauses_beside_writes(table: weir.Table) -> None:
    """Writes that are under way when a pause begins go through, before it or after it."""
    done = threading.Event()
    with table.writer(flush_on_close=False, max_memtable_entries=20) as writer:

        def write(thread: int) -> None:
            for number in range(40):
                writer.upsert(rows(range(thread * 10, thread * 10 + 10), str(number)))

        def pause() -> int:
            pauses = 0
            while not done.is_set():
                writer.pause()
                pauses += 1
            return pauses

        with ThreadPoolExecutor(4) as pool:
            pausing = pool.submit(pause)
            try:
                for writing in [pool.submit(write, thread) for thread in range(3)]:
                    writing.result()
            finally:
                done.set()
            assert pausing.result() > 3
        assert set(writer.epochs.values()) == {1}
    assert contents(table) == dict.fromkeys(range(30), "39")
    assert not table.maintenance.verify().findings
