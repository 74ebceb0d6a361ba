"""Building an index on a Lance dataset: the base table, some of its fragments, or a flushed generation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import lance
from lance.dataset import Index
from lance.indices import IndexConfig

from weir.indexing.definition import IndexDefinition
from weir.indexing.kinds import IndexKind
from weir.indexing.vector_model import VectorModel

__all__ = ["build_index", "build_segment"]

# The library takes these apart from the call's own parameters.
_CONFIGURED = {IndexKind.ZONEMAP: "zonemap", IndexKind.BLOOMFILTER: "bloomfilter"}


def build_index(
    dataset: lance.LanceDataset, definition: IndexDefinition, model: VectorModel | None = None
) -> None:
    """Build an index over all rows of a dataset and commit it there, in place of one of the same name.

    Parameters
    ----------
    dataset : LanceDataset
        The dataset; it is moved to the version with the index.
    definition : IndexDefinition
        The index.
    model : VectorModel, optional
        What a vector index is to share with another. Default: it is trained on the rows.
    """
    kind, arguments = _arguments(definition, model)
    if definition.kind.is_vector:
        dataset.create_index(definition.column, str(kind), name=definition.name, replace=True, **arguments)
    else:
        dataset.create_scalar_index(definition.column, kind, name=definition.name, replace=True, **arguments)


def build_segment(
    dataset: lance.LanceDataset,
    definition: IndexDefinition,
    fragment_ids: Sequence[int],
    model: VectorModel | None = None,
) -> Index:
    """Build an index over some fragments of a dataset without committing it.

    Returns
    -------
    Index
        The segment, for ``commit_existing_index_segments``.
    """
    kind, arguments = _arguments(definition, model)
    return dataset.create_index_uncommitted(
        definition.column,
        kind,
        name=definition.name,
        # Otherwise the library refuses the name, which is taken by the segments that are there.
        replace=True,
        fragment_ids=list(fragment_ids),
        **arguments,
    )


def _arguments(definition: IndexDefinition, model: VectorModel | None) -> tuple[Any, dict[str, Any]]:
    parameters = dict(definition.parameters)
    if definition.kind in _CONFIGURED:
        return IndexConfig(_CONFIGURED[definition.kind], parameters), {}
    if not definition.kind.is_vector:
        return str(definition.kind), parameters
    if model is not None:
        parameters |= {"ivf_centroids": model.centroids, "num_partitions": model.num_partitions}
        if model.codebook is not None:
            parameters |= {
                "pq_codebook": model.codebook,
                "num_sub_vectors": model.num_sub_vectors,
                "num_bits": model.num_bits,
            }
    return str(definition.kind), parameters
