"""Sorting of rows by columns, as in sorted append-only tables."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from weir.format.plain_keys import stored_keys, stored_type

__all__ = ["can_be_sorted_by", "sorted_rows"]


def can_be_sorted_by(kind: pa.DataType) -> bool:
    """Whether rows can be sorted by a column of a type.

    Examples
    --------
    >>> can_be_sorted_by(pa.string()), can_be_sorted_by(pa.list_(pa.int32())), can_be_sorted_by(pa.float16())
    (True, False, False)
    """
    kind = stored_type(kind)
    # Arrow has no order of these.
    return not (
        pa.types.is_nested(kind)
        or pa.types.is_dictionary(kind)
        or pa.types.is_null(kind)
        or pa.types.is_float16(kind)
        or isinstance(kind, pa.BaseExtensionType)
    )


def sorted_rows(rows: pa.Table, sort_by: Sequence[str]) -> pa.Table:
    """Return rows sorted by some columns, nulls last; rows that are equal in them keep their order.

    Parameters
    ----------
    sort_by : sequence of str
        The columns, the first decides first. None: the rows stay as they are.

    Examples
    --------
    >>> sorted_rows(pa.table({"at": [2, None, 1], "n": [1, 2, 3]}), ["at"])["n"].to_pylist()
    [3, 1, 2]
    """
    if not sort_by or rows.num_rows < 2:
        return rows
    # Arrow's sort is stable, and puts nulls last.
    sorted_by = pa.table({name: stored_keys(rows.column(name)) for name in sort_by})
    return rows.take(pc.sort_indices(sorted_by, sort_keys=[(name, "ascending") for name in sort_by]))
