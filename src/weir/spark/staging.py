"""The task side of a write: rows are divided into pieces per shard, in row order.

A task converts its rows to the table's schema, checks them, and splits them by shard. A few rows travel to
the driver inside the task's result; many are staged as generations
(:mod:`weir.write.flush.staged_generations`), and only their names go to the driver. So the load on the driver
does not grow with the data, and tasks of small writes do not access the storage at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from weir.engine import failpoint
from weir.format.field_ids import without_field_ids
from weir.format.wal_entry import TOMBSTONE
from weir.rows import OPERATION, as_row_table, change_table
from weir.rows.asked import checked_rows
from weir.rows.changes import INSERT
from weir.rows.patches import patch_batches
from weir.sharding.router import Router
from weir.sharding.shard_values import ShardValues
from weir.spark.options import TableLocation
from weir.table.table import Table
from weir.write.flush.rows_to_stage import RowsToStage
from weir.write.flush.staged_generations import StagedGeneration

__all__ = ["InlineRows", "Piece", "TaskResult", "TaskRows", "pieces_by_shard"]

_MAX_INLINE_BYTES = 1024 * 1024
"""Most bytes of rows that a task sends to the driver, which has room for a few hundred tasks at once."""


@dataclass(frozen=True, slots=True)
class InlineRows:
    """Rows for one shard, as an Arrow stream in the schema of WAL entries.

    Parameters
    ----------
    data : bytes
        The stream.
    """

    data: bytes = field(repr=False)

    @staticmethod
    def of(rows: pa.Table) -> InlineRows:
        """Encode rows."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write_table(rows)
        return InlineRows(sink.getvalue().to_pybytes())

    @property
    def rows(self) -> pa.Table:
        """The rows; they refer to the bytes."""
        # Streams align to 8 bytes, and Lance insists on 16 for decimals.
        options = pa.ipc.IpcReadOptions(ensure_alignment=pa.ipc.Alignment.At64Byte)
        with pa.ipc.open_stream(self.data, options=options) as reader:
            return reader.read_all()


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows of one task for one shard.

    Parameters
    ----------
    shard : ShardValues
        The shard.
    held : InlineRows or StagedGeneration
        The rows, or their staged generation.
    """

    shard: ShardValues
    held: InlineRows | StagedGeneration


@dataclass(frozen=True, slots=True)
class TaskResult(WriterCommitMessage):
    """The result of a task, sent to the driver.

    Parameters
    ----------
    pieces : tuple of Piece
        Its rows; those of one shard in order.
    query_id : str, optional
        The streaming query it belongs to.
    asked : InlineRows, optional
        Rows whose effect depends on existing rows, so that the driver decides on it.
    spec_id : int, optional
        The shard spec that its rows were routed by; None if no rows were routed.
    """

    pieces: tuple[Piece, ...]
    query_id: str | None = None
    asked: InlineRows | None = None
    spec_id: int | None = None

    @property
    def staged(self) -> tuple[StagedGeneration, ...]:
        """The generations it wrote."""
        return tuple(piece.held for piece in self.pieces if isinstance(piece.held, StagedGeneration))


@dataclass(frozen=True, slots=True)
class TaskRows:
    """Reads the rows of one write in tasks. Can be pickled.

    Parameters
    ----------
    location : TableLocation
        The table.
    row_schema : Schema
        The table's columns, with their field ids, and ``_tombstone``: rows keep their meaning even if columns
        are renamed before the commit.
    primary_key : tuple of str
        Primary-key columns.
    router : Router
        Splits rows by shard.
    fsync : bool, default True
        As for :func:`weir.open`.
    sequence_by : str or None, default None
        The sequence column, which also orders deletes.
    looks_as : str, optional
        The default operation of a row, if it depends on the existing row.
    is_merged_at_once : bool, default False
        Whether the commit merges the rows at once, so that their generations need no indexes.
    """

    location: TableLocation
    row_schema: pa.Schema
    primary_key: tuple[str, ...]
    router: Router
    fsync: bool = True
    sequence_by: str | None = None
    looks_as: str | None = None
    is_merged_at_once: bool = False

    @staticmethod
    def of(
        location: TableLocation,
        table: Table,
        *,
        fsync: bool,
        looks_as: str | None = None,
        is_merged_at_once: bool = False,
    ) -> TaskRows:
        """Return the row reader for a table."""
        engine = table.merge_engine
        return TaskRows(
            location,
            table.internals.row_schema,
            table.primary_key,
            table.internals.router,
            fsync,
            None if engine is None else engine.sequence_by,
            looks_as,
            is_merged_at_once,
        )

    @property
    def schema(self) -> pa.Schema:
        """The table's columns."""
        shown = without_field_ids(self.row_schema)
        return shown.remove(shown.get_field_index(TOMBSTONE))

    def check_schema(self, given: pa.Schema) -> None:
        """Refuse rows of a schema that does not fit the table.

        Raises
        ------
        SchemaError, KeyValueError
            Naming the column.
        """
        if self.looks_as is None:
            self._changes(given.empty_table(), self.schema)
            return
        rows = self._checked(given.empty_table()).drop_columns([OPERATION])
        if self.looks_as == INSERT:
            as_row_table(rows, self.schema, self.primary_key)
        else:
            also = self.router.source_columns
            list(patch_batches(rows, self.schema, self.row_schema, self.primary_key, also=also))

    def result(
        self,
        batches: Iterable[pa.RecordBatch],
        *,
        inline_bytes: int | None = None,
        query_id: str | None = None,
    ) -> TaskResult:
        """Check the rows of a task, and return the result for the driver.

        Parameters
        ----------
        batches, inline_bytes
            As for :meth:`pieces`.
        query_id : str, optional
            The streaming query.

        Raises
        ------
        InputError, SchemaError, KeyValueError
            If a row does not fit the table.
        """
        if self.looks_as is None:
            pieces = self.pieces(batches, inline_bytes=inline_bytes)
            return TaskResult(pieces, query_id, spec_id=self.router.spec.spec_id)
        checked: list[pa.Table] = []
        first_row = 0
        for batch in batches:
            if batch.num_rows:
                checked.append(self._checked(pa.Table.from_batches([batch]), first_row))
                first_row += batch.num_rows
        failpoint.reach("sink.after_task")
        return TaskResult((), query_id, InlineRows.of(pa.concat_tables(checked)) if checked else None)

    def _checked(self, rows: pa.Table, first_row: int = 0) -> pa.Table:
        assert self.looks_as is not None
        return checked_rows(rows, self.row_schema, self.primary_key, self.looks_as, first_row=first_row)

    def pieces(
        self, batches: Iterable[pa.RecordBatch], *, inline_bytes: int | None = None
    ) -> tuple[Piece, ...]:
        """Check rows and split them by shard.

        Parameters
        ----------
        batches : iterable of RecordBatch
            The rows.
        inline_bytes : int, optional
            Most bytes of them that may go to the driver. Default: an amount safe for any number of tasks.

        Raises
        ------
        InputError, SchemaError, KeyValueError
            If a row does not fit the table. Rows are counted from the first of ``batches``, which is the
            first of the partition.
        """
        task = _Task(self, _MAX_INLINE_BYTES if inline_bytes is None else inline_bytes)
        schema = self.schema  # the same one for all batches, so that the checks of it are computed once
        first_row = 0
        for batch in batches:
            if batch.num_rows:
                task.add(self._changes(pa.Table.from_batches([batch]), schema, first_row))
                first_row += batch.num_rows
        pieces = task.finish()
        failpoint.reach("sink.after_task")
        return pieces

    def _changes(self, rows: pa.Table, schema: pa.Schema, first_row: int = 0) -> pa.Table:
        return change_table(
            rows,
            schema,
            self.row_schema,
            self.primary_key,
            also={*self.router.source_columns, *([self.sequence_by] if self.sequence_by else [])},
            first_row=first_row,
        )


class _Task:
    """The buffered rows of a task, and the pieces already made."""

    def __init__(self, rows: TaskRows, inline_bytes: int) -> None:
        self._rows = rows
        self._inline_bytes = inline_bytes
        self._held = RowsToStage(rows.router, self._stage)
        self._pieces: list[Piece] = []
        self._opened: Table | None = None

    def add(self, changes: pa.Table) -> None:
        self._held.add(changes)

    def finish(self) -> tuple[Piece, ...]:
        left = self._inline_bytes
        held = self._held.held()
        staged = {piece.shard for piece in self._pieces}
        for shard, nbytes in held.items():
            left -= nbytes
            rows = self._held.take(shard)
            if shard in staged or left < 0:
                self._stage(shard, rows)
            else:
                self._pieces.append(Piece(shard, InlineRows.of(rows)))
        return tuple(self._pieces)

    def _stage(self, shard: ShardValues, rows: pa.Table) -> None:
        staged = self._table.internals.stage(
            shard,
            rows,
            spec_id=self._rows.router.spec.spec_id,
            indexed=not self._rows.is_merged_at_once,
        )
        self._pieces.append(Piece(shard, staged))

    @property
    def _table(self) -> Table:
        if self._opened is None:
            self._opened = self._rows.location.open(fsync=self._rows.fsync)
        return self._opened


def pieces_by_shard(results: Iterable[TaskResult]) -> dict[ShardValues, list[InlineRows | StagedGeneration]]:
    """Return the pieces of every shard, in task order and row order."""
    found: dict[ShardValues, list[InlineRows | StagedGeneration]] = {}
    for piece in _pieces(results):
        found.setdefault(piece.shard, []).append(piece.held)
    return found


def _pieces(results: Iterable[TaskResult]) -> Iterator[Piece]:
    for result in results:
        yield from result.pieces
