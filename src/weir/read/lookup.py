"""Point lookup: the newest row of each key, from the newest source that knows the key."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from weir.cache import process_cache
from weir.format.wal_entry import TOMBSTONE
from weir.read.generation import Generation
from weir.read.keys import KeyIndex, KeySet
from weir.read.overlay import FreshSource
from weir.read.planner import fresh_sources
from weir.read.shard_view import ShardView
from weir.read.snapshot import ReadSnapshot
from weir.read.superseded import base_rows_with_keys
from weir.storage.interface import ObjectStore

__all__ = ["KeyRouter", "get_rows"]

Offsets = npt.NDArray[np.int64]

_ASK_FILTERS = 16

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
    schema = base.schema if names == base.schema.names else pa.schema([base.schema.field(n) for n in names])
    settled = np.zeros(len(keys), dtype=bool)
    parts: list[tuple[Offsets, pa.Table]] = []
    for view, offsets in route(snapshot, keys):
        left = offsets if not settled.any() else offsets[~settled[offsets]]
        for source, found, rows in _newest(base.namespace, fresh_sources(store, snapshot, view), keys, left):
            settled[found] = True
            alive = ~source.tombstones[rows]
            if alive.any():
                parts.append((found[alive], _rows(source, rows[alive], names)))
    left = np.flatnonzero(~settled)
    if left.size:
        wanted = keys if len(left) == len(keys) else keys.take(left)
        which, rows_found = base_rows_with_keys(base, wanted, names)
        if rows_found is not None:
            parts.append((left[which], rows_found.select(names)))
    if not parts:
        return schema.empty_table()
    if len(parts) == 1 and len(parts[0][0]) == 1:
        return _as_schema(parts[0][1], schema)
    order = np.argsort(np.concatenate([offsets for offsets, _ in parts]), kind="stable")
    table = pa.concat_tables([_as_schema(part, schema) for _, part in parts])
    return table.take(pa.array(order))


def _as_schema(table: pa.Table, schema: pa.Schema) -> pa.Table:
    return table if table.schema.equals(schema, check_metadata=True) else table.cast(schema)


def _newest(
    namespace: str, sources: Sequence[FreshSource], keys: KeySet, left: Offsets
) -> Iterator[tuple[FreshSource, Offsets, Offsets]]:
    """Yield, for the newest source of each key that some source holds, which keys and rows these are."""
    at = len(sources)
    while at and left.size:
        at -= 1
        source = sources[at]
        if isinstance(source, Generation):
            # All that are older than a generation are generations too.
            generations = cast("Sequence[Generation]", sources[: at + 1])
            yield from _newest_of_generations(namespace, generations, keys, left)
            return
        found, rows = _lookup(source, keys, left)
        if found.size:
            left = np.setdiff1d(left, found, assume_unique=True)
            yield source, found, rows


def _newest_of_generations(
    namespace: str, generations: Sequence[Generation], keys: KeySet, left: Offsets
) -> Iterator[tuple[FreshSource, Offsets, Offsets]]:
    merged = _merged_index(namespace, generations)
    if merged is not None:
        index, starts = merged
        found, rows = index.lookup(keys if len(left) == len(keys) else keys.take(left))
        if not found.size:
            return
        number = starts.searchsorted(rows, side="right") - 1
        for one in np.unique(number).tolist():
            mine = number == one
            yield generations[one], left[found[mine]], rows[mine] - starts[one]
        return
    for source in reversed(generations):
        if not left.size:
            return
        offsets = left
        bloom_filter = None if source.is_indexed else source.bloom_filter
        if bloom_filter is not None:
            offsets = offsets[bloom_filter.contains(keys.bloom_hashes[offsets])]
        found, rows = _lookup(source, keys, offsets) if offsets.size else (offsets, offsets)
        if found.size:
            left = np.setdiff1d(left, found, assume_unique=True)
            yield source, found, rows


def _merged_index(namespace: str, generations: Sequence[Generation]) -> tuple[KeyIndex, Offsets] | None:
    """Return one index over all keys of some generations and where each begins, if that pays.

    It makes a lookup cost the same for any number of generations. The first few lookups ask the bloom
    filters, for which nothing else need be loaded.
    """
    cache = process_cache()
    key = ("generations", namespace, tuple(one.identity for one in generations))
    known = cache.get(key)
    if isinstance(known, tuple):
        return known
    asked = (known or 0) + 1
    if asked <= _ASK_FILTERS and not all(one.is_indexed for one in generations):
        cache.put(key, asked, 0)
        return None
    sets = [one.index.keys for one in generations]
    starts = np.cumsum([0, *(len(one) for one in sets[:-1])])
    index = KeyIndex.build(KeySet.concat(sets))
    cache.put(key, (index, starts), index.nbytes)
    return index, starts


def _lookup(source: FreshSource, keys: KeySet, offsets: Offsets) -> tuple[Offsets, Offsets]:
    found, rows = source.index.lookup(keys if len(offsets) == len(keys) else keys.take(offsets))
    return offsets[found], rows


def _rows(source: FreshSource, rows: Offsets, columns: Sequence[str]) -> pa.Table:
    if isinstance(source, Generation):
        return source.take(rows, list(columns))
    return source.rows.drop_columns([TOMBSTONE]).select(list(columns)).take(pa.array(rows))
