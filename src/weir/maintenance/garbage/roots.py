"""The roots of a table: what its versions, snapshot tokens and feed consumers need.

The newest version of the base table records what is merged, and how far its maintained indexes are. Every
version that exists needs the generations that its own MemWAL index lists and has not merged: a reader at that
version combines it with these. A version retained with everything readable at its time needs every generation
above its merge progress. A token or a consumer names manifests: it needs them, those generations they list
that its base version lacks, and the log from a position on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from weir.base.maintained_indexes import maintained_indexes
from weir.base.table import BaseTable
from weir.base.versions import details_at, referenced_generations
from weir.maintenance.garbage.state import ShardRoots, ShardState
from weir.snapshots.tokens import Root

__all__ = ["Alive", "Progress", "progress_of", "shard_roots"]


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the generations of a shard have come.

    Parameters
    ----------
    merged : int
        The newest generation in the base table.
    caught_up : int
        The newest generation that every maintained index covers.
    lagging_index : str
        The index that covers least, if it lags.
    """

    merged: int
    caught_up: int
    lagging_index: str


@dataclass(frozen=True, slots=True)
class Alive:
    """What is alive in a table.

    Parameters
    ----------
    base : BaseTable
        Its newest version.
    versions : tuple of int
        The versions of the base table that exist, and stay.
    recent : tuple of int
        Those of them that were the newest at some time within the horizon.
    retained_from : int, optional
        The oldest version to retain with everything readable at its time.
    roots : tuple of Root
        Pinned snapshots and feed consumers.
    """

    base: BaseTable
    versions: tuple[int, ...]
    recent: tuple[int, ...] = ()
    retained_from: int | None = None
    roots: tuple[Root, ...] = ()

    def named_manifests(self, shard_id: UUID) -> tuple[int, ...]:
        """Return the manifest versions of a shard that roots name."""
        named = {
            shard.manifest_version
            for root in self.roots
            for shard in root.shards
            if shard.shard_id == shard_id and shard.manifest_version is not None
        }
        return tuple(sorted(named))


def progress_of(base: BaseTable, shard_ids: Iterable[UUID]) -> dict[UUID, Progress]:
    """Return how far each shard has come in a version of the base table.

    An index that the catch-up record does not name has caught up with nothing, whatever the written spec
    says: the released library removes the entry of an index that it changes.
    """
    details = base.details
    catchup = {one.index_name: one.caught_up for one in details.index_catchup}
    indexes = maintained_indexes(base)
    found = {}
    for shard_id in shard_ids:
        merged = details.merged_generation(shard_id)
        behind = {
            name: max(
                (one.generation for one in catchup.get(name, ()) if one.shard_id == shard_id), default=0
            )
            for name in indexes
        }
        slowest = min(behind, key=behind.__getitem__, default="")
        caught_up = min(behind.get(slowest, merged), merged)
        found[shard_id] = Progress(merged, caught_up, slowest if caught_up < merged else "")
    return found


@dataclass(slots=True)
class _Needs:
    """What is needed of a shard, collected step by step."""

    generations: dict[str, str] = field(default_factory=dict)
    first_position: int | None = None
    position_reason: str = ""
    first_manifest: int | None = None
    manifest_reason: str = ""
    places: dict[int, str] = field(default_factory=dict)

    def add_position(self, position: int, reason: str) -> None:
        if self.first_position is None or position < self.first_position:
            self.first_position, self.position_reason = position, reason

    def add_manifest(self, version: int, reason: str) -> None:
        if self.first_manifest is None or version < self.first_manifest:
            self.first_manifest, self.manifest_reason = version, reason


def shard_roots(
    alive: Alive, progress: Mapping[UUID, Progress], states: Mapping[UUID, ShardState]
) -> dict[UUID, ShardRoots]:
    """Return what is needed of each shard.

    Parameters
    ----------
    alive : Alive
        What is alive.
    progress : mapping of UUID to Progress
        How far each shard has come.
    states : mapping of UUID to ShardState
        The shards, with the manifests that roots name.

    Raises
    ------
    CorruptionError
        The MemWAL index of a version of the base table cannot be read.
    """
    needs = {shard_id: _Needs() for shard_id in states}
    for root in alive.roots:
        _add_root(alive.base, root, states, needs)
    for shard_id, state in states.items():
        if state.record is not None:
            # Until a writer of Weir claims the shard and records it again (weir.log.recorded_sources).
            reason = "they tell which repeatable writes the shard has"
            needs[shard_id].add_manifest(state.record.version, reason)
            needs[shard_id].add_position(state.record.replay_after_wal_entry_position + 1, reason)
    if alive.retained_from is not None:
        _add_retained(alive.base, alive.retained_from, states, needs)
    _add_opened(alive, progress, states, needs)
    candidates = {
        shard_id: [
            name
            for name, directory in state.directories.items()
            if directory.generation <= progress[shard_id].caught_up
            and name not in needs[shard_id].generations
        ]
        for shard_id, state in states.items()
    }
    for shard_id, found in referenced_generations(alive.base, alive.versions, candidates).items():
        for name, version in found.items():
            needs[shard_id].generations[name] = f"listed by version {version} of the base table"
    return {
        shard_id: ShardRoots(
            merged=progress[shard_id].merged,
            caught_up=progress[shard_id].caught_up,
            lagging_index=progress[shard_id].lagging_index,
            generations=need.generations,
            first_position=need.first_position,
            position_reason=need.position_reason,
            first_manifest=need.first_manifest,
            manifest_reason=need.manifest_reason,
            places=need.places,
        )
        for shard_id, need in needs.items()
    }


def _add_root(
    base: BaseTable, root: Root, states: Mapping[UUID, ShardState], needs: Mapping[UUID, _Needs]
) -> None:
    reason = f"needed by {root.holder}"
    for shard_id, need in needs.items():
        position = root.first_position(shard_id)
        if position is not None:
            need.add_position(position, reason)
    details = None if root.base_version is None else details_at(base, root.base_version)
    for shard in root.shards:
        state = states.get(shard.shard_id)
        if state is not None and shard.place:
            needs[shard.shard_id].places.setdefault(shard.place, f"{root.holder} goes on after it")
        if state is None or shard.manifest_version is None:
            continue
        need = needs[shard.shard_id]
        need.add_manifest(shard.manifest_version, reason)
        # Without its base version it is unknown what it lacks: everything its manifest lists is kept.
        merged = 0 if details is None else details.merged_generation(shard.shard_id)
        manifest = state.named.get(shard.manifest_version)
        for one in () if manifest is None else manifest.flushed_generations:
            if one.generation > merged:
                need.generations.setdefault(one.path, reason)


def _add_opened(
    alive: Alive,
    progress: Mapping[UUID, Progress],
    states: Mapping[UUID, ShardState],
    needs: Mapping[UUID, _Needs],
) -> None:
    """Keep generations listed that readers which opened the table before their merge still need.

    LanceDB, and users of the library's scanner, read the version they have opened together with the
    generations that the newest manifests list: rows missing from both are missing from the result.
    """
    merged = {
        shard_id: [
            one for one in state.latest.flushed_generations if one.generation <= progress[shard_id].merged
        ]
        for shard_id, state in states.items()
    }
    if not any(merged.values()):
        return
    opened = [details for one in alive.recent if (details := details_at(alive.base, one)) is not None]
    for shard_id, generations in merged.items():
        before = min((one.merged_generation(shard_id) for one in opened), default=0)
        for flushed in generations:
            if flushed.generation > before:
                reason = "merged less than a horizon ago: it is read beside versions that lack it"
                needs[shard_id].generations.setdefault(flushed.path, reason)


def _add_retained(
    base: BaseTable, version: int, states: Mapping[UUID, ShardState], needs: Mapping[UUID, _Needs]
) -> None:
    details = details_at(base, version)
    for shard_id, state in states.items():
        merged = 0 if details is None else details.merged_generation(shard_id)
        # The merge progress of later versions is not below it. What failed flushes have left is in no list.
        listed = {one.path for one in state.latest.flushed_generations}
        for name, directory in state.directories.items():
            if directory.generation > merged and name in listed:
                reason = f"version {version} of the base table is retained"
                needs[shard_id].generations.setdefault(name, reason)
