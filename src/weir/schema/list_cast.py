"""Casts of Arrow arrays with lists, avoiding bugs of Arrow.

Arrow makes a vector of nulls of a null list by reading the first value of any list. Where there is no value
at all, as in the only rows of a batch that have no vector, it reads what does not belong to it: the process
dies, or the vector is accidental. And a number that is too large for a narrower floating-point type becomes
infinite in silence.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from weir.schema.uuid_text import uuids_of_texts

__all__ = ["cast", "cast_array", "infinities", "is_list"]

_MOST_DIGITS = 76
"""Of a decimal number."""
_ZEROS = pa.py_buffer(bytes(64))
"""More than any value of a plain type takes: as offsets and as data, an empty or a zero value."""


def cast(column: pa.ChunkedArray, wanted: pa.DataType) -> pa.ChunkedArray:
    """Cast a column, even if none of the lists that get a fixed size has a value.

    Raises
    ------
    ArrowInvalid, ArrowNotImplementedError
        As Arrow does.

    Examples
    --------
    >>> lists = pa.chunked_array([[None]], pa.list_(pa.float32()))
    >>> cast(lists, pa.list_(pa.float32(), 2)).to_pylist()
    [None]
    """
    return pa.chunked_array([cast_array(chunk, wanted) for chunk in column.chunks], wanted)


def cast_array(values: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Cast an array as :func:`cast` does a column."""
    kind = values.type
    if isinstance(wanted, pa.UuidType) and kind != wanted:
        if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
            return uuids_of_texts(values.cast(pa.string())).cast(wanted)
        # Of the kinds of bytes Arrow takes one alone for UUIDs.
        return cast_array(values, wanted.storage_type).cast(wanted)
    if isinstance(wanted, pa.JsonType) and kind != wanted:
        # Arrow takes neither large texts for JSON nor JSON that is stored in another type.
        texts = values.storage if isinstance(kind, pa.JsonType) else values
        return cast_array(texts, wanted.storage_type).cast(wanted)
    if pa.types.is_dictionary(kind) and pa.types.is_string_view(kind.value_type):
        # Polars' categories; Arrow does not take views by index.
        values = pa.DictionaryArray.from_arrays(values.indices, values.dictionary.cast(pa.large_string()))
    elif _holds(wanted, pa.types.is_dictionary) and _holds(kind, pa.types.is_string_view):
        # Polars' texts; Arrow makes no dictionaries of views.
        values = values.cast(_without_views(kind))
        kind = values.type
    if pa.types.is_integer(kind) and pa.types.is_decimal(wanted) and wanted.scale >= 0:
        # Arrow refuses any integer where not all of them would fit.
        return values.cast(pa.decimal256(_MOST_DIGITS, wanted.scale)).cast(wanted)
    if kind == wanted or not kind.num_fields or not _holds(wanted, pa.types.is_fixed_size_list):
        return values.cast(wanted)
    if not values.null_count and not any(part.num_fields for part in _parts(kind)):
        return values.cast(wanted)
    # With a value at the end every list has something to read.
    return pa.concat_arrays([values, _zero(kind, wanted)]).cast(wanted).slice(0, len(values))


def infinities(values: pa.Array | pa.ChunkedArray) -> int:
    """Return how many numbers are infinite, at any depth of lists and structs.

    Examples
    --------
    >>> infinities(pa.array([[1.0, float("inf")], None]))
    1
    """
    if isinstance(values, pa.ChunkedArray):
        return sum(map(infinities, values.chunks))
    kind = values.type
    if pa.types.is_floating(kind):
        return pc.sum(pc.is_inf(values)).as_py() or 0
    if is_list(kind):
        return infinities(values.flatten())
    if pa.types.is_struct(kind):
        return sum(map(infinities, values.flatten()))
    if pa.types.is_map(kind):
        return infinities(values.items)
    return 0


def is_list(kind: pa.DataType) -> bool:
    """Whether values of a type are lists, of any size or of a fixed one."""
    types = pa.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _holds(kind: pa.DataType, what: Callable[[pa.DataType], bool]) -> bool:
    """Whether a type is one of those asked for, or holds one at any depth."""
    return bool(what(kind)) or any(_holds(part, what) for part in _parts(kind))


def _without_views(kind: pa.DataType) -> pa.DataType:
    types = pa.types
    if types.is_string_view(kind):
        return pa.large_string()
    if types.is_struct(kind):
        return pa.struct([field.with_type(_without_views(field.type)) for field in kind])
    if types.is_map(kind):
        return pa.map_(_without_views(kind.key_type), _without_views(kind.item_type))
    if not is_list(kind):
        return kind
    part = kind.value_field.with_type(_without_views(kind.value_type))
    if types.is_fixed_size_list(kind):
        return pa.list_(part, kind.list_size)
    return pa.large_list(part) if types.is_large_list(kind) else pa.list_(part)


def _zero(given: pa.DataType, wanted: pa.DataType) -> pa.Array:
    """Return one value of a type, without nulls, whose lists have the required length."""
    types = pa.types
    if is_list(given):
        size = wanted.list_size if types.is_fixed_size_list(wanted) else 1
        values = pa.concat_arrays([_zero(given.value_type, wanted.value_type)] * size)
        if types.is_fixed_size_list(given):
            return pa.FixedSizeListArray.from_arrays(values, type=given)
        made = pa.LargeListArray if types.is_large_list(given) else pa.ListArray
        return made.from_arrays([0, size], values, type=given)
    if types.is_struct(given):
        parts = [_zero(one.type, other.type) for one, other in zip(given, wanted, strict=True)]
        return pa.StructArray.from_arrays(parts, fields=list(given))
    if types.is_map(given):
        keys, items = _zero(given.key_type, wanted.key_type), _zero(given.item_type, wanted.item_type)
        return pa.MapArray.from_arrays([0, 1], keys, items, type=given)
    if types.is_dictionary(given) or isinstance(given, pa.BaseExtensionType):
        return pa.nulls(1, given)
    return pa.Array.from_buffers(given, 1, [None, *[_ZEROS] * (given.num_buffers - 1)])


def _parts(kind: pa.DataType) -> list[pa.DataType]:
    return [kind.field(number).type for number in range(kind.num_fields)]
