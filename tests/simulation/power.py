"""Power cuts: every process dies at one moment, and what nobody has synced may vanish.

Weir's own objects are on the disk once they are there. What the library writes is not until somebody syncs
it: files of generations and of the base table, and versions that plain Lance commits. Of its versions the
newest may vanish, with or without their files; a version that is there has all of them. Weir finds versions
that are torn by looking at real files: its own tests cut the power of a real disk for that.
"""

from __future__ import annotations

from tests.simulation.library import number_of
from tests.simulation.world import World

__all__ = ["power_cuts"]

_VERSIONS = "_versions/"
_BETWEEN = 40
"""Services run about so often between two cuts."""


def power_cuts(world: World, times: int) -> None:
    """Cut the power some times, at moments that the seed chooses."""
    for _ in range(times):
        world.scheduler.sleep(world.random.expovariate(1 / (_BETWEEN * world.scenario.pace)))
        _cut(world)


def _cut(world: World) -> None:
    store, checker = world.store, world.checker
    unsynced = sorted(store.unsynced)
    store.note(f"the power is cut, and {len(unsynced)} objects are not synced")
    checker.count("power cuts")
    world.boots += 1
    store.power_fails()
    for process in world.processes:
        if process.may_crash and process.alive:
            world.scheduler.crash(process)
    versions = [path for path in unsynced if path.startswith(_VERSIONS)]
    # Names of manifests count down: the newest comes first.
    lost = versions[: world.random.randint(0, len(versions))]
    kept = [number_of(path) for path in versions[len(lost) :]]
    needed = world.library.files_of_versions(kept)
    gone = lost + [
        path
        for path in unsynced
        if path not in versions and path not in needed and world.random.random() < 0.5
    ]
    for path in gone:
        store.lose(path)
    checker.count("objects lost with the power", len(gone))
    checker.count("versions lost with the power", len(lost))
    if lost:
        checker.lost_versions()
