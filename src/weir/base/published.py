"""Shard snapshots as published in the MemWAL index: read without opening any shard manifest.

Lance MemWAL spec, "Shard Snapshot Storage": inline in the index details for few shards, in a separate file
for many. The file is written under the future id of the index, and then published with it; if that never
happens, nothing refers to it, and Lance's cleanup removes it with other unreferenced indexes.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID, uuid4

import pyarrow as pa
from lance.file import LanceFileReader, LanceFileWriter

from weir.base.details_commit import commit_details
from weir.base.library_errors import is_panic
from weir.base.publish import SegmentChange
from weir.base.scratch import readable_file, scratch_directory
from weir.base.table import BaseTable
from weir.errors import ConflictError, CorruptionError, ObjectNotFoundError
from weir.format import shard_snapshot
from weir.format.index_details import IndexDetails
from weir.format.shard_manifest import ShardManifest
from weir.format.shard_snapshot import INLINE_SHARDS
from weir.indexing.library_message import library_message
from weir.storage.interface import Bytes, ObjectStore

__all__ = [
    "commit_shards",
    "decode_snapshot",
    "is_left_behind",
    "publish_shards",
    "published_shards",
    "read_published",
]


def published_shards(base: BaseTable) -> tuple[ShardManifest, ...]:
    """Return the shard manifests that the MemWAL index of this version publishes.

    Nothing is read for an inline snapshot, one object for one in a file, and that once per version.

    Raises
    ------
    CorruptionError
        If the published object is not a valid shard snapshot.
    """
    details = base.details
    where = f"{base.uri}, MemWAL index of version {base.version}"
    if not details.inline_snapshots and not details.snapshot_ts_millis:
        return ()
    return base.engine.cache.get_or_load(
        ("published", base.namespace, base.version_key),
        lambda: read_published(base.store, details, base.index_id, where=where),
        lambda shards: 512 * len(shards) + 128 * sum(len(one.flushed_generations) for one in shards),
        base.lifetime,
    )


def read_published(
    store: ObjectStore, details: IndexDetails, index_id: UUID, *, where: str
) -> tuple[ShardManifest, ...]:
    """Return the shard manifests that some details publish, by ascending shard id.

    A file that is gone counts as a snapshot of no shards. Only the version that it was published with
    refers to it in a way that Lance's cleanup knows of, and a later one may outlive that version. Such a
    reader sees the base table alone: less fresh, and right.

    Parameters
    ----------
    store : ObjectStore
        The table's store.
    details : IndexDetails
        Details of the MemWAL index.
    index_id : UUID
        Id of the index.
    where : str
        The version they are of, for errors.

    Raises
    ------
    CorruptionError
        If the published object is not a valid shard snapshot.
    """
    if details.inline_snapshots:
        inside = f"{where}, inline_snapshots"
        shard_snapshot.prove(details.inline_snapshots, details, where=inside)
        return decode_snapshot(details.inline_snapshots, inside)
    path = shard_snapshot.snapshot_path(details, index_id, where=where)
    if path is None:
        return ()
    try:
        data = store.get(path)
    except ObjectNotFoundError:
        return ()
    shard_snapshot.prove(data, details, where=f"{store.uri}/{path}")
    return decode_snapshot(data, f"{store.uri}/{path}")


def is_left_behind(base: BaseTable) -> bool:
    """Whether the file of the published snapshot belongs to an older version alone.

    Lance's cleanup will remove it with that version. Publishing again attaches it to the newest one.
    """
    try:
        record = shard_snapshot.recorded(base.details, where=base.uri)
    except CorruptionError:
        return True  # to be replaced
    return record is not None and record.directory not in (None, base.index_id)


def publish_shards(
    base: BaseTable,
    manifests: Sequence[ShardManifest],
    value_types: Mapping[str, pa.DataType] | None = None,
) -> BaseTable:
    """Publish the state of shards in the MemWAL index.

    Returns the table's new version. The published state of a shard never regresses: of two concurrent
    publications, the newer manifest of each shard stays.

    Parameters
    ----------
    base : BaseTable
        The table at any version.
    manifests : sequence of ShardManifest
        The shards. Others that are published already stay.
    value_types : mapping of str to DataType, optional
        The type of each shard field (:func:`weir.format.shard_snapshot.to_table`).

    Raises
    ------
    ConflictError
        If concurrent commits did not settle.
    """
    before, version = commit_shards(base, manifests, value_types)
    return before if version == before.version else before.latest()


def commit_shards(
    base: BaseTable,
    manifests: Sequence[ShardManifest],
    value_types: Mapping[str, pa.DataType] | None = None,
    *,
    segments: SegmentChange | None = None,
    is_newest: bool = False,
) -> tuple[BaseTable, int]:
    """Do as :func:`publish_shards`, without opening the version that was committed.

    Parameters
    ----------
    base, manifests, value_types
        As there.
    segments, is_newest
        As for :func:`~weir.base.details_commit.commit_details`, which also says what is returned.
    """
    directory = uuid4()
    path = shard_snapshot.external_path(directory)
    written = False

    def published(details: IndexDetails) -> IndexDetails:
        nonlocal written
        shards = _newest_of_each([*_published_before(base.store, details), *manifests])
        data = _to_lance_bytes(shard_snapshot.to_table(shards, value_types))
        now = int(time.time() * 1000)
        if len(shards) > INLINE_SHARDS:
            base.store.put(path, data)
            written = True
        place = directory if len(shards) > INLINE_SHARDS else None
        return shard_snapshot.published(details, len(shards), data, directory=place, taken_at_millis=now)

    try:
        return commit_details(base, published, index_id=directory, segments=segments, is_newest=is_newest)
    except ConflictError:
        # Every race was lost. After any other failure the outcome is unknown: the version may exist.
        if written:
            base.store.delete([path])
        raise


def _published_before(store: ObjectStore, details: IndexDetails) -> tuple[ShardManifest, ...]:
    try:
        # Weir records where its file is; the id of the index is not needed.
        return read_published(store, details, UUID(int=0), where=store.uri)
    except CorruptionError:
        return ()  # to be replaced


def _newest_of_each(manifests: Iterable[ShardManifest]) -> list[ShardManifest]:
    newest: dict[UUID, ShardManifest] = {}
    for one in manifests:
        known = newest.get(one.shard_id)
        if known is None or one.version >= known.version:
            newest[one.shard_id] = one
    return list(newest.values())


def decode_snapshot(data: Bytes, where: str) -> tuple[ShardManifest, ...]:
    """Return the shard manifests in the bytes of a published snapshot.

    Raises
    ------
    CorruptionError
        If they are not a shard snapshot.
    """
    return shard_snapshot.from_table(_from_lance_bytes(bytes(data), where), where=where)


def _to_lance_bytes(table: pa.Table) -> bytes:
    with scratch_directory() as directory:
        path = directory / "snapshot.lance"
        with LanceFileWriter(str(path), table.schema) as writer:
            writer.write_batch(table)
        return path.read_bytes()


def _from_lance_bytes(data: bytes, where: str) -> pa.Table:
    with readable_file(data) as path:
        try:
            return LanceFileReader(path).read_all().to_table()
        except BaseException as error:
            if not isinstance(error, (ValueError, OSError, RuntimeError)) and not is_panic(error):
                raise
            raise CorruptionError(
                f"the published shard snapshot cannot be read: {library_message(error)}",
                where=where,
                hint="Publish it again: merge",
            ) from error
