"""The memory that a serialised protobuf message will take once parsed.

Two bytes on the wire are an empty message in a list, and a hundred bytes in memory. No writer makes many of
those; crafted or damaged bytes may be full of them. So before a large message is parsed, its wire format is
walked: every message in it counts for about what one of its kind takes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

__all__ = ["MalformedError", "parsed_size"]

_VARINT, _FIXED64, _BYTES, _START_GROUP, _END_GROUP, _FIXED32 = range(6)
_FIXED_BYTES = {_FIXED64: 8, _FIXED32: 4, _START_GROUP: 0, _END_GROUP: 0}

# About what the runtime takes, as measured: a message with its share of the list it is in, every field of it,
# the first entry of a map, which makes a table, a text besides its bytes, a run of fields it does not know.
_MESSAGE_BYTES = 24
_FIELD_BYTES = 8
_MAP_BYTES = 320
_TEXT_BYTES = 32
_UNKNOWN_BYTES = 32


class MalformedError(ValueError):
    """The bytes are no serialised message."""


@dataclass(frozen=True, slots=True)
class _Nested:
    """A field of a message that takes separate memory: a text, or a message with its content."""

    nbytes: int
    kind: Descriptor | None = None
    is_map: bool = False
    inside: dict[int, _Nested] = field(default_factory=dict)


def parsed_size(data: memoryview, message: Message) -> int:
    """Return about how many bytes ``data`` takes once it is parsed, with all that is in it.

    Parameters
    ----------
    data : memoryview
        The serialised message, one-dimensional and of format ``B``.
    message : Message
        A message of its kind; only its descriptor is used.

    Raises
    ------
    MalformedError
        The bytes are no serialised message.
    """
    kind: Any = message.DESCRIPTOR
    nested = _nested(kind)
    return len(data) + (_walk(bytes(data), 0, len(data), nested) if nested else 0)


def _walk(data: bytes, start: int, end: int, nested: dict[int, _Nested]) -> int:
    """Return what the fields of one message take besides their bytes. No kind of message is within itself."""
    size = 0
    maps: set[int] = set()
    # The runtime keeps neighbouring fields that it does not know in one piece.
    in_unknown = False
    while start < end:
        # Nearly all tags and lengths are one byte, and the manifest of a large table has millions of them.
        tag = data[start]
        start += 1
        if tag >= 0x80:
            tag, start = _number(data, start - 1, end)
        wire_type = tag & 7
        if wire_type == _BYTES:
            if start < end and data[start] < 0x80:
                length = data[start]
                start += 1
            else:
                length, start = _number(data, start, end)
        elif wire_type == _VARINT:
            length = 0
            if start < end and data[start] < 0x80:
                start += 1
            else:
                _, start = _number(data, start, end)
        else:
            length = _FIXED_BYTES.get(wire_type, -1)
        if tag < 8 or not 0 <= length <= end - start:
            raise MalformedError(f"no field can be read before byte {start}")
        found = nested.get(tag >> 3) if wire_type == _BYTES else None
        if found is None:
            # A number is taken for a field that is not known, too: those stand alone.
            size += 0 if in_unknown else _UNKNOWN_BYTES
            in_unknown = True
        else:
            in_unknown = False
            size += found.nbytes
            if found.is_map and tag not in maps:
                maps.add(tag)
                size += _MAP_BYTES
            if found.kind is not None and length:
                size += _walk(data, start, start + length, found.inside)
        start += length
    return size


@cache
def _nested(kind: Descriptor) -> dict[int, _Nested]:
    """Return the fields of a message that take separate memory, by their numbers."""
    return {one.number: found for one in kind.fields if (found := _field(one)) is not None}


def _field(described: FieldDescriptor) -> _Nested | None:
    kind = described.message_type
    if kind is not None:
        nbytes = _MESSAGE_BYTES + _FIELD_BYTES * len(kind.fields)
        return _Nested(nbytes, kind, bool(kind.GetOptions().map_entry), _nested(kind))
    if described.type in (FieldDescriptor.TYPE_STRING, FieldDescriptor.TYPE_BYTES):
        return _Nested(_TEXT_BYTES)
    return None


def _number(data: bytes, start: int, end: int) -> tuple[int, int]:
    """Return the number that begins at ``start``, and where what follows it begins."""
    value = shift = 0
    while start < end and shift < 70:
        byte = data[start]
        start += 1
        if byte < 0x80:
            return value | byte << shift, start
        value |= (byte & 0x7F) << shift
        shift += 7
    raise MalformedError(f"no number ends before byte {start}")
