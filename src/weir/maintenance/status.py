"""The state of a table in figures for operators: shards, epochs, lag, merge and index progress."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from weir.errors import CorruptionError
from weir.format import layout
from weir.format.index_details import IndexDetails
from weir.format.lease import Lease
from weir.log.read_lease import read_lease
from weir.maintenance.index_status import IndexReport, index_reports
from weir.maintenance.upkeep_lease import read_upkeep_lease
from weir.merge.age import age_of_generation, age_of_object
from weir.notebook import ShownAsTable
from weir.snapshots.shard_view import ShardView
from weir.snapshots.snapshot import ReadSnapshot
from weir.storage.interface import ObjectStore
from weir.write.lease.lease_terms import lease_state

__all__ = ["OLD_UNFLUSHED_SECONDS", "ShardReport", "TableStatus", "table_status"]

OLD_UNFLUSHED_SECONDS = 300.0
"""Seconds after which rows ought to be flushed: several times the default of ``max_memtable_age``."""


@dataclass(frozen=True, slots=True)
class ShardReport:
    """One shard.

    Parameters
    ----------
    shard_id : UUID
        The shard.
    values : mapping of str to str
        The shard values its rows share, by shard field; empty for an unsharded table.
    state : str
        ``ACTIVE`` or ``SEALED``.
    epoch : int
        Writer epoch of the last claim.
    wal_position : int
        Last position in the WAL.
    current_generation : int
        Number of the generation that the next flush will write.
    merged_generation : int
        Newest generation in the base table; 0 if none.
    unmerged_generations, unmerged_rows, unmerged_bytes : int
        Flushed generations that wait for a merge, their rows and their bytes in memory.
    unflushed_entries, unflushed_rows, unflushed_bytes : int
        WAL entries that wait for a flush, their rows and bytes.
    unflushed_seconds : float
        Age of the oldest row in the WAL that waits for a flush; 0 if there is none.
    lag_seconds : float
        Age of the oldest row that is not in the base table; 0 if all are.
    writer : str
        Process and host of the last writer, which is still active if the lease is held. Empty if no writer of
        Weir ever wrote the shard.
    lease : str
        ``none``, ``held``, ``released``, ``expired``, ``abandoned`` (held by a process of this machine that
        no longer exists), or ``damaged``. All but ``held`` and ``damaged`` admit the next writer.
    lease_expires_at : datetime, optional
        When it expires unless renewed, or when it ended, in UTC by the clock of its holder.
    """

    shard_id: UUID
    values: Mapping[str, str]
    state: str
    epoch: int
    wal_position: int
    current_generation: int
    merged_generation: int
    unmerged_generations: int
    unmerged_rows: int
    unmerged_bytes: int
    unflushed_entries: int
    unflushed_rows: int
    unflushed_bytes: int
    unflushed_seconds: float
    lag_seconds: float
    writer: str
    lease: str
    lease_expires_at: datetime | None


@dataclass(frozen=True, slots=True)
class TableStatus(ShownAsTable):
    """The state of a table.

    Parameters
    ----------
    uri : str
        Where it is.
    base_version : int
        Version of the base table.
    base_rows : int
        Rows in the base table; rows replaced or deleted since their merge are included.
    primary_key : tuple of str
        Primary-key columns.
    sharded_by : str
        The shard spec, as text.
    library_writable : bool
        Whether the released Lance library can write the table too.
    library_note : str
        The reason if it cannot.
    shards : tuple of ShardReport
        The shards, by id.
    indexes : tuple of IndexReport
        The indexes of the base table, by name.
    twins : tuple of tuple of UUID, default ()
        Shards with the same shard values, where there should be one: they are not written, and keys they have
        in common are not read or merged, until :meth:`weir.TableMaintenance.repair` has joined them.
    upkeep : str, default ""
        The process and host that maintain the table in the background at this moment. Empty if none does.
    """

    uri: str
    base_version: int
    base_rows: int
    primary_key: tuple[str, ...]
    sharded_by: str
    library_writable: bool
    library_note: str
    shards: tuple[ShardReport, ...]
    indexes: tuple[IndexReport, ...]
    twins: tuple[tuple[UUID, ...], ...] = ()
    upkeep: str = ""

    @property
    def unmerged_rows(self) -> int:
        """Rows in flushed generations that wait for a merge."""
        return sum(shard.unmerged_rows for shard in self.shards)

    @property
    def unflushed_rows(self) -> int:
        """Rows in the WAL that wait for a flush."""
        return sum(shard.unflushed_rows for shard in self.shards)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Problems that need attention: rows whose flush is so late that no writer can be doing it."""
        return tuple(
            f"shard {str(shard.shard_id)[:8]} has {shard.unflushed_rows:,} rows that wait for a flush for "
            f"{shard.unflushed_seconds:,.0f} s, and no merge finds them; its lease is {shard.lease}"
            for shard in self.shards
            if shard.unflushed_seconds > OLD_UNFLUSHED_SECONDS
        )

    @property
    def lag_seconds(self) -> float:
        """Age of the oldest row that is not in the base table."""
        return max((shard.lag_seconds for shard in self.shards), default=0.0)

    def to_dict(self) -> dict[str, Any]:
        """Return the status as plain values that JSON can hold."""
        plain = asdict(self)
        for shard in plain["shards"]:
            shard["shard_id"] = str(shard["shard_id"])
            expires = shard["lease_expires_at"]
            shard["lease_expires_at"] = None if expires is None else expires.isoformat()
        plain["shards"] = list(plain["shards"])
        plain["warnings"] = list(self.warnings)
        plain["twins"] = [list(map(str, shards)) for shards in self.twins]
        plain["indexes"] = [index.to_dict() for index in self.indexes]
        plain["primary_key"] = list(self.primary_key)
        return plain


def _what_stops_the_library(details: IndexDetails) -> str:
    """Return why the released library opens no writer, whatever the rows are, or ``""``."""
    if details.features:
        return f"the table uses what it does not know: {', '.join(details.features)}"
    count = len(details.shard_specs)
    return f"it takes one shard spec at most, and the table has had {count}" if count > 1 else ""


def table_status(
    store: ObjectStore,
    snapshot: ReadSnapshot,
    *,
    values_of: Mapping[UUID, Mapping[str, str]],
    sharded_by: str,
    library_note: str,
    twins: tuple[tuple[UUID, ...], ...] = (),
) -> TableStatus:
    """Describe a snapshot.

    Parameters
    ----------
    values_of : mapping of UUID to mapping
        Shard values of every shard, as text.
    sharded_by : str
        The shard spec, as text.
    library_note : str
        Why the released library cannot write rows of the table or route them; empty if it can.
    twins : tuple of tuple of UUID
        Shards that hold rows of the same shard values.
    """
    library_note = library_note or _what_stops_the_library(snapshot.base.details)
    return TableStatus(
        uri=store.uri,
        base_version=snapshot.base.version,
        base_rows=snapshot.base.dataset.count_rows(),
        primary_key=snapshot.base.primary_key,
        sharded_by=sharded_by,
        library_writable=not library_note,
        library_note=library_note,
        shards=tuple(
            _shard_report(store, snapshot, view, values_of.get(view.shard_id, {})) for view in snapshot.shards
        ),
        indexes=index_reports(snapshot.base),
        twins=twins,
        upkeep=_upkeep(store),
    )


def _upkeep(store: ObjectStore) -> str:
    try:
        lease = read_upkeep_lease(store)
    except CorruptionError:
        return ""  # the next upkeep of the table reports it
    if lease is None or lease_state(lease) != "held":
        return ""
    return f"process {lease.holder.process_id} on {lease.holder.host}"


def _shard_report(
    store: ObjectStore, snapshot: ReadSnapshot, view: ShardView, values: Mapping[str, str]
) -> ShardReport:
    unmerged = snapshot.unmerged(view)
    lease, state = _lease(store, view.shard_id)
    unflushed_seconds = _unflushed_seconds(store, view)
    return ShardReport(
        shard_id=view.shard_id,
        values=values,
        state=view.manifest.status.name,
        epoch=view.manifest.writer_epoch,
        wal_position=view.last_position,
        current_generation=view.manifest.current_generation,
        merged_generation=snapshot.base.details.merged_generation(view.shard_id),
        unmerged_generations=len(unmerged),
        unmerged_rows=sum(one.physical_rows for one in unmerged),
        unmerged_bytes=sum(one.in_memory_bytes or 0 for one in unmerged),
        unflushed_entries=sum(len(run.entries) for run in view.tail if run.rows.num_rows),
        unflushed_rows=view.tail_rows,
        unflushed_bytes=sum(run.nbytes for run in view.tail),
        unflushed_seconds=unflushed_seconds,
        lag_seconds=_lag(store, snapshot, view, unflushed_seconds),
        writer="" if lease is None else f"process {lease.holder.process_id} on {lease.holder.host}",
        lease=state,
        lease_expires_at=None if lease is None else lease.expires_at,
    )


def _lease(store: ObjectStore, shard_id: UUID) -> tuple[Lease | None, str]:
    try:
        found = read_lease(store, shard_id)
    except CorruptionError:
        # It stops the next claim, but not an inspection of the reason.
        return None, "damaged"
    return found, lease_state(found)


def _lag(store: ObjectStore, snapshot: ReadSnapshot, view: ShardView, unflushed_seconds: float) -> float:
    unmerged = snapshot.unmerged(view)
    if unmerged:
        return age_of_generation(store, view.shard_id, unmerged[0]).total_seconds()
    return unflushed_seconds


def _unflushed_seconds(store: ObjectStore, view: ShardView) -> float:
    waiting = next((item for run in view.tail for item in run.entries if item.entry.num_rows), None)
    if waiting is None:
        return 0.0
    return age_of_object(store, layout.wal_path(view.shard_id, waiting.position)).total_seconds()
