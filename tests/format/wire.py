"""Fields of protobuf messages written by hand, as an encoder of no schema has them."""

from __future__ import annotations

__all__ = ["bytes_field", "number_field", "varint"]


def varint(number: int) -> bytes:
    return bytes([number]) if number < 128 else bytes([number & 127 | 128]) + varint(number >> 7)


def number_field(field: int, number: int) -> bytes:
    """A number; nothing if it is 0, as protobuf leaves defaults out."""
    return varint(field << 3) + varint(number) if number else b""


def bytes_field(field: int, data: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(data)) + data
