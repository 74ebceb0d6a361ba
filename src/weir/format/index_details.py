"""The details of the MemWAL index: configuration and merge progress of a whole table.

They are the ``index_details`` of the index called :data:`INDEX_NAME` in the table's own manifest
(:mod:`weir.format.table_manifest`), so they change in the same commit as the data. Lance MemWAL
spec, section "MemWAL Index Details"; fields 11 and 12 come from the released library.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from uuid import UUID

from weir.errors import InputError
from weir.format import messages
from weir.format.buffers import Bytes
from weir.format.features import add_to, take_from
from weir.format.proto import memwal_pb2

__all__ = [
    "INDEX_NAME",
    "TYPE_URL",
    "IndexCatchup",
    "IndexDetails",
    "MergedGeneration",
    "ShardFieldSpec",
    "ShardSpec",
    "decode",
    "encode",
]

TYPE_URL = "/lance.table.MemWalIndexDetails"
"""Type of the details as the table manifest records it."""

INDEX_NAME = "__lance_mem_wal"
"""Name of the MemWAL index; a table has at most one."""


@dataclass(frozen=True, slots=True)
class ShardFieldSpec:
    """How one shard value is computed from a row. Lance MemWAL spec, section "Shard Spec".

    Parameters
    ----------
    field_id : str
        Identifier of the field, unique within the shard spec.
    source_ids : tuple of int
        Lance field ids of the source columns.
    transform : str or None
        Name of a shard transform; None if ``expression`` is given.
    expression : str or None
        A DataFusion SQL expression over ``col0``, ``col1``, ...; None if ``transform`` is given.
    result_type : str
        Type of the shard value, as Lance spells types (``"int32"``).
    parameters : mapping of str to str, default {}
        Parameters of the transform (``{"num_buckets": "8"}``).
    unknown_fields : bytes, default b""
        Serialised fields of a newer writer, kept as they are.
    """

    field_id: str
    source_ids: tuple[int, ...]
    transform: str | None
    expression: str | None
    result_type: str
    parameters: Mapping[str, str] = field(default_factory=dict, hash=False)
    unknown_fields: bytes = b""


@dataclass(frozen=True, slots=True)
class ShardSpec:
    """How rows map to shards.

    Parameters
    ----------
    spec_id : int
        Identifier within the table, 1 or more, never reused.
    fields : tuple of ShardFieldSpec, default ()
        The shard values; no field at all means one shard for every row.
    unknown_fields : bytes, default b""
        Serialised fields of a newer writer, kept as they are.
    """

    spec_id: int
    fields: tuple[ShardFieldSpec, ...] = ()
    unknown_fields: bytes = b""


@dataclass(frozen=True, slots=True)
class MergedGeneration:
    """The newest generation of a shard that the base table, or one of its indexes, has taken in.

    Parameters
    ----------
    shard_id : UUID
        The shard.
    generation : int
        All its generations up to this one are covered.
    unknown_fields : bytes, default b""
        Serialised fields of a newer writer, kept as they are.
    """

    shard_id: UUID
    generation: int
    unknown_fields: bytes = b""


@dataclass(frozen=True, slots=True)
class IndexCatchup:
    """How far one index of the base table covers merged generations.

    Parameters
    ----------
    index_name : str
        Name of the index.
    caught_up : tuple of MergedGeneration, default ()
        The newest generation the index covers, per shard.
    unknown_fields : bytes, default b""
        Serialised fields of a newer writer, kept as they are.
    """

    index_name: str
    caught_up: tuple[MergedGeneration, ...] = ()
    unknown_fields: bytes = b""

    def raised_to(self, merged: Mapping[UUID, int]) -> IndexCatchup:
        """Return it at least as far as ``merged``, a generation for each shard; the very same if it is.

        Examples
        --------
        >>> catchup = IndexCatchup("by_time", (MergedGeneration(UUID(int=1), 4),))
        >>> raised = catchup.raised_to({UUID(int=1): 3, UUID(int=2): 7})
        >>> [one.generation for one in raised.caught_up]
        [4, 7]
        """
        known = {one.shard_id: one for one in self.caught_up}
        for shard_id, generation in merged.items():
            before = known.get(shard_id, MergedGeneration(shard_id, 0))
            if before.generation < generation:
                known[shard_id] = replace(before, generation=generation)
        return replace(self, caught_up=tuple(known.values()))


@dataclass(frozen=True)
class IndexDetails:
    """Configuration, merge progress and shard snapshots of a table.

    Parameters
    ----------
    snapshot_ts_millis : int, default 0
        When the shard snapshots were taken, in milliseconds since 1970; 0 for never.
    num_shards : int, default 0
        Number of shards in the snapshots.
    inline_snapshots : bytes, optional
        The snapshots as a Lance file, when they are few; None when there are none or they are in a separate
        file.
    shard_specs : tuple of ShardSpec, default ()
        How rows map to shards.
    maintained_indexes : tuple of str, default ()
        Base-table indexes that generations get too.
    merged_generations : tuple of MergedGeneration, default ()
        Merge progress, per shard.
    index_catchup : tuple of IndexCatchup, default ()
        Progress of the base-table indexes.
    writer_config_defaults : mapping of str to str, default {}
        Writer options recorded with the table.
    maintain_all_indexes : bool, default False
        Whether generations get every index of the base table, regardless of ``maintained_indexes``.
    unknown_fields : bytes, default b""
        Serialised fields of a newer writer, kept as they are.
    features : tuple of str, default ()
        What a Weir has to know before it touches the table, by name (:mod:`weir.format.features`).
    """

    snapshot_ts_millis: int = 0
    num_shards: int = 0
    inline_snapshots: bytes | None = None
    shard_specs: tuple[ShardSpec, ...] = ()
    maintained_indexes: tuple[str, ...] = ()
    merged_generations: tuple[MergedGeneration, ...] = ()
    index_catchup: tuple[IndexCatchup, ...] = ()
    writer_config_defaults: Mapping[str, str] = field(default_factory=dict)
    maintain_all_indexes: bool = False
    unknown_fields: bytes = b""
    features: tuple[str, ...] = ()

    def merged_generation(self, shard_id: UUID) -> int:
        """Return the newest merged generation of a shard; 0 when none has been merged.

        Examples
        --------
        >>> details = IndexDetails(merged_generations=(MergedGeneration(UUID(int=1), 4),))
        >>> details.merged_generation(UUID(int=1))
        4
        """
        return self._newest_merged.get(shard_id, 0)

    @cached_property  # which a class with slots cannot have
    def _newest_merged(self) -> dict[UUID, int]:
        # Of ascending numbers the last of an id stays.
        ascending = sorted(self.merged_generations, key=lambda one: one.generation)
        return {one.shard_id: one.generation for one in ascending}


def encode(details: IndexDetails) -> bytes:
    """Return the bytes to store for ``details``; equal details give equal bytes.

    Raises
    ------
    InputError
        A number does not fit its field.

    Examples
    --------
    >>> details = IndexDetails(maintained_indexes=("vector_idx",))
    >>> decode(encode(details), where="example") == details
    True
    """
    try:
        message = memwal_pb2.MemWalIndexDetails(
            snapshot_ts_millis=details.snapshot_ts_millis,
            num_shards=details.num_shards,
            inline_snapshots=details.inline_snapshots,
            shard_specs=[_encode_spec(spec) for spec in details.shard_specs],
            maintained_indexes=details.maintained_indexes,
            merged_generations=_encode_merged(details.merged_generations),
            writer_config_defaults=details.writer_config_defaults,
            maintain_all_indexes=details.maintain_all_indexes,
        )
        for catchup in details.index_catchup:
            message.index_catchup.add(
                index_name=catchup.index_name, caught_up_generations=_encode_merged(catchup.caught_up)
            ).MergeFromString(catchup.unknown_fields)
        message.MergeFromString(details.unknown_fields)
        add_to(message, details.features)
    except messages.ENCODE_ERRORS as error:
        raise InputError(f"the MemWAL index details cannot be encoded: {error}") from error
    return messages.serialize(message)


def decode(data: Bytes, *, where: str) -> IndexDetails:
    """Return the details stored as ``data``.

    Parameters
    ----------
    data : bytes-like
        The value of the index details.
    where : str
        Path of the table manifest they come from, for the error.

    Raises
    ------
    CorruptionError
        The bytes are not MemWAL index details.
    """
    message = messages.parse(memwal_pb2.MemWalIndexDetails(), data, what="MemWAL index details", where=where)
    features, defaults, specs = take_from(message.writer_config_defaults, message.shard_specs)
    return IndexDetails(
        snapshot_ts_millis=message.snapshot_ts_millis,
        num_shards=message.num_shards,
        inline_snapshots=message.inline_snapshots if message.HasField("inline_snapshots") else None,
        shard_specs=tuple(_decode_spec(spec) for spec in specs),
        maintained_indexes=tuple(message.maintained_indexes),
        merged_generations=_decode_merged(message.merged_generations, where),
        index_catchup=tuple(
            IndexCatchup(
                catchup.index_name,
                _decode_merged(catchup.caught_up_generations, where),
                messages.unknown_fields(catchup),
            )
            for catchup in message.index_catchup
        ),
        writer_config_defaults=defaults,
        maintain_all_indexes=message.maintain_all_indexes,
        unknown_fields=messages.unknown_fields(message),
        features=features,
    )


def _encode_spec(spec: ShardSpec) -> memwal_pb2.ShardSpec:
    message = memwal_pb2.ShardSpec(spec_id=spec.spec_id)
    for item in spec.fields:
        message.fields.add(
            field_id=item.field_id,
            source_ids=item.source_ids,
            transform=item.transform,
            expression=item.expression,
            result_type=item.result_type,
            parameters=item.parameters,
        ).MergeFromString(item.unknown_fields)
    message.MergeFromString(spec.unknown_fields)
    return message


def _decode_spec(message: memwal_pb2.ShardSpec) -> ShardSpec:
    fields = tuple(
        ShardFieldSpec(
            field_id=item.field_id,
            source_ids=tuple(item.source_ids),
            transform=item.transform if item.HasField("transform") else None,
            expression=item.expression if item.HasField("expression") else None,
            result_type=item.result_type,
            parameters=dict(item.parameters),
            unknown_fields=messages.unknown_fields(item),
        )
        for item in message.fields
    )
    return ShardSpec(message.spec_id, fields, messages.unknown_fields(message))


def _encode_merged(merged: Iterable[MergedGeneration]) -> list[memwal_pb2.MergedGeneration]:
    encoded = []
    for item in merged:
        message = memwal_pb2.MergedGeneration(
            shard_id=memwal_pb2.Uuid(uuid=item.shard_id.bytes), generation=item.generation
        )
        message.MergeFromString(item.unknown_fields)
        encoded.append(message)
    return encoded


def _decode_merged(merged: Iterable[memwal_pb2.MergedGeneration], where: str) -> tuple[MergedGeneration, ...]:
    return tuple(
        MergedGeneration(
            messages.read_uuid(item.shard_id.uuid, what="the shard id of a merged generation", where=where),
            item.generation,
            messages.unknown_fields(item),
        )
        for item in merged
    )
