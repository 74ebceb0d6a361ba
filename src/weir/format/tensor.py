"""The tensor in which Lance stores the codebook of a vector index. Reads it; Weir never writes one."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from weir.errors import CorruptionError
from weir.format import messages
from weir.format.buffers import Bytes
from weir.format.proto import tensor_pb2

__all__ = ["decode_tensor"]

_TYPES = {
    tensor_pb2.Tensor.FLOAT16: np.dtype("<f2"),
    tensor_pb2.Tensor.FLOAT32: np.dtype("<f4"),
    tensor_pb2.Tensor.FLOAT64: np.dtype("<f8"),
    tensor_pb2.Tensor.UINT8: np.dtype("u1"),
}


def decode_tensor(data: Bytes, *, where: str) -> npt.NDArray[np.generic]:
    """Return a serialised tensor as an array of its shape.

    Raises
    ------
    CorruptionError
        If the bytes are no tensor, or one of numbers that NumPy does not have.
    """
    message = messages.parse(tensor_pb2.Tensor(), data, what="tensor", where=where)
    type = _TYPES.get(message.data_type)
    shape = tuple(message.shape)
    if type is None:
        raise CorruptionError(f"a tensor has numbers of an unknown type {message.data_type}", where=where)
    if math.prod(shape) * type.itemsize != len(message.data):
        raise CorruptionError(
            f"a tensor of the shape {shape} cannot have {len(message.data)} bytes of {type.name}", where=where
        )
    return np.frombuffer(message.data, dtype=type).reshape(shape)
