"""JSON texts as Lance stores them: text in a log, converted by a flush to its own form.

A text that it cannot read would be durable, and no flush of its shard would ever succeed again; deep nesting
ends the process. So the library itself reads the texts before a row is accepted, and rows have from the
beginning the texts that it gives back.
"""

from __future__ import annotations

import json
import re
from uuid import uuid4

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from weir.errors import SchemaError

__all__ = ["kept_json"]

MAX_DEPTH = 128
"""Of objects and lists in each other; the library overflows its stack somewhere beyond 1,000."""

_TEXTS = re.compile(rb'"(?:[^"\\]|\\.)*"')
_OPENING = np.frombuffer(b"[{", np.uint8)
_CLOSING = np.frombuffer(b"]}", np.uint8)


def kept_json(column: pa.ChunkedArray, name: str, *, first_row: int = 0) -> pa.ChunkedArray:
    """Return JSON texts as the library gives them back.

    Parameters
    ----------
    column : ChunkedArray
        Of type ``arrow.json``.
    name : str
        Its name, for errors.
    first_row : int, default 0
        How many rows of the caller's come before these: errors count from its first.

    Raises
    ------
    SchemaError
        A text is not JSON, or nested too deeply.

    Examples
    --------
    >>> texts = pa.chunked_array([['{"b": 1.0, "a": []}', None]]).cast(pa.json_(pa.string()))
    >>> kept_json(texts, "facts").to_pylist()
    ['{"a":[],"b":1.0}', None]
    """
    if column.null_count == len(column):
        return column
    texts = pa.chunked_array([chunk.storage for chunk in column.chunks])
    # The library takes it for null.
    empty = pc.index(pc.utf8_trim_whitespace(texts), "").as_py()
    if empty >= 0:
        raise _refused(name, first_row + empty, "it is empty")
    opened = pc.add(pc.count_substring(texts, "["), pc.count_substring(texts, "{"))
    for row in pc.indices_nonzero(pc.greater(opened, MAX_DEPTH)).to_pylist():
        _refuse_deep(texts[row].as_py(), name, first_row + row)
    try:
        return _read_back(column)
    except OSError as error:
        unread, reason = _unread(column, error)
        raise _refused(name, first_row + unread, reason) from error


def _read_back(column: pa.ChunkedArray) -> pa.ChunkedArray:
    # The dataset has its own session, so that what it has read is freed with it.
    dataset = lance.write_dataset(pa.table({"v": column}), f"memory://{uuid4()}")
    return dataset.to_table()["v"]


def _unread(column: pa.ChunkedArray, error: OSError) -> tuple[int, str]:
    """Return the first row that the library cannot read, and its message."""
    begin, end = 0, len(column)
    while end - begin > 1:
        middle = (begin + end) // 2
        try:
            _read_back(column.slice(begin, middle - begin))
            begin = middle
        except OSError as found:
            end, error = middle, found
    reason = str(error).partition("Failed to encode JSON: ")[2] or str(error)
    return begin, reason.partition(", /")[0]


def _refuse_deep(text: str, name: str, row: int) -> None:
    """Refuse what is nested too deeply; brackets count outside strings, which only strict JSON delimits."""
    try:
        json.loads(text)
    except RecursionError:
        raise _too_deep(name, row) from None
    except ValueError as error:
        raise _refused(name, row, str(error)) from None
    marks = np.frombuffer(_TEXTS.sub(b"", text.encode()), np.uint8)
    steps = np.isin(marks, _OPENING).astype(np.int64) - np.isin(marks, _CLOSING)
    if steps.cumsum().max() > MAX_DEPTH:
        raise _too_deep(name, row)


def _too_deep(name: str, row: int) -> SchemaError:
    return _refused(name, row, f"it is nested more than {MAX_DEPTH} levels deep")


def _refused(name: str, row: int, reason: str) -> SchemaError:
    return SchemaError(
        f"column {name!r} holds a text in row {row} that Lance cannot read as JSON: {reason}",
        where=f"{name}, row {row}",
    )
