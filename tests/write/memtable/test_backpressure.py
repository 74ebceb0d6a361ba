"""What writes wait for: counting bytes and generations, slowing down, giving up."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from uuid import UUID

import hypothesis.strategies as st
import pytest
from hypothesis import given
from tests.write.conftest import SHARD, OpenWriter, rows, wait_until

from weir.engine import failpoint
from weir.engine.failpoint import FailpointError
from weir.errors import BackpressureError, StorageError
from weir.format.shard_manifest import FlushedGeneration, ShardManifest
from weir.storage.local import LocalStore
from weir.write.memtable.backpressure import MergeBacklog, UnflushedBytes, delay_seconds

# Slowing down


@given(st.integers(1, 1 << 40), st.floats(0, 2), st.floats(0, 2))
def test_delays_grow_towards_the_limit(limit: int, one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert 0 <= delay_seconds(low * limit, limit) <= delay_seconds(high * limit, limit) <= 0.1
    if high <= 0.75:
        assert delay_seconds(high * limit, limit) == 0
    if low >= 1:
        assert delay_seconds(low * limit, limit) == 0.1


class Shard:
    """A shard's writer as the count of bytes sees it."""

    def __init__(self, active_bytes: int = 0) -> None:
        self.active_bytes = active_bytes
        self.flush_error: BaseException | None = None
        self.early = 0
        self.retried = 0

    def flush_early(self) -> None:
        self.early += 1

    def retry_flush(self) -> None:
        self.retried += 1


def test_writes_are_held_up_near_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    held_up: list[float] = []
    counts = UnflushedBytes(1000, timeout=60, where="here")

    def record(predicate: Callable[[], bool], seconds: float) -> bool:
        held_up.append(seconds)
        return False

    monkeypatch.setattr(counts._changed, "wait_for", record)
    for _ in range(10):
        counts.admit(100)
    assert counts.used == 1000
    # The first eight find less than three quarters taken.
    assert held_up == sorted(held_up)
    assert len(held_up) == 2
    assert all(0 < seconds < 0.1 for seconds in held_up)


def test_a_write_that_is_held_up_goes_on_when_there_is_room() -> None:
    counts = UnflushedBytes(1000, timeout=60, where="here")
    counts.admit(990)
    counts.written(990, 990)
    counts.frozen(990)
    done = threading.Event()

    def write() -> None:
        counts.admit(100)
        done.set()

    thread = threading.Thread(target=write)
    thread.start()
    assert not done.wait(0.3)
    counts.flushed(990)
    assert done.wait(20)
    thread.join()


# Counting


def test_bytes_move_from_stage_to_stage() -> None:
    counts = UnflushedBytes(1000, timeout=0, where="here")
    shard = Shard()
    counts.add(shard, replayed=50)
    counts.admit(300)
    counts.admit(200)
    assert counts.used == 550
    counts.failed(200)
    # In a MemTable the rows may take less than alone.
    counts.written(300, 120)
    assert counts.used == 170
    counts.frozen(170)
    counts.admit(10)
    counts.flushed(170)
    assert counts.used == 10
    counts.written(10, 10)
    counts.dropped(10)
    assert counts.used == 0
    assert counts.peak == 550


def test_at_the_limit_writes_wait_their_turn_and_then_give_up() -> None:
    counts = UnflushedBytes(1000, timeout=0.05, where="the table")
    shard = Shard()
    shard.flush_error = StorageError("no route to the store")
    counts.add(shard, replayed=0)
    counts.admit(900)
    with pytest.raises(
        BackpressureError, match=r"900 bytes .* 0.05 s; max_unflushed_bytes is 1,000"
    ) as caught:
        counts.admit(200)
    assert "no route to the store" in str(caught.value)
    assert caught.value.__cause__ is shard.flush_error
    assert counts.used == 900
    assert shard.retried >= 1
    counts.admit(100)


def test_a_write_larger_than_the_limit_is_admitted_alone() -> None:
    counts = UnflushedBytes(1000, timeout=20, where="here")
    counts.admit(10)
    with ThreadPoolExecutor(2) as pool:
        large = pool.submit(counts.admit, 5000)
        wait_until(lambda: len(counts._turns) == 1)
        # Who comes after it does not slip past, or it might wait for ever.
        small = pool.submit(counts.admit, 10)
        wait_until(lambda: len(counts._turns) == 2)
        assert not large.done()
        assert not small.done()
        counts.failed(10)
        large.result(20)
        assert not small.done()
        counts.failed(5000)
        small.result(20)
    assert counts.used == 10


def test_the_largest_memtable_is_flushed_from_half_the_limit() -> None:
    counts = UnflushedBytes(1000, timeout=0, where="here")
    small, large = Shard(100), Shard(350)
    counts.add(small, replayed=100)
    counts.add(large, replayed=350)
    counts.admit(49)
    counts.written(49, 49)
    assert (small.early, large.early) == (0, 0)
    counts.admit(2)
    counts.written(2, 2)
    counts.admit(1)
    assert (small.early, large.early) == (0, 1)
    # Once it is on its way, what is left is no reason to flush more.
    counts.frozen(350)
    counts.admit(1)
    assert (small.early, large.early) == (0, 1)


def test_queued_rows_are_no_reason_to_flush_early() -> None:
    counts = UnflushedBytes(1000, timeout=0, where="here")
    shard = Shard(10)
    counts.add(shard, replayed=10)
    counts.admit(900)
    assert shard.early == 0
    with pytest.raises(BackpressureError):
        counts.admit(995)
    # But a MemTable in the way of a large write is.
    assert shard.early >= 1


def test_flushes_get_urgent_as_room_runs_out() -> None:
    counts = UnflushedBytes(1000, timeout=0, where="here")
    found = []
    for _ in range(10):
        found.append(counts.urgency)
        counts.admit(100)
    assert found == sorted(found)
    assert found[:3] == [0, 0, 0]
    assert found[8:] == [1, 1]
    assert 0 < found[5] < 1


@given(st.lists(st.tuples(st.integers(1, 400), st.booleans(), st.integers(1, 400)), max_size=60))
def test_never_more_than_the_limit(writes: list[tuple[int, bool, int]]) -> None:
    counts = UnflushedBytes(1000, timeout=0, where="here")
    active = 0
    for nbytes, fails, flush in writes:
        try:
            counts.admit(nbytes)
        except BackpressureError:
            assert counts.used + nbytes > 1000
            counts.frozen(active)
            counts.flushed(active)
            active = 0
            continue
        assert counts.used <= 1000
        if fails:
            counts.failed(nbytes)
        else:
            counts.written(nbytes, nbytes)
            active += nbytes
        if active > flush:
            counts.frozen(active)
            counts.flushed(active)
            active = 0
        assert counts.used == active
    assert counts.peak <= 1000


# In a shard's writer


def test_thousands_of_limits_that_are_dropped_at_once_count_no_more() -> None:
    whole = UnflushedBytes(1_000_000, timeout=1.0, where="all")
    some = [UnflushedBytes(1_000, timeout=1.0, where="one", within=whole) for _ in range(5_000)]
    for one in some:
        one.admit(3, 0.0)
        one.written(3, 2)
    assert whole.used == 10_000
    del one
    some.clear()
    assert whole.used == 0


def test_everything_is_given_back(store: LocalStore, open_writer: OpenWriter) -> None:
    counts = UnflushedBytes(1 << 20, timeout=5, where=store.uri)
    writer = open_writer(store, unflushed=counts)
    for n in range(20):
        writer.submit(rows((n, "x" * 100))).result()
    assert counts.used > 20 * 100
    writer.flush()
    assert counts.used == 0
    with ThreadPoolExecutor(4) as pool:
        futures = [pool.submit(writer.submit(rows((n, "y"))).result) for n in range(50)]
        for future in futures:
            future.result()
    assert counts.used > 0
    with failpoint.armed("wal.before_append", "raise"), pytest.raises(FailpointError):
        writer.submit(rows((1, "fails"))).result()
    before = counts.used
    writer.submit(rows((1, ""))).result()
    assert counts.used > before
    writer.abandon()
    assert counts.used == 0
    # Replayed rows count as well.
    replayed = open_writer(store, namespace="again", unflushed=counts)
    assert replayed.unflushed_rows == 51
    assert counts.used > 0
    replayed.close()
    assert counts.used == 0


def test_a_fenced_shard_leaves_the_room_to_others(store: LocalStore, open_writer: OpenWriter) -> None:
    counts = UnflushedBytes(1 << 20, timeout=5, where=store.uri)
    writer = open_writer(store, unflushed=counts)
    writer.submit(rows((1, "x" * 1000))).result()
    open_writer(store, namespace="other", takeover=True)
    with pytest.raises(Exception, match="epoch 2"):
        writer.submit(rows((2, "y"))).result()
    assert counts.used == 0
    assert writer.unflushed_rows == 0


def test_a_full_budget_flushes_by_itself(store: LocalStore, open_writer: OpenWriter) -> None:
    limit = 200_000
    counts = UnflushedBytes(limit, timeout=60, where=store.uri)
    writer = open_writer(store, unflushed=counts)
    for n in range(150):
        writer.submit(rows((n, "x" * 10_000))).result()
        assert counts.used <= limit
    writer.close()
    assert counts.peak <= limit
    later = open_writer(store)
    later.submit(rows((1000, "y"))).result()


def test_a_broken_flush_ends_in_back_pressure_and_is_repaired_by_the_next(
    store: LocalStore, open_writer: OpenWriter
) -> None:
    writer = open_writer(store, max_unflushed_bytes=50_000, backpressure_timeout=0.5)
    errors = []

    def goes_through(key: int) -> bool:
        try:
            writer.submit(rows((key, "x" * 5_000))).result()
        except BackpressureError as error:
            errors.append(str(error))
            return False
        return True

    with failpoint.armed("flush.before_manifest", "raise@every"):
        written = next(key for key in range(100) if not goes_through(key))
        assert 4 < written < 12
        assert "failpoint flush.before_manifest" in errors[0]
    for key in range(100, 110):
        wait_until(partial(goes_through, key))
    writer.close()


def test_small_parts_of_large_batches_are_copied(store: LocalStore, open_writer: OpenWriter) -> None:
    writer = open_writer(store)
    large = rows(*((n, "x" * 100) for n in range(50_000)))
    pending = writer.prepare(large.slice(7, 3))
    assert pending.batch is not None
    assert pending.batch.to_pylist() == large.slice(7, 3).to_pylist()
    assert pending.batch.get_total_buffer_size() < 2000
    # Without need nothing is copied.
    assert writer.prepare(large).batch is large


# Generations that wait for a merge


def manifest(generations: int, shard_id: UUID = SHARD) -> ShardManifest:
    return ShardManifest(
        shard_id,
        version=1,
        flushed_generations=tuple(
            FlushedGeneration(n, f"0000000{n % 10}_gen_{n}") for n in range(1, generations + 1)
        ),
    )


class Merges:
    """How far merges have got, and how often that was asked."""

    def __init__(self) -> None:
        self.merged = 0
        self.asked = 0
        self.failure: StorageError | None = None

    def __call__(self) -> Callable[[UUID], int]:
        self.asked += 1
        if self.failure is not None:
            raise self.failure
        merged = self.merged
        return lambda shard_id: merged


def test_merge_progress_is_not_asked_far_from_the_limit() -> None:
    merges = Merges()
    backlog = MergeBacklog(100, timeout=0, where="here", merge_progress=merges)
    for count in range(76):
        backlog.listed(manifest(count))
        backlog.admit(SHARD)
    assert merges.asked == 0
    backlog.listed(manifest(76))
    assert merges.asked == 1


def test_merged_generations_do_not_count() -> None:
    merges = Merges()
    merges.merged = 60
    backlog = MergeBacklog(100, timeout=0, where="here", merge_progress=merges)
    backlog.listed(manifest(120))
    assert backlog.waiting(SHARD) == 60
    backlog.admit(SHARD)
    other = UUID(int=1)
    backlog.admit(other)
    assert backlog.waiting(other) == 0


def test_at_the_limit_writes_give_up_unless_something_is_merged() -> None:
    merges = Merges()
    backlog = MergeBacklog(10, timeout=0.05, where="here", merge_progress=merges)
    backlog.listed(manifest(10))
    with pytest.raises(
        BackpressureError, match=rf"10 generations of shard {SHARD} .*is 10 .*table.maintenance.merge\(\)"
    ):
        backlog.admit(SHARD)
    # The last look is always a fresh one.
    merges.merged = 8
    backlog.admit(SHARD)
    assert backlog.waiting(SHARD) == 2


def test_a_merge_elsewhere_lets_writes_go_on() -> None:
    merges = Merges()
    backlog = MergeBacklog(10, timeout=60, where="here", merge_progress=merges)
    backlog.listed(manifest(12))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(backlog.admit, SHARD)
        wait_until(lambda: merges.asked >= 2)
        assert not waiting.done()
        merges.merged = 12
        waiting.result(20)


def test_a_store_that_cannot_tell_changes_nothing() -> None:
    merges = Merges()
    merges.failure = StorageError("no route to the store")
    backlog = MergeBacklog(10, timeout=0.05, where="here", merge_progress=merges)
    backlog.listed(manifest(9))
    backlog.admit(SHARD)
    backlog.listed(manifest(10))
    with pytest.raises(BackpressureError):
        backlog.admit(SHARD)


def test_flushes_are_counted(store: LocalStore, open_writer: OpenWriter) -> None:
    merges = Merges()
    backlog = MergeBacklog(3, timeout=0.05, where=store.uri, merge_progress=merges)
    writer = open_writer(store, backlog=backlog)
    for n in range(3):
        writer.submit(rows((n, "x"))).result()
        writer.flush()
    with pytest.raises(BackpressureError, match="3 generations"):
        writer.submit(rows((4, "x"))).result()
    merges.merged = 1
    writer.submit(rows((4, "x"))).result()
    writer.close()
    # The next writer learns of them from the manifest it claims.
    later = open_writer(store, backlog=MergeBacklog(3, timeout=0, where=store.uri, merge_progress=Merges()))
    with pytest.raises(BackpressureError, match="4 generations"):
        later.submit(rows((5, "x"))).result()
