"""The structure of a namespace in terms of write-ahead log and compaction: fragments, segments, lease."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import lance
import pyarrow as pa
import pyarrow.compute as pc

import weir
from weir.errors import ObjectNotFoundError
from weir.log.read_lease import read_lease
from weir.maintenance.status import ShardReport, TableStatus
from weir.namespaces.definition import Definition
from weir.namespaces.names import ID, attribute_of
from weir.namespaces.values import column_values
from weir.storage.interface import Bytes

__all__ = ["Fragment", "LeaseReport", "Manifest", "Segment", "lease_report", "manifest_report", "uncompacted"]

_GENERATION = re.compile(r".*_gen_(\d+)\Z")
_TOMBSTONE = "_tombstone"
_MOST_PENDING = 10_000

_Entry = tuple[int, list[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fragment:
    """A log entry, or a flushed generation, that is not merged yet."""

    id: str
    key: str
    vector_count: int
    delete_count: int
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """The base table: everything that is merged."""

    id: str
    key_prefix: str
    vector_count: int
    centroid_count: int
    quantization: str | None
    bitmap_fields: list[str]
    fts_fields: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """What a namespace is made of."""

    fragments: list[Fragment]
    segments: list[Segment]
    pending_deletes: list[Any]
    fencing_token: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseReport:
    """Who writes a namespace."""

    holder: str
    fencing_token: int
    acquired_at: datetime
    expires_at: datetime


def manifest_report(table: weir.Table, definition: Definition) -> Manifest:
    """Return what a namespace's table is made of."""
    status = table.status()
    fragments: list[Fragment] = []
    pending: list[Any] = []
    for shard in status.shards:
        for fragment, deleted in (*_generations(table, shard), *_entries(table, shard, {})):
            fragments.append(fragment)
            pending.extend(deleted)
    segments = []
    if status.base_rows:
        kinds = {index.column: index.kind for index in status.indexes}
        vectors = [
            index.definition
            for index in table.indexes.list()
            if index.definition and index.definition.kind.is_vector
        ]
        segments.append(
            Segment(
                id=f"segment-{status.base_version}",
                key_prefix=f"{definition.table}/data/",
                vector_count=status.base_rows,
                centroid_count=max(
                    (int(one.parameters.get("num_partitions") or 0) for one in vectors), default=0
                ),
                quantization={"IVF_PQ": "product", "IVF_HNSW_SQ": "scalar"}.get(
                    str(vectors[0].kind) if vectors else ""
                ),
                bitmap_fields=sorted(
                    attribute_of(name)
                    for name, kind in kinds.items()
                    if kind in ("BITMAP", "BTREE") and name != ID
                ),
                fts_fields=sorted(attribute_of(name) for name, kind in kinds.items() if kind == "INVERTED"),
            )
        )
    return Manifest(
        fragments=fragments,
        segments=segments,
        pending_deletes=pending[:_MOST_PENDING],
        fencing_token=max((shard.epoch for shard in status.shards), default=0),
    )


def _entries(
    table: weir.Table, shard: ShardReport, known: dict[str, _Entry]
) -> Iterator[tuple[Fragment, list[Any]]]:
    """Yield the log entries that wait for their flush, oldest first, with the ids that they delete."""
    if not shard.unflushed_entries:
        return
    stored = table.internals.store.list(f"_mem_wal/{shard.shard_id}/wal")
    entries = sorted(
        (meta for meta in stored if meta.path.endswith(".arrow")), key=lambda meta: _position(meta.path)
    )
    for meta in entries[-shard.unflushed_entries :]:
        if meta.path not in known:
            try:
                known[meta.path] = _read_entry(table.internals.store.get(meta.path))
            except ObjectNotFoundError:
                continue
        rows, deleted = known[meta.path]
        if rows:  # what only says who has claimed the shard has none
            fragment = Fragment(
                id=f"{_position(meta.path):020d}",
                key=meta.path,
                vector_count=rows - len(deleted),
                delete_count=len(deleted),
                created_at=meta.last_modified,
            )
            yield fragment, deleted


def _read_entry(data: Bytes) -> _Entry:
    rows = pa.ipc.open_stream(pa.py_buffer(data)).read_all()
    return rows.num_rows, column_values(rows.filter(rows.column(_TOMBSTONE)).column(ID))


def uncompacted(table: weir.Table, status: TableStatus, known: dict[str, _Entry]) -> int:
    """Return how many log entries with rows, and generations, wait to be merged.

    Parameters
    ----------
    table : Table
        The table.
    status : TableStatus
        How it stands.
    known : dict
        Cache of entries, which never change; new ones are added.
    """
    for path in list(known)[:-_MOST_PENDING]:
        known.pop(path, None)
    return sum(
        shard.unmerged_generations + sum(1 for _ in _entries(table, shard, known)) for shard in status.shards
    )


def _position(path: str) -> int:
    """Return the log position that a path names: 64 bits, the last one first."""
    digits = path.rpartition("/")[2].removesuffix(".arrow")
    return int(digits[::-1], 2) if len(digits) == 64 and set(digits) <= {"0", "1"} else 0


def _generations(table: weir.Table, shard: ShardReport) -> Iterator[tuple[Fragment, list[Any]]]:
    if not shard.unmerged_generations:
        return
    place = f"_mem_wal/{shard.shard_id}"
    waiting = range(shard.merged_generation + 1, shard.current_generation)
    numbered = [
        (int(found[1]), name)
        for name in table.internals.store.list_directories(place)
        if (found := _GENERATION.match(name)) and int(found[1]) in waiting
    ]
    for number, name in sorted(numbered):
        store = table.internals.store
        dataset = lance.dataset(f"{store.uri}/{place}/{name}", storage_options=dict(store.storage_options))
        rows = dataset.to_table(columns=[ID, _TOMBSTONE])
        dead = rows.column(_TOMBSTONE)
        deletes = rows.filter(dead).column(ID)
        fragment = Fragment(
            id=f"generation-{number}",
            key=f"{place}/{name}",
            vector_count=rows.num_rows - (pc.sum(dead).as_py() or 0),
            delete_count=len(deletes),
            created_at=datetime.fromisoformat(str(dataset.versions()[0]["timestamp"])).astimezone(UTC),
        )
        yield fragment, column_values(deletes)


def lease_report(table: weir.Table) -> LeaseReport | None:
    """Return the writer of a namespace's table; None if there never was one."""
    for shard in table.status().shards:
        lease = read_lease(table.internals.store, UUID(str(shard.shard_id)))
        if lease is not None:
            return LeaseReport(
                holder=f"{lease.holder.host}/{lease.holder.process_id}/{lease.holder.holder_id}",
                fencing_token=lease.epoch,
                acquired_at=lease.acquired_at,
                expires_at=min(lease.expires_at, lease.renewed_at) if lease.released else lease.expires_at,
            )
    return None
