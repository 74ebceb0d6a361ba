"""Writers of one table in one process share the shards that one of them has claimed."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import weir
from weir.engine import failpoint
from weir.errors import FencedError, LeaseHeldError, OptionError, WriterClosedError
from weir.write.held_shards import HeldShards

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("n", pa.int64())])


@pytest.fixture
def table(tmp_path: Path) -> weir.Table:
    return weir.create(tmp_path / "t", SCHEMA, primary_key="id", shard_by=weir.bucket("id", 3), fsync=False)


def rows(ids: range | list[int], n: int) -> list[dict[str, int]]:
    return [{"id": one, "n": n} for one in ids]


def contents(table: weir.Table) -> dict[int, int]:
    found = weir.open(table.uri, fsync=False).scan().to_pylist()
    assert len({row["id"] for row in found}) == len(found)
    return {row["id"]: row["n"] for row in found}


def leases(table: weir.Table) -> set[str]:
    return {shard.lease for shard in table.status().shards}


def test_a_cell_that_is_run_again_writes_on(table: weir.Table) -> None:
    kept = []  # as a notebook keeps what a cell returned, or a traceback what it held
    for number in range(4):
        writer = table.writer()
        kept.append(writer)
        writer.upsert(rows(range(20), number))
        assert contents(table) == dict.fromkeys(range(20), number)
    assert {shard.epoch for shard in table.status().shards} == {1}
    for writer in kept:
        writer.close()
    assert leases(table) == {"released"}
    assert not table.maintenance.verify().findings


def test_closing_one_flushes_and_leaves_the_shards_to_the_other(table: weir.Table) -> None:
    with weir.open(table.uri, fsync=False).writer() as first:
        first.upsert(rows(range(12), 1))
        with table.writer() as second:
            second.upsert(rows(range(6), 2))
        assert table.status().unflushed_rows == 0
        assert leases(table) == {"held"}
        with pytest.raises(WriterClosedError):
            second.upsert(rows([1], 3))
        second.close()
        first.upsert(rows(range(3), 3))
    assert leases(table) == {"released"}
    assert contents(table) == dict.fromkeys(range(12), 1) | dict.fromkeys(range(6), 2) | dict.fromkeys(
        range(3), 3
    )


def test_whoever_claimed_may_be_closed_first(table: weir.Table) -> None:
    first = table.writer()
    first.upsert(rows(range(12), 1))
    with weir.open(table.uri, fsync=False).writer() as second:
        second.upsert(rows(range(12), 2))
        first.close()
        second.upsert(rows(range(6), 3), condition="n < new.n")
        assert second.delete(where="n = 2").rows == 6
        second.update("n = 3", {"n": "n + 1"})
        assert leases(table) == {"held"}
    assert leases(table) == {"released"}
    assert contents(table) == dict.fromkeys(range(6), 4)


def test_one_that_fails_leaves_the_rows_to_the_other(table: weir.Table) -> None:
    with table.writer(flush_on_close=False) as first:
        first.upsert(rows(range(9), 1))
        second = table.writer()
        second.upsert(rows(range(9), 2))
        second.__exit__(ValueError, ValueError(), None)
        assert table.status().unflushed_rows == 18
        first.upsert(rows(range(3), 3))
    assert table.status().unflushed_rows == 21
    assert contents(table) == dict.fromkeys(range(9), 2) | dict.fromkeys(range(3), 3)


def test_one_that_was_collected_does_not_hold_the_shards(table: weir.Table) -> None:
    first = table.writer()
    first.upsert(rows(range(9), 1))
    second = table.writer()
    second.upsert(rows(range(9), 2))
    del first
    gc.collect()
    assert leases(table) == {"held"}
    second.upsert(rows(range(9), 3))
    second.close()
    assert leases(table) == {"released"}
    del second
    gc.collect()
    assert not [
        held for held in table.engine.part(HeldShards)._shards.values() if held.writer.where == table.uri
    ]
    assert contents(table) == dict.fromkeys(range(9), 3)


def test_calls_of_the_table_share_with_its_writer(table: weir.Table) -> None:
    with table.writer() as writer:
        writer.upsert(rows(range(9), 1))
        table.upsert(rows([1], 2), lease_wait=0)
        weir.open(table.uri, fsync=False).delete([2], lease_wait=0)
        writer.upsert(rows([3], 3))
    assert contents(table) == dict.fromkeys([0, 4, 5, 6, 7, 8], 1) | {1: 2, 3: 3}


def test_a_takeover_fences_as_everywhere_and_is_shared_afterwards(table: weir.Table) -> None:
    first = table.writer()
    first.upsert(rows(range(9), 1))
    with table.writer(takeover=True) as taker:
        taker.upsert(rows(range(9), 2))
        with pytest.raises(FencedError):
            first.upsert(rows(range(9), 3))
        with table.writer() as other:
            other.upsert(rows([1], 4))
        taker.upsert(rows([2], 5))
        first.close()
        taker.upsert(rows([3], 6))
    assert contents(table) == dict.fromkeys(range(9), 2) | {1: 4, 2: 5, 3: 6}


def test_after_a_fence_a_new_writer_claims_anew(table: weir.Table) -> None:
    with table.writer() as first:
        first.upsert(rows(range(9), 1))
        with table.writer(holder="job") as named, pytest.raises(LeaseHeldError):
            named.upsert(rows(range(9), 2))
        with weir.Engine().open(table.uri, fsync=False).writer(takeover=True) as other:
            other.upsert(rows(range(9), 2))
        with pytest.raises(FencedError):
            first.upsert(rows(range(9), 3))
        with table.writer() as second:
            second.upsert(rows(range(9), 4))
            with pytest.raises(FencedError):
                first.upsert(rows(range(9), 5))
    assert contents(table) == dict.fromkeys(range(9), 4)


def test_whoever_decides_by_what_it_has_read_is_alone(table: weir.Table) -> None:
    values = [values for values, _ in table.internals.router.route(pa.table({"id": range(9), "n": range(9)}))]
    with table.writer() as alone, table.writer() as other:
        alone.claim(values)
        with pytest.raises(LeaseHeldError, match="another writer of this process"):
            other.upsert(rows(range(9), 1))
        with pytest.raises(LeaseHeldError):
            other.claim(values)
        alone.upsert(rows(range(9), 2))
        alone.close()
        other.upsert(rows(range(9), 3))
        with table.writer() as third:
            third.upsert(rows([1], 4))
            with pytest.raises(LeaseHeldError):
                other.claim(values)
        other.claim(values)
    assert contents(table) == dict.fromkeys(range(9), 3) | {1: 4}


def test_what_is_shared_stays_claimed_while_one_rests(table: weir.Table) -> None:
    with table.writer() as first, table.writer() as second:
        first.upsert(rows(range(9), 1))
        second.upsert(rows(range(9), 2))
        first.pause()
        assert leases(table) == {"held"}
        second.close()
        first.pause()
        assert leases(table) == {"released"}
        first.upsert(rows(range(9), 3))
    assert contents(table) == dict.fromkeys(range(9), 3)


def test_columns_that_one_adds_are_known_to_the_other(table: weir.Table) -> None:
    with table.writer() as first, weir.open(table.uri, fsync=False).writer() as second:
        first.upsert(rows(range(9), 1))
        second.upsert(rows(range(9), 2))
        weir.open(table.uri, fsync=False).alter(add=[pa.field("more", pa.string())])
        second.upsert([{"id": 1, "n": 3, "more": "x"}])
        first.upsert([{"id": 2, "n": 3, "more": "y"}])
        for number in range(10):
            (first, second)[number % 2].upsert(rows([3], number))
    found = {row["id"]: row["more"] for row in table.scan().to_pylist()}
    assert (found[1], found[2], found[3]) == ("x", "y", None)
    # Rows of both have the same columns: none of the ten had what was there before flushed.
    assert max(shard.unmerged_generations for shard in table.status().shards) <= 2


def test_many_threads_open_write_and_close_at_once(table: weir.Table) -> None:
    together = threading.Barrier(6)
    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:
            together.wait()
            for round in range(5):
                with table.writer(flush_on_close=round % 2 == 0) as writer:
                    writer.upsert(rows(range(100 * number, 100 * number + 20), round))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert not errors
    assert contents(table) == {100 * number + at: 4 for number in range(6) for at in range(20)}
    assert leases(table) == {"released"}
    assert not table.maintenance.verify().findings


def test_room_is_counted_for_whoever_has_claimed(table: weir.Table) -> None:
    with table.writer(flush_on_close=False) as first:
        first.upsert(rows(range(9), 1))
        held = first._shards.unflushed.used
        with table.writer(flush_on_close=False, max_unflushed_bytes=1) as second:
            second.upsert(rows(range(9), 2))
            assert second._shards.unflushed.used == 0
            assert first._shards.unflushed.used > held
        first.flush()
        assert first._shards.unflushed.used == 0


def test_a_claim_that_fails_leaves_the_shard_to_the_next(table: weir.Table) -> None:
    first = table.writer()
    with (
        failpoint.armed("claim.between_epoch_and_fence", "raise"),
        pytest.raises(failpoint.FailpointError),
    ):
        first.upsert(rows([1], 1))
    with table.writer() as writer:
        writer.upsert(rows([1], 2))
    assert contents(table) == {1: 2}


HOLD = """
import sys, weir
writer = weir.open(sys.argv[1], fsync=False).writer(address="http://10.0.0.7:8080")
writer.upsert([{"id": key, "n": 1} for key in range(9)])
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def another_process(table: weir.Table) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, table.uri], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


def test_the_error_elsewhere_says_who_holds_it(
    table: weir.Table, another_process: subprocess.Popen[str]
) -> None:
    with table.writer() as writer:
        with pytest.raises(LeaseHeldError) as caught:
            writer.upsert(rows([1], 2))
        said = str(caught.value)
        assert f"process {another_process.pid} on" in said
        assert "reached at http://10.0.0.7:8080" in said
        assert "held since 20" in said
        assert "table.writer(takeover=True)" in said
        # Killed, not closed: here it is seen at once.
        another_process.kill()
        another_process.wait()
        writer.upsert(rows([1], 3))
    assert contents(table) == dict.fromkeys(range(9), 1) | {1: 3}


def test_the_last_of_two_that_are_closed_at_once_may_be_faster(
    table: weir.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    with table.writer() as first:
        first.upsert(rows([1], 1))
        second = weir.open(table.uri, fsync=False).writer()
        second.upsert(rows([1], 2))
        (shard,) = second._writes.parts.shards.writers
        write_queued = shard.write_queued

        def late() -> None:
            monkeypatch.undo()
            first.close()
            write_queued()

        monkeypatch.setattr(shard, "write_queued", late)
        second.close()
    assert table.status().unflushed_rows == 0


def test_an_address_is_a_text(table: weir.Table) -> None:
    with pytest.raises(OptionError, match="address"):
        table.writer(address=8080)
