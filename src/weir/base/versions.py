"""The existing versions of the base table: what each of them needs, and removal of old ones.

Lance MemWAL spec, "Garbage Collector": a generation stays as long as a retained version of the base table
references it. A version references the generations that the shard snapshot in its own MemWAL index lists
and that are above its own merge progress: they are what a reader at that version reads besides it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from uuid import UUID

import xxhash

from weir.base.dataset import open_dataset
from weir.base.file_checksums import forget_checksums
from weir.base.library_errors import LIBRARY_ERRORS, storage_failure
from weir.base.manifest import VERSIONS, manifest_version, read_manifest
from weir.base.published import read_published
from weir.base.table import BaseTable
from weir.engine.concurrent_map import concurrent_map
from weir.errors import FirstIndexError, ObjectNotFoundError
from weir.format.index_details import IndexDetails
from weir.format.shard_snapshot import snapshot_path
from weir.storage.interface import ObjectStore

__all__ = [
    "TableVersion",
    "details_at",
    "latest_at",
    "list_versions",
    "referenced_generations",
    "remove_versions",
    "tagged_versions",
]


@dataclass(frozen=True, slots=True)
class TableVersion:
    """A version of the base table that exists.

    Parameters
    ----------
    version : int
        The version.
    committed_at : datetime
        When it was committed, by the clock of the store, in UTC.
    nbytes : int
        Size of its manifest.
    """

    version: int
    committed_at: datetime
    nbytes: int


def list_versions(store: ObjectStore) -> tuple[TableVersion, ...]:
    """Return every version of the base table, ascending. One listing."""
    found = {}
    for entry in store.list(VERSIONS):
        version = manifest_version(entry.path)
        if version is not None:
            found[version] = TableVersion(version, entry.last_modified, entry.size)
    return tuple(found[version] for version in sorted(found))


def latest_at(versions: Sequence[TableVersion], time: datetime) -> TableVersion | None:
    """Return the version that was the newest at some time; None if none is that old.

    Readers that opened the table since then read this version or a later one.

    Parameters
    ----------
    versions : sequence of TableVersion
        Those that exist, ascending.
    time : datetime
        By the clock of the store.
    """
    older = [one for one in versions if one.committed_at <= time]
    return older[-1] if older else None


def details_at(base: BaseTable, version: int) -> IndexDetails | None:
    """Return the details of the MemWAL index at a version; None if either does not exist."""
    index = _index_at(base, version)
    return None if index is None else index.details


@dataclass(frozen=True, slots=True)
class _Index:
    """The MemWAL index of a version."""

    id: UUID
    details: IndexDetails


def _index_at(base: BaseTable, version: int) -> _Index | None:
    if version == base.version:
        return _Index(base.index_id, base.details)

    def load() -> tuple[_Index | None, int]:
        try:
            manifest = read_manifest(base.store, version)
        except ObjectNotFoundError:
            return None, 0
        entry = manifest.mem_wal_index()
        if entry is None:
            return None, 0
        try:
            details = manifest.decode_details(entry)
        except FirstIndexError:
            # One from before an upgrade: no present shard belongs to it.
            return None, 0
        return _Index(entry.uuid, details), 256 + len(details.inline_snapshots or b"")

    found = base.engine.cache.get_or_load(
        ("details", base.namespace, version), load, lambda loaded: loaded[1]
    )
    return found[0]


def referenced_generations(
    base: BaseTable, versions: Iterable[int], candidates: Mapping[UUID, Collection[str]]
) -> dict[UUID, dict[str, int]]:
    """Return which generations versions reference, and the newest version that does.

    Parameters
    ----------
    base : BaseTable
        The table at any version.
    versions : iterable of int
        The versions to ask.
    candidates : mapping of UUID to collection of str
        The directories in question, per shard.

    Returns
    -------
    dict of UUID to dict of str to int
        Per shard, the version by directory.

    Raises
    ------
    CorruptionError
        A version's MemWAL index or shard snapshot cannot be read.
    """
    referenced: dict[UUID, dict[str, int]] = {}
    if not any(candidates.values()):
        return referenced
    for version, index in _read_indexes(base, sorted(versions)):
        if index is None:
            continue
        for shard_id, listed in _listed(base, version, index).items():
            merged = index.details.merged_generation(shard_id)
            for path in candidates.get(shard_id, ()):
                if listed.get(path, 0) > merged:
                    referenced.setdefault(shard_id, {})[path] = version
    return referenced


def _read_indexes(base: BaseTable, versions: Sequence[int]) -> Iterator[tuple[int, _Index | None]]:
    read = concurrent_map(
        partial(_index_at, base), versions, is_local=base.store.is_local, engine=base.engine
    )
    yield from zip(versions, read, strict=True)


def _listed(base: BaseTable, version: int, index: _Index) -> dict[UUID, dict[str, int]]:
    """Return the generations in a published shard snapshot: number by directory, per shard."""
    where = f"{base.uri}, MemWAL index of version {version}"

    def load() -> dict[UUID, dict[str, int]]:
        return {
            manifest.shard_id: {one.path: one.generation for one in manifest.flushed_generations}
            for manifest in read_published(base.store, index.details, index.id, where=where)
        }

    # A merge makes several versions with one and the same snapshot.
    inline = index.details.inline_snapshots
    same: object = xxhash.xxh3_128_digest(inline) if inline else None
    if same is None:
        same = snapshot_path(index.details, index.id, where=where)
    if same is None:
        return {}
    return base.engine.cache.get_or_load(
        ("listed", base.namespace, same), load, lambda found: 256 * sum(map(len, found.values())) + 256
    )


def tagged_versions(store: ObjectStore) -> frozenset[int]:
    """Return the versions that have a tag of the library's."""
    dataset = open_dataset(store)
    try:
        tags = dataset.tags.list()
    except LIBRARY_ERRORS as error:
        raise storage_failure(error, "listing the table's tags", where=store.uri) from error
    return frozenset(int(tag["version"]) for tag in tags.values())


def remove_versions(store: ObjectStore, versions: Collection[int]) -> int:
    """Remove versions of the base table, and the files that only they refer to.

    Exactly these versions: commits that come in meanwhile change nothing. The newest version and those
    with a tag stay, even if they are named.

    Returns
    -------
    int
        Bytes removed.

    Raises
    ------
    StorageError
        If the library cannot remove them. Those removed are gone; call it again.
    """
    if not versions:
        return 0
    dataset = open_dataset(store)
    try:
        stats = dataset.cleanup_old_versions(versions=sorted(versions), error_if_tagged_old_versions=False)
    except LIBRARY_ERRORS as error:
        raise storage_failure(error, "removing old versions of the table", where=store.uri) from error
    forget_checksums(store)
    return int(stats.bytes_removed)
