"""Deciding a group of writes: the outcome of operations that depend on existing rows.

The leader of a commit group decides all of them, in order, with one lookup. The result is plain rows and
tombstones in one log entry, so replay decides nothing.

Rows of one key have to be decided one after the other; rows of different keys may be decided together. So the
rows of a group are processed in *rounds*: the first of every key, the second of every key, and so on. Within
a round all rows of one shape (:attr:`Operation.shape`) are decided at once, whichever write they belong to.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from weir.errors import InputError
from weir.format.newest import key_codes
from weir.format.wal_entry import TOMBSTONE
from weir.lsm.filters import matching_rows
from weir.lsm.keys import KeySet
from weir.rows.cast import cast_to
from weir.rows.conforming import conformed
from weir.rows.key_texts import keys_of_texts
from weir.schema.relabel import as_schema
from weir.write.decision.foresight import LOOKED_UP, Foresight
from weir.write.decision.operation import Kind, Operation
from weir.write.group_commit import PendingWrite

__all__ = ["Finds", "decide"]

Rows = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_ABSENT = -1

_MANY_PER_KEY = 8
"""Present rows per key beyond which replaced ones are dropped."""


_MANY_ROUNDS = 4
"""Rows of one key from which on conditions are evaluated ahead of their turn."""


class Finds(Protocol):
    """Looks up present rows (:meth:`weir.write.decision.present_rows.PresentRows.find`)."""

    def __call__(self, keys: KeySet, columns: Sequence[str], schema: pa.Schema, /) -> tuple[Rows, pa.Table]:
        """Return which of the keys have a row, and the rows."""
        ...


def decide(
    group: Sequence[PendingWrite], schema: pa.Schema, key_columns: tuple[str, ...], find: Finds
) -> list[pa.RecordBatch]:
    """Return the rows that a group of writes comes to, in their order.

    Every undecided write gets its result; a write that cannot be decided, because an expression fails on one
    of its rows, gets the error, and writes nothing.

    Parameters
    ----------
    group : sequence of PendingWrite
        The writes; at least one is undecided.
    schema : Schema
        Schema of log entries: the columns with their field ids, and ``_tombstone``.
    key_columns : tuple of str
        Primary-key columns.
    find : callable
        Looks up the present rows of keys.

    Raises
    ------
    WeirError
        If the present rows cannot be read. Nothing was decided.
    """
    return _Decision(group, schema, key_columns, find).run()


@dataclass(slots=True)
class _Part:
    """The rows of one operation or plain write, among all relevant rows of a group.

    Parameters
    ----------
    pending : int
        Which write of the group they are of.
    operation : Operation or None
        The operation on them; None for a plain write, which is represented only by rows with relevant keys.
    start, end : int
        Where they are.
    """

    pending: int
    operation: Operation | None
    start: int
    end: int


class _FailedError(Exception):
    """Deciding has failed because of some writes, whose errors are set."""


class _Decision:
    def __init__(
        self, group: Sequence[PendingWrite], schema: pa.Schema, key_columns: tuple[str, ...], find: Finds
    ) -> None:
        self._group = group
        self._schema = schema
        self._key_columns = key_columns
        names = [name for name in schema.names if name != TOMBSTONE]
        operations = [one for write in group if write.undecided for one in write.undecided.operations]
        read = set().union(*(one.reads(names) for one in operations))
        self._columns = [name for name in names if name in read] or [key_columns[0]]
        self._lay_out()
        self._look_up(find)

    def _lay_out(self) -> None:
        """Put the rows of the group one after the other, and number their keys."""
        codes = _codes_of(self._group, self._key_columns)
        matters = np.zeros(codes.count, dtype=bool)
        for write, own in zip(self._group, codes.of_writes, strict=True):
            if write.undecided is not None:
                matters[own] = True
        self._parts: list[_Part] = []
        tables: list[pa.Table] = []
        rows: list[Rows] = []
        start = 0
        for number, (write, own) in enumerate(zip(self._group, codes.of_writes, strict=True)):
            pieces: list[tuple[Operation | None, pa.RecordBatch, Rows]]
            if write.undecided is None:
                assert write.batch is not None
                mine = np.flatnonzero(matters[own])
                pieces = [(None, write.batch.take(pa.array(mine)), own[mine])] if mine.size else []
            else:
                ends = np.cumsum([one.rows.num_rows for one in write.undecided.operations])
                pieces = [
                    (one, one.rows, part)
                    for one, part in zip(write.undecided.operations, np.split(own, ends[:-1]), strict=True)
                ]
            for operation, batch, keys in pieces:
                end = start + batch.num_rows
                self._parts.append(_Part(number, operation, start, end))
                tables.append(pa.Table.from_arrays(batch.columns, schema=self._schema))
                rows.append(keys)
                start = end
        self._rows = pa.concat_tables(tables).combine_chunks()
        # As returned to callers: without field ids.
        self._key_table = pa.table({name: self._rows.column(name) for name in self._key_columns})
        # Only keys that matter are numbered from here on.
        numbers = np.cumsum(matters) - 1
        self._keys: Rows = numbers[np.concatenate(rows)].astype(np.int64)
        self._count = int(matters.sum())
        self._pending_of_row = np.repeat(
            np.array([part.pending for part in self._parts]), [part.end - part.start for part in self._parts]
        )

    def _look_up(self, find: Finds) -> None:
        first = np.full(self._count, len(self._keys), dtype=np.int64)
        np.minimum.at(first, self._keys, np.arange(len(self._keys)))
        columns = [self._rows.column(name) for name in self._key_columns]
        keys = KeySet(columns).take(first)
        which, found = find(keys, self._columns, self._schema)
        self._at = np.full(self._count, _ABSENT, dtype=np.int64)
        self._at[which] = np.arange(len(which))
        self._present = found
        # Which row of the group is there of each key by now.
        self._of = np.full(self._count, LOOKED_UP, dtype=np.int64)
        self._foresight: Foresight | None = None

    def run(self) -> list[pa.RecordBatch]:
        """Decide segment by segment, and return the rows to write."""
        self._out: list[pa.Table] = []
        self._out_rows = 0
        self._out_of = np.full(len(self._keys), _ABSENT, dtype=np.int64)
        if self._is_all_new:
            self._out.append(self._rows)
            self._out_of = np.arange(len(self._keys))
            return self._outcome()
        for writes in self._segments():
            while True:
                before = self._at, self._present, len(self._out), self._out_rows
                of, self._of = self._of, self._of.copy()
                self._at = self._at.copy()
                self._foresight = None
                try:
                    self._decide(writes)
                    break
                except _FailedError:
                    # Without those that failed, whose effects others have already seen.
                    self._at, self._present, self._of = before[0], before[1], of
                    del self._out[before[2] :]
                    self._out_rows = before[3]
                    self._out_of[np.isin(self._pending_of_row, writes)] = _ABSENT
                    writes = [one for one in writes if self._group[one].error is None]
        return self._outcome()

    @property
    def _is_all_new(self) -> bool:
        """Whether no key has a row or comes twice, and all operations write such rows as they are."""
        return (
            not self._present.num_rows
            and self._count == len(self._keys)
            and all(
                one.operation is None
                or (one.operation.kind in (Kind.UPSERT, Kind.INSERT) and not one.operation.keeps)
                for one in self._parts
            )
        )

    def _segments(self) -> list[list[int]]:
        """Split the group where a write that is done as a whole, or not at all, has keys of another one."""
        segments: list[list[int]] = [[]]
        any_of = np.zeros(self._count, dtype=bool)
        whole_of = np.zeros(self._count, dtype=bool)
        for number, write in enumerate(self._group):
            keys = self._keys[self._pending_of_row == number]
            is_whole = write.undecided is not None and write.undecided.all_or_nothing
            if segments[-1] and keys.size and (any_of if is_whole else whole_of)[keys].any():
                segments.append([])
                any_of[:], whole_of[:] = False, False
            segments[-1].append(number)
            any_of[keys] = True
            if is_whole:
                whole_of[keys] = True
        return segments

    def _decide(self, writes: Sequence[int]) -> None:
        rows = np.flatnonzero(np.isin(self._pending_of_row, writes))
        before, of = self._at.copy(), self._of.copy()
        rounds = _rounds(self._keys, rows)
        if len(rounds) >= _MANY_ROUNDS:
            self._foresight = self._foreseen()
        for taken in rounds:
            before = self._compacted(before)
            shapes: dict[Hashable, list[tuple[_Part, Rows]]] = {}
            for part in self._parts:
                mine = taken[taken.searchsorted(part.start) : taken.searchsorted(part.end)]
                if mine.size:
                    shape = None if part.operation is None else part.operation.shape
                    shapes.setdefault(shape, []).append((part, mine))
            known, present = self._at.copy(), self._present
            for shape, pieces in shapes.items():
                if shape is None:
                    self._take_plain(np.concatenate([mine for _, mine in pieces]))
                else:
                    self._decide_shape(pieces, known, present)
        for number in writes:
            undecided = self._group[number].undecided
            if undecided is not None and undecided.all_or_nothing:
                mine = np.flatnonzero(self._pending_of_row == number)
                if (self._out_of[mine] == _ABSENT).any():
                    self._out_of[mine] = _ABSENT
                    self._at[self._keys[mine]] = before[self._keys[mine]]
                    self._of[self._keys[mine]] = of[self._keys[mine]]

    def _foreseen(self) -> Foresight:
        """Return what conditions are evaluated by where many rows have one key."""
        sizes = [part.end - part.start for part in self._parts]
        operations = [part.operation for part in self._parts]
        numbers: dict[Hashable, int] = {}
        shapes = [numbers.setdefault(one and one.shape, len(numbers)) for one in operations]
        whole = [one is None or one.kind in (Kind.UPSERT, Kind.INSERT) for one in operations]
        return Foresight(self._keys, np.repeat(shapes, sizes), np.repeat(whole, sizes))

    def _compacted(self, before: Rows) -> Rows:
        """Drop the rows that others have replaced, once there are many; return where those before are now.

        Every round leaves its rows behind: many rows of one key would take time with their square.
        """
        if self._present.num_rows < _MANY_PER_KEY * (self._count + 1):
            return before
        kept, places = np.unique(np.concatenate([self._at, before]), return_inverse=True)
        if kept[0] == _ABSENT:
            kept, places = kept[1:], places - 1
        self._present = self._present.take(pa.array(kept)).combine_chunks()
        self._at, before = np.split(places, 2)
        return before

    def _take_plain(self, rows: Rows) -> None:
        """Go on after rows that are written whatever there is."""
        self._now(rows, self._rows.take(pa.array(rows)))

    def _decide_shape(self, pieces: list[tuple[_Part, Rows]], known: Rows, present: pa.Table) -> None:
        """Decide rows of one shape with distinct keys."""
        rows = np.concatenate([mine for _, mine in pieces])
        operation = pieces[0][0].operation
        assert operation is not None
        try:
            self._write(rows, *self._outcome_of(operation, rows, known, present))
        except InputError as error:
            if len({part.pending for part, _ in pieces}) == 1:
                self._group[pieces[0][0].pending].error = error
                raise _FailedError from error
            # One row caused the failure, and the others are not affected.
            for part, mine in pieces:
                assert part.operation is not None
                try:
                    self._outcome_of(part.operation, mine, known, present)
                except InputError as own:
                    self._group[part.pending].error = own
            if all(self._group[part.pending].error is None for part, _ in pieces):
                raise
            raise _FailedError from error

    def _outcome_of(
        self, operation: Operation, rows: Rows, known: Rows, present: pa.Table
    ) -> tuple[Mask, pa.Table]:
        """Return which of some rows are done, and the rows written for them."""
        at = known[self._keys[rows]]
        exists = at != _ABSENT
        there = np.flatnonzero(exists)
        if operation.kind is Kind.INSERT:
            done = ~exists
        else:
            done = exists.copy()
            if there.size and (operation.condition is not None or operation.where is not None):
                done[there] = self._held(operation, rows[there], at[there], present)
            if operation.kind is Kind.UPSERT or (operation.kind is Kind.PATCH and operation.makes_rows):
                done |= ~exists
            elif operation.kind is Kind.DELETE and not operation.looks:
                done[:] = True
        chosen = np.flatnonzero(done)
        written = self._rows.take(pa.array(rows[chosen]))
        if operation.kind in (Kind.PATCH, Kind.UPDATE) and chosen.size:
            kept = present.take(pa.array(at[chosen], mask=at[chosen] == _ABSENT))
            written = self._changed(operation, written, kept, at[chosen] != _ABSENT)
        elif operation.keeps and chosen.size:
            kept = present.take(pa.array(at[chosen]))
            for name in operation.keeps:
                number = self._schema.get_field_index(name)
                written = written.set_column(number, self._schema.field(number), kept.column(name))
        return done, written

    def _held(self, operation: Operation, rows: Rows, at: Rows, present: pa.Table) -> Mask:
        """Return for which rows the condition holds of the present row of their key."""

        def evaluate(asked: Rows, of: Rows) -> Mask:
            seen = present.take(pa.array(at[of]))
            return _holds(operation, seen, self._rows.take(pa.array(asked)))

        def evaluate_after(asked: Rows, others: Rows) -> Mask:
            seen = as_schema(self._rows.select(self._columns).take(pa.array(others)), present.schema)
            return _holds(operation, seen, self._rows.take(pa.array(asked)))

        if self._foresight is None or operation.where is not None:
            return evaluate(rows, np.arange(len(rows)))
        return self._foresight.holds(rows, self._of[self._keys[rows]], evaluate, evaluate_after)

    def _changed(self, operation: Operation, written: pa.Table, kept: pa.Table, exists: Mask) -> pa.Table:
        """Return rows of a patch or an update, with the columns that they keep."""
        set_to: dict[str, pa.ChunkedArray] = {}
        for name, value in operation.values:
            values = pa.chunked_array([value.evaluate(kept)])
            field = self._schema.field(name)
            if pa.types.is_temporal(field.type):
                # As in SQL, and as in the filter beside it: '2026-01-31' is a date.
                values = keys_of_texts(values, field, what="value")
            set_to[name] = values if values.type == field.type else cast_to(values, field)
        columns = []
        for field in self._schema:
            if field.name == TOMBSTONE:
                columns.append(pa.chunked_array([pa.repeat(pa.scalar(False), written.num_rows)]))
            elif field.name in set_to:
                columns.append(set_to[field.name])
            elif field.name in self._key_columns or field.name in operation.given:
                columns.append(written.column(field.name))
            else:
                # Newly created rows have only the given values.
                columns.append(kept.column(field.name))
        changed = as_schema(pa.Table.from_arrays(columns, self._schema.names), self._schema)
        if operation.values:
            conformed(changed, self._schema, self._key_columns)
        return changed

    def _write(self, rows: Rows, done: Mask, written: pa.Table) -> None:
        """Add the decided rows to those to write, and continue after them."""
        chosen = rows[done]
        if not chosen.size:
            return
        self._out_of[chosen] = self._out_rows + np.arange(len(chosen))
        self._out.append(written)
        self._out_rows += len(chosen)
        self._now(chosen, written)

    def _now(self, rows: Rows, written: pa.Table) -> None:
        """Note that some keys have these rows from now on."""
        start = self._present.num_rows
        fields = [self._present.schema.field(name) for name in self._columns]
        columns = [written.column(name) for name in self._columns]
        newer = pa.Table.from_arrays(columns, schema=pa.schema(fields))
        self._present = pa.concat_tables([self._present, newer])
        deleted = written.column(TOMBSTONE).to_numpy()
        self._at[self._keys[rows]] = np.where(deleted, _ABSENT, start + np.arange(len(rows)))
        self._of[self._keys[rows]] = rows

    def _outcome(self) -> list[pa.RecordBatch]:
        """Return all rows to write in order, and set the result of every write."""
        out = pa.concat_tables(self._out) if self._out else None
        batches: list[pa.RecordBatch] = []
        for number, write in enumerate(self._group):
            if write.undecided is None:
                assert write.batch is not None
                batches.append(write.batch)
                continue
            if write.error is not None:
                continue
            mine = np.flatnonzero(self._pending_of_row == number)
            done = self._out_of[mine] != _ABSENT
            write.undecided.tell(self._key_table.take(pa.array(mine)), done)
            if out is not None and done.any():
                whole = out.take(pa.array(self._out_of[mine[done]])).combine_chunks()
                batches += whole.to_batches()
        return batches


@dataclass(frozen=True, slots=True)
class _Codes:
    """A number for every key in a group, write by write, and how many there are."""

    of_writes: list[Rows]
    count: int


def _codes_of(group: Sequence[PendingWrite], key_columns: tuple[str, ...]) -> _Codes:
    batches: list[pa.RecordBatch] = []
    ends: list[int] = []
    rows = 0
    for write in group:
        own = [one.rows for one in write.undecided.operations] if write.undecided else [_rows_of(write)]
        batches += own
        rows += sum(batch.num_rows for batch in own)
        ends.append(rows)
    columns = [pa.chunked_array([batch.column(name) for batch in batches]) for name in key_columns]
    codes, count = key_codes(columns)
    return _Codes(np.split(codes, ends[:-1]), count)


def _rows_of(write: PendingWrite) -> pa.RecordBatch:
    assert write.batch is not None
    return write.batch


def _rounds(keys: Rows, rows: Rows) -> list[Rows]:
    """Return some rows, ascending, by how many of them have the same key before them."""
    own = keys[rows]
    order = np.argsort(own, kind="stable")
    ordered = own[order]
    begins = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]]) if len(ordered) else np.zeros(0, int)
    counted = np.arange(len(ordered)) - np.repeat(begins, np.diff(np.r_[begins, len(ordered)]))
    by_round = np.lexsort((order, counted))
    sizes = np.bincount(counted)
    return np.split(rows[order[by_round]], np.cumsum(sizes)[:-1]) if len(rows) else []


def _holds(operation: Operation, present: pa.Table, new: pa.Table) -> Mask:
    held = np.ones(present.num_rows, dtype=bool)
    if operation.where is not None:
        held[:] = False
        held[matching_rows(present, operation.where)] = True
    if operation.condition is not None:
        held &= operation.condition.holds(present, new)
    return held
