"""Fields of protobuf messages written by hand, as an encoder of no schema has them."""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["bytes_field", "bytes_fields", "number_field", "varint"]


def varint(number: int) -> bytes:
    return bytes([number]) if number < 128 else bytes([number & 127 | 128]) + varint(number >> 7)


def number_field(field: int, number: int) -> bytes:
    """A number; nothing if it is 0, as protobuf leaves defaults out."""
    return varint(field << 3) + varint(number) if number else b""


def bytes_field(field: int, data: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(data)) + data


def bytes_fields(field: int, data: bytes) -> Iterator[bytes]:
    """Yield what a message has of a field that is bytes, or a message."""
    at = 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at, value, shift = at + 1, value | (byte & 127) << shift, shift + 7
            if byte < 128:
                return value

    while at < len(data):
        tag = number()
        if tag & 7 == 2:
            length = number()
            at += length
            if tag >> 3 == field:
                yield data[at - length : at]
        elif tag & 7:
            at += {1: 8, 5: 4}[tag & 7]
        else:
            number()
