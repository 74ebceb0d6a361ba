"""Small JSON objects with their own checksum: leases and similar objects.

The text is for people too: indented, keys in order where their order says nothing. The member
``checksum`` is XXH64, with seed 0, as 16 hex digits, of all other members written without white space and
in order of their keys. So how a file is laid out is not covered, and everything else that it says is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import xxhash

from weir.errors import CorruptionError
from weir.format.buffers import Bytes

__all__ = ["decode", "encode"]

_CHECKSUM = "checksum"


def encode(members: Mapping[str, Any], *, sort: bool = True) -> bytes:
    """Return a JSON object with ``members`` and their checksum.

    Parameters
    ----------
    members : mapping of str to value
        Values that JSON can hold: text, numbers, True, False, None, and lists and objects of them. None of
        them may be called ``checksum``.
    sort : bool, default True
        Whether the keys are put in order; of what people define the order is theirs, and is kept.

    Examples
    --------
    >>> print(encode({"name": "a"}).decode(), end="")
    {
      "checksum": "05a1f0ebe85845d2",
      "name": "a"
    }
    """
    if _CHECKSUM in members:
        raise ValueError(f"the member {_CHECKSUM!r} is reserved for the format")
    whole = {_CHECKSUM: _checksum(members), **members}
    return (json.dumps(whole, indent=2, sort_keys=sort, allow_nan=False) + "\n").encode()


def decode(data: Bytes, *, where: str, unchecked_format: int | None = None) -> dict[str, Any]:
    """Return the members that :func:`encode` was given.

    Parameters
    ----------
    data : bytes-like
        The whole object.
    where : str
        Its location, for the error.
    unchecked_format : int, optional
        The member ``format`` of objects of before, which carry no checksum. Default: all carry one.

    Raises
    ------
    CorruptionError
        If the bytes are not a JSON object, or were damaged (invariant I11).
    """
    try:
        text = bytes(data)
        members = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CorruptionError(f"the bytes are not JSON: {error}", where=where) from error
    if not isinstance(members, dict):
        raise CorruptionError("the JSON is not an object", where=where)
    if unchecked_format is not None and members.get("format") == unchecked_format:
        return members
    # Some objects are identified by their bytes, so a truncated one must not pass for the whole.
    if not text.endswith(b"\n"):
        raise CorruptionError("the JSON is cut short: its last line has no end", where=where)
    written = members.pop(_CHECKSUM, None)
    try:
        actual = _checksum(members)
    except (ValueError, RecursionError) as error:
        raise CorruptionError(f"the JSON is not what was written: {error}", where=where) from error
    if written != actual:
        raise CorruptionError(f"the JSON has the checksum {actual}, but carries {written!r}", where=where)
    return members


def _checksum(members: Mapping[str, Any]) -> str:
    text = json.dumps(members, separators=(",", ":"), sort_keys=True, allow_nan=False)
    return xxhash.xxh64_hexdigest(text.encode())
