"""Shard snapshots: the manifests of many shards as one table.

Lance MemWAL spec, "Shard Snapshot Arrow Schema": one row per shard, one column per manifest field and
one per shard field.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import pyarrow as pa

from weir.errors import CorruptionError
from weir.format import layout
from weir.format.shard_manifest import FlushedGeneration, ShardFieldValue, ShardManifest

__all__ = ["from_table", "to_table"]

_FIELD_PREFIX = "region_field_"
_GENERATIONS = pa.list_(pa.struct([("generation", pa.uint64()), ("path", pa.string())]))
_COLUMNS: dict[str, pa.DataType] = {
    "shard_id": pa.binary(16),
    "version": pa.uint64(),
    "shard_spec_id": pa.uint32(),
    "writer_epoch": pa.uint64(),
    "replay_after_wal_entry_position": pa.uint64(),
    "wal_entry_position_last_seen": pa.uint64(),
    "current_generation": pa.uint64(),
    "flushed_generations": _GENERATIONS,
}
_PLAIN_COLUMNS = tuple(name for name in _COLUMNS if name not in ("shard_id", "flushed_generations"))


def to_table(manifests: Sequence[ShardManifest]) -> pa.Table:
    """Return one row per manifest.

    Shard values are kept as the bytes their manifests hold, so that shards of different shard specs
    fit one table.
    """
    rows = [
        {
            **{name: getattr(one, name) for name in _PLAIN_COLUMNS},
            "shard_id": one.shard_id.bytes,
            "flushed_generations": [
                {"generation": flushed.generation, "path": flushed.path}
                for flushed in one.flushed_generations
            ],
            **{_FIELD_PREFIX + value.field_id: value.value for value in one.shard_fields},
        }
        for one in manifests
    ]
    fields = sorted({_FIELD_PREFIX + value.field_id for one in manifests for value in one.shard_fields})
    schema = pa.schema([*_COLUMNS.items(), *((name, pa.binary()) for name in fields)])
    return pa.Table.from_pylist(rows, schema)


def from_table(table: pa.Table, *, where: str) -> tuple[ShardManifest, ...]:
    """Return the manifests a snapshot holds, by ascending shard id.

    Raises
    ------
    CorruptionError
        If a column of the spec is missing or a value is not what it can be.
    """
    missing = [name for name in _COLUMNS if name not in table.schema.names]
    if missing:
        raise CorruptionError(
            f"the shard snapshot has no column {missing[0]!r}", where=where, hint="Publish it again"
        )
    manifests = []
    for row in table.to_pylist():
        try:
            manifests.append(_manifest(row))
        except (ValueError, TypeError, KeyError) as error:
            raise CorruptionError(
                f"the shard snapshot has a row that is no manifest: {error}", where=where
            ) from error
    return tuple(sorted(manifests, key=lambda one: one.shard_id))


def _manifest(row: dict[str, object]) -> ShardManifest:
    generations = row["flushed_generations"] or []
    plain = {name: row[name] for name in _PLAIN_COLUMNS}
    return ShardManifest(
        shard_id=UUID(bytes=row["shard_id"]),  # type: ignore[arg-type]
        flushed_generations=tuple(
            FlushedGeneration(generation=one["generation"], path=layout.check_name(one["path"]))
            for one in generations  # type: ignore[attr-defined]
        ),
        shard_fields=tuple(
            ShardFieldValue(name.removeprefix(_FIELD_PREFIX), value)  # type: ignore[arg-type]
            for name, value in row.items()
            if name.startswith(_FIELD_PREFIX) and value is not None
        ),
        **plain,  # type: ignore[arg-type]
    )
