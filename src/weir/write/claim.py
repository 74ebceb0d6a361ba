"""Claiming a shard: the lease, the epoch, the log tail of the former writer, and the fence entry.

Lance MemWAL spec, "Writer Fencing". The epoch alone stops a former writer only at its next manifest
update. The fence entry stops it at its next append: the entry takes the position the former writer
would append to, and once it stands every entry before it is known and will be replayed.

The lease comes first: a claim that has to respect another writer's lease leaves the shard unchanged. Its
fencing token is the epoch that the claim will have. If the epoch is taken when the manifest is published,
another writer has claimed the shard, and the claim starts over with the lease.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from uuid import UUID

import pyarrow as pa

from weir.engine import failpoint
from weir.engine.concurrent_map import Wave
from weir.engine.logs import get_logger
from weir.errors import ConflictError, CorruptionError, FencedError, ShardSealedError
from weir.format import wal_entry
from weir.format.shard_manifest import FlushedGeneration, ShardFieldValue, ShardManifest, ShardStatus
from weir.format.source import SourceMarks
from weir.format.wal_entry import WalEntry
from weir.format.wal_header import WalEntryHeader
from weir.log.manifest_store import commit_manifest, read_latest_manifest
from weir.log.recorded_position import entry_lost
from weir.log.recorded_sources import recorded_sources
from weir.log.replay import covered_position
from weir.log.wal import PositionedEntry, Wal
from weir.storage.interface import ObjectStore
from weir.write.lease.heartbeat import Heartbeat
from weir.write.lease.lease import ShardLease, release_quietly
from weir.write.lease.lease_terms import LeaseTerms

__all__ = ["Claim", "claim_shard", "sealed_error"]

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
        Entries that no generation has yet, in order, ours to replay.
    next_position : int
        Where our first entry goes: the position after our fence entry.
    lease : ShardLease, optional
        The lease, if one was to be taken.
    sources : SourceMarks, default no marks
        How far each source had got before the tail.
    fence : str, optional
        Write id of our fence entry, which all entries of the claim name.
    """

    manifest: ShardManifest
    tail: tuple[PositionedEntry, ...]
    next_position: int
    lease: ShardLease | None = None
    sources: SourceMarks = field(default_factory=SourceMarks)
    fence: str | None = None

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
    lease_terms: LeaseTerms | None = None,
    heartbeat: Heartbeat | None = None,
    absent: Wave | None = None,
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
        What the shard's manifest records about which rows it holds, if it does not yet.
    lease_terms : LeaseTerms, optional
        How to take the lease. Without it the claim neither takes nor respects a lease, like those of
        the released library.
    heartbeat : Heartbeat, optional
        Renews the lease, from the moment it is taken: replaying a long tail may take longer than it
        lasts.
    absent : Wave, optional
        Begun before nothing was found of the shard: it is not looked for again before it is made.

    Raises
    ------
    LeaseHeldError
        If another writer holds the lease and the terms are not to take it over. Nothing was changed.
    ShardSealedError
        If the shard accepts no writes.
    FencedError
        If another writer claimed the shard while this claim was under way.
    CorruptionError
        If the manifest or an entry of the tail is broken.
    """
    epoch = _EpochClaim(store, wal, shard_id, lease_terms, heartbeat, absent)
    wave = Wave()
    try:
        manifest = epoch.publish(shard_spec_id, shard_fields)
        entries, next_position, fence = _append_fence(
            wal, manifest, schema, epoch.refuse_lost_entries, was_absent=absent is not None
        )
        if epoch.lease is not None:
            epoch.lease.last_position = next_position - 1
        # In the short time of a wave that began before our manifest was there, the place of our fence has not
        # been collected: an earlier fence at it was met, and a later one meets ours.
        if not wave.was_short():
            _refuse_if_overtaken(store, manifest, wal.where(next_position - 1))
    except BaseException:
        # Also when interrupted: a forgotten lease would be renewed as long as the process lives.
        epoch.let_go_of_lease()
        raise
    covered = covered_position(manifest, entries)
    sources = manifest.sources or SourceMarks()
    for item in entries:
        if item.position <= covered:
            header = item.entry.header
            sources = sources.with_marks(header.sources, header.answers, item.position)
    tail = tuple(item for item in entries if item.position > covered)
    _log.info(
        "shard.claimed",
        shard=str(shard_id),
        epoch=manifest.writer_epoch,
        position=next_position - 1,
        entries_to_replay=len(tail),
    )
    return Claim(manifest, tail, next_position, epoch.lease, sources, fence)


def sealed_error(shard_id: UUID, store: ObjectStore) -> ShardSealedError:
    """Return the error that says that a shard is sealed."""
    return ShardSealedError(
        f"shard {shard_id} is sealed and accepts no writes",
        where=store.uri,
        hint="Write to the shard that replaces it, or unseal it",
    )


def _append_fence(
    wal: Wal,
    manifest: ShardManifest,
    schema: pa.Schema,
    check_end: Callable[[ShardManifest, int], None],
    *,
    was_absent: bool,
) -> tuple[tuple[PositionedEntry, ...], int, str]:
    """Append our fence entry; return the entries before it, the position after it, and its write id.

    Some of them may be in a generation that does not say so (:mod:`weir.log.replay`).
    """
    failpoint.reach("claim.between_epoch_and_fence")
    write_id = wal_entry.new_write_id()
    # For a new shard one listing replaces a request for each name.
    is_empty = manifest.version == 1 and (was_absent or wal.is_empty())
    if not is_empty:
        wal.forget_another_history(manifest)
    tail = [] if is_empty else list(wal.read_tail(manifest))
    position = tail[-1].position + 1 if tail else max(manifest.replay_after_wal_entry_position + 1, 1)
    check_end(manifest, position - 1)
    while True:
        _refuse_if_fenced(tail, manifest, wal)
        fence = WalEntryHeader(
            writer_epoch=manifest.writer_epoch,
            fence=True,
            write_id=write_id,
            place=wal.place(position),
        ).announcing(_unannounced(manifest, position))
        holder = wal.append_or_read(position, wal_entry.encode(fence, schema))
        if holder is None or holder.header.write_id == write_id:
            # The next claim of the shard in this process need not load it.
            wal.remember(position, WalEntry(fence, schema, ()))
            break
        # A former writer appended before our fence: its rows are acknowledged and have to be replayed.
        if tail:
            wal.refuse_stray(tail[-1].entry, holder, position)
        tail.append(PositionedEntry(position, holder))
        position += 1
    return tuple(tail), position + 1, write_id


def _unannounced(manifest: ShardManifest, position: int) -> tuple[FlushedGeneration, ...]:
    """Return what a former writer has published without living to append the entry that says so."""
    return tuple(one for one in manifest.flushed_generations if one.published_after == position - 1)


class _EpochClaim:
    """Raises the epoch of a shard, holding its lease if leases are used."""

    def __init__(
        self,
        store: ObjectStore,
        wal: Wal,
        shard_id: UUID,
        lease_terms: LeaseTerms | None,
        heartbeat: Heartbeat | None,
        absent: Wave | None,
    ) -> None:
        self._store = store
        self._wal = wal
        self._shard_id = shard_id
        self._lease_terms = lease_terms
        self._heartbeat = heartbeat
        self._absent = absent
        self.lease: ShardLease | None = None

    def publish(self, shard_spec_id: int, shard_fields: tuple[ShardFieldValue, ...]) -> ShardManifest:
        """Publish a manifest with our epoch, and return it."""
        latest: ShardManifest | None = None
        for attempt in range(_MAX_CLAIM_ATTEMPTS):
            if attempt or self._absent is None:
                latest = read_latest_manifest(self._store, self._shard_id, known=latest)
            if latest is not None and latest.status is ShardStatus.SEALED:
                raise sealed_error(self._shard_id, self._store)
            epoch = self._epoch_above(0 if latest is None else latest.writer_epoch, is_new=latest is None)
            if latest is None:
                claimed = ShardManifest(
                    shard_id=self._shard_id,
                    version=1,
                    writer_epoch=epoch,
                    shard_spec_id=shard_spec_id,
                    shard_fields=shard_fields,
                    sources=SourceMarks(),
                )
            else:
                sources = self._sources(latest)
                claimed = replace(latest, version=latest.version + 1, writer_epoch=epoch, sources=sources)
                if not latest.shard_fields and latest.shard_spec_id == shard_spec_id:
                    # The library records no values; the claimer has determined them.
                    claimed = replace(claimed, shard_fields=shard_fields)
            failpoint.reach("claim.between_lease_and_epoch")
            published = commit_manifest(self._store, claimed, after=latest, absent=self._absent)
            if published is not None:
                return published
        raise ConflictError(
            f"shard {self._shard_id} was claimed by others during {_MAX_CLAIM_ATTEMPTS} attempts",
            where=self._store.uri,
            hint="Look for several writers that fence each other in turn",
        )

    def _sources(self, latest: ShardManifest) -> SourceMarks | None:
        """Return the contents of the next manifest; None if another one comes first."""
        try:
            return recorded_sources(self._store, self._wal, latest)
        except CorruptionError:
            newest = read_latest_manifest(self._store, self._shard_id, known=latest)
            if newest is None or newest.version == latest.version:
                raise
            # It was recorded meanwhile, and its former evidence was collected.
            return None

    def _epoch_above(self, taken: int, *, is_new: bool) -> int:
        if self._lease_terms is None:
            return taken + 1
        if self.lease is None or self.lease.epoch <= taken:
            # The first time; or another writer took the epoch of our lease, and may hold the lease too by
            # now.
            self._forget()
            self.lease = ShardLease.acquire(
                self._store, self._shard_id, self._lease_terms, least_epoch=taken + 1, is_new=is_new
            )
            if self._heartbeat is not None:
                self._heartbeat.watch(self.lease)
        return self.lease.epoch

    def refuse_lost_entries(self, manifest: ShardManifest, last: int) -> None:
        """Refuse a log that ends before a position that our lease says it has reached.

        If a higher claim has covered those entries and they were collected while this one slept, it is
        fenced, and nothing is lost.
        """
        if self.lease is None or self._lease_terms is None or last >= self.lease.last_position:
            return
        _refuse_if_overtaken(self._store, manifest, self._wal.where(last + 1))
        error = entry_lost(self._store, self._shard_id, last + 1, self.lease.last_position)
        if not self._lease_terms.takeover:
            raise error
        _log.warning("shard.entries_lost", shard=str(self._shard_id), position=last + 1, error=str(error))

    def let_go_of_lease(self) -> None:
        """Release the lease, if there is one."""
        self._forget()
        if self.lease is not None:
            release_quietly(self.lease)

    def _forget(self) -> None:
        if self._heartbeat is not None and self.lease is not None:
            self._heartbeat.forget(self.lease)


def _refuse_if_fenced(tail: list[PositionedEntry], manifest: ShardManifest, wal: Wal) -> None:
    if tail and tail[-1].entry.header.writer_epoch > manifest.writer_epoch:
        last = tail[-1]
        raise FencedError(
            f"shard {manifest.shard_id} was claimed with epoch {last.entry.header.writer_epoch} "
            f"while we were claiming it with epoch {manifest.writer_epoch}",
            where=wal.where(last.position),
            hint="Nothing was written; open a new writer if this process should own the shard",
        )


def _refuse_if_overtaken(store: ObjectStore, manifest: ShardManifest, where: str) -> None:
    """Refuse a claim that slept until a higher one had come and gone, and its fence stands nowhere.

    If the position of our fence was collected, a writer with a higher epoch has covered it before: no other
    writer can with ours, and none could any more with a lower one.
    """
    latest = read_latest_manifest(store, manifest.shard_id, known=manifest)
    if latest is not None and latest.writer_epoch != manifest.writer_epoch:
        raise FencedError(
            f"shard {manifest.shard_id} was claimed with epoch {latest.writer_epoch} "
            f"while we were claiming it with epoch {manifest.writer_epoch}",
            where=where,
            hint="Nothing was written; open a new writer if this process should own the shard",
        )
