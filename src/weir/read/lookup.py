"""Point lookup: the newest row of each key, from the newest source that knows the key."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from weir.read.key_groups import KeyGroup, key_groups
from weir.read.keys import KeySet
from weir.read.planner import fresh_sources
from weir.read.shard_view import ShardView
from weir.read.snapshot import ReadSnapshot
from weir.read.superseded import base_rows_with_keys
from weir.storage.interface import ObjectStore

__all__ = ["KeyRouter", "get_rows"]

Offsets = npt.NDArray[np.int64]

KeyRouter = Callable[[ReadSnapshot, KeySet], Sequence[tuple[ShardView, Offsets]]]
"""Says which of the keys may be in which shard of a snapshot, as offsets into the keys."""


def get_rows(
    store: ObjectStore,
    snapshot: ReadSnapshot,
    keys: KeySet,
    columns: Sequence[str],
    route: KeyRouter,
) -> pa.Table:
    """Return the newest row of each key that exists, in the order of ``keys``.

    Parameters
    ----------
    keys : KeySet
        Distinct keys.
    columns : sequence of str
        Columns of the result.
    route : callable
        Narrows down the shards a key may be in.
    """
    base = snapshot.base
    names = list(columns)
    settled = np.zeros(len(keys), dtype=bool)
    parts: list[tuple[Offsets, pa.Table]] = []
    for view, offsets in route(snapshot, keys):
        left = offsets
        for group in _key_groups(store, snapshot, view):
            if not left.size:
                break
            wanted = keys if len(left) == len(keys) else keys.take(left)
            for source, found, rows in group.newest(wanted):
                settled[left[found]] = True
                alive = ~source.tombstones[rows]
                if alive.any():
                    parts.append((left[found[alive]], source.take(rows[alive], names)))
            if settled.any():
                left = left[~settled[left]]
    left = np.flatnonzero(~settled)
    if left.size:
        wanted = keys if len(left) == len(keys) else keys.take(left)
        which, rows_found = base_rows_with_keys(base, wanted, names)
        if rows_found is not None:
            parts.append((left[which], rows_found.select(names)))
    if not parts:
        return _no_rows(snapshot, tuple(names))
    schema = _no_rows(snapshot, tuple(names)).schema
    if len(parts) == 1 and len(parts[0][0]) == 1:
        return _as_schema(parts[0][1], schema)
    order = np.argsort(np.concatenate([offsets for offsets, _ in parts]), kind="stable")
    table = pa.concat_tables([_as_schema(part, schema) for _, part in parts])
    return table.take(pa.array(order))


def _no_rows(snapshot: ReadSnapshot, columns: tuple[str, ...]) -> pa.Table:
    key = ("no rows", columns)
    known = snapshot.derived.get(key)
    if known is None:
        schema = snapshot.base.schema
        known = pa.schema([schema.field(name) for name in columns], schema.metadata).empty_table()
        snapshot.derived[key] = known
    return known


def _as_schema(table: pa.Table, schema: pa.Schema) -> pa.Table:
    return table if table.schema.equals(schema, check_metadata=True) else table.cast(schema)


def _key_groups(store: ObjectStore, snapshot: ReadSnapshot, view: ShardView) -> Sequence[KeyGroup]:
    """Return the sources of a shard in groups that are looked into together, newest first."""
    key = ("key groups", view.shard_id)
    known: Sequence[KeyGroup] | None = snapshot.derived.get(key)
    if known is None:
        known = snapshot.derived[key] = key_groups(
            snapshot.base.namespace, fresh_sources(store, snapshot, view)
        )
    return known
