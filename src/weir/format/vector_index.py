"""The model in files of Lance's vector indexes: the codebook and the partition sizes.

Reads them; Weir never writes one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from weir.errors import CorruptionError
from weir.format import messages
from weir.format.buffers import Bytes
from weir.format.proto import vector_index_pb2

__all__ = ["Quantiser", "decode_partition_sizes", "decode_tensor", "partitions_buffer", "read_quantiser"]

_TYPES: dict[int, np.dtype[Any]] = {
    vector_index_pb2.Tensor.FLOAT16: np.dtype("<f2"),
    vector_index_pb2.Tensor.FLOAT32: np.dtype("<f4"),
    vector_index_pb2.Tensor.FLOAT64: np.dtype("<f8"),
    vector_index_pb2.Tensor.UINT8: np.dtype("u1"),
}


@dataclass(frozen=True, slots=True)
class Quantiser:
    """How product quantisation turns a vector into a code.

    Parameters
    ----------
    num_sub_vectors : int
        Into how many parts a vector is cut.
    num_bits : int
        Bits of each part's code.
    dimension : int
        Length of a vector.
    codebook_buffer : int
        Which global buffer of the file holds the codebook.
    """

    num_sub_vectors: int
    num_bits: int
    dimension: int
    codebook_buffer: int


def read_quantiser(metadata: Mapping[str, bytes], *, where: str) -> Quantiser:
    """Return what the schema metadata of an IVF_PQ index's storage file says of its quantiser.

    Raises
    ------
    CorruptionError
        If it says nothing, or nothing sensible.
    """
    try:
        told = json.loads(json.loads(metadata["storage_metadata"])[0])
        found = Quantiser(
            num_sub_vectors=int(told["num_sub_vectors"]),
            num_bits=int(told["nbits"]),
            dimension=int(told["dimension"]),
            codebook_buffer=int(told["codebook_position"]),
        )
    except (KeyError, IndexError, TypeError, ValueError) as error:
        raise CorruptionError(
            f"a vector index does not record its encoding: {error!r}", where=where
        ) from error
    if found.num_sub_vectors < 1 or found.dimension % found.num_sub_vectors:
        raise CorruptionError(
            f"vectors of length {found.dimension} cannot be split into {found.num_sub_vectors} parts",
            where=where,
        )
    return found


def partitions_buffer(metadata: Mapping[str, bytes], *, where: str) -> int:
    """Return which global buffer of a vector index's storage file describes the partitions.

    Raises
    ------
    CorruptionError
        If the schema metadata does not say.
    """
    try:
        return int(metadata["lance:ivf"])
    except (KeyError, ValueError) as error:
        raise CorruptionError("a vector index does not record its partitions", where=where) from error


def decode_partition_sizes(data: Bytes, *, where: str) -> npt.NDArray[np.int64]:
    """Return how many rows each partition of a segment has.

    Raises
    ------
    CorruptionError
        If the bytes do not describe partitions.
    """
    message = messages.parse(
        vector_index_pb2.Partitions(), data, what="description of partitions", where=where
    )
    return np.asarray(message.lengths, dtype=np.int64)


def decode_tensor(data: Bytes, *, where: str) -> npt.NDArray[Any]:
    """Return a serialised tensor as an array of its shape.

    Raises
    ------
    CorruptionError
        If the bytes are no tensor, or one of numbers that NumPy does not have.
    """
    message = messages.parse(vector_index_pb2.Tensor(), data, what="tensor", where=where)
    type = _TYPES.get(message.data_type)
    shape = tuple(message.shape)
    if type is None:
        raise CorruptionError(f"a tensor has numbers of an unknown type {message.data_type}", where=where)
    if math.prod(shape) * type.itemsize != len(message.data):
        raise CorruptionError(
            f"a tensor of the shape {shape} cannot have {len(message.data)} bytes of {type.name}", where=where
        )
    return np.frombuffer(message.data, dtype=type).reshape(shape)
