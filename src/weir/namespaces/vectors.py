"""Vectors from clients, as Arrow columns: base64 of little-endian float32, lists or arrays."""

from __future__ import annotations

import binascii
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from weir.errors import InputError

__all__ = [
    "Base64Texts",
    "VectorRows",
    "one_vector",
    "vector_column",
    "vectors_of",
    "vectors_to_base64",
    "vectors_to_lists",
]

_Vectors = npt.NDArray[np.float32]
_Decode = Callable[[list[str]], list[bytes]]


class Base64Texts(list[Any]):
    """A column of texts, which are base64 vectors if the attribute is a vector.

    Parameters
    ----------
    texts : iterable
        The texts; None where one is missing.
    decode : callable
        Decodes many faster than the standard library. It raises ValueError if it does not read one of them:
        they are read by the standard library then.
    """

    def __init__(self, texts: Iterable[Any], decode: _Decode) -> None:
        super().__init__(texts)
        self.decode = decode


class VectorRows(Sequence[Any]):
    """A column of vectors in Arrow, as values that are taken together.

    Parameters
    ----------
    column : FixedSizeListArray of numbers
        The vectors.
    """

    def __init__(self, column: pa.FixedSizeListArray) -> None:
        self.present = column.is_valid().to_numpy(zero_copy_only=False)
        elements = column.drop_null().flatten()
        if elements.null_count:
            rows = np.flatnonzero(elements.is_null().to_numpy(zero_copy_only=False)) // column.type.list_size
            raise InputError(f"row {np.flatnonzero(self.present)[rows[0]]}: a vector holds a null")
        flat = elements.to_numpy(zero_copy_only=False)
        with np.errstate(over="ignore"):
            self.matrix = flat.reshape(-1, column.type.list_size).astype(np.float32, copy=False)

    def __len__(self) -> int:
        return len(self.present)

    def __getitem__(self, row: Any) -> Any:
        """Return one vector, or None."""
        if isinstance(row, slice):
            return [self[one] for one in range(*row.indices(len(self)))]
        if not self.present[row]:
            return None
        return self.matrix[np.count_nonzero(self.present[: range(len(self))[row]])]


def one_vector(value: object) -> _Vectors:
    """Return one vector, of whatever dimension.

    Raises
    ------
    InputError
        If it is no vector of finite numbers.

    Examples
    --------
    >>> one_vector([1, 2.5]).tolist(), one_vector("AACAPwAAAEA=").tolist()
    ([1.0, 2.5], [1.0, 2.0])
    """
    vector = _decoded(value)
    if not vector.size:
        raise InputError("a vector has at least one dimension")
    if not np.isfinite(vector).all():
        raise InputError("a vector holds a number that is not finite")
    return vector


def _decoded(value: object) -> _Vectors:
    if isinstance(value, str):
        try:
            raw = binascii.a2b_base64(value, strict_mode=True)
        except (binascii.Error, ValueError) as error:
            raise InputError(f"a vector is not base64: {error}") from error
        if len(raw) % 4:
            raise InputError(f"a vector in base64 has 4 bytes for every dimension, this one has {len(raw)}")
        return np.frombuffer(raw, dtype="<f4").astype(np.float32, copy=False)
    if isinstance(value, np.ndarray | list | tuple):
        try:
            array = np.asarray(value)
        except (ValueError, TypeError, OverflowError) as error:
            raise InputError(f"a vector is a list of numbers: {error}") from error
        if array.ndim == 1 and (array.dtype.kind in "iuf" or not array.size) and not _holds_truth(value):
            with np.errstate(over="ignore"):
                return array.astype(np.float32)
    raise InputError(f"a vector is a list of numbers, or base64, got {type(value).__name__}")


def _holds_truth(vector: Iterable[Any]) -> bool:
    """Whether a vector contains booleans, which NumPy would turn into 1 and 0."""
    return not isinstance(vector, np.ndarray) and bool in {*map(type, vector)}


def vectors_of(values: Sequence[Any], dimensions: int | None) -> tuple[_Vectors, npt.NDArray[np.bool_]]:
    """Return vectors as a matrix, and which of them are there.

    Parameters
    ----------
    values : sequence
        Vectors; None for those that are missing.
    dimensions : int, optional
        What each has to have. Default: what the first has.

    Raises
    ------
    InputError
        Naming the row whose vector cannot be used.
    """
    if isinstance(values, VectorRows):
        if dimensions is not None and values.matrix.shape[1] != dimensions:
            raise InputError(
                f"row 0: the vector has {values.matrix.shape[1]} dimensions, and not {dimensions}"
            )
        _refuse_infinite(values.matrix, values.present)
        return values.matrix, values.present
    present = np.fromiter((value is not None for value in values), dtype=bool, count=len(values))
    given = [value for value in values if value is not None]
    kinds = {*map(type, given)}
    matrix: _Vectors | None = None
    if kinds == {str}:
        matrix = _from_base64(given, values.decode if isinstance(values, Base64Texts) else _with_binascii)
    elif kinds <= {list, tuple}:
        matrix = _from_lists(given)
    if matrix is None or (dimensions is not None and matrix.shape[1] != dimensions and len(matrix)):
        matrix = _one_by_one(values, dimensions)
    _refuse_infinite(matrix, present)
    return matrix, present


def _refuse_infinite(matrix: _Vectors, present: npt.NDArray[np.bool_]) -> None:
    finite = np.isfinite(matrix).all(axis=1)
    if not finite.all():
        row = int(np.flatnonzero(present)[int(np.argmin(finite))])
        raise InputError(f"row {row}: the vector holds a number that is not finite")


def _with_binascii(texts: list[str]) -> list[bytes]:
    return [binascii.a2b_base64(text, strict_mode=True) for text in texts]


def _from_base64(given: list[str], decode: _Decode) -> _Vectors | None:
    """Return vectors of one length; None if they are not, or one cannot be read."""
    try:
        raw = decode(given)
    except ValueError:
        return None
    length = len(raw[0])
    if length % 4 or not length or any(len(one) != length for one in raw):
        return None
    return np.frombuffer(b"".join(raw), dtype="<f4").reshape(len(raw), length // 4)


def _from_lists(given: list[Any]) -> _Vectors | None:
    try:
        array = np.array(given)
    except (ValueError, TypeError, OverflowError):
        return None
    if array.ndim != 2 or array.dtype.kind not in "iuf" or not array.shape[1]:
        return None
    if any(_holds_truth(given[row]) for row in np.flatnonzero(((array == 0) | (array == 1)).any(axis=1))):
        return None
    with np.errstate(over="ignore"):
        return array.astype(np.float32)


def _one_by_one(values: Sequence[Any], dimensions: int | None) -> _Vectors:
    """Return vectors that differ in form, or say which of them is not like the others."""
    found: list[_Vectors] = []
    for row, value in enumerate(values):
        if value is None:
            continue
        try:
            vector = one_vector(value)
        except InputError as error:
            raise InputError(f"row {row}: {error.message}") from error
        wanted = dimensions or (len(found[0]) if found else len(vector))
        if len(vector) != wanted:
            raise InputError(f"row {row}: the vector has {len(vector)} dimensions, and not {wanted}")
        found.append(vector)
    return np.stack(found) if found else np.empty((0, dimensions or 0), dtype=np.float32)


def vector_column(matrix: _Vectors, present: npt.NDArray[np.bool_], bits: int) -> pa.Array:
    """Return vectors as a column, with nulls where they are missing.

    Raises
    ------
    InputError
        If a number does not fit into the bits.
    """
    dimensions = matrix.shape[1]
    values: npt.NDArray[Any] = matrix
    if bits == 16:
        with np.errstate(over="ignore"):
            values = matrix.astype(np.float16)
        if not np.isfinite(values).all():
            raise InputError("a vector holds a number that is too large for f16")
    if not present.all():
        spread = np.zeros((len(present), dimensions), dtype=values.dtype)
        spread[present] = values
        values = spread
    flat = pa.array(np.ascontiguousarray(values).reshape(-1))
    mask = None if present.all() else pa.array(~present)
    return pa.FixedSizeListArray.from_arrays(flat, dimensions, mask=mask)


def vectors_to_base64(column: pa.Array) -> list[str | None]:
    """Return a column of vectors in base64, each of little-endian float32."""
    matrix = _matrix(column)
    return [
        None if vector is None else binascii.b2a_base64(vector.tobytes(), newline=False).decode()
        for vector in matrix
    ]


def vectors_to_lists(column: pa.Array) -> list[list[float] | None]:
    """Return a column of vectors as lists of numbers."""
    return [None if vector is None else vector.tolist() for vector in _matrix(column)]


def _matrix(column: pa.Array) -> list[_Vectors | None]:
    dimensions = column.type.list_size
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    present = column.is_valid().to_numpy(zero_copy_only=False)
    flat = column.drop_null().flatten().to_numpy(zero_copy_only=False).astype("<f4")
    rows = iter(flat.reshape(-1, dimensions))
    return [next(rows) if there else None for there in present]
