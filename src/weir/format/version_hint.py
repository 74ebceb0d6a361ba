"""The hint at the latest manifest version of a shard.

A JSON object at :func:`weir.format.layout.version_hint_path`, overwritten without ceremony after each
manifest, so it may be stale, missing or torn. Lance MemWAL spec, section "Shard Manifest Versioning".

``weir:write_id`` is Weir's own: the stamp of the manifest. With it a reader distinguishes that manifest from
one that was put in its place after it had been collected (:mod:`weir.log.manifest_store`). The released
library ignores it, and writes hints without it. It comes with ``weir:xxh32``, a checksum of both: a hint with
a valid one proves that its manifest existed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

import xxhash

from weir.format.buffers import Bytes

__all__ = ["VersionHint", "decode", "encode"]

_VERSION = "version"
_WRITE_ID = "weir:write_id"
_CHECKSUM = "weir:xxh32"


@dataclass(frozen=True, slots=True)
class VersionHint:
    """What a hint says.

    Parameters
    ----------
    version : int
        The version that was the newest once, from 1.
    write_id : bytes, default b""
        The stamp of that manifest; empty in hints of other writers.
    proved : bool, default False
        Whether it was read with a checksum that fits. Two hints that differ in nothing else are equal.
    """

    version: int
    write_id: bytes = b""
    proved: bool = field(default=False, compare=False)


def encode(hint: VersionHint) -> bytes:
    """Return the bytes of a hint.

    Examples
    --------
    >>> encode(VersionHint(5))
    b'{"version":5}'
    >>> encode(VersionHint(5, bytes.fromhex("0aff")))
    b'{"version":5,"weir:write_id":"0aff","weir:xxh32":"9c47c49d"}'
    """
    members: dict[str, object] = {_VERSION: hint.version}
    if hint.write_id:
        members[_WRITE_ID] = hint.write_id.hex()
        members[_CHECKSUM] = _checksum(hint.version, hint.write_id)
    return json.dumps(members, separators=(",", ":")).encode()


def decode(data: Bytes) -> VersionHint | None:
    """Return what a hint says; None if ``data`` is not a hint, which is no error.

    Examples
    --------
    >>> decode(b'{"version":5}')
    VersionHint(version=5, write_id=b'', proved=False)
    >>> decode(b'{"vers') is None
    True
    """
    try:
        members = json.loads(bytes(data))
        version = members[_VERSION]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    if not isinstance(version, int) or isinstance(version, bool) or not 1 <= version < 1 << 64:
        return None
    write_id = _write_id(members.get(_WRITE_ID))
    return VersionHint(version, write_id, members.get(_CHECKSUM) == _checksum(version, write_id))


def _checksum(version: int, write_id: bytes) -> str:
    return xxhash.xxh32_hexdigest(b"%d %b" % (version, write_id))


def _write_id(text: object) -> bytes:
    try:
        return bytes.fromhex(text) if isinstance(text, str) else b""
    except ValueError:
        return b""
