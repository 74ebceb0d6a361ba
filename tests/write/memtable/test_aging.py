"""MemTables are flushed by age, whoever writes how little."""

from __future__ import annotations

import gc
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest
from tests.faults.proxy import Fault, Request, proxied
from tests.storage.s3 import S3Endpoint, s3_endpoint
from tests.write.conftest import wait_until

import weir
from weir.engine import failpoint
from weir.errors import OptionError
from weir.write.memtable.aging import FlushByAge

__all__ = ["s3_endpoint"]

SCHEMA = pa.schema([("id", pa.int64()), ("n", pa.int64())])


@pytest.fixture
def table(tmp_path: Path) -> weir.Table:
    return weir.create(tmp_path / "table", SCHEMA, primary_key="id", fsync=False, max_memtable_age=0.2)


def unflushed(table: weir.Table) -> int:
    return table.status().unflushed_rows


def test_few_rows_are_flushed_by_age_as_the_table_says(table: weir.Table) -> None:
    with table.writer() as writer:
        for key in range(3):
            writer.upsert([{"id": key}])
            assert unflushed(table) in (0, 1)
            wait_until(lambda: unflushed(table) == 0)
        assert sum(shard.unmerged_rows for shard in table.status().shards) == 3


def test_what_is_replayed_ages_too(table: weir.Table) -> None:
    with table.writer(max_memtable_age=600) as writer:
        writer.upsert([{"id": 1}])
        time.sleep(0.5)
        assert unflushed(table) == 1
        writer._shards.abandon()
    with table.writer() as writer:
        writer.upsert([{"id": 2}])
        wait_until(lambda: unflushed(table) == 0)


def test_a_flush_that_fails_is_tried_again(table: weir.Table) -> None:
    with table.writer() as writer:
        with failpoint.armed("flush.before_manifest", "raise@every"):
            writer.upsert([{"id": 1}])
            time.sleep(0.6)
            assert unflushed(table) == 1
        wait_until(lambda: unflushed(table) == 0)


def test_flushes_do_not_wait_for_a_store_that_does_not_answer(
    tmp_path: Path, s3_endpoint: S3Endpoint
) -> None:
    answers = threading.Event()
    answers.set()

    def when_it_answers(_: Request) -> Fault:
        answers.wait()
        return Fault.NONE

    with weir.Engine(threads=1) as engine, proxied(s3_endpoint, when_it_answers) as proxy:
        away = engine.create(s3_endpoint.new_uri(), SCHEMA, primary_key="id", storage_options=proxy.options)
        here = engine.create(tmp_path / "here", SCHEMA, primary_key="id", max_memtable_age=0.2, fsync=False)
        with away.writer() as elsewhere, here.writer() as writer:
            elsewhere.upsert([{"id": 1}])
            answers.clear()
            try:
                waits = threading.Thread(target=elsewhere.flush)
                waits.start()
                writer.upsert([{"id": 1}])
                wait_until(lambda: unflushed(here) == 0)
                assert waits.is_alive()
            finally:
                answers.set()
            waits.join()
        assert unflushed(away) == 0


def test_a_writer_that_is_paused_flushes_and_is_paused_again(table: weir.Table) -> None:
    with table.writer() as writer:
        writer.upsert([{"id": 1}])
        writer.pause()
        wait_until(lambda: unflushed(table) == 0)
        (shard,) = writer._shards.writers
        wait_until(lambda: shard.lease.is_paused)
        with table.writer() as other:
            other.upsert([{"id": 2}])


def test_a_paused_writer_is_flushed_by_one_thread_while_the_store_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = weir.create(tmp_path / "table", SCHEMA, primary_key="id", fsync=False, max_memtable_age=600.0)
    answers = threading.Event()
    with table.writer() as writer:
        (position,) = writer.upsert([{"id": 1}]).positions.values()
        writer.pause()
        (shard,) = writer._shards.writers
        flush, flushes = shard.flush, list[int]()

        def late() -> None:
            flushes.append(1)
            answers.wait(30)
            flush()

        monkeypatch.setattr(shard, "flush", late)
        try:
            for _ in range(3):
                assert not shard.flush_aged(position)
        finally:
            answers.set()
        wait_until(lambda: unflushed(table) == 0)
        assert len(flushes) == 1
        monkeypatch.undo()


def test_what_is_dropped_is_forgotten_and_the_thread_ends() -> None:
    aging = FlushByAge()

    class Writer:
        def flush_aged(self, position: int) -> bool:
            raise AssertionError("it was dropped")

    aging.watch(Writer(), 1, 0.05)
    gc.collect()
    wait_until(lambda: not aging._is_running)
    done: list[int] = []

    class Slow:
        def flush_aged(self, position: int) -> bool:
            done.append(position)
            return True

    slow = Slow()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda number: aging.watch(slow, number, 0.01 * (number % 3)), range(20)))
    wait_until(lambda: not aging._is_running)
    assert sorted(done) == list(range(20))


def test_status_warns_of_rows_that_wait_for_long(table: weir.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    with table.writer(max_memtable_age=600) as writer:
        writer.upsert([{"id": 1}])
        (shard,) = table.status().shards
        assert 0 < shard.unflushed_seconds == shard.lag_seconds < 300
        assert table.status().warnings == ()
        monkeypatch.setattr("weir.maintenance.status.OLD_UNFLUSHED_SECONDS", 0.0)
        (warning,) = table.status().warnings
        assert "1 rows that wait for a flush" in warning
        writer.flush()
        assert table.status().warnings == ()


@pytest.mark.parametrize("age", [0, -1, "long", True])
def test_an_age_that_is_none_is_refused(tmp_path: Path, age: object) -> None:
    with pytest.raises(OptionError, match="max_memtable_age"):
        weir.create(tmp_path / "t", SCHEMA, primary_key="id", max_memtable_age=age)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="max_memtable_age"):
        weir.create(tmp_path / "u", SCHEMA, primary_key="id").writer(max_memtable_age=age)
