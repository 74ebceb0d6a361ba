"""What other parts of Weir need of a table and its users do not: :attr:`weir.Table.internals`.

Spark's tasks split rows by shard and stage them where they are; the driver publishes them. Nothing here is
part of the public interface.
"""

from __future__ import annotations

import pyarrow as pa

from weir.base.generation_indexes import generation_indexes
from weir.base.table import BaseTable
from weir.errors import ConflictError
from weir.lsm.staged_rows import staged_rows
from weir.sharding.router import Router
from weir.sharding.shard_values import ShardValues
from weir.storage.interface import ObjectStore
from weir.table.open_table import OpenTable
from weir.table.reader import TableReader
from weir.write.flush.staged_generations import StagedGeneration, stage_generation
from weir.write.table_sharding import TableSharding

__all__ = ["StagedGeneration", "TableInternals"]


class TableInternals:
    """The parts of a table that route, stage and keep something beside it. For Weir's own parts alone.

    Parameters
    ----------
    table : OpenTable
        The table.
    """

    def __init__(self, table: OpenTable) -> None:
        self._table = table

    @property
    def store(self) -> ObjectStore:
        """The store that holds the table, for parts of Weir that keep something beside it."""
        return self._table.store

    @property
    def base(self) -> BaseTable:
        """The base table at the newest version that has been seen."""
        return self._table.base

    @property
    def sharding(self) -> TableSharding:
        """What follows from the table's shard spec."""
        return self._table.sharding

    @property
    def reader(self) -> TableReader:
        """What answers the table's reads."""
        return self._table.reader

    @property
    def row_schema(self) -> pa.Schema:
        """The columns with their field ids, and ``_tombstone``, for whoever makes rows to write later."""
        return self._table.base.row_schema

    def follow(self) -> pa.Schema:
        """Take over what others have altered since the table was opened or last read; return its columns."""
        return self._table.reader.snapshots.follow().schema

    @property
    def router(self) -> Router:
        """What splits rows by shard, for whoever routes them before they are written. Can be pickled."""
        return self._table.sharding.router

    def stage(
        self, shard: ShardValues, rows: pa.Table, *, spec_id: int, indexed: bool = True
    ) -> StagedGeneration:
        """Write rows of one shard as a generation that nothing refers to, for its writer to publish.

        For writes of many machines at once: whoever commits them publishes what all have staged with
        :meth:`TableWriter.publish_routed`, within 12 hours. Claims nothing, and changes nothing that can
        be read.

        Parameters
        ----------
        shard : ShardValues
            The shard, as :attr:`router` tells it.
        rows : Table
            Rows of that shard in the schema of log entries, in their order; of several with one key the
            last counts.
        spec_id : int
            The shard spec that they were routed by.
        indexed : bool, default True
            Whether the generation has the table's indexes; it is read without them as well.

        Raises
        ------
        ConflictError
            If the table is sharded by another rule by now. Nothing was written.
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
        """Return the rows of a generation that was staged, in the schema of log entries.

        Raises
        ------
        CorruptionError
            If it is damaged, or not there.
        """
        schema = self.row_schema
        batches = staged_rows(self._table.store, staged.shard_id, staged.flushed.path, schema)
        return pa.Table.from_batches(batches, schema)
