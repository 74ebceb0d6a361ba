"""The hint at the latest manifest version of a shard.

A JSON object at :func:`weir.format.layout.version_hint_path`, overwritten without ceremony after each
manifest, so it may be stale, missing or torn. Lance MemWAL spec, section "Shard Manifest Versioning".
"""

from __future__ import annotations

import json

from weir.format.buffers import Bytes

__all__ = ["decode", "encode"]


def encode(version: int) -> bytes:
    """Return the bytes of a hint at ``version``.

    Examples
    --------
    >>> encode(5)
    b'{"version":5}'
    """
    return json.dumps({"version": version}, separators=(",", ":")).encode()


def decode(data: Bytes) -> int | None:
    """Return the version that ``data`` hints at; None if it is not a hint, which is no error.

    Examples
    --------
    >>> decode(b'{"version":5}')
    5
    >>> decode(b'{"vers') is None
    True
    """
    try:
        version = json.loads(bytes(data))["version"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    valid = isinstance(version, int) and not isinstance(version, bool) and 1 <= version < 1 << 64
    return version if valid else None
