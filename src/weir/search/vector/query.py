"""A checked vector search, as a value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from weir.errors import QueryError
from weir.schema.vectors import is_vector
from weir.search.vector.distances import METRICS

__all__ = ["MAX_K", "MAX_QUERIES", "VectorQuery", "check_k", "vector_query"]

MAX_K = 10_000
"""The most rows that a search may ask for."""

MAX_QUERIES = 1_000
"""The most query vectors of one search."""

_MAX_EFFORT = 100_000


@dataclass(frozen=True, slots=True)
class VectorQuery:
    """What a vector search asks for. Made by :func:`vector_query`.

    Parameters
    ----------
    column : str
        The vector column.
    vectors : ndarray
        One query vector per row, of the type that distances are computed in.
    batch : bool
        Whether the caller passed several vectors, so that the result says which each row is for.
    k : int
        Rows per query vector.
    metric : str or None
        ``"l2"``, ``"cosine"``, ``"dot"`` or ``"hamming"``; None for that of the base table's index.
    nprobes, refine : int or None
        Partitions of the index to look into, and how many times ``k`` candidates to rank by their exact
        distance.
    """

    column: str
    vectors: npt.NDArray[Any]
    batch: bool
    k: int
    metric: str | None
    nprobes: int | None
    refine: int | None


def vector_query(
    schema: pa.Schema,
    vector: Any,
    *,
    k: int,
    column: str | None,
    metric: str | None,
    nprobes: int | None,
    refine: int | None,
) -> VectorQuery:
    """Check what a search was asked for.

    Raises
    ------
    QueryError
        Saying what cannot be used, and what can.
    """
    column = _vector_column(schema, column)
    value_type = schema.field(column).type.value_type
    dimension = schema.field(column).type.list_size
    vectors, batch = _vectors(vector, column, dimension, value_type)
    if metric is not None:
        usable = _usable_metrics(value_type)
        if not isinstance(metric, str) or metric.lower() not in usable:
            raise QueryError(
                f"column {column!r} of {value_type} cannot be searched by the metric {metric!r}",
                where="metric",
                hint=f"Its metrics are {', '.join(usable)}",
            )
        metric = metric.lower()
    return VectorQuery(
        column,
        vectors,
        batch,
        check_k(k),
        metric,
        _effort(nprobes, "nprobes"),
        _effort(refine, "refine"),
    )


def check_k(k: int) -> int:
    """Return how many rows are asked for.

    Raises
    ------
    QueryError
        If it is not a whole number from 1 to :data:`MAX_K`.
    """
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or not 1 <= k <= MAX_K:
        raise QueryError(f"k must be a whole number from 1 to {MAX_K:,}, got {k!r:.60}", where="k")
    return int(k)


def _vector_column(schema: pa.Schema, column: str | None) -> str:
    if isinstance(column, str) and column in schema.names and is_vector(schema.field(column).type):
        return column
    vectors: list[str] = [field.name for field in schema if is_vector(field.type)]
    shown = f"The vector columns are {', '.join(vectors)}" if vectors else "The table has no vector column"
    if column is None:
        if len(vectors) == 1:
            return vectors[0]
        raise QueryError(
            f"the table has {len(vectors)} vector columns: say which", where="column", hint=shown
        )
    if not isinstance(column, str) or column not in schema.names:
        raise QueryError(f"the table has no column {column!r:.60}", where="column", hint=shown)
    raise QueryError(
        f"column {column!r} is {schema.field(column).type}, which is not a vector",
        where="column",
        hint=f"A vector is a list of fixed size of floats or uint8. {shown}",
    )


def _usable_metrics(value_type: pa.DataType) -> tuple[str, ...]:
    integer = pa.types.is_integer(value_type)
    return tuple(name for name in METRICS if (name == "hamming") == integer)


def _vectors(
    vector: Any, column: str, dimension: int, value_type: pa.DataType
) -> tuple[npt.NDArray[Any], bool]:
    array = _as_array(vector, column)
    if array.ndim not in (1, 2) or array.shape[-1] != dimension or not len(array):
        raise QueryError(
            f"column {column!r} has vectors of dimension {dimension}; the query has shape "
            f"{' x '.join(map(str, array.shape)) or 'of a single number'}",
            where="vector",
            hint="Pass one vector, or several as a list of vectors or a two-dimensional array",
        )
    batch = array.ndim == 2
    if batch and len(array) > MAX_QUERIES:
        raise QueryError(
            f"{len(array):,} query vectors are more than {MAX_QUERIES:,}",
            where="vector",
            hint="Search in several calls",
        )
    if pa.types.is_uint8(value_type):
        if not np.array_equal(array, array.astype(np.uint8)):
            raise QueryError(
                f"column {column!r} holds whole numbers from 0 to 255, but the query holds others",
                where="vector",
            )
        return np.atleast_2d(array.astype(np.uint8)), batch
    with np.errstate(over="ignore"):
        checked = array.astype(
            np.float16 if pa.types.is_float16(value_type) else value_type.to_pandas_dtype()
        )
    if not np.isfinite(checked).all():
        at = int(np.argwhere(~np.isfinite(checked))[0][-1])
        raise QueryError(
            f"element {at} of a query vector is {array[..., at].ravel()[0]}, which has no distance to "
            f"anything as {value_type}",
            where="vector",
        )
    wide = np.float64 if pa.types.is_float64(value_type) else np.float32
    return np.atleast_2d(checked.astype(wide)), batch


def _as_array(vector: Any, column: str) -> npt.NDArray[Any]:
    try:
        if isinstance(vector, pa.ChunkedArray):
            vector = vector.combine_chunks()
        if isinstance(vector, pa.Array | pa.Scalar):
            vector = vector.to_pylist() if isinstance(vector, pa.Array) else vector.as_py()
        array = np.asarray(vector)
        if array.dtype.kind in "iuf":
            return array
        # None, texts, lists of different lengths and everything else that cannot be in a vector.
        raise TypeError(f"it has elements of type {array.dtype}")
    except (TypeError, ValueError) as error:
        raise QueryError(
            f"the query for column {column!r} is not a vector of numbers: {error}",
            where="vector",
            hint="Pass a list of numbers or an array, or several as a two-dimensional array",
        ) from error


def _effort(value: int | None, name: str) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 1 <= value <= _MAX_EFFORT:
        raise QueryError(
            f"{name} must be a whole number from 1 to {_MAX_EFFORT:,}, got {value!r:.60}", where=name
        )
    return int(value)


def column_names(columns: Sequence[str] | None, schema: pa.Schema) -> tuple[str, ...]:
    """Return the columns of a result: those asked for, or all."""
    return tuple(schema.names if columns is None else columns)
