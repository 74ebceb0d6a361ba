"""Changes of a table with a merge engine: the resulting rows instead of the written ones.

A write may change a part of a row, or nothing. So the keys of some log entries are looked up before and after
them: a row that exists afterwards is an upsert, one that no longer exists a delete. Several writes to a key
in one batch are one change.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from weir.changes.before_image import ShardState, before_type
from weir.changes.rows import BEFORE, added_columns
from weir.format.merge_engine import EngineKind, MergeEngine
from weir.format.shard_manifest import ShardManifest
from weir.lsm.log_tail import TailRun

__all__ = ["settled_changes"]

Rows = npt.NDArray[np.int64]


def settled_changes(
    run: TailRun, schema: pa.Schema, state: ShardState, newest: ShardManifest | None, engine: MergeEngine
) -> pa.Table:
    """Return what some log entries have made of the rows of their keys, and move a state on past them.

    Parameters
    ----------
    run : TailRun
        The entries.
    schema : Schema
        As :func:`weir.changes.rows.change_schema` returns it.
    state : ShardState
        The shard before them; afterwards, after them.
    newest : ShardManifest, optional
        As for :meth:`ShardState.move_on`.
    engine : MergeEngine
        The engine of the table.
    """
    # The last write to each key says where its change stands.
    last = np.sort(run.index.rows)
    wanted = run.index.keys.take(last)
    had, had_rows, before = state.find(wanted)
    state.move_on(run, newest)
    has, has_rows, after = state.find(wanted)
    was_there = np.zeros(len(last), dtype=bool)
    was_there[had] = True
    place = np.full(len(last), -1, dtype=np.int64)
    place[has] = has_rows
    changed = was_there | (place >= 0)
    if engine.kind is EngineKind.FIRST_ROW:
        changed &= ~(was_there & (place >= 0)) | _was_deleted(run, last)
    kept = np.flatnonzero(changed)
    gone = place[kept] < 0
    # For a row that is gone, the key remains.
    keys = wanted.take(kept[gone])
    names = run.key_columns
    deleted = pa.Table.from_arrays(
        [
            keys.columns[names.index(field.name)].cast(field.type)
            if field.name in names
            else pa.nulls(len(keys), field.type)
            for field in after.schema
        ],
        schema=after.schema,
    )
    offsets = place[kept]
    offsets[gone] = after.num_rows + np.arange(np.count_nonzero(gone))
    rows = pa.concat_tables([after, deleted]).take(pa.array(offsets))
    columns = [*rows.columns, *added_columns(run, last[kept], gone)]
    if BEFORE in schema.names:
        earlier = np.full(len(last), -1, dtype=np.int64)
        earlier[had] = had_rows
        columns.append(_structs(before, earlier[kept]))
    return pa.Table.from_arrays(columns, schema=schema)


def _was_deleted(run: TailRun, last: Rows) -> npt.NDArray[np.bool_]:
    """Return of the keys of some rows which were deleted on the way."""
    found = np.zeros(len(last), dtype=bool)
    deletes = np.flatnonzero(run.tombstones)
    if deletes.size:
        _, rows = run.index.lookup(run.index.keys.take(deletes))
        found[np.searchsorted(last, rows)] = True
    return found


def _structs(rows: pa.Table, places: Rows) -> pa.StructArray:
    absent = places < 0
    taken = rows.combine_chunks().take(pa.array(places, mask=absent))
    columns = [column.combine_chunks() for column in taken.columns]
    fields = list(before_type(rows.schema))
    return pa.StructArray.from_arrays(columns, fields=fields, mask=pa.array(absent))
