"""Arrow columns as JSON text and back, whole columns at a time.

JSON has fewer types than Arrow. What it lacks is written like this, and read back from it:

=====================  ==========================================================================
Arrow                  JSON
=====================  ==========================================================================
timestamp              text, ``2013-01-01T10:00:00.000000Z``; with a time zone always in UTC with
                       ``Z``, without one never with ``Z``; as many decimals as the unit has
date, time             text, ``2013-01-01`` and ``10:00:00.000000``
duration               number of units
decimal                text, ``"10.50"`` (numbers are read too)
binary                 text in Base64
UUID                   text, ``12345678-1234-5678-1234-567812345678``
vector, list           array
struct                 object with every column, also those that are null
map                    array of objects with ``key`` and ``value``
NaN and infinities     text, ``"NaN"``, ``"Infinity"``, ``"-Infinity"`` (written only)
=====================  ==========================================================================
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pa_json

from weir.cli.base64_text import decode_base64, encode_base64
from weir.schema.list_cast import cast_array, infinities
from weir.schema.uuid_text import texts_of_uuids, uuids_of_texts

__all__ = ["from_json_type", "json_column", "json_lines", "json_type", "parse_json_column"]

_CONTROL_CHARACTERS = "[\\x00-\\x1f\\x7f]"


def json_lines(batch: pa.RecordBatch) -> Iterator[str]:
    """Yield every row as one line of JSON, without the line break.

    Examples
    --------
    >>> list(json_lines(pa.record_batch({"id": [1, 2], "key": [b"x", None]})))
    ['{"id":1,"key":"eA=="}', '{"id":2,"key":null}']
    """
    yield from _objects(batch.schema.names, batch.columns, batch.num_rows).to_pylist()


def json_column(column: pa.Array) -> pa.Array:
    """Return the JSON text of every value; ``null`` is a text too.

    Parameters
    ----------
    column : pyarrow.Array
        A column of any type a table can have.

    Returns
    -------
    pyarrow.Array
        A column of type ``large_string``, without nulls.
    """
    return _text(column).fill_null("null")


def json_type(data_type: pa.DataType) -> pa.DataType:
    """Return the type as which JSON values of a column are read before :func:`from_json_type`."""
    types = pa.types
    if types.is_floating(data_type):
        # As a narrower one, what is too large would be read as infinite.
        return pa.float64()
    if types.is_date(data_type) or types.is_time(data_type) or _is_binary(data_type):
        return pa.string()
    if isinstance(data_type, pa.UuidType):
        return pa.string()
    if types.is_duration(data_type):
        return pa.int64()
    if types.is_dictionary(data_type):
        return json_type(data_type.value_type)
    if isinstance(data_type, pa.BaseExtensionType):
        return json_type(data_type.storage_type)
    if _is_list(data_type):
        return pa.list_(json_type(data_type.value_type))
    if types.is_struct(data_type):
        return pa.struct([pa.field(field.name, json_type(field.type)) for field in data_type])
    if types.is_map(data_type):
        return pa.list_(
            pa.struct([("key", json_type(data_type.key_type)), ("value", json_type(data_type.item_type))])
        )
    return data_type


def from_json_type(column: pa.Array, data_type: pa.DataType) -> pa.Array:
    """Return a column that was read as :func:`json_type` says in the type that is meant.

    Raises
    ------
    pyarrow.ArrowInvalid
        If a value does not fit.
    """
    types = pa.types
    if column.type == data_type:
        return column
    if isinstance(data_type, pa.UuidType):
        return uuids_of_texts(column).cast(data_type)
    if isinstance(data_type, pa.BaseExtensionType):
        stored = from_json_type(column, data_type.storage_type)
        return pa.ExtensionArray.from_storage(data_type, stored)
    if _is_binary(data_type):
        return decode_base64(column).cast(data_type)
    if types.is_time(data_type):
        return _times(column, data_type)
    if types.is_list(column.type):
        element = data_type.field(0) if types.is_map(data_type) else data_type.value_field
        if types.is_fixed_size_list(data_type):
            _refuse_other_sizes(column, data_type.list_size)
        values = from_json_type(column.flatten(), element.type)
        rebuilt = pa.ListArray.from_arrays(
            _offsets(column), values, pa.list_(values.type), mask=column.is_null()
        )
        return _map(rebuilt, data_type) if types.is_map(data_type) else cast_array(rebuilt, data_type)
    if types.is_struct(data_type):
        unknown = {field.name for field in column.type} - {field.name for field in data_type}
        if unknown:
            raise pa.ArrowInvalid(f"there is no field {min(unknown)!r}")
        children = [
            from_json_type(child, field.type)
            for child, field in zip(column.flatten(), data_type, strict=True)
        ]
        _refuse_null_children(children, column, data_type)
        return pa.StructArray.from_arrays(children, fields=list(data_type), mask=column.is_null())
    fitted = column.cast(data_type)
    if infinities(fitted) > infinities(column):
        raise pa.ArrowInvalid("a number is too large")
    return fitted


def parse_json_column(column: pa.Array, data_type: pa.DataType) -> pa.Array:
    """Return the values of a column of JSON texts.

    Parameters
    ----------
    column : pyarrow.Array
        A column of type ``string``.
    data_type : pyarrow.DataType
        What the texts hold.

    Raises
    ------
    pyarrow.ArrowInvalid
        If a text is not JSON, or its value does not fit.
    """
    if not len(column):
        return pa.array([], data_type)
    # Raw line breaks may stand between the parts of a JSON text; inside a string they are not JSON.
    texts = pc.replace_substring_regex(column.fill_null("null"), "[\r\n]", " ")
    lines = pc.binary_join_element_wise('{"v":', texts, "}", "")
    data = "\n".join(lines.to_pylist()).encode()
    table = pa_json.read_json(
        pa.BufferReader(data),
        pa_json.ReadOptions(use_threads=False, block_size=len(data) + 1),
        pa_json.ParseOptions(
            explicit_schema=pa.schema([("v", json_type(data_type))]), unexpected_field_behavior="error"
        ),
    )
    if table.num_rows != len(column):
        raise pa.ArrowInvalid("a value is not one JSON text")
    return from_json_type(table.column("v").combine_chunks(), data_type)


def _text(column: pa.Array) -> pa.Array:
    """Return the JSON text of every value that is not null, and null or ``null`` for the others."""
    types, kind = pa.types, column.type
    if isinstance(kind, pa.UuidType):
        return _quoted(texts_of_uuids(column).cast(pa.large_string()))
    if isinstance(column, pa.ExtensionArray):
        return _text(column.storage)
    if types.is_dictionary(kind):
        return _text(column.dictionary_decode())
    if types.is_null(kind):
        return pa.nulls(len(column), pa.large_string())
    if types.is_floating(kind):
        return _float_text(column)
    if types.is_boolean(kind) or types.is_integer(kind):
        return column.cast(pa.large_string())
    if types.is_duration(kind):
        return column.cast(pa.int64()).cast(pa.large_string())
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return _quoted(_escaped(column.cast(pa.large_string())))
    if _is_binary(kind):
        return _quoted(encode_base64(column))
    if types.is_timestamp(kind):
        if kind.tz is not None:
            column = column.cast(pa.timestamp(kind.unit, "UTC"))
        # A time outside the calendar is shown as Arrow prints it.
        text = column.cast(pa.large_string())
        return _quoted(pc.replace_substring_regex(text, r"^([-+0-9]+) ", r"\1T"))
    if types.is_map(kind):
        pairs = pa.struct([("key", kind.key_type), ("value", kind.item_type)])
        return _text(column.cast(pa.list_(pairs)))
    if _is_list(kind):
        return _list_text(column)
    if types.is_struct(kind):
        names = [field.name for field in kind]
        objects = _objects(names, column.flatten(), len(column))
        return pc.if_else(column.is_valid(), objects, pa.scalar(None, pa.large_string()))
    # Dates, times and decimals.
    return _quoted(column.cast(pa.large_string()))


def _objects(names: Sequence[str], columns: Sequence[pa.Array], count: int) -> pa.Array:
    parts: list[object] = []
    for number, (name, column) in enumerate(zip(names, columns, strict=True)):
        head = "{" if number == 0 else ","
        parts += [
            pa.scalar(f"{head}{json.dumps(name, ensure_ascii=False)}:", pa.large_string()),
            json_column(column),
        ]
    if not parts:
        return pa.repeat(pa.scalar("{}", pa.large_string()), count)
    return pc.binary_join_element_wise(*parts, _LARGE_BRACE, _LARGE_EMPTY)


_LARGE_EMPTY = pa.scalar("", pa.large_string())
_LARGE_BRACE = pa.scalar("}", pa.large_string())
_LARGE_QUOTE = pa.scalar('"', pa.large_string())


def _list_text(column: pa.Array) -> pa.Array:
    texts = json_column(column.flatten())
    lists = pa.ListArray.from_arrays(_offsets(column), texts)
    joined = pc.binary_join(lists, pa.scalar(",", pa.large_string()))
    bracketed = pc.binary_join_element_wise(
        pa.scalar("[", pa.large_string()), joined, pa.scalar("]", pa.large_string()), _LARGE_EMPTY
    )
    return pc.if_else(column.is_valid(), bracketed, pa.scalar(None, pa.large_string()))


def _offsets(column: pa.Array) -> pa.Array:
    """Return where each list begins in the flattened values, which leave out the lists that are null."""
    lengths = pc.list_value_length(column).fill_null(0).to_numpy(zero_copy_only=False)
    return pa.array(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))


def _float_text(column: pa.Array) -> pa.Array:
    if pa.types.is_float16(column.type):
        column = column.cast(pa.float32())
    text = column.cast(pa.large_string())
    finite = pc.is_finite(column)
    if pc.all(finite).as_py() is not False:
        return text
    infinity = pc.if_else(pc.greater(column, 0), '"Infinity"', '"-Infinity"')
    named = pc.if_else(pc.is_nan(column), '"NaN"', infinity).cast(pa.large_string())
    return pc.if_else(finite, text, named)


def _escaped(column: pa.Array) -> pa.Array:
    column = pc.replace_substring(pc.replace_substring(column, "\\", "\\\\"), '"', '\\"')
    if pc.any(pc.match_substring_regex(column, _CONTROL_CHARACTERS)).as_py():
        for code in (*range(0x20), 0x7F):
            column = pc.replace_substring(column, chr(code), f"\\u{code:04x}")
    return column


def _quoted(column: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(_LARGE_QUOTE, column, _LARGE_QUOTE, _LARGE_EMPTY)


def _times(column: pa.Array, data_type: pa.DataType) -> pa.Array:
    # Arrow reads times of day only as part of a timestamp.
    unit = data_type.unit
    stamps = pc.binary_join_element_wise("1970-01-01T", column, "").cast(pa.timestamp(unit))
    return stamps.cast(data_type)


def _map(column: pa.Array, data_type: pa.DataType) -> pa.Array:
    pairs = column.flatten()
    keys, values = pairs.flatten()
    if keys.null_count:
        raise pa.ArrowInvalid("a map key is null")
    offsets = _offsets(column).to_numpy()
    # A null offset marks a map that is null.
    marked = pa.array(offsets, mask=np.append(column.is_null().to_numpy(zero_copy_only=False), False))
    return pa.MapArray.from_arrays(marked, keys, values, data_type)


def _refuse_other_sizes(column: pa.Array, size: int) -> None:
    lengths = pc.unique(pc.list_value_length(column).drop_null())
    for length in lengths.to_pylist():
        if length != size:
            raise pa.ArrowInvalid(f"it has {length} elements instead of {size}")


def _refuse_null_children(children: Sequence[pa.Array], parent: pa.Array, data_type: pa.DataType) -> None:
    for child, field in zip(children, data_type, strict=True):
        if not field.nullable and pc.any(pc.and_(child.is_null(), parent.is_valid())).as_py():
            raise pa.ArrowInvalid(f"{field.name!r} cannot be null")


def _is_binary(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind))


def _is_list(kind: pa.DataType) -> bool:
    types = pa.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))
