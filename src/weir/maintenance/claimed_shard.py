"""The writer of one shard for the duration of a job that flushes or seals it."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from uuid import UUID

from weir.base.generation_indexes import generation_indexes
from weir.base.table import BaseTable
from weir.errors import FencedError
from weir.format.shard_manifest import ShardManifest, ShardStatus
from weir.log.manifest_store import update_manifest
from weir.write.lease.heartbeat import Heartbeat, lease_renewals
from weir.write.lease.lease_terms import LeaseTerms
from weir.write.shard_context import ShardContext
from weir.write.shard_writer import ShardWriter

__all__ = ["claimed_shard", "seal"]


@contextmanager
def claimed_shard(
    base: BaseTable, shard_id: UUID, lease_terms: LeaseTerms | None = None
) -> Iterator[ShardWriter]:
    """Claim a shard for the length of a block, and replay its log.

    Parameters
    ----------
    base : BaseTable
        The table.
    shard_id : UUID
        The shard.
    lease_terms : LeaseTerms, optional
        How to take its lease. Default: only if it is free.
    """
    heartbeat = Heartbeat(renewals=lease_renewals(base.engine))
    with ThreadPoolExecutor(1, thread_name_prefix="weir-flush") as flusher:
        try:
            context = ShardContext.of(
                base.store,
                lambda: base.row_schema,
                base.primary_key,
                namespace=base.namespace,
                merge_engine=base.merge_engine,
                sort_by=base.sort_by,
                flusher=flusher,
                lease_terms=lease_terms,
                heartbeat=heartbeat,
                newest_schema=lambda: base.latest().row_schema,
                indexes=lambda: generation_indexes(base),
            )
            writer = ShardWriter(context, shard_id)
            try:
                yield writer
            finally:
                writer.abandon()
        finally:
            heartbeat.stop()


def seal(base: BaseTable, writer: ShardWriter) -> ShardManifest:
    """Seal a shard that a writer holds and has flushed, so that it cannot be claimed any more.

    Raises
    ------
    FencedError
        If another writer has claimed it meanwhile and may have written to it.
    """

    def sealed(latest: ShardManifest) -> ShardManifest:
        if latest.writer_epoch != writer.epoch:
            raise FencedError(f"another writer has claimed shard {writer.shard_id}", where=base.uri)
        return replace(latest, status=ShardStatus.SEALED)

    return update_manifest(base.store, writer.shard_id, sealed)
