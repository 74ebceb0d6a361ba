"""The trained part of a vector index: centroids of its partitions and, for product quantisation, codebooks.

Indexes that share them put a vector into the same partition and give it the same code, so that the
distances they estimate can be compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from lance.file import LanceFileReader

from weir.format import vector_index
from weir.indexing.kinds import IndexKind

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
    dataset: lance.LanceDataset,
    name: str,
    kind: IndexKind,
    segment: str,
    storage_options: Mapping[str, str] | None = None,
) -> VectorModel:
    """Return the model of a vector index that has been trained.

    Parameters
    ----------
    dataset : LanceDataset
        The dataset that has the index.
    name : str
        The index.
    kind : IndexKind
        Its kind.
    segment : str
        The uuid of one of its segments. All have the same model unless they were trained apart.
    storage_options : mapping of str to str, optional
        How to reach its files.

    Raises
    ------
    CorruptionError
        If the files of the index are not as the library writes them.
    """
    centroids = dataset.get_ivf_model(name).centroids
    if kind is not IndexKind.IVF_PQ:
        return VectorModel(centroids)
    reader, where = _storage_file(dataset, segment, storage_options)
    quantiser = vector_index.read_quantiser(reader.metadata().schema.metadata or {}, where=where)
    tensor = vector_index.decode_tensor(reader.read_global_buffer(quantiser.codebook_buffer), where=where)
    codebook = pa.FixedSizeListArray.from_arrays(
        pa.array(tensor.reshape(-1)), quantiser.dimension // quantiser.num_sub_vectors
    )
    return VectorModel(centroids, codebook, quantiser.num_sub_vectors, quantiser.num_bits)


def partition_sizes(
    dataset: lance.LanceDataset,
    segments: Iterable[str],
    storage_options: Mapping[str, str] | None = None,
) -> npt.NDArray[np.int64]:
    """Return how many rows each partition of a vector index has, in some of its segments together.

    Raises
    ------
    CorruptionError
        If a segment's files are not as the library writes them.
    """
    sizes: list[npt.NDArray[np.int64]] = []
    for segment in segments:
        reader, where = _storage_file(dataset, segment, storage_options)
        buffer = vector_index.partitions_buffer(reader.metadata().schema.metadata or {}, where=where)
        sizes.append(vector_index.decode_partition_sizes(reader.read_global_buffer(buffer), where=where))
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


def _storage_file(
    dataset: lance.LanceDataset, segment: str, storage_options: Mapping[str, str] | None
) -> tuple[LanceFileReader, str]:
    path = f"{dataset.uri}/_indices/{segment}/{_STORAGE_FILE}"
    return LanceFileReader(path, storage_options=dict(storage_options or {}) or None), path
