"""Validation of append-only tables: whether the columns of a new table permit it."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from weir.errors import OptionError, SchemaError
from weir.format.append_only import AppendOnly
from weir.format.sorted_rows import can_be_sorted_by

__all__ = ["chosen_append_only"]


def chosen_append_only(
    primary_key: tuple[str, ...], dedup: bool, sort_by: Sequence[str] | str, schema: pa.Schema
) -> AppendOnly | None:
    """Return how a table only takes rows; None for one whose rows are replaced by key.

    Parameters
    ----------
    primary_key : tuple of str
        The columns of the key; none.
    dedup : bool
        Whether rows with one key replace each other.
    sort_by : sequence of str or str
        The columns by which rows are sorted.
    schema : Schema
        The columns of the table.

    Raises
    ------
    OptionError
        If a table with a key should be sorted.
    SchemaError
        If a column is unknown, named twice, or cannot be sorted by.
    """
    if not isinstance(dedup, bool):
        raise OptionError(f"dedup is True or False, got {dedup!r:.80}", where="dedup")
    names = (sort_by,) if isinstance(sort_by, str) else sort_by
    if not isinstance(names, Sequence) or not all(isinstance(name, str) for name in names):
        raise OptionError(f"sort_by is a column or a list of columns, got {sort_by!r:.80}", where="sort_by")
    names = tuple(names)
    if primary_key and dedup:
        if names:
            raise OptionError(
                "the rows of a table with a key are not sorted: newer ones replace them wherever they are",
                where="sort_by",
                hint="Pass primary_key=None, or dedup=False if no key comes twice",
            )
        return None
    for name in (*names, *primary_key):
        if name not in schema.names:
            raise SchemaError(
                f"there is no column {name!r}", where=str(name), hint=f"Columns: {', '.join(schema.names)}"
            )
    for name in names:
        kind = schema.field(name).type
        if names.count(name) > 1:
            raise SchemaError(f"sort_by names the column {name!r} twice", where=name)
        if not can_be_sorted_by(kind):
            raise SchemaError(
                f"rows cannot be sorted by a column of the type {kind}",
                where=name,
                hint="Sort by numbers, times or text",
            )
    return AppendOnly(names, primary_key)
