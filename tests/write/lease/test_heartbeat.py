"""The heartbeat renews leases, goes on through failures, and gives up what is lost.

Time is passed by hand, so that a busy machine changes nothing; only waiting for the thread is real.
"""

from __future__ import annotations

import gc
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence

import pytest
from tests.write.clocks import FakeClock
from tests.write.conftest import SHARD, OpenWriter, rows, wait_until

from weir.engine.context import EngineContext
from weir.errors import FencedError, StorageError
from weir.format.lease import Lease
from weir.log.read_lease import read_lease
from weir.storage.counting import CountingStore
from weir.storage.interface import Bytes
from weir.storage.local import LocalStore
from weir.storage.local_swaps import SwappedObject
from weir.storage.metered import MeteredStore
from weir.write.lease.heartbeat import Heartbeat
from weir.write.lease.lease import ShardLease
from weir.write.lease.lease_terms import LeaseTerms

TTL = 0.6
"""By the clock that is passed by hand; in real time a heartbeat looks at it every fifteenth of that."""


class Failing(LocalStore):
    """A store that can stop to take leases, and counts how often it was asked to."""

    fail: Exception | None = None
    asked = 0

    def compare_and_swap(self, path: str, data: Bytes | Sequence[Bytes], expected: str) -> str:
        # Whoever sees that it was asked may change what it does the next time, not what it does now.
        failure = self.fail
        self.asked += 1
        if failure is not None:
            raise failure
        return super().compare_and_swap(path, data, expected)


@pytest.fixture
def failing(store: LocalStore) -> Failing:
    return Failing(store.uri, fsync=False)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def heartbeat(clock: FakeClock) -> Iterator[Heartbeat]:
    made = Heartbeat(clock)
    yield made
    made.stop()


def stored(store: LocalStore) -> Lease:
    found = read_lease(store, SHARD)
    assert found is not None
    return found


def let_it_look() -> None:
    """Wait several times as long as it takes until a heartbeat looks at the clock again."""
    time.sleep(3 * TTL / 15)


def test_a_writer_at_rest_keeps_its_lease(
    failing: Failing, open_writer: OpenWriter, heartbeat: Heartbeat, clock: FakeClock
) -> None:
    writer = open_writer(failing, lease_terms=LeaseTerms(ttl=TTL, clock=clock), heartbeat=heartbeat)
    for _ in range(6):
        clock.pass_time(TTL * 0.9)
        wait_until(lambda: stored(failing).renewed_at == clock.now())
    writer.submit(rows((1, "after five times the lease's length"))).result()
    assert writer.epoch == 1


def test_nothing_is_renewed_before_it_is_due(
    failing: Failing, open_writer: OpenWriter, heartbeat: Heartbeat, clock: FakeClock
) -> None:
    open_writer(failing, lease_terms=LeaseTerms(ttl=TTL, clock=clock), heartbeat=heartbeat)
    clock.pass_time(TTL / 3 - 0.01)
    let_it_look()
    assert failing.asked == 0
    clock.pass_time(0.01)
    wait_until(lambda: stored(failing).renewed_at == clock.now())


def test_a_writer_at_rest_renews_less_often_than_one_that_writes(
    failing: Failing, open_writer: OpenWriter, heartbeat: Heartbeat, clock: FakeClock
) -> None:
    writer = open_writer(failing, lease_terms=LeaseTerms(ttl=TTL, clock=clock), heartbeat=heartbeat)

    def is_renewed_after(seconds: float) -> None:
        failing.asked = 0
        clock.pass_time(seconds - 0.01)
        let_it_look()
        assert failing.asked == 0
        clock.pass_time(0.02)
        wait_until(lambda: failing.asked == 1 and stored(failing).renewed_at == clock.now())
        # When the next one is due is known a moment later.
        wait_until(lambda: writer.lease._deadline == clock.uptime() + TTL)
        let_it_look()

    is_renewed_after(TTL / 3)  # which records where the claim has left the log
    is_renewed_after(TTL / 3)
    is_renewed_after(TTL / 2)
    before = stored(failing).last_position
    writer.submit(rows((1, "a"))).result()
    # This renewal records how far the log has come, and so the next is that of a writer that writes.
    is_renewed_after(TTL / 2)
    assert stored(failing).last_position == before + 1
    is_renewed_after(TTL / 3)
    is_renewed_after(TTL / 2)


def test_what_many_leases_at_rest_cost(
    store: LocalStore, heartbeat: Heartbeat, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A round of renewals asks the store once for each lease, looks for nothing, and starts no threads."""
    counting = CountingStore(MeteredStore(store, EngineContext()))
    terms = LeaseTerms(ttl=TTL, clock=clock)
    leases = [
        ShardLease.acquire(counting, uuid.UUID(int=number), terms, least_epoch=1) for number in range(1, 51)
    ]
    for lease in leases:
        heartbeat.watch(lease)
    looked, started = Counter[str](), []

    def counted(name: str) -> None:
        real = getattr(SwappedObject, name)

        def call(swapped: SwappedObject, *arguments: object) -> object:
            looked[name] += 1
            return real(swapped, *arguments)

        monkeypatch.setattr(SwappedObject, name, call)

    class Thread(threading.Thread):
        def start(self) -> None:
            started.append(self)
            super().start()

    counted("head")
    counted("remove_dead")
    monkeypatch.setattr(threading, "Thread", Thread)
    for number, parts in enumerate((3, 2, 2, 2)):
        counting.reset()
        looked.clear()
        clock.pass_time(TTL / parts)
        wait_until(lambda: counting.counts.total() >= len(leases))
        wait_until(lambda: all(lease._deadline == clock.uptime() + TTL for lease in leases))
        let_it_look()
        if number:  # the first renewal asks for the version of the lease, and looks at what there is
            assert counting.counts == {"compare_and_swap": len(leases)}
            assert not looked
    assert len(started) <= 1, "one thread renews, and one waits for what is late"


def test_failures_are_tried_again_before_the_lease_runs_out(
    failing: Failing,
    open_writer: OpenWriter,
    heartbeat: Heartbeat,
    clock: FakeClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    writer = open_writer(failing, lease_terms=LeaseTerms(ttl=TTL, clock=clock), heartbeat=heartbeat)
    failing.fail = StorageError("no route to the store")
    for asked in range(1, 9):
        clock.pass_time(TTL / 3 if asked == 1 else TTL / 15)
        wait_until(lambda: failing.asked >= asked)  # noqa: B023 - called at once
    writer.submit(rows((1, "its time is not over"))).result()
    failing.fail = None
    clock.pass_time(TTL / 15)
    wait_until(lambda: stored(failing).renewed_at == clock.now())
    # The writer itself hears of it a moment later.
    wait_until(lambda: writer.lease._deadline == clock.uptime() + TTL)
    clock.pass_time(TTL * 0.9)
    writer.submit(rows((2, "renewed"))).result()
    assert "shard.lease_not_renewed" in caplog.text


@pytest.mark.parametrize("failure", [StorageError("no route to the store"), RuntimeError("a bug")])
def test_a_heartbeat_that_fails_for_too_long_stops_the_writer(
    failing: Failing, open_writer: OpenWriter, heartbeat: Heartbeat, clock: FakeClock, failure: Exception
) -> None:
    writer = open_writer(failing, lease_terms=LeaseTerms(ttl=TTL, clock=clock), heartbeat=heartbeat)
    writer.submit(rows((1, "a"))).result()
    failing.fail = failure
    clock.pass_time(TTL / 3)
    wait_until(lambda: failing.asked >= 1)
    clock.pass_time(TTL)
    with pytest.raises(FencedError, match="has expired"):
        writer.submit(rows((2, "b"))).result()
    failing.fail = None
    with pytest.raises(FencedError, match="has expired"):
        writer.submit(rows((2, "the store is there again, and nobody else has taken the lease"))).result()
    assert open_writer(failing, namespace="next").epoch == 2


def test_a_dead_heartbeat_stops_the_writer(
    failing: Failing, open_writer: OpenWriter, heartbeat: Heartbeat, clock: FakeClock
) -> None:
    writer = open_writer(failing, lease_terms=LeaseTerms(ttl=TTL, clock=clock), heartbeat=heartbeat)
    heartbeat.stop()
    clock.pass_time(TTL)
    with pytest.raises(FencedError, match="has expired"):
        writer.submit(rows((1, "a"))).result()


def test_a_lost_lease_stops_the_writer_and_is_renewed_no_more(
    failing: Failing,
    open_writer: OpenWriter,
    heartbeat: Heartbeat,
    clock: FakeClock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    writer = open_writer(failing, lease_terms=LeaseTerms(ttl=TTL, clock=clock), heartbeat=heartbeat)
    other = ShardLease.acquire(failing, SHARD, LeaseTerms(ttl=TTL, takeover=True, clock=clock), least_epoch=1)
    clock.pass_time(TTL / 3)
    wait_until(lambda: "shard.lease_lost" in caplog.text)
    with pytest.raises(FencedError, match="taken over"):
        writer.submit(rows((1, "a"))).result()
    asked = failing.asked
    clock.pass_time(TTL / 3)
    let_it_look()
    assert failing.asked == asked
    other.renew()


def test_a_heartbeat_races_with_take_overs(store: LocalStore) -> None:
    """Whatever the order of swaps: who took last holds, everybody else finds out."""
    taken: list[ShardLease] = []
    lock = threading.Lock()
    heartbeat = Heartbeat()

    def take_over() -> None:
        for _ in range(10):
            held = ShardLease.acquire(store, SHARD, LeaseTerms(ttl=0.1, takeover=True), least_epoch=1)
            heartbeat.watch(held)
            with lock:
                taken.append(held)

    threads = [threading.Thread(target=take_over) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    heartbeat.stop()
    assert sorted(held.epoch for held in taken) == list(range(1, 41))
    (holder,) = (held for held in taken if held.epoch == 40)
    holder.renew()
    assert stored(store).epoch == 40
    for held in taken:
        if held is not holder:
            with pytest.raises(FencedError):
                held.renew()


def test_closing_ends_the_renewals(
    failing: Failing, open_writer: OpenWriter, heartbeat: Heartbeat, clock: FakeClock
) -> None:
    writer = open_writer(failing, lease_terms=LeaseTerms(ttl=TTL, clock=clock), heartbeat=heartbeat)
    writer.close()
    assert stored(failing).released
    asked = failing.asked
    clock.pass_time(TTL)
    let_it_look()
    assert failing.asked == asked


def test_the_thread_ends(store: LocalStore, clock: FakeClock) -> None:
    def beating() -> set[threading.Thread]:
        return {thread for thread in threading.enumerate() if thread.name == "weir-heartbeat"}

    for end in (Heartbeat.stop, Heartbeat.abandon):
        # Those of heartbeats that were stopped before may be ending only now.
        before = beating()
        heartbeat = Heartbeat(clock)
        terms = LeaseTerms(ttl=TTL, takeover=True, clock=clock)
        heartbeat.watch(ShardLease.acquire(store, SHARD, terms, least_epoch=1))
        (started,) = beating() - before
        end(heartbeat)
        wait_until(lambda: not started.is_alive())  # noqa: B023 - called at once
    gc.collect()


def test_a_renewal_that_hangs_holds_up_no_other(store: LocalStore, clock: FakeClock) -> None:
    let_go = threading.Event()

    class Hangs(LocalStore):
        def compare_and_swap(self, path: str, data: Bytes | Sequence[Bytes], expected: str) -> str:
            if str(shards[0]) in path:
                let_go.wait(30)
            return super().compare_and_swap(path, data, expected)

    shards = [uuid.UUID(int=number) for number in range(1, 6)]
    hangs = Hangs(store.uri, fsync=False)
    heartbeat = Heartbeat(clock)
    for shard in shards:
        heartbeat.watch(
            ShardLease.acquire(hangs, shard, LeaseTerms(ttl=TTL, clock=clock), least_epoch=1),
        )
    clock.pass_time(TTL / 2)

    def renewed() -> int:
        found = [read_lease(store, shard) for shard in shards[1:]]
        return sum(one is not None and one.renewed_at == clock.now() for one in found)

    try:
        wait_until(lambda: renewed() == 4)
    finally:
        let_go.set()
        heartbeat.stop()
