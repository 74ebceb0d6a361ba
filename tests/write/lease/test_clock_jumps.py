"""Whatever the clocks of a holder and of a claimer do, no position is acknowledged to both.

Each writer has a machine of its own, or both have one; before the claim, the clocks of one of them are
set forward or back, sleep, or stand still while the other's go on. Time is passed by hand.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
from tests.write.clocks import FakeClock
from tests.write.conftest import SHARD, OpenWriter, rows

from weir.errors import FencedError, LeaseHeldError
from weir.log.manifest_store import read_latest_manifest
from weir.log.wal import Wal
from weir.storage.local import LocalStore
from weir.write.lease.lease_owner import new_lease_owner
from weir.write.lease.lease_terms import LeaseTerms
from weir.write.shard_writer import ShardWriter

TTL = 300.0


@dataclass
class Machine:
    """A system with clocks of its own, and the writer that runs there."""

    name: str
    clock: FakeClock
    writer: ShardWriter | None = None

    def terms(self) -> LeaseTerms:
        return LeaseTerms(ttl=TTL, clock=self.clock, holder=replace(new_lease_owner(), system=self.name))


Jump = Callable[[FakeClock], None]

JUMPS: dict[str, Jump] = {
    "none": lambda clock: None,
    "a day forward": lambda clock: clock.set_wall(86_400),
    "a day back": lambda clock: clock.set_wall(-86_400),
    "a little forward": lambda clock: clock.set_wall(5),
    "a little back": lambda clock: clock.set_wall(-5),
    "sleeps": lambda clock: clock.pass_time(TTL * 2),
}


@pytest.mark.one_in(5)
@pytest.mark.parametrize("renews", [True, False], ids=["heartbeat", "no heartbeat"])
@pytest.mark.parametrize("claimer_jump", JUMPS)
@pytest.mark.parametrize("holder_jump", JUMPS)
@pytest.mark.parametrize("machines", ["one machine", "two machines"])
def test_no_position_is_acknowledged_twice(
    store: LocalStore,
    open_writer: OpenWriter,
    machines: str,
    holder_jump: str,
    claimer_jump: str,
    renews: bool,
) -> None:
    holder = Machine("a", FakeClock())
    claimer = Machine("a", holder.clock) if machines == "one machine" else Machine("b", FakeClock())
    acknowledged: list[tuple[str, int, int]] = []

    def write(who: str, writer: ShardWriter | None) -> None:
        if writer is None:
            return
        key = len(acknowledged)
        try:
            acknowledged.append((who, writer.submit(rows((key, who))).result(), key))
            # From its claim on the claimer alone is acknowledged, whatever the holder believes.
            assert who == "claimer" or claimer.writer is None
        except FencedError:
            # For good: it is never acknowledged anything again.
            with pytest.raises(FencedError):
                writer.submit(rows((key, who))).result()

    holder.writer = open_writer(store, "holder", lease_terms=holder.terms())
    write("holder", holder.writer)
    JUMPS[holder_jump](holder.clock)
    JUMPS[claimer_jump](claimer.clock)
    for _ in range(8):
        if claimer.writer is None:
            with contextlib.suppress(LeaseHeldError):
                claimer.writer = open_writer(store, "claimer", lease_terms=claimer.terms())
        for machine in {id(one.clock): one for one in (holder, claimer)}.values():
            machine.clock.pass_time(TTL / 4)
        if renews:
            for machine in (holder, claimer):
                if machine.writer is not None:
                    with contextlib.suppress(FencedError):
                        machine.writer.lease.renew()
        write("holder", holder.writer)
        write("claimer", claimer.writer)
        write("holder", holder.writer)

    positions = [position for _, position, _ in acknowledged]
    assert len(set(positions)) == len(positions)
    # One writer after the other: once the claimer has been acknowledged, the holder never is again.
    writers = [who for who, _, _ in sorted(acknowledged, key=lambda one: one[1])]
    assert writers == sorted(writers, key=["holder", "claimer"].index)
    assert [who for who, _, _ in acknowledged] == writers
    # What stands at each position is what was acknowledged there.
    manifest = read_latest_manifest(store, SHARD)
    assert manifest is not None
    stands = {
        entry.position: [
            (row["value"], row["id"]) for batch in entry.entry.batches for row in batch.to_pylist()
        ]
        for entry in Wal(store, SHARD, namespace=f"{store.uri} read anew").read_tail(manifest)
    }
    for who, position, key in acknowledged:
        assert stands[position] == [(who, key)]
    if not renews:
        # Nobody is locked out for longer than a lease and the allowance for clocks.
        assert claimer.writer is not None
    elif holder_jump == claimer_jump == "none":
        assert claimer.writer is None
