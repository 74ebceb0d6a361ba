"""Filters: SQL text with Lance's meaning, also for rows in memory.

Lance evaluates filters on what it stores. Rows of the WAL tail are passed to it as an in-memory dataset, with
only the columns the filter names, so that one engine decides everywhere. Literals are fitted to their columns
first (:mod:`weir.lsm.fitted_filter`).
"""

from __future__ import annotations

import re
from functools import lru_cache

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from weir.errors import FilterError
from weir.format.unsliced import unsliced
from weir.indexing.library_message import library_message
from weir.lsm.filter_form import NO_CODE, filter_form
from weir.lsm.fitted_filter import fitted_filter
from weir.lsm.plain_filter import plain_matches
from weir.schema.sql_nesting import refuse_unsafe
from weir.sharding.sql import named_fields

__all__ = ["check_filter", "is_of_a_filter", "matching_rows", "named_columns", "reason"]

_FAILED_ON_A_ROW = "Error applying filter expression"
# A condition that is an aggregate and nothing else passes on a table without rows, as it is checked.
_NOT_OF_A_ROW = "Physical plan does not support logical expression"

_NAMES = re.compile(r"""'[^']*'|"([^"]*)"|`([^`]*)`|(\w+)""")
"""Texts, and in groups what may be names: in quotation marks they are taken as a whole."""

_SYSTEM_COLUMNS = frozenset(
    {"_rowid", "_rowaddr", "_rowoffset", "_row_created_at_version", "_row_last_updated_at_version"}
)


def check_filter(schema: pa.Schema, text: str) -> None:
    """Refuse a filter that does not parse, does not fit the table, or is nested too deep for the library.

    Raises
    ------
    FilterError
        With what Lance says about it.
    """
    if not isinstance(text, str) or not text.strip():
        raise FilterError(f'a filter is SQL text such as "delay > 60", got {text!r}', where="filter")
    _check_text(schema.serialize().to_pybytes(), text)


@lru_cache(maxsize=64)
def _schema(serialized: bytes) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(serialized))


@lru_cache(maxsize=1024)
def _check_text(serialized: bytes, text: str) -> None:
    schema = _schema(serialized)
    named = {name for match in _NAMES.finditer(text) for name in match.groups()}
    system = (named & _SYSTEM_COLUMNS).difference(schema.names)
    if system:
        raise FilterError(
            f"the filter names {min(system)}, which is a place in a file and not part of the row",
            where="filter",
            hint=f"The columns are {', '.join(schema.names)}",
        )
    try:
        _check(serialized, filter_form(text, schema))
    except FilterError:
        # As written, for error messages.
        _check(serialized, text)


@lru_cache(maxsize=1024)
def _check(serialized: bytes, text: str) -> None:
    schema = _schema(serialized)
    refuse_unsafe(text, "the filter", where="filter", error=FilterError)
    _evaluate(schema.empty_table(), text)
    # Lance ignores anything after a complete condition; in parentheses that is an error, unless the text
    # itself closes them.
    if _closes_too_much(text):
        raise FilterError(f"the filter {text!r} closes a parenthesis that it does not open", where="filter")
    _evaluate(schema.empty_table(), text, as_condition=f"({text}\n)")


def _closes_too_much(text: str) -> bool:
    depth = 0
    for mark in re.findall(r"[()]", NO_CODE.sub(" ", text)):
        depth += 1 if mark == "(" else -1
        if depth < 0:
            return True
    return False


def matching_rows(rows: pa.Table, text: str) -> npt.NDArray[np.int64]:
    """Return the offsets of the rows that match, ascending.

    Raises
    ------
    FilterError
        If the filter cannot be evaluated on them.
    """
    found = plain_matches(rows.select(named_columns(text, rows.schema)), text)
    return _evaluate(rows, text) if found is None else found


def named_columns(text: str | None, schema: pa.Schema) -> list[str]:
    """Return the columns that a filter may name.

    A column counts as named if its name occurs anywhere in the text: too many costs a copy, too few would
    be an error.
    """
    if text is None:
        return []
    return [name for name, _ in named_fields(text, schema)]


def _evaluate(rows: pa.Table, text: str, *, as_condition: str | None = None) -> npt.NDArray[np.int64]:
    condition = fitted_filter(as_condition or text, rows.schema)
    slim = rows.select(named_columns(text, rows.schema) or rows.schema.names[:1])
    try:
        # One file, so that a row's id is its offset.
        dataset = lance.write_dataset(
            unsliced(slim), "memory://", mode="create", max_rows_per_file=max(slim.num_rows, 1)
        )
        found = dataset.scanner(columns=[], filter=condition, with_row_id=True, scan_in_order=True).to_table()
    except (ValueError, OSError, RuntimeError) as error:
        raise FilterError(
            f"the filter {text!r} cannot be used: {reason(error)}",
            where="filter",
            hint=f"The columns are {', '.join(rows.schema.names)}",
        ) from error
    offsets: npt.NDArray[np.int64] = found.column("_rowid").to_numpy().astype(np.int64)
    return offsets


def is_of_a_filter(error: BaseException) -> bool:
    """Whether a read has failed because its filter has no value for some row, or for none."""
    return any(sign in str(error) for sign in (_FAILED_ON_A_ROW, _NOT_OF_A_ROW))


def reason(error: BaseException) -> str:
    """Return the library's error for a filter, without its list of columns, which is incomplete."""
    if _NOT_OF_A_ROW in str(error):
        return "an aggregate or a window function has no value for a single row"
    return library_message(error).split(" Valid fields are")[0]
