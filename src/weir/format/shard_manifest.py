"""The shard manifest: the authority on the state of one shard.

Stored as a protobuf message at :func:`weir.format.layout.manifest_path`, one immutable object per
version. Lance MemWAL spec, section "Shard Manifest"; fields 11.1, 14 and 15 and those of a flushed
generation beyond its path come from the released library.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from uuid import UUID

import xxhash

from weir.errors import CorruptionError, InputError
from weir.format import layout, messages
from weir.format.buffers import Bytes
from weir.format.proto import memwal_pb2
from weir.format.source import Source, SourceMarks
from weir.format.write_window import WriteWindow

__all__ = ["FlushedGeneration", "ShardFieldValue", "ShardManifest", "ShardStatus", "decode", "encode"]

_CHECKSUM_TAG = b"\xc9\x3e"
_CHECKSUM_SIZE = len(_CHECKSUM_TAG) + 8


class ShardStatus(IntEnum):
    """Whether a shard accepts writers."""

    ACTIVE = 0
    SEALED = 1
    """No writer may claim the shard again."""


@dataclass(frozen=True, slots=True)
class FlushedGeneration:
    """One MemTable that has been written out as a Lance dataset.

    Parameters
    ----------
    generation : int
        Its number, 1 or more; within a shard the higher number is the newer data.
    path : str
        Name of its directory inside the shard directory (:func:`weir.format.layout.generation_name`).
    in_memory_bytes : int, optional
        Size of the rows as Arrow data, in bytes; None if the writer did not record it.
    physical_rows : int, default 0
        Rows written, tombstones and superseded rows included.
    primary_key_bytes : int, default 0
        Size of the key columns as Arrow data, in bytes.
    bloom_filter_checksum : int, optional
        XXH64, seed 0, of the file with the bloom filter. Weir's own field; None in manifests of other
        writers, and of generations that they have taken over in one of theirs.
    published_after : int, optional
        Of a generation whose rows were never in the log (:mod:`weir.write.flush.staged_generations`), the
        last position of the log that comes before them. Weir's own field, as the checksum.
    unknown_fields : bytes, default b""
        Serialised fields of a newer writer, kept as they are.
    """

    generation: int
    path: str
    in_memory_bytes: int | None = None
    physical_rows: int = 0
    primary_key_bytes: int = 0
    bloom_filter_checksum: int | None = None
    published_after: int | None = None
    unknown_fields: bytes = b""


@dataclass(frozen=True, slots=True)
class ShardFieldValue:
    """The value that every row of a shard has for one field of the shard spec.

    Parameters
    ----------
    field_id : str
        Identifier of the field in the shard spec.
    value : bytes
        The Arrow scalar, little-endian.
    unknown_fields : bytes, default b""
        Serialised fields of a newer writer, kept as they are.
    """

    field_id: str
    value: bytes
    unknown_fields: bytes = b""


@dataclass(frozen=True, slots=True)
class ShardManifest:
    """The state of one shard. A change is a new manifest with the next version.

    Parameters
    ----------
    shard_id : UUID
        The shard.
    version : int
        Version of the manifest, from 1; the same number is in the name of the object.
    writer_epoch : int, default 0
        Fencing token: every claim raises it by one. 0 before the first claim.
    replay_after_wal_entry_position : int, default 0
        The last WAL position whose rows are in a flushed generation; 0 when none is.
    wal_entry_position_last_seen : int, default 0
        A WAL position known to exist when the manifest was written. A hint: newer ones may exist.
    current_generation : int, default 1
        Number of the next generation to flush.
    flushed_generations : tuple of FlushedGeneration, default ()
        Generations on storage, oldest first. Some of them may have been merged already.
    shard_spec_id : int, default 0
        The shard spec the shard was made with; 0 for a shard made by hand.
    shard_fields : tuple of ShardFieldValue, default ()
        The values of the shard spec's fields for this shard.
    status : ShardStatus, default ShardStatus.ACTIVE
        Whether writers may claim the shard.
    write_id : bytes, default b""
        Random stamp of the commit that published this version, by which a writer whose answer was
        lost recognises its own commit. Weir's own field; empty in manifests of other writers.
    sources : SourceMarks, optional
        How far each source of repeatable writes has got with the rows that generations hold. Weir's own
        field; None in manifests of other writers, which do not record it.
    unknown_fields : bytes, default b""
        Serialised fields of a newer writer, kept as they are.
    """

    shard_id: UUID
    version: int
    writer_epoch: int = 0
    replay_after_wal_entry_position: int = 0
    wal_entry_position_last_seen: int = 0
    current_generation: int = 1
    flushed_generations: tuple[FlushedGeneration, ...] = ()
    shard_spec_id: int = 0
    shard_fields: tuple[ShardFieldValue, ...] = ()
    status: ShardStatus = ShardStatus.ACTIVE
    write_id: bytes = b""
    sources: SourceMarks | None = None
    unknown_fields: bytes = b""


def encode(manifest: ShardManifest) -> bytes:
    """Return the bytes to store for ``manifest``.

    Raises
    ------
    InputError
        A number does not fit its field, or the path of a generation is not a plain name.

    Examples
    --------
    >>> manifest = ShardManifest(UUID(int=1), version=3, writer_epoch=2)
    >>> decode(encode(manifest), where="example") == manifest
    True
    """
    _check(manifest)
    try:
        message = memwal_pb2.ShardManifest(
            version=manifest.version,
            writer_epoch=manifest.writer_epoch,
            replay_after_wal_entry_position=manifest.replay_after_wal_entry_position,
            wal_entry_position_last_seen=manifest.wal_entry_position_last_seen,
            current_generation=manifest.current_generation,
            shard_spec_id=manifest.shard_spec_id,
            shard_id=memwal_pb2.Uuid(uuid=manifest.shard_id.bytes),
            status=memwal_pb2.ShardStatus.Name(manifest.status),
            write_id=manifest.write_id,
        )
        for flushed in manifest.flushed_generations:
            message.flushed_generations.add(
                generation=flushed.generation,
                path=flushed.path,
                in_memory_bytes=flushed.in_memory_bytes,
                physical_rows=flushed.physical_rows,
                primary_key_bytes=flushed.primary_key_bytes,
                bloom_filter_checksum=flushed.bloom_filter_checksum,
                published_after=flushed.published_after,
            ).MergeFromString(flushed.unknown_fields)
        for field in manifest.shard_fields:
            message.shard_fields.add(field_id=field.field_id, value=field.value).MergeFromString(
                field.unknown_fields
            )
        if manifest.sources is not None:
            message.sources.SetInParent()
            for source in manifest.sources:
                message.sources.marks.add(name=source.name, sequence=source.sequence)
            message.sources.write_ids.extend(manifest.sources.window.encode())
        message.MergeFromString(manifest.unknown_fields)
    except messages.ENCODE_ERRORS as error:
        raise InputError(f"the manifest of shard {manifest.shard_id} cannot be encoded: {error}") from error
    body = messages.serialize(message)
    return body + _CHECKSUM_TAG + xxhash.xxh64_intdigest(body).to_bytes(8, "little")


def decode(data: Bytes, *, where: str) -> ShardManifest:
    """Return the manifest stored as ``data``.

    Parameters
    ----------
    data : bytes-like
        The whole object.
    where : str
        Path of the object, for the error.

    Raises
    ------
    CorruptionError
        The bytes are not a manifest, or hold values that no manifest has.
    """
    message = messages.parse(memwal_pb2.ShardManifest(), data, what="shard manifest", where=where)
    _verify_checksum(bytes(data), message, where)
    status = int(message.status)
    if status not in list(ShardStatus):
        raise CorruptionError(
            f"the shard manifest has the unknown status {status}",
            where=where,
            hint="It may come from a newer writer",
        )
    manifest = ShardManifest(
        shard_id=messages.read_uuid(message.shard_id.uuid, what="the shard id of the manifest", where=where),
        version=message.version,
        writer_epoch=message.writer_epoch,
        replay_after_wal_entry_position=message.replay_after_wal_entry_position,
        wal_entry_position_last_seen=message.wal_entry_position_last_seen,
        current_generation=message.current_generation,
        flushed_generations=tuple(
            FlushedGeneration(
                generation=flushed.generation,
                path=flushed.path,
                in_memory_bytes=flushed.in_memory_bytes if flushed.HasField("in_memory_bytes") else None,
                physical_rows=flushed.physical_rows,
                primary_key_bytes=flushed.primary_key_bytes,
                bloom_filter_checksum=(
                    flushed.bloom_filter_checksum if flushed.HasField("bloom_filter_checksum") else None
                ),
                published_after=flushed.published_after if flushed.HasField("published_after") else None,
                unknown_fields=messages.unknown_fields(flushed),
            )
            for flushed in message.flushed_generations
        ),
        shard_spec_id=message.shard_spec_id,
        shard_fields=tuple(
            ShardFieldValue(field.field_id, field.value, messages.unknown_fields(field))
            for field in message.shard_fields
        ),
        status=ShardStatus(status),
        write_id=message.write_id,
        sources=_sources(message, where) if message.HasField("sources") else None,
        unknown_fields=messages.unknown_fields(message),
    )
    try:
        _check(manifest)
    except InputError as error:
        raise CorruptionError(error.message, where=where) from error
    return manifest


def _sources(message: memwal_pb2.ShardManifest, where: str) -> SourceMarks:
    try:
        window = WriteWindow.decode(message.sources.write_ids, where=where)
        # Single writes stood among the others once.
        marks = (Source(one.name, one.sequence) for one in message.sources.marks)
        return SourceMarks(window=window).with_marks(marks)
    except InputError as error:
        raise CorruptionError(error.message, where=where) from error


def _verify_checksum(data: bytes, message: memwal_pb2.ShardManifest, where: str) -> None:
    """Prove the bytes whole. A manifest of the released library has neither stamp nor checksum."""
    body, tag, digits = data[:-_CHECKSUM_SIZE], data[-_CHECKSUM_SIZE:-8], data[-8:]
    if tag == _CHECKSUM_TAG and xxhash.xxh64_intdigest(body) == int.from_bytes(digits, "little"):
        return
    if tag == _CHECKSUM_TAG or message.write_id or message.checksum:
        raise CorruptionError(
            "the shard manifest does not match its checksum",
            where=where,
            hint="Restore the file; the manifest of the version before is whole, and older",
        )


def _check(manifest: ShardManifest) -> None:
    if manifest.version < 1:
        raise InputError(f"the shard manifest has version {manifest.version}: versions count from 1")
    for flushed in manifest.flushed_generations:
        layout.check_name(flushed.path)
        if flushed.generation < 1:
            raise InputError(f"the shard manifest lists generation {flushed.generation}: they count from 1")
