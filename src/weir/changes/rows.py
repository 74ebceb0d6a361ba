"""The rows of the change feed: a table's columns, and metadata of each change.

Everything is vectorised. Values that are the same in every row, such as the shard, are one array, made once
and sliced.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from weir.changes.before_image import ShardState, before_type
from weir.errors import SchemaError
from weir.format.wal_entry import TOMBSTONE
from weir.lsm.log_tail import TailRun

__all__ = ["BEFORE", "added_columns", "change_rows", "change_schema", "check_names"]

_ADDED = (
    pa.field("_op", pa.string(), nullable=False),
    pa.field("_shard", pa.string(), nullable=False),
    pa.field("_position", pa.uint64(), nullable=False),
    pa.field("_epoch", pa.uint64(), nullable=False),
)
BEFORE = "_before"
"""Name of the column with the rows before the changes."""
_LEAST_REPEATS = 1024


def change_schema(schema: pa.Schema, *, before: bool) -> pa.Schema:
    """Return the schema of the feed's rows.

    Parameters
    ----------
    schema : Schema
        The table's columns.
    before : bool
        Whether the rows before the changes are there.

    Examples
    --------
    >>> change_schema(pa.schema([("id", pa.int64())]), before=True).names
    ['id', '_op', '_shard', '_position', '_epoch', '_before']
    """
    last = [pa.field(BEFORE, before_type(schema))] if before else []
    return pa.schema([*schema, *_ADDED, *last])


def check_names(schema: pa.Schema, *, before: bool) -> None:
    """Refuse a table with a column named like one that the feed adds.

    Raises
    ------
    SchemaError
        Naming the column.
    """
    for name in change_schema(pa.schema([]), before=before).names:
        if name in schema.names:
            raise SchemaError(
                f"the change feed adds a column {name!r}, but the table already has one of that name",
                where=name,
                hint="Rename the column of the table",
            )


def change_rows(run: TailRun, schema: pa.Schema, state: ShardState | None) -> pa.Table:
    """Return the changes that some log entries hold, one row for each, in commit order.

    Parameters
    ----------
    run : TailRun
        The entries.
    schema : Schema
        As :func:`change_schema` returns it.
    state : ShardState, optional
        The shard before them, where the rows before the changes are looked up.
    """
    rows = run.rows
    tombstones = rows.column(TOMBSTONE)
    columns: list[pa.Array | pa.ChunkedArray] = [
        *rows.drop_columns([TOMBSTONE]).columns,
        _operations(tombstones),
        _repeated(str(run.shard_id), rows.num_rows),
        *_places(run),
    ]
    if state is not None:
        columns.append(state.rows_before(rows, run.tombstones))
    return pa.Table.from_arrays(columns, schema=schema)


def added_columns(
    run: TailRun, rows: npt.NDArray[np.int64], deleted: npt.NDArray[np.bool_]
) -> list[pa.Array | pa.ChunkedArray]:
    """Return what the feed adds to changes that stand where some rows of a run do.

    Parameters
    ----------
    run : TailRun
        The log entries.
    rows : ndarray of int64
        Offsets of the rows.
    deleted : ndarray of bool
        Which of the changes are deletes.
    """
    places = pa.array(rows)
    operations = _operations(pa.chunked_array([pa.array(deleted)]))
    return [
        operations,
        _repeated(str(run.shard_id), len(rows)),
        *(one.take(places) for one in _places(run)),
    ]


def _operations(tombstones: pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    if not pc.any(tombstones).as_py():
        return _repeated("upsert", len(tombstones))
    return pc.if_else(tombstones.combine_chunks(), "delete", "upsert")


def _places(run: TailRun) -> tuple[pa.Array, pa.Array]:
    """Return position and epoch of every row."""
    counts = [item.entry.num_rows for item in run.entries]
    positions = np.array([item.position for item in run.entries], dtype=np.uint64)
    epochs = np.array([item.entry.header.writer_epoch for item in run.entries], dtype=np.uint64)
    return pa.array(np.repeat(positions, counts)), pa.array(np.repeat(epochs, counts))


def _repeated(text: str, count: int) -> pa.Array:
    # Lengths are rounded up, so that batches of different sizes share few arrays.
    length = max(_LEAST_REPEATS, 1 << max(count - 1, 0).bit_length())
    return _repeats(text, length).slice(0, count)


@lru_cache(maxsize=64)
def _repeats(text: str, count: int) -> pa.Array:
    return pa.repeat(text, count)
