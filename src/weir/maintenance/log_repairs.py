"""Repairs of logs: entries of another history, left by a writer under a restored backup, are set aside."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar
from uuid import UUID, uuid4

from weir.format import layout
from weir.log.manifest_store import list_shards, read_latest_manifest
from weir.log.wal import Wal, first_unflushed_position
from weir.storage.interface import ObjectStore

__all__ = ["STRAY_ENTRIES", "SetAsideStrayEntries", "repair_logs"]

STRAY_ENTRIES = "_weir/stray_entries"
"""Directory of the log entries that were set aside."""


@dataclass(frozen=True, slots=True)
class SetAsideStrayEntries:
    """Sets aside log entries that cannot follow their predecessor; until then the shard cannot be read.

    They were written by a writer that continued while its table was replaced by a backup. Their rows belong
    to the table that was there before.

    Parameters
    ----------
    where : str
        The first of them.
    message : str
        The problem, and the repair.
    shard : str
        The shard.
    first, last : int
        Their positions.
    """

    kind: ClassVar[str] = "stray log entries"

    where: str
    message: str
    shard: str
    first: int
    last: int

    def to_dict(self) -> dict[str, Any]:
        """Return the repair as plain values that JSON can hold."""
        return {"kind": self.kind, **asdict(self)}


def repair_logs(store: ObjectStore, namespace: str, *, dry_run: bool = False) -> list[SetAsideStrayEntries]:
    """Set entries aside that are of another history of a log, or say which would be.

    Parameters
    ----------
    store : ObjectStore
        The table's store.
    namespace : str
        Identity of the table.
    dry_run : bool, default False
        Whether only to say what would be done.

    Raises
    ------
    CorruptionError
        An entry or a manifest cannot be read.
    StorageError
        The store failed. What was set aside stays so.
    """
    repairs: list[SetAsideStrayEntries] = []
    for shard_id in list_shards(store):
        stray = _stray_entries(store, shard_id, namespace)
        if stray is None:
            continue
        repairs.append(stray)
        # The last first: who appends where one has been has nothing of them before it.
        for position in () if dry_run else range(stray.last, stray.first - 1, -1):
            path = layout.wal_path(shard_id, position)
            store.copy(path, f"{STRAY_ENTRIES}/{shard_id}/{position}-{uuid4().hex}.arrow")
            store.delete([path])
    return repairs


def _stray_entries(store: ObjectStore, shard_id: UUID, namespace: str) -> SetAsideStrayEntries | None:
    """Return the entries at the end of a log, if none of them can follow its last valid one."""
    manifest = read_latest_manifest(store, shard_id)
    if manifest is None:
        return None
    wal = Wal(store, shard_id, namespace=namespace)
    position = max(first_unflushed_position(manifest), 1)
    first = None
    # It may have been collected: then the first one is checked alone.
    before = wal.read(position - 1, remember=False)
    while (entry := wal.read(position, remember=False)) is not None:
        if before is None or entry.header.may_follow(before.header):
            if first is not None:
                break
            before = entry
        elif first is None:
            first = position
        position += 1
    if first is None or before is None:
        return None
    wal.forget(range(first, position))
    message = (
        f"{position - first} entries, from position {first} on, cannot follow the one before them, of epoch "
        f"{before.header.writer_epoch}: they are set aside"
    )
    return SetAsideStrayEntries(wal.where(first), message, str(shard_id), first, position - 1)
