"""The list of indexes in a Lance table's own manifest.

The library does not hand out merge progress and index catch-up, so Weir reads the details of the
MemWAL index from the manifest file of the table version it has open. A manifest file ends in the
offset of the ``Manifest`` message (uint64), the major and minor format version (uint16 each) and
``LANC``; messages in it are preceded by their length (uint32). All numbers are little-endian. Lance
table format spec, "Manifest".
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TypeVar
from uuid import UUID

from google.protobuf.message import Message

from weir.errors import CorruptionError
from weir.format import messages
from weir.format.buffers import Bytes
from weir.format.proto import memwal_pb2

__all__ = ["IndexEntry", "decode_index_section"]

_FOOTER = struct.Struct("<QHH4s")
_LENGTH = struct.Struct("<I")
_MAGIC = b"LANC"

M = TypeVar("M", bound=Message)


@dataclass(frozen=True, slots=True)
class IndexEntry:
    """One index of a table version.

    Parameters
    ----------
    uuid : UUID
        Identifier of the index, or of this segment of it.
    name : str
        Name of the index.
    dataset_version : int
        Table version the index was built from.
    details_type_url : str
        Type of the details; empty if there are none.
    details : bytes
        The serialised details; for the MemWAL index see :mod:`weir.format.index_details`.
    """

    uuid: UUID
    name: str
    dataset_version: int
    details_type_url: str
    details: bytes


def decode_index_section(manifest: Bytes, *, where: str) -> tuple[IndexEntry, ...]:
    """Return the indexes that a table manifest lists, in its order.

    Parameters
    ----------
    manifest : bytes-like
        The whole manifest file.
    where : str
        Path of the file, for the error.

    Raises
    ------
    CorruptionError
        The bytes are not a Lance table manifest.
    """
    view = memoryview(manifest).cast("B")
    if len(view) < _FOOTER.size:
        raise CorruptionError(f"the table manifest has only {len(view)} bytes", where=where)
    offset, _, _, magic = _FOOTER.unpack_from(view, len(view) - _FOOTER.size)
    if magic != _MAGIC:
        raise CorruptionError(f"the table manifest ends in {magic!r}, not in {_MAGIC!r}", where=where)
    head = _read(memwal_pb2.TableManifest(), view, offset, "table manifest", where)
    if not head.HasField("index_section"):
        return ()
    section = _read(memwal_pb2.IndexSection(), view, head.index_section, "index section", where)
    return tuple(
        IndexEntry(
            uuid=messages.read_uuid(entry.uuid.uuid, what=f"the uuid of index {entry.name!r}", where=where),
            name=entry.name,
            dataset_version=entry.dataset_version,
            details_type_url=entry.index_details.type_url,
            details=entry.index_details.value,
        )
        for entry in section.indices
    )


def _read(message: M, view: memoryview, offset: int, what: str, where: str) -> M:
    """Parse the length-prefixed message at ``offset``."""
    start = offset + _LENGTH.size
    if start > len(view):
        raise CorruptionError(f"the {what} starts at byte {offset} of {len(view)}", where=where)
    end = start + _LENGTH.unpack_from(view, offset)[0]
    if end > len(view):
        raise CorruptionError(f"the {what} ends at byte {end} of {len(view)}", where=where)
    return messages.parse(message, view[start:end], what=what, where=where)
