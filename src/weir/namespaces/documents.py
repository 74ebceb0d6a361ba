"""Documents as rows of a namespace's table: every value checked, every attribute a column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from weir.errors import InputError
from weir.namespaces.attributes import Attribute, AttributeType, Kind, infer_type, parse_type
from weir.namespaces.definition import Definition
from weir.namespaces.names import ID, VECTOR, check_attribute_name, column_of
from weir.namespaces.values import as_column
from weir.namespaces.vectors import one_vector
from weir.namespaces.write import Documents

__all__ = [
    "MOST_BYTES",
    "column_table",
    "id_column",
    "infer_id_kind",
    "inferred_attributes",
    "row_bytes",
    "row_sizes",
    "row_table",
]

MOST_BYTES = 1 << 30
"""Bytes of the documents that one write writes whole, missing values too: a missing vector takes as many."""
_MOST_ID_BYTES = 64


def infer_id_kind(ids: Sequence[Any]) -> Kind:
    """Infer the type of undeclared ids.

    Raises
    ------
    InputError
        If they are of several kinds, or of none.

    Examples
    --------
    >>> str(infer_id_kind([1, 2])), str(infer_id_kind(["a"]))
    ('uint', 'string')
    """
    kinds = {*map(type, ids)}
    for kind, taken in ((Kind.UINT, {int}), (Kind.STRING, {str}), (Kind.UUID, {UUID})):
        if kinds == taken:
            return kind
    names = ", ".join(sorted("null" if one is type(None) else one.__name__ for one in kinds))
    raise InputError(f"ids are whole numbers, texts or UUIDs, all of one kind, got {names}")


def id_column(kind: Kind, ids: Sequence[Any]) -> pa.Array:
    """Return ids as the key column.

    Raises
    ------
    InputError
        If one is of another kind, missing, or a text of no or more than 64 bytes.
    """
    for row, one in enumerate(ids):
        if one is None:
            raise InputError(f"row {row}: the document has no id")
    column = as_column(ID, AttributeType(kind), ids)
    if kind is Kind.STRING:
        lengths = [len(one.encode()) for one in ids]
        for row, length in enumerate(lengths):
            if not 1 <= length <= _MOST_ID_BYTES:
                raise InputError(f"row {row}: an id has 1 to {_MOST_ID_BYTES} bytes, this one has {length}")
        for row, one in enumerate(ids):
            if "\0" in one:
                raise InputError(f"row {row}: an id cannot contain NUL")
    return column


def inferred_attributes(documents: Documents, definition: Definition) -> dict[str, Attribute]:
    """Return the attributes of documents that the namespace does not have yet, with their inferred types.

    Raises
    ------
    InputError
        If a name cannot be that of an attribute, or values are of no one type.
    """
    found: dict[str, Attribute] = {}
    for name, values in documents.values.items():
        if name in definition.attributes or name == ID:
            continue
        check_attribute_name(name)
        type = _inferred(name, values)
        if type is not None:
            found[name] = Attribute(
                name=name, type=type, metric=definition.metric if type.is_vector else None
            )
    return found


def _inferred(name: str, values: Sequence[Any]) -> AttributeType | None:
    if name == VECTOR:
        for row, value in enumerate(values):
            if value is not None:
                try:
                    return parse_type(f"[{len(one_vector(value))}]f32")
                except InputError as error:
                    raise InputError(f"row {row}: attribute {name!r}: {error.message}") from error
        return None
    try:
        return infer_type(list(values))
    except InputError as error:
        at_fault = next((at for at, value in enumerate(values) if isinstance(value, dict)), None)
        where = "" if at_fault is None else f"row {at_fault}: "
        raise InputError(f"{where}attribute {name!r}: {error.message}") from error


def column_table(documents: Documents, definition: Definition) -> pa.Table:
    """Return the columns that documents give, the id first.

    Raises
    ------
    InputError
        If a value does not fit its attribute, or columns are of different lengths.
    """
    rows = len(documents.ids)
    arrays = [id_column(definition.id_kind, documents.ids)]
    names = [ID]
    for name, values in documents.values.items():
        if len(values) != rows:
            raise InputError(f"attribute {name!r} has {len(values)} values for {rows} ids")
        attribute = definition.attributes.get(name)
        if attribute is None:  # no document has it
            continue
        arrays.append(as_column(name, attribute.type, values))
        names.append(attribute.column)
    return pa.Table.from_arrays(arrays, names)


def row_table(given: pa.Table, definition: Definition) -> pa.Table:
    """Return whole documents: with every column, null where a document lacks it.

    Raises
    ------
    InputError
        If a document of a namespace with vectors has none, or they take more bytes than one write does.
    """
    vector = definition.attributes.get(VECTOR)
    if vector is not None and vector.type.is_vector:
        there = np.ones(0, dtype=bool)
        if vector.column in given.schema.names:
            there = given.column(vector.column).is_valid().to_numpy()
        if not len(there) or not there.all():
            row = int(np.argmin(there)) if len(there) else 0
            raise InputError(f"row {row}: attribute 'vector' is {vector.type}, but every document needs one")
    schema = definition.schema
    if given.num_rows * row_bytes(schema) > MOST_BYTES:
        raise InputError(
            f"{given.num_rows:,} documents of the namespace take more than {MOST_BYTES:,} bytes",
            hint="Write fewer of them at a time",
        )
    columns = [
        given.column(one.name) if one.name in given.schema.names else pa.nulls(given.num_rows, one.type)
        for one in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def row_bytes(schema: pa.Schema) -> int:
    """Return what a row takes, about: exactly for values of fixed width, a guess for texts and lists."""
    total = 0
    for type in schema.types:
        vector = pa.types.is_fixed_size_list(type)
        try:
            bits = type.list_size * type.value_type.bit_width if vector else type.bit_width
        except ValueError:
            bits = 8 * 32
        total += max(bits // 8, 1)
    return total


def row_sizes(rows: pa.Table) -> npt.NDArray[np.int64]:
    """Return about how many bytes each row takes; for all at once, which takes little longer than for one.

    Examples
    --------
    >>> row_sizes(pa.table({"id": pa.array([1, 2], pa.uint64()), "s": ["", "walrus"]})).tolist()
    [12, 18]
    """
    sizes = np.zeros(rows.num_rows, dtype=np.int64)
    for column in rows.columns:
        type = column.type
        if pa.types.is_string(type) or pa.types.is_list(type):
            sizes += 4
            is_list = pa.types.is_list(type)
            lengths = pc.list_value_length(column) if is_list else pc.binary_length(column)
            width = row_bytes(pa.schema([("", type.value_type)])) if is_list else 1
            sizes += width * pc.fill_null(lengths, 0).to_numpy().astype(np.int64)
        else:
            sizes += row_bytes(pa.schema([("", type)]))
    return sizes


def patch_values(values: Mapping[str, Any], definition: Definition, rows: int) -> pa.Table:
    """Return the same values for a number of documents, without ids."""
    arrays, names = [], []
    for name, value in values.items():
        attribute = definition.attributes.get(name)
        if attribute is None:
            continue
        one = as_column(name, attribute.type, [value])
        arrays.append(one.take(pa.array(np.zeros(rows, dtype=np.int64))))
        names.append(column_of(name))
    return pa.Table.from_arrays(arrays, names) if arrays else pa.table({})
