"""Writes through the table itself: a writer is kept for them, and gives way."""

from __future__ import annotations

import threading
import time
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

import weir
from weir.errors import InputError, LeaseHeldError, OptionError, SchemaError
from weir.table import kept_writer

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("n", pa.int64())])


@pytest.fixture
def table(tmp_path: Path) -> weir.Table:
    return weir.create(tmp_path / "t", SCHEMA, primary_key="id", fsync=False)


def rows(table: weir.Table) -> dict[int, int]:
    return {row["id"]: row["n"] for row in table.scan().to_pylist()}


def test_a_table_is_written_without_a_writer(table: weir.Table) -> None:
    assert table.upsert([{"id": n, "n": n} for n in range(6)]).rows == 6
    table.delete([0])
    table.delete(where="n = 1")
    table.update("n = 2", {"n": "n + 10"})
    table.patch([{"id": 3, "n": 33}])
    table.insert([{"id": 3, "n": 0}, {"id": 7, "n": 7}])
    table.upsert([{"id": 4, "n": 1}], condition="n < new.n")
    assert rows(table) == {2: 12, 3: 33, 4: 4, 5: 5, 7: 7}
    with pytest.raises(SchemaError):
        table.upsert([{"id": 1, "other": 1}])
    with pytest.raises(InputError):
        table.delete([1], where="n = 1")
    with pytest.raises(OptionError, match="lease_wait"):
        table.upsert([{"id": 1, "n": 1}], lease_wait=-1)
    table.upsert([{"id": 1, "n": 1}])
    assert rows(table)[1] == 1


def test_the_shards_are_claimed_once_and_given_to_a_writer(table: weir.Table) -> None:
    table.upsert([{"id": 1, "n": 1}])
    table.upsert([{"id": 2, "n": 2}])
    (shard,) = table.status().shards
    with table.writer() as writer:
        writer.upsert([{"id": 3, "n": 3}])
        assert set(writer.epochs.values()) == {shard.epoch + 1}
        with pytest.raises(LeaseHeldError):
            table.upsert([{"id": 4, "n": 4}], lease_wait=0.2)
    table.upsert([{"id": 4, "n": 4}], lease_wait=timedelta(0))
    assert rows(table) == {1: 1, 2: 2, 3: 3, 4: 4}


def test_two_tables_of_one_process_take_turns(table: weir.Table) -> None:
    other = weir.open(table.uri, fsync=False)
    for number in range(3):
        table.upsert([{"id": 2 * number, "n": 0}], lease_wait=0)
        other.upsert([{"id": 2 * number + 1, "n": 1}], lease_wait=0)
    assert len(rows(table)) == 6


def test_a_write_waits_for_the_shard(table: weir.Table) -> None:
    writer = table.writer()
    writer.upsert([{"id": 1, "n": 1}])
    closing = threading.Timer(0.5, writer.close)
    closing.start()
    table.upsert([{"id": 2, "n": 2}], lease_wait=60)
    closing.join()
    assert rows(table) == {1: 1, 2: 2}


def test_an_idle_writer_lets_go(table: weir.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_writer, "_IDLE_SECONDS", 0.2)
    table.upsert([{"id": 1, "n": 1}])
    deadline = time.monotonic() + 60
    while table.status().shards[0].lease == "held" and time.monotonic() < deadline:
        time.sleep(0.05)
    assert table.status().shards[0].lease != "held"
    table.upsert([{"id": 2, "n": 2}])
    assert rows(table) == {1: 1, 2: 2}


def test_many_threads_write_at_once(table: weir.Table) -> None:
    threads = [threading.Thread(target=lambda n=n: table.upsert([{"id": n, "n": n}])) for n in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert len(rows(table)) == 8
