"""Validation of a read: its columns, filter and limit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from weir.errors import OptionError, SchemaError
from weir.lsm.filters import check_filter

__all__ = ["check_asked", "check_columns", "checked_limit"]

_MAX_LIMIT = 2**63 - 1


def check_asked(schema: pa.Schema, columns: Sequence[str] | None, filter: str | None) -> None:
    """Refuse a projection or a filter that does not fit the columns of a table.

    Raises
    ------
    SchemaError
        Naming the column that does not exist or is asked for twice.
    FilterError
        With what Lance says about the filter.
    """
    if columns is not None:
        check_columns(schema, columns)
    if filter is not None:
        check_filter(schema, filter)


def check_columns(schema: pa.Schema, columns: Iterable[str]) -> list[str]:
    """Return a projection as a list, refusing unknown, doubled and no columns at all.

    Raises
    ------
    SchemaError
        Naming the column.
    """
    if isinstance(columns, str):
        raise SchemaError(f"columns must be a list of names, got the text {columns!r}", where="columns")
    names = list(columns)
    if not names:
        raise SchemaError("no column is requested", where="columns", hint="Use count() to count rows")
    seen: set[str] = set()
    for name in names:
        if name not in schema.names:
            raise SchemaError(
                f"the table has no column {name!r}",
                where="columns",
                hint=f"The columns are {', '.join(schema.names)}",
            )
        if name in seen:
            raise SchemaError(f"column {name!r} is requested twice", where="columns")
        seen.add(name)
    return names


def checked_limit(limit: int | None) -> int | None:
    """Return after how many rows to stop.

    Raises
    ------
    OptionError
        If it is not a whole number of at least 0.
    """
    if limit is None:
        return None
    if isinstance(limit, bool) or not isinstance(limit, int | np.integer) or limit < 0:
        raise OptionError(f"limit must be a whole number of at least 0, got {limit!r}", where="limit")
    return min(int(limit), _MAX_LIMIT)
