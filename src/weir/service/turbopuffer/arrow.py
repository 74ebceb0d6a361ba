"""Upserts as an Arrow stream: vectors are used without conversion."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from weir.errors import InputError
from weir.namespaces import Documents, Write
from weir.namespaces.names import ID, check_attribute_name
from weir.namespaces.vectors import VectorRows
from weir.namespaces.write import check_values
from weir.service.arrow_stream import read_stream
from weir.service.fields import known_only
from weir.service.openapi import members
from weir.service.turbopuffer.schema import parse_metric
from weir.service.turbopuffer.shapes import WriteParameters
from weir.service.turbopuffer.writes import refuse_doubled

__all__ = ["ARROW", "parse_arrow"]

ARROW = "application/vnd.apache.arrow.stream"
"""The media type of an Arrow stream."""


def parse_arrow(body: bytes, parameters: Mapping[str, str], *, most_rows: int, most_bytes: int) -> Write:
    """Return the upsert in an Arrow stream: a column ``id``, and one for each attribute.

    Parameters
    ----------
    body : bytes
        The stream.
    parameters : mapping of str to str
        The query parameters: ``distance_metric``.
    most_rows, most_bytes : int
        The limits on its decompressed content.

    Raises
    ------
    InputError
        If it is not valid.
    Refusal
        413 if it contains more.
    """
    given = {name: value for name, value in parameters.items() if not name.startswith("stainless")}
    known_only(given, members(WriteParameters), "the parameters of a write in Arrow")
    table = read_stream(body, most_rows=most_rows, most_bytes=most_bytes)
    names = table.schema.names
    if ID not in names or len({*names}) < len(names):
        raise InputError("the stream has a column 'id', and no column twice")
    for name in names:
        check_attribute_name(name)
    check_values(table.num_rows, table.num_columns)
    columns = {name: _values(name, table.column(name)) for name in names}
    write = Write(
        upserts=Documents(columns.pop(ID), columns), metric=parse_metric(given.get("distance_metric"))
    )
    refuse_doubled(write)
    return write


def _values(name: str, column: pa.ChunkedArray) -> Sequence[Any]:
    type = column.type
    if pa.types.is_fixed_size_list(type):
        if not pa.types.is_floating(type.value_type) or not type.list_size:
            raise InputError(
                f"attribute {name!r}: a vector is of floating numbers, and not {type.value_type}"
            )
        return VectorRows(column.combine_chunks())
    if pa.types.is_list(type) or pa.types.is_large_list(type):
        if pa.types.is_nested(type.value_type):
            raise InputError(f"attribute {name!r}: an attribute has no lists of {type.value_type}")
        check_values(pc.sum(pc.list_value_length(column)).as_py() or 0, 1)
    try:
        values: list[Any] = column.to_pylist()
    except (pa.ArrowException, ValueError, OverflowError) as error:
        raise InputError(f"attribute {name!r} has values that no attribute has") from error
    if pa.types.is_fixed_size_binary(type) and type.byte_width == 16:
        return [None if one is None else str(UUID(bytes=one)) for one in values]
    return values
