"""The tail of a Lance file: where its global buffers are, and its schema metadata.

A Lance file (version 2) ends with a footer of fixed size, which points to a table of the positions of its
global buffers. The first buffer describes the file; the writer says in the metadata what the others hold.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass

from weir.errors import CorruptionError
from weir.format import messages
from weir.format.buffers import Bytes
from weir.format.proto import lance_file_pb2

__all__ = ["FOOTER_SIZE", "BufferTable", "decode_buffer_places", "decode_footer", "decode_metadata"]

_MAGIC = b"LANC"
# Where column metadata, their offsets and the buffer table begin; how many buffers and columns; the version.
_FOOTER = struct.Struct("<QQQIIHH4s")
_PLACE = struct.Struct("<QQ")

FOOTER_SIZE = _FOOTER.size
"""Bytes of the footer."""


@dataclass(frozen=True, slots=True)
class BufferTable:
    """Where the table of the global buffers' places is.

    Parameters
    ----------
    start : int
        Its first byte in the file.
    count : int
        How many buffers it lists.
    """

    start: int
    count: int

    @property
    def nbytes(self) -> int:
        """Its size."""
        return self.count * _PLACE.size


def decode_footer(data: Bytes, *, where: str) -> BufferTable:
    """Return what the last :data:`FOOTER_SIZE` bytes of a file tell.

    Raises
    ------
    CorruptionError
        If they are no footer.

    Examples
    --------
    >>> decode_footer(_FOOTER.pack(0, 0, 4096, 2, 1, 2, 0, b"LANC"), where="example")
    BufferTable(start=4096, count=2)
    """
    if len(data) != FOOTER_SIZE or bytes(data[-len(_MAGIC) :]) != _MAGIC:
        raise CorruptionError("the file does not end as a Lance file does", where=where)
    _, _, start, count, *_ = _FOOTER.unpack(data)
    return BufferTable(start, count)


def decode_buffer_places(data: Bytes, table: BufferTable, *, where: str) -> tuple[tuple[int, int], ...]:
    """Return the first byte and the size of every global buffer.

    Raises
    ------
    CorruptionError
        If ``data`` is not all of the table.
    """
    if len(data) != table.nbytes or not table.count:
        raise CorruptionError(
            f"the file does not have the places of its {table.count} global buffers", where=where
        )
    return tuple((start, size) for start, size in _PLACE.iter_unpack(data))


def decode_metadata(data: Bytes, *, where: str) -> Mapping[str, bytes]:
    """Return the metadata of the schema that the first global buffer describes.

    Raises
    ------
    CorruptionError
        If the buffer describes no file.
    """
    message = messages.parse(lance_file_pb2.FileDescriptor(), data, what="description of a file", where=where)
    return dict(message.schema.metadata)
