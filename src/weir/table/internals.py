"""The parts of a table that only other parts of Weir use: :attr:`weir.Table.internals`.

Spark's tasks split rows by shard and stage them on the executors; the driver publishes them. Nothing here is
part of the public interface.
"""

from __future__ import annotations

import pyarrow as pa

from weir.base.generation_indexes import generation_indexes
from weir.base.table import BaseTable
from weir.errors import ConflictError
from weir.log.table_sharding import TableSharding
from weir.lsm.staged_rows import staged_rows
from weir.sharding.router import Router
from weir.sharding.shard_values import ShardValues
from weir.storage.interface import ObjectStore
from weir.table.open_table import OpenTable
from weir.table.reader import TableReader
from weir.write.flush.staged_generations import StagedGeneration, stage_generation

__all__ = ["StagedGeneration", "TableInternals"]


class TableInternals:
    """Routing, staging and storage of a table. For Weir's own use.

    Parameters
    ----------
    table : OpenTable
        The table.
    """

    def __init__(self, table: OpenTable) -> None:
        self._table = table

    @property
    def store(self) -> ObjectStore:
        """The store that holds the table, for parts of Weir that keep objects beside it."""
        return self._table.store

    @property
    def base(self) -> BaseTable:
        """The base table at the newest version seen."""
        return self._table.base

    @property
    def sharding(self) -> TableSharding:
        """The state derived from the table's shard spec."""
        return self._table.sharding

    @property
    def reader(self) -> TableReader:
        """The reader of the table."""
        return self._table.reader

    @property
    def row_schema(self) -> pa.Schema:
        """The columns with their field ids, and ``_tombstone``, for preparing rows to write later."""
        return self._table.base.row_schema

    def follow(self) -> pa.Schema:
        """Adopt alterations made since the table was opened or last read; return its columns."""
        return self._table.reader.snapshots.follow().schema

    @property
    def router(self) -> Router:
        """The router that splits rows by shard before they are written. Can be pickled."""
        return self._table.sharding.router

    def stage(
        self, shard: ShardValues, rows: pa.Table, *, spec_id: int, indexed: bool = True
    ) -> StagedGeneration:
        """Write rows of one shard as an unreferenced generation, for a writer to publish.

        For writes by many machines at once: the committer publishes what all have staged with
        :meth:`TableWriter.publish_routed`, within 12 hours. Claims nothing and changes nothing visible.

        Parameters
        ----------
        shard : ShardValues
            The shard, as :attr:`router` returns it.
        rows : Table
            Rows of that shard in the schema of log entries, in order; of several with one key the last wins.
        spec_id : int
            The shard spec that they were routed by.
        indexed : bool, default True
            Whether the generation gets the table's indexes; it can be read without them.

        Raises
        ------
        ConflictError
            If the table was resharded meanwhile. Nothing was written.
        """
        self._table.make_own()
        if self._table.sharding.spec.spec_id != spec_id:
            raise ConflictError(
                "the table was sharded by another rule while rows were staged",
                where=self._table.store.uri,
                hint="Nothing was written. Run the write again",
            )
        return stage_generation(
            self._table.store,
            self._table.sharding.catalog.resolve([shard])[shard].shard_id,
            rows,
            self._table.base.primary_key,
            merge_engine=self._table.base.merge_engine,
            sort_by=self._table.base.sort_by,
            indexes=generation_indexes(self._table.base) if indexed else (),
            shard_spec_id=self._table.sharding.spec.spec_id,
            shard_fields=shard.to_manifest(),
        )

    def staged_rows(self, staged: StagedGeneration) -> pa.Table:
        """Return the rows of a staged generation, in the schema of log entries.

        Raises
        ------
        CorruptionError
            If it is damaged or missing.
        """
        schema = self.row_schema
        batches = staged_rows(self._table.store, staged.shard_id, staged.flushed.path, schema)
        return pa.Table.from_batches(batches, schema)
