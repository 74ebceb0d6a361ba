"""Flushing a MemTable: writes the generation, then lists it in the shard manifest."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from weir.engine import failpoint
from weir.engine.logs import get_logger
from weir.engine.written_tables import WrittenTables
from weir.errors import FencedError, ObjectNotFoundError
from weir.format.merge_engine import MergeEngine
from weir.format.shard_manifest import FlushedGeneration, ShardManifest
from weir.indexing.build_plan import GenerationIndex
from weir.log.manifest_store import (
    read_latest_manifest,
    read_manifest_version,
    refuse_another_history,
    update_manifest,
)
from weir.storage.interface import ObjectStore
from weir.write.claim import Claim
from weir.write.flush.generation_writer import write_generation
from weir.write.memtable.memtable import MemTable

__all__ = ["flush_memtable"]

_log = get_logger(__name__)
_WORTH_A_LOOK_BYTES = 4 * 1024 * 1024
"""Rows from which on it pays to ask whether the shard is still ours before they are written: less is written
as fast as that is answered, and the commit asks in any case."""


def flush_memtable(
    store: ObjectStore,
    claim: Claim,
    memtable: MemTable,
    key_columns: tuple[str, ...],
    *,
    merge_engine: MergeEngine | None,
    sort_by: tuple[str, ...] = (),
    known: ShardManifest | None = None,
    indexes: Callable[[], Sequence[GenerationIndex]] = tuple,
    urgency: Callable[[], float] = lambda: 1.0,
) -> ShardManifest:
    """Turn a frozen MemTable into a flushed generation of the shard.

    Replay starts after the MemTable's last position from then on. A MemTable without rows (marks of writes
    that have changed nothing) moves that position and lists no generation.

    Parameters
    ----------
    merge_engine : MergeEngine or None
        What the versions of a key come to. None: the last row.
    sort_by : tuple of str, default ()
        Columns by which the rows of the generation are sorted.
    known : ShardManifest, optional
        The newest manifest of this claim that the caller knows: only later ones are searched. Default: the
        one that the claim published.
    indexes : callable
        Returns the current indexes for generations. Default: none.
    urgency : callable
        How urgent it is (:class:`weir.engine.throttle.Throttle`). Default: so that it does not rest.

    Raises
    ------
    FencedError
        If the shard has been claimed with a higher epoch. The generation's directory is left behind
        as an orphan; the rows are in the WAL and the new owner replays them.
    """
    shard_id = claim.manifest.shard_id
    metrics = store.engine.metrics
    began = time.monotonic()
    try:
        newest = known or claim.manifest
        is_large = memtable.nbytes > _WORTH_A_LOOK_BYTES
        latest = _refuse_needless_work(store, claim, memtable, newest) if is_large else newest
        published = _flush(
            store, claim, memtable, key_columns, merge_engine, sort_by, latest, indexes, urgency
        )
    except _AlreadyFlushedError as done:
        _log.info("shard.flushed_before", shard=str(shard_id), generation=memtable.generation)
        return done.manifest
    except BaseException:
        metrics.flush_failures.add()
        raise
    metrics.flushes.add()
    store.engine.part(WrittenTables).changed(store)
    metrics.flushed_rows.add(memtable.num_rows)
    metrics.flush_seconds.record(time.monotonic() - began)
    return published


class _AlreadyFlushedError(Exception):
    """An earlier attempt that seemed to fail has published the MemTable."""

    def __init__(self, manifest: ShardManifest) -> None:
        super().__init__("the MemTable has been flushed")
        self.manifest = manifest


def _flush(
    store: ObjectStore,
    claim: Claim,
    memtable: MemTable,
    key_columns: tuple[str, ...],
    merge_engine: MergeEngine | None,
    sort_by: tuple[str, ...],
    latest: ShardManifest | None,
    indexes: Callable[[], Sequence[GenerationIndex]],
    urgency: Callable[[], float],
) -> ShardManifest:
    shard_id = claim.manifest.shard_id
    flushed: FlushedGeneration | None = None
    if memtable.num_rows:
        try:
            flushed = write_generation(
                store,
                shard_id,
                memtable.generation,
                memtable.rows(key_columns, merge_engine, sort_by),
                key_columns,
                in_memory_bytes=memtable.nbytes,
                indexes=indexes(),
                urgency=urgency,
            )
        except ObjectNotFoundError:
            # Collection removes what a writer leaves unfinished once another one has the shard.
            newest = read_latest_manifest(store, shard_id, known=latest)
            if newest is not None:
                _check(store, claim, memtable, newest)
            raise

    def publish(latest: ShardManifest) -> ShardManifest:
        _check(store, claim, memtable, latest)
        moved = replace(
            latest,
            replay_after_wal_entry_position=memtable.last_position,
            wal_entry_position_last_seen=max(latest.wal_entry_position_last_seen, memtable.last_position),
            sources=memtable.sources,
        )
        if flushed is None:
            return moved
        return replace(
            moved,
            current_generation=memtable.generation + 1,
            flushed_generations=(*latest.flushed_generations, flushed),
        )

    failpoint.reach("flush.before_manifest")
    if store.is_local and latest is not None:
        # A lease that was not renewed since does not show it. On object stores it is not worth a round trip.
        refuse_another_history(store, latest)
    published = update_manifest(store, shard_id, publish, known=latest)
    failpoint.reach("flush.after_manifest")
    _log.info(
        "shard.flushed",
        shard=str(shard_id),
        generation=memtable.generation,
        position=memtable.last_position,
        rows=flushed.physical_rows if flushed else 0,
    )
    return published


def _refuse_needless_work(
    store: ObjectStore, claim: Claim, memtable: MemTable, known: ShardManifest
) -> ShardManifest | None:
    """Look at the manifest before the expensive part, so that no orphan is left for nothing; return it."""
    shard_id = claim.manifest.shard_id
    newer = read_manifest_version(store, shard_id, known.version + 1)
    if newer is None:
        # Or collected, which the commit finds out: it is not worth a round trip here.
        return known
    latest = read_latest_manifest(store, shard_id, known=newer)
    if latest is not None:
        _check(store, claim, memtable, latest)
    return latest


def _check(store: ObjectStore, claim: Claim, memtable: MemTable, latest: ShardManifest) -> None:
    if latest.writer_epoch != claim.epoch:
        raise FencedError(
            f"shard {latest.shard_id} is claimed with epoch {latest.writer_epoch}; "
            f"this writer has epoch {claim.epoch}",
            where=store.uri,
            hint="Every acknowledged row is safe in the WAL; open a new writer to continue",
        )
    # Within our epoch no other writer flushes: the answer to an earlier attempt was lost, or its manifest
    # reached the store after we had given up on it (invariant I4).
    if latest.replay_after_wal_entry_position >= memtable.last_position:
        raise _AlreadyFlushedError(latest)
