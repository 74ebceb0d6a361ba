"""Power cuts: every process dies at one moment, and what nobody has synced may vanish.

Weir's own objects are on the disk once they are there. What the library writes is not until somebody syncs
it: files of generations and of the base table, and versions that plain Lance commits. Of its versions the
newest may vanish, with or without their files. Some that are there are torn: their manifest is empty, or
files of theirs are gone. Other tests cut the power of a real disk to see what is torn in real files.
"""

from __future__ import annotations

from tests.simulation.library import number_of
from tests.simulation.world import World

__all__ = ["power_cuts"]

_VERSIONS = "_versions/"
_WAITS = 0.7
"""How often it waits for a version that can be lost."""
_UNSYNCED_SECONDS = 600.0
"""No system keeps what was written from the disk for longer."""
_BETWEEN = 40
"""Services run about so often between two cuts."""


def power_cuts(world: World, times: int) -> None:
    """Cut the power some times, at moments that the seed chooses."""
    for _ in range(times):
        world.scheduler.sleep(world.random.expovariate(1 / (_BETWEEN * world.scenario.pace)))
        if world.random.random() < _WAITS:
            for _ in range(_BETWEEN):
                if any(path.startswith(_VERSIONS) for path in world.store.unsynced):
                    break
                world.scheduler.sleep(world.random.expovariate(1 / world.scenario.pace))
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
    lost = versions[: world.random.randint(0, len(versions))] if world.random.random() < 0.5 else []
    left = versions[len(lost) :]
    torn = [path for path in left[: world.random.randint(0, len(left))] if _is_recent(world, path)]
    needed = world.library.files_of_versions(number_of(path) for path in left[len(torn) :])
    gone = lost + [
        path
        for path in unsynced
        if path not in versions and path not in needed and world.random.random() < 0.5
    ]
    for path in gone:
        store.lose(path)
    for path in torn:
        # Those whose files are all there by chance are torn in their manifests.
        if world.random.random() < 0.5 or world.library.tear_in(store.objects[path].data) is None:
            store.cut_short(path)
    checker.count("objects lost with the power", len(gone))
    checker.count("versions lost with the power", len(lost))
    checker.count("versions torn by the power", len(torn))
    if lost or torn:
        checker.lost_versions()


def _is_recent(world: World, path: str) -> bool:
    """Whether a version is as young as those are that one loss of power tears."""
    return world.scheduler.now - world.store.objects[path].modified < _UNSYNCED_SECONDS
