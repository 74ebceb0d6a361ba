"""The manifest of a Lance dataset with replaced field ids.

The library numbers the columns of every dataset it writes from 0, and accepts no other numbers. A generation
needs those of the base table, since readers find its columns by them. So the manifest of its only version is
rewritten before it is published. Lance table format spec, "Manifest": the file ends in the message, preceded
by its length (uint32), and a footer that says where that is.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

from google.protobuf.message import DecodeError

from weir.errors import CorruptionError
from weir.format.buffers import Bytes
from weir.format.proto import dataset_manifest_pb2

__all__ = ["with_numbers"]

_FOOTER = struct.Struct("<QHH4s")
_LENGTH = struct.Struct("<I")


def with_numbers(manifest: Bytes, numbers: Mapping[int, int], *, where: str) -> bytes:
    """Return a manifest in which fields have other ids.

    Parameters
    ----------
    manifest : bytes-like
        The whole file, as the library has written it.
    numbers : mapping of int to int
        The new id of every field.
    where : str
        Path of the file, for the error.

    Raises
    ------
    CorruptionError
        If it is not a manifest whose fields these are.
    """
    data = bytes(manifest)
    try:
        offset, *_ = footer = _FOOTER.unpack_from(data, len(data) - _FOOTER.size)
        start = offset + _LENGTH.size
        (length,) = _LENGTH.unpack_from(data, offset)
        if footer[-1] != b"LANC" or start + length + _FOOTER.size != len(data):
            raise ValueError("the message is not the last thing before the footer")
        message = dataset_manifest_pb2.Manifest.FromString(data[start : start + length])
        for field in message.fields:
            field.id = numbers[field.id]
            if field.parent_id >= 0:
                field.parent_id = numbers[field.parent_id]
        for fragment in message.fragments:
            for file in fragment.files:
                file.fields[:] = [numbers.get(number, number) for number in file.fields]
    except (struct.error, ValueError, KeyError, DecodeError) as error:
        raise CorruptionError(
            f"the manifest of a new dataset is not as expected: {error}",
            where=where,
            hint="An older or newer library may have written it",
        ) from error
    changed = message.SerializeToString()
    return data[:offset] + _LENGTH.pack(len(changed)) + changed + data[-_FOOTER.size :]
