"""WAL entries without a trailer: those of the library, and early ones of Weir.

The latter have in the metadata of their schema what the trailer holds today: write id, place, number of the
source mark, and as ``weir:xxh64`` 16 hex digits of the XXH64 of the whole entry while these read ``0``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from uuid import UUID

import xxhash

from weir.errors import CorruptionError
from weir.format.ipc_framing import END_OF_STREAM, FrameKind, KeyValue, read_frames
from weir.format.log_place import LogPlace
from weir.format.source import Source
from weir.format.wal_header import OWN_PREFIX, TRAILER
from weir.format.wal_trailer import not_what_was_written

__all__ = ["is_proved", "old_append"]

_CHECKSUM = b"weir:xxh64"
_NO_CHECKSUM = b"0" * 16
_HEX_DIGITS = re.compile(rb"[0-9a-f]{16}")
_WRITE_ID = b"weir:write_id"
_PLACE = b"weir:place"
_SEQUENCE = b"weir:sequence"


def is_proved(view: memoryview, end: int, pairs: Sequence[KeyValue], where: str) -> bool:
    """Return whether an entry without a trailer has a checksum, which was checked then.

    Of one that has none the frame is checked, so that Arrow allocates no more than there is.

    Parameters
    ----------
    view : memoryview
        The entry.
    end : int
        Where its schema message ends.
    pairs : sequence of KeyValue
        The metadata of the schema.
    where : str
        Path of the object, for the error.

    Raises
    ------
    CorruptionError
        It has another checksum, should have a checksum or a trailer and has none, or has a broken frame.
    """
    own = {pair.key: pair for pair in pairs if pair.key.startswith(OWN_PREFIX)}
    if _CHECKSUM in own:
        _prove_digits(view, own[_CHECKSUM], where)
        return True
    # A damaged count of pairs hides those at the end, and the rest may look like the library's.
    opening = bytes(view[:end])
    if own or TRAILER in opening or _CHECKSUM in opening:
        raise CorruptionError("the WAL entry has lost its trailer: it is cut short or damaged", where=where)
    _check_frames(view, where)
    return False


def _prove_digits(view: memoryview, written: KeyValue, where: str) -> None:
    if _HEX_DIGITS.fullmatch(written.value) is None:
        raise CorruptionError("the WAL entry has no valid checksum", where=where)
    checksum = xxhash.xxh64(view[: written.value_start])
    checksum.update(_NO_CHECKSUM)
    checksum.update(view[written.value_start + len(_NO_CHECKSUM) :])
    if checksum.hexdigest().encode() != written.value:
        raise not_what_was_written(checksum.intdigest(), int(written.value, 16), where)


def old_append(pairs: Sequence[KeyValue], where: str) -> tuple[str | None, LogPlace | None, int | None]:
    """Return write id, place, and number of the source mark, as far as the metadata has them.

    Raises
    ------
    CorruptionError
        One of them is none.
    """
    metadata = {pair.key: pair.value for pair in pairs}
    write_id, place, digits = (metadata.get(key) for key in (_WRITE_ID, _PLACE, _SEQUENCE))
    try:
        return (
            None if write_id is None else write_id.decode(),
            None if place is None else _place(place.decode()),
            None if digits is None else Source("any", int(digits)).sequence,
        )
    except ValueError as error:
        text = "the WAL entry has an unreadable write id, place or source mark"
        raise CorruptionError(text, where=where) from error


def _place(text: str) -> LogPlace:
    shard_id, position = text.split("/")
    return LogPlace(UUID(shard_id), int(position))


def _check_frames(view: memoryview, where: str) -> None:
    frames = read_frames(view, where=where)
    for number, frame in enumerate(frames):
        if (frame.kind is FrameKind.SCHEMA) != (number == 0):
            raise CorruptionError("the WAL entry must have one schema, as its first message", where=where)
        if frame.compressed:
            raise CorruptionError("the WAL entry has a compressed body, which no writer makes", where=where)
    if frames[-1].end + len(END_OF_STREAM) != len(view):
        raise CorruptionError("the WAL entry continues after the end of its stream", where=where)
