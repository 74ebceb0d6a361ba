"""Group statistics of documents with multi-valued attributes: each counts in every group it has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from weir.errors import InputError
from weir.namespaces.query import Aggregate

__all__ = ["groups_of"]

_ROW = "%row"
_EACH = "%each"
_MOST_ELEMENTS = 20_000_000


def groups_of(
    rows: pa.Table,
    keys: Sequence[str],
    lists: Mapping[str, str],
    aggregates: Sequence[tuple[Aggregate, str | None]],
    most: int,
) -> pa.Table:
    """Return groups in the order of their keys, with the numbers of each.

    Parameters
    ----------
    rows : Table
        The documents.
    keys : sequence of str
        The columns that groups have in common, in their order.
    lists : mapping of str to str
        For keys that are list elements, the column with the lists. A document counts once for each distinct
        element, and not at all without any.
    aggregates : sequence of (Aggregate, str or None)
        The numbers, each with its column.
    most : int
        Groups.

    Returns
    -------
    Table
        The keys, and a column ``%number0`` and so on for each number.
    """
    for key, column in lists.items():
        held = rows.column(column).combine_chunks()
        # Documents with long lists in several attributes would give too many combinations for memory.
        if (pc.sum(pc.list_value_length(held)).as_py() or 0) > _MOST_ELEMENTS:
            raise InputError(f"there are more than {_MOST_ELEMENTS:,} elements of lists to group by")
        pairs = pa.table({_ROW: pc.list_parent_indices(held), _EACH: pc.list_flatten(held)})
        pairs = pairs.filter(pairs.column(_EACH).is_valid()).group_by([_ROW, _EACH]).aggregate([])
        rows = rows.take(pairs.column(_ROW)).append_column(f"%{key}", pairs.column(_EACH))
    names = [f"%{key}" if key in lists else key for key in keys]
    rows = rows.append_column(_ROW, pa.array(np.ones(rows.num_rows, np.int64)))
    asked = []
    for one, of in aggregates:
        counted = of or _ROW
        if one.function == "sum" and pa.types.is_integer(rows.column(counted).type):
            # A sum of whole numbers of 64 bits may have more of them.
            wide = rows.column(counted).cast(pa.decimal128(38))
            counted = f"%wide {counted}"
            if counted not in rows.schema.names:
                rows = rows.append_column(counted, wide)
        asked.append((counted, "count" if one.function == "count" else "sum"))
    found = rows.group_by(names).aggregate(list(dict.fromkeys(asked)))
    if found.num_rows:
        order = pc.sort_indices(found, [(name, "ascending") for name in names])
        found = found.take(order.slice(0, most))
    columns = {key: found.column(name) for key, name in zip(keys, names, strict=True)}
    for at, (column, function) in enumerate(asked):
        columns[f"%number{at}"] = pc.fill_null(found.column(f"{column}_{function}"), 0)
    return pa.table(columns)
