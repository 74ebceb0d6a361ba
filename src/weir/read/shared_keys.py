"""Keys with versions in several shards, whose newest version is unknown.

The spec puts every key into one shard. Other software can break that: LanceDB creates a new shard for rows
that another shard holds, custom writers route rows arbitrarily, and a column outside the key may change its
value. Each shard is valid by itself, but together they have no order. If they share a key, reads and merges
of it are refused; otherwise nothing is in doubt.

Only shards that may share keys are compared: those with the same or unknown values, and all shards of a table
that is sharded by a column outside the key.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

import numpy as np
import pyarrow as pa

from weir.engine.logs import get_logger
from weir.errors import ShardConflictError, WeirError
from weir.format.newest import key_codes, newest_rows
from weir.format.resharding import FEATURE
from weir.format.shard_manifest import ShardStatus
from weir.lsm.keys import KeySet
from weir.lsm.newest import FreshSource
from weir.sharding.router import Router
from weir.sharding.shard_values import ShardValues
from weir.snapshots.shard_view import ShardView
from weir.snapshots.snapshot import ReadSnapshot

_log = get_logger(__name__)

__all__ = ["SharedKeys", "conflict", "find_shared_keys", "find_twins"]


@dataclass(frozen=True, slots=True)
class SharedKeys:
    """Shards that hold versions of the same keys.

    Parameters
    ----------
    shards : tuple of UUID
        The shards, by ascending id.
    keys : Table
        The keys that more than one of them holds.
    """

    shards: tuple[UUID, ...]
    keys: pa.Table


def conflict(shared: SharedKeys, where: str) -> ShardConflictError:
    """Return the error that says that several shards hold versions of a key."""
    key = ", ".join(str(value) for value in shared.keys.slice(0, 1).to_pylist()[0].values())
    more = f" and {shared.keys.num_rows - 1} more" if shared.keys.num_rows > 1 else ""
    return ShardConflictError(
        f"shards {', '.join(map(str, shared.shards))} all hold versions of the key {key[:200]}{more}, and "
        "which is the newest is unknown",
        where=where,
        hint="Join them: weir repair, or table.maintenance.repair()",
    )


def find_shared_keys(
    snapshot: ReadSnapshot, router: Router, values: Mapping[UUID, ShardValues | None]
) -> tuple[SharedKeys, ...]:
    """Find the keys with unmerged versions in several shards.

    Parameters
    ----------
    snapshot : ReadSnapshot
        The state to search.
    router : Router
        Computes the shard values of rows.
    values : mapping of UUID to ShardValues or None
        The values that each shard records; None where it records none.
    """
    if len(snapshot.shards) < 2 or snapshot.base.append_only is not None:
        return ()
    return snapshot.once(_found, router, tuple(values.items()))


def _found(
    snapshot: ReadSnapshot, router: Router, values: tuple[tuple[UUID, ShardValues | None], ...]
) -> tuple[SharedKeys, ...]:
    groups = list(_groups(snapshot, router, dict(values)))
    if groups and router.spec.fields and not _may_move(snapshot, router):
        _tell(snapshot, groups)
    shared = (_shared(snapshot, group) for group in groups)
    return tuple(one for one in shared if one is not None)


def _tell(snapshot: ReadSnapshot, groups: Iterable[Sequence[ShardView]]) -> None:
    """Say once in a process which shards hold rows of the same values."""
    for group in groups:
        shards = ", ".join(sorted(str(view.shard_id) for view in group))
        key = ("twins", snapshot.base.namespace, shards)
        if snapshot.base.engine.cache.get(key) is None:
            snapshot.base.engine.cache.put(key, True, 100)
            _log.warning(
                "table.twin_shards",
                where=snapshot.base.uri,
                shards=shards,
                hint="Join them: weir repair",
            )


def find_twins(
    snapshot: ReadSnapshot, router: Router, values: Mapping[UUID, ShardValues | None]
) -> tuple[tuple[UUID, ...], ...]:
    """Find the shards that hold rows of the same shard values, whether they have a key in common or not.

    In a table sharded by a column outside its key, or by custom writers, only the keys themselves show it.
    """
    if len(snapshot.shards) < 2 or not router.spec.fields or _may_move(snapshot, router):
        return ()
    return tuple(
        sorted(tuple(view.shard_id for view in group) for group in _groups(snapshot, router, values))
    )


def _groups(
    snapshot: ReadSnapshot, router: Router, values: Mapping[UUID, ShardValues | None]
) -> Iterable[Sequence[ShardView]]:
    """Return the shards that may have keys in common, group by group."""
    if _may_move(snapshot, router):
        return [snapshot.shards]
    held: dict[object, list[ShardView]] = defaultdict(list)
    anywhere: list[ShardView] = []
    is_resharded = FEATURE in snapshot.base.details.features
    for view in snapshot.shards:
        if view.manifest.status is ShardStatus.SEALED and not snapshot.shard_levels(view).sources:
            continue  # all of it is in the base table, and no more will come
        rule, own = view.manifest.shard_spec_id, router.spec.spec_id
        if 0 < rule < own or (is_resharded and rule != own):
            continue  # of another rule, under which no two shards share a key
        recorded = values.get(view.shard_id)
        found = {recorded} if recorded is not None else _values_of_rows(snapshot, router, view)
        if found is None:
            anywhere.append(view)
        for one in found or ():
            held[one].append(view)
    if anywhere:
        return [snapshot.shards]
    return {
        ids: group for group in held.values() if len(ids := tuple(one.shard_id for one in group)) > 1
    }.values()


def _may_move(snapshot: ReadSnapshot, router: Router) -> bool:
    """Whether a key may change its shard, because a deciding column is not part of it, or is gone."""
    if snapshot.base.append_only is not None:
        return False
    try:
        return router.has_lost_columns or bool(router.columns_that_may_change(snapshot.base.primary_key))
    except WeirError:
        return True


def _values_of_rows(snapshot: ReadSnapshot, router: Router, view: ShardView) -> set[ShardValues] | None:
    """Return the shard values of a shard's unmerged keys; None if the key does not determine them."""
    if not snapshot.base.primary_key or not router.source_columns <= set(snapshot.base.primary_key):
        # The promise is that a row never changes them.
        return set()
    found: set[ShardValues] = set()
    for source in snapshot.shard_levels(view).sources:
        held = _values_of_source(snapshot, router, source)
        if held is None:
            return None
        found |= held
    return found


def _values_of_source(
    snapshot: ReadSnapshot, router: Router, source: FreshSource
) -> frozenset[ShardValues] | None:
    names = list(snapshot.base.primary_key)

    def load() -> frozenset[ShardValues] | None:
        try:
            return frozenset(router.partition(pa.table(list(source.index.keys.columns), names)).values)
        except WeirError:
            return None

    key = ("shard values", snapshot.base.namespace, repr(router.spec), source.identity)
    return snapshot.base.engine.cache.get_or_load(key, load, lambda held: 256 * (1 + len(held or ())))


def _shared(snapshot: ReadSnapshot, group: Sequence[ShardView]) -> SharedKeys | None:
    sets = [(view, _keys_of(snapshot, view)) for view in group]
    held = [(view, keys) for view, keys in sets if keys is not None]
    if len(held) < 2:
        return None
    together = KeySet.concat([keys for _, keys in held])
    codes, count = key_codes(together.columns)
    often = np.bincount(codes, minlength=count)[codes] > 1
    if not often.any():
        return None
    ends = np.cumsum([len(keys) for _, keys in held])
    shards = {
        held[at][0].shard_id for at in np.unique(ends.searchsorted(np.flatnonzero(often), "right")).tolist()
    }
    rows = np.flatnonzero(often)
    table = pa.table(list(together.take(rows).columns), list(snapshot.base.primary_key))
    kept = newest_rows(table.columns)
    return SharedKeys(tuple(sorted(shards)), table.take(pa.array(kept)))


def _keys_of(snapshot: ReadSnapshot, view: ShardView) -> KeySet | None:
    """Return the distinct unmerged keys of a shard, deleted ones among them; None if it has none."""
    sources = snapshot.shard_levels(view).sources
    sets = [source.index.keys.take(source.index.rows) for source in sources if len(source.index.rows)]
    if not sets:
        return None
    keys = KeySet.concat(sets)
    return keys if len(sets) == 1 else keys.take(newest_rows(keys.columns))
