"""The framing of an Arrow IPC stream, read without Arrow.

A WAL entry must be proved whole *before* its bytes reach Arrow: damaged metadata can make Arrow fail
in many ways or ask for absurd amounts of memory. What that proof needs is little: where each message
starts and ends, and the key-value pairs of the schema message. Every offset is checked against the
message it must stay in.

A stream is a sequence of messages: ``ff ff ff ff``, the length of the metadata (int32), the metadata
(a Flatbuffers ``Message``), the body; the end is ``ff ff ff ff`` and a length of 0.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

from weir.errors import CorruptionError
from weir.format.buffers import Bytes

__all__ = [
    "END_OF_STREAM",
    "Frame",
    "FrameKind",
    "KeyValue",
    "StreamSize",
    "measure",
    "read_frames",
    "read_key_values",
]

END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"
"""What the last message of a stream is followed by."""

_UINT16 = struct.Struct("<H")
_INT32 = struct.Struct("<i")
_UINT32 = struct.Struct("<I")
_INT64 = struct.Struct("<q")
_CONTINUATION = 0xFFFFFFFF


class FrameKind(IntEnum):
    """What a message holds, numbered as Arrow does."""

    SCHEMA = 1
    DICTIONARY_BATCH = 2
    RECORD_BATCH = 3


@dataclass(frozen=True, slots=True)
class Frame:
    """One message of a stream.

    Parameters
    ----------
    kind : FrameKind
        What it holds.
    metadata : memoryview
        The Flatbuffers ``Message``.
    metadata_start : int
        Offset of the metadata in the stream.
    end : int
        Offset of the first byte after the body.
    compressed : bool
        Whether the body is compressed.
    rows : int, default 0
        Rows of a record batch; 0 in other messages.
    """

    kind: FrameKind
    metadata: memoryview
    metadata_start: int
    end: int
    compressed: bool
    rows: int = 0


@dataclass(frozen=True, slots=True)
class StreamSize:
    """How much a stream holds.

    Parameters
    ----------
    rows : int
        Rows of all record batches.
    nbytes : int
        Bytes of the whole stream.
    entry : bytes, default b""
        What tells the WAL entry that it is from others (:func:`weir.format.snapshot_token.entry_stamp`), if
        known.
    """

    rows: int
    nbytes: int
    entry: bytes = b""


@dataclass(frozen=True, slots=True)
class KeyValue:
    """One pair of a schema's metadata.

    Parameters
    ----------
    key, value : bytes
        The pair.
    value_start : int
        Offset of the value in the stream.
    """

    key: bytes
    value: bytes
    value_start: int


def read_frames(data: memoryview, *, where: str, limit: int | None = None) -> tuple[Frame, ...]:
    """Return the messages of the stream that ``data`` starts with, up to its end marker.

    Parameters
    ----------
    data : memoryview
        The bytes, one-dimensional and of format ``B``.
    where : str
        Path of the object, for the error.
    limit : int, optional
        Stop after this many messages, without looking for the end marker.

    Raises
    ------
    CorruptionError
        The stream is cut short or a message is malformed.
    """
    frames: list[Frame] = []
    start = 0
    try:
        while limit is None or len(frames) < limit:
            if _UINT32.unpack_from(data, start)[0] != _CONTINUATION:
                raise CorruptionError(f"no Arrow message starts at byte {start}", where=where)
            length: int = _INT32.unpack_from(data, start + 4)[0]
            if length == 0:
                break
            metadata = data[start + 8 : start + 8 + length] if length > 0 else data[:0]
            frames.append(_read_frame(metadata, start + 8))
            start = frames[-1].end
            if start > len(data) or len(metadata) != length:
                raise CorruptionError(
                    f"message {len(frames)} of the Arrow stream goes beyond the {len(data)} bytes present",
                    where=where,
                )
    except (struct.error, ValueError) as error:
        number = len(frames) + 1
        raise CorruptionError(f"message {number} of the Arrow stream is malformed", where=where) from error
    return tuple(frames)


_WINDOW_BYTES = 16 * 1024


def measure(read: Callable[[int, int], Bytes], *, where: str) -> StreamSize:
    """Return how much a stream holds, without reading the bodies of its messages, and so without proof.

    A stream of up to 16 KiB takes one read. Of a longer one, every body that does not end among the bytes
    read last takes another.

    Parameters
    ----------
    read : callable
        Returns as many bytes as asked for from a start, or fewer at the end of the stream: called with
        ``(start, length)``.
    where : str
        Path of the object, for the error.

    Raises
    ------
    CorruptionError
        The stream is cut short or a message is malformed.
    """
    window, first = memoryview(b""), 0

    def take(start: int, length: int) -> memoryview:
        nonlocal window, first
        if start < first or start + length > first + len(window):
            window, first = memoryview(read(start, max(length, _WINDOW_BYTES))).cast("B"), start
        return window[start - first : start - first + length]

    rows = start = number = 0
    try:
        while True:
            number += 1
            opening = take(start, 8)
            if _UINT32.unpack_from(opening, 0)[0] != _CONTINUATION:
                raise ValueError("no message starts here")
            length: int = _INT32.unpack_from(opening, 4)[0]
            if length == 0:
                return StreamSize(rows, start + 8)
            metadata = take(start + 8, length)
            if len(metadata) != length:
                raise ValueError("the message is cut short")
            frame = _read_frame(metadata, start + 8)
            rows += frame.rows
            start = frame.end
    except (struct.error, ValueError) as error:
        raise CorruptionError(f"message {number} of the Arrow stream is malformed", where=where) from error


def read_key_values(frame: Frame, *, where: str) -> tuple[KeyValue, ...]:
    """Return the metadata pairs of a schema message, in order.

    Raises
    ------
    CorruptionError
        The message is not a schema, or is malformed.
    """
    try:
        if frame.kind is not FrameKind.SCHEMA:
            raise ValueError("not a schema")
        message = _Table.root(frame.metadata)
        pairs: list[KeyValue] = []
        size = 0
        for pair in message.table(_MESSAGE_HEADER).tables(_SCHEMA_CUSTOM_METADATA):
            _, key = pair.string(_KEY_VALUE_KEY)
            value_start, value = pair.string(_KEY_VALUE_VALUE)
            pairs.append(KeyValue(key, value, frame.metadata_start + value_start))
            size += len(key) + len(value)
            # Pairs of a damaged message may all point to the same bytes and add up to far more.
            if size > len(frame.metadata):
                raise ValueError("the pairs are longer than the message")
    except (struct.error, ValueError) as error:
        raise CorruptionError("the schema message of the Arrow stream is malformed", where=where) from error
    return tuple(pairs)


def _read_frame(metadata: memoryview, metadata_start: int) -> Frame:
    message = _Table.root(metadata)
    kind_at = message.field(_MESSAGE_HEADER_TYPE)
    kind = FrameKind(metadata[kind_at] if kind_at is not None and kind_at < len(metadata) else 0)
    body_at = message.field(_MESSAGE_BODY_LENGTH)
    body = 0 if body_at is None else _INT64.unpack_from(metadata, body_at)[0]
    if body < 0:
        raise ValueError("negative body length")
    batch = message.table(_MESSAGE_HEADER)
    if kind is FrameKind.DICTIONARY_BATCH:
        batch = batch.table(_DICTIONARY_BATCH_DATA)
    compressed = kind is not FrameKind.SCHEMA and batch.field(_RECORD_BATCH_COMPRESSION) is not None
    rows = 0
    if kind is FrameKind.RECORD_BATCH and (rows_at := batch.field(_RECORD_BATCH_LENGTH)) is not None:
        rows = _INT64.unpack_from(metadata, rows_at)[0]
        if rows < 0:
            raise ValueError("negative number of rows")
    return Frame(kind, metadata, metadata_start, metadata_start + len(metadata) + body, compressed, rows)


# Positions of fields in the tables of Arrow's Message.fbs and Schema.fbs.
_MESSAGE_HEADER_TYPE = 1
_MESSAGE_HEADER = 2
_MESSAGE_BODY_LENGTH = 3
_SCHEMA_CUSTOM_METADATA = 2
_DICTIONARY_BATCH_DATA = 1
_RECORD_BATCH_LENGTH = 0
_RECORD_BATCH_COMPRESSION = 3
_KEY_VALUE_KEY = 0
_KEY_VALUE_VALUE = 1


@dataclass(frozen=True, slots=True)
class _Table:
    """A Flatbuffers table at ``position`` of ``data``; ValueError or struct.error if it is malformed."""

    data: memoryview
    position: int

    @classmethod
    def root(cls, data: memoryview) -> _Table:
        return cls(data, _UINT32.unpack_from(data, 0)[0])

    def field(self, number: int) -> int | None:
        """Return the offset of a field, or None if the table does not have it."""
        vtable = self.position - _INT32.unpack_from(self.data, self.position)[0]
        if vtable < 0:
            raise ValueError("a vtable lies before the message")
        slot = 4 + 2 * number
        if slot + 2 > _UINT16.unpack_from(self.data, vtable)[0]:
            return None
        offset = _UINT16.unpack_from(self.data, vtable + slot)[0]
        return self.position + offset if offset else None

    def table(self, number: int) -> _Table:
        return _Table(self.data, self._follow(number))

    def tables(self, number: int) -> list[_Table]:
        if self.field(number) is None:
            return []
        vector = self._follow(number)
        count = _UINT32.unpack_from(self.data, vector)[0]
        if vector + 4 + 4 * count > len(self.data):
            raise ValueError("a vector goes beyond the message")
        slots = range(vector + 4, vector + 4 + 4 * count, 4)
        return [_Table(self.data, slot + _UINT32.unpack_from(self.data, slot)[0]) for slot in slots]

    def string(self, number: int) -> tuple[int, bytes]:
        """Return where the characters of a string field start, and the characters."""
        if self.field(number) is None:
            return 0, b""
        string = self._follow(number)
        length = _UINT32.unpack_from(self.data, string)[0]
        if string + 4 + length > len(self.data):
            raise ValueError("a string goes beyond the message")
        return string + 4, bytes(self.data[string + 4 : string + 4 + length])

    def _follow(self, number: int) -> int:
        at = self.field(number)
        if at is None:
            raise ValueError("a required field is missing")
        return at + int(_UINT32.unpack_from(self.data, at)[0])
