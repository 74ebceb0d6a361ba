"""The trained part of a vector index: partition centroids and, for product quantization, codebooks.

Indexes that share them put a vector into the same partition and give it the same code, so that the
distances they estimate can be compared.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from weir.format import vector_index
from weir.indexing.kinds import IndexKind
from weir.indexing.lance_file import LanceFile
from weir.storage.interface import ObjectStore

__all__ = ["VectorModel", "imbalance", "partition_sizes", "read_vector_model"]

_STORAGE_FILE = "auxiliary.idx"


@dataclass(frozen=True, slots=True)
class VectorModel:
    """What a vector index has learnt.

    Parameters
    ----------
    centroids : FixedSizeListArray
        One vector for each partition.
    codebook : FixedSizeListArray or None
        For IVF_PQ, the centroids of all sub-vectors, one sub-vector after the other.
    num_sub_vectors, num_bits : int
        For IVF_PQ, into how many parts a vector is cut, and the bits of each part's code.
    """

    centroids: pa.FixedSizeListArray
    codebook: pa.FixedSizeListArray | None = None
    num_sub_vectors: int = 0
    num_bits: int = 8

    @property
    def num_partitions(self) -> int:
        """How many partitions there are."""
        return len(self.centroids)

    @property
    def nbytes(self) -> int:
        """Bytes it takes in memory."""
        return int(self.centroids.nbytes + (self.codebook.nbytes if self.codebook is not None else 0))


def read_vector_model(
    store: ObjectStore, dataset: lance.LanceDataset, name: str, kind: IndexKind, segment: str
) -> VectorModel:
    """Return the model of a vector index that has been trained.

    Parameters
    ----------
    store : ObjectStore
        The store that has the segment.
    dataset : LanceDataset
        The dataset that has the index.
    name : str
        The index.
    kind : IndexKind
        Its kind.
    segment : str
        The uuid of one of its segments. All have the same model unless they were trained apart.

    Raises
    ------
    CorruptionError
        If the files of the index are not as the library writes them.
    """
    centroids = dataset.get_ivf_model(name).centroids
    if kind is not IndexKind.IVF_PQ:
        return VectorModel(centroids)
    file = LanceFile(store, _storage_path(segment))
    quantiser = vector_index.read_quantiser(file.metadata(), where=file.where)
    tensor = vector_index.decode_tensor(file.buffer(quantiser.codebook_buffer), where=file.where)
    codebook = pa.FixedSizeListArray.from_arrays(
        pa.array(tensor.reshape(-1)), quantiser.dimension // quantiser.num_sub_vectors
    )
    return VectorModel(centroids, codebook, quantiser.num_sub_vectors, quantiser.num_bits)


def partition_sizes(segments: Iterable[tuple[ObjectStore, str]]) -> npt.NDArray[np.int64]:
    """Return how many rows each partition of a vector index has, in some of its segments together.

    Parameters
    ----------
    segments : iterable of (ObjectStore, str)
        The segments' uuids, each with the store that has it.

    Raises
    ------
    CorruptionError
        If a segment's files are not as the library writes them.
    """
    sizes: list[npt.NDArray[np.int64]] = []
    for store, segment in segments:
        file = LanceFile(store, _storage_path(segment))
        buffer = vector_index.partitions_buffer(file.metadata(), where=file.where)
        sizes.append(vector_index.decode_partition_sizes(file.buffer(buffer), where=file.where))
    total = np.zeros(max((len(one) for one in sizes), default=0), dtype=np.int64)
    for one in sizes:
        total[: len(one)] += one
    return total


def imbalance(sizes: npt.NDArray[np.int64]) -> float:
    """Return how many times larger the largest partition is than the smallest that is not empty.

    Examples
    --------
    >>> imbalance(np.array([10, 0, 40])), imbalance(np.array([], dtype=np.int64))
    (4.0, 1.0)
    """
    filled = sizes[sizes > 0]
    return float(filled.max() / filled.min()) if filled.size else 1.0


def _storage_path(segment: str) -> str:
    return f"_indices/{segment}/{_STORAGE_FILE}"
