"""A WAL entry: the rows of one WAL flush, as an Arrow IPC stream, followed by a trailer.

Columns are those of the table and :data:`TOMBSTONE`, which comes from the released library. What the entry
says about itself is in the metadata of the stream's schema (:mod:`weir.format.wal_header`), and what is
specific to its append in the trailer (:mod:`weir.format.wal_trailer`). Lance MemWAL spec, section "WAL Entry
Format".
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from io import RawIOBase

import pyarrow as pa
import xxhash
from pyarrow import ipc

from weir.errors import CorruptionError, InputError, SchemaError
from weir.format.batch_memory import batch_bytes
from weir.format.buffers import Bytes
from weir.format.field_ids import has_field_ids, interned
from weir.format.ipc_framing import END_OF_STREAM, read_frames, read_key_values
from weir.format.log_place import LogPlace
from weir.format.wal_header import (
    WalEntryHeader,
    header_metadata,
    read_header,
    with_append,
    without_entry_keys,
)
from weir.format.wal_marks import encode_marks, read_marks
from weir.format.wal_opening import Opening, known_opening, remember_opening
from weir.format.wal_trailer import TRAILER_BYTES, WalTrailer, prove, read_trailer
from weir.format.wal_without_trailer import is_proved, old_append

__all__ = [
    "TOMBSTONE",
    "WalEntry",
    "decode",
    "decode_header",
    "encode",
    "new_write_id",
    "wal_schema",
]

_BY_FIELD_ID = {b"weir:by": b"field id"}

TOMBSTONE = "_tombstone"
"""Name of the boolean column, never null, that is true for a row that deletes its key."""

# Up to here copying a batch into one message costs less than collecting its buffers one by one.
_COPY_LIMIT = 1024 * 1024
# Streams align to 8 bytes, and Lance insists on 16 for decimals: those are copied to where they are.
_READ_OPTIONS = ipc.IpcReadOptions(ensure_alignment=ipc.Alignment.At64Byte)
_STREAM_OPTIONS = ipc.IpcWriteOptions(use_legacy_format=False, compression=None)

# What pyarrow raises for a stream it cannot read; OSError for Arrow's IOError.
_ARROW_ERRORS = (pa.ArrowException, OSError, ValueError, KeyError, OverflowError, MemoryError)


@dataclass(frozen=True, slots=True)
class WalEntry:
    """A decoded WAL entry. Its batches refer to the bytes it was decoded from.

    Parameters
    ----------
    header : WalEntryHeader
        What the entry says of itself.
    schema : pyarrow.Schema
        Schema of the batches, without the entry's own metadata.
    batches : tuple of pyarrow.RecordBatch
        The rows, in the order they were written.

    Attributes
    ----------
    num_rows : int
        Number of rows, tombstones included.
    nbytes : int
        About how many bytes the rows take in memory.
    """

    header: WalEntryHeader
    schema: pa.Schema
    batches: tuple[pa.RecordBatch, ...]
    num_rows: int = field(init=False, compare=False, repr=False)
    nbytes: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Count once what several ask for."""
        object.__setattr__(self, "num_rows", sum(batch.num_rows for batch in self.batches))
        object.__setattr__(self, "nbytes", sum(map(batch_bytes, self.batches)))


def new_write_id() -> str:
    """Return a fresh write id: 32 random hex digits.

    Examples
    --------
    >>> len(new_write_id())
    32
    """
    return secrets.token_hex(16)


def wal_schema(table_schema: pa.Schema) -> pa.Schema:
    """Return the schema of WAL entries and generations of a table: its own plus :data:`TOMBSTONE`.

    Raises
    ------
    SchemaError
        The table has a column of that name itself.

    Examples
    --------
    >>> wal_schema(pa.schema([pa.field("id", pa.int64(), nullable=False)])).names
    ['id', '_tombstone']
    """
    if TOMBSTONE in table_schema.names:
        raise SchemaError(
            f"the table has a column {TOMBSTONE!r}", hint="This name is reserved: rename the column"
        )
    return table_schema.append(pa.field(TOMBSTONE, pa.bool_(), nullable=False))


def encode(header: WalEntryHeader, schema: pa.Schema, batches: Sequence[pa.RecordBatch] = ()) -> list[Bytes]:
    """Return a WAL entry as buffers to be stored one after the other.

    Column data of large batches is not copied: the buffers refer to the batches.

    Parameters
    ----------
    header : WalEntryHeader
        What the entry says of itself.
    schema : pyarrow.Schema
        Schema of the batches (:func:`wal_schema`). Its metadata is kept, except keys of the entry.
        Pass the same object for every entry of a writer: what depends on it alone is made once.
    batches : sequence of pyarrow.RecordBatch, default ()
        The rows; none in a fence entry.

    Raises
    ------
    InputError
        A number of the header does not fit in 64 bits, the write id is not 32 hex digits, or a fence
        entry has rows.
    SchemaError
        A batch has another schema.

    Examples
    --------
    >>> schema = wal_schema(pa.schema([pa.field("id", pa.int64(), nullable=False)]))
    >>> batch = pa.record_batch([pa.array([7]), pa.array([False])], schema=schema)
    >>> data = b"".join(encode(WalEntryHeader(writer_epoch=1, generation=1), schema, [batch]))
    >>> decode(data, where="example").batches[0].to_pylist()
    [{'id': 7, '_tombstone': False}]
    """
    if header.fence and batches:
        raise InputError("a fence entry has no rows")
    for batch in batches:
        if not batch.schema.equals(schema):
            raise SchemaError(
                f"a batch has the columns {batch.schema.to_string(show_field_metadata=False)!r}, "
                f"the entry {schema.to_string(show_field_metadata=False)!r}"
            )
    template = _template(header, schema)
    if batches and (template.has_dictionary or _are_large(batches)):
        parts = _collect_stream(template.entry_schema, batches)
    else:
        parts = [template.message, *(batch.serialize() for batch in batches), END_OF_STREAM]
    if header.source is not None and not header.has_lone_source:
        parts.append(encode_marks(header.sources, header.answers))
    checksum = xxhash.xxh64()
    for part in parts:
        checksum.update(part)
    trailer = WalTrailer(
        header.writer_epoch,
        rows=sum(batch.num_rows for batch in batches),
        nbytes=sum(map(len, parts)),
        checksum=checksum.intdigest(),
        write_id=header.write_id,
        place=header.place,
        sequence=header.source.sequence if header.source is not None and header.has_lone_source else 0,
    )
    parts.append(trailer.encode())
    return parts


def decode(data: Bytes, *, where: str, place: LogPlace | None = None) -> WalEntry:
    """Return the WAL entry stored as ``data``.

    An entry with a checksum is verified before it is decoded. One without (the released library's) has its
    frame and its values validated instead, as far as they can be.

    Parameters
    ----------
    data : bytes-like
        The whole object. The batches refer to it.
    where : str
        Path of the object, for the error.
    place : LogPlace, optional
        Where the object is stored, for callers that rely on it. An entry that names no place may be anywhere.

    Raises
    ------
    CorruptionError
        The bytes are not a whole WAL entry, not what was written, or were not written to that place
        (invariant I11).
    """
    entry = _decode(data, where)
    appended = entry.header.place
    if place is not None and appended is not None and appended != place:
        raise CorruptionError(
            f"the WAL entry stands at {place} and was appended at {appended}",
            where=where,
            hint="Objects of the table were renamed or restored to wrong places; restore the right ones",
        )
    return entry


def _decode(data: Bytes, where: str) -> WalEntry:
    view = memoryview(data).cast("B")
    trailer = read_trailer(view, where=where)
    if trailer is not None:
        prove(trailer, view[:-TRAILER_BYTES], where)
        known = known_opening(view)
        if known is not None:
            return _decode_known(known, trailer, data, where)
    opening = read_frames(view, where=where, limit=1)
    if not opening:
        raise CorruptionError("the WAL entry has no schema", where=where)
    pairs = read_key_values(opening[0], where=where)
    checked = trailer is not None or is_proved(view, opening[0].end, pairs, where)
    header = read_header(pairs, where)
    try:
        with ipc.open_stream(pa.py_buffer(data)) as reader:
            # Values of more than 8 bytes have to be aligned.
            wide = _has(reader.schema, pa.types.is_decimal)
        with ipc.open_stream(pa.py_buffer(data), options=_READ_OPTIONS if wide else None) as reader:
            schema = reader.schema
            batches = tuple(reader)
        if not checked:
            for field in schema:
                _check_text(field)
            for batch in batches:
                batch.validate(full=True)
    except _ARROW_ERRORS as error:
        raise CorruptionError(f"the WAL entry is not a readable stream: {error}", where=where) from error
    if header.fence and batches:
        raise CorruptionError("the WAL entry is a fence and has rows", where=where)
    metadata = without_entry_keys(schema)
    plain = _as_written(schema.with_metadata(metadata))
    if (
        trailer is not None
        and not wide
        and not header.further_sources
        and not _has(schema, pa.types.is_dictionary)
    ):
        remember_opening(Opening(bytes(view[: opening[0].end]), header, plain))
    batches = tuple(batch.replace_schema_metadata(metadata) for batch in batches)
    if trailer is None:
        header = with_append(header, *old_append(pairs, where))
    else:
        header = _with_append(header, trailer, view, where)
    return WalEntry(header, plain, batches)


def decode_header(data: Bytes, *, where: str) -> WalEntryHeader:
    """Return what an entry says of itself, without its rows and so without proof.

    For showing the remains of a damaged entry, or for an entry without a trailer.

    Parameters
    ----------
    data : bytes-like
        The whole object, or as much of it as holds the schema: what stands in the trailer is missing then.
    where : str
        Path of the object, for the error.

    Raises
    ------
    CorruptionError
        The bytes do not start with the schema of a WAL entry, or are too few to hold it.

    Examples
    --------
    >>> schema = wal_schema(pa.schema([pa.field("id", pa.int64(), nullable=False)]))
    >>> data = b"".join(encode(WalEntryHeader(writer_epoch=3, fence=True), schema))
    >>> decode_header(data[:-TRAILER_BYTES], where="example").fence
    True
    """
    view = memoryview(data).cast("B")
    frames = read_frames(view, where=where, limit=1)
    if not frames:
        raise CorruptionError("the WAL entry has no schema", where=where)
    pairs = read_key_values(frames[0], where=where)
    trailer = None
    with suppress(CorruptionError):
        trailer = read_trailer(view, where=where)
    header = read_header(pairs, where)
    if trailer is None:
        return with_append(header, *old_append(pairs, where))
    with suppress(CorruptionError):
        return _with_append(header, trailer, view, where)
    return with_append(header, trailer.write_id, trailer.place, trailer.sequence)


def _with_append(
    header: WalEntryHeader, trailer: WalTrailer, entry: memoryview, where: str
) -> WalEntryHeader:
    marks = read_marks(entry[:-TRAILER_BYTES], where=where)
    return with_append(header, trailer.write_id, trailer.place, trailer.sequence, marks)


@dataclass(frozen=True, slots=True)
class _Template:
    """The schema message that entries have in common.

    Making it is most of the cost of a small entry, and one writer makes the same one again and again.
    """

    plain_schema: pa.Schema
    entry_schema: pa.Schema
    message: bytes
    has_dictionary: bool


# Keyed by the identity of the schema, which the template keeps alive; hashing a schema costs more
# than the rest of an entry.
_templates: dict[tuple[object, ...], _Template] = {}
_TEMPLATE_LIMIT = 64


def _template(header: WalEntryHeader, schema: pa.Schema) -> _Template:
    key = (
        id(schema),
        header.writer_epoch,
        header.generation,
        header.fence,
        header.source.name if header.source is not None and header.has_lone_source else None,
        header.published,
        header.published_rows,
        header.published_from,
        header.claim,
    )
    template = _templates.get(key)
    if template is None:
        template = _make_template(header, schema)
        if len(_templates) >= _TEMPLATE_LIMIT:
            _templates.clear()
        _templates[key] = template
    return template


def _make_template(header: WalEntryHeader, schema: pa.Schema) -> _Template:
    metadata = {**(without_entry_keys(schema) or {}), **header_metadata(header)}
    entry_schema = _by_id(schema).with_metadata(metadata)
    return _Template(
        plain_schema=schema,
        entry_schema=entry_schema,
        message=entry_schema.serialize().to_pybytes(),
        has_dictionary=_has(schema, pa.types.is_dictionary),
    )


def _by_id(schema: pa.Schema) -> pa.Schema:
    """Say of columns with field ids that they go by these.

    The library takes a batch as it is if its fields are exactly the table's, and then refuses it for
    the metadata of the stream. Any difference has it resolve them.
    """
    at = schema.get_field_index(TOMBSTONE)
    if at < 0 or not has_field_ids(schema):
        return schema
    return schema.set(at, schema.field(at).with_metadata(_BY_FIELD_ID))


def _as_written(schema: pa.Schema) -> pa.Schema:
    """Return the schema that :func:`_by_id` was given."""
    at = schema.get_field_index(TOMBSTONE)
    if at < 0 or schema.field(at).metadata != _BY_FIELD_ID:
        return schema
    return interned(schema.set(at, schema.field(at).remove_metadata()))


def _decode_known(opening: Opening, trailer: WalTrailer, data: Bytes, where: str) -> WalEntry:
    """Return an entry of which only the trailer and the rows are not decoded yet."""
    try:
        messages = ipc.MessageReader.open_stream(pa.py_buffer(data).slice(len(opening.message)))
        batches = tuple(ipc.read_record_batch(message, opening.plain_schema) for message in messages)
    except _ARROW_ERRORS as error:
        raise CorruptionError(f"the WAL entry is not a readable stream: {error}", where=where) from error
    if opening.header.fence and batches:
        raise CorruptionError("the WAL entry is a fence and has rows", where=where)
    header = _with_append(opening.header, trailer, memoryview(data).cast("B"), where)
    return WalEntry(header, opening.plain_schema, batches)


def _has(fields: Iterable[pa.Field], is_one: Callable[[pa.DataType], bool]) -> bool:
    """Whether a field, or one at any depth below it, is of such a type."""
    return any(is_one(field.type) or _has(_parts(field.type), is_one) for field in fields)


def _parts(type: pa.DataType) -> list[pa.Field]:
    return [type.field(number) for number in range(type.num_fields)]


def _are_large(batches: Sequence[pa.RecordBatch]) -> bool:
    # The cheap sum counts whole buffers; only when a slice may hide behind it is the true size asked.
    if sum(batch.get_total_buffer_size() for batch in batches) <= _COPY_LIMIT:
        return False
    return bool(sum(ipc.get_record_batch_size(batch) for batch in batches) > _COPY_LIMIT)


class _Collector(RawIOBase):
    """A file that keeps the bytes written to it, without copying."""

    def __init__(self) -> None:
        self.parts: list[Bytes] = []
        self.size = 0

    def writable(self) -> bool:
        return True

    def write(self, part: Bytes) -> int:
        self.parts.append(part)
        self.size += len(part)
        return len(part)

    def tell(self) -> int:
        return self.size


def _collect_stream(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> list[Bytes]:
    collector = _Collector()
    with ipc.new_stream(pa.PythonFile(collector, mode="w"), schema, options=_STREAM_OPTIONS) as writer:
        for batch in batches:
            # The writer compares metadata too, that of fields among it.
            writer.write_batch(pa.RecordBatch.from_arrays(batch.columns, schema=schema))
    return collector.parts


def _check_text(field: pa.Field) -> None:
    """Decode all text of a field: pyarrow does so only on access, and damaged text must fail here."""
    _ = field.name
    if pa.types.is_timestamp(field.type):
        _ = field.type.tz
    elif pa.types.is_dictionary(field.type):
        _check_text(pa.field("", field.type.value_type))
    for part in _parts(field.type):
        _check_text(part)
