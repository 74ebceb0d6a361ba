"""The shard ids that LanceDB derives from shard values (RFC 4122, version 5).

Tables whose rule LanceDB has too go by them, so that both write to one shard for one value.
"""

from __future__ import annotations

import hashlib
from functools import cache
from uuid import UUID, uuid5

__all__ = ["MOST_BUCKETS", "UNSHARDED", "bucket_shard_id", "identity_shard_id", "number_of_bucket"]

_NAMESPACE = UUID(bytes=b"LSMWRITE_SHARD01")

UNSHARDED = uuid5(_NAMESPACE, "unsharded")
"""The one shard of an unsharded table."""

MOST_BUCKETS = 1024
"""Buckets that a rule may have."""


def bucket_shard_id(bucket: int) -> UUID:
    """Return the id of the shard of a bucket.

    Examples
    --------
    >>> bucket_shard_id(0)
    UUID('...')
    """
    return uuid5(_NAMESPACE, f"bucket-{bucket}")


def identity_shard_id(value: bytes) -> UUID:
    """Return the id of the shard whose rows have one value, given as its bytes."""
    # Not every value is text, which is all that uuid5 takes everywhere.
    digest = hashlib.sha1(_NAMESPACE.bytes + b"identity-" + value, usedforsecurity=False).digest()
    return UUID(bytes=digest[:16], version=5)


def number_of_bucket(shard_id: UUID) -> int | None:
    """Return the bucket whose shard has an id, None if none has.

    Examples
    --------
    >>> number_of_bucket(bucket_shard_id(17)), number_of_bucket(UUID(int=5))
    (17, None)
    """
    return _buckets().get(shard_id) if shard_id.version == UNSHARDED.version else None


@cache
def _buckets() -> dict[UUID, int]:
    return {bucket_shard_id(bucket): bucket for bucket in range(MOST_BUCKETS)}
