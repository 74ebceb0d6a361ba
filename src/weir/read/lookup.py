"""Point lookup: the newest row of each key, from the newest source that knows the key."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from weir.format.wal_entry import TOMBSTONE
from weir.read.generation import Generation
from weir.read.keys import KeySet
from weir.read.overlay import FreshSource
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
    schema = pa.schema([snapshot.base.schema.field(name) for name in columns])
    settled = np.zeros(len(keys), dtype=bool)
    parts: list[tuple[Offsets, pa.Table]] = []
    for view, offsets in route(snapshot, keys):
        left = offsets[~settled[offsets]]
        for source in reversed(fresh_sources(store, snapshot, view)):
            if not left.size:
                break
            found, rows = _lookup(source, keys, left)
            if not found.size:
                continue
            settled[found] = True
            left = left[~settled[left]]
            alive = ~source.tombstones[rows]
            if alive.any():
                parts.append((found[alive], _rows(source, rows[alive], columns)))
    left = np.flatnonzero(~settled)
    if left.size:
        which, rows_found = base_rows_with_keys(snapshot.base, keys.take(left), columns)
        if which.size:
            parts.append((left[which], rows_found.select(list(columns))))
    if not parts:
        return schema.empty_table()
    order = np.argsort(np.concatenate([offsets for offsets, _ in parts]), kind="stable")
    table = pa.concat_tables([part.cast(schema) for _, part in parts])
    return table if len(order) < 2 else table.take(pa.array(order))


def _lookup(source: FreshSource, keys: KeySet, offsets: Offsets) -> tuple[Offsets, Offsets]:
    if isinstance(source, Generation) and not source.is_indexed:
        # Once the key index is in memory it answers faster than the bloom filter rules out.
        bloom_filter = source.bloom_filter
        if bloom_filter is not None:
            offsets = offsets[bloom_filter.contains(keys.bloom_hashes[offsets])]
            if not offsets.size:
                return offsets, offsets
    found, rows = source.index.lookup(keys if len(offsets) == len(keys) else keys.take(offsets))
    return offsets[found], rows


def _rows(source: FreshSource, rows: Offsets, columns: Sequence[str]) -> pa.Table:
    if isinstance(source, Generation):
        return source.take(rows, list(columns))
    return source.rows.drop_columns([TOMBSTONE]).select(list(columns)).take(pa.array(rows))
