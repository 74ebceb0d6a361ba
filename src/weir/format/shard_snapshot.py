"""Shard snapshots: the manifests of many shards as one table.

Lance MemWAL spec, "Shard Snapshot Storage" and "Shard Snapshot Arrow Schema": one row per shard, one column
per manifest field, and one of its own type per shard field. Few shards are stored inline in the details of
the MemWAL index, many in a separate file; both are the bytes of a Lance file.

The index that a snapshot was published with gets a new id from every merge and index build of the
released library, and the file stays where it is. So the details also record the directory that holds the
file, and a checksum, in a place that the library keeps and does not read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

import pyarrow as pa
import xxhash

from weir.errors import CorruptionError
from weir.format import arrow_scalar, layout
from weir.format.buffers import Bytes
from weir.format.index_details import IndexDetails
from weir.format.shard_manifest import FlushedGeneration, ShardFieldValue, ShardManifest

__all__ = [
    "INLINE_SHARDS",
    "SNAPSHOT_RECORD",
    "SnapshotRecord",
    "external_path",
    "from_table",
    "prove",
    "published",
    "recorded",
    "snapshot_path",
    "to_table",
]

INLINE_SHARDS = 100
"""Snapshots of up to this many shards are stored inline."""

SNAPSHOT_RECORD = "weir.shard_snapshot"
"""Key among the writer defaults of the MemWAL index: when the snapshot was taken, its checksum (XXH64, seed
0, 16 hex digits), and ``inline`` or the id of the directory with its file, with a blank in between."""

_INLINE = "inline"
_RECORD = re.compile(
    r"([0-9]{1,18}) ([0-9a-f]{16}) (inline|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class SnapshotRecord:
    """What Weir records of a snapshot it publishes.

    Parameters
    ----------
    checksum : str
        XXH64 of its bytes, seed 0, 16 hex digits.
    directory : UUID or None
        The directory with its file; None if it is inline.
    """

    checksum: str
    directory: UUID | None


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


def to_table(
    manifests: Sequence[ShardManifest], value_types: Mapping[str, pa.DataType] | None = None
) -> pa.Table:
    """Return one row per manifest, by ascending shard id.

    Parameters
    ----------
    manifests : sequence of ShardManifest
        The shards.
    value_types : mapping of str to DataType, optional
        The type of each shard field. The column of a field whose type is not known holds the bytes that the
        manifests do. A value of another type, as a shard of another spec may have, is left out: readers of
        the snapshot then assume that the shard may hold any rows.

    Examples
    --------
    >>> shard = ShardManifest(UUID(int=1), 1, shard_fields=(ShardFieldValue("bucket", bytes([3, 0, 0, 0])),))
    >>> to_table([shard], {"bucket": pa.int32()}).column("region_field_bucket").to_pylist()
    [3]
    """
    ordered = sorted(manifests, key=lambda one: one.shard_id)
    rows = [
        {
            **{name: getattr(one, name) for name in _PLAIN_COLUMNS},
            "shard_id": one.shard_id.bytes,
            "flushed_generations": [
                {"generation": flushed.generation, "path": flushed.path}
                for flushed in one.flushed_generations
            ],
        }
        for one in ordered
    ]
    table = pa.Table.from_pylist(rows, pa.schema(list(_COLUMNS.items())))
    for field_id in sorted({value.field_id for one in ordered for value in one.shard_fields}):
        held = [
            next((value.value for value in one.shard_fields if value.field_id == field_id), None)
            for one in ordered
        ]
        kind = (value_types or {}).get(field_id, pa.binary())
        column = pa.chunked_array([_column(held, kind)])
        table = table.append_column(_FIELD_PREFIX + field_id, column)
    return table


def from_table(table: pa.Table, *, where: str) -> tuple[ShardManifest, ...]:
    """Return the manifests a snapshot holds, by ascending shard id.

    Raises
    ------
    CorruptionError
        If a column of the spec is missing, a value is invalid, or a shard occurs twice.
    """
    missing = [name for name in _COLUMNS if name not in table.schema.names]
    if missing:
        raise CorruptionError(
            f"the shard snapshot has no column {missing[0]!r}", where=where, hint="Publish it again"
        )
    values = [_values(table, name, where) for name in table.schema.names if name.startswith(_FIELD_PREFIX)]
    manifests = []
    for number, row in enumerate(table.select(list(_COLUMNS)).to_pylist()):
        try:
            fields = tuple(one[number] for one in values)
            manifests.append(_manifest(row, tuple(one for one in fields if one is not None)))
        except (ValueError, TypeError, KeyError) as error:
            raise CorruptionError(
                f"the shard snapshot has a row that is not a manifest: {error}", where=where
            ) from error
    if len({one.shard_id for one in manifests}) < len(manifests):
        raise CorruptionError("the shard snapshot has two rows of one shard", where=where)
    return tuple(sorted(manifests, key=lambda one: one.shard_id))


def external_path(directory: UUID) -> str:
    """Return the path of a snapshot's file, relative to the table root.

    Parameters
    ----------
    directory : UUID
        Id of the MemWAL index it is published with.
    """
    return f"_indices/{directory}/index.lance"


def snapshot_path(details: IndexDetails, index_id: UUID, *, where: str) -> str | None:
    """Return the path of the file that holds the snapshot, or None if it is inline or there is none.

    Parameters
    ----------
    details : IndexDetails
        Details of the MemWAL index.
    index_id : UUID
        Id of the index.
    where : str
        The table's manifest they come from, for errors.

    Raises
    ------
    CorruptionError
        The details name a directory that is none.
    """
    if details.inline_snapshots:
        return None
    record = recorded(details, where=where)
    if record is not None and record.directory is not None:
        return external_path(record.directory)
    # The library records in num_shards how many shards a new table is to have, and takes no snapshot.
    taken = details.snapshot_ts_millis > 0 and details.num_shards > 0
    return external_path(index_id) if taken else None


def recorded(details: IndexDetails, *, where: str) -> SnapshotRecord | None:
    """Return what Weir has recorded of the published snapshot; None if it was not Weir that published it.

    Raises
    ------
    CorruptionError
        The record is none.
    """
    text = details.writer_config_defaults.get(SNAPSHOT_RECORD)
    if text is None:
        return None
    found = _RECORD.fullmatch(text)
    if found is None:
        raise CorruptionError(
            f"the MemWAL index records its shard snapshot as {text[:120]!r}",
            where=where,
            hint="Publish it again: merge",
        )
    if int(found[1]) != details.snapshot_ts_millis:
        return None  # others have published since, and kept what they do not know
    return SnapshotRecord(found[2], None if found[3] == _INLINE else UUID(found[3]))


def prove(data: Bytes, details: IndexDetails, *, where: str) -> None:
    """Make sure that the bytes of a snapshot are those that Weir has published.

    Without it damaged bytes would reach the library, which ends the process over some of them.

    Raises
    ------
    CorruptionError
        They are not.
    """
    record = recorded(details, where=where)
    if record is not None and xxhash.xxh64_hexdigest(data) != record.checksum:
        raise CorruptionError(
            "the shard snapshot does not match its checksum", where=where, hint="Publish it again: merge"
        )


def published(
    details: IndexDetails, shards: int, data: bytes, *, directory: UUID | None, taken_at_millis: int
) -> IndexDetails:
    """Return details that publish a snapshot.

    Parameters
    ----------
    details : IndexDetails
        Details of the MemWAL index.
    shards : int
        How many shards it has.
    data : bytes
        The bytes of its Lance file.
    directory : UUID or None
        Where they are stored; None to store them inline.
    taken_at_millis : int
        When it was taken, in milliseconds since 1970.
    """
    place = _INLINE if directory is None else str(directory)
    record = f"{taken_at_millis} {xxhash.xxh64_hexdigest(data)} {place}"
    return replace(
        details,
        snapshot_ts_millis=taken_at_millis,
        num_shards=shards,
        inline_snapshots=data if directory is None else None,
        writer_config_defaults={**details.writer_config_defaults, SNAPSHOT_RECORD: record},
    )


def _column(held: Sequence[bytes | None], kind: pa.DataType) -> pa.Array:
    column = pa.array([_scalar(data, kind) for data in held], kind)
    if arrow_scalar.encode(column) == list(held):
        return column
    # Not every value is one of its type, byte for byte.
    kept = [data == again for data, again in zip(held, arrow_scalar.encode(column), strict=True)]
    return pa.array([scalar if ok else None for scalar, ok in zip(column, kept, strict=True)], kind)


def _scalar(data: bytes | None, kind: pa.DataType) -> pa.Scalar | None:
    if data is None:
        return None
    try:
        return arrow_scalar.decode(data, kind)
    except CorruptionError:
        return None


def _values(table: pa.Table, name: str, where: str) -> list[ShardFieldValue | None]:
    field_id = name.removeprefix(_FIELD_PREFIX)
    try:
        encoded = arrow_scalar.encode(table.column(name).combine_chunks())
    except (pa.ArrowException, ValueError, AttributeError) as error:
        raise CorruptionError(
            f"the shard snapshot has values of the type {table.schema.field(name).type} in {name!r}",
            where=where,
        ) from error
    return [None if data is None else ShardFieldValue(field_id, data) for data in encoded]


def _manifest(row: dict[str, object], fields: tuple[ShardFieldValue, ...]) -> ShardManifest:
    generations = row["flushed_generations"] or []
    plain = {name: row[name] for name in _PLAIN_COLUMNS}
    if any(value is None for value in plain.values()):
        raise ValueError("a number is null")
    return ShardManifest(
        shard_id=UUID(bytes=row["shard_id"]),  # type: ignore[arg-type]
        flushed_generations=tuple(
            FlushedGeneration(generation=one["generation"], path=layout.check_name(one["path"]))
            for one in generations  # type: ignore[attr-defined]
        ),
        shard_fields=fields,
        **plain,  # type: ignore[arg-type]
    )
