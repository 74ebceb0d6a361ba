"""The schema of given rows, for a new table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import pyarrow as pa

from weir.errors import InputError, SchemaError
from weir.rows.coerce import as_dicts, collected, in_one_line, pieces, with_named_index
from weir.rows.decimals import roomy
from weir.rows.declared import declared_column, declared_types
from weir.schema.list_cast import cast

__all__ = ["rows_with_schema"]


def rows_with_schema(data: Any) -> tuple[pa.Schema, Any]:
    """Return the schema of data, for a new table, and the data to write into it.

    Columns of a dictionary type, as categories are, become columns of their values. Of a stream the first
    piece determines the schema. For dataclasses and models the annotations help: a field declared as
    ``float`` is one though all its values are whole, or missing. Decimals of Python, which have no type but
    digits, make columns with room for others: :func:`weir.rows.decimals.roomy`.

    Raises
    ------
    InputError
        If there are no rows in something without a schema, or it is not a kind of rows.
    SchemaError
        If a column has no value from which to infer its type.
    """
    data = collected(data)
    stream = pieces(data)
    if isinstance(data, pa.RecordBatchReader):
        return _plain(data.schema), data
    if stream is not None:
        first = next(stream, None)
        if first is None:
            raise InputError("an empty iterator has no columns", where="data", hint="Pass a pyarrow.Schema")
        return _plain(_table(first).schema), _flattened(chain([first], stream))
    table = _table(data)
    return _plain(table.schema), data


def _flattened(parts: Iterable[Any]) -> Iterator[Any]:
    for part in parts:
        if isinstance(part, list):
            yield from part
        else:
            yield part


def _table(data: Any) -> pa.Table:
    if isinstance(data, pa.Table):
        return data
    try:
        if type(data).__module__.split(".")[0] == "pandas":
            return _of_pandas(data)
        if hasattr(data, "__arrow_c_stream__"):
            return pa.table(data)
        if hasattr(data, "__arrow_c_array__"):
            return pa.Table.from_batches([pa.record_batch(data)])
        if isinstance(data, Mapping):
            return pa.table({name: _column(values) for name, values in data.items()})
        dicts = as_dicts(data) if isinstance(data, Sequence) and not isinstance(data, str | bytes) else None
        if dicts:
            names = dict.fromkeys(name for row in dicts for name in row)
            declared = declared_types(data)
            return pa.table(
                {name: _column([row.get(name) for row in dicts], declared.get(name)) for name in names}
            )
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise SchemaError(
            f"the data has no usable schema: {in_one_line(error)}",
            where="data",
            hint="Pass a pyarrow.Schema first",
        ) from error
    empty = isinstance(data, Sequence) and not data
    raise InputError(
        f"a schema cannot be taken from {'no rows' if empty else type(data).__name__}",
        where="schema",
        hint="Pass a pyarrow.Schema, or rows: Arrow, pandas, Polars, a list of dicts, dataclasses or models",
    )


def _column(values: Any, declared: pa.DataType | None = None) -> Any:
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values
    made = pa.array(values)
    if str(getattr(values, "dtype", "object")) != "object":
        return made
    kind = declared_column(roomy(made.type), declared)
    return made if kind == made.type else pa.array(values, kind)


def _of_pandas(data: Any) -> pa.Table:
    data = with_named_index(data)
    table = pa.Table.from_pandas(data, preserve_index=False)
    columns = []
    for field, column in zip(table.schema, table.columns, strict=True):
        of_objects = field.name in data and str(data[field.name].dtype) == "object"
        kind = roomy(field.type) if of_objects else field.type
        columns.append(column if kind == field.type else cast(column, kind))
    return pa.table(columns, table.schema.names)


def _plain(schema: pa.Schema) -> pa.Schema:
    columns = []
    for field in schema:
        kind = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
        untold = _untold(kind, field.name)
        if untold is not None:
            raise SchemaError(
                f"column {untold!r} has no value from which to infer its type",
                where=untold,
                hint="Create the table with a pyarrow.Schema",
            )
        if pa.types.is_string_view(kind):
            kind = pa.string()
        columns.append(pa.field(field.name, kind, field.nullable))
    return pa.schema(columns)


def _untold(kind: pa.DataType, name: str) -> str | None:
    """Return what of a column, at any depth, has a type that takes no values; None if nothing."""
    if pa.types.is_null(kind):
        return name
    of_struct = pa.types.is_struct(kind)
    inner = (kind.field(place) for place in range(kind.num_fields))
    found = (_untold(one.type, f"{name}.{one.name}" if of_struct else name) for one in inner)
    return next((one for one in found if one is not None), None)
