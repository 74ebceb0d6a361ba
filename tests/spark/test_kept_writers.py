"""Writers that are kept between the micro-batches of a query, called as Spark calls them."""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest
from tests.spark.sink_kit import contents, create, marks
from tests.spark.test_sink import batch, task

import weir
from weir.engine import failpoint
from weir.engine.failpoint import FailpointError
from weir.errors import LeaseHeldError
from weir.spark.kept_writers import KeptWriters
from weir.spark.sink import commit_batch_of_stream
from weir.spark.staging import TaskResult
from weir.spark.write_options import WriteOptions
from weir.storage.counting import CountingStore

OTHER_QUERY = "00000000-93a0-4c3b-9b56-0f1f6a3f2a11"


def commit(kept: KeptWriters, table: weir.Table, batch_id: int, *results: TaskResult, **options: str) -> None:
    parsed = WriteOptions.parse({"path": table.uri, **options})
    commit_batch_of_stream(table, results, batch_id, parsed, kept=kept)


def epochs(table: weir.Table) -> dict[UUID, int]:
    return {shard.shard_id: shard.epoch for shard in table.status().shards}


def leases(table: weir.Table) -> set[str]:
    return {shard.lease for shard in table.status().shards}


def test_a_micro_batch_costs_two_round_trips_for_each_shard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weir.write.lease.lease._RECORDED_EVERY_SECONDS", 1000.0)
    made = create(tmp_path, shards=3)
    store = CountingStore(made.internals.store)
    kept = KeptWriters()
    for number in range(4):
        # Opened anew for every commit, as Spark has it.
        table = weir.Table(store, weir.open(made.uri).internals.base)
        store.reset()
        commit(kept, table, number, task(made, batch(*range(20), value=str(number))))
        if number > 1:
            assert dict(store.counts) == {
                "get": 1,
                # the query's record, whose version this store asks for before and after it; leases
                "head": 5,
                # the query's record
                "compare_and_swap": 1,
                # rows
                "put_if_absent": 3,
            }
        assert leases(made) == {"released"}
    assert set(epochs(made).values()) == {1}
    commit(kept, made, 3, task(made, batch(*range(20), value="repeated")))
    assert contents(made) == dict.fromkeys(range(20), "3")
    assert set(marks(made).values()) == {1}


def test_other_writers_between_micro_batches(tmp_path: Path) -> None:
    table = create(tmp_path, shards=2)
    kept = KeptWriters()
    model: dict[int, str | None] = {}
    for number in range(4):
        commit(kept, table, number, task(table, batch(*range(number, number + 9), value=str(number))))
        model |= dict.fromkeys(range(number, number + 9), str(number))
        with weir.open(table.uri).writer() as writer:
            writer.upsert([{"id": number, "value": "by hand"}])
        model |= {number: "by hand"}
    with weir.open(table.uri).writer() as writer:
        writer.upsert([{"id": n, "value": "held"} for n in range(20)])
        with pytest.raises(LeaseHeldError):
            commit(kept, table, 4, task(table, batch(1, 2, value="too early")), lease_wait="0")
    commit(kept, table, 4, task(table, batch(1, 2, value="in turn")))
    assert contents(table) == model | dict.fromkeys(range(20), "held") | {1: "in turn", 2: "in turn"}
    assert leases(table) == {"released"}
    assert not table.maintenance.verify().findings


def test_two_queries_write_to_one_table_at_once(tmp_path: Path) -> None:
    table = create(tmp_path, shards=2)
    batches = 6

    def query(name: str, first: int) -> None:
        kept = KeptWriters()
        for number in range(batches):
            rows = task(table, batch(*range(first, first + 20), value=f"{name} {number}"))
            commit(kept, table, number, replace(rows, query_id=name))

    with ThreadPoolExecutor(2) as pool:
        for running in [pool.submit(query, "one", 0), pool.submit(query, "other", 100)]:
            running.result()
    last = batches - 1
    assert contents(table) == dict.fromkeys(range(20), f"one {last}") | dict.fromkeys(
        range(100, 120), f"other {last}"
    )
    assert set(marks(table).values()) == {1}
    assert leases(table) == {"released"}


def test_a_commit_that_is_fenced_half_way_is_made_once(tmp_path: Path) -> None:
    """The kept writer finds one of two shards taken: the other one has its rows by then, or not."""
    table = create(tmp_path, shards=2)
    kept = KeptWriters()
    for number in range(0, 6, 2):
        commit(kept, table, number, task(table, batch(*range(20), value=str(number))))
        with weir.open(table.uri).writer() as writer:
            writer.upsert([{"id": number, "value": "by hand"}])
        commit(kept, table, number + 1, task(table, batch(*range(20), value=str(number + 1))))
        assert contents(table) == dict.fromkeys(range(20), str(number + 1))
    assert set(marks(table).values()) == {1}


def test_a_query_that_goes_on_in_another_process(tmp_path: Path) -> None:
    table = create(tmp_path)
    here, there = KeptWriters(), KeptWriters()
    for number in range(6):
        commit(
            there if number in (2, 3) else here, table, number, task(table, batch(1, 2, 3, value=str(number)))
        )
        # As after a crash that Spark's checkpoint does not know of the commit before.
        commit(here, table, number, task(table, batch(1, 2, 3, value="repeated")))
    assert contents(table) == dict.fromkeys((1, 2, 3), "5")
    assert set(marks(table).values()) == {1}


def test_an_error_lets_go_of_the_writer(tmp_path: Path) -> None:
    table = create(tmp_path)
    kept = KeptWriters()
    commit(kept, table, 0, task(table, batch(*range(20), value="0")))
    before = epochs(table)
    with failpoint.armed("wal.before_append", "raise@2"), pytest.raises(FailpointError):
        commit(kept, table, 1, task(table, batch(*range(20), value="1")))
    assert leases(table) == {"released"}
    commit(kept, table, 1, task(table, batch(*range(20), value="1 again")))
    assert {shard: epoch - before[shard] for shard, epoch in epochs(table).items()} == dict.fromkeys(
        before, 1
    )
    found = contents(table)
    assert set(found.values()) == {"1", "1 again"}
    assert set(marks(table).values()) == {1}


def test_a_table_that_was_made_anew_or_changed(tmp_path: Path) -> None:
    kept = KeptWriters()
    for value in "ab":
        table = create(tmp_path)
        commit(kept, table, 0, task(table, batch(*range(9), value=value)))
        commit(kept, table, 1, task(table, batch(*range(3), value=f"{value} again")))
        assert contents(table) == dict.fromkeys(range(9), value) | dict.fromkeys(range(3), f"{value} again")
        assert not table.maintenance.verify().findings
        if value == "a":
            shutil.rmtree(table.uri)
    # Other options are those of another writer.
    commit(kept, table, 2, task(table, batch(1, value="flushed")), flush="true")
    assert sorted(shard.unmerged_generations for shard in table.status().shards) == [0, 0, 1]
    commit(kept, table, 3, task(table, batch(1, value="flushed again")), flush="true")
    assert sorted(shard.unmerged_generations for shard in table.status().shards) == [0, 0, 2]
    assert contents(table)[1] == "flushed again"


def test_large_rows_and_small_ones_in_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weir.spark.sink._MAX_LOG_BYTES", 2_000)
    table = create(tmp_path, shards=2)
    kept = KeptWriters()
    model: dict[int, str | None] = {}
    for number in range(8):
        value = str(number) * (1 if number % 3 else 1_000)
        commit(kept, table, number, task(table, batch(*range(number, number + 20), value=value)))
        model |= dict.fromkeys(range(number, number + 20), value)
        assert contents(table) == model
        if number == 4:
            table.maintenance.merge()
            table.maintenance.collect_garbage()
    assert set(epochs(table).values()) == {1}
    assert not table.maintenance.verify().findings


def test_the_tail_of_the_log_stays_bounded(tmp_path: Path) -> None:
    table = create(tmp_path, shards=1)
    kept = KeptWriters()
    for number in range(30):
        commit(
            kept, table, number, task(table, batch(number % 7, value=str(number))), max_memtable_entries="9"
        )
        (shard,) = table.status().shards
        assert shard.unflushed_entries <= 9
    assert contents(table) == {n % 7: str(n) for n in range(23, 30)}


def test_only_so_many_are_kept(tmp_path: Path) -> None:
    kept = KeptWriters(most=2)
    tables = [create(tmp_path / str(number), shards=1) for number in range(3)]
    for number in range(2):
        for query, table in enumerate(tables):
            result = task(table, batch(1, value=str(number)))
            result = TaskResult(result.pieces, f"{query}{OTHER_QUERY[1:]}")
            commit(kept, table, number, result)
    assert [set(epochs(table).values()) for table in tables] == [{2}, {2}, {2}]
    commit(kept, tables[2], 2, TaskResult(task(tables[2], batch(1, value="2")).pieces, f"2{OTHER_QUERY[1:]}"))
    assert set(epochs(tables[2]).values()) == {2}
    for table in tables:
        assert leases(table) == {"released"}
