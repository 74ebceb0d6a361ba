"""Deleting what is due in one shard."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from weir.engine import failpoint
from weir.errors import ObjectNotFoundError
from weir.format import layout, version_hint
from weir.format.version_hint import VersionHint
from weir.storage.interface import ObjectStore

__all__ = ["Sweep", "sweep_shard"]


@dataclass(frozen=True, slots=True)
class Sweep:
    """The task of deleting objects of a shard. Picklable; run twice, it does the same.

    Parameters
    ----------
    store : ObjectStore
        The table's store.
    shard_id : UUID
        The shard.
    log : tuple of str, default ()
        Paths of log entries.
    directories : mapping of str to tuple of str, default {}
        Objects of generations, by the name of the directory.
    manifests : tuple of int, default ()
        Manifest versions, ascending.
    hint : VersionHint, optional
        The newest manifest; needed where ``manifests`` names any.
    """

    store: ObjectStore
    shard_id: UUID
    log: tuple[str, ...] = ()
    directories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    manifests: tuple[int, ...] = ()
    hint: VersionHint | None = None

    def __bool__(self) -> bool:
        """Whether there is anything to delete."""
        return bool(self.log or self.directories or self.manifests)


def sweep_shard(sweep: Sweep) -> UUID:
    """Delete what a sweep names and return the shard."""
    store = sweep.store
    failpoint.reach("garbage.before_delete")
    _delete_directories(sweep)
    if sweep.log:
        store.delete(sweep.log)
    failpoint.reach("garbage.before_delete_manifests")
    if sweep.manifests:
        _advance_hint(sweep)
    for version in sweep.manifests:
        # One by one, from the lowest up: a version that exists proves that those above it do
        # (weir.log.manifest_store), and one call may delete its objects in any order.
        store.delete([layout.manifest_path(sweep.shard_id, version)])
        failpoint.reach("garbage.between_manifests")
    failpoint.reach("garbage.after_delete")
    return sweep.shard_id


def _delete_directories(sweep: Sweep) -> None:
    if not sweep.directories:
        return
    heads: list[str] = []
    rest: list[str] = []
    for name, paths in sweep.directories.items():
        versions = f"{layout.generation_path(sweep.shard_id, name)}/_versions/"
        for path in paths:
            (heads if path.startswith(versions) else rest).append(path)
    # Without its manifest no dataset can be opened: half a generation is never read.
    sweep.store.delete(heads)
    failpoint.reach("garbage.between_deletes")
    sweep.store.delete(rest)


def _advance_hint(sweep: Sweep) -> None:
    """Let the version hint name a manifest that stays, which saves readers a listing."""
    path = layout.version_hint_path(sweep.shard_id)
    try:
        hinted = version_hint.decode(sweep.store.get(path))
    except ObjectNotFoundError:
        hinted = None
    if sweep.hint is not None and (hinted is None or hinted.version <= sweep.manifests[-1]):
        sweep.store.put(path, version_hint.encode(sweep.hint))
