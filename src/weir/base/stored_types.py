"""Column types that a table cannot store, or that the released library cannot read back from its log."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence

import lance
import pyarrow as pa

from weir.errors import SchemaError
from weir.format.keys import key_note

__all__ = ["check_stored_types", "check_type", "refuse_blobs", "refuse_unheld", "unreadable_by_library"]

_BLOB = b"lance-encoding:blob"
_BLOB_EXTENSION = "lance.blob"
_JSON_EXTENSIONS = ("arrow.json", "lance.json")
_WITHOUT_NULLS = ("legacy", "0.1", "2.0")
_WITHOUT_MAPS = (*_WITHOUT_NULLS, "2.1")

_MOST_LEVELS = 62
"""Largest nesting depth of lists, structs and maps: beyond it, the library cannot pass a schema to Arrow."""

_OF_ANY_LENGTH: tuple[Callable[[pa.DataType], bool], ...] = (
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_string_view,
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_binary_view,
)


def refuse_blobs(schema: pa.Schema) -> None:
    """Refuse blob columns: a read gives their places in files that only the base table has.

    Raises
    ------
    SchemaError
        Naming the column.
    """
    for path, field in _fields(schema):
        if (field.metadata or {}).get(_BLOB) == b"true" or _extension(field).startswith(_BLOB_EXTENSION):
            raise SchemaError(
                f"column {path!r} is a blob column, which log entries and generations cannot hold",
                where=path,
                hint="Store it as large_binary, without the metadata lance-encoding:blob",
            )


def check_type(kind: pa.DataType, path: str, *, levels: int = _MOST_LEVELS) -> None:
    """Refuse types that Lance writes and cannot read back or merge, at any depth.

    Parameters
    ----------
    kind : DataType
        The type of the column, or of a part of it.
    path : str
        Which.
    levels : int, default 62
        How deep it may be nested.

    Raises
    ------
    SchemaError
        Naming the column, or the part of it.
    """
    types = pa.types
    levels -= 2 if types.is_map(kind) else types.is_nested(kind)
    if levels < 0:
        raise SchemaError(
            f"a column is nested more than {_MOST_LEVELS} levels deep",
            where=path,
            hint="Store the deeply nested part as JSON in a text column",
        )
    if types.is_dictionary(kind) and kind.index_type.bit_width < 32:
        raise SchemaError(
            f"column {path!r} is a dictionary with {kind.index_type} indices, too few for the values of "
            "several batches together",
            where=path,
            hint="Use 32-bit indices, or the type of the values",
        )
    if types.is_fixed_size_binary(kind) and not kind.byte_width:
        raise SchemaError(f"column {path!r} has values of 0 bytes, which Lance cannot read back", where=path)
    if types.is_fixed_size_list(kind) and (
        types.is_nested(kind.value_type)
        or types.is_dictionary(kind.value_type)
        or any(has_any(kind.value_type) for has_any in _OF_ANY_LENGTH)
    ):
        raise SchemaError(
            f"Lance cannot store a fixed-size list of {kind.value_type}", where=path, hint="Use a list"
        )
    if types.is_map(kind):
        check_type(kind.key_type, path, levels=levels)
        check_type(kind.item_type, path, levels=levels)
    if types.is_struct(kind):
        if not kind.num_fields:
            raise SchemaError(f"column {path!r} is a struct without fields", where=path)
        names = [field.name for field in kind]
        doubled = next((name for name in names if names.count(name) > 1), None)
        if doubled is not None:
            raise SchemaError(f"column {path!r} has two fields called {doubled!r}", where=f"{path}.{doubled}")
        for field in kind:
            check_type(field.type, f"{path}.{field.name}", levels=levels)
    elif types.is_list(kind) or types.is_large_list(kind):
        check_type(kind.value_type, path, levels=levels)


def check_stored_types(dataset: lance.LanceDataset) -> None:
    """Refuse a dataset that takes rows which no merge could bring into its files.

    Raises
    ------
    SchemaError
        Naming the column: it is a blob, or has a type that Lance cannot read back or store.
    """
    refuse_blobs(dataset.schema)
    for field in dataset.schema:
        check_type(field.type, field.name)
    refuse_unheld(dataset, dataset.schema)


def refuse_unheld(dataset: lance.LanceDataset, schema: pa.Schema, known: Container[str] = ()) -> None:
    """Refuse columns that the files of a dataset cannot hold: Lance finds it out when it writes the rows.

    Parameters
    ----------
    dataset : LanceDataset
        With files of one format.
    schema : Schema
        The columns.
    known : container of str, default ()
        Paths of those, and of parts of those, that it has already.

    Raises
    ------
    SchemaError
        Naming the column: a map in files older than 2.2, a struct or dictionary that may be null in files
        older than 2.1.
    """
    version = str(dataset.data_storage_version)
    if version not in _WITHOUT_MAPS:
        return
    for path, field in _fields(schema):
        if path in known:
            continue
        kind = field.type
        if pa.types.is_map(kind):
            raise _unheld(path, kind, f"files of Lance's format {version} hold none", "2.2")
        is_marked = pa.types.is_struct(kind) or pa.types.is_dictionary(kind)
        if is_marked and field.nullable and version in _WITHOUT_NULLS:
            raise _unheld(path, kind, f"files of Lance's format {version} hold no nulls of it", "2.1")


def _unheld(path: str, kind: pa.DataType, why: str, since: str) -> SchemaError:
    return SchemaError(
        f"column {path!r} is {kind}, and {why}",
        where=path,
        hint=f"Rewrite the dataset with data_storage_version={since!r} or newer, and adopt that",
    )


def unreadable_by_library(schema: pa.Schema, primary_key: Sequence[str]) -> str:
    """Return why the released library cannot read rows of a schema back from a log, or ``""`` if it can."""
    note = key_note([schema.field(name).type for name in primary_key])
    if note:
        return note
    found = next((path for path, field in _fields(schema) if _extension(field) in _JSON_EXTENSIONS), None)
    return "" if found is None else f"it cannot read the JSON column {found!r} back from the log"


def _extension(field: pa.Field) -> str:
    if isinstance(field.type, pa.BaseExtensionType):
        return str(field.type.extension_name)
    return ((field.metadata or {}).get(b"ARROW:extension:name") or b"").decode()


def _fields(schema: pa.Schema) -> Iterator[tuple[str, pa.Field]]:
    """Yield every field at every depth, with its path."""
    waiting = [(field.name, field) for field in schema]
    while waiting:
        path, field = waiting.pop()
        yield path, field
        if not pa.types.is_map(field.type):
            children = (field.type.field(number) for number in range(field.type.num_fields))
            waiting += [(f"{path}.{child.name}", child) for child in children]
        else:
            waiting += [
                (f"{path}.{part.name}", part) for part in (field.type.key_field, field.type.item_field)
            ]
