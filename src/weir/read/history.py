"""Finding an earlier state of a table from what is still stored.

Everything is searched by halves: the log position up to which generations cover a shard, and the generation
up to which the base table contains it, never go back from one version to the next.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from uuid import UUID

import numpy as np

from weir.base.table import BaseTable
from weir.base.versions import details_at, list_versions
from weir.format import layout
from weir.format.index_details import IndexDetails
from weir.format.shard_manifest import ShardManifest
from weir.format.snapshot_token import SnapshotToken
from weir.read.as_of import before_the_first
from weir.read.cut import Cut, cut_at
from weir.read.expiry import expired
from weir.shard.manifest_store import read_manifest_version
from weir.storage.interface import ObjectStore

__all__ = ["earliest_position", "place_token", "state_token"]


def earliest_position(store: ObjectStore, shard_id: UUID, last: int) -> int:
    """Return the position before the oldest log entry from which on every entry up to ``last`` is stored.

    Fence entries that are kept below it do not count. One listing of the shard's log.

    Parameters
    ----------
    last : int
        The last position there is.
    """
    names = (meta.path.rsplit("/", 1)[-1] for meta in store.list(layout.wal_directory(shard_id)))
    found = []
    for name in names:
        try:
            found.append(layout.parse_wal_name(name))
        except ValueError:
            continue
    positions = np.unique(np.array(found, dtype=np.uint64)).astype(np.int64)
    positions = positions[positions <= last][::-1]
    # Without a gap the n-th from the end is n below the last.
    gaps = np.flatnonzero(positions != last - np.arange(len(positions)))
    unbroken = int(gaps[0]) if gaps.size else len(positions)
    return max(last - unbroken, 0)


def place_token(cut: Cut, positions: Mapping[UUID, int]) -> SnapshotToken:
    """Return the token of a place in the change feed, which names no state."""
    cuts = (
        cut_at(before_the_first(manifest), positions[shard_id])
        for shard_id, manifest in sorted(cut.manifests.items())
    )
    return SnapshotToken(cut.base.identity, 0, tuple(cuts))


def state_token(store: ObjectStore, cut: Cut, positions: Mapping[UUID, int]) -> SnapshotToken:
    """Return the token of the state at some positions, found among the versions that are still stored.

    Parameters
    ----------
    store : ObjectStore
        The table's store.
    cut : Cut
        A later state.
    positions : mapping of UUID to int
        For each shard of ``cut``, the last log position that counts.

    Raises
    ------
    SnapshotExpiredError
        If a part of that state is gone.
    """
    manifests = {
        shard_id: _manifest_at(store, manifest, positions[shard_id])
        for shard_id, manifest in sorted(cut.manifests.items())
    }
    version = _base_version(cut.base, manifests)
    cuts = (cut_at(manifest, positions[shard_id]) for shard_id, manifest in manifests.items())
    return SnapshotToken(cut.base.identity, version, tuple(cuts))


def _manifest_at(store: ObjectStore, newest: ShardManifest, position: int) -> ShardManifest:
    """Return the newest manifest that covers nothing after a position."""
    shard_id = newest.shard_id
    if position == 0:
        return before_the_first(newest)
    if newest.replay_after_wal_entry_position <= position:
        return newest
    known = {newest.version: newest}

    def covers_more(version: int) -> bool:
        manifest = known.get(version) or read_manifest_version(store, shard_id, version)
        if manifest is None:
            return False  # collected: so are all before it
        known[version] = manifest
        return manifest.replay_after_wal_entry_position > position

    after = bisect_left(range(newest.version + 1), True, lo=1, key=covers_more)
    found = known.get(after - 1)
    if found is None:
        path = layout.manifest_directory(shard_id)
        raise expired(f"the manifest of shard {shard_id} at WAL position {position}", f"{store.uri}/{path}")
    return found


def _base_version(base: BaseTable, manifests: Mapping[UUID, ShardManifest]) -> int:
    """Return the newest version of the base table that contains nothing flushed after some manifests."""

    def contains_more(version: int) -> bool:
        details = details_at(base, version)
        # Versions from before the table was made a Weir table have no details, and are older.
        return details is not None and any(
            merged.generation >= manifests[merged.shard_id].current_generation
            for merged in details.merged_generations
            if merged.shard_id in manifests
        )

    versions = [one.version for one in list_versions(base.store) if one.version <= base.version]
    at = bisect_left(versions, True, key=contains_more) - 1
    details = details_at(base, versions[at]) if at >= 0 else None
    if details is None:
        raise expired("the version of the base table that the change feed begins with", base.uri)
    for manifest in manifests.values():
        _check_complete(base, details, manifest)
    return versions[at]


def _check_complete(base: BaseTable, details: IndexDetails, manifest: ShardManifest) -> None:
    """Refuse a manifest off whose list a generation was taken that the base version still lacks."""
    merged = details.merged_generation(manifest.shard_id)
    listed = {one.generation for one in manifest.flushed_generations}
    for generation in range(merged + 1, manifest.current_generation):
        if generation not in listed:
            raise expired(f"generation {generation} of shard {manifest.shard_id}", base.uri)
