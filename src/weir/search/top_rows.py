"""The first rows of an order, without reading all columns of the others.

First the columns are read that decide which rows these are, and the primary key; then those rows are looked
up.
"""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pyarrow as pa

from weir.lsm.keys import KeySet
from weir.read.lookup import KeyRouter, get_rows
from weir.read.planner import ScanPlanner
from weir.read.scan import Scan
from weir.read.sql_query import Needed, quoted, sql_context
from weir.snapshots.snapshot import ReadSnapshot

__all__ = ["top_rows"]

_ROWS, _NUMBER = "_weir_rows", "_weir_row"


def top_rows(planner: ScanPlanner, route: KeyRouter, snapshot: ReadSnapshot, needed: Needed) -> pa.Table:
    """Return the rows that a query considers.

    Parameters
    ----------
    planner : ScanPlanner
        Plans the scan of the columns that decide.
    route : callable
        Narrows down the shards a key may be in.
    snapshot : ReadSnapshot
        What both steps see.
    needed : Needed
        What the query needs; its ``top`` is set.
    """
    assert needed.top is not None
    base = snapshot.base
    if not base.primary_key:
        # Nothing finds the rows again by key: all are read that the condition lets pass.
        plan = planner.plan(
            snapshot, columns=list(needed.columns), filter=needed.filter, limit=None, consistency="top rows"
        )
        return Scan(lambda _: plan, nullcontext).to_table()
    columns = list(dict.fromkeys([*base.primary_key, *needed.top.columns]))
    plan = planner.plan(snapshot, columns=columns, filter=needed.filter, limit=None, consistency="top rows")
    rows = Scan(lambda _: plan, nullcontext).to_table()
    numbers = pa.array(np.arange(rows.num_rows))
    context = sql_context()
    batches = rows.append_column(_NUMBER, numbers).combine_chunks().to_batches()
    if not batches:
        return pa.schema([base.schema.field(name) for name in needed.columns]).empty_table()
    context.register_record_batches(_ROWS, [batches])
    chosen = context.sql(f"SELECT {quoted(_NUMBER)} FROM {_ROWS} {needed.top.clauses}").to_arrow_table()
    keys = rows.select(list(base.primary_key)).take(chosen.column(0))
    return get_rows(snapshot, KeySet(keys.columns), needed.columns, route)
