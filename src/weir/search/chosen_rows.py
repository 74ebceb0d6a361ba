"""Reading the rows that a search has chosen from their sources, as its result."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from weir.errors import QueryError
from weir.format.plain_keys import stored_keys
from weir.schema.relabel import as_schema

__all__ = ["fetch_chosen", "order_by_key", "result_schema", "take_numbered"]


def result_schema(schema: pa.Schema, columns: Sequence[str], added: Iterable[pa.Field]) -> pa.Schema:
    """Return the schema of a result: columns of the table, and those that the search adds.

    Raises
    ------
    QueryError
        If the table has a column of the same name.
    """
    added = list(added)
    for one in added:
        if one.name in columns:
            raise QueryError(
                f"the table has a column {one.name!r}, the name of a column that the result adds",
                where="columns",
                hint="Leave it out with columns=[...]",
            )
    return pa.schema([*(schema.field(name) for name in columns), *added])


def order_by_key(
    rows: pa.Table, primary_key: Sequence[str], ranking: Sequence[npt.NDArray[Any]]
) -> npt.NDArray[np.int64] | None:
    """Return the order in which rows that are equally good come by their keys, and all others as they do.

    Parameters
    ----------
    rows : Table
        The rows, best first, with the columns of the key or without.
    primary_key : sequence of str
        The columns of the key.
    ranking : sequence of ndarray
        What they are ranked by: those in which all are equal are equally good.

    Returns
    -------
    ndarray of int64 or None
        Places of the rows; None if they stay as they are.
    """
    if rows.num_rows < 2:
        return None
    differ = np.logical_or.reduce([one[1:] != one[:-1] for one in ranking])
    if differ.all() or not set(primary_key) <= set(rows.schema.names):
        return None
    group = np.concatenate([[0], np.cumsum(differ)])
    # For few rows, ranking takes a fraction of the time that Arrow takes to sort a table.
    ranks = [
        pc.rank(stored_keys(rows.column(name).combine_chunks()), tiebreaker="dense").to_numpy()
        for name in primary_key
    ]
    order: npt.NDArray[np.int64] = np.lexsort((*reversed(ranks), group))
    return order


class _Fetches(Protocol):
    def fetch(self, found: Any, chosen: npt.NDArray[np.int64]) -> pa.Table: ...


def fetch_chosen(
    schema: pa.Schema,
    columns: Sequence[str],
    tasks: Sequence[_Fetches],
    found: Sequence[Any],
    task: npt.NDArray[np.int64],
    chosen: npt.NDArray[np.int64],
) -> pa.Table:
    """Return the rows of the chosen candidates in their order, read from the sources that they are in.

    Parameters
    ----------
    task : ndarray of int64
        For every candidate of all tasks, one task after the other, its task.
    chosen : ndarray of int64
        Offsets among all candidates.
    """
    wanted = pa.schema([schema.field(name) for name in columns])
    if not len(chosen):
        return wanted.empty_table()
    if len(tasks) == 1:
        return as_schema(tasks[0].fetch(found[0], chosen).select(list(columns)), wanted)
    sizes = np.cumsum([0, *(len(one.rows) for one in found)])
    parts, places = [], []
    for at in np.unique(task[chosen]).tolist():
        mine = np.flatnonzero(task[chosen] == at)
        part = tasks[at].fetch(found[at], chosen[mine] - sizes[at])
        part = part.select(list(columns))
        parts.append(as_schema(part, wanted))
        places.append(mine)
    if len(parts) == 1:
        return parts[0]
    return pa.concat_tables(parts).take(pa.array(np.argsort(np.concatenate(places))))


class _Takes(Protocol):
    def take(self, rows: npt.NDArray[np.int64], columns: list[str]) -> pa.Table: ...


def take_numbered(
    sources: Sequence[_Takes], starts: Sequence[int], rows: npt.NDArray[np.int64], columns: Sequence[str]
) -> pa.Table:
    """Return some rows of sources that are numbered one after the other.

    Parameters
    ----------
    starts : sequence of int
        Number of the first row of each source.
    rows : ndarray of int64
        Numbers of the rows; at least one.
    """
    if len(rows) == 1:
        (at,) = (np.searchsorted(starts, rows, side="right") - 1).tolist()
        return sources[at].take(rows - starts[at], list(columns))
    distinct, place = np.unique(rows, return_inverse=True)
    of = np.searchsorted(starts, distinct, side="right") - 1
    parts = [
        sources[at].take(distinct[of == at] - starts[at], list(columns)) for at in np.unique(of).tolist()
    ]
    schema = parts[0].schema
    table = pa.concat_tables([as_schema(part, schema) for part in parts])
    return table.take(pa.array(place))
