"""The build plan of a flushed generation: those indexes of the base table that it has enough rows for.

Lance MemWAL spec, "Flushed MemTable": a generation has the indexes that the MemWAL index maintains. Made
with the base table's parameters, and with the model of its vector indexes, so that what a search finds
in both can be compared.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import lance
import pyarrow as pa

from weir.engine.logs import get_logger
from weir.format.field_ids import field_id
from weir.indexing.build import build_index
from weir.indexing.definition import IndexDefinition
from weir.indexing.kinds import IndexKind
from weir.indexing.vector_model import VectorModel

__all__ = ["BuildPlan", "GenerationIndex"]

_log = get_logger(__name__)

_MIN_ROWS = {
    # With 65,536 rows a lookup took 0.9 ms with the index and 1.3 without, the first of a process 4.0 and
    # 2.0, and building it 11 ms; with 262,144 rows 0.9 and 3.0, 2.2 and 4.4, and 42.
    IndexKind.BTREE: 131_072,
    IndexKind.BITMAP: 16_384,
    IndexKind.ZONEMAP: 16_384,
    IndexKind.BLOOMFILTER: 16_384,
    IndexKind.NGRAM: 4_096,
    IndexKind.LABEL_LIST: 4_096,
    IndexKind.INVERTED: 1_024,
    # The library's search of generations asks their vector indexes and nothing else.
    IndexKind.IVF_FLAT: 1,
    IndexKind.IVF_PQ: 1,
    IndexKind.IVF_HNSW_SQ: 1,
}
"""Rows from which on searching an index beats reading the column, or the library needs it."""


@dataclass(frozen=True, slots=True)
class GenerationIndex:
    """An index that generations are to have.

    Parameters
    ----------
    definition : IndexDefinition
        The base table's index.
    model : VectorModel or None
        For a vector index, what the base table's has learnt.
    field_id : int, optional
        The field id of its column in the base table. A generation whose rows are of before the column had
        its name is not indexed by another one. Default: any column of that name.
    """

    definition: IndexDefinition
    model: VectorModel | None = None
    field_id: int | None = None


@dataclass(frozen=True, slots=True)
class BuildPlan:
    """The indexes that one generation gets. Made by :meth:`of`.

    Parameters
    ----------
    indexes : tuple of GenerationIndex
        In the order in which they are built.

    Examples
    --------
    >>> schema = pa.schema([("id", pa.int64()), ("carrier", pa.string())])
    >>> index = GenerationIndex(IndexDefinition("carrier_idx", "carrier", IndexKind.BITMAP), None)
    >>> len(BuildPlan.of([index], schema, 100_000).indexes), len(BuildPlan.of([index], schema, 100).indexes)
    (1, 0)
    """

    indexes: tuple[GenerationIndex, ...]

    @classmethod
    def of(cls, maintained: Iterable[GenerationIndex], schema: pa.Schema, num_rows: int) -> BuildPlan:
        """Return the plan for a generation.

        Parameters
        ----------
        maintained : iterable of GenerationIndex
            The indexes that generations are to have.
        schema : Schema
            The columns of its rows.
        num_rows : int
            How many rows it has.
        """
        return cls(
            tuple(one for one in maintained if _is_worth_building(one, num_rows) and _is_on(one, schema))
        )

    def build(self, dataset: lance.LanceDataset) -> tuple[IndexDefinition, ...]:
        """Build the indexes on a generation that is not visible yet, and return those that were built.

        One that cannot be built is left out: without it the generation is searched by reading it.
        """
        built = []
        for index in self.indexes:
            try:
                build_index(dataset, index.definition, index.model)
            except (OSError, ValueError, RuntimeError) as error:
                _log.warning(
                    "shard.generation_index_not_built",
                    index=index.definition.name,
                    generation=dataset.uri,
                    error=str(error),
                )
            else:
                built.append(index.definition)
        return tuple(built)


def _is_worth_building(index: GenerationIndex, num_rows: int) -> bool:
    """Whether a generation of so many rows gains from an index.

    A vector index that has not learnt anything yet gives a generation nothing to compare with.
    """
    if index.definition.kind.is_vector and index.model is None:
        return False
    return num_rows >= _MIN_ROWS[index.definition.kind]


def _is_on(index: GenerationIndex, schema: pa.Schema) -> bool:
    """Whether rows of a schema have the column of an index."""
    at = schema.get_field_index(index.definition.column)
    if at < 0:
        return False
    return index.field_id is None or field_id(schema.field(at)) in (None, index.field_id)
