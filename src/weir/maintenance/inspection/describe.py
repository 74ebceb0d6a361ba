"""Decoded objects as plain values. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

import pyarrow as pa

from weir.base.merge_guard import guard_id, without_guards
from weir.format.first_index_details import FirstIndexDetails, MemWal
from weir.format.index_details import IndexDetails, ShardSpec
from weir.format.shard_manifest import ShardManifest
from weir.format.snapshot_token import SnapshotToken
from weir.format.wal_entry import WalEntry
from weir.format.wal_header import WalEntryHeader
from weir.maintenance.verification.facts import values_of

__all__ = [
    "details_facts",
    "entry_facts",
    "first_details_facts",
    "header_facts",
    "manifest_facts",
    "mem_wal_facts",
    "plain",
]


def plain(value: object) -> Any:
    """Return a value as JSON can hold it: dataclasses by field, times and ids as text, bytes in hex."""
    if isinstance(value, SnapshotToken):
        return {"text": str(value), **_members(value)}
    if is_dataclass(value) and not isinstance(value, type):
        return _members(value)
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, pa.Scalar):
        return _plain_scalar(value)
    if isinstance(value, (date, time)):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value).hex()
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(one) for one in value]
    return value


def _plain_scalar(value: pa.Scalar) -> Any:
    try:
        return plain(value.as_py())
    except (ValueError, OverflowError, pa.ArrowException):
        pass  # a date that Python has no value for, a nanosecond, a time zone that is not known here
    try:
        return str(pa.array([value], value.type).cast(pa.string())[0])
    except pa.ArrowException:
        return repr(value)


def _members(value: Any) -> dict[str, Any]:
    found = {one.name: plain(getattr(value, one.name)) for one in fields(value)}
    # Only a newer writer leaves any.
    return {name: one for name, one in found.items() if name != "unknown_fields" or one}


def manifest_facts(manifest: ShardManifest, specs: Mapping[int, ShardSpec]) -> dict[str, Any]:
    """Return what a shard manifest says; its values as text where the shard spec is known."""
    facts = _members(manifest)
    values = values_of(manifest, specs)
    if values is not None:
        facts["values"] = dict(values.to_text())
    return facts


def header_facts(header: WalEntryHeader) -> dict[str, Any]:
    """Return the metadata of a log entry."""
    return _members(header)


def entry_facts(entry: WalEntry, nbytes: int) -> dict[str, Any]:
    """Return the content of a log entry, except its rows."""
    return {
        **header_facts(entry.header),
        "nbytes": nbytes,
        "rows": entry.num_rows,
        "batches": len(entry.batches),
        "columns": {field.name: str(field.type) for field in entry.schema},
    }


def details_facts(details: IndexDetails) -> dict[str, Any]:
    """Return what the details of a MemWAL index say; of an inline snapshot its size."""
    facts = _members(details)
    inline = details.inline_snapshots
    facts["inline_snapshots"] = None if inline is None else f"{len(inline)} bytes"
    if details.snapshot_ts_millis:
        taken = datetime.fromtimestamp(details.snapshot_ts_millis / 1000, UTC)
        facts["snapshot_ts_millis"] = f"{details.snapshot_ts_millis} ({taken.isoformat()})"
    recorded = {one.shard_id: one.generation for one in details.merged_generations}
    facts["merged_generations"] = [
        {
            "shard_id": str(one.shard_id),
            "generation": one.generation,
            "guard": recorded.get(guard_id(one.shard_id)),
        }
        for one in _by_shard(without_guards(details.merged_generations))
    ]
    facts["index_catchup"] = [
        {
            "index_name": catchup.index_name,
            "caught_up": {
                str(one.shard_id): one.generation for one in _by_shard(without_guards(catchup.caught_up))
            },
        }
        for catchup in details.index_catchup
    ]
    return facts


def first_details_facts(details: FirstIndexDetails) -> dict[str, Any]:
    """Return what details of the first form say: of each MemWAL its life, and which entries its WAL has."""
    return {"mem_wals": [mem_wal_facts(one) for one in details.mem_wals]}


def mem_wal_facts(mem_wal: MemWal) -> dict[str, Any]:
    """Return the index's record of a MemWAL."""
    entries = mem_wal.entries
    return {
        "region": mem_wal.region,
        "generation": mem_wal.generation,
        "state": mem_wal.state.name,
        "owner_id": mem_wal.owner_id,
        "wal_location": mem_wal.wal_location,
        "mem_table_location": mem_wal.mem_table_location,
        "wal_entries": f"{entries.count} before {entries.next} ({entries.form})",
        "last_updated_dataset_version": mem_wal.last_updated_dataset_version,
    }


def _by_shard(merged: Iterable[Any]) -> list[Any]:
    return sorted(merged, key=lambda one: one.shard_id)
