"""The progress of a shard's sources at the start of replay, even if the library wrote its newest manifest.

Writers of the released library leave Weir's record out of their manifests, and take over what Weir's have
left in the log. Then the newest manifest that has the record still says what was true where its own replay
started, and the log entries after that, up to where the newest manifest's starts, say what has come since.
Garbage collection keeps both as long as the newest manifest has no record, and every claim by Weir records
again what it has found (:mod:`weir.write.claim`).
"""

from __future__ import annotations

from uuid import UUID

from weir.errors import CorruptionError
from weir.format.shard_manifest import ShardManifest
from weir.format.source import SourceMarks
from weir.log.manifest_store import read_manifest_version
from weir.log.wal import Wal
from weir.storage.interface import ObjectStore

__all__ = ["newest_record", "recorded_sources"]


def recorded_sources(store: ObjectStore, wal: Wal, latest: ShardManifest) -> SourceMarks:
    """Return the marks of everything that is before the place where replay starts.

    Costs nothing where the newest manifest has them, as all of Weir's do.

    Parameters
    ----------
    store : ObjectStore
        The table's store.
    wal : Wal
        The shard's log.
    latest : ShardManifest
        The shard's newest manifest.

    Raises
    ------
    CorruptionError
        If log entries that show it are gone.
    """
    if latest.sources is not None:
        return latest.sources
    record = newest_record(store, latest.shard_id, latest.version - 1)
    if record is None or record.sources is None:
        return SourceMarks()
    marks = record.sources
    position, last = record.replay_after_wal_entry_position, latest.replay_after_wal_entry_position
    for item in wal.read_from(position + 1, last, remember=False):
        header = item.entry.header
        marks = marks.with_marks(header.sources, header.answers, item.position)
        position = item.position
    if position < last:
        raise CorruptionError(
            f"log entries that record repeatable writes of shard {latest.shard_id} are gone: its newest "
            f"manifest does not record them, version {record.version} does up to position "
            f"{record.replay_after_wal_entry_position}, and replay starts after {last}",
            where=wal.where(position + 1),
            hint="Restore the log entry from a backup",
        )
    return marks


def newest_record(store: ObjectStore, shard_id: UUID, version: int) -> ShardManifest | None:
    """Return the newest manifest up to ``version`` that has the record; None if none has."""
    while version >= 1:
        manifest = read_manifest_version(store, shard_id, version)
        if manifest is None or manifest.sources is not None:
            return manifest
        version -= 1
    return None
