"""Keys from users: values alone, or rows with the primary-key columns."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence, Set, ValuesView
from typing import Any

import pyarrow as pa

from weir.errors import InputError, KeyValueError, SchemaError
from weir.rows.cast import is_text
from weir.rows.coerce import RowInput, as_column, as_table, holds_columns, whole_numbers
from weir.rows.conforming import conformed, missing_key
from weir.rows.key_texts import Column, keys_of_texts

__all__ = ["as_key_columns", "as_key_table"]

_INT64 = pa.int64()


def as_key_table(
    keys: RowInput,
    schema: pa.Schema,
    primary_key: tuple[str, ...],
    *,
    also: Collection[str] = (),
    optional: Collection[str] = (),
    to_delete: bool = False,
) -> pa.Table:
    """Return keys as a table of the primary-key columns.

    Parameters
    ----------
    keys : list, Array, table-like
        For a single-column key: a list or Arrow array of values. For any key: whole rows, or tables,
        data frames, dicts or tuples that hold the key columns; other columns are ignored. Dates, times,
        numbers and UUIDs may be texts, as the literals of a filter are.
    also : collection of str
        Columns outside the key that are needed as well, because they decide the shard.
    optional : collection of str
        Columns outside the key that are kept where they are passed.
    to_delete : bool, default False
        Whether they select rows: then a text is not an integer, as in rows that are written. ``"007"`` would
        be 7.

    Raises
    ------
    KeyValueError
        If a key column is missing or a key is null.
    SchemaError
        If a value does not fit the type of its key column.
    """
    key_schema = pa.schema([schema.field(name) for name in primary_key])
    whole = None if also else _whole_numbers(keys, schema, primary_key)
    if whole is not None:
        return pa.Table.from_arrays([whole], schema=key_schema)
    if isinstance(keys, (str, bytes, bytearray, memoryview)) or _is_single(keys):
        raise InputError(
            f"keys must be a list, an array or a table of keys, got {keys!r}",
            where="keys",
            hint=f"For one key pass a list of one: [{keys!r}]",
        )
    if isinstance(keys, Set | ValuesView) or (isinstance(keys, Iterator) and not hasattr(keys, "schema")):
        keys = list(keys)
    values = _values(keys)
    if values is not None:
        keys = pa.table({_only(primary_key): values})
    elif isinstance(keys, Sequence) and not (keys and isinstance(keys[0], Mapping)):
        keys = _keys_from_values(keys, key_schema, primary_key, to_delete)
        if not also:
            # Of integers nothing else can be wrong.
            sound = all(pa.types.is_integer(column.type) and not column.null_count for column in keys.columns)
            return keys if sound else conformed(keys, key_schema, primary_key)
    needed = [name for name in schema.names if name in primary_key or name in also or name in optional]
    if isinstance(keys, Sequence) and keys and all(isinstance(row, Mapping) for row in keys):
        present = [name for name in needed if any(name in row for row in keys)]
        keys = {name: [row.get(name) for row in keys] for name in present}
    elif isinstance(keys, Mapping):
        keys = {name: values for name, values in keys.items() if name in needed}
    if isinstance(keys, Mapping):
        keys = {
            name: _column(values, key_schema.field(name), to_delete)
            if name in primary_key and isinstance(values, list | tuple)
            else values
            for name, values in keys.items()
        }
    table = _read(as_table(keys, schema), key_schema, to_delete)
    missing = [name for name in primary_key if name not in table.schema.names]
    if missing:
        raise missing_key(missing[0], primary_key)
    outside = [name for name in schema.names if name in also and name not in primary_key]
    for name in outside:
        if name not in table.schema.names:
            raise KeyValueError(
                f"column {name!r} decides the shard of a row and is missing from the keys",
                where=name,
                hint="Pass rows that hold it, not keys alone",
            )
    outside += [name for name in optional if name not in outside and name in table.schema.names]
    wanted = pa.schema([*key_schema, *(schema.field(name) for name in outside)])
    return conformed(table.select(wanted.names), wanted, primary_key)


def as_key_columns(
    keys: RowInput, schema: pa.Schema, primary_key: tuple[str, ...]
) -> Sequence[pa.Array | pa.ChunkedArray]:
    """Return keys as the columns of :func:`as_key_table`, which for few integers take less than a table."""
    whole = _whole_numbers(keys, schema, primary_key)
    return as_key_table(keys, schema, primary_key).columns if whole is None else [whole]


def _whole_numbers(keys: RowInput, schema: pa.Schema, primary_key: tuple[str, ...]) -> pa.Array | None:
    """Return a list of integers as the only key column, of ``int64``; None for other keys and columns."""
    if len(primary_key) > 1 or schema.field(primary_key[0]).type != _INT64:
        return None
    return whole_numbers(keys)


def _is_single(keys: object) -> bool:
    if isinstance(keys, Mapping):
        return not holds_columns(keys)
    return keys is None or isinstance(keys, (int, float))


def _values(keys: RowInput) -> pa.Array | pa.ChunkedArray | None:
    """Return an Arrow array, NumPy array or data-frame column as an Arrow array, else None."""
    if isinstance(keys, (pa.Array, pa.ChunkedArray)):
        return None if isinstance(keys, pa.StructArray) else keys
    if getattr(keys, "ndim", None) == 1:
        return pa.array(keys, from_pandas=True)
    if type(keys).__name__ == "Series" and hasattr(keys, "__arrow_c_stream__"):
        return pa.chunked_array(keys)
    return None


def _only(primary_key: tuple[str, ...]) -> str:
    if len(primary_key) > 1:
        raise KeyValueError(
            f"the primary key has {len(primary_key)} columns ({', '.join(primary_key)}); an array holds one",
            where="keys",
            hint="Pass a table, dicts or tuples with every key column",
        )
    return primary_key[0]


def _keys_from_values(
    keys: Sequence[Any], schema: pa.Schema, primary_key: tuple[str, ...], to_delete: bool
) -> pa.Table:
    if len(primary_key) == 1:
        columns: list[Sequence[Any]] = [
            [one[0] if isinstance(one, tuple) and len(one) == 1 else one for one in keys]
        ]
    else:
        for row, key in enumerate(keys):
            if not isinstance(key, (tuple, list)) or len(key) != len(primary_key):
                raise KeyValueError(
                    f"key {row} is {key!r}; a key of this table has {len(primary_key)} values: "
                    f"{', '.join(primary_key)}",
                    where=f"keys[{row}]",
                )
        columns = list(zip(*keys, strict=True)) if keys else [[] for _ in primary_key]
    arrays = [_column(values, field, to_delete) for values, field in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def _column(values: Sequence[Any], field: pa.Field, to_delete: bool) -> pa.Array:
    if values and all(type(one) is str for one in values):
        read = _value_of_texts(pa.array(values), field, to_delete)
        if read.type == field.type:
            return read
    return as_column(values, field)


def _value_of_texts(column: Column, field: pa.Field, to_delete: bool) -> Column:
    if to_delete and pa.types.is_integer(field.type) and is_text(column.type):
        raise SchemaError(
            f"column {field.name!r} holds values of type {column.type} where the table has {field.type}",
            where=field.name,
            hint="Pass the keys to delete as integers",
        )
    return keys_of_texts(column, field)


def _read(table: pa.Table, key_schema: pa.Schema, to_delete: bool) -> pa.Table:
    """Return keys with the values of their columns in place of the texts that these do not take."""
    for number, name in enumerate(table.schema.names):
        if name in key_schema.names:
            column = table.column(number)
            read = _value_of_texts(column, key_schema.field(name), to_delete)
            table = table if read is column else table.set_column(number, name, read)
    return table
