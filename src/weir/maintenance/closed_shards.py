"""Closing shards permanently: fenced, so that their writers stop, and sealed against others."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID

import pyarrow as pa

from weir.engine.logs import get_logger
from weir.errors import CorruptionError, LeaseHeldError
from weir.format.lease import Lease
from weir.format.shard_manifest import ShardManifest, ShardStatus
from weir.format.wal_entry import wal_schema
from weir.log.manifest_store import read_latest_manifest, update_manifest
from weir.log.read_lease import read_lease
from weir.log.wal import Wal
from weir.storage.interface import ObjectStore
from weir.write.claim import claim_shard
from weir.write.lease.lease import ShardLease, release_quietly
from weir.write.lease.lease_terms import LeaseTerms, is_free

__all__ = ["close_shards", "refuse_live_writers"]

_log = get_logger(__name__)


def refuse_live_writers(store: ObjectStore, shards: Iterable[UUID]) -> None:
    """Refuse to continue while the lease of a shard is held.

    Raises
    ------
    LeaseHeldError
        A lease is held.
    """
    terms = LeaseTerms()
    for shard_id in shards:
        held = _lease(store, shard_id)
        if held is not None and not is_free(store, held, terms):
            raise LeaseHeldError(
                f"process {held.holder.process_id} on {held.holder.host} is writing shard {shard_id}",
                where=store.uri,
                hint="Nothing was changed. Close that writer, or fence it with takeover=True",
            )


def close_shards(
    store: ObjectStore,
    shards: Iterable[UUID],
    schema: pa.Schema,
    *,
    on_wait: Callable[[LeaseHeldError], None] | None = None,
) -> None:
    """Fence and seal shards, and wait until their writers have stopped.

    A writer finds the fence entry at its next append. An idle one relies on its lease, which it can no longer
    renew: so this waits until the leases that were held have expired. Afterwards the logs may be deleted.
    Until then this holds the leases itself, so that a call repeated after a crash waits as well.

    Parameters
    ----------
    store : ObjectStore
        Where the shards are.
    shards : iterable of UUID
        The shards; those without a manifest are skipped.
    schema : Schema
        Columns of the table, for the fence entries.
    on_wait : callable, optional
        Called when a wait for a lease begins, with whose lease it is.
    """
    last: Lease | None = None
    taken: list[ShardLease] = []
    terms = LeaseTerms()
    for shard_id in shards:
        manifest = read_latest_manifest(store, shard_id)
        if manifest is None:
            continue
        held = _lease(store, shard_id)
        if held is not None and _may_be_written(store, manifest, held, terms):
            last = held if last is None else max(last, held, key=lambda lease: lease.expires_at)
        taken += _close(store, manifest, schema)
        _log.info("shard.closed", shard=str(shard_id))
    if last is not None:
        _wait_out(store, last, on_wait)
    for lease in taken:
        release_quietly(lease)


def _may_be_written(store: ObjectStore, manifest: ShardManifest, held: Lease, terms: LeaseTerms) -> bool:
    """Whether a writer may still write a shard, according to its lease.

    The lease of a sealed shard is held by the process that began to close it, on behalf of a writer that may
    outlive that process.
    """
    if manifest.status is ShardStatus.SEALED and not held.released:
        return True
    return not is_free(store, held, terms)


def _wait_out(store: ObjectStore, held: Lease, on_wait: Callable[[LeaseHeldError], None] | None) -> None:
    """Wait until a lease that was taken from its holder would have run out."""
    seconds = (held.expires_at - datetime.now(UTC)).total_seconds()
    if seconds <= 0:
        return
    holder = held.holder
    _log.info(
        "shard.lease_waited_for", shard=str(held.shard_id), process=holder.process_id, seconds=round(seconds)
    )
    if on_wait is not None:
        on_wait(
            LeaseHeldError(
                f"process {holder.process_id} on {holder.host} is fenced, and may not notice before its "
                f"lease of shard {held.shard_id} runs out, in {seconds:.0f} s",
                where=store.uri,
                hint="It might still write to what is deleted before then",
            )
        )
    time.sleep(seconds)


def _close(store: ObjectStore, manifest: ShardManifest, schema: pa.Schema) -> list[ShardLease]:
    """Fence and seal a shard; return the lease under which that was done, if there is one."""
    shard_id = manifest.shard_id
    if manifest.status is ShardStatus.SEALED:
        # Claims of it are refused, ours too, and its holder may not have noticed.
        update_manifest(store, shard_id, lambda latest: replace(latest, status=ShardStatus.ACTIVE))
    wal = Wal(store, shard_id, namespace=f"closed {store.uri}")
    try:
        claim = claim_shard(store, wal, shard_id, wal_schema(schema), lease_terms=LeaseTerms(takeover=True))
    except CorruptionError:
        # Without its tail the fence position cannot be found; the epoch stops a writer at its next flush.
        update_manifest(store, shard_id, _sealed_above)
        return []
    update_manifest(store, shard_id, _sealed)
    return [] if claim.lease is None else [claim.lease]


def _sealed(latest: ShardManifest) -> ShardManifest:
    return replace(latest, status=ShardStatus.SEALED)


def _sealed_above(latest: ShardManifest) -> ShardManifest:
    return replace(latest, status=ShardStatus.SEALED, writer_epoch=latest.writer_epoch + 1)


def _lease(store: ObjectStore, shard_id: UUID) -> Lease | None:
    try:
        return read_lease(store, shard_id)
    except CorruptionError:
        return None
