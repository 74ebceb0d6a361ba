"""Summarising a generation's rows for its catalog, while they are in memory."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from weir.format.generation_catalog import ColumnSummary, GenerationCatalog
from weir.format.wal_entry import TOMBSTONE
from weir.indexing.definition import IndexDefinition
from weir.write.flush.generation_rows import GenerationRows

__all__ = ["summarize"]

_LONGEST_BOUND = 256
"""Bytes of text above which a bound is not worth its place."""


def summarize(rows: GenerationRows, built: Iterable[IndexDefinition]) -> GenerationCatalog:
    """Return the catalog of a generation.

    Parameters
    ----------
    rows : GenerationRows
        Its rows.
    built : iterable of IndexDefinition
        The indexes it has.
    """
    kinds: dict[str, list[str]] = {}
    for definition in built:
        kinds.setdefault(definition.column, []).append(str(definition.kind))
    columns = {}
    for column in rows.written.schema:
        if column.name == TOMBSTONE:
            continue
        values = rows.columns((column.name,))[0] if _has_order(column.type) else None
        low, high = (None, None) if values is None else _bounds(values)
        nulls = values.null_count if values is not None else 0
        of_column = tuple(kinds.get(column.name, ()))
        if of_column or low is not None:
            columns[column.name] = ColumnSummary(of_column, nulls, low, high)
    (tombstones,) = rows.columns((TOMBSTONE,))
    return GenerationCatalog(rows.num_rows, int(tombstones.true_count), columns)


def _bounds(values: pa.Array) -> tuple[pa.Scalar | None, pa.Scalar | None]:
    if pa.types.is_floating(values.type):
        return _float_bounds(values)
    found = pc.min_max(values)
    low, high = found["min"], found["max"]
    if not low.is_valid or not high.is_valid:
        return None, None
    if _is_text(values.type) and max(low.as_buffer().size, high.as_buffer().size) > _LONGEST_BOUND:
        return None, None
    return low, high


def _float_bounds(values: pa.Array) -> tuple[pa.Scalar | None, pa.Scalar | None]:
    # NumPy takes a twentieth of Arrow's time, and passes a NaN on, which Arrow skips.
    numbers = values.drop_null().to_numpy()
    if not numbers.size:
        return None, None
    low, high = numbers.min(), numbers.max()
    # Filters treat it as greater than every number.
    return (None, None) if np.isnan(low) else (pa.scalar(low, values.type), pa.scalar(high, values.type))


def _is_text(type: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(type)
        or pa.types.is_large_string(type)
        or pa.types.is_binary(type)
        or pa.types.is_large_binary(type)
    )


def _has_order(type: pa.DataType) -> bool:
    return _is_text(type) or bool(
        pa.types.is_integer(type)
        or (pa.types.is_floating(type) and not pa.types.is_float16(type))
        or pa.types.is_boolean(type)
        or pa.types.is_date(type)
        or pa.types.is_timestamp(type)
        or pa.types.is_time(type)
    )
