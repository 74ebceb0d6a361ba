"""Primary keys as people type them on the command line, in the types of a table's columns."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence

import pyarrow as pa

from weir.cli.json_text import from_json_type
from weir.errors import KeyValueError

__all__ = ["parse_keys"]


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
        except (ValueError, RecursionError) as error:
            raise KeyValueError(f"the key {text!r} is not JSON: {error}", where=text) from error
        if isinstance(value, dict):
            if sorted(value) != sorted(primary_key):
                raise _wrong_parts(text, primary_key)
            value = [value[name] for name in primary_key]
        if any(one is None or isinstance(one, (list, dict)) for one in value):
            raise _wrong_parts(text, primary_key)
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
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, UnicodeEncodeError) as error:
        raise KeyValueError(
            f"{part!r} does not fit key column {field.name!r} of type {field.type}: {error}", where=text
        ) from error
