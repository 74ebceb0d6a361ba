"""What a task of a write makes of its rows: for every shard a piece, small enough to travel to the driver.

A task converts its rows to the table's schema, checks them, and splits them by shard. It knows the table's
columns and its shard spec, and reads nothing of the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from weir.format.wal_entry import wal_schema
from weir.rows import change_table
from weir.sharding.router import Router
from weir.sharding.shard_values import ShardValues
from weir.table import Table

__all__ = ["Piece", "TaskResult", "TaskRows", "rows_of_shards"]


@dataclass(frozen=True, slots=True)
class Piece:
    """The rows of one task for one shard, as an Arrow stream in the schema of WAL entries.

    Parameters
    ----------
    shard : ShardValues
        The shard.
    data : bytes
        The stream.
    """

    shard: ShardValues
    data: bytes

    @staticmethod
    def of(shard: ShardValues, rows: pa.Table) -> Piece:
        """Encode the rows of a shard."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write_table(rows)
        return Piece(shard, sink.getvalue().to_pybytes())

    @property
    def rows(self) -> pa.Table:
        """The rows; they refer to the bytes."""
        with pa.ipc.open_stream(self.data) as reader:
            return reader.read_all()


@dataclass(frozen=True, slots=True)
class TaskResult(WriterCommitMessage):
    """What a task hands to the driver.

    Parameters
    ----------
    pieces : tuple of Piece
        Its rows, each shard once.
    query_id : str, optional
        The streaming query it belongs to.
    """

    pieces: tuple[Piece, ...]
    query_id: str | None = None


@dataclass(frozen=True, slots=True)
class TaskRows:
    """How tasks read the rows of one write. Can be pickled.

    Parameters
    ----------
    schema : Schema
        The table's columns.
    primary_key : tuple of str
        Primary-key columns.
    router : Router
        Splits rows by shard.
    """

    schema: pa.Schema
    primary_key: tuple[str, ...]
    router: Router

    @staticmethod
    def of(table: Table) -> TaskRows:
        """Return how the rows of a table are read."""
        return TaskRows(table.schema, table.primary_key, table.router)

    def check_schema(self, given: pa.Schema) -> None:
        """Refuse rows of a schema that cannot be the table's.

        Raises
        ------
        SchemaError, KeyValueError
            Naming the column.
        """
        self._changes(given.empty_table())

    def pieces(self, batches: Iterable[pa.RecordBatch]) -> tuple[Piece, ...]:
        """Check rows and split them by shard.

        Raises
        ------
        InputError, SchemaError, KeyValueError
            If a row does not fit the table.
        """
        changes = [self._changes(pa.Table.from_batches([batch])) for batch in batches if batch.num_rows]
        if not changes:
            return ()
        return tuple(Piece.of(shard, rows) for shard, rows in self.router.route(pa.concat_tables(changes)))

    def _changes(self, rows: pa.Table) -> pa.Table:
        return change_table(
            rows, self.schema, wal_schema(self.schema), self.primary_key, also=self.router.source_columns
        )


def rows_of_shards(results: Sequence[TaskResult]) -> list[tuple[ShardValues, pa.Table]]:
    """Return the rows of every shard, in the order of the tasks and of the rows in each."""
    found: dict[ShardValues, list[pa.Table]] = {}
    for piece in _pieces(results):
        found.setdefault(piece.shard, []).append(piece.rows)
    return [(shard, pa.concat_tables(tables)) for shard, tables in found.items()]


def _pieces(results: Sequence[TaskResult]) -> Iterator[Piece]:
    for result in results:
        yield from result.pieces
