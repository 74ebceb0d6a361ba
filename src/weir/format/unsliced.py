"""Copying slices of nested structs before they go to the Lance library.

Arrow hands data from one library to the other without a copy, as buffers and an offset. The released
library counts the offset of a struct inside a struct twice and panics ("end <= self.len()"). Rows that a
caller has filtered or sliced, and pieces of a large MemTable, come with such offsets.
"""

from __future__ import annotations

from typing import TypeVar

import pyarrow as pa

__all__ = ["unsliced"]

T = TypeVar("T", pa.Table, pa.RecordBatch)


def unsliced(rows: T) -> T:
    """Return the same rows, with no struct that holds a struct and starts at an offset.

    Columns in which there can be none are not copied.

    Examples
    --------
    >>> places = pa.table({"place": [{"at": {"x": 1}}, {"at": {"x": 2}}]})
    >>> unsliced(places.slice(1))["place"].chunk(0).offset
    0
    """
    for number, field in enumerate(rows.schema):
        if not _has_struct_in_struct(field.type):
            continue
        column = rows.column(number)
        chunked = isinstance(column, pa.ChunkedArray)
        # Concatenating copies what the slice shows, at every depth.
        chunks = [pa.concat_arrays([chunk]) for chunk in (column.chunks if chunked else [column])]
        rows = rows.set_column(number, field, pa.chunked_array(chunks, field.type) if chunked else chunks[0])
    return rows


def _has_struct_in_struct(type: pa.DataType, inside: bool = False) -> bool:
    is_struct = pa.types.is_struct(type)
    if is_struct and inside:
        return True
    children = (type.field(number).type for number in range(type.num_fields))
    return any(_has_struct_in_struct(child, is_struct or inside) for child in children)
