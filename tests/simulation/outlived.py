"""A writer that is taken over while it looks away, and goes on as if nothing had happened.

What fences it shows only if it writes at the place that its successor claimed, before anything else stands
there, or when all that stood there may have been collected. Chance brings that about once in hundreds
of histories; here it is what everything is about.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from tests.simulation.actors import collect_once, failures_allowed, merge_once, open_writer, write_once
from tests.simulation.scheduler import Process
from tests.simulation.world import World

__all__ = ["Outlived"]

_LEASE_SECONDS = 86_400.0
"""Renewed after hours only: nothing but the fence tells who was taken over."""
_COLLECTIONS = 4


class Outlived:
    """One writer after the other, each of which is taken over and then writes once more.

    Parameters
    ----------
    world : World
        Where.
    name : str
        Of the processes that take over.
    """

    def __init__(self, world: World, name: str) -> None:
        self._world = world
        self._name = name
        self._shard = world.random.choice(world.scenario.shards)

    def run(self, rounds: int, process: Process) -> bool:
        """Be taken over some times."""
        world = self._world
        for number in range(rounds):
            options = replace(world.scenario.draw_options(takes_over=True), lease_ttl=_LEASE_SECONDS)
            writer = open_writer(world, process, self._shard, options)
            if writer is None:
                continue
            if write_once(world, writer, self._shard):
                is_late = world.scenario.time is not None and world.random.random() < 0.5
                successor = world.process(f"{self._name}.successor{number}")
                take_over = partial(self._take_over, successor, is_late)
                world.scheduler.join(world.scheduler.spawn(successor, "main", take_over))
                write_once(world, writer, self._shard)
            writer.abandon()
        return False

    def _take_over(self, process: Process, is_late: bool) -> None:
        """Claim the shard; and leave nothing of it, if that is what the one before is to wake up to."""
        world = self._world
        options = replace(world.scenario.draw_options(takes_over=True), lease_ttl=_LEASE_SECONDS)
        writer = open_writer(world, process, self._shard, options)
        if writer is None or not is_late:
            return
        with failures_allowed(world, process):
            write_once(world, writer, self._shard)
            writer.close()
            with world.within_the_horizon():
                merge_once(world)
            assert world.scenario.time is not None
            for _ in range(_COLLECTIONS):
                with world.within_the_horizon():
                    collect_once(world, dry_run=False)
                world.let_time_pass(world.scenario.time.horizon.total_seconds() + 1)
