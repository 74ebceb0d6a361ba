"""The vector index of the base table, or of a generation, as a search needs it."""

from __future__ import annotations

from dataclasses import dataclass

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from weir.base.index_list import list_indexes
from weir.base.table import BaseTable
from weir.lsm.damage import reading
from weir.lsm.generation import Generation
from weir.search.vector.ivf_partitions import Centroids

__all__ = ["VectorIndex", "generation_vector_index", "vector_index"]

_QUANTIZED = ("PQ", "SQ", "RQ")


@dataclass(frozen=True, slots=True)
class VectorIndex:
    """The vector index of one column.

    Parameters
    ----------
    name : str
        Its name.
    kind : str
        Its kind: ``"IVF_PQ"`` and the like.
    metric : str
        The metric it was made for.
    rows : int
        Rows that it covers.
    centroids : Centroids or None
        Its centroids, if they can be read.
    """

    name: str
    kind: str
    metric: str
    rows: int
    centroids: Centroids | None

    @property
    def is_quantized(self) -> bool:
        """Whether the distances it yields are estimates."""
        return self.kind.endswith(_QUANTIZED)

    @property
    def nbytes(self) -> int:
        """Bytes it takes in memory."""
        return 4096 + (0 if self.centroids is None else self.centroids.vectors.nbytes)


def vector_index(base: BaseTable, column: str) -> VectorIndex | None:
    """Return the vector index on a column of the base table, or None if it has none."""
    key = ("vector index", base.namespace, base.version_key, column)
    # Wrapped, because the cache takes None for a miss.
    return base.engine.cache.get_or_load(
        key,
        lambda: (_find(base.dataset, column),),
        lambda found: found[0].nbytes if found[0] else 0,
        base.lifetime,
    )[0]


def generation_vector_index(namespace: str, generation: Generation, column: str) -> VectorIndex | None:
    """Return the vector index on a column of a generation, or None if it has none.

    Parameters
    ----------
    namespace : str
        Identity of the table, for the cache.
    """
    key = ("vector index", namespace, generation.identity, column)
    return generation.store.engine.cache.get_or_load(
        key, lambda: (_find(generation.dataset, column),), lambda found: found[0].nbytes if found[0] else 0
    )[0]


def _find(dataset: lance.LanceDataset, column: str) -> VectorIndex | None:
    # Of several the library may take any. One that estimates distances has them all refined.
    for described in sorted(list_indexes(dataset), key=lambda one: not one.index_type.endswith(_QUANTIZED)):
        if described.field_names != [column] or not isinstance(described.details, dict):
            continue
        metric = described.details.get("metric_type")
        if metric is None:
            continue
        centroids = None
        # One that was made before there were vectors to learn from has no file yet.
        if described.index_type.startswith("IVF") and described.num_rows_indexed:
            with reading(f"the index {described.name!r}", dataset.uri):
                vectors = _centroids(dataset.get_ivf_model(described.name).centroids)
            if vectors is not None:
                uuids = "".join(sorted(str(segment.uuid) for segment in described.segments))
                centroids = Centroids(uuids, vectors, metric.lower())
        return VectorIndex(
            described.name,
            described.index_type,
            metric.lower(),
            described.num_rows_indexed,
            centroids,
        )
    return None


def _centroids(stored: pa.Array | None) -> npt.NDArray[np.float32] | None:
    if stored is None or not pa.types.is_floating(stored.type.value_type):
        return None
    values: npt.NDArray[np.float32] = stored.flatten().to_numpy(zero_copy_only=False).astype(np.float32)
    return values.reshape(len(stored), stored.type.list_size)
