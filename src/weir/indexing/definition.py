"""The definition of an index as a value: enough to build the same index on other rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from weir.errors import IndexDefinitionError
from weir.indexing.kinds import IndexKind

__all__ = ["METRICS", "IndexDefinition"]

_INVERTED = frozenset(
    {
        "ascii_folding",
        "base_tokenizer",
        "block_size",
        "custom_stop_words",
        "language",
        "lower_case",
        "max_ngram_length",
        "max_token_length",
        "min_ngram_length",
        "prefix_only",
        "remove_stop_words",
        "stem",
        "with_position",
    }
)
_PARAMETERS: Mapping[IndexKind, frozenset[str]] = {
    IndexKind.BTREE: frozenset(),
    IndexKind.BITMAP: frozenset(),
    IndexKind.ZONEMAP: frozenset({"rows_per_zone"}),
    IndexKind.BLOOMFILTER: frozenset({"number_of_items", "probability"}),
    IndexKind.NGRAM: frozenset(),
    IndexKind.LABEL_LIST: frozenset(),
    IndexKind.INVERTED: _INVERTED,
    IndexKind.IVF_FLAT: frozenset({"metric", "num_partitions"}),
    IndexKind.IVF_PQ: frozenset({"metric", "num_partitions", "num_sub_vectors", "num_bits"}),
    IndexKind.IVF_HNSW_SQ: frozenset({"metric", "num_partitions", "m", "ef_construction"}),
}
METRICS = ("l2", "cosine", "dot")
"""The metrics of the vector indexes that Weir builds."""


@dataclass(frozen=True, slots=True)
class IndexDefinition:
    """An index on one column.

    Parameters
    ----------
    name : str
        Its name, unique in the table.
    column : str
        The column.
    kind : IndexKind
        What kind of index it is.
    parameters : mapping of str to object
        Its parameters, named as in Lance. Lance chooses the ones left out.

    Raises
    ------
    IndexDefinitionError
        If the kind has no such parameter.
    """

    name: str
    column: str
    kind: IndexKind
    parameters: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    def __post_init__(self) -> None:
        """Check the parameters."""
        known = _PARAMETERS[self.kind]
        for name in self.parameters:
            if name not in known:
                raise IndexDefinitionError(
                    f"an index of kind {self.kind} has no parameter {name!r}",
                    where=self.column,
                    hint=f"Its parameters are {', '.join(sorted(known))}" if known else "It has none",
                )
        metric = self.parameters.get("metric")
        if metric is not None and str(metric).lower() not in METRICS:
            raise IndexDefinitionError(
                f"there is no metric {metric!r}",
                where=self.column,
                hint=f"The metrics are {', '.join(METRICS)}",
            )

    @property
    def metric(self) -> str:
        """How a vector index measures distance: ``l2``, ``cosine`` or ``dot``."""
        return str(self.parameters.get("metric", "l2")).lower()

    def check_column(self, schema: pa.Schema) -> None:
        """Refuse a column that does not exist or cannot have the index.

        Raises
        ------
        IndexDefinitionError
            Naming the column and what the kind is for.
        """
        if self.column not in schema.names:
            raise IndexDefinitionError(
                f"the table has no column {self.column!r}",
                where="column",
                hint=f"The columns are {', '.join(schema.names)}",
            )
        type = schema.field(self.column).type
        if not self.kind.accepts(type):
            raise IndexDefinitionError(
                f"a column of type {type} cannot have an index of kind {self.kind}",
                where=self.column,
                hint=f"It is for {self.kind.columns}",
            )
