"""Salvaging the readable parts of damaged bytes, to show them to a person; never as proof.

No code relies on the result: a decoder either returns what was written or raises.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import pyarrow as pa
from google.protobuf import json_format
from google.protobuf.message import DecodeError
from pyarrow import ipc

from weir.errors import CorruptionError
from weir.format.buffers import Bytes
from weir.format.ipc_framing import END_OF_STREAM, read_frames
from weir.format.proto import memwal_pb2

__all__ = ["json_text", "shard_manifest", "wal_rows"]

_MOST_TEXT = 2_000
_ARROW_ERRORS = (pa.ArrowException, OSError, ValueError, KeyError, OverflowError, MemoryError)


def shard_manifest(data: Bytes) -> Mapping[str, Any]:
    r"""Return the fields of a shard manifest that can be read, by their names; bytes are in base64.

    Examples
    --------
    >>> whole = memwal_pb2.ShardManifest(version=3, writer_epoch=2).SerializeToString()
    >>> shard_manifest(whole + b"\x42")
    {'version': '3', 'writer_epoch': '2'}
    """
    message = memwal_pb2.ShardManifest()
    for end in _field_ends(bytes(data)):
        try:
            message = memwal_pb2.ShardManifest.FromString(bytes(data)[:end])
        except (DecodeError, RuntimeError):
            continue
        break
    fields: dict[str, Any] = json_format.MessageToDict(message, preserving_proto_field_name=True)
    return fields


def wal_rows(data: Bytes) -> tuple[pa.RecordBatch, ...]:
    """Return the batches at the beginning of a WAL entry that can be read."""
    view = memoryview(data).cast("B")
    end = 0
    with suppress(CorruptionError):
        while found := read_frames(view[end:], where="", limit=1):
            if found[0].compressed:
                return ()  # no writer makes them, and they can claim to be of any size
            end += found[0].end
    batches: list[pa.RecordBatch] = []
    with suppress(*_ARROW_ERRORS), ipc.open_stream(pa.py_buffer(bytes(view[:end]) + END_OF_STREAM)) as reader:
        for batch in reader:
            batch.validate(full=True)
            batches.append(batch)
    return tuple(batches)


def json_text(data: Bytes) -> Mapping[str, Any]:
    """Return the members of a JSON object, or else the beginning of the text."""
    try:
        members = json.loads(bytes(data))
    except (ValueError, RecursionError):
        return {"text": bytes(data)[:_MOST_TEXT].decode(errors="replace")}
    return members if isinstance(members, dict) else {"value": members}


def _field_ends(data: bytes) -> list[int]:
    """Return where the top-level fields of a protobuf message end, the last one first."""
    ends = [0]
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        kind = tag & 7
        if kind == 0:
            _, at = _varint(data, at)
        elif kind == 1:
            at += 8
        elif kind == 2:
            length, at = _varint(data, at)
            at += length
        elif kind == 5:
            at += 4
        else:
            break
        if at > len(data) or tag < 8:
            break
        ends.append(at)
    return ends[::-1]


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while at < len(data) and shift < 70:
        byte = data[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return number, at
    return 0, len(data) + 1
