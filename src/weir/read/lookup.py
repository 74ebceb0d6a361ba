"""Point lookup: the newest row of each key, from the newest source that knows the key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from weir.base.table import BaseTable
from weir.errors import CorruptionError, ShardConflictError
from weir.lsm.base_rows import base_rows_with_keys
from weir.lsm.expired_rows import live_mask
from weir.lsm.keys import KeySet
from weir.lsm.newest import FreshSource
from weir.schema.relabel import as_schema
from weir.snapshots.shard_view import ShardView
from weir.snapshots.snapshot import ReadSnapshot
from weir.storage.interface import ObjectStore

__all__ = ["KeyRouter", "get_rows"]

Offsets = npt.NDArray[np.int64]

_NO_COLUMNS = pa.table({})

KeyRouter = Callable[[ReadSnapshot, KeySet], Sequence[tuple[ShardView, Offsets]]]
"""Says which of the keys may be in which shard of a snapshot, as offsets into the keys."""


def get_rows(
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

    Raises
    ------
    ShardConflictError
        Two shards hold a key.
    CorruptionError
        The base table has a key more than once.
    """
    base = snapshot.base
    if base.expiry is not None:
        read = list(dict.fromkeys([*columns, base.expiry.column]))
        rows = _newest_rows(snapshot, keys, read, route)
        live = live_mask(base, rows, snapshot.instant)
        return (rows if live is None else rows.filter(pa.array(live))).select(list(columns))
    return _newest_rows(snapshot, keys, columns, route)


def _newest_rows(snapshot: ReadSnapshot, keys: KeySet, columns: Sequence[str], route: KeyRouter) -> pa.Table:
    base = snapshot.base
    asked = snapshot.once(_projection, tuple(columns))
    count = len(keys)
    settled = np.zeros(count, dtype=bool)
    reads: list[Callable[[], _Part]] = []
    for view, offsets in route(snapshot, keys):
        left = offsets
        elsewhere = settled.copy() if len(snapshot.shards) > 1 else None
        for group in snapshot.shard_levels(view).key_groups:
            if not left.size:
                break
            wanted = keys if len(left) == count else keys.take(left)
            before = left
            for source, found, rows in group.newest(wanted):
                if elsewhere is not None and elsewhere[before[found]].any():
                    raise _in_two_shards(base, keys.take(before[found][elsewhere[before[found]]][:1]))
                settled[before[found]] = True
                alive = ~source.tombstones[rows]
                if alive.any():
                    reads.append(partial(_read_source, source, rows[alive], before[found[alive]], asked))
                left = before[~settled[before]]
    (left,) = (~settled).nonzero()
    if left.size:
        wanted = keys if len(left) == count else keys.take(left)
        reads.append(partial(_read_base, base, wanted, left, asked))
    parts = [part for part in _parts(reads, base.store) if part.offsets.size]
    return _together(parts, keys, asked) if parts else asked.nothing


def _text(key: KeySet) -> str:
    return ", ".join(str(column[0].as_py()) for column in key.columns)[:200]


def _twice_in_base(base: BaseTable, key: KeySet) -> CorruptionError:
    return CorruptionError(
        f"the base table has more than one row of the key {_text(key)}",
        where=base.uri,
        hint="Plain Lance's append does not check keys. Delete the key, merge, and write its row again; weir "
        "verify counts such rows",
    )


def _in_two_shards(base: BaseTable, key: KeySet) -> ShardConflictError:
    return ShardConflictError(
        f"two shards hold versions of the key {_text(key)}, and which is the newest is unknown",
        where=base.uri,
        hint="Join them: weir repair, or table.maintenance.repair()",
    )


@dataclass(frozen=True, slots=True)
class _Projection:
    """The columns of a lookup; computed once per snapshot.

    Parameters
    ----------
    nothing : Table
        The result without rows.
    key : tuple of str
        The columns of the key, in order. They are not read, since the caller has them.
    names : list of str
        The columns of the result, in their order.
    types : list of DataType
        Their types.
    read : list of str
        Those outside the key.
    read_schema : Schema
        Of ``read``.
    """

    nothing: pa.Table
    key: tuple[str, ...]
    names: list[str]
    types: list[pa.DataType]
    read: list[str]
    read_schema: pa.Schema


def _projection(snapshot: ReadSnapshot, columns: tuple[str, ...]) -> _Projection:
    table, primary_key = snapshot.base.schema, snapshot.base.primary_key
    fields = [table.field(name) for name in columns]
    read = [name for name in columns if name not in primary_key]
    return _Projection(
        pa.schema(fields, table.metadata).empty_table(),
        tuple(primary_key),
        list(columns),
        [field.type for field in fields],
        read,
        pa.schema([table.field(name) for name in read]),
    )


@dataclass(frozen=True, slots=True)
class _Part:
    """The rows that one source has of some keys.

    Parameters
    ----------
    offsets : ndarray of int64
        The key of each row, as an offset.
    rows : Table
        Their columns outside the key.
    """

    offsets: Offsets
    rows: pa.Table


def _read_source(source: FreshSource, rows: Offsets, offsets: Offsets, asked: _Projection) -> _Part:
    if not asked.read:
        return _Part(offsets, _NO_COLUMNS)
    return _Part(offsets, source.take(rows, asked.read))


def _read_base(base: BaseTable, keys: KeySet, offsets: Offsets, asked: _Projection) -> _Part:
    which, rows = base_rows_with_keys(base, keys, asked.read)
    if len(which) > 1 and (times := np.bincount(which)).max() > 1:
        raise _twice_in_base(base, keys.take(np.flatnonzero(times > 1)[:1]))
    if rows is None or not asked.read:
        return _Part(offsets[which], _NO_COLUMNS)
    return _Part(offsets[which], rows)


def _parts(reads: Sequence[Callable[[], _Part]], store: ObjectStore) -> list[_Part]:
    """Read every source: several concurrently, because each waits for the disk or the network."""
    if len(reads) == 1:
        return [reads[0]()]
    return list(store.executors.scans.map(lambda read: read(), reads))


def _together(parts: Sequence[_Part], keys: KeySet, asked: _Projection) -> pa.Table:
    """Return the rows of all parts in the order of their keys."""
    offsets, rows = parts[0].offsets, parts[0].rows
    if len(parts) > 1:
        offsets = np.concatenate([part.offsets for part in parts])
        rows = pa.concat_tables(
            [as_schema(part.rows.select(asked.read), asked.read_schema) for part in parts]
        )
    if len(offsets) > 1:
        order = np.argsort(offsets, kind="stable")
        offsets = offsets[order]
        rows = rows.take(pa.array(order)) if rows.num_columns else rows
    if len(offsets) < len(keys):
        keys = keys.take(offsets)
    known = dict(zip(asked.key, keys.columns, strict=True))
    columns = [known[name] if name in known else rows.column(name) for name in asked.names]
    # One part is cast only here, where most often nothing is.
    columns = [
        column if column.type == kind else column.cast(kind)
        for column, kind in zip(columns, asked.types, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=asked.nothing.schema)
