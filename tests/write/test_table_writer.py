"""A table writer at the edges of its life: closed twice, forked, interrupted, left open by a program."""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import textwrap
from pathlib import Path

import pyarrow as pa
import pytest

import weir
from tests.forked_program import weir_python
from weir.errors import LeaseHeldError, StorageError, WriterError
from weir.storage.counting import CountingStore

SCHEMA = pa.schema([("id", pa.int64()), ("value", pa.int64())])


@pytest.fixture
def table(tmp_path: Path) -> weir.Table:
    return weir.create(
        tmp_path / "table", SCHEMA, primary_key="id", shard_by=weir.bucket("id", 2), fsync=False
    )


def run(table: weir.Table, program: str, *, seconds: float = 60) -> subprocess.CompletedProcess[str]:
    """Run a program that has ``weir`` and ``table``."""
    opened = f"import weir\ntable = weir.open({table.uri!r}, fsync=False)\n"
    return subprocess.run(
        [*weir_python(), opened + textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
    )


def leases(table: weir.Table) -> set[str]:
    return {str(shard.lease) for shard in table.status().shards}


def test_closing_twice_is_closing_once(table: weir.Table) -> None:
    with table.writer() as writer:
        writer.upsert([{"id": key, "value": key} for key in range(10)])
        writer.close()
    writer.close()
    assert leases(table) == {"released"}
    assert table.status().unflushed_rows == 0


def test_a_pickled_table_is_opened_anew(table: weir.Table) -> None:
    text = pickle.dumps(table)
    with table.writer() as writer:
        writer.upsert([{"id": 1, "value": 5}])
    assert pickle.loads(text).get([1]).to_pylist() == [{"id": 1, "value": 5}]


@pytest.mark.parametrize("what", ["removed", "moved"])
def test_nothing_is_acknowledged_where_the_table_is_no_more(table: weir.Table, what: str) -> None:
    writer = table.writer(flush_on_close=False)
    writer.upsert([{"id": 1, "value": 1}])
    away = f"{table.uri} away"
    Path(table.uri).rename(away)
    if what == "removed":
        shutil.rmtree(away)
    with pytest.raises(StorageError, match="removed or moved"):
        writer.upsert([{"id": 1, "value": 2}])
    assert not Path(table.uri).exists()
    writer.close()
    if what == "moved":
        moved = weir.open(away, fsync=False)
        assert moved.get([1]).to_pylist() == [{"id": 1, "value": 1}]
        with moved.writer(takeover=True) as successor:
            successor.upsert([{"id": 1, "value": 3}])
        assert moved.scan().to_table().to_pylist() == [{"id": 1, "value": 3}]


def test_what_becomes_visible_together(tmp_path: Path) -> None:
    table = weir.create(tmp_path / "table", SCHEMA, primary_key="id", fsync=False)
    batches = [pa.record_batch({"id": [number], "value": [number]}) for number in range(3)]
    rows = pa.Table.from_batches(batches)
    with table.writer(max_wal_bytes=1) as writer:
        (first,) = writer.upsert(rows).positions.values()
        (second,) = writer.upsert(rows, source=weir.Source("test", 1)).positions.values()
        (third,) = writer.apply(rows).positions.values()
        (fourth,) = writer.upsert(rows.combine_chunks()).positions.values()
    # The first entry is the fence of the claim; of the first call each batch is an entry.
    assert first == 1 + len(batches)
    assert (second, third, fourth) == (first + 1, first + 2, first + 3)


@pytest.mark.parametrize("flushed", [False, True])
def test_a_copy_of_a_table_goes_its_own_way(table: weir.Table, tmp_path: Path, flushed: bool) -> None:
    with table.writer(flush_on_close=flushed) as writer:
        writer.upsert([{"id": 1, "value": 1}])
    copy = weir.open(shutil.copytree(table.uri, tmp_path / "copy"), fsync=False)
    for one, value in ((table, 2), (copy, 3)):
        with one.writer(flush_on_close=flushed) as writer:
            writer.upsert([{"id": 1, "value": value}])
        one.scan().to_table()
    for step in ("as they are", "merged"):
        for one, value in ((table, 2), (copy, 3)):
            assert one.get([1]).to_pylist() == [{"id": 1, "value": value}], step
            assert one.scan().to_table().to_pylist() == [{"id": 1, "value": value}], step
            assert list(one.changes())[-1].rows["value"].to_pylist()[-1] == value
        for one in (table, copy):
            one.maintenance.merge()


@pytest.mark.filterwarnings("ignore:lance is not fork-safe")
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_forked_copy_of_a_writer_is_refused(table: weir.Table) -> None:
    with table.writer() as writer:
        writer.upsert([{"id": 1, "value": 1}])
        child = os.fork()
        if child == 0:  # pragma: no cover, another process
            refused = 0
            for call in (
                lambda: writer.upsert([{"id": 1, "value": 2}]),
                lambda: writer.delete([1]),
                writer.flush,
            ):
                try:
                    call()
                except WriterError as error:
                    refused += "forked" in str(error)
            writer.close()
            os._exit(refused)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
        # Neither fenced nor without its lease.
        writer.upsert([{"id": 1, "value": 3}])
        assert "held" in leases(table)
    assert table.get([1]).to_pylist() == [{"id": 1, "value": 3}]


@pytest.mark.parametrize("end", ["", "atexit.register(writer.close)", "raise SystemExit(0)"])
def test_a_program_ends_with_its_writer_open(table: weir.Table, end: str) -> None:
    done = run(
        table,
        f"""
        import atexit
        writer = table.writer()
        for key in range(50):
            _ = writer.upsert([{{"id": key, "value": key}}], wait=False)
        {end}
        """,
    )
    assert done.returncode == 0, done.stderr
    assert table.scan().count() == 50
    assert leases(table) == ({"released"} if "close" in end else {"abandoned"})
    with table.writer() as writer:
        writer.upsert([{"id": key, "value": -1} for key in range(50)])


def test_interruptions_anywhere_leave_no_lock_locked(table: weir.Table) -> None:
    done = run(
        table,
        """
        import faulthandler, random, signal, threading

        class Armed:
            now = False

        def interrupt(*_):
            if Armed.now:
                Armed.now = False
                raise KeyboardInterrupt

        faulthandler.dump_traceback_later(40, exit=True)
        signal.signal(signal.SIGALRM, interrupt)
        chance = random.Random(7)
        writer = table.writer(max_memtable_rows=50)
        ending = threading.Event()

        def beside():
            while not ending.is_set():
                try:
                    writer.upsert([{"id": 1_000, "value": 0}])
                except weir.errors.StorageError:
                    pass  # the other thread led, and was interrupted

        thread = threading.Thread(target=beside)
        thread.start()
        acknowledged = {}
        interrupted = 0
        value = 0
        while interrupted < 200:
            value += 1
            key = value  # of its own: an interrupted write may be there or not
            try:
                signal.setitimer(signal.ITIMER_REAL, chance.uniform(0.0001, 0.006))
                Armed.now = True
                if chance.random() < 0.05:
                    writer.flush()
                else:
                    writer.upsert([{"id": 2_000 + key, "value": value}])
                    Armed.now = False
                    acknowledged[2_000 + key] = value
            except KeyboardInterrupt:
                interrupted += 1
            except (RuntimeError, weir.errors.StorageError):
                pass  # between two lines of threading.Condition.wait; led by the other
            Armed.now = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        ending.set()
        thread.join()
        writer.close()
        rows = {row["id"]: row["value"] for row in table.scan().to_table().to_pylist()}
        assert acknowledged.items() <= rows.items()
        print(len(acknowledged))
        """,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert leases(table) == {"released"}


def test_claims_of_many_shards_take_one_listing(tmp_path: Path) -> None:
    """What is asked of the store grows with the number of shards, not with its square."""
    shards = 40
    made = weir.create(
        tmp_path / "many", SCHEMA, primary_key="id", shard_by=weir.bucket("id", shards), fsync=False
    )
    rows = [{"id": key, "value": key} for key in range(20 * shards)]
    # Where others have written to a table that was made here, the listing of its root tells no shards.
    for listings in (1, 2):
        store = CountingStore(made.internals.store)
        table = weir.Table(store, made.internals.base)
        with table.writer() as writer:
            writer.upsert(rows)
            assert len(writer.epochs) == shards
            assert store.counts["list_directories"] == listings
            assert store.counts.total() < 25 * shards
    assert made.scan().count() == len(rows)


def test_a_shard_that_is_held_keeps_rows_out_of_all_others(tmp_path: Path) -> None:
    table = weir.create(
        tmp_path / "held", SCHEMA, primary_key="id", shard_by=weir.bucket("id", 16), fsync=False
    )
    rows = [{"id": key, "value": key} for key in range(200)]
    with table.writer() as holder:
        holder.upsert(rows[:1])
        with weir.Engine().open(table.uri, fsync=False).writer() as writer:
            with pytest.raises(LeaseHeldError):
                writer.upsert(rows)
            assert table.scan().count() == 1
            holder.close()
            writer.upsert(rows)
    assert table.scan().count() == len(rows)
