"""Background work leaves about half of the time to reads and writes, and takes all where there are none."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import weir
import weir.merge.commit
import weir.merge.service
import weir.table.reader
import weir.write.flush.generation_writer
from weir.engine.throttle import Throttle

ROWS = 60_000
SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("value", pa.binary(512))])


class FakeTime:
    """A clock that goes on when somebody works or sleeps."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def fake_time(monkeypatch: pytest.MonkeyPatch) -> FakeTime:
    fake = FakeTime()
    monkeypatch.setattr("weir.engine.throttle.time", fake)
    return fake


def worked_share(fake: FakeTime, throttle: Throttle, *, urgency: float, piece: float) -> float:
    began = fake.now
    for _ in throttle.paced(range(40), lambda: urgency):
        fake.now += piece
    return 40 * piece / (fake.now - began)


@pytest.mark.parametrize("piece", [0.001, 0.02, 0.2])
def test_half_the_time_is_left_to_a_read_that_goes_on(fake_time: FakeTime, piece: float) -> None:
    throttle = Throttle()
    with throttle.reading():
        assert worked_share(fake_time, throttle, urgency=0, piece=piece) == pytest.approx(0.5)
        # The more urgent, the less of it, down to nothing.
        assert worked_share(fake_time, throttle, urgency=0.5, piece=piece) == pytest.approx(2 / 3)
        assert worked_share(fake_time, throttle, urgency=1, piece=piece) == pytest.approx(1)


def test_a_moment_after_a_write_or_read_it_goes_on_at_full_speed(fake_time: FakeTime) -> None:
    throttle = Throttle()
    assert worked_share(fake_time, throttle, urgency=0, piece=0.02) == pytest.approx(1)
    throttle.last_foreground = fake_time.now
    assert worked_share(fake_time, throttle, urgency=0, piece=0.005) < 0.9
    fake_time.now += 0.2
    assert worked_share(fake_time, throttle, urgency=0, piece=0.02) == pytest.approx(1)
    with throttle.reading(), throttle.reading():
        fake_time.now += 60
    assert worked_share(fake_time, throttle, urgency=0, piece=0.005) < 0.9
    assert worked_share(fake_time, throttle, urgency=0, piece=0.02) == pytest.approx(1)


def test_a_rest_is_short_however_long_the_work_was(fake_time: FakeTime) -> None:
    throttle = Throttle()
    throttle.last_foreground = fake_time.now
    throttle.rest(60.0)
    assert throttle.rested == pytest.approx(0.25)


def test_flushes_and_merges_give_way_to_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A ratio of times within one run: how long each kind of work rested, to how long it took."""
    # Not for the writes that fill the MemTable.
    monkeypatch.setattr("weir.engine.throttle._RECENT_SECONDS", -1.0)
    engine = weir.Engine()
    throttle = engine.throttle
    table = engine.create(tmp_path / "table", SCHEMA, primary_key="id", fsync=False)
    values = np.random.default_rng(1).bytes(ROWS * 512)
    column = pa.FixedSizeBinaryArray.from_buffers(pa.binary(512), ROWS, [None, pa.py_buffer(values)])
    rows = pa.table([pa.array(np.arange(ROWS)), column], SCHEMA)

    def rested_share(work: Callable[[], object], *, beside_a_read: bool) -> float:
        before, began = throttle.rested, time.monotonic()
        with throttle.reading() if beside_a_read else nullcontext():
            work()
        return (throttle.rested - before) / (time.monotonic() - began)

    def fill_memtable() -> None:
        # One MemTable after the other is full, and none waits for room: flushes are not urgent.
        with table.writer(
            max_memtable_rows=ROWS // 2, max_unflushed_bytes=1 << 40, flush_on_close=False
        ) as writer:
            writer.upsert(rows.slice(0, ROWS // 2))
            while table.status().unflushed_rows:
                time.sleep(0.01)

    for beside_a_read in (False, True):
        flush = rested_share(fill_memtable, beside_a_read=beside_a_read)
        # Most of a merge is one call of the library, which cannot rest.
        merge = rested_share(table.maintenance.merge, beside_a_read=beside_a_read)
        if beside_a_read:
            assert flush > 0.1
            assert merge > 0
        else:
            assert flush == merge == 0


def test_every_kind_of_read_counts(tmp_path: Path) -> None:
    engine = weir.Engine()
    throttle = engine.throttle = CountsReads()
    table = engine.create(tmp_path / "table", SCHEMA, primary_key="id", fsync=False)
    token = table.snapshot()
    for read in (
        lambda: table.get([1]),
        lambda: table.get([1], at=token),
        lambda: table.scan().count(),
        lambda: table.scan().to_table(),
        lambda: table.scan(limit=1).to_table(),
        lambda: table.scan(at=token).to_table(),
    ):
        before = throttle.reads
        read()
        assert throttle.reads > before


class CountsReads(Throttle):
    """Counts the reads that have begun."""

    reads = 0

    @contextmanager
    def reading(self) -> Iterator[None]:
        self.reads += 1
        with super().reading():
            yield
