"""The indexes of a table: :attr:`weir.Table.indexes`."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from weir.base.index_changes import base_indexes, drop_index
from weir.indexing.definition import IndexDefinition
from weir.indexing.describe import ExistingIndex
from weir.indexing.kinds import IndexKind
from weir.indexing.policy import IndexPolicy
from weir.maintenance.index_creation import create_index, create_indexes
from weir.snapshots.snapshot import STRONG
from weir.table.open_table import OpenTable

__all__ = ["TableIndexes"]


class TableIndexes:
    """Creates, drops and lists the indexes of a table. Got from :attr:`weir.Table.indexes`.

    Parameters
    ----------
    table : OpenTable
        The table.
    """

    def __init__(self, table: OpenTable) -> None:
        self._table = table

    def create(
        self,
        column: str,
        kind: str | IndexKind | None = None,
        *,
        name: str | None = None,
        replace: bool = False,
        **parameters: Any,
    ) -> IndexDefinition:
        """Build an index on a column, and maintain it from then on.

        It covers the base table when the call returns. Generations get the same index when they are flushed,
        if they have enough rows to benefit, and ``table.maintenance.catch_up_indexes()`` adds merged rows to
        the base table's index. On a table without rows it is empty until then.

        Parameters
        ----------
        column : str
            The column.
        kind : str, optional
            ``"BTREE"``, ``"BITMAP"``, ``"ZONEMAP"``, ``"BLOOMFILTER"``, ``"NGRAM"``, ``"LABEL_LIST"``,
            ``"INVERTED"`` (full text), ``"IVF_FLAT"``, ``"IVF_PQ"`` or ``"IVF_HNSW_SQ"``. Default: what
            :class:`weir.IndexPolicy` chooses for the column.
        name : str, optional
            Its name. Default: the column's name followed by ``_idx``.
        replace : bool, default False
            Whether to rebuild an existing index of that name.
        **parameters
            Lance's parameters, depending on the kind: ``num_partitions``, ``num_sub_vectors``, ``num_bits``,
            ``metric``, ``m``, ``ef_construction``, ``rows_per_zone``, ``number_of_items``, ``probability``,
            and those of the tokenizer, such as ``with_position`` and ``language``.

        Returns
        -------
        IndexDefinition
            The index as it was built.

        Raises
        ------
        IndexDefinitionError
            If the column cannot have such an index, or the kind has no such parameter.
        IndexExistsError
            If an index of that name exists, or one of that kind on the column and no name was given.
        IndexNotFoundError
            If it was built, and dropped by another process or lost to a failing disk before it could be read.

        Examples
        --------
        >>> import tempfile, pyarrow as pa, weir
        >>> schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("carrier", pa.string())])
        >>> table = weir.create(tempfile.mkdtemp() + "/flights", schema, primary_key="id")
        >>> table.indexes.create("carrier", "BITMAP").name
        'carrier_idx'
        >>> [index.name for index in table.indexes.list()]
        ['carrier_idx', 'id_idx']
        """
        return create_index(
            self._table.base, self._sample, column, kind, name=name, replace=replace, parameters=parameters
        )

    def drop(self, name: str) -> None:
        """Drop an index. Generations keep theirs until they are merged.

        Raises
        ------
        IndexNotFoundError
            If there is none with that name.
        IndexDefinitionError
            If it is the index of the primary key.
        """
        drop_index(self._table.base, name)

    def list(self) -> tuple[ExistingIndex, ...]:
        """Return the indexes of the base table, by name."""
        return base_indexes(self._table.base.latest())

    def policy(self, policy: IndexPolicy | None = None) -> tuple[IndexDefinition, ...]:
        """Build every index that a policy chooses and the table lacks.

        Parameters
        ----------
        policy : IndexPolicy, optional
            Decides which columns get which kinds of index. Default: by type and a sample of the rows.

        Returns
        -------
        tuple of IndexDefinition
            The indexes that were built.

        Raises
        ------
        IndexDefinitionError
            If a column that the policy names does not exist, or cannot have that kind of index.
        """
        return create_indexes(self._table.base, self._sample, policy or IndexPolicy())

    def _sample(self, rows: int) -> pa.Table:
        return self._table.reader.scan(limit=rows, consistency=STRONG, at=None).to_table()
