"""The header of a WAL entry, stored as metadata of its stream's schema.

==================  ================================================================================
key                 value
==================  ================================================================================
``writer_epoch``    epoch of the writer, decimal
``generation``      generation of the MemTable the rows went to, decimal; data entries have it
``fence_sentinel``  ``true`` in the empty entry that a claim appends to fence the former writer
``weir:source``     source of the rows, of a write that may be repeated (:mod:`weir.format.source`)
``weir:sources``    in entries of before: marks of further writes whose rows it holds, one after the other:
                    the number as 20 decimal digits, the bytes of the name as 3, and the name. Now all of
                    them stand behind the stream (:mod:`weir.format.wal_marks`)
``weir:published``  directories of the generations whose rows stand here in the order of writes, though
                    they were never in the log: separated by commas, of an entry without rows
``weir:rows``       how many rows these have, decimal
``weir:numbered``   number of the first of these generations, decimal; those of the others follow
``weir:claim``      write id of the fence entry of the claim under which it was appended; that one has none
``weir:trailer``    bytes after the end of the stream, decimal: an entry without them has lost them
==================  ================================================================================

What is specific to each append is in the trailer (:mod:`weir.format.wal_trailer`), so that the rest is the
same in all entries of a writer for one generation. ``generation`` and ``fence_sentinel`` come from the
released library, which tolerates the ``weir:`` keys. Its own entries have none of them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from weir.errors import CorruptionError, InputError
from weir.format import layout
from weir.format.ipc_framing import KeyValue
from weir.format.log_place import LogPlace
from weir.format.shard_manifest import FlushedGeneration
from weir.format.source import Source
from weir.format.wal_trailer import TRAILER_BYTES

__all__ = [
    "OWN_PREFIX",
    "TRAILER",
    "WalEntryHeader",
    "header_metadata",
    "read_header",
    "with_append",
    "without_entry_keys",
]

_EPOCH = b"writer_epoch"
_GENERATION = b"generation"
_FENCE = b"fence_sentinel"
_SOURCE = b"weir:source"
_FURTHER_SOURCES = b"weir:sources"
_SEQUENCE_DIGITS = 20
_LENGTH_DIGITS = 3
_PUBLISHED = b"weir:published"
_PUBLISHED_ROWS = b"weir:rows"
_PUBLISHED_FROM = b"weir:numbered"
_CLAIM = b"weir:claim"
TRAILER = b"weir:trailer"
_ENTRY_KEYS = frozenset((_EPOCH, _GENERATION, _FENCE))
OWN_PREFIX = b"weir:"
_DECIMAL = re.compile(rb"[0-9]{1,20}")
_WRITE_ID = re.compile(rb"[0-9a-f]{32}")


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
        The mark of a write whose rows it holds, all of them that go to the shard.
    further_sources : tuple of Source, default ()
        The marks of others that share the entry; only where there is a first one.
    answers : tuple of bytes, default ()
        What each of these writes did, in the order of :attr:`sources` (:mod:`weir.format.write_window`);
        none if each did all that it was to do.
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
    claim : str, optional
        Write id of the fence entry of the claim under which it was appended; None in that one, in the
        library's entries, and in those that Weir wrote before there was one.
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
    further_sources: tuple[Source, ...] = ()
    answers: tuple[bytes, ...] = ()
    claim: str | None = None

    @property
    def has_lone_source(self) -> bool:
        """Whether its only mark is that of a continuing source: the next entry may have the same name."""
        return self.source is not None and not self.further_sources and not self.source.is_single

    @property
    def sources(self) -> tuple[Source, ...]:
        """The marks of all writes whose rows it holds, in their order."""
        return () if self.source is None else (self.source, *self.further_sources)

    def announcing(self, generations: Sequence[FlushedGeneration]) -> WalEntryHeader:
        """Return the header of an entry that also says that generations were published, if there are any."""
        if not generations:
            return self
        return replace(
            self,
            generation=None,
            fence=True,
            published=tuple(one.path for one in generations),
            published_rows=sum(one.physical_rows for one in generations),
            published_from=min(one.generation for one in generations),
        )

    def may_follow(self, before: WalEntryHeader) -> bool:
        """Whether an entry of a log may stand right after another: no claim appends behind the next one.

        Examples
        --------
        >>> fence = WalEntryHeader(2, fence=True, write_id="a" * 32)
        >>> WalEntryHeader(2, claim="a" * 32).may_follow(fence)
        True
        >>> WalEntryHeader(2, claim="b" * 32).may_follow(fence)
        False
        >>> WalEntryHeader(1).may_follow(fence)
        False
        """
        if self.writer_epoch < before.writer_epoch:
            return False
        begun = before.claim or (before.write_id if before.fence else None)
        return self.claim is None or begun is None or self.claim == begun


def header_metadata(header: WalEntryHeader) -> dict[bytes, bytes]:
    """Return what a header is in the metadata of an entry: all that is not in the trailer.

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
    if header.source is not None and header.has_lone_source:
        metadata[_SOURCE] = header.source.name.encode()
    if header.published:
        metadata[_PUBLISHED] = ",".join(header.published).encode()
        metadata[_PUBLISHED_ROWS] = _decimal("number of rows", header.published_rows)
        metadata[_PUBLISHED_FROM] = _decimal("generation", header.published_from)
    if header.claim is not None:
        metadata[_CLAIM] = header.claim.encode()
    metadata[TRAILER] = b"%d" % TRAILER_BYTES
    return metadata


def read_header(pairs: Sequence[KeyValue], where: str) -> WalEntryHeader:
    """Return the header in the metadata of an entry, without what is specific to its append.

    The number of its first source mark is among that, and 0 until :func:`with_append` has set it.

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
    name = metadata.get(_SOURCE)
    source = None if name is None else _source(name, 0, where)
    return WalEntryHeader(
        epoch,
        _read_decimal(metadata, _GENERATION, where),
        fence=fence == b"true",
        source=source,
        published=_read_published(metadata, where),
        published_rows=_read_decimal(metadata, _PUBLISHED_ROWS, where) or 0,
        published_from=_read_decimal(metadata, _PUBLISHED_FROM, where) or 0,
        further_sources=_read_further_sources(metadata.get(_FURTHER_SOURCES, b""), source, where),
        claim=_read_claim(metadata.get(_CLAIM), where),
    )


def with_append(
    header: WalEntryHeader,
    write_id: str | None,
    place: LogPlace | None,
    sequence: int | None,
    marks: tuple[tuple[Source, ...], tuple[bytes, ...]] = ((), ()),
) -> WalEntryHeader:
    """Return a header that was read from metadata, with what is specific to its append."""
    source = header.source
    if source is not None:
        source = None if sequence is None else Source(source.name, sequence)
    sources, answers = marks
    if not sources:
        return replace(header, write_id=write_id, place=place, source=source)
    return replace(
        header,
        write_id=write_id,
        place=place,
        source=sources[0],
        further_sources=sources[1:],
        answers=answers,
    )


def _read_published(metadata: dict[bytes, bytes], where: str) -> tuple[str, ...]:
    text = metadata.get(_PUBLISHED)
    if text is None:
        return ()
    try:
        return tuple(layout.check_name(name) for name in text.decode().split(","))
    except (InputError, UnicodeDecodeError) as error:
        raise CorruptionError("the WAL entry names impossible generations", where=where) from error


def _read_claim(text: bytes | None, where: str) -> str | None:
    if text is None:
        return None
    if _WRITE_ID.fullmatch(text) is None:
        raise CorruptionError(f"the WAL entry has the claim {text[:40]!r}", where=where)
    return text.decode()


def _source(name: bytes, sequence: int, where: str) -> Source:
    try:
        return Source(name.decode(), sequence)
    except (InputError, UnicodeDecodeError) as error:
        raise CorruptionError("the WAL entry has an unreadable source mark", where=where) from error


def _read_further_sources(marks: bytes, first: Source | None, where: str) -> tuple[Source, ...]:
    if marks and first is None:
        raise CorruptionError("the WAL entry has further source marks without a first", where=where)
    found, start = [], 0
    while start < len(marks):
        length_at = start + _SEQUENCE_DIGITS
        name_at = length_at + _LENGTH_DIGITS
        sequence, length = marks[start:length_at], marks[length_at:name_at]
        end = name_at + (int(length) if len(length) == _LENGTH_DIGITS and length.isdigit() else 0)
        if end > len(marks) or not sequence.isdigit():
            raise CorruptionError("the WAL entry has half a source mark", where=where)
        found.append(_source(marks[name_at:end], int(sequence), where))
        start = end
    return tuple(found)


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
