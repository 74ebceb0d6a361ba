"""Claiming a shard: the epoch, the tail a former writer left, and the fence entry.

Lance MemWAL spec, "Writer Fencing". The epoch alone stops a former writer only at its next manifest
update. The fence entry stops it at its next append: the entry takes the position the former writer
would append to, and once it stands every entry before it is known and will be replayed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from uuid import UUID

import pyarrow as pa

from weir import failpoint
from weir.errors import ConflictError, FencedError, ShardSealedError
from weir.format import wal_entry
from weir.format.shard_manifest import ShardFieldValue, ShardManifest, ShardStatus
from weir.format.wal_entry import WalEntryHeader
from weir.logs import get_logger
from weir.shard.manifest_store import commit_manifest, read_latest_manifest
from weir.shard.wal import PositionedEntry, Wal
from weir.storage.interface import ObjectStore

__all__ = ["Claim", "claim_shard"]

_log = get_logger(__name__)
_MAX_CLAIM_ATTEMPTS = 64


@dataclass(frozen=True, slots=True)
class Claim:
    """A shard that is ours to write until someone claims it with a higher epoch.

    Parameters
    ----------
    manifest : ShardManifest
        The manifest our claim published.
    tail : tuple of PositionedEntry
        Entries that no generation covers yet, in order, ours to replay.
    next_position : int
        Where our first entry goes: the position after our fence entry.
    """

    manifest: ShardManifest
    tail: tuple[PositionedEntry, ...]
    next_position: int

    @property
    def epoch(self) -> int:
        """The writer epoch of the claim: its fencing token."""
        return self.manifest.writer_epoch


def claim_shard(
    store: ObjectStore,
    wal: Wal,
    shard_id: UUID,
    schema: pa.Schema,
    *,
    shard_spec_id: int = 0,
    shard_fields: tuple[ShardFieldValue, ...] = (),
) -> Claim:
    """Claim a shard, creating it if it does not exist.

    Parameters
    ----------
    store : ObjectStore
        The table's store.
    wal : Wal
        The shard's write-ahead log.
    shard_id : UUID
        The shard.
    schema : Schema
        Schema of WAL entries, for the fence entry.
    shard_spec_id, shard_fields
        What a new shard's manifest records about which rows it holds.

    Raises
    ------
    ShardSealedError
        If the shard accepts no writes.
    FencedError
        If another writer claimed the shard while this claim was under way.
    CorruptionError
        If the manifest or an entry of the tail is broken.
    """
    manifest = _raise_epoch(store, shard_id, shard_spec_id, shard_fields)
    failpoint.reach("claim.between_epoch_and_fence")
    fence = WalEntryHeader(writer_epoch=manifest.writer_epoch, fence=True, write_id=wal_entry.new_write_id())
    fence_data = wal_entry.encode(fence, schema)
    tail = list(wal.read_tail(manifest))
    position = tail[-1].position + 1 if tail else max(manifest.replay_after_wal_entry_position + 1, 1)
    while True:
        _refuse_if_fenced(tail, manifest, wal)
        holder = wal.append_or_read(position, fence_data)
        if holder is None or holder.header.write_id == fence.write_id:
            break
        # A former writer got in before our fence: what it wrote is acknowledged and ours to replay.
        tail.append(PositionedEntry(position, holder))
        position += 1
    _log.info(
        "shard.claimed",
        shard=str(shard_id),
        epoch=manifest.writer_epoch,
        position=position,
        entries_to_replay=len(tail),
    )
    return Claim(manifest, tuple(tail), position + 1)


def _raise_epoch(
    store: ObjectStore, shard_id: UUID, shard_spec_id: int, shard_fields: tuple[ShardFieldValue, ...]
) -> ShardManifest:
    known: ShardManifest | None = None
    for _ in range(_MAX_CLAIM_ATTEMPTS):
        latest = read_latest_manifest(store, shard_id, known=known)
        if latest is None:
            claimed = ShardManifest(
                shard_id=shard_id,
                version=1,
                writer_epoch=1,
                shard_spec_id=shard_spec_id,
                shard_fields=shard_fields,
            )
        elif latest.status is ShardStatus.SEALED:
            raise ShardSealedError(
                f"shard {shard_id} is sealed and accepts no writes",
                where=store.uri,
                hint="Write to the shard that replaces it, or unseal it",
            )
        else:
            claimed = replace(latest, version=latest.version + 1, writer_epoch=latest.writer_epoch + 1)
        published = commit_manifest(store, claimed)
        if published is not None:
            return published
        known = latest
    raise ConflictError(
        f"shard {shard_id} was claimed by others during {_MAX_CLAIM_ATTEMPTS} attempts",
        where=store.uri,
        hint="Look for several writers that fence each other in turns",
    )


def _refuse_if_fenced(tail: list[PositionedEntry], manifest: ShardManifest, wal: Wal) -> None:
    if tail and tail[-1].entry.header.writer_epoch > manifest.writer_epoch:
        last = tail[-1]
        raise FencedError(
            f"shard {manifest.shard_id} was claimed with epoch {last.entry.header.writer_epoch} "
            f"while we were claiming it with epoch {manifest.writer_epoch}",
            where=wal.where(last.position),
            hint="Nothing was written; open a new writer if this process should own the shard",
        )
