"""Who damages a log entry, and looks whether anybody takes it for what was written."""

from __future__ import annotations

from tests.simulation.actors import open_writer, scan
from tests.simulation.scheduler import Process
from tests.simulation.world import World, as_batch

from weir.config import WriterOptions
from weir.errors import CorruptionError
from weir.format import layout
from weir.snapshots.snapshot import STRONG, SnapshotReader

__all__ = ["damage_and_look"]


def damage_and_look(world: World, process: Process) -> None:
    """Write a row, damage a bit of its log entry, and read and claim the shard: both have to fail.

    The last thing that happens to a shard.
    """
    shard = world.random.choice(world.scenario.shards)
    writer = open_writer(world, process, shard, WriterOptions(takeover=True))
    if writer is None:
        world.checker.fail("progress", "a shard cannot be claimed with no faults about")
        return
    rows = world.draw_rows(shard)
    write = world.checker.began(shard, rows)
    position = writer.submit(as_batch(rows)).result()
    world.checker.acknowledged(write, position)
    writer.abandon()
    path = layout.wal_path(shard, position)
    bit = world.store.damage(path)
    where = f"bit {bit} of {path} was flipped, and"
    # As another process would: it has read none of it before.
    process.memory.clear()
    try:
        shown = scan(world, SnapshotReader(world.store, world.open_base()), STRONG)
    except CorruptionError:
        world.checker.count("damaged entries refused")
    except Exception as error:
        world.checker.fail("I11", f"{where} a read goes on with it: {error!r}")
    else:
        world.checker.fail("I11", f"{where} a read shows {shown.to_pylist()}")
    try:
        claimed = open_writer(world, process, shard, WriterOptions(takeover=True))
    except CorruptionError:
        return
    except Exception as error:
        world.checker.fail("I11", f"{where} a claim goes on with it: {error!r}")
        return
    world.checker.fail("I11", f"{where} a claim made {claimed}")
