"""A WAL entry: the rows of one WAL flush, as an Arrow IPC stream.

Columns are those of the table and :data:`TOMBSTONE`, which comes from the released library. What the entry
says of itself is metadata of the stream's schema (:mod:`weir.format.wal_header`). Lance MemWAL spec, section
"WAL Entry Format".
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from io import RawIOBase

import pyarrow as pa
import xxhash
from pyarrow import ipc

from weir.errors import CorruptionError, InputError, SchemaError
from weir.format.buffers import Bytes
from weir.format.field_ids import has_field_ids, interned
from weir.format.ipc_framing import END_OF_STREAM, FrameKind, read_frames, read_key_values
from weir.format.log_place import LogPlace
from weir.format.wal_checksum import CHECKSUM_DIGITS, NO_CHECKSUM, prove, verify_checksum
from weir.format.wal_header import (
    CHECKSUM,
    PLACE,
    SEQUENCE,
    SEQUENCE_DIGITS,
    WRITE_ID,
    WalEntryHeader,
    header_metadata,
    read_header,
    read_source,
    sequence_digits,
    without_entry_keys,
)
from weir.format.wal_opening import Opening, known_opening, remember_opening

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
        Size of the rows as Arrow data, in bytes.
    """

    header: WalEntryHeader
    schema: pa.Schema
    batches: tuple[pa.RecordBatch, ...]
    num_rows: int = field(init=False, compare=False, repr=False)
    nbytes: int = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        """Count once what several ask for: Arrow walks all buffers each time."""
        object.__setattr__(self, "num_rows", sum(batch.num_rows for batch in self.batches))
        object.__setattr__(self, "nbytes", sum(batch.nbytes for batch in self.batches))


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
            f"the table has a column {TOMBSTONE!r}", hint="The name is reserved: rename the column"
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
        A number of the header does not fit in 64 bits, the write id is not ASCII, or a fence entry
        has rows.
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
    if header.write_id is not None and not header.write_id.isascii():
        raise InputError(f"the write id {header.write_id!r} is not ASCII")
    for batch in batches:
        if not batch.schema.equals(schema):
            raise SchemaError(
                f"a batch has the columns {batch.schema.to_string(show_field_metadata=False)!r}, "
                f"the entry {schema.to_string(show_field_metadata=False)!r}"
            )
    template = _template(header, schema)
    opening = bytearray(template.message)
    if header.write_id is not None:
        write_id = header.write_id.encode()
        opening[template.write_id_at : template.write_id_at + len(write_id)] = write_id
    if header.source is not None:
        start = template.sequence_at
        opening[start : start + SEQUENCE_DIGITS] = sequence_digits(header.source.sequence)
    if header.place is not None:
        start = template.place_at
        opening[start : start + LogPlace.LENGTH] = header.place.encode()

    parts: list[Bytes] = [opening]
    if batches and (template.has_dictionary or _are_large(batches)):
        parts.extend(_collect_messages(template, batches))
    else:
        parts.extend(batch.serialize() for batch in batches)
    parts.append(END_OF_STREAM)

    checksum = xxhash.xxh64()
    for part in parts:
        checksum.update(part)
    opening[template.checksum_at : template.checksum_at + CHECKSUM_DIGITS] = checksum.hexdigest().encode()
    return parts


def decode(data: Bytes, *, where: str, place: LogPlace | None = None) -> WalEntry:
    """Return the WAL entry stored as ``data``.

    An entry with a checksum is proved whole before anything else is made of it. One without (the
    released library's) has its frame and its values validated instead, as far as they can be.

    Parameters
    ----------
    data : bytes-like
        The whole object. The batches refer to it.
    where : str
        Path of the object, for the error.
    place : LogPlace, optional
        Where the object stands, for whoever wants to rely on it. An entry that names no place may stand
        anywhere.

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
    known = known_opening(view)
    if known is not None:
        return _decode_known(known, view, data, where)
    opening = read_frames(view, where=where, limit=1)
    if not opening:
        raise CorruptionError("the WAL entry has no schema", where=where)
    pairs = read_key_values(opening[0], where=where)
    checked = verify_checksum(view, opening[0].end, pairs, where)
    if not checked:
        _check_frames(view, where)
    header = read_header(pairs, where)
    try:
        with ipc.open_stream(pa.py_buffer(data)) as reader:
            wide = any(_has_decimal(field.type) for field in reader.schema)
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
    if checked and not wide and not any(_has_dictionary(field.type) for field in schema):
        remember_opening(Opening.of(view, opening[0].end, pairs, header, plain))
    return WalEntry(header, plain, tuple(batch.replace_schema_metadata(metadata) for batch in batches))


def decode_header(opening: Bytes, *, where: str) -> WalEntryHeader:
    """Return what an entry says of itself, from its first bytes alone and so without proof.

    For whoever wants to know the epochs of many entries and none of their rows.

    Parameters
    ----------
    opening : bytes-like
        The whole object, or as much of it as holds the schema.
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
    >>> decode_header(data[:-8], where="example").fence
    True
    """
    frames = read_frames(memoryview(opening).cast("B"), where=where, limit=1)
    if not frames:
        raise CorruptionError("the WAL entry has no schema", where=where)
    return read_header(read_key_values(frames[0], where=where), where)


@dataclass(frozen=True, slots=True)
class _Template:
    """The schema message that entries have in common, up to write id and checksum.

    Making it is most of the cost of a small entry, and one writer makes the same one again and again.
    """

    plain_schema: pa.Schema
    entry_schema: pa.Schema
    message: bytes
    checksum_at: int
    write_id_at: int
    sequence_at: int
    place_at: int
    has_dictionary: bool


# Keyed by the identity of the schema, which the template keeps alive; hashing a schema costs more
# than the rest of an entry.
_templates: dict[tuple[int, int, int | None, bool, int, str | None, tuple[object, ...]], _Template] = {}
_TEMPLATE_LIMIT = 64


def _template(header: WalEntryHeader, schema: pa.Schema) -> _Template:
    source = None if header.source is None else header.source.name
    length = len(header.write_id or "")
    key = (
        id(schema),
        header.writer_epoch,
        header.generation,
        header.fence,
        length,
        source,
        (header.published, header.published_rows, header.published_from, header.place is None),
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
    metadata[CHECKSUM] = NO_CHECKSUM
    entry_schema = _by_id(schema).with_metadata(metadata)
    message = entry_schema.serialize().to_pybytes()
    (frame,) = read_frames(memoryview(message), where="a new WAL entry", limit=1)
    starts = {pair.key: pair.value_start for pair in read_key_values(frame, where="a new WAL entry")}
    return _Template(
        plain_schema=schema,
        entry_schema=entry_schema,
        message=message,
        checksum_at=starts[CHECKSUM],
        write_id_at=starts.get(WRITE_ID, 0),
        sequence_at=starts.get(SEQUENCE, 0),
        place_at=starts.get(PLACE, 0),
        has_dictionary=any(_has_dictionary(field.type) for field in schema),
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


def _decode_known(opening: Opening, view: memoryview, data: Bytes, where: str) -> WalEntry:
    """Return an entry of which all that is in its schema message is known but what each has of its own."""
    at = opening.checksum_at
    prove(view, at, bytes(view[at : at + CHECKSUM_DIGITS]), where)
    header = opening.header
    try:
        if header.write_id is not None:
            start = opening.write_id_at
            header = replace(header, write_id=bytes(view[start : start + len(header.write_id)]).decode())
        if header.source is not None:
            start = opening.sequence_at
            digits = bytes(view[start : start + SEQUENCE_DIGITS])
            header = replace(header, source=read_source(header.source.name.encode(), digits, where))
        if header.place is not None:
            start = opening.place_at
            stated = bytes(view[start : start + LogPlace.LENGTH])
            header = replace(header, place=LogPlace.decode(stated, where=where))
        messages = ipc.MessageReader.open_stream(pa.py_buffer(data).slice(len(opening.message)))
        batches = tuple(ipc.read_record_batch(message, opening.plain_schema) for message in messages)
    except _ARROW_ERRORS as error:
        raise CorruptionError(f"the WAL entry is not a readable stream: {error}", where=where) from error
    if header.fence and batches:
        raise CorruptionError("the WAL entry is a fence and has rows", where=where)
    return WalEntry(header, opening.plain_schema, batches)


def _has_dictionary(type: pa.DataType) -> bool:
    """Whether batches with this type need dictionary messages besides their own."""
    if pa.types.is_dictionary(type):
        return True
    return any(_has_dictionary(type.field(number).type) for number in range(type.num_fields))


def _has_decimal(type: pa.DataType) -> bool:
    """Whether batches with this type have values of more than 8 bytes, which have to be aligned."""
    if pa.types.is_decimal(type):
        return True
    return any(_has_decimal(type.field(number).type) for number in range(type.num_fields))


def _are_large(batches: Sequence[pa.RecordBatch]) -> bool:
    # The cheap sum counts whole buffers; only when a slice may hide behind it is the true size asked.
    if sum(batch.get_total_buffer_size() for batch in batches) <= _COPY_LIMIT:
        return False
    return bool(sum(ipc.get_record_batch_size(batch) for batch in batches) > _COPY_LIMIT)


class _Collector(RawIOBase):
    """A file that keeps what is written to it, without copying."""

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


def _collect_messages(template: _Template, batches: Iterable[pa.RecordBatch]) -> list[Bytes]:
    """Return the messages after the schema's and before the end marker."""
    collector = _Collector()
    with ipc.new_stream(
        pa.PythonFile(collector, mode="w"), template.entry_schema, options=_STREAM_OPTIONS
    ) as writer:
        for batch in batches:
            # The writer compares metadata too, that of fields among it.
            writer.write_batch(pa.RecordBatch.from_arrays(batch.columns, schema=template.entry_schema))
        # Closing the writer adds the end marker, after what is taken here.
        parts = collector.parts[:]
    schema_length = len(template.message)
    start = 0
    while schema_length > 0:
        schema_length -= len(parts[start])
        start += 1
    return parts[start:]


def _check_frames(view: memoryview, where: str) -> None:
    """Check the frame of an entry without checksum, so that Arrow allocates no more than there is."""
    for number, frame in enumerate(read_frames(view, where=where)):
        if (frame.kind is FrameKind.SCHEMA) != (number == 0):
            raise CorruptionError("the WAL entry must have one schema, as its first message", where=where)
        if frame.compressed:
            raise CorruptionError("the WAL entry has a compressed body, which no writer makes", where=where)


def _check_text(field: pa.Field) -> None:
    """Look at all text of a field: pyarrow decodes it only when asked, and a damaged one must fail here."""
    _ = field.name
    if pa.types.is_timestamp(field.type):
        _ = field.type.tz
    elif pa.types.is_dictionary(field.type):
        _check_text(pa.field("", field.type.value_type))
    for number in range(field.type.num_fields):
        _check_text(field.type.field(number))
