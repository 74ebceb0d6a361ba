"""What depends on nothing but its arguments, and is asked for again and again: it is done once.

Nothing here changes what happens in a simulation, only how long that takes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeVar

import pyarrow as pa
import xxhash

from weir.base import dataset_fields
from weir.format import lease, pk_index, shard_manifest, version_hint, wal_entry
from weir.format.buffers import Bytes
from weir.format.field_births import Births
from weir.format.lease import Lease
from weir.format.log_place import LogPlace
from weir.format.pk_index import PkIndex
from weir.format.shard_manifest import ShardManifest
from weir.format.wal_entry import WalEntry
from weir.format.wal_header import WalEntryHeader

__all__ = [
    "decode_entry",
    "decode_lease",
    "decode_manifest",
    "decoded_once",
    "encode_entry",
    "encode_json",
    "encode_lease",
    "encode_manifest",
    "forget",
    "generation_schema",
    "hint_decoded",
    "hint_encoded",
    "key_index",
    "marks_of",
    "row_schema",
]

T = TypeVar("T")
_LIMIT = 4096
_decode_entry, _encode_entry = wal_entry.decode, wal_entry.encode
_decode_manifest, _encode_manifest = shard_manifest.decode, shard_manifest.encode
_decode_lease, _encode_lease = lease.decode, lease.encode
_row_schema, _marks_of = dataset_fields.row_schema, dataset_fields.marks_of
_generation_schema = dataset_fields.generation_schema
hint_decoded = lru_cache(maxsize=_LIMIT)(version_hint.decode)
hint_encoded = lru_cache(maxsize=_LIMIT)(version_hint.encode)
_build_key_index = pk_index.build
_to_json = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False).encode


class _Known(dict[Any, Any]):
    """What was done, up to a number of things. Then it begins anew."""

    def of(self, key: object, make: Callable[[], T]) -> T:
        """Return what is known under a key, or make it."""
        found: T | None = self.get(key)
        return self.learn(key, make()) if found is None else found

    def learn(self, key: object, value: T) -> T:
        """Take something in, and return it."""
        if len(self) >= _LIMIT:
            self.clear()
        self[key] = value
        return value


_entries, _manifests, _leases = _Known(), _Known(), _Known()
_key_indexes, _schemas, _generation_schemas = _Known(), _Known(), _Known()


def forget() -> None:
    """Begin anew: a mistake that is planted may have made something that is wrong."""
    for known in (_entries, _manifests, _leases, _key_indexes, _schemas, _generation_schemas):
        known.clear()
    hint_decoded.cache_clear()
    hint_encoded.cache_clear()


def decoded_once(decode: Callable[..., T]) -> Callable[..., T]:
    """Return what decodes the same bytes once, wherever they were read from.

    Parameters
    ----------
    decode : callable
        Takes bytes, and what it needs to say where they were read if they are broken.
    """
    known = _Known()

    def decode_once(data: Bytes, *, where: str = "", **others: Any) -> T:
        key = (bytes(data), *others.values())
        return known.of(key, lambda: decode(data, where=where, **others))

    return decode_once


# What is encoded need not be decoded: tests beside the code compare the two. Bytes that a bit was flipped in
# are others, and decoded.


def encode_entry(
    header: WalEntryHeader, schema: pa.Schema, batches: Sequence[pa.RecordBatch] = ()
) -> list[Bytes]:
    """Stand in for :func:`weir.format.wal_entry.encode`."""
    data = b"".join(_encode_entry(header, schema, batches))
    _entries.learn(data, WalEntry(header, schema, tuple(batches)))
    return [data]


def decode_entry(data: Bytes, *, where: str, place: LogPlace | None = None) -> WalEntry:
    """Stand in for :func:`weir.format.wal_entry.decode`."""
    content = bytes(data)
    entry = _entries.of(content, lambda: _decode_entry(content, where=where))
    if place is None or entry.header.place is None or entry.header.place == place:
        return entry
    return _decode_entry(content, where=where, place=place)


def encode_manifest(manifest: ShardManifest) -> bytes:
    """Stand in for :func:`weir.format.shard_manifest.encode`."""
    data = _encode_manifest(manifest)
    _manifests.learn(data, manifest)
    return data


def decode_manifest(data: Bytes, *, where: str) -> ShardManifest:
    """Stand in for :func:`weir.format.shard_manifest.decode`."""
    return _manifests.of(bytes(data), lambda: _decode_manifest(data, where=where))


def encode_lease(of: Lease) -> bytes:
    """Stand in for :func:`weir.format.lease.encode`."""
    data = _encode_lease(of)
    _leases.learn(data, of)
    return data


def decode_lease(data: Bytes, *, where: str) -> Lease:
    """Stand in for :func:`weir.format.lease.decode`."""
    return _leases.of(bytes(data), lambda: _decode_lease(data, where=where))


def encode_json(members: Mapping[str, Any]) -> bytes:
    """Stand in for :func:`weir.format.checked_json.encode`: the same members and checksum, for no people."""
    text = _to_json(members)
    checksum = xxhash.xxh64_hexdigest(text.encode())
    return f'{{"checksum":"{checksum}",{text[1:]}\n'.encode()


def key_index(keys: pa.Array) -> PkIndex:
    """Stand in for :func:`weir.format.pk_index.build`: simulated tables have few keys."""
    return _key_indexes.of(tuple(keys.to_pylist()), lambda: _build_key_index(keys))


def row_schema(dataset: Any, births: Births | None = None, *names: Any) -> pa.Schema:
    """Stand in for :func:`weir.base.dataset_fields.row_schema`: the columns of a simulated table stay."""
    schema = dataset.schema
    key = (
        id(schema),
        None if births is None else tuple(births.items()),
        *(tuple(one.items()) for one in names),
    )
    # The schema is kept, so that no other has its id.
    return _schemas.of(key, lambda: (schema, _row_schema(dataset, births, *names)))[1]


def generation_schema(dataset: Any) -> pa.Schema:
    """Stand in for :func:`weir.base.dataset_fields.generation_schema`."""
    schema = dataset.schema
    return _generation_schemas.of(id(schema), lambda: (schema, _generation_schema(dataset)))[1]


def marks_of(dataset: Any) -> Births:
    """Stand in for :func:`weir.base.dataset_fields.marks_of`."""
    schema = dataset.schema
    marks: Births = _schemas.of(id(schema), lambda: (schema, _marks_of(dataset)))[1]
    return marks
