"""Recovery: flushing the rows that vanished writers left in the write-ahead logs of shards.

Acknowledged rows are safe in the log, and read from there; but only a writer of the shard flushes them, and
until then they are not merged. A shard without a writer would wait for ever. Recovery claims it, replays,
flushes, and releases it. It takes the lease like every writer, and so leaves a shard with a live writer
alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any
from uuid import UUID, uuid4

from weir.base.table import BaseTable
from weir.engine.logs import get_logger
from weir.engine.runner import Runner
from weir.errors import FencedError, LeaseHeldError, ShardSealedError, WeirError
from weir.format.lease import Lease
from weir.format.shard_manifest import ShardManifest
from weir.log.read_lease import read_lease
from weir.maintenance.claimed_shard import claimed_shard
from weir.notebook import ShownAsTable
from weir.snapshots.shard_view import ShardView
from weir.storage.interface import ObjectStore
from weir.write.lease.lease_owner import new_lease_owner
from weir.write.lease.lease_terms import LeaseTerms

__all__ = [
    "RecoverReport",
    "RecoverTask",
    "ShardRecovery",
    "is_unleased",
    "recover_shard",
    "recover_shards",
]

_log = get_logger(__name__)

_UNLEASED = (
    "it was written without a lease, so that nobody can tell whether its writer lives; "
    "recovery claims it only if it is told to claim unleased shards too, which fences that writer"
)


@dataclass(frozen=True, slots=True)
class RecoverTask:
    """Recover one shard. Picklable, stateless.

    Parameters
    ----------
    store : ObjectStore
        The table's store.
    shard_id : UUID
        The shard.
    unleased : bool
        Whether to claim it although no writer has ever taken a lease on it.
    holder_id : str
        Id of the lease holder: 32 hex digits. Default: random. A task that is rerun because its outcome is
        unknown, perhaps on another machine, takes over its own lease; if both runs are alive, the epoch
        separates them like any two writers.
    """

    store: ObjectStore
    shard_id: UUID
    unleased: bool
    holder_id: str = field(default_factory=lambda: uuid4().hex)


@dataclass(frozen=True, slots=True)
class ShardRecovery:
    """What was done for one shard that had rows in its log.

    Parameters
    ----------
    shard_id : UUID
        The shard.
    rows : int
        Rows that were replayed and flushed; fewer if a task was run again after its first run had flushed
        some.
    skipped : str
        Why the shard was skipped; empty if it was recovered.
    """

    shard_id: UUID
    rows: int
    skipped: str = ""


@dataclass(frozen=True, slots=True)
class RecoverReport(ShownAsTable):
    """What a recovery did.

    Parameters
    ----------
    shards : tuple of ShardRecovery
        The shards that had rows in their logs, by id.
    """

    shards: tuple[ShardRecovery, ...]

    @property
    def recovered(self) -> int:
        """Shards whose rows were flushed."""
        return sum(not one.skipped for one in self.shards)

    @property
    def rows(self) -> int:
        """Rows that were flushed."""
        return sum(one.rows for one in self.shards)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain values that JSON can hold."""
        shards = [{**asdict(one), "shard_id": str(one.shard_id)} for one in self.shards]
        return {"recovered": self.recovered, "rows": self.rows, "shards": shards}


def recover_shard(task: RecoverTask) -> ShardRecovery | WeirError:
    """Claim a shard, flush its log, and release it; or leave it alone and say why.

    Returns
    -------
    ShardRecovery or WeirError
        An error is returned, so that it does not stop the recovery of other shards.
    """
    try:
        return _recover(task)
    except (LeaseHeldError, ShardSealedError) as error:
        return ShardRecovery(task.shard_id, 0, error.message)
    except FencedError as error:
        return ShardRecovery(task.shard_id, 0, f"somebody else has claimed it meanwhile: {error.message}")
    except WeirError as error:
        return error


def _recover(task: RecoverTask) -> ShardRecovery:
    if not task.unleased and read_lease(task.store, task.shard_id) is None:
        return ShardRecovery(task.shard_id, 0, _UNLEASED)
    base = BaseTable.open(task.store)
    holder = replace(new_lease_owner(), holder_id=task.holder_id)
    with claimed_shard(base, task.shard_id, LeaseTerms(holder=holder)) as writer:
        rows = writer.unflushed_rows
        writer.flush()
    _log.info("shard.recovered", shard=str(task.shard_id), epoch=writer.epoch, rows=rows)
    return ShardRecovery(task.shard_id, rows)


def is_unleased(lease: Lease | None, manifest: ShardManifest) -> bool:
    """Whether a shard has no lease, or was claimed without one since the last."""
    return lease is None or lease.epoch < manifest.writer_epoch


def recover_shards(
    store: ObjectStore,
    views: Sequence[ShardView],
    runner: Runner,
    *,
    unleased: bool = False,
    on_progress: Callable[[int, int], None] | None = None,
) -> RecoverReport:
    """Flush the logs of shards without a writer.

    Parameters
    ----------
    store : ObjectStore
        The table's store.
    views : sequence of ShardView
        Every shard as it is now.
    runner : Runner
        Executes one task per shard that has rows in its log.
    unleased : bool
        Whether to claim shards on which no writer has ever taken a lease.
    on_progress : callable, optional
        Called with (shards done, shards in all).

    Raises
    ------
    WeirError
        The first failure, after every other shard has been recovered.
    """
    tasks = [RecoverTask(store, view.shard_id, unleased) for view in views if view.tail_rows]
    done: list[ShardRecovery | WeirError] = []
    for outcome in runner.run(recover_shard, tasks):
        done.append(outcome)
        if on_progress is not None:
            on_progress(len(done), len(tasks))
    for outcome in done:
        if isinstance(outcome, WeirError):
            raise outcome
    recovered = [outcome for outcome in done if isinstance(outcome, ShardRecovery)]
    return RecoverReport(tuple(sorted(recovered, key=lambda one: one.shard_id)))
