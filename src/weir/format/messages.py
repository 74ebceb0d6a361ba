"""Common parts of all protobuf codecs: strict parsing and preservation of unknown fields."""

from __future__ import annotations

from hashlib import blake2b
from threading import Lock
from typing import TypeVar
from uuid import UUID

from google.protobuf.message import DecodeError, EncodeError, Message

from weir.errors import CorruptionError, InputError
from weir.format.buffers import Bytes
from weir.format.parsed_size import MalformedError, parsed_size

__all__ = ["ENCODE_ERRORS", "parse", "read_uuid", "serialize", "unknown_fields"]

M = TypeVar("M", bound=Message)

# A smaller message is harmless. A larger one takes a few times its size in memory, about ten at most, if a
# writer has made it.
_LARGE_BYTES = 64 * 1024
_MAX_TIMES = 16

_MAX_SOUND = 256
_SOUND: dict[bytes, None] = {}
"""Of large messages that are as they should be what they are known by, the last ones seen."""
_SOUND_LOCK = Lock()

ENCODE_ERRORS = (ValueError, TypeError, DecodeError)
"""What protobuf raises for a value that does not fit its field, or unknown fields that are none."""


def parse(message: M, data: Bytes, *, what: str, where: str) -> M:
    """Fill ``message`` from ``data`` and return it.

    Raises
    ------
    CorruptionError
        ``data`` is not a serialised message of this kind, or would take many times its size in memory.
    """
    view = memoryview(data).cast("B")
    if len(view) > _LARGE_BYTES:
        _check_size(view, message, what, where)
    try:
        message.ParseFromString(bytes(data))
    except (DecodeError, RuntimeError) as error:
        raise CorruptionError(f"the {what} cannot be decoded: {error}", where=where) from error
    return message


def _check_size(data: memoryview, message: Message, what: str, where: str) -> None:
    # Opening a large table, or committing to it, parses its manifest many times, but checks it once.
    digest = blake2b(data, digest_size=16, key=message.DESCRIPTOR.full_name.encode()[:64]).digest()
    if digest in _SOUND:
        return
    try:
        size = parsed_size(data, message)
    except MalformedError as error:
        raise CorruptionError(f"the {what} cannot be decoded: {error}", where=where) from error
    if size > _MAX_TIMES * len(data):
        raise CorruptionError(
            f"the {what} has {len(data)} bytes and would take about {size} in memory, which no writer "
            "produces",
            where=where,
        )
    with _SOUND_LOCK:
        while len(_SOUND) >= _MAX_SOUND:
            del _SOUND[next(iter(_SOUND))]
        _SOUND[digest] = None


def serialize(message: Message) -> bytes:
    """Return the message as bytes; equal messages give equal bytes."""
    try:
        data: bytes = message.SerializeToString(deterministic=True)
    except (EncodeError, ValueError) as error:
        raise InputError(f"{type(message).__name__} cannot be encoded: {error}") from error
    return data


def unknown_fields(message: Message) -> bytes:
    """Return the fields of ``message`` that its definition does not have, serialised.

    Those of messages inside it too, such as a shard's id, but not of messages in a list, which belong
    to the items. ``message`` is used up: its known fields are gone afterwards.
    """
    for field in message.DESCRIPTOR.fields:
        single = field.message_type is not None and not field.is_repeated
        if not (single and message.HasField(field.name) and unknown_fields(getattr(message, field.name))):
            message.ClearField(field.name)
    data: bytes = message.SerializeToString()
    return data


def read_uuid(raw: bytes, *, what: str, where: str) -> UUID:
    """Return the UUID of 16 stored bytes; :class:`~weir.errors.CorruptionError` for any other length."""
    if len(raw) != 16:
        raise CorruptionError(f"{what} has {len(raw)} bytes, a UUID has 16", where=where)
    return UUID(bytes=raw)
