"""The unflushed part of a shard as readers see it: runs of consecutive WAL entries, in memory."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import cached_property
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from weir.format.field_ids import fingerprint, without_field_ids
from weir.format.resolution import resolve
from weir.format.wal_entry import TOMBSTONE
from weir.log.wal import PositionedEntry
from weir.lsm.held_values import HeldValues, held_in_rows
from weir.lsm.keys import KeyIndex, KeySet

__all__ = ["TailRun", "with_run"]

_MAX_RUNS = 16


class TailRun:
    """Consecutive WAL entries of one shard.

    Parameters
    ----------
    shard_id : UUID
        The shard.
    entries : sequence of PositionedEntry
        The entries, in order of position.
    schema : Schema
        Columns that the rows are given: the table's, with their field ids, and ``_tombstone``.
    key_columns : tuple of str
        Primary-key columns.
    """

    def __init__(
        self,
        shard_id: UUID,
        entries: Sequence[PositionedEntry],
        schema: pa.Schema,
        key_columns: tuple[str, ...],
    ) -> None:
        self.shard_id = shard_id
        self.entries = tuple(entries)
        self.first_position = entries[0].position
        self.last_position = entries[-1].position
        self._schema = schema
        self._key_columns = key_columns

    @property
    def identity(self) -> Hashable:
        """Identifies this run among all sources of the table, for caches."""
        places = (self.shard_id, self.first_position, self.last_position, self._with_published)
        return ("tail", *places, fingerprint(self._schema))

    @cached_property
    def _with_published(self) -> tuple[int, ...]:
        """Where rows that were published beside the log are in it, which most readers have elsewhere."""
        return tuple(
            item.position for item in self.entries if item.entry.header.published and item.entry.num_rows
        )

    @property
    def key_columns(self) -> tuple[str, ...]:
        """Primary-key columns."""
        return self._key_columns

    @property
    def label(self) -> str:
        """Name for people."""
        return f"wal positions {self.first_position} to {self.last_position}"

    @cached_property
    def rows(self) -> pa.Table:
        """Every row, tombstones included, in write order. They have no field ids any more."""
        batches: list[pa.RecordBatch] = []
        schema = columns = None
        for item in self.entries:
            # Most often the object of the entry before.
            if columns is None or item.entry.schema is not schema:
                schema = item.entry.schema
                columns = resolve(schema, self._schema)
            if columns.is_identity:
                batches += item.entry.batches
                continue
            where = f"shard {self.shard_id}, WAL position {item.position}"
            batches += [columns.apply(batch, where=where) for batch in item.entry.batches]
        return pa.Table.from_batches(batches, without_field_ids(self._schema))

    @cached_property
    def keys(self) -> KeySet:
        """The key of every row."""
        return KeySet([self.rows.column(name) for name in self._key_columns])

    @cached_property
    def index(self) -> KeyIndex:
        """From keys to rows."""
        return KeyIndex.build(self.keys)

    @cached_property
    def tombstones(self) -> npt.NDArray[np.bool_]:
        """Which rows are deletes."""
        column = self.rows.column(TOMBSTONE).combine_chunks()
        result: npt.NDArray[np.bool_] = column.to_numpy(zero_copy_only=False)
        return result

    @cached_property
    def held(self) -> HeldValues:
        """What the rows hold, tombstones included: asked by every scan with a filter."""
        return held_in_rows(self.rows)

    def column(self, name: str) -> pa.Array:
        """Return one column of every row, in write order."""
        return self.rows.column(name).combine_chunks()

    def take(self, rows: npt.NDArray[np.int64], columns: list[str]) -> pa.Table:
        """Return some rows, by their offset."""
        return self.rows.select(columns).take(pa.array(rows))

    def split_after(self, position: int) -> TailRun | None:
        """Return the part after ``position``, or None if there is none."""
        if position < self.first_position:
            return self
        rest = [item for item in self.entries if item.position > position]
        return TailRun(self.shard_id, rest, self._schema, self._key_columns) if rest else None

    def joined(self, other: TailRun) -> TailRun:
        """Return this run and ``other``, which follows it, as one."""
        return TailRun(self.shard_id, self.entries + other.entries, self._schema, self._key_columns)

    @cached_property
    def nbytes(self) -> int:
        """Bytes the entries take in memory."""
        return sum(item.entry.nbytes for item in self.entries)


def with_run(tail: Sequence[TailRun], newer: TailRun) -> tuple[TailRun, ...]:
    """Return the runs of a tail to which a newer run is added.

    A few runs keep the work per read small: neighbours are joined unless the older is much larger, so a run
    is rebuilt about as often as its size doubles.
    """
    runs = [*tail, newer]
    while len(runs) > 1 and (len(runs) > _MAX_RUNS or len(runs[-2].entries) < 2 * len(runs[-1].entries)):
        last = runs.pop()
        runs[-1] = runs[-1].joined(last)
    return tuple(runs)
