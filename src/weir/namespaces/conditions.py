"""Conditional writes: which existing documents are replaced, patched and deleted.

Pure: takes the documents at one moment, and returns what to write. The caller ensures that there are no other
writes in between.
"""

from __future__ import annotations

from collections.abc import Mapping

import datafusion
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from weir.errors import InputError
from weir.namespaces.definition import Definition
from weir.namespaces.filter.expression import Filter
from weir.namespaces.filter.sql import Columns, condition_sql
from weir.namespaces.names import ID

__all__ = ["Mask", "meets", "patched_rows", "positions_of"]

Mask = npt.NDArray[np.bool_]

_ROW = "%row"
_NEW = "%new "


def positions_of(ids: pa.Array | pa.ChunkedArray, present: pa.Table) -> npt.NDArray[np.int64]:
    """Return the positions of documents with some ids among those present; -1 for missing ones."""
    at = pc.index_in(ids, value_set=present.column(ID))
    return np.asarray(pc.fill_null(at, -1)).astype(np.int64)


def meets(
    condition: Filter,
    present: pa.Table,
    new: pa.Table | None,
    definition: Definition,
) -> Mask:
    """Return which documents meet a condition.

    Parameters
    ----------
    condition : Filter
        The condition.
    present : Table
        The documents as they are.
    new : Table, optional
        The new values of each; columns it lacks are missing.
    definition : Definition
        The namespace.
    """
    if not present.num_rows:
        return np.zeros(0, dtype=bool)
    sql = condition_sql(
        condition, Columns(definition.type_of, new=_NEW, is_filterable=definition.is_filterable)
    )
    if sql in ("true", "false"):
        return np.full(present.num_rows, sql == "true")
    columns = dict(zip(present.schema.names, present.columns, strict=True))
    for one in present.schema:
        given = new is not None and one.name in new.schema.names
        columns[_NEW + one.name] = (
            new.column(one.name) if new is not None and given else pa.nulls(present.num_rows, one.type)
        )
    columns[_ROW] = pa.array(np.arange(present.num_rows))
    context = datafusion.SessionContext()
    batches = pa.table(columns).combine_chunks().to_batches()
    context.register_record_batches("documents", [batches])
    try:
        found = context.sql(f"SELECT `{_ROW}` FROM documents WHERE {sql}").collect()
    except Exception as error:  # DataFusion raises nothing more specific
        raise InputError("the condition cannot be evaluated: a pattern in it is not valid") from error
    mask = np.zeros(present.num_rows, dtype=bool)
    for batch in found:
        mask[batch.column(0).to_numpy()] = True
    return mask


def patched_rows(present: pa.Table, patch: pa.Table, given: Mapping[str, Mask]) -> pa.Table:
    """Return documents with new values.

    Parameters
    ----------
    present : Table
        The documents.
    patch : Table
        New values of each, by column; it may have an id.
    given : mapping of str to mask
        By column, which documents get the value. Default: all.
    """
    columns = []
    rows = np.arange(present.num_rows)
    for one in present.schema:
        old = present.column(one.name)
        if one.name not in patch.schema.names or one.name == ID:
            columns.append(old)
            continue
        mask = given.get(one.name)
        new = patch.column(one.name)
        if mask is None:
            columns.append(new)
            continue
        both = pa.chunked_array([*old.chunks, *new.chunks], one.type).combine_chunks()
        columns.append(both.take(pa.array(np.where(mask, rows + present.num_rows, rows))))
    return pa.Table.from_arrays(columns, schema=present.schema)
