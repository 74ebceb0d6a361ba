"""Values as people type them on the command line, in the types of a table's columns."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from weir.cli.json_text import from_json_type
from weir.errors import KeyValueError, OptionError

__all__ = [
    "parse_keys",
    "parse_names",
    "parse_parameters",
    "parse_storage_options",
    "parse_vector",
]


def parse_names(text: str, option: str) -> list[str]:
    """Return the names in a text with commas between them.

    Raises
    ------
    OptionError
        If a name is empty.

    Examples
    --------
    >>> parse_names("id, delay", "columns")
    ['id', 'delay']
    """
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise OptionError(f"names with commas between them are wanted, got {text!r}", where=option)
    return names


def parse_vector(text: str) -> object:
    """Return the vector, or the list of vectors, in a JSON text.

    Raises
    ------
    OptionError
        If it is no JSON array.

    Examples
    --------
    >>> parse_vector("[0.5, 1]")
    [0.5, 1]
    """
    try:
        value = json.loads(text)
    except ValueError as error:
        raise OptionError(
            f"the vector is not JSON: {error}", where="vector", hint="For example --vector '[0.1, 0.7]'"
        ) from error
    if not isinstance(value, list):
        raise OptionError(f"the vector has to be a JSON array, got {text!r:.60}", where="vector")
    return value


def parse_storage_options(texts: Sequence[str]) -> dict[str, str]:
    """Return the storage options of texts like ``region=eu-west-1``.

    Raises
    ------
    OptionError
        If a text has no name or no ``=``. It shows the name only: values are secrets.
    """
    options = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            shown = repr(name.strip()) if equals else "one without '='"
            raise OptionError(
                f"a storage option is NAME=VALUE, got {shown}",
                where="storage-option",
                hint="For example --storage-option region=eu-west-1",
            )
        options[name.strip()] = value
    return options


def parse_parameters(texts: Sequence[str]) -> dict[str, Any]:
    """Return the parameters of texts like ``num_partitions=256``.

    A value that is JSON, such as a number, ``true`` or a list, is taken as that, and any other as text.

    Raises
    ------
    OptionError
        If a text has no name or no ``=``.

    Examples
    --------
    >>> parse_parameters(["num_partitions=256", "stem=false", "language=French"])
    {'num_partitions': 256, 'stem': False, 'language': 'French'}
    """
    parameters: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise OptionError(
                f"a parameter is NAME=VALUE, got {text!r}",
                where="param",
                hint="For example --param num_partitions=256",
            )
        try:
            parameters[name.strip()] = json.loads(value)
        except ValueError:
            parameters[name.strip()] = value
    return parameters


def parse_keys(texts: Sequence[str], schema: pa.Schema, primary_key: Sequence[str]) -> pa.Table:
    """Return primary keys typed as text.

    Parameters
    ----------
    texts : sequence of str
        For a key of one column, its value. For a composite key, values with commas between them as in
        CSV (``JFK,17``), a JSON array (``["JFK", 17]``) or a JSON object with the key columns. Dates
        and times are ISO 8601, binary values Base64.
    schema : pyarrow.Schema
        The table's columns.
    primary_key : sequence of str
        Its primary-key columns.

    Raises
    ------
    KeyValueError
        If a text is not a key of the table.

    Examples
    --------
    >>> schema = pa.schema([("origin", pa.string()), ("flight", pa.int32())])
    >>> parse_keys(['JFK,17', '["LGA", 4]'], schema, ["origin", "flight"]).to_pylist()
    [{'origin': 'JFK', 'flight': 17}, {'origin': 'LGA', 'flight': 4}]
    """
    rows = [[text] if len(primary_key) == 1 else _parts(text, primary_key) for text in texts]
    columns = [
        pa.array(
            [_typed(row[number], text, schema.field(name)) for row, text in zip(rows, texts, strict=True)],
            schema.field(name).type,
        )
        for number, name in enumerate(primary_key)
    ]
    return pa.table(columns, names=list(primary_key))


def _parts(text: str, primary_key: Sequence[str]) -> list[str]:
    if text.lstrip()[:1] in ("[", "{"):
        try:
            value = json.loads(text)
        except ValueError as error:
            raise KeyValueError(f"the key {text!r} is not JSON: {error}", where=text) from error
        if isinstance(value, dict):
            if sorted(value) != sorted(primary_key):
                raise _wrong_parts(text, primary_key)
            value = [value[name] for name in primary_key]
        parts = [one if isinstance(one, str) else json.dumps(one) for one in value]
    else:
        parts = next(csv.reader([text], skipinitialspace=True), [])
    if len(parts) != len(primary_key):
        raise _wrong_parts(text, primary_key)
    return parts


def _wrong_parts(text: str, primary_key: Sequence[str]) -> KeyValueError:
    return KeyValueError(
        f"the key {text!r} does not have the parts of the primary key",
        where=text,
        hint=f"The key columns are {', '.join(primary_key)}",
    )


def _typed(part: str, text: str, field: pa.Field) -> pa.Scalar:
    try:
        return from_json_type(pa.array([part]), field.type)[0]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise KeyValueError(
            f"{part!r} does not fit key column {field.name!r} of type {field.type}: {error}", where=text
        ) from error
