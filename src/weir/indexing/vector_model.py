"""The trained part of a vector index: centroids of its partitions and, for product quantisation, codebooks.

Indexes that share them put a vector into the same partition and give it the same code, so that the
distances they estimate can be compared.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import lance
import numpy as np
import pyarrow as pa
from lance.file import LanceFileReader

from weir.errors import CorruptionError
from weir.format.tensor import decode_tensor
from weir.indexing.kinds import IndexKind

__all__ = ["VectorModel", "read_vector_model"]


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


def read_vector_model(dataset: lance.LanceDataset, name: str, kind: IndexKind, segment: str) -> VectorModel:
    """Return the model of a vector index.

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

    Raises
    ------
    CorruptionError
        If the files of the index are not as the library writes them.
    """
    centroids = dataset.get_ivf_model(name).centroids
    if kind is not IndexKind.IVF_PQ:
        return VectorModel(centroids)
    path = f"{dataset.uri}/_indices/{segment}/auxiliary.idx"
    reader = LanceFileReader(path, storage_options=dataset.latest_storage_options())
    try:
        metadata = reader.metadata().schema.metadata or {}
        quantiser = json.loads(json.loads(metadata[b"storage_metadata"])[0])
        codebook = decode_tensor(reader.read_global_buffer(quantiser["codebook_position"]), where=path)
        num_sub_vectors, num_bits = int(quantiser["num_sub_vectors"]), int(quantiser["nbits"])
        flat = np.ascontiguousarray(codebook).reshape(-1)
        width = int(quantiser["dimension"]) // num_sub_vectors
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise CorruptionError(
            f"the quantiser of the index {name} cannot be read: {error}",
            where=path,
            hint="Build the index anew: table.create_index(..., replace=True)",
        ) from error
    return VectorModel(
        centroids, pa.FixedSizeListArray.from_arrays(pa.array(flat), width), num_sub_vectors, num_bits
    )
