"""Many writers of one engine: few threads, one budget."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pytest

import weir
from tests.write.conftest import wait_until
from weir.log.read_lease import read_lease
from weir.write.lease.heartbeat import lease_renewals

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("value", pa.binary())])


@pytest.mark.parametrize("writers", [60, pytest.param(1_000, marks=pytest.mark.long)])
def test_many_open_writers_share_few_threads(tmp_path: Path, writers: int) -> None:
    before = threading.active_count()
    with weir.Engine() as engine, ExitStack() as open_writers:
        table = engine.create(
            tmp_path / "t", SCHEMA, primary_key="id", shard_by=weir.identity("id"), fsync=False
        )
        opened = [open_writers.enter_context(table.writer(lease_ttl=60.0)) for _ in range(writers)]
        for number, writer in enumerate(opened):
            writer.upsert([{"id": number, "value": b"first"}])
        leases = lease_renewals(engine)
        assert engine.metrics.leases.value() == writers
        assert threading.active_count() - before < 50
        for number, writer in enumerate(opened):
            writer.upsert([{"id": number, "value": b"second"}], wait=False)
        for writer in opened:
            writer.flush()
        assert threading.active_count() - before < 50
        assert table.scan(filter="value = cast('second' as binary)").count() == writers
        open_writers.close()
        assert engine.metrics.leases.value() == 0
        assert not leases._watched
    wait_until(lambda: threading.active_count() - before <= 1)


def test_leases_of_many_writers_are_renewed_and_lost_alone(tmp_path: Path) -> None:
    engine = weir.Engine()
    table = engine.create(tmp_path / "t", SCHEMA, primary_key="id", shard_by=weir.identity("id"), fsync=False)
    opened = [table.writer(lease_ttl=1.0) for _ in range(20)]
    for number, writer in enumerate(opened):
        writer.upsert([{"id": number, "value": b"first"}])
    shards = [next(iter(writer.epochs)) for writer in opened]

    def renewed_at(number: int) -> object:
        found = read_lease(table._table.store, shards[number])
        assert found is not None
        return found.renewed_at

    first = [renewed_at(number) for number in range(20)]
    wait_until(lambda: all(renewed_at(number) != first[number] for number in range(20)))
    with table.writer(takeover=True) as other:
        other.upsert([{"id": 3, "value": b"taken"}])
        wait_until(lambda: engine.metrics.leases_lost.value() == 1)
        for number, writer in enumerate(opened):
            if number == 3:
                with pytest.raises(weir.errors.FencedError):
                    writer.upsert([{"id": number, "value": b"second"}])
            else:
                writer.upsert([{"id": number, "value": b"second"}])
    # Dropped without being closed, they are renewed no more.
    del opened, writer
    wait_until(lambda: engine.metrics.leases.value() == 0)


def test_writers_share_one_budget(tmp_path: Path) -> None:
    """Each is far within its own limit; together they would be far beyond that of the engine."""
    limit = 4 << 20
    engine = weir.Engine(unflushed_bytes=limit)
    tables = [
        engine.create(tmp_path / str(number), SCHEMA, primary_key="id", fsync=False) for number in range(4)
    ]
    with ExitStack() as open_writers:
        opened = [open_writers.enter_context(table.writer()) for table in tables]
        most = 0.0
        for turn in range(20):
            for writer in opened:
                rows = [{"id": turn * 10 + at, "value": b"x" * 65536} for at in range(10)]
                writer.upsert(rows)
                most = max(most, engine.metrics.unflushed_bytes.value())
        assert limit / 4 < most <= limit
    assert engine.metrics.unflushed_bytes.value() == 0
    assert [table.scan().count() for table in tables] == [200] * 4


@pytest.mark.parametrize("writers", [60, pytest.param(1_000, marks=pytest.mark.long)])
def test_the_budget_is_the_same_however_many_writers_there_are(tmp_path: Path, writers: int) -> None:
    """All rows together are three times the budget, and those of each writer a small part of it."""
    limit = writers * 8192
    with weir.Engine(unflushed_bytes=limit) as engine, ExitStack() as open_writers:
        table = engine.create(
            tmp_path / "t", SCHEMA, primary_key="id", shard_by=weir.identity("id"), fsync=False
        )
        opened = [open_writers.enter_context(table.writer(lease_ttl=60.0)) for _ in range(writers)]
        most = 0.0
        for turn in range(3):
            for number, writer in enumerate(opened):
                writer.upsert([{"id": number, "value": bytes([turn]) * 8192}])
                most = max(most, engine.metrics.unflushed_bytes.value())
        assert limit / 4 < most <= limit
        assert engine.metrics.flushes.value() > 0
        open_writers.close()
        assert engine.metrics.unflushed_bytes.value() == 0
        assert table.scan().count() == writers


def test_a_write_beyond_the_budget_of_the_engine_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = weir.Engine(unflushed_bytes=1 << 20)
    table = engine.create(tmp_path / "t", SCHEMA, primary_key="id", fsync=False)
    # Nothing is flushed.
    monkeypatch.setattr(engine.executors.at("").flushes, "submit", lambda *_: None)
    writer = table.writer(backpressure_timeout=0.1)
    for number in range(10):
        writer.upsert([{"id": number, "value": b"x" * 65536}])
    held = engine.metrics.unflushed_bytes.value()
    with pytest.raises(weir.errors.BackpressureError, match="unflushed_bytes of the engine is 1,048,576"):
        writer.upsert([{"id": 100, "value": b"x" * (1 << 20)}])
    assert engine.metrics.unflushed_bytes.value() == held
    assert writer._shards.unflushed.used == held
