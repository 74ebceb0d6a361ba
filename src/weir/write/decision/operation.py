"""The operations on the rows of one shard, before they are decided."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field, replace
from enum import Enum

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from weir.format.newest import newest_rows
from weir.format.wal_entry import TOMBSTONE
from weir.format.write_window import decode_answer, encode_answer
from weir.lsm.keys import KeyIndex, KeySet
from weir.write.decision.row_expression import RowExpression

__all__ = ["Kind", "LogPlaceBefore", "Operation", "Undecided", "with_keys"]


class Kind(Enum):
    """What an operation does to the row of a key."""

    UPSERT = "upsert"
    INSERT = "insert"
    PATCH = "patch"
    DELETE = "delete"
    UPDATE = "update"


@dataclass(frozen=True, slots=True, eq=False)
class Operation:
    """One operation on some keys of a shard.

    Parameters
    ----------
    kind : Kind
        What it does.
    rows : RecordBatch
        Rows of log entries: of an upsert or insert whole, of a patch with the columns that are given, else
        tombstones.
    given : tuple of str, default ()
        For a patch: the columns outside the key that it sets.
    makes_rows : bool, default False
        For a patch: whether to create missing rows.
    condition : RowExpression, optional
        What has to hold of the present row.
    where : str, optional
        For a change by filter: the condition on the present row, in Lance's SQL.
    keeps : tuple of str, default ()
        For a delete by filter: columns outside the key that its tombstones copy from the present rows,
        because they decide the shard.
    values : tuple of (str, RowExpression), default ()
        For an update: the columns it sets, with their expressions.
    """

    kind: Kind
    rows: pa.RecordBatch
    given: tuple[str, ...] = ()
    makes_rows: bool = False
    condition: RowExpression | None = None
    where: str | None = None
    keeps: tuple[str, ...] = ()
    values: tuple[tuple[str, RowExpression], ...] = ()

    @property
    def shape(self) -> Hashable:
        """Equal for operations that are decided together, whatever their rows are."""
        set_to = tuple((name, value.text) for name, value in self.values)
        text = None if self.condition is None else self.condition.text
        return self.kind, self.given, self.makes_rows, text, self.where, set_to

    @property
    def looks(self) -> bool:
        """Whether its effect depends on the present row."""
        unconditional = self.kind in (Kind.UPSERT, Kind.DELETE)
        return not unconditional or self.condition is not None or self.where is not None

    def with_rows(self, rows: pa.RecordBatch) -> Operation:
        """Return the same operation on other rows."""
        return replace(self, rows=rows)

    def reads(self, columns: list[str]) -> set[str]:
        """Return which of a table's columns it needs of the present row."""
        if self.kind is Kind.UPDATE:
            return set(columns)
        needed = set(columns) - set(self.given) if self.kind is Kind.PATCH else set(self.keeps)
        if self.condition is not None:
            needed |= set(self.condition.columns)
        if self.where is not None:
            needed |= {name for name in columns if name.lower() in self.where.lower()}
        return needed


@dataclass(frozen=True, slots=True)
class LogPlaceBefore:
    """How far a shard had come when rows were looked for.

    Parameters
    ----------
    position : int
        The last position of its log.
    generation : int
        The generation that rows written from then on go to at the earliest.
    """

    position: int
    generation: int


@dataclass(slots=True, eq=False)
class Undecided:
    """Operations of one caller on one shard, decided together, in their order.

    Parameters
    ----------
    operations : tuple of Operation
        The operations.
    schema : Schema
        Schema of log entries that their rows are in.
    all_or_nothing : bool, default False
        Whether nothing is written unless every key is done.
    since : LogPlaceBefore, optional
        For a change by filter: the log position when the keys were searched. Keys written later are checked
        as well.
    seen : Table, optional
        Keys to skip, because they were decided before.

    Attributes
    ----------
    done, skipped : Table or None
        The keys that were done and those that were skipped. None until decided.
    answer : bytes
        Which of its rows were done (:func:`weir.format.write_window.encode_answer`).
    """

    operations: tuple[Operation, ...]
    schema: pa.Schema
    all_or_nothing: bool = False
    since: LogPlaceBefore | None = None
    seen: pa.Table | None = None
    done: pa.Table | None = field(default=None, init=False)
    skipped: pa.Table | None = field(default=None, init=False)
    answer: bytes = field(default=b"", init=False)

    def tell(self, keys: pa.Table, done: npt.NDArray[np.bool_]) -> None:
        """Take in which of its keys were done; a key counts as done if its last row was."""
        self.done = keys.filter(pa.array(done))
        self.skipped = keys.filter(pa.array(~done))
        self.answer = encode_answer(done)

    def tell_again(self, answer: bytes, key_columns: tuple[str, ...]) -> bool:
        """Take in what was done of it the first time; return whether that can have been the same write."""
        done = decode_answer(answer, self.num_rows)
        if done is None:
            return False
        columns = {
            name: pa.chunked_array([one.rows.column(name) for one in self.operations]) for name in key_columns
        }
        self.tell(pa.table(columns), done)
        return True

    @property
    def num_rows(self) -> int:
        """Rows that it would write at most, as far as is known before."""
        return sum(operation.rows.num_rows for operation in self.operations)

    @property
    def rows_done(self) -> int:
        """Rows that were written."""
        return 0 if self.done is None else self.done.num_rows


def with_keys(
    rows: pa.RecordBatch, keys: pa.Table, seen: pa.Table | None, key_columns: tuple[str, ...]
) -> pa.RecordBatch:
    """Return tombstones, and those of some more keys that are not among them.

    Parameters
    ----------
    rows : RecordBatch
        Tombstones with distinct keys.
    keys : Table
        More keys; repeats are allowed.
    seen : Table, optional
        Keys to leave out.
    key_columns : tuple of str
        Primary-key columns.
    """
    if not keys.num_rows:
        return rows
    keys = keys.take(pa.array(newest_rows(keys.columns))).combine_chunks()
    wanted = KeySet(keys.columns)
    known = np.zeros(keys.num_rows, dtype=bool)
    for one in (pa.Table.from_batches([rows]).select(list(key_columns)), seen):
        if one is not None and one.num_rows:
            found, _ = KeyIndex.build(KeySet(one.columns)).lookup(wanted)
            known[found] = True
    more = keys.filter(pa.array(~known)).combine_chunks()
    if not more.num_rows:
        return rows
    columns = [
        pa.concat_arrays([rows.column(field.name), _of_keys(field, more, key_columns)])
        for field in rows.schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=rows.schema)


def _of_keys(field: pa.Field, keys: pa.Table, key_columns: tuple[str, ...]) -> pa.Array:
    if field.name == TOMBSTONE:
        return pa.repeat(pa.scalar(True), keys.num_rows)
    if field.name in key_columns:
        return keys.column(field.name).combine_chunks().cast(field.type)
    return pa.nulls(keys.num_rows, field.type)
