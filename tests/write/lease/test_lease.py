"""Leases: taking, respecting, renewing, losing and releasing them, whatever the clocks do."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.write.clocks import FakeClock
from tests.write.conftest import SHARD, WAL_SCHEMA, OpenWriter, another_machine, rows

from weir.engine import failpoint
from weir.engine.failpoint import FailpointError
from weir.errors import (
    CorruptionError,
    FencedError,
    LeaseHeldError,
    PreconditionError,
    ShardSealedError,
    StorageError,
)
from weir.format import layout, lease
from weir.format.lease import Lease
from weir.format.shard_manifest import ShardStatus
from weir.log.manifest_store import commit_manifest, read_latest_manifest
from weir.log.read_lease import read_lease
from weir.log.wal import Wal
from weir.storage.counting import CountingStore
from weir.storage.interface import Bytes, ObjectStore
from weir.storage.local import LocalStore
from weir.write.claim import claim_shard
from weir.write.lease.lease import ShardLease
from weir.write.lease.lease_owner import new_lease_owner
from weir.write.lease.lease_terms import LeaseTerms

TTL = 300.0
PATH = layout.lease_path(SHARD)

Take = Callable[..., ShardLease]


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def take(store: LocalStore, clock: FakeClock) -> Take:
    def take_one(
        where: ObjectStore = store, *, takeover: bool = False, elsewhere: str | None = None, **others: Any
    ) -> ShardLease:
        """Take the lease as a new holder, of this system or of another."""
        holder = new_lease_owner()
        if elsewhere is not None:
            holder = replace(holder, host=elsewhere, system=f"system of {elsewhere}")
        terms = LeaseTerms(ttl=TTL, takeover=takeover, holder=holder, clock=clock)
        return ShardLease.acquire(where, SHARD, terms, **{"least_epoch": 1, **others})

    return take_one


def stored(store: ObjectStore) -> Lease:
    found = read_lease(store, SHARD)
    assert found is not None
    return found


# Taking and respecting


def test_a_live_lease_is_respected_and_the_error_says_all(store: LocalStore, take: Take) -> None:
    first = take()
    before = bytes(store.get(PATH))
    with pytest.raises(LeaseHeldError) as caught:
        take()
    text = str(caught.value)
    held = stored(store)
    for said in (
        f"another writer of this process ({held.holder.process_id} on {held.holder.host})",
        f"shard {SHARD} with epoch 1",
        "since 2026-01-15 10:00:00 UTC",
        "until 2026-01-15 10:05:00 UTC",
        "takeover=True",
        PATH,
    ):
        assert said in text
    assert bytes(store.get(PATH)) == before
    first.check()


def test_holders_elsewhere_are_named(take: Take) -> None:
    take(elsewhere="harbour")
    with pytest.raises(LeaseHeldError, match=r"^process \d+ on harbour writes shard"):
        take()


def test_epochs_rise_from_holder_to_holder(store: LocalStore, take: Take) -> None:
    first = take(least_epoch=5)
    assert first.epoch == 5
    first.release()
    # The manifest may know of more, or, after a claim that died early, of fewer.
    assert take(least_epoch=2, takeover=True).epoch == 6
    assert take(least_epoch=9, takeover=True).epoch == 9
    assert stored(store).epoch == 9


def test_a_taken_over_lease_is_lost_at_the_next_renewal(store: LocalStore, take: Take) -> None:
    first = take()
    second = take(takeover=True)
    # Nobody has told the first yet; its writer is stopped by the fence entry.
    first.check()
    with pytest.raises(FencedError, match=r"taken over by another writer of this process .* with epoch 2"):
        first.renew()
    with pytest.raises(FencedError, match="taken over"):
        first.check()
    second.renew()
    second.check()


def test_a_released_lease_stays_and_is_free(store: LocalStore, take: Take) -> None:
    first = take()
    first.release()
    first.release()
    assert stored(store).released
    with pytest.raises(FencedError, match="was released"):
        first.check()
    with pytest.raises(FencedError, match="was released"):
        first.renew()
    assert take().epoch == 2
    assert not stored(store).released


def test_releasing_what_others_hold_leaves_it_to_them(store: LocalStore, take: Take) -> None:
    first = take()
    second = take(takeover=True)
    before = bytes(store.get(PATH))
    first.release()
    assert bytes(store.get(PATH)) == before
    second.renew()


def test_a_deleted_lease_is_lost(store: LocalStore, take: Take) -> None:
    first = take()
    store.delete([PATH])
    with pytest.raises(FencedError, match="is gone"):
        first.renew()


def test_round_trips(store: LocalStore, take: Take) -> None:
    counting = CountingStore(store)
    first = take(counting)
    assert dict(counting.counts) == {"head": 1, "put_if_absent": 1}
    # What version it made, a put does not tell.
    counting.reset()
    first.renew()
    assert dict(counting.counts) == {"compare_and_swap": 1, "get": 1, "head": 1}
    counting.reset()
    first.renew()
    first.renew()
    assert dict(counting.counts) == {"compare_and_swap": 2}
    counting.reset()
    first.check()
    assert not counting.counts
    first.release()
    assert dict(counting.counts) == {"compare_and_swap": 1}
    counting.reset()
    second = take(counting)
    second.renew()
    assert dict(counting.counts) == {"head": 1, "get": 1, "compare_and_swap": 2}


# Time


def test_it_runs_out_and_stops_its_holder(take: Take, clock: FakeClock) -> None:
    first = take()
    clock.pass_time(TTL - 0.001)
    first.check()
    with pytest.raises(LeaseHeldError):
        take()
    clock.pass_time(0.001)
    with pytest.raises(FencedError, match="has expired and was not renewed"):
        first.check()
    # For good: what a writer was refused once, it is refused again.
    with pytest.raises(FencedError, match="has expired"):
        first.renew()
    assert take().epoch == 2


def test_renewals_put_the_end_off(store: LocalStore, take: Take, clock: FakeClock) -> None:
    first = take()
    since = stored(store).acquired_at
    for _ in range(5):
        clock.pass_time(TTL * 0.9)
        first.renew()
        first.check()
        with pytest.raises(LeaseHeldError):
            take()
    assert stored(store).acquired_at == since
    assert stored(store).renewed_at == clock.now()
    assert first.epoch == 1


def test_a_late_renewal_helps_if_nobody_was_faster(take: Take, clock: FakeClock) -> None:
    first = take()
    clock.pass_time(TTL * 2)
    first.renew()
    first.check()
    clock.pass_time(TTL * 2)
    take()
    with pytest.raises(FencedError, match="taken over"):
        first.renew()


@pytest.mark.parametrize("jump", [-86400, -400, 400, 86400])
def test_setting_the_wall_clock_changes_nothing_on_one_system(
    take: Take, clock: FakeClock, jump: float
) -> None:
    first = take()
    clock.set_wall(jump)
    first.check()
    with pytest.raises(LeaseHeldError):
        take()
    first.renew()
    clock.pass_time(TTL - 1)
    clock.set_wall(-jump)
    first.check()
    with pytest.raises(LeaseHeldError):
        take()
    clock.pass_time(1)
    with pytest.raises(FencedError):
        first.check()
    take()


def test_other_systems_allow_for_clocks_that_are_apart(take: Take, clock: FakeClock) -> None:
    first = take(elsewhere="harbour")
    clock.pass_time(TTL)
    # Over for its holder, and not yet for others.
    with pytest.raises(FencedError):
        first.check()
    clock.pass_time(9.9)
    with pytest.raises(LeaseHeldError):
        take()
    clock.pass_time(0.1)
    take()


def test_a_wall_clock_that_was_set_back_does_not_block_for_longer(
    store: LocalStore, take: Take, clock: FakeClock
) -> None:
    take(elsewhere="harbour")
    clock.set_wall(-86400)
    with pytest.raises(LeaseHeldError):
        take()
    # Whoever tries again sees that nothing is renewed.
    clock.pass_time(TTL)
    with pytest.raises(LeaseHeldError):
        take()
    clock.pass_time(10)
    take()


def test_a_lease_that_is_renewed_is_not_taken_for_abandoned(take: Take, clock: FakeClock) -> None:
    first = take(elsewhere="harbour")
    clock.set_wall(-86400)
    for _ in range(10):
        with pytest.raises(LeaseHeldError):
            take()
        clock.pass_time(TTL * 0.9)
        first.renew()


def test_a_slow_answer_does_not_lengthen_the_lease(store: LocalStore, take: Take, clock: FakeClock) -> None:
    class Slow(LocalStore):
        def compare_and_swap(self, path: str, data: Bytes | Sequence[Bytes], expected: str) -> str:
            version = super().compare_and_swap(path, data, expected)
            clock.pass_time(100)
            return version

    first = take(Slow(store.uri, fsync=False))
    first.renew()
    clock.pass_time(TTL - 100)
    with pytest.raises(FencedError):
        first.check()
    take()


# Dead holders

HOLDER = """
import sys
from uuid import UUID
from weir.write.lease.lease import LeaseTerms, ShardLease
from weir.storage.local import LocalStore
ShardLease.acquire(LocalStore(sys.argv[1], fsync=False), UUID(sys.argv[2]), LeaseTerms(), least_epoch=1)
print("held", flush=True)
sys.stdin.read()
"""


def hold_in_another_process(store: LocalStore) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, store.uri, str(SHARD)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"held\n"
    return process


def test_a_dead_process_of_this_system_holds_nothing(store: LocalStore) -> None:
    with hold_in_another_process(store) as process:
        with pytest.raises(LeaseHeldError, match=f"process {process.pid} on"):
            ShardLease.acquire(store, SHARD, LeaseTerms(), least_epoch=1)
        process.kill()
        # It has ended, and stays as a zombie until its parent asks for it.
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        ShardLease.acquire(store, SHARD, LeaseTerms(), least_epoch=1).release()
        assert process.wait() == -signal.SIGKILL
    with hold_in_another_process(store) as process:
        process.kill()
        process.wait()
        assert ShardLease.acquire(store, SHARD, LeaseTerms(), least_epoch=1).epoch == 4


def test_a_process_id_that_was_given_out_again_is_not_the_holder(
    store: LocalStore, take: Take, clock: FakeClock
) -> None:
    take()
    held = stored(store)
    assert held.holder.process_started is not None
    earlier = replace(held.holder, process_started=held.holder.process_started - 1)
    store.put(PATH, lease.encode(replace(held, holder=earlier)))
    take()


@pytest.mark.parametrize("unknown", [{"system": None}, {"system": "another boot"}, {"process_started": None}])
def test_where_it_cannot_be_told_nobody_is_dead(
    store: LocalStore, take: Take, unknown: dict[str, Any]
) -> None:
    take()
    held = stored(store)
    gone = replace(held.holder, **{"process_id": 2**22 + 1, "process_started": 1, **unknown})
    store.put(PATH, lease.encode(replace(held, holder=gone)))
    with pytest.raises(LeaseHeldError):
        take()


# Races


def test_of_many_claims_one_wins(store: LocalStore) -> None:
    claims = 24
    start = threading.Barrier(claims)

    def claim(_: int) -> ShardLease | LeaseHeldError:
        start.wait()
        try:
            return ShardLease.acquire(store, SHARD, LeaseTerms(), least_epoch=1)
        except LeaseHeldError as error:
            return error

    winner: ShardLease | None = None
    for turn in range(1, 4):
        with ThreadPoolExecutor(claims) as pool:
            found = list(pool.map(claim, range(claims)))
        winners = [one for one in found if isinstance(one, ShardLease)]
        assert len(winners) == 1
        (winner,) = winners
        assert winner.epoch == stored(store).epoch == turn
        winner.renew()
        winner.release()


def test_many_take_overs_have_epochs_of_their_own(store: LocalStore) -> None:
    claims = 16
    start = threading.Barrier(claims)

    def claim(_: int) -> ShardLease:
        start.wait()
        taken = ShardLease.acquire(store, SHARD, LeaseTerms(takeover=True), least_epoch=1)
        for _ in range(3):
            try:
                taken.renew()
            except FencedError:
                break
        return taken

    with ThreadPoolExecutor(claims) as pool:
        taken = sorted(pool.map(claim, range(claims)), key=lambda one: one.epoch)
    assert [one.epoch for one in taken] == list(range(1, claims + 1))
    taken[-1].renew()
    for lost in taken[:-1]:
        with pytest.raises(FencedError):
            lost.renew()
    assert stored(store).epoch == claims


class LosesAnswers(LocalStore):
    """Does what it is asked to, and then says that it could not."""

    lose: type[StorageError] | None = None

    def put_if_absent(self, path: str, data: Bytes | Sequence[Bytes]) -> None:
        super().put_if_absent(path, data)
        self._lose(path)

    def compare_and_swap(self, path: str, data: Bytes | Sequence[Bytes], expected: str) -> str:
        version = super().compare_and_swap(path, data, expected)
        self._lose(path)
        return version

    def _lose(self, path: str) -> None:
        lose, self.lose = self.lose, None
        if lose is not None:
            raise lose("the answer was lost", where=path)


def test_an_object_store_that_tried_twice_did_it_for_us(store: LocalStore, take: Take) -> None:
    """The client repeats a request whose answer was lost; the second time the condition fails."""
    flaky = LosesAnswers(store.uri, fsync=False)
    flaky.lose = PreconditionError
    first = take(flaky)
    flaky.lose = PreconditionError
    first.renew()
    flaky.lose = PreconditionError
    first.renew()
    first.check()
    assert first.epoch == stored(store).epoch == 1
    flaky.lose = PreconditionError
    first.release()
    assert stored(store).released
    flaky.lose = PreconditionError
    assert take(flaky).epoch == 2


def test_a_renewal_in_doubt_is_not_counted_on(store: LocalStore, take: Take, clock: FakeClock) -> None:
    flaky = LosesAnswers(store.uri, fsync=False)
    first = take(flaky)
    clock.pass_time(TTL / 2)
    flaky.lose = StorageError
    with pytest.raises(StorageError, match="lost"):
        first.renew()
    # The store has it, others respect it, and we do not know.
    assert stored(store).renewed_at == clock.now()
    clock.pass_time(TTL / 4)
    first.renew()
    clock.pass_time(TTL * 0.9)
    first.check()


# Pauses


def test_a_paused_lease_is_free_and_comes_back_with_one_round_trip(
    store: LocalStore, take: Take, clock: FakeClock
) -> None:
    counting = CountingStore(store)
    first = take(counting)
    first.renew()
    for _ in range(3):
        counting.reset()
        first.pause()
        first.pause()
        assert stored(store).released
        clock.pass_time(TTL * 3)
        # Others would find it free; a heartbeat has nothing to do.
        first.renew()
        assert stored(store).released
        first.check()
        first.check()
        assert not stored(store).released
        assert dict(counting.counts) == {"compare_and_swap": 2}
        with pytest.raises(LeaseHeldError):
            take()
        clock.pass_time(TTL * 0.9)
        first.check()
    assert first.epoch == stored(store).epoch == 1
    first.pause()
    counting.reset()
    first.release()
    assert not counting.counts
    with pytest.raises(FencedError, match="was released"):
        first.check()
    assert take().epoch == 2


def test_a_lease_that_others_have_held_does_not_come_back(store: LocalStore, take: Take) -> None:
    first = take()
    first.pause()
    take().release()
    for _ in range(2):
        with pytest.raises(
            FencedError, match=r"taken over by another writer of this process .* with epoch 2"
        ):
            first.check()
    first.release()
    assert stored(store).epoch == 2
    second = take()
    second.pause()
    third = take()
    with pytest.raises(FencedError, match="with epoch 4"):
        second.check()
    third.check()


def test_pausing_what_others_have_taken(store: LocalStore, take: Take) -> None:
    first = take()
    second = take(takeover=True)
    first.pause()
    second.renew()
    with pytest.raises(FencedError, match="taken over"):
        first.check()


def test_until_when_a_lease_is_certain(store: LocalStore, take: Take, clock: FakeClock) -> None:
    """What is compared before each append says the same as a check does."""
    first = take()
    clock.pass_time(10)
    first.renew()
    assert first.certain_until == clock.uptime() + TTL
    for brief in (False, True):
        first.pause(brief=brief)
        assert first.certain_until == -math.inf
        first.check()
        assert first.certain_until == clock.uptime() + TTL
    second = take(takeover=True)
    with pytest.raises(FencedError, match="taken over"):
        first.renew()
    second.release()
    assert first.certain_until == second.certain_until == -math.inf


def test_a_lease_that_expires_during_its_renewal_stays_lost(
    take: Take, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = take()
    swap = lost._swap

    def swap_late(renewed: Lease) -> None:
        clock.pass_time(TTL)
        with pytest.raises(FencedError, match="expired"):
            lost.check()
        swap(renewed)

    monkeypatch.setattr(lost, "_swap", swap_late)
    lost.renew()
    assert lost.certain_until == -math.inf
    with pytest.raises(FencedError, match="expired"):
        lost.check()


def test_after_a_brief_pause_appends_only_look(store: LocalStore, take: Take, clock: FakeClock) -> None:
    counting = CountingStore(store)
    first = take(counting)
    first.renew()
    first.pause(brief=True)
    for position in range(1, 6):
        counting.reset()
        first.check_to_append()
        first.check_to_append()
        first.last_position = position
        first.pause(brief=True)
        assert dict(counting.counts) == {"head": 1}
        assert (stored(store).released, stored(store).last_position) == (True, 0)
    # What they reached is recorded before long, in the next pause, by the heartbeat, or at the end.
    clock.pass_time(1)
    first.pause(brief=True)
    assert (stored(store).released, stored(store).last_position) == (True, 5)
    first.last_position = 6
    first.renew()
    assert (stored(store).released, stored(store).last_position) == (True, 6)
    # For more than an append it is taken back.
    first.check()
    assert not stored(store).released
    first.pause(brief=True)
    first.last_position = 7
    first.release()
    assert (stored(store).released, stored(store).last_position) == (True, 7)


def test_a_lease_taken_in_a_brief_pause_does_not_come_back(store: LocalStore, take: Take) -> None:
    first = take()
    first.pause(brief=True)
    first.check_to_append()
    first.pause(brief=True)
    second = take()
    for _ in range(2):
        with pytest.raises(FencedError, match="taken over"):
            first.check_to_append()
    second.check()
    # After a pause of the other kind it is taken back.
    second.pause()
    second.check_to_append()
    assert not stored(store).released


def test_of_many_that_come_back_one_does(store: LocalStore, take: Take) -> None:
    """The holder comes back while others take the lease: somebody has it in the end, and only one."""
    for _ in range(20):
        first = take()
        first.pause()

        def contend(number: int, first: ShardLease = first) -> ShardLease | None:
            try:
                if number:
                    return take()
                first.check()
            except (LeaseHeldError, FencedError):
                return None
            return first

        with ThreadPoolExecutor(4) as pool:
            (held,) = [one for one in pool.map(contend, range(4)) if one is not None]
        assert not stored(store).released
        assert stored(store).epoch == held.epoch
        held.release()


def test_a_pause_whose_answers_are_lost(
    store: LocalStore, take: Take, caplog: pytest.LogCaptureFixture
) -> None:
    flaky = LosesAnswers(store.uri, fsync=False)
    first = take(flaky)
    first.renew()
    for lost in (StorageError, PreconditionError):
        flaky.lose = lost
        first.pause()
        assert stored(store).released
        first.check()
        assert not stored(store).released
        first.pause()
        flaky.lose = lost
        if lost is StorageError:
            with pytest.raises(StorageError, match="lost"):
                first.check()
            # Nobody writes with it, as this process knows.
            assert not stored(store).released
        first.check()
        assert first.epoch == stored(store).epoch == 1
    assert caplog.text.count("shard.lease_not_released") == 1
    first.pause()
    flaky.lose = StorageError
    with pytest.raises(StorageError):
        first.check()
    first.release()
    assert stored(store).released


# Damage


def test_a_damaged_lease_is_loud_and_can_be_taken_over(store: LocalStore, take: Take) -> None:
    first = take()
    store.put(PATH, b'{"checksum": "0"}')
    with pytest.raises(CorruptionError, match=r"lease.json.*takeover=True"):
        take()
    with pytest.raises(CorruptionError, match=r"lease\.json"):
        first.renew()
    assert take(takeover=True, least_epoch=4).epoch == 4
    assert stored(store).epoch == 4


def test_a_lease_of_another_shard_is_damage(store: LocalStore, take: Take) -> None:
    take()
    other = replace(stored(store), shard_id=type(SHARD)(int=1))
    store.put(PATH, lease.encode(other))
    with pytest.raises(CorruptionError, match="it is of shard 00000000"):
        take()


# Leases and claims


def test_a_refused_claim_leaves_the_shard_as_it_was(store: LocalStore, open_writer: OpenWriter) -> None:
    first = open_writer(store)
    first.submit(rows((1, "a"))).result()
    before = {meta.path: meta.version for meta in store.list("")}
    for _ in range(3):
        with pytest.raises(LeaseHeldError):
            open_writer(store)
    assert {meta.path: meta.version for meta in store.list("")} == before
    first.submit(rows((2, "b"))).result()
    first.close()
    second = open_writer(store)
    assert second.epoch == 2


def test_the_epoch_is_the_fencing_token(store: LocalStore, open_writer: OpenWriter) -> None:
    for epoch in (1, 2, 3):
        writer = open_writer(store)
        assert writer.epoch == writer.lease.epoch == stored(store).epoch == epoch
        manifest = read_latest_manifest(store, SHARD)
        assert manifest is not None
        assert manifest.writer_epoch == epoch
        writer.abandon()


def test_a_claim_that_died_after_its_lease_costs_an_epoch_at_most(
    store: LocalStore, open_writer: OpenWriter
) -> None:
    open_writer(store).close()
    # As SIGKILL would leave it: nothing is released.
    with pytest.MonkeyPatch.context() as patch, failpoint.armed("claim.between_lease_and_epoch", "raise"):
        patch.setattr(ShardLease, "release", lambda self: None)
        with pytest.raises(FailpointError):
            open_writer(store)
    assert stored(store).epoch == 2
    with pytest.raises(LeaseHeldError):
        open_writer(store)
    assert open_writer(store, takeover=True).epoch == 3


@pytest.mark.parametrize("point", ["claim.between_lease_and_epoch", "claim.between_epoch_and_fence"])
def test_a_failed_claim_lets_go(store: LocalStore, open_writer: OpenWriter, point: str) -> None:
    with failpoint.armed(point, "raise"), pytest.raises(FailpointError):
        open_writer(store)
    assert stored(store).released
    open_writer(store)


def test_a_sealed_shard_has_no_holder(store: LocalStore, open_writer: OpenWriter) -> None:
    open_writer(store).close()
    latest = read_latest_manifest(store, SHARD)
    assert latest is not None
    sealed = replace(latest, version=latest.version + 1, status=ShardStatus.SEALED)
    assert commit_manifest(store, sealed, after=latest) is not None
    with pytest.raises(ShardSealedError):
        open_writer(store)
    assert stored(store).released


def test_a_claim_without_lease_in_between_makes_us_take_the_next_epoch(store: LocalStore) -> None:
    """The released library takes no leases: it may raise the epoch while we are about to."""

    class RacesWithTheLibrary(LocalStore):
        raced = False

        def put_if_absent(self, path: str, data: Bytes | Sequence[Bytes]) -> None:
            if "/manifest/" in path and not self.raced:
                self.raced = True
                claim_shard(store, Wal(store, SHARD, namespace="library"), SHARD, WAL_SCHEMA)
            super().put_if_absent(path, data)

    racing = RacesWithTheLibrary(store.uri, fsync=False)
    claim = claim_shard(
        racing, Wal(racing, SHARD, namespace="ours"), SHARD, WAL_SCHEMA, lease_terms=LeaseTerms()
    )
    assert claim.lease is not None
    assert claim.epoch == claim.lease.epoch == stored(store).epoch == 2


def test_of_two_claims_that_both_take_over_the_later_one_writes(
    store: LocalStore, open_writer: OpenWriter
) -> None:
    """The lease of one is taken before it has raised the epoch: it has to take it again, or stop."""
    second: list[Any] = []

    class IsOvertaken(LocalStore):
        def put_if_absent(self, path: str, data: Bytes | Sequence[Bytes]) -> None:
            if "/manifest/" in path and not second:
                second.append(open_writer(store, takeover=True))
            super().put_if_absent(path, data)

    overtaken = IsOvertaken(store.uri, fsync=False)
    with pytest.raises(LeaseHeldError):
        open_writer(overtaken)
    second[0].submit(rows((1, "a"))).result()
    second.clear()
    first = open_writer(overtaken, takeover=True)
    first.submit(rows((2, "b"))).result()
    with pytest.raises(FencedError):
        second[0].submit(rows((3, "late"))).result()


# Leases and writes


def test_an_expired_lease_stops_the_writer_before_its_next_write(
    store: LocalStore, open_writer: OpenWriter, clock: FakeClock
) -> None:
    counting = CountingStore(store)
    writer = open_writer(counting, lease_terms=LeaseTerms(ttl=TTL, clock=clock))
    writer.submit(rows((1, "a"))).result()
    clock.pass_time(TTL)
    counting.reset()
    with pytest.raises(FencedError, match="has expired"):
        writer.submit(rows((2, "b"))).result()
    # It was not tried: what it did was let go.
    assert counting.counts["put_if_absent"] == 0
    assert stored(store).epoch == 1
    with pytest.raises(FencedError):
        writer.flush()
    with pytest.raises(FencedError):
        writer.submit(rows((3, "c"))).result()
    assert writer.unflushed_rows == 0
    # What was acknowledged is there for the next.
    assert open_writer(store, namespace="next").unflushed_rows == 1


def test_a_lost_lease_stops_the_writer_before_there_is_a_fence(
    store: LocalStore, open_writer: OpenWriter
) -> None:
    """The first of two layers: somebody has taken the lease and not raised the epoch yet."""
    writer = open_writer(store)
    writer.submit(rows((1, "a"))).result()
    ShardLease.acquire(store, SHARD, LeaseTerms(takeover=True), least_epoch=1)
    with pytest.raises(FencedError, match="taken over"):
        writer.lease.renew()
    with pytest.raises(FencedError, match="taken over"):
        writer.submit(rows((2, "b"))).result()
    assert store.head(layout.wal_path(SHARD, 3)) is None
    with pytest.raises(FencedError, match="taken over"):
        writer.flush()
    manifest = read_latest_manifest(store, SHARD)
    assert manifest is not None
    assert (manifest.writer_epoch, manifest.flushed_generations) == (1, ())


def test_the_fence_stops_a_writer_whose_clock_stands_still(
    store: LocalStore, open_writer: OpenWriter, clock: FakeClock
) -> None:
    """The second layer: a process that was stopped for an hour believes in its lease."""
    writer = open_writer(store, lease_terms=LeaseTerms(ttl=TTL, clock=clock))
    writer.submit(rows((1, "a"))).result()
    late = FakeClock()
    late.pass_time(TTL * 12)
    other = open_writer(store, namespace="other", lease_terms=LeaseTerms(ttl=TTL, clock=late))
    writer.lease.check()
    with pytest.raises(FencedError, match="epoch 2"):
        writer.submit(rows((2, "late"))).result()
    other.submit(rows((3, "c"))).result()
    assert other.unflushed_rows == 2


def test_a_fenced_writer_does_not_keep_others_away(store: LocalStore, open_writer: OpenWriter) -> None:
    """A writer without leases claims the shard: ours has to let go of the lease when it finds out."""
    writer = open_writer(store)
    writer.submit(rows((1, "a"))).result()
    claim_shard(store, Wal(store, SHARD, namespace="library"), SHARD, WAL_SCHEMA)
    with pytest.raises(FencedError, match="epoch 2"):
        writer.submit(rows((2, "b"))).result()
    assert stored(store).released
    assert open_writer(store).epoch == 3


def test_a_store_that_fails_leaves_the_lease_to_run_out(
    store: LocalStore, open_writer: OpenWriter, caplog: pytest.LogCaptureFixture
) -> None:
    class FailsOnce(LocalStore):
        fail = False

        def compare_and_swap(self, path: str, data: Bytes | Sequence[Bytes], expected: str) -> str:
            if self.fail:
                raise StorageError("no route to the store", where=path)
            return super().compare_and_swap(path, data, expected)

    failing = FailsOnce(store.uri, fsync=False)
    writer = open_writer(failing)
    writer.submit(rows((1, "a"))).result()
    failing.fail = True
    writer.close()
    assert "shard.lease_not_released" in caplog.text
    assert not stored(store).released
    with another_machine() as terms, pytest.raises(LeaseHeldError):
        open_writer(store, lease_terms=terms)
    # This process knows that nobody writes with it.
    assert open_writer(store).epoch == 2


def test_writing_costs_no_round_trip_for_the_lease(store: LocalStore, open_writer: OpenWriter) -> None:
    counting = CountingStore(store)
    writer = open_writer(counting)
    counting.reset()
    for n in range(10):
        writer.submit(rows((n, "x"))).result()
    assert dict(counting.counts) == {"put_if_absent": 10}


def test_the_lease_is_on_disk_where_the_format_says(store: LocalStore, open_writer: OpenWriter) -> None:
    open_writer(store)
    assert (Path(store.uri) / "_mem_wal" / str(SHARD) / "lease.json").is_file()


def test_a_check_beside_the_end_of_a_long_pause_meets_no_former_deadline(
    take: Take, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes no lock unless the lease is paused, so that has to be so until the deadline is there."""
    paused = take()
    paused.pause()
    clock.pass_time(2 * TTL)
    seen = []
    hold_until = paused._hold_until

    def hold_later(deadline: float) -> None:
        seen.append(paused.is_paused)
        hold_until(deadline)

    monkeypatch.setattr(paused, "_hold_until", hold_later)
    paused.check()
    assert seen == [True]
    assert not paused.is_paused
