"""What depends on nothing but its arguments, and is asked for again and again: it is done once.

Nothing here changes what happens in a simulation, only how long that takes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import pyarrow as pa

from weir.format import checked_json, pk_index
from weir.format.buffers import Bytes
from weir.format.pk_index import PkIndex

__all__ = ["decoded_once", "encode_json", "key_index"]

T = TypeVar("T")
_LIMIT = 4096
_build_key_index = pk_index.build
_key_indexes: dict[tuple[int, ...], PkIndex] = {}


def decoded_once(decode: Callable[..., T]) -> Callable[..., T]:
    """Return what decodes the same bytes once, wherever they were read from.

    Parameters
    ----------
    decode : callable
        Takes bytes, and what it needs to say where they were read if they are broken.
    """
    known: dict[tuple[object, ...], T] = {}

    def decode_once(data: Bytes, *, where: str = "", **others: Any) -> T:
        key = (bytes(data), *others.values())
        found = known.get(key)
        if found is None:
            if len(known) >= _LIMIT:
                known.clear()
            found = known[key] = decode(data, where=where, **others)
        return found

    return decode_once


def encode_json(members: Mapping[str, Any]) -> bytes:
    """Stand in for :func:`weir.format.checked_json.encode`: the same members and checksum, for no people."""
    whole = {"checksum": checked_json._checksum(members), **members}
    return json.dumps(whole, sort_keys=True, allow_nan=False).encode()


def key_index(keys: pa.Array) -> PkIndex:
    """Stand in for :func:`weir.format.pk_index.build`: simulated tables have few keys."""
    values = tuple(keys.to_pylist())
    found = _key_indexes.get(values)
    if found is None:
        if len(_key_indexes) >= _LIMIT:
            _key_indexes.clear()
        found = _key_indexes[values] = _build_key_index(keys)
    return found
