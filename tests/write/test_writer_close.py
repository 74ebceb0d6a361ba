"""Closing a writer while others use it, and using it where its table was removed."""

from __future__ import annotations

import contextlib
import gc
import shutil
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pytest

import weir
from weir.errors import FencedError, LeaseHeldError, StorageError, TableNotFoundError, WriterClosedError
from weir.write.memtable.backpressure import unflushed_of
from weir.write.table_writer import TableWriter

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("value", pa.string())])


@pytest.fixture
def table(tmp_path: Path) -> weir.Table:
    return weir.create(
        tmp_path / "table", SCHEMA, primary_key="id", shard_by=weir.bucket("id", 4), fsync=False
    )


def some(count: int = 40, value: str = "x") -> list[dict[str, object]]:
    return [{"id": key, "value": value} for key in range(count)]


def test_closing_twice_is_closing_once(table: weir.Table) -> None:
    writer = table.writer()
    writer.upsert(some())
    writer.close()
    writer.close()
    with pytest.raises(WriterClosedError):
        writer.flush()
    assert table.scan().count() == 40


@pytest.mark.parametrize("flush_on_close", [True, False])
def test_a_flush_beside_a_close_flushes_or_says_that_the_writer_is_closed(
    table: weir.Table, flush_on_close: bool
) -> None:
    for round_ in range(4):
        writer = table.writer(flush_on_close=flush_on_close)
        writer.upsert(some(value=str(round_)))
        ready = threading.Barrier(3)
        failures: list[BaseException] = []
        flushed: list[bool] = []

        def flush(
            writer: TableWriter = writer,
            ready: threading.Barrier = ready,
            failures: list[BaseException] = failures,
            flushed: list[bool] = flushed,
        ) -> None:
            ready.wait()
            with contextlib.suppress(WriterClosedError):
                while True:
                    try:
                        writer.flush()
                        flushed.append(True)
                    except WriterClosedError:
                        raise
                    except BaseException as error:
                        failures.append(error)
                        return

        threads = [threading.Thread(target=flush) for _ in range(2)]
        for thread in threads:
            thread.start()
        ready.wait()
        writer.close()
        for thread in threads:
            thread.join()
        assert failures == []
        if flush_on_close or flushed:
            assert table.status().unflushed_rows == 0
        assert {row["value"] for row in table.scan().to_table().to_pylist()} == {str(round_)}


def test_upserts_beside_a_close_are_written_or_refused(table: weir.Table) -> None:
    for _ in range(4):
        writer = table.writer()
        ready = threading.Barrier(3)
        acknowledged: list[int] = []
        failures: list[BaseException] = []

        def write(
            first: int,
            writer: TableWriter = writer,
            ready: threading.Barrier = ready,
            acknowledged: list[int] = acknowledged,
            failures: list[BaseException] = failures,
        ) -> None:
            ready.wait()
            try:
                for start in range(first, first + 100_000, 4):
                    keys = range(start, start + 4)
                    writer.upsert([{"id": key, "value": "x"} for key in keys])
                    acknowledged.extend(keys)
            except WriterClosedError:
                pass
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=write, args=(first,)) for first in (0, 1_000_000)]
        for thread in threads:
            thread.start()
        ready.wait()
        writer.close()
        for thread in threads:
            thread.join()
        assert failures == []
        # No shard was claimed behind the back of the close, and kept.
        assert {shard.lease for shard in table.status().shards} <= {"released"}
        assert table.get(acknowledged).num_rows == len(acknowledged)


def test_nothing_is_acknowledged_where_the_table_was_removed(table: weir.Table) -> None:
    writer = table.writer()
    writer.upsert(some())
    shutil.rmtree(table.uri)
    for _ in range(2):
        with pytest.raises(StorageError, match="removed or moved"):
            writer.upsert(some())
    with pytest.raises((FencedError, StorageError), match="removed or moved"):
        writer.flush()
    with pytest.raises(StorageError, match="removed or moved"):
        writer.close()
    writer.close()
    # Not even a directory that would be in the way of the next table.
    assert not Path(table.uri).exists()


def test_a_new_writer_of_a_table_that_was_removed(table: weir.Table) -> None:
    opened = weir.open(table.uri, fsync=False)
    shutil.rmtree(table.uri)
    for handle in (table, opened):
        writer = handle.writer()
        with pytest.raises((StorageError, TableNotFoundError), match=r"removed or moved|there is no table"):
            writer.upsert(some())
        writer.close()
    assert not Path(table.uri).exists()


@pytest.mark.parametrize("flush_on_close", [True, False])
def test_a_flush_that_a_close_overtakes(
    table: weir.Table, flush_on_close: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = table.writer(flush_on_close=flush_on_close)
    writer.upsert(some())
    closed_after_the_check(writer, monkeypatch)
    with pytest.raises(WriterClosedError):
        writer.flush()
    assert table.status().unflushed_rows == (0 if flush_on_close else 40)


def test_an_upsert_that_a_close_overtakes_claims_nothing(
    table: weir.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = table.writer()
    closed_after_the_check(writer, monkeypatch)
    with pytest.raises(WriterClosedError):
        writer.upsert(some())
    assert table.status().shards == ()


def closed_after_the_check(writer: TableWriter, monkeypatch: pytest.MonkeyPatch) -> None:
    """Close the writer as another thread would, right after the next call has found it open."""
    check = writer._shards.refuse_if_closed

    def overtaken() -> None:
        check()
        monkeypatch.undo()
        writer.close()

    monkeypatch.setattr(writer._shards, "refuse_if_closed", overtaken)


def test_threads_that_all_close(table: weir.Table) -> None:
    for _ in range(4):
        writer = table.writer()
        writer.upsert(some())
        ready = threading.Barrier(4)

        def close(writer: TableWriter = writer, ready: threading.Barrier = ready) -> None:
            ready.wait()
            writer.close()

        with ThreadPoolExecutor(4) as pool:
            for closed in [pool.submit(close) for _ in range(4)]:
                closed.result()
        assert table.status().unflushed_rows == 0


def test_rows_of_a_writer_that_was_dropped_are_not_kept_in_memory(table: weir.Table) -> None:
    unflushed = unflushed_of(table.internals.store.engine)
    gc.collect()
    before = unflushed.used
    writer = table.writer()
    writer.upsert(some(40, "x"))
    shard = weakref.ref(next(iter(writer._writes.parts.shards.writers)))
    assert unflushed.used > before
    del writer
    gc.collect()
    assert shard() is None
    assert unflushed.used == before
    assert table.scan().count() == 40


def test_a_writer_that_was_dropped_leaves_its_shards_to_the_next_one_here(table: weir.Table) -> None:
    writer = table.writer(lease_ttl=300)
    writer.upsert(some(40, "first"))
    # As a notebook does that runs a cell again: the former writer is collected, and was never closed.
    writer = table.writer(lease_ttl=300)
    writer.upsert(some(40, "second"))
    other = weir.Engine().open(table.uri).writer()
    with pytest.raises(LeaseHeldError, match="another writer of this process"):
        other.upsert(some(40, "third"))
    writer.close()
    assert set(table.scan().to_table()["value"].to_pylist()) == {"second"}
