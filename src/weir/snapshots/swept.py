"""What collections are about to delete, so that no new reader relies on it (invariant I9).

A collection announces what it is about to delete, and then checks again who needs something. A consumer of
the change feed stores its position, and then checks the announcements. So either the collection sees the
consumer and deletes nothing, or the consumer sees what will be deleted and begins after it, however long
either of them sleeps.
"""

from __future__ import annotations

from weir.base.table import BaseTable
from weir.base.versions import details_at
from weir.errors import ObjectNotFoundError, SnapshotExpiredError
from weir.format import garbage_marks
from weir.format.garbage_marks import MARKS, Marks
from weir.log.manifest_store import read_manifest_version
from weir.snapshots.expiry import changes_gone, expired
from weir.snapshots.roots import Root, ShardRoot
from weir.storage.interface import ObjectStore

__all__ = ["read_marks", "swept_part"]


def read_marks(store: ObjectStore) -> Marks:
    """Return the marks of the table; none if nothing was ever marked. One round trip.

    Raises
    ------
    CorruptionError
        If they are not what was written.
    """
    try:
        data = store.get(MARKS)
    except ObjectNotFoundError:
        return Marks()
    with store.naming(MARKS) as where:
        return garbage_marks.decode(data, where=where)


def swept_part(base: BaseTable, root: Root, marks: Marks) -> SnapshotExpiredError | None:
    """Return the error that says what of the needs of a root is about to be deleted; None if nothing is.

    Parameters
    ----------
    base : BaseTable
        The base table at any version.
    root : Root
        The root that needs something.
    marks : Marks
        Read after the root was stored.
    """
    store = base.store
    if root.base_version in marks.swept_versions:
        return expired(f"version {root.base_version} of the base table", base.uri)
    needs = {shard.shard_id: shard for shard in root.shards}
    for shard_id, one in marks.shards.items():
        first = root.first_position(shard_id)
        if first is not None and first <= one.swept.log:
            return changes_gone(store, shard_id, max(first, 1))
        shard = needs.get(shard_id)
        if shard is None or shard.manifest_version is None:
            continue
        if shard.manifest_version <= one.swept.manifests:
            return expired(f"version {shard.manifest_version} of the manifest of shard {shard_id}", base.uri)
        if one.swept.directories and (lost := _lost_generation(base, root, shard, one.swept.directories)):
            return expired(f"generation {lost} of shard {shard_id}", base.uri)
    return None


def _lost_generation(
    base: BaseTable, root: Root, shard: ShardRoot, directories: frozenset[str]
) -> int | None:
    """Return a generation that a root reads besides its base version, and that is about to be deleted."""
    assert shard.manifest_version is not None
    manifest = read_manifest_version(base.store, shard.shard_id, shard.manifest_version)
    details = None if root.base_version is None else details_at(base, root.base_version)
    merged = 0 if details is None else details.merged_generation(shard.shard_id)
    return next(
        (
            one.generation
            for one in (() if manifest is None else manifest.flushed_generations)
            if one.path in directories and one.generation > merged
        ),
        None,
    )
