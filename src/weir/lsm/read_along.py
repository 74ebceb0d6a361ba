"""Which columns of a generation are read together with its keys, because a scan is about to read them.

A second read of a few thousand rows takes as long as the first, most of it for its beginning.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from weir.lsm.generation import Generation

__all__ = ["MOST_BYTES", "MOST_ROWS", "is_read_along"]

MOST_ROWS = 100_000
"""Up to how many rows of a generation are kept in the cache when they have been read."""

MOST_BYTES = 2 << 20
"""Up to what size they are."""


def is_read_along(source: Generation, columns: Sequence[str]) -> bool:
    """Whether some columns of a generation are in it as they are, and so small that they are kept."""
    rows = source.flushed.physical_rows
    if rows > MOST_ROWS or not source.columns.is_same(columns):
        return False
    schema = source.columns.schema
    widths = {field.name: _width(field.type) for field in schema}
    nbytes = sum(rows * (widths[name] or 0) for name in columns)
    if any(widths[name] is None for name in columns):
        if source.flushed.in_memory_bytes is None:
            return False
        # All that is not of the other columns, at most.
        fixed = sum(rows * width for width in widths.values() if width is not None)
        nbytes += max(source.flushed.in_memory_bytes - fixed, 0)
    return nbytes <= MOST_BYTES


def _width(kind: pa.DataType) -> int | None:
    """Return the bytes that a value takes; None if that varies."""
    if pa.types.is_fixed_size_list(kind):
        inner = _width(kind.value_type)
        return None if inner is None else inner * int(kind.list_size)
    try:
        return max(int(kind.bit_width) // 8, 1)
    except ValueError:
        return None
