"""CSV values: the types for Arrow's reader, and conversion of those it cannot read itself."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from weir.cli.input.rows import ReadRequest, bad_value, row_place
from weir.cli.json_text import from_json_type, parse_json_column
from weir.errors import InputError
from weir.rows.failing_rows import first_failing
from weir.schema.list_cast import infinities

__all__ = ["HEADER_ROWS", "convert_options", "converted", "explained", "read_type"]

_COLUMN_ERROR = re.compile(
    r"In CSV column #(\d+): (?:Row #(\d+): )?(?:CSV conversion error to .*?: )?(.*)", re.DOTALL
)
_ROW_ERROR = re.compile(r"CSV parse error: Row #(\d+): (.*)", re.DOTALL)
HEADER_ROWS = 1
"""Rows of the file, as Arrow counts them, before the first row of data."""


def convert_options(request: ReadRequest, types: Mapping[str, pa.DataType]) -> pa_csv.ConvertOptions:
    """Return how the CSV reader is to read some columns, and no others."""
    return pa_csv.ConvertOptions(
        column_types=dict(types),
        include_columns=list(types),
        null_values=list(request.null_values),
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )


def read_type(kind: pa.DataType) -> pa.DataType:
    """Return the type as which the CSV reader is to read a column; text if it cannot read its type."""
    types = pa.types
    if types.is_dictionary(kind):
        return read_type(kind.value_type)
    if types.is_nested(kind) or types.is_decimal256(kind) or _is_binary(kind):
        return pa.string()
    if types.is_floating(kind):
        # As numbers, those that are too large would be infinite like those that say so.
        return pa.string()
    if isinstance(kind, pa.BaseExtensionType):
        return read_type(kind.storage_type)
    return kind


def converted(batch: pa.RecordBatch, fields: Sequence[pa.Field], name: str, first_row: int) -> pa.Table:
    """Return what the CSV reader has read, in the types that were asked for.

    Raises
    ------
    SchemaError
        If a value does not fit its column.
    """
    columns = [
        _converted(batch.column(number), field, name, first_row) for number, field in enumerate(fields)
    ]
    return pa.table(columns, schema=pa.schema([pa.field(one.name, one.type) for one in fields]))


def _converted(column: pa.Array, field: pa.Field, name: str, first_row: int) -> pa.Array:
    if column.type == field.type:
        return column
    convert = _conversion(field.type)
    try:
        return convert(column)
    except pa.ArrowInvalid as error:

        def works(start: int, stop: int) -> bool:
            try:
                convert(column.slice(start, stop - start))
            except pa.ArrowInvalid:
                return False
            return True

        row = first_failing(len(column), works)
        raise bad_value(name, first_row + row, field, f"{column[row].as_py()!r} ({error})") from error


def _conversion(kind: pa.DataType) -> Callable[[pa.Array], pa.Array]:
    if pa.types.is_nested(kind):
        return lambda column: parse_json_column(column, kind)
    if _is_binary(kind):
        return lambda column: from_json_type(column, kind)
    if pa.types.is_floating(kind):
        return lambda column: _numbers(column, kind)
    if isinstance(kind, pa.BaseExtensionType):
        stored = _conversion(kind.storage_type)
        return lambda column: pa.ExtensionArray.from_storage(kind, stored(column))
    return lambda column: column.cast(kind)


def _numbers(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    # Blanks and tabs around numbers the reader passes over itself, and a cast does not.
    numbers = pc.ascii_trim_whitespace(texts).cast(pa.float64())
    infinite = infinities(numbers)
    # Of all numbers only "inf" and "infinity" have these letters.
    if infinite and infinite > pc.sum(pc.match_substring(texts, "inf", ignore_case=True)).as_py():
        raise pa.ArrowInvalid("a number is too large")
    return from_json_type(numbers, kind)


def explained(
    error: pa.ArrowInvalid, name: str, header: Sequence[str], fields: Sequence[pa.Field]
) -> InputError:
    """Say in our words what the CSV reader says in its own."""
    text = str(error)
    in_column = _COLUMN_ERROR.match(text)
    if in_column is not None:
        column, row, reason = in_column.groups()
        field = next(one for one in fields if one.name == header[int(column)])
        return bad_value(name, None if row is None else int(row) - HEADER_ROWS, field, reason)
    in_row = _ROW_ERROR.match(text)
    if in_row is not None:
        row, reason = in_row.groups()
        return InputError(f"this is not CSV: {reason}", where=row_place(name, int(row) - HEADER_ROWS))
    return InputError(f"this is not CSV: {text}", where=name)


def _is_binary(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_binary(kind)
        or types.is_large_binary(kind)
        or types.is_fixed_size_binary(kind)
        or isinstance(kind, pa.UuidType)
    )
