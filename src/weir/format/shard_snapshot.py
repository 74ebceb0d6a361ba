"""Shard snapshots: the manifests of many shards as one table.

Lance MemWAL spec, "Shard Snapshot Storage" and "Shard Snapshot Arrow Schema": one row per shard, one
column per manifest field, and one of its own type per shard field. Few shards are stored inline in the
details of the MemWAL index, many in a file of their own; both are the bytes of a Lance file.

The index that a snapshot was published with gets a new id from every merge and index build of the
released library, and the file stays where it is. So the details also record the id of the directory that
holds the file, in a place that the library keeps and does not read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from uuid import UUID

import pyarrow as pa

from weir.errors import CorruptionError
from weir.format import arrow_scalar, layout
from weir.format.index_details import IndexDetails
from weir.format.shard_manifest import FlushedGeneration, ShardFieldValue, ShardManifest

__all__ = [
    "INLINE_SHARDS",
    "SNAPSHOT_DIRECTORY",
    "external_path",
    "from_table",
    "snapshot_path",
    "to_table",
    "with_external",
    "with_inline",
]

INLINE_SHARDS = 100
"""Snapshots of up to this many shards are stored inline."""

SNAPSHOT_DIRECTORY = "weir.shard_snapshots"
"""Key among the writer defaults of the MemWAL index: the id of the directory with the snapshot's file."""

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
        The type of each shard field. The column of a field whose type is not known holds the bytes that
        the manifests do. A value that is none of its type, as a shard of another spec may have it, is
        left out: whoever reads the snapshot then takes the shard for one that may hold any rows.

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
        If a column of the spec is missing, a value is not what it can be, or a shard is there twice.
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
                f"the shard snapshot has a row that is no manifest: {error}", where=where
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
    recorded = details.writer_config_defaults.get(SNAPSHOT_DIRECTORY)
    if recorded is not None:
        try:
            directory = UUID(recorded)
        except ValueError:
            directory = None
        if directory is None or str(directory) != recorded:
            raise CorruptionError(
                f"the MemWAL index has its shard snapshot in {recorded[:80]!r}, which is not a UUID",
                where=where,
                hint="Publish it again: merge",
            )
        return external_path(directory)
    # The library records in num_shards how many shards a new table is to have, and takes no snapshot.
    taken = details.snapshot_ts_millis > 0 and details.num_shards > 0
    return external_path(index_id) if taken else None


def with_inline(details: IndexDetails, shards: int, snapshot: bytes, *, taken_at_millis: int) -> IndexDetails:
    """Return details that publish a snapshot inline."""
    return _published(details, shards, snapshot, None, taken_at_millis)


def with_external(
    details: IndexDetails, shards: int, directory: UUID, *, taken_at_millis: int
) -> IndexDetails:
    """Return details that publish the snapshot in the file of a directory."""
    return _published(details, shards, None, directory, taken_at_millis)


def _published(
    details: IndexDetails, shards: int, inline: bytes | None, directory: UUID | None, taken_at_millis: int
) -> IndexDetails:
    defaults = {k: v for k, v in details.writer_config_defaults.items() if k != SNAPSHOT_DIRECTORY}
    if directory is not None:
        defaults[SNAPSHOT_DIRECTORY] = str(directory)
    return replace(
        details,
        snapshot_ts_millis=taken_at_millis,
        num_shards=shards,
        inline_snapshots=inline,
        writer_config_defaults=defaults,
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
