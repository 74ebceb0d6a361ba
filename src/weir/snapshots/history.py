"""Finding an earlier state of a table from what is still stored.

Everything is searched by halves: the log position up to which generations cover a shard, and the generation
up to which the base table contains it, never go back from one version to the next.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from datetime import datetime
from itertools import pairwise
from uuid import UUID

import numpy as np

from weir.base.table import BaseTable
from weir.base.torn_versions import unreadable_history
from weir.base.versions import TableVersion, details_at, list_versions
from weir.errors import CorruptionError
from weir.format import layout
from weir.format.garbage_marks import Marks
from weir.format.resharding import has_begun
from weir.format.shard_manifest import ShardManifest
from weir.format.snapshot_token import STAMP_BYTES, SnapshotToken
from weir.log.manifest_store import read_manifest_version
from weir.log.wal import Wal
from weir.snapshots.capture import Cut, cut_at
from weir.snapshots.expiry import expired
from weir.snapshots.time_travel import before_the_first
from weir.storage.interface import ObjectStore

__all__ = ["earliest_change", "earliest_position", "place_token", "state_token"]

_NOTHING_MARKED = Marks()
_BEGINNING = "the version of the base table that the change feed begins with"


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


def earliest_change(store: ObjectStore, cut: Cut, shard_id: UUID) -> int:
    """Return the position before the oldest change from which on every change is stored.

    That is more than the log from there on: an entry may name generations that were published beside it, and
    outlive them. It does so for long if they are the last that were merged: their entry follows what the
    merged generations cover of the log.
    """
    earliest = earliest_position(store, shard_id, cut.positions[shard_id])
    newest = cut.manifests[shard_id]
    merged = cut.base.details.merged_generation(shard_id)
    if merged <= 0 < earliest:
        _refuse_uncovered(store, newest, merged, earliest)
    if not 0 < merged < newest.current_generation:
        return earliest
    _, published = _around(store, newest, lambda manifest: manifest.current_generation > merged)
    if earliest > published.replay_after_wal_entry_position:
        _refuse_uncovered(store, newest, merged, earliest)
    place = published.replay_after_wal_entry_position + 1
    if not earliest < place <= cut.positions[shard_id]:
        return earliest
    entry = Wal(store, shard_id, namespace=cut.base.namespace).read(place, remember=False)
    listed = {one.path for one in newest.flushed_generations}
    if entry is None or listed.issuperset(entry.header.published):
        return earliest
    # An unlisted object may be deleted at any moment.
    return place


def _refuse_uncovered(store: ObjectStore, newest: ShardManifest, merged: int, position: int) -> None:
    """Refuse a log that is gone beyond what merged generations cover, and marks that make no generation."""
    covering: ShardManifest | None = newest
    if newest.current_generation > merged + 1:
        # The last one that has nothing else.
        covering, _ = _around(store, newest, lambda manifest: manifest.current_generation > merged + 1)
    covered = 0 if covering is None else covering.replay_after_wal_entry_position
    if position > covered:
        raise _lost(store, newest.shard_id, position, covered)


def _lost(store: ObjectStore, shard_id: UUID, position: int, covered: int) -> CorruptionError:
    """Return the error for a missing entry that cannot have been collected."""
    return CorruptionError(
        f"WAL entry {position} of shard {shard_id} is gone, and collection cannot have removed it: what is "
        f"merged covers entries up to {covered}",
        where=f"{store.uri}/{layout.wal_path(shard_id, position)} (position {position})",
        hint="Restore it from a backup; the table still has its rows if a generation covers it",
    )


def place_token(cut: Cut, positions: Mapping[UUID, int]) -> SnapshotToken:
    """Return the token of a place in the change feed, which names no state."""
    cuts = (
        cut_at(before_the_first(manifest), positions[shard_id], cut.entry_at(shard_id, positions[shard_id]))
        for shard_id, manifest in sorted(cut.manifests.items())
    )
    return SnapshotToken(cut.base.identity, 0, tuple(cuts))


def state_token(
    store: ObjectStore, cut: Cut, positions: Mapping[UUID, int], marks: Marks = _NOTHING_MARKED
) -> SnapshotToken:
    """Return the token of the state at some positions, found among the versions that are still stored.

    Parameters
    ----------
    store : ObjectStore
        The table's store.
    cut : Cut
        A later state.
    positions : mapping of UUID to int
        For each shard of ``cut``, the last log position that counts.
    marks : Marks, optional
        The garbage marks: versions of the base table and generations about to be removed are ignored.

    Raises
    ------
    SnapshotExpiredError
        If a part of that state is gone.
    """
    manifests = {
        shard_id: _manifest_at(store, cut.base.namespace, manifest, positions[shard_id])
        for shard_id, manifest in sorted(cut.manifests.items())
    }
    rule = _rule_reached(cut, positions)
    version = _base_version(cut.base, cut, manifests, marks.swept_versions, rule)
    _refuse_gone_generations(cut.base, version, manifests, marks)
    cuts = (
        cut_at(manifest, positions[shard_id], cut.entry_at(shard_id, positions[shard_id]))
        for shard_id, manifest in manifests.items()
    )
    stamp = cut.base.version_identity[:STAMP_BYTES] if version == cut.base.version else b""
    return SnapshotToken(cut.base.identity, version, tuple(cuts), base_stamp=stamp)


def _refuse_gone_generations(
    base: BaseTable, version: int, manifests: Mapping[UUID, ShardManifest], marks: Marks
) -> None:
    """Refuse manifests with generations that are not in a version of the base table, and collected.

    They are, once a later version has them and their shard lists them no more, though the manifest and the
    version may both be stored still. One listing for each shard with such generations.
    """
    details = details_at(base, version)
    for shard_id, manifest in manifests.items():
        merged = 0 if details is None else details.merged_generation(shard_id)
        read = [one for one in manifest.flushed_generations if one.generation > merged]
        if not read:
            continue
        stored = set(base.store.list_directories(layout.shard_directory(shard_id)))
        stored -= marks.of(shard_id).swept.directories
        for one in read:
            if one.path not in stored:
                where = f"{base.uri}/{layout.generation_path(shard_id, one.path)}"
                raise expired(f"generation {one.generation} of shard {shard_id}", where)


def _manifest_at(store: ObjectStore, namespace: str, newest: ShardManifest, position: int) -> ShardManifest:
    """Return the newest manifest that has nothing of what comes after a position."""
    shard_id = newest.shard_id
    if position == 0:
        return before_the_first(newest)
    following = _generation_after(store, namespace, newest, position)

    def has_more(manifest: ShardManifest) -> bool:
        if manifest.replay_after_wal_entry_position > position:
            return True
        return following is not None and manifest.current_generation > following

    if not has_more(newest):
        return newest
    found, _ = _around(store, newest, has_more)
    if found is None:
        path = layout.manifest_directory(shard_id)
        raise expired(f"the manifest of shard {shard_id} at WAL position {position}", f"{store.uri}/{path}")
    return found


def _around(
    store: ObjectStore, newest: ShardManifest, holds: Callable[[ShardManifest], bool]
) -> tuple[ShardManifest | None, ShardManifest]:
    """Return the first stored manifest for which something holds, after its predecessor if that is stored.

    It holds for the newest, and for all after one for which it holds.
    """
    known = {newest.version: newest}

    def holds_at(version: int) -> bool:
        manifest = known.get(version) or read_manifest_version(store, newest.shard_id, version)
        if manifest is None:
            return False  # collected: so are all before it
        known[version] = manifest
        return holds(manifest)

    first = bisect_left(range(newest.version + 1), True, lo=1, key=holds_at)
    return known.get(first - 1), known[first]


def _generation_after(store: ObjectStore, namespace: str, newest: ShardManifest, position: int) -> int | None:
    """Return the generation that the first rows after a position are in, or will be, if it is recorded.

    A manifest that has it may cover no more of the log than one from before: where it was published beside
    the log, and where the library has flushed it (:mod:`weir.log.replay`).
    """
    if newest.current_generation == 1:
        return None
    wal = Wal(store, newest.shard_id, namespace=namespace)
    for item in wal.read_from(position + 1, remember=False):
        header = item.entry.header
        if header.published:
            # Manifests written by early versions do not say.
            return header.published_from or None
        if item.entry.num_rows:
            return header.generation
    return None


def _rule_reached(cut: Cut, positions: Mapping[UUID, int]) -> int | None:
    """Return the newest rule of a resharded table whose shards begin at some positions, or have begun.

    They begin when all shards of former rules have been read to their ends. None for the first rule.
    """
    rules = sorted({manifest.shard_spec_id for manifest in cut.manifests.values()})
    reached = None
    for before, rule in pairwise(rules):
        if any(
            positions[shard_id] < cut.positions[shard_id]
            for shard_id, manifest in cut.manifests.items()
            if manifest.shard_spec_id <= before
        ):
            break
        reached = rule
    return reached


def _first_of_rule(base: BaseTable, versions: Sequence[int], rule: int) -> int:
    """Return the version that completed the resharding by a rule: former shards are merged, its own are not.

    Raises
    ------
    SnapshotExpiredError
        If it is gone.
    """

    def is_done(version: int) -> bool:
        details = details_at(base, version)
        return details is not None and has_begun(details, rule)

    at = bisect_left(versions, True, key=is_done)
    if at == len(versions) or not at or versions[at - 1] != versions[at] - 1:
        raise expired(f"the version with which shard spec {rule} began", base.uri)
    return versions[at]


def _base_version(
    base: BaseTable,
    newest: Cut,
    manifests: Mapping[UUID, ShardManifest],
    swept: Collection[int],
    rule: int | None,
) -> int:
    """Return a version of the base table that goes with some manifests.

    It lacks no generation that they do not list, and shows nothing that was flushed after them. For the
    second it is not enough that nothing newer is marked as merged: a merge deletes before it inserts, and
    of its two commits only the last marks anything.
    """
    versions = _kept_versions(base, swept)
    try:
        return _version_among(versions, base, newest, manifests, rule)
    except CorruptionError:
        # A version torn by a power loss is below the newest version until it is set aside, and no manifests
        # go with it. Its size does not show it: it may have full length, with zeros at its end.
        torn = {one.version for one in unreadable_history(base.store)} if base.store.is_local else set()
        # Listed again: another process may have set it aside since.
        sound = [one for one in _kept_versions(base, swept) if one.version not in torn]
        if {one.version for one in sound}.issuperset(one.version for one in versions):
            raise
        return _version_among(sound, base, newest, manifests, rule)


def _kept_versions(base: BaseTable, swept: Collection[int]) -> list[TableVersion]:
    """Return the versions up to that of a table, ascending, without those being swept."""
    return [
        one for one in list_versions(base.store) if one.version <= base.version and one.version not in swept
    ]


def _version_among(
    versions: Sequence[TableVersion],
    base: BaseTable,
    newest: Cut,
    manifests: Mapping[UUID, ShardManifest],
    rule: int | None,
) -> int:
    """Return which of some versions, ascending, goes with some manifests. What it returns it has read."""
    begun = None
    if rule is not None:
        # What former shards have left is in no level of the shards that followed them.
        begun = _first_of_rule(base, [one.version for one in versions], rule)
        versions = [one for one in versions if one.version >= begun]
    first = bisect_left(versions, True, key=lambda one: not _lacking(base, one.version, manifests))
    if first == len(versions):
        raise expired(_lacking(base, versions[-1].version, manifests), base.uri)
    # Nothing could delete for a generation before it was listed.
    listed_at = [
        _listed_at(base.store, manifest)
        for shard_id, manifest in manifests.items()
        if manifest.version != newest.manifests[shard_id].version
    ]
    for one in reversed(versions[first:]):
        earlier = all(time is not None and one.committed_at < time for time in listed_at)
        if earlier and not _contains_more(base, one.version, manifests):
            return one.version
    version, stored = versions[first].version, {one.version for one in versions}
    if not _contains_more(base, version, manifests) and (
        version == begun
        or all(
            manifest.version == newest.manifests[shard_id].version
            or _is_first(base, stored, version, manifest)
            for shard_id, manifest in manifests.items()
        )
    ):
        return version
    raise expired(_BEGINNING, base.uri)


def _listed_at(store: ObjectStore, manifest: ShardManifest) -> datetime | None:
    """Return when the generation was listed that comes after a manifest, by the clock of the store."""
    following = store.head(layout.manifest_path(manifest.shard_id, manifest.version + 1))
    return None if following is None else following.last_modified


def _contains_more(base: BaseTable, version: int, manifests: Mapping[UUID, ShardManifest]) -> bool:
    """Whether a version contains a generation that was flushed after the manifests."""
    details = details_at(base, version)
    return details is not None and any(
        details.merged_generation(shard_id) >= manifest.current_generation
        for shard_id, manifest in manifests.items()
    )


def _is_first(base: BaseTable, versions: Set[int], version: int, manifest: ShardManifest) -> bool:
    """Whether a version is certainly the first of all that a manifest can be read with.

    Generations are removed from the list of a shard when some version has all of them, and the committer of
    the first such version cannot have known those flushed since then.
    """
    details = details_at(base, version)
    if version == 1 or (details is not None and not details.merged_generations):
        return True  # a merge also marks its deletes
    return version - 1 in versions and bool(_lacking(base, version - 1, {manifest.shard_id: manifest}))


def _lacking(base: BaseTable, version: int, manifests: Mapping[UUID, ShardManifest]) -> str:
    """Return what neither a version contains nor the manifests list; the empty text if nothing."""
    details = details_at(base, version)
    if details is None:
        # From before the table was made a Weir table, and so older than all that have details.
        return _BEGINNING
    for shard_id, manifest in manifests.items():
        listed = {one.generation for one in manifest.flushed_generations}
        for generation in range(details.merged_generation(shard_id) + 1, manifest.current_generation):
            if generation not in listed:
                return f"generation {generation} of shard {shard_id}"
    return ""
