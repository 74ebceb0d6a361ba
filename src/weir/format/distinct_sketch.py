"""Sketches that count distinct values: theta sketches of Apache DataSketches, as bytes.

A union has the same bytes whatever the order and number of steps in which it was made. So the versions of a
row combine to the same value before and after a flush and a merge.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from weir.errors import InputError, SchemaError

__all__ = ["SKETCH", "check_sketches", "estimate_of", "library", "sketch_of", "union_of"]

SKETCH = b"weir:sketch"
"""Key in the metadata of a field whose values are sketches."""

_LOG_SIZE = 12
"""Up to 4,096 values are counted exactly; a sketch has 32 KiB at most, and an error of 1.6 %."""

_EMPTY = "\uffff"
"""Counted for the empty text, which the library passes over: a character that no text is made of."""


def library() -> Any:
    """Return the library.

    Raises
    ------
    InputError
        If it is not installed.
    """
    try:
        return import_module("datasketches")
    except ImportError as error:
        raise InputError(
            "sketches need the package datasketches", hint="pip install 'weir-lance[sketches]'"
        ) from error


def sketch_of(values: pa.Array | pa.ChunkedArray) -> bytes:
    """Return the sketch of some values; nulls do not count.

    Raises
    ------
    InputError
        If a sketch cannot count values of the type.
    """
    sketch = library().update_theta_sketch(_LOG_SIZE)
    # By the library's interface, one by one; each distinct value once.
    for value in pc.unique(_plain(values)).drop_null().to_pylist():
        sketch.update(_EMPTY if value == "" else value)
    return union_of([sketch.compact().serialize()])


def _plain(values: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    kind = values.type
    if pa.types.is_dictionary(kind):
        return _plain(values.cast(kind.value_type))
    if pa.types.is_uint64(kind):
        # The library treats numbers beyond signed 64 bits as doubles, and loses digits.
        together = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
        return together.view(pa.int64())
    if pa.types.is_integer(kind) or pa.types.is_float32(kind) or pa.types.is_float64(kind):
        return values
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return values
    if pa.types.is_boolean(kind):
        return values.cast(pa.int8())
    if pa.types.is_date32(kind) or pa.types.is_time32(kind):
        return values.cast(pa.int32())
    if pa.types.is_date64(kind) or pa.types.is_time64(kind) or pa.types.is_timestamp(kind):
        return values.cast(pa.int64())
    raise InputError(
        f"values of type {kind} cannot be counted by a sketch",
        where="values",
        hint="Use numbers, texts, times or booleans; cast others to text",
    )


def union_of(sketches: Iterable[bytes]) -> bytes:
    """Return the sketch of all values that some sketches count.

    Raises
    ------
    InputError
        If something is not a sketch.
    """
    datasketches = library()
    union = datasketches.theta_union(_LOG_SIZE)
    for sketch in sketches:
        union.update(_read(datasketches, sketch))
    stored: bytes = union.get_result().serialize()
    return stored


def estimate_of(sketch: bytes) -> float:
    """Return about how many distinct values a sketch counts.

    Raises
    ------
    InputError
        If it is not a sketch.
    """
    estimate: float = _read(library(), sketch).get_estimate()
    return estimate


def _read(datasketches: Any, sketch: bytes) -> Any:
    if not isinstance(sketch, bytes):
        raise InputError(f"a sketch is bytes, got {sketch!r:.80}", hint="Make one by weir.sketches.of")
    try:
        return datasketches.compact_theta_sketch.deserialize(sketch)
    except (RuntimeError, ValueError, IndexError, TypeError) as error:
        raise InputError(
            f"{sketch[:20]!r} is not a sketch: {error}", hint="Make one by weir.sketches.of"
        ) from error


def check_sketches(column: pa.ChunkedArray, name: str, *, first_row: int = 0) -> None:
    """Refuse values that are no sketches: once durable, they could never be flushed.

    Raises
    ------
    SchemaError
        If one is none.
    """
    values: Sequence[bytes | None] = column.to_pylist()
    for row, value in enumerate(values, first_row):
        if value is None:
            continue
        try:
            union_of([value])
        except InputError as error:
            raise SchemaError(
                f"column {name!r} holds no sketch in row {row}: {error.message}",
                where=f"{name}, row {row}",
                hint="Make one by weir.sketches.of",
            ) from error
