"""A WAL entry: the rows of one WAL flush, as an Arrow IPC stream.

The entry's own facts are metadata of the stream's schema:

==================  ================================================================================
key                 value
==================  ================================================================================
``writer_epoch``    epoch of the writer, decimal
``generation``      generation of the MemTable the rows went to, decimal; data entries have it
``fence_sentinel``  ``true`` in the empty entry that a claim appends to fence the former writer
``weir:write_id``   tells a writer whose reply was lost that the entry is its own (invariant I4)
``weir:source``     source of the rows, of a write that may be repeated (:mod:`weir.format.source`)
``weir:sequence``   its number, as 20 decimal digits
``weir:published``  directories of the generations whose rows stand here in the order of writes, though
                    they were never in the log: separated by commas, of an entry without rows
``weir:rows``       how many rows these have, decimal
``weir:numbered``   number of the first of these generations, decimal; those of the others follow
``weir:place``      where the entry stands: shard and position (:mod:`weir.format.log_place`)
``weir:xxh64``      checksum of the whole entry: 16 hex digits of XXH64 with seed 0 over all its bytes
                    while these digits read ``0``
==================  ================================================================================

Columns are those of the table and :data:`TOMBSTONE`. Lance MemWAL spec, section "WAL Entry Format";
``generation``, ``fence_sentinel`` and the tombstone column come from the released library, which
tolerates the ``weir:`` keys. The library's own entries carry no checksum and no place.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from io import RawIOBase

import pyarrow as pa
import xxhash
from pyarrow import ipc

from weir.errors import CorruptionError, InputError, SchemaError
from weir.format import layout
from weir.format.buffers import Bytes
from weir.format.ipc_framing import END_OF_STREAM, FrameKind, KeyValue, read_frames, read_key_values
from weir.format.log_place import LogPlace
from weir.format.source import Source

__all__ = [
    "TOMBSTONE",
    "WalEntry",
    "WalEntryHeader",
    "decode",
    "decode_header",
    "encode",
    "new_write_id",
    "wal_schema",
]

TOMBSTONE = "_tombstone"
"""Name of the boolean column, never null, that is true for a row that deletes its key."""

_EPOCH = b"writer_epoch"
_GENERATION = b"generation"
_FENCE = b"fence_sentinel"
_WRITE_ID = b"weir:write_id"
_SOURCE = b"weir:source"
_SEQUENCE = b"weir:sequence"
_PUBLISHED = b"weir:published"
_PUBLISHED_ROWS = b"weir:rows"
_PUBLISHED_FROM = b"weir:numbered"
_PLACE = b"weir:place"
_CHECKSUM = b"weir:xxh64"
_ENTRY_KEYS = frozenset((_EPOCH, _GENERATION, _FENCE))
_OWN_PREFIX = b"weir:"

_DIGITS = 16
_ZEROS = b"0" * _DIGITS
_SEQUENCE_DIGITS = 20
_DECIMAL = re.compile(rb"[0-9]{1,20}")
_HEX_DIGITS = re.compile(rb"[0-9a-f]{16}")

# Up to here copying a batch into one message costs less than collecting its buffers one by one.
_COPY_LIMIT = 1024 * 1024
# Streams align to 8 bytes, and Lance insists on 16 for decimals: those are copied to where they are.
_READ_OPTIONS = ipc.IpcReadOptions(ensure_alignment=ipc.Alignment.At64Byte)
_STREAM_OPTIONS = ipc.IpcWriteOptions(use_legacy_format=False, compression=None)

# What pyarrow raises for a stream it cannot read; OSError for Arrow's IOError.
_ARROW_ERRORS = (pa.ArrowException, OSError, ValueError, KeyError, OverflowError, MemoryError)


@dataclass(frozen=True, slots=True)
class WalEntryHeader:
    """What a WAL entry says of itself.

    Parameters
    ----------
    writer_epoch : int
        Epoch of the writer that appended it.
    generation : int, optional
        Generation of the MemTable its rows went to; None in fence entries.
    write_id : str, optional
        Identifier of the append (:func:`new_write_id`); None in the library's entries.
    fence : bool, default False
        Whether it is the empty entry of a claim.
    source : Source, optional
        The mark of the write whose rows it holds, all of them that go to the shard.
    published : tuple of str, default ()
        Directories of generations, oldest first, that were published before it without an entry of their
        own. An entry that has some is a fence.
    published_rows : int, default 0
        How many rows they have.
    published_from : int, default 0
        Number of the first of them. A manifest whose current generation is above it has them, or had them
        on its list before they were merged.
    place : LogPlace, optional
        Where it was appended; None in the library's entries.
    """

    writer_epoch: int
    generation: int | None = None
    write_id: str | None = None
    fence: bool = False
    source: Source | None = None
    published: tuple[str, ...] = ()
    published_rows: int = 0
    published_from: int = 0
    place: LogPlace | None = None


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
        opening[start : start + _SEQUENCE_DIGITS] = _sequence_digits(header.source.sequence)
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
    opening[template.checksum_at : template.checksum_at + _DIGITS] = checksum.hexdigest().encode()
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
    known = next((one for one in _openings if one.is_of(view)), None)
    if known is not None:
        return _decode_known(known, view, data, where)
    opening = read_frames(view, where=where, limit=1)
    if not opening:
        raise CorruptionError("the WAL entry has no schema", where=where)
    pairs = read_key_values(opening[0], where=where)
    checked = _verify_checksum(view, opening[0].end, pairs, where)
    if not checked:
        _check_frames(view, where)
    header = _read_header(pairs, where)
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
    metadata = _without_entry_keys(schema)
    plain = schema.with_metadata(metadata)
    if checked and not wide and not any(_has_dictionary(field.type) for field in schema):
        _remember_opening(_Opening.of(view, opening[0].end, pairs, header, plain))
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
    return _read_header(read_key_values(frames[0], where=where), where)


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
    metadata = _without_entry_keys(schema) or {}
    metadata[_EPOCH] = _decimal("writer epoch", header.writer_epoch)
    if header.generation is not None:
        metadata[_GENERATION] = _decimal("generation", header.generation)
    if header.fence:
        metadata[_FENCE] = b"true"
    if header.write_id is not None:
        metadata[_WRITE_ID] = header.write_id.encode()
    if header.source is not None:
        metadata[_SOURCE] = header.source.name.encode()
        metadata[_SEQUENCE] = _sequence_digits(header.source.sequence)
    if header.published:
        metadata[_PUBLISHED] = ",".join(header.published).encode()
        metadata[_PUBLISHED_ROWS] = _decimal("number of rows", header.published_rows)
        metadata[_PUBLISHED_FROM] = _decimal("generation", header.published_from)
    if header.place is not None:
        metadata[_PLACE] = header.place.encode()
    metadata[_CHECKSUM] = _ZEROS
    entry_schema = schema.with_metadata(metadata)
    message = entry_schema.serialize().to_pybytes()
    (frame,) = read_frames(memoryview(message), where="a new WAL entry", limit=1)
    starts = {pair.key: pair.value_start for pair in read_key_values(frame, where="a new WAL entry")}
    return _Template(
        plain_schema=schema,
        entry_schema=entry_schema,
        message=message,
        checksum_at=starts[_CHECKSUM],
        write_id_at=starts.get(_WRITE_ID, 0),
        sequence_at=starts.get(_SEQUENCE, 0),
        place_at=starts.get(_PLACE, 0),
        has_dictionary=any(_has_dictionary(field.type) for field in schema),
    )


@dataclass(frozen=True, slots=True)
class _Opening:
    """The schema message of an entry, and what was read from it.

    Entries of one writer differ there in checksum, write id, sequence and place alone. So what one of them
    says holds for the next, and reading it is most of the work on a small entry.
    """

    message: bytes
    checksum_at: int
    write_id_at: int
    sequence_at: int
    place_at: int
    header: WalEntryHeader
    plain_schema: pa.Schema

    @classmethod
    def of(
        cls,
        view: memoryview,
        end: int,
        pairs: Sequence[KeyValue],
        header: WalEntryHeader,
        plain_schema: pa.Schema,
    ) -> _Opening:
        starts = {pair.key: pair.value_start for pair in pairs}
        write_id_at, sequence_at = starts.get(_WRITE_ID, 0), starts.get(_SEQUENCE, 0)
        place_at = starts.get(_PLACE, 0)
        opening = cls(b"", starts[_CHECKSUM], write_id_at, sequence_at, place_at, header, plain_schema)
        return replace(opening, message=opening._without_values(view[:end]))

    def is_of(self, view: memoryview) -> bool:
        """Whether an entry begins with this message, whatever its checksum, write id, sequence and place."""
        end = len(self.message)
        return len(view) >= end and self._without_values(view[:end]) == self.message

    def _without_values(self, message: memoryview) -> bytes:
        plain = bytearray(message)
        plain[self.checksum_at : self.checksum_at + _DIGITS] = _ZEROS
        length = len(self.header.write_id or "")
        plain[self.write_id_at : self.write_id_at + length] = b"0" * length
        if self.header.source is not None:
            plain[self.sequence_at : self.sequence_at + _SEQUENCE_DIGITS] = b"0" * _SEQUENCE_DIGITS
        if self.header.place is not None:
            plain[self.place_at : self.place_at + LogPlace.LENGTH] = b"0" * LogPlace.LENGTH
        return bytes(plain)


# Newest first; replaced as a whole, so that threads need no lock.
_openings: tuple[_Opening, ...] = ()
_OPENING_LIMIT = 8


def _remember_opening(opening: _Opening) -> None:
    global _openings
    others = (one for one in _openings if one.message != opening.message)
    _openings = (opening, *others)[:_OPENING_LIMIT]


def _decode_known(opening: _Opening, view: memoryview, data: Bytes, where: str) -> WalEntry:
    """Return an entry of which all that is in its schema message is known but what each has of its own."""
    at = opening.checksum_at
    _prove(view, at, bytes(view[at : at + _DIGITS]), where)
    header = opening.header
    try:
        if header.write_id is not None:
            start = opening.write_id_at
            header = replace(header, write_id=bytes(view[start : start + len(header.write_id)]).decode())
        if header.source is not None:
            start = opening.sequence_at
            digits = bytes(view[start : start + _SEQUENCE_DIGITS])
            header = replace(header, source=_read_source(header.source.name.encode(), digits, where))
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


def _decimal(what: str, number: int) -> bytes:
    if not 0 <= number < 1 << 64:
        raise InputError(f"the {what} {number} does not fit in 64 unsigned bits")
    return str(number).encode()


def _sequence_digits(sequence: int) -> bytes:
    return b"%0*d" % (_SEQUENCE_DIGITS, sequence)


def _without_entry_keys(schema: pa.Schema) -> dict[bytes, bytes] | None:
    if schema.metadata is None:
        return None
    kept = {
        key: value
        for key, value in schema.metadata.items()
        if key not in _ENTRY_KEYS and not key.startswith(_OWN_PREFIX)
    }
    return kept or None


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
            # The writer compares metadata too.
            writer.write_batch(batch.replace_schema_metadata(template.entry_schema.metadata))
        # Closing the writer adds the end marker, after what is taken here.
        parts = collector.parts[:]
    schema_length = len(template.message)
    start = 0
    while schema_length > 0:
        schema_length -= len(parts[start])
        start += 1
    return parts[start:]


def _verify_checksum(view: memoryview, end: int, pairs: Sequence[KeyValue], where: str) -> bool:
    """Return whether the entry has a checksum, after checking it. Its schema message goes up to ``end``."""
    found = [pair for pair in pairs if pair.key == _CHECKSUM]
    if not found:
        # A damaged count of pairs hides those at the end, and what is left may look like the library's.
        if any(pair.key.startswith(_OWN_PREFIX) for pair in pairs) or _CHECKSUM in bytes(view[:end]):
            raise CorruptionError("the WAL entry has lost its checksum", where=where)
        return False
    if len(found) > 1:
        raise CorruptionError("the WAL entry has no valid checksum", where=where)
    _prove(view, found[0].value_start, found[0].value, where)
    return True


def _prove(view: memoryview, checksum_at: int, written: bytes, where: str) -> None:
    """Raise unless an entry has the checksum that stands in it."""
    if _HEX_DIGITS.fullmatch(written) is None:
        raise CorruptionError("the WAL entry has no valid checksum", where=where)
    checksum = xxhash.xxh64(view[:checksum_at])
    checksum.update(_ZEROS)
    checksum.update(view[checksum_at + _DIGITS :])
    expected = written.decode()
    actual = checksum.hexdigest()
    if actual != expected:
        raise CorruptionError(
            f"the WAL entry has the checksum {actual}, but {expected} was written", where=where
        )


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


def _read_header(pairs: Sequence[KeyValue], where: str) -> WalEntryHeader:
    metadata = {pair.key: pair.value for pair in pairs}
    epoch = _read_decimal(metadata, _EPOCH, where)
    if epoch is None:
        raise CorruptionError("the WAL entry has no writer epoch", where=where)
    fence = metadata.get(_FENCE, b"false")
    if fence not in (b"true", b"false"):
        raise CorruptionError(f"the WAL entry has the fence sentinel {fence[:40]!r}", where=where)
    write_id = metadata.get(_WRITE_ID)
    try:
        text = None if write_id is None else write_id.decode()
    except UnicodeDecodeError as error:
        raise CorruptionError("the WAL entry has an unreadable write id", where=where) from error
    name, digits = metadata.get(_SOURCE), metadata.get(_SEQUENCE)
    source = None if name is None and digits is None else _read_source(name, digits, where)
    generation = _read_decimal(metadata, _GENERATION, where)
    place = metadata.get(_PLACE)
    return WalEntryHeader(
        epoch,
        generation,
        text,
        fence == b"true",
        source,
        _read_published(metadata, where),
        _read_decimal(metadata, _PUBLISHED_ROWS, where) or 0,
        _read_decimal(metadata, _PUBLISHED_FROM, where) or 0,
        None if place is None else LogPlace.decode(place, where=where),
    )


def _read_published(metadata: dict[bytes, bytes], where: str) -> tuple[str, ...]:
    text = metadata.get(_PUBLISHED)
    if text is None:
        return ()
    try:
        return tuple(layout.check_name(name) for name in text.decode().split(","))
    except (InputError, UnicodeDecodeError) as error:
        raise CorruptionError("the WAL entry names no generations that can be", where=where) from error


def _read_source(name: bytes | None, digits: bytes | None, where: str) -> Source:
    if name is None or digits is None or len(digits) != _SEQUENCE_DIGITS or not digits.isdigit():
        raise CorruptionError("the WAL entry has half a source mark", where=where)
    try:
        return Source(name.decode(), int(digits))
    except (InputError, UnicodeDecodeError) as error:
        raise CorruptionError("the WAL entry has an unreadable source mark", where=where) from error


def _read_decimal(metadata: dict[bytes, bytes], key: bytes, where: str) -> int | None:
    text = metadata.get(key)
    if text is None:
        return None
    if _DECIMAL.fullmatch(text) is None or int(text) >= 1 << 64:
        raise CorruptionError(f"the WAL entry has the {key.decode()} {text[:40]!r}", where=where)
    return int(text)
