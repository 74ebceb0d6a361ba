"""Who takes snapshot tokens, and reads at them later."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from tests.simulation.actors import failures_allowed, get_from, planner_of, scan_snapshot
from tests.simulation.scheduler import Process
from tests.simulation.world import World

from weir.errors import SnapshotExpiredError
from weir.format.snapshot_token import SnapshotToken
from weir.snapshots.capture import SnapshotCapture
from weir.snapshots.snapshot import STRONG
from weir.snapshots.time_travel import TokenReader
from weir.snapshots.tokens import release_token, take_token

__all__ = ["Traveller"]

_CLOCKS_DIFFER_SECONDS = 2.0


@dataclass(slots=True)
class _Held:
    """A token, and until when what it needs is kept."""

    text: str
    positions: dict[UUID, int]
    kept_until: float


class Traveller:
    """A process that takes snapshots, keeps their tokens as text, and reads at them again and again.

    Parameters
    ----------
    world : World
        Where.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._held: list[_Held] = []
        self.process: Process | None = None
        """The last process it has run in."""

    def run(self, rounds: int, process: Process) -> bool:
        """Take tokens and read at them."""
        world, self.process = self._world, process
        for _ in range(rounds):
            world.scheduler.sleep(world.random.expovariate(1 / world.scenario.pace))
            if not self._held or world.random.random() < 0.4:
                with failures_allowed(world, process), world.within_the_horizon():
                    self._take()
            else:
                held = world.random.choice(self._held)
                with failures_allowed(world, process), world.within_the_horizon():
                    self._read(held)
        return False

    def read_all(self) -> None:
        """Read once more at every token."""
        for held in self._held:
            with self._world.within_the_horizon():
                self._read(held)

    def _take(self) -> None:
        world = self._world
        retain = world.random.choice([None, timedelta(hours=1), timedelta(days=30)])
        began = world.scheduler.now
        window = world.checker.window()
        try:
            token = take_token(world.store, SnapshotCapture(world.store, world.open_base()), retain)
        except SnapshotExpiredError:
            world.checker.count("snapshots that expired while they were taken")
            return
        positions = {cut.shard_id: cut.position for cut in token.shards}
        world.checker.cut(window, positions, who="snapshot token")
        world.checker.count("snapshot tokens")
        seconds = retain.total_seconds() - _CLOCKS_DIFFER_SECONDS if retain else 0.0
        self._held.append(_Held(str(token), positions, began + seconds))

    def _read(self, held: _Held) -> None:
        world = self._world
        token = SnapshotToken.parse(held.text)
        reader = TokenReader(world.store, world.open_base())
        keys = world.draw_keys() if world.random.random() < 0.4 else None
        try:
            with reader.reading(token):
                snapshot = reader.take(token)
                if keys is None:
                    rows = scan_snapshot(planner_of(world), snapshot, STRONG)
                else:
                    rows = get_from(world, snapshot, keys)
        except SnapshotExpiredError as error:
            world.checker.count("tokens that had expired")
            if world.scheduler.now < held.kept_until and not world.checker.has_wrong_clocks:
                world.checker.fail("I8", f"a token that is kept has expired: {error}")
            self._held.remove(held)
            return
        world.checker.saw_exactly(held.positions, rows, who="read at a token", keys=keys)
        if world.random.random() < 0.1:
            held.kept_until = 0.0
            release_token(world.store, token)
