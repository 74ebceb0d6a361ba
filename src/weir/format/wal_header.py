"""What a WAL entry says of itself, as metadata of the schema of its stream.

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

``generation`` and ``fence_sentinel`` come from the released library, which tolerates the ``weir:`` keys.
Its own entries carry no checksum and no place.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from weir.errors import CorruptionError, InputError
from weir.format import layout
from weir.format.ipc_framing import KeyValue
from weir.format.log_place import LogPlace
from weir.format.source import Source

__all__ = [
    "CHECKSUM",
    "OWN_PREFIX",
    "PLACE",
    "SEQUENCE",
    "SEQUENCE_DIGITS",
    "WRITE_ID",
    "WalEntryHeader",
    "header_metadata",
    "read_header",
    "read_source",
    "sequence_digits",
    "without_entry_keys",
]

_EPOCH = b"writer_epoch"
_GENERATION = b"generation"
_FENCE = b"fence_sentinel"
WRITE_ID = b"weir:write_id"
_SOURCE = b"weir:source"
SEQUENCE = b"weir:sequence"
_PUBLISHED = b"weir:published"
_PUBLISHED_ROWS = b"weir:rows"
_PUBLISHED_FROM = b"weir:numbered"
PLACE = b"weir:place"
CHECKSUM = b"weir:xxh64"
_ENTRY_KEYS = frozenset((_EPOCH, _GENERATION, _FENCE))
OWN_PREFIX = b"weir:"

SEQUENCE_DIGITS = 20
_DECIMAL = re.compile(rb"[0-9]{1,20}")


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


def header_metadata(header: WalEntryHeader) -> dict[bytes, bytes]:
    """Return what a header is in the metadata of an entry, without the checksum.

    Raises
    ------
    InputError
        A number does not fit in 64 bits.
    """
    metadata = {_EPOCH: _decimal("writer epoch", header.writer_epoch)}
    if header.generation is not None:
        metadata[_GENERATION] = _decimal("generation", header.generation)
    if header.fence:
        metadata[_FENCE] = b"true"
    if header.write_id is not None:
        metadata[WRITE_ID] = header.write_id.encode()
    if header.source is not None:
        metadata[_SOURCE] = header.source.name.encode()
        metadata[SEQUENCE] = sequence_digits(header.source.sequence)
    if header.published:
        metadata[_PUBLISHED] = ",".join(header.published).encode()
        metadata[_PUBLISHED_ROWS] = _decimal("number of rows", header.published_rows)
        metadata[_PUBLISHED_FROM] = _decimal("generation", header.published_from)
    if header.place is not None:
        metadata[PLACE] = header.place.encode()
    return metadata


def read_header(pairs: Sequence[KeyValue], where: str) -> WalEntryHeader:
    """Return the header that stands in the metadata of an entry.

    Raises
    ------
    CorruptionError
        It is none that a writer makes.
    """
    metadata = {pair.key: pair.value for pair in pairs}
    epoch = _read_decimal(metadata, _EPOCH, where)
    if epoch is None:
        raise CorruptionError("the WAL entry has no writer epoch", where=where)
    fence = metadata.get(_FENCE, b"false")
    if fence not in (b"true", b"false"):
        raise CorruptionError(f"the WAL entry has the fence sentinel {fence[:40]!r}", where=where)
    write_id = metadata.get(WRITE_ID)
    try:
        text = None if write_id is None else write_id.decode()
    except UnicodeDecodeError as error:
        raise CorruptionError("the WAL entry has an unreadable write id", where=where) from error
    name, digits = metadata.get(_SOURCE), metadata.get(SEQUENCE)
    source = None if name is None and digits is None else read_source(name, digits, where)
    generation = _read_decimal(metadata, _GENERATION, where)
    place = metadata.get(PLACE)
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


def read_source(name: bytes | None, digits: bytes | None, where: str) -> Source:
    """Return the source mark of an entry.

    Raises
    ------
    CorruptionError
        It is none.
    """
    if name is None or digits is None or len(digits) != SEQUENCE_DIGITS or not digits.isdigit():
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


def _decimal(what: str, number: int) -> bytes:
    if not 0 <= number < 1 << 64:
        raise InputError(f"the {what} {number} does not fit in 64 unsigned bits")
    return str(number).encode()


def sequence_digits(sequence: int) -> bytes:
    """Return the number of a source as it stands in an entry: always as long."""
    return b"%0*d" % (SEQUENCE_DIGITS, sequence)


def without_entry_keys(schema: pa.Schema) -> dict[bytes, bytes] | None:
    """Return the metadata of a schema that is not the entry's own."""
    if schema.metadata is None:
        return None
    kept = {
        key: value
        for key, value in schema.metadata.items()
        if key not in _ENTRY_KEYS and not key.startswith(OWN_PREFIX)
    }
    return kept or None
