"""Generations whose rows were never in the log: written anywhere, published by the shard's writer.

Many machines can write at once what one then lists in the shard manifest, all in one step. A generation is
*staged* under a random name, since it has no number yet, and is unreferenced. Publishing gives the staged
generations of a shard consecutive numbers above everything flushed before. The writer then appends an empty
log entry that names them, since readers look for changes only in the log.

Staged generations that are never published must be deleted eventually, but not while they may still be
published, however slow a job is or however long a machine sleeps. Three rules together ensure this:

- Garbage collection takes a staged directory that no manifest lists for left behind only if everything in it
  is at least :data:`LEFT_BEHIND_AFTER` old by the store's clock.
- It publishes its own manifest before it deletes a directory. So a commit that read the shard before either
  succeeded before, and is seen, or finds its version taken, and reads again.
- A commit refuses a directory in which anything was at least :data:`MAX_STAGED` old when it read the shard,
  by the store's clock and the time passed here since. That is far less. Staging itself refuses work that has
  taken that long, whose oldest files may be gone by then.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from uuid import UUID

import pyarrow as pa

from weir.engine import failpoint
from weir.engine.logs import get_logger
from weir.errors import FencedError, StorageError
from weir.format import layout
from weir.format.merge_engine import MergeEngine
from weir.format.shard_manifest import FlushedGeneration, ShardFieldValue, ShardManifest
from weir.format.source import SourceMarks
from weir.indexing.build_plan import GenerationIndex
from weir.log.manifest_store import commit_manifest, read_latest_manifest, update_manifest
from weir.storage.interface import ObjectStore
from weir.storage.store_time import store_time
from weir.write.claim import Claim
from weir.write.flush.generation_rows import GenerationRows
from weir.write.flush.generation_writer import write_generation
from weir.write.lease.clock import SYSTEM_CLOCK, Clock

__all__ = [
    "LEFT_BEHIND_AFTER",
    "MAX_STAGED",
    "StagedGeneration",
    "discard_staged",
    "publish_staged",
    "settle_publication",
    "stage_generation",
]

_log = get_logger(__name__)

LEFT_BEHIND_AFTER = timedelta(hours=24)
"""How old everything in a staged directory is that is taken for left behind."""

MAX_STAGED = timedelta(hours=12)
"""For how long after its first file was written a staged generation may be published."""


@dataclass(frozen=True, slots=True)
class StagedGeneration:
    """A generation that is written and that nothing refers to. Can be pickled.

    Parameters
    ----------
    shard_id : UUID
        The shard it is written for.
    flushed : FlushedGeneration
        The future manifest entry, without the number.
    """

    shard_id: UUID
    flushed: FlushedGeneration


def stage_generation(
    store: ObjectStore,
    shard_id: UUID,
    rows: pa.Table,
    key_columns: tuple[str, ...],
    *,
    merge_engine: MergeEngine | None,
    sort_by: tuple[str, ...] = (),
    indexes: Sequence[GenerationIndex] = (),
    shard_spec_id: int = 0,
    shard_fields: tuple[ShardFieldValue, ...] = (),
    clock: Clock = SYSTEM_CLOCK,
) -> StagedGeneration:
    """Write rows of a shard as a generation that nothing refers to. Claims nothing.

    A new shard gets its first manifest, so that leftovers in it are found.

    Parameters
    ----------
    rows : Table
        Rows in the schema of WAL entries, in the order they count; of several with one key the last.
    key_columns : tuple of str
        Primary-key columns.
    merge_engine : MergeEngine or None
        What the versions of a key come to. None: the last row.
    sort_by : tuple of str, default ()
        Columns by which the rows of the generation are sorted.
    indexes : sequence of GenerationIndex, optional
        The indexes that generations are to have.
    shard_spec_id, shard_fields
        What a new shard's manifest records about which rows it holds.
    clock : Clock
        Tells how much time has passed.

    Raises
    ------
    StorageError
        If it took so long that some of it may have been collected meanwhile; or if the store failed.
    """
    began = clock.uptime()
    if read_latest_manifest(store, shard_id) is None:
        first = ShardManifest(
            shard_id,
            version=1,
            shard_spec_id=shard_spec_id,
            shard_fields=shard_fields,
            sources=SourceMarks(),
        )
        commit_manifest(store, first, after=None)
    flushed = write_generation(
        store,
        shard_id,
        1,
        GenerationRows.of(rows, key_columns, merge_engine, sort_by),
        key_columns,
        in_memory_bytes=rows.nbytes,
        indexes=indexes,
        name=layout.staged_name(secrets.token_hex(16)),
    )
    failpoint.reach("publish.after_staging")
    took = timedelta(seconds=clock.uptime() - began)
    if took >= MAX_STAGED:
        # Who publishes it would see how old the rest is, and not that the oldest files are gone.
        raise StorageError(
            f"rows for shard {shard_id} were {took} in staging, and might be collected as garbage",
            where=store.uri,
            hint=f"Nothing was published; run the job again, which must commit within {MAX_STAGED}",
        )
    return StagedGeneration(shard_id, flushed)


def discard_staged(store: ObjectStore, staged: Sequence[StagedGeneration]) -> None:
    """Delete staged generations that will certainly not be published."""
    for one in staged:
        path = layout.generation_path(one.shard_id, one.flushed.path)
        store.delete([meta.path for meta in store.list(path)])


def publish_staged(
    store: ObjectStore,
    claim: Claim,
    staged: Sequence[StagedGeneration],
    *,
    generation: int,
    sources: SourceMarks,
    position: int,
    clock: Clock = SYSTEM_CLOCK,
) -> ShardManifest:
    """List staged generations in the shard's manifest, all of them in one step, and return it.

    Parameters
    ----------
    claim : Claim
        The claim to do it under. Everything written before is flushed.
    staged : sequence of StagedGeneration
        In the order in which they count, oldest first.
    generation : int
        The number of the first.
    sources : SourceMarks
        The marks for the manifest to record.
    position : int
        The last position of the log.
    clock : Clock
        Tells how much time has passed.

    Raises
    ------
    FencedError
        If the shard has been claimed with a higher epoch. Nothing was published.
    StorageError
        If one was staged too long ago, or is gone. Nothing was published.
    """
    shard_id = claim.manifest.shard_id
    asked_at = clock.uptime()
    now = store_time(store)
    oldest = min(_staged_at(store, one) for one in staged)
    numbered = tuple(
        replace(one.flushed, generation=number, published_after=position)
        for number, one in enumerate(staged, start=generation)
    )

    def publish(latest: ShardManifest) -> ShardManifest:
        _refuse_if_fenced(store, claim, latest)
        if latest.current_generation >= generation + len(staged):
            # The answer to an earlier attempt was lost: within our epoch no other writer publishes.
            raise _AlreadyPublishedError(latest)
        age = now - oldest + timedelta(seconds=clock.uptime() - asked_at)
        if age >= MAX_STAGED:
            raise StorageError(
                f"rows for shard {shard_id} were staged {age} ago, and might be collected as garbage",
                where=store.uri,
                hint=f"Nothing was published; run the job again, which must commit within {MAX_STAGED}",
            )
        return replace(
            latest,
            current_generation=generation + len(staged),
            flushed_generations=(*latest.flushed_generations, *numbered),
            # Everything before is flushed, or a fence.
            replay_after_wal_entry_position=max(latest.replay_after_wal_entry_position, position),
            wal_entry_position_last_seen=max(latest.wal_entry_position_last_seen, position),
            sources=sources,
        )

    failpoint.reach("publish.before_manifest")
    try:
        published = update_manifest(store, shard_id, publish)
    except _AlreadyPublishedError as done:
        published = done.manifest
    failpoint.reach("publish.after_manifest")
    _log.info(
        "shard.published",
        shard=str(shard_id),
        generation=generation,
        generations=len(staged),
        rows=sum(one.physical_rows for one in numbered),
    )
    return published


def settle_publication(store: ObjectStore, claim: Claim, generation: int) -> ShardManifest:
    """Complete an attempt to publish that seemed to fail, and return the manifest.

    It took effect if the manifest's current generation is above ``generation``, the number of the first one
    to be published. Otherwise it never will.

    Raises
    ------
    FencedError
        If the shard has been claimed with a higher epoch.
    StorageError
        If the store failed. Nobody knows still.
    """

    def look(latest: ShardManifest) -> ShardManifest:
        _refuse_if_fenced(store, claim, latest)
        if latest.current_generation > generation:
            raise _AlreadyPublishedError(latest)
        # Its manifest may be on the way still. Then it finds its version taken.
        return latest

    try:
        return update_manifest(store, claim.manifest.shard_id, look)
    except _AlreadyPublishedError as done:
        return done.manifest


def _refuse_if_fenced(store: ObjectStore, claim: Claim, latest: ShardManifest) -> None:
    if latest.writer_epoch != claim.epoch:
        raise FencedError(
            f"shard {latest.shard_id} is claimed with epoch {latest.writer_epoch}; "
            f"this writer has epoch {claim.epoch}",
            where=store.uri,
            hint="Nothing was published; open a new writer to continue",
        )


class _AlreadyPublishedError(Exception):
    """An earlier attempt has published the generations."""

    def __init__(self, manifest: ShardManifest) -> None:
        super().__init__("the generations have been published")
        self.manifest = manifest


def _staged_at(store: ObjectStore, staged: StagedGeneration) -> datetime:
    """Return when the first file of a staged generation was written."""
    path = layout.generation_path(staged.shard_id, staged.flushed.path)
    times = [meta.last_modified for meta in store.list(path)]
    if not times:
        raise StorageError(
            "the staged rows are gone",
            where=f"{store.uri}/{path}",
            hint="Nothing was published. Run the job again",
        )
    return min(times)
