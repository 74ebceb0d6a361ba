"""The trailer of a WAL entry: the part specific to each append, and the checksum of all before it.

It follows the end marker of the Arrow stream, where Arrow's readers have stopped. It has its own checksum, so
that a reader that needs no rows reads these bytes alone. All numbers are little-endian:

=====  ========================================================================================
bytes  value
=====  ========================================================================================
16     the write id, by which a writer whose reply was lost knows its entry (invariant I4); zeros: none
16     id of the shard in whose log it was appended; zeros: an entry of no place
8      its position there
8      epoch of the writer
8      number of its source mark (:mod:`weir.format.source`), of which the metadata has the name
8      rows of all batches
8      length of the stream
8      XXH64 of the stream, with seed 0
8      XXH64 of the 88 bytes before, with seed 0
8      ``weirwal1``
=====  ========================================================================================
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from uuid import UUID

import xxhash

from weir.errors import CorruptionError, InputError
from weir.format.buffers import Bytes
from weir.format.log_place import LogPlace

__all__ = ["TRAILER_BYTES", "WalTrailer", "not_what_was_written", "prove", "read_trailer"]

_FACTS = struct.Struct("<16s16s6Q")
_SEAL = struct.Struct("<Q8s")
_MAGIC = b"weirwal1"
_NONE = bytes(16)

TRAILER_BYTES = _FACTS.size + _SEAL.size
"""Length of every trailer: 96."""


@dataclass(frozen=True, slots=True)
class WalTrailer:
    """What stands after the stream of a WAL entry.

    Parameters
    ----------
    writer_epoch : int
        Epoch of the writer.
    rows : int
        Rows of all batches.
    nbytes : int
        Length of the stream.
    checksum : int
        XXH64 of the stream, with seed 0.
    write_id : str, optional
        Identifier of the append: 32 hex digits.
    place : LogPlace, optional
        Where it was appended.
    sequence : int, default 0
        The number of its source mark, if it has one.

    Examples
    --------
    >>> trailer = WalTrailer(writer_epoch=3, rows=2, nbytes=512, checksum=7)
    >>> read_trailer(trailer.encode(), where="example") == trailer
    True
    """

    writer_epoch: int
    rows: int
    nbytes: int
    checksum: int
    write_id: str | None = None
    place: LogPlace | None = None
    sequence: int = 0

    def encode(self) -> bytes:
        """Return the trailer as it is stored.

        Raises
        ------
        InputError
            A number does not fit in 64 bits, or the write id is not one.
        """
        place = self.place
        try:
            facts = _FACTS.pack(
                _NONE if self.write_id is None else _id_bytes(self.write_id),
                _NONE if place is None else place.shard_id.bytes,
                0 if place is None else place.position,
                self.writer_epoch,
                self.sequence,
                self.rows,
                self.nbytes,
                self.checksum,
            )
        except struct.error as error:
            raise InputError(f"a number of {self} does not fit in 64 unsigned bits") from error
        return facts + _SEAL.pack(xxhash.xxh64_intdigest(facts), _MAGIC)


def _id_bytes(write_id: str) -> bytes:
    try:
        found = bytes.fromhex(write_id)
    except ValueError:
        found = b""
    if len(found) != len(_NONE) or found == _NONE:
        raise InputError(f"the write id {write_id!r} is not 32 hex digits")
    return found


def read_trailer(end: Bytes, *, where: str) -> WalTrailer | None:
    """Return the trailer of an entry, or None if it has none: the library's, and Weir's of before.

    Parameters
    ----------
    end : bytes-like
        The entry, or its last :data:`TRAILER_BYTES`.
    where : str
        Path of the object, for the error.

    Raises
    ------
    CorruptionError
        There is one, but it is damaged.
    """
    stored = bytes(memoryview(end).cast("B")[-TRAILER_BYTES:])
    if len(stored) < TRAILER_BYTES or not stored.endswith(_MAGIC):
        return None
    facts = stored[: _FACTS.size]
    if xxhash.xxh64_intdigest(facts) != _SEAL.unpack_from(stored, _FACTS.size)[0]:
        raise CorruptionError("the trailer of the WAL entry is not what was written", where=where)
    write_id, shard_id, position, epoch, sequence, rows, nbytes, checksum = _FACTS.unpack(facts)
    return WalTrailer(
        epoch,
        rows,
        nbytes,
        checksum,
        None if write_id == _NONE else write_id.hex(),
        None if shard_id == _NONE else LogPlace(UUID(bytes=shard_id), position),
        sequence,
    )


def prove(trailer: WalTrailer, stream: memoryview, where: str) -> None:
    """Refuse an entry unless its stream is what its trailer was written for.

    Raises
    ------
    CorruptionError
        It is not.
    """
    actual = xxhash.xxh64_intdigest(stream)
    if (len(stream), actual) != (trailer.nbytes, trailer.checksum):
        raise not_what_was_written(actual, trailer.checksum, where)


def not_what_was_written(actual: int, expected: int, where: str) -> CorruptionError:
    """Return the error that says that an entry has another checksum."""
    return CorruptionError(
        f"the WAL entry has the checksum {actual:016x}, but {expected:016x} was written", where=where
    )
