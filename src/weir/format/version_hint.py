"""The hint at the latest manifest version of a shard.

A JSON object at :func:`weir.format.layout.version_hint_path`, overwritten without ceremony after each
manifest, so it may be stale, missing or torn. Lance MemWAL spec, section "Shard Manifest Versioning".

``weir:write_id`` is Weir's own: the stamp of the manifest that is meant. By it a reader tells that manifest
from one that was put in its place after it had been collected (:mod:`weir.shard.manifest_store`). The
released library passes over it, and writes hints without it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from weir.format.buffers import Bytes

__all__ = ["VersionHint", "decode", "encode"]

_VERSION = "version"
_WRITE_ID = "weir:write_id"


@dataclass(frozen=True, slots=True)
class VersionHint:
    """What a hint says.

    Parameters
    ----------
    version : int
        The version that was the newest once, from 1.
    write_id : bytes, default b""
        The stamp of that manifest; empty in hints of other writers.
    """

    version: int
    write_id: bytes = b""


def encode(hint: VersionHint) -> bytes:
    """Return the bytes of a hint.

    Examples
    --------
    >>> encode(VersionHint(5))
    b'{"version":5}'
    >>> encode(VersionHint(5, bytes.fromhex("0aff")))
    b'{"version":5,"weir:write_id":"0aff"}'
    """
    members: dict[str, object] = {_VERSION: hint.version}
    if hint.write_id:
        members[_WRITE_ID] = hint.write_id.hex()
    return json.dumps(members, separators=(",", ":")).encode()


def decode(data: Bytes) -> VersionHint | None:
    """Return what a hint says; None if ``data`` is not a hint, which is no error.

    Examples
    --------
    >>> decode(b'{"version":5}')
    VersionHint(version=5, write_id=b'')
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
    return VersionHint(version, _write_id(members.get(_WRITE_ID)))


def _write_id(text: object) -> bytes:
    try:
        return bytes.fromhex(text) if isinstance(text, str) else b""
    except ValueError:
        return b""
