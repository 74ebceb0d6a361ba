"""Shard ids derived from shard values, so that independent writers agree on them.

There are two rules. **Weir's own** includes the table and the shard spec in the id, so that no two tables,
and no two specs of one, share a shard. **LanceDB's** uses the values alone. LanceDB does not look for another
shard with the same values, so where it may write too, its rule must be used: two shards for one value would
each hold versions of the same rows without a common order.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from uuid import UUID

from weir.format.index_details import IndexDetails, ShardSpec
from weir.format.lancedb_shards import UNSHARDED, bucket_shard_id, identity_shard_id
from weir.sharding.shard_values import ShardValue, ShardValues
from weir.sharding.spec import library_supports

__all__ = ["RULE", "VALUES", "ShardIds", "own_shard_id"]

RULE = "weir.shard_ids"
"""Writer default of the MemWAL index that records the id rule of the first spec; by default Weir's rule."""

VALUES = "values"
"""The rule of LanceDB: ids follow from the values alone."""

_FIRST_SPEC_ID = 1


@dataclass(frozen=True, slots=True)
class ShardIds:
    """Makes the ids of shards of one spec of a table. Made by :meth:`of`.

    Parameters
    ----------
    table_identity : str
        The identity of the table.
    spec : ShardSpec
        The spec.
    by_values : bool
        Whether LanceDB's rule holds.
    """

    table_identity: str
    spec: ShardSpec
    by_values: bool

    @classmethod
    def of(
        cls, details: IndexDetails, spec: ShardSpec, table_identity: str, *, made_by_weir: bool
    ) -> ShardIds:
        """Return what makes the ids of a table's shards.

        Parameters
        ----------
        details : IndexDetails
            Details of the MemWAL index.
        spec : ShardSpec
            The spec that new shards are made with.
        table_identity : str
            The identity of the table.
        made_by_weir : bool
            Whether the table has an id of Weir's: else the library has set it up, or LanceDB.
        """
        recorded = details.writer_config_defaults.get(RULE) == VALUES
        agreed = recorded or not made_by_weir
        return cls(table_identity, spec, agreed and is_derivable(spec))

    def of_values(self, values: ShardValues) -> UUID:
        """Return the id of the shard with some values."""
        derived = self.derived(values) if self.by_values else None
        return own_shard_id(self.table_identity, self.spec.spec_id, values) if derived is None else derived

    def derived(self, values: ShardValues) -> UUID | None:
        """Return the id that LanceDB gives the shard, whatever rule holds; None if it has no such shard."""
        return _derived(self.spec, values.values) if is_derivable(self.spec) else None


def is_derivable(spec: ShardSpec) -> bool:
    """Whether LanceDB can make shards of a spec: the first of a table, of a rule that it has."""
    return spec.spec_id == _FIRST_SPEC_ID and len(spec.fields) == 1 and library_supports(spec)


def _derived(spec: ShardSpec, values: tuple[ShardValue, ...]) -> UUID | None:
    """Return the id that LanceDB derives from a value; None for one that it refuses."""
    (value,) = values
    transform = spec.fields[0].transform
    if transform == "unsharded":
        return UNSHARDED
    if value.data is None:
        # LanceDB refuses a null for an identity, and has bucket 0 for it.
        return None
    if transform == "bucket":
        return bucket_shard_id(int.from_bytes(value.data, "little", signed=True))
    return identity_shard_id(value.data)


def own_shard_id(table_identity: str, spec_id: int, values: ShardValues) -> UUID:
    """Return the id of the shard that a table makes for some values by Weir's own rule.

    It follows from the arguments alone, so that two writers that meet new values at the same time agree
    on the shard, and one of them is fenced. It has the form of a random UUID (RFC 4122, version 4), as
    the spec wants it.

    Parameters
    ----------
    table_identity : str
        The identity of this table.
    spec_id : int
        The shard spec.
    values : ShardValues
        The shard's values.

    Examples
    --------
    >>> import pyarrow as pa
    >>> values = ShardValues((ShardValue("bucket", bytes([3, 0, 0, 0]), pa.int32()),))
    >>> own_shard_id("flights", 1, values)
    UUID('37c7e8ad-33b3-4d16-9127-dcf28bdf72c5')
    """
    parts = [table_identity.encode(), str(spec_id).encode()]
    for value in values.values:
        # A null and an empty text differ in the number of parts.
        parts += [value.field_id.encode(), b"null" if value.data is None else b"value"]
        parts.append(value.data or b"")
    digest = hashlib.sha256(b"weir shard 1")
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return UUID(bytes=digest.digest()[:16], version=4)
