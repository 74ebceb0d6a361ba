"""Vector search: the nearest rows of the merged view.

Every source is asked for its own nearest live rows, and the nearest of them all are the
answer. The base table is searched by Lance, as are generations too large to be held in memory; the vectors of
the other newer sources are compared there, and those of a base table that is small and searched often.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from weir.base.index_list import list_indexes
from weir.engine.concurrent_map import ask_both
from weir.errors import QueryError
from weir.lsm.dataset_handle import DatasetHandle
from weir.lsm.filters import named_columns
from weir.lsm.generation import Generation
from weir.lsm.levels import Level
from weir.lsm.newest import FreshSource
from weir.read.plan import Pruned
from weir.read.planner import ShardPruner
from weir.search.chosen_rows import fetch_chosen, order_by_key, result_schema
from weir.search.vector.base_vectors import BaseVectorTask, is_held
from weir.search.vector.dataset_task import DatasetVectorTask
from weir.search.vector.index import VectorIndex, generation_vector_index, vector_index
from weir.search.vector.later_mask import LaterMask
from weir.search.vector.levels_task import LevelsVectorTask
from weir.search.vector.query import VectorQuery
from weir.search.vector.rows import fits_in_memory
from weir.search.vector.task import DISTANCE, VectorCandidates, VectorTask
from weir.snapshots.snapshot import Consistency, ReadSnapshot
from weir.storage.interface import ObjectStore

__all__ = ["VectorSearchPlan", "plan_vector_search"]

_QUERY_INDEX = "_query_index"


@dataclass(frozen=True, slots=True)
class VectorSearchPlan:
    """What a vector search will do.

    Parameters
    ----------
    schema : Schema
        Schema of the result.
    columns : tuple of str
        Columns of the table in it.
    primary_key : tuple of str
        The key, by which rows that are equally near come where it is among the columns.
    query : VectorQuery
        The query.
    tasks : tuple of VectorTask
        Each source's part.
    pruned : tuple of Pruned
        The sources that were left out.
    header : str
        The search as a whole, for people.
    """

    schema: pa.Schema
    columns: tuple[str, ...]
    primary_key: tuple[str, ...]
    query: VectorQuery
    tasks: tuple[VectorTask, ...]
    pruned: tuple[Pruned, ...]
    header: str

    def run(self) -> pa.Table:
        """Return the nearest rows, nearest first."""
        # One after the other: Lance uses all cores by itself, and handing a search this short to another
        # thread takes longer than comparing in memory.
        return self.merge([task.candidates() for task in self.tasks])

    def merge(self, found: Sequence[VectorCandidates]) -> pa.Table:
        """Return the nearest rows of all, by query vector and then by distance.

        Rows that are equally near come by key, if that is among the columns. Which of them are the last,
        where there is no room for all, follows from the order of the tasks, and then of the places in each.
        """
        query = np.concatenate([one.query for one in found])
        distance = np.concatenate([one.distance for one in found])
        rows = np.concatenate([one.rows for one in found])
        task = np.repeat(np.arange(len(found)), [len(one.rows) for one in found])
        order = np.lexsort((rows, task, distance, query))
        if len(self.query.vectors) == 1:
            chosen = order[: self.query.k]
        else:
            starts = np.searchsorted(query[order], np.arange(len(self.query.vectors)))
            rank = np.arange(len(order)) - starts[query[order]]
            chosen = order[rank < self.query.k]
        table = fetch_chosen(self.schema, self.columns, self.tasks, found, task, chosen)
        by_key = order_by_key(table, self.primary_key, [query[chosen], distance[chosen]])
        if by_key is not None:
            # Query and distance are equal where rows change places.
            table = table.take(pa.array(by_key))
        added = [pa.array(query[chosen])] if self.query.batch else []
        added.append(pa.array(distance[chosen]))
        return pa.Table.from_arrays([*table.columns, *added], schema=self.schema)

    def describe(self) -> str:
        """Return the plan for people, one source per line."""
        lines = [self.header]
        lines += [f"  {task.describe()}" for task in self.tasks]
        lines += [f"  pruned {one.label}: {one.reason}" for one in self.pruned]
        return "\n".join(lines)


def plan_vector_search(
    store: ObjectStore,
    snapshot: ReadSnapshot,
    prune: ShardPruner,
    query: VectorQuery,
    *,
    columns: Sequence[str] | None,
    filter: str | None,
    consistency: Consistency | str,
) -> VectorSearchPlan:
    """Return what a vector search of ``snapshot`` will do.

    Raises
    ------
    QueryError
        If the metric has no distance to one of the query vectors, or a column of the table has the name
        of one that the result adds.
    """
    base = snapshot.base
    names = tuple(base.schema.names if columns is None else columns)
    schema = result_schema(base.schema, names, _added(query))
    snapshot = snapshot.shown_to(filter)
    filter = snapshot.live_filter(filter)
    kept, left_out = prune(snapshot, filter)
    pruned = [Pruned(f"shard {view.shard_id}", reason) for view, reason in left_out]

    def levels_and_mask() -> tuple[Level, ...]:
        found = snapshot.levels(tuple(kept))
        if not store.is_local and any(
            one.field_names == [query.column] for one in list_indexes(base.dataset)
        ):
            # Opening an index takes at least as long.
            snapshot.base_mask(tuple(kept))
        return found

    index, levels = ask_both(
        lambda: vector_index(base, query.column),
        levels_and_mask,
        is_local=store.is_local,
        engine=store.engine,
    )
    query = _with_metric(query, index, base.schema.field(query.column).type)
    usable = _usable(index, query)
    rows = snapshot.once(_base_rows)
    newer = 0 if base.append_only is not None else sum(len(level.live) for level in levels)
    mask = LaterMask(partial(snapshot.base_mask, tuple(kept)), newer, store)
    tasks: list[VectorTask] = []
    # Which rows match a filter, Lance finds out, and may as well compare them.
    if filter is None and is_held(base, query.column, rows):
        tasks.append(BaseVectorTask(base, query, names, mask))
    else:
        tasks.append(
            DatasetVectorTask(
                label=f"base table version {base.version}",
                source=DatasetHandle.of(base.dataset, store),
                query=query,
                columns=names,
                filter=filter,
                mask=mask,
                rows=rows,
                use_index=usable is not None,
                refine=_refined(usable, query),
            )
        )
    centroids = None if usable is None else usable.centroids
    kind = base.schema.field(query.column).type
    held: list[Level] = []
    for level in levels:
        if not level.live.any():
            pruned.append(Pruned(level.label, "every row is superseded or deleted"))
        elif fits_in_memory(level.source, kind) or not _has(level.source, (query.column, *names), filter):
            held.append(level)
        else:
            assert isinstance(level.source, Generation)
            own = _usable(generation_vector_index(base.namespace, level.source, query.column), query)
            tasks.append(
                DatasetVectorTask(
                    label=level.label,
                    source=DatasetHandle.of(level.source.dataset, store),
                    query=query,
                    columns=names,
                    filter=filter,
                    mask=LaterMask(partial(getattr, level, "mask"), 0, store),
                    rows=len(level.live),
                    use_index=own is not None,
                    refine=_refined(own, query),
                )
            )
    if held:
        tasks.append(LevelsVectorTask(tuple(held), query, names, filter, centroids))
    header = (
        f"{query.k} nearest of {store.uri}, {consistency}: base version {base.version}, "
        f"{len(kept)} of {len(snapshot.shards)} shards, {_explained(index, usable, query, rows)}"
    )
    return VectorSearchPlan(schema, names, base.primary_key, query, tuple(tasks), tuple(pruned), header)


def _base_rows(snapshot: ReadSnapshot) -> int:
    base = snapshot.base
    key = ("rows", base.namespace, base.version_key)
    return base.engine.cache.get_or_load(key, base.dataset.count_rows, lambda _: 0, base.lifetime)


def _has(source: FreshSource, columns: Sequence[str], filter: str | None) -> bool:
    """Whether a generation has columns, and those that a filter names, as the table has them."""
    if not isinstance(source, Generation):
        return False
    return source.columns.is_same([*columns, *named_columns(filter, source.columns.schema)])


def _usable(index: VectorIndex | None, query: VectorQuery) -> VectorIndex | None:
    return index if index is not None and index.metric == query.metric else None


def _refined(index: VectorIndex | None, query: VectorQuery) -> int | None:
    """Return how many times as many candidates to rerank by their exact distance.

    An index of quantized vectors estimates distances, which would not compare with exact ones.
    """
    return None if index is None else query.refine or (1 if index.is_quantized else None)


def _added(query: VectorQuery) -> list[pa.Field]:
    added = [pa.field(DISTANCE, pa.float32())]
    return [pa.field(_QUERY_INDEX, pa.int32()), *added] if query.batch else added


def _with_metric(query: VectorQuery, index: VectorIndex | None, kind: pa.DataType) -> VectorQuery:
    metric = query.metric or (index.metric if index is not None else None)
    if metric is None:
        metric = "hamming" if pa.types.is_integer(kind.value_type) else "l2"
    if metric == "cosine" and not query.vectors.any(axis=1).all():
        raise QueryError("a query vector of zeros has no direction, and therefore no cosine", where="vector")
    if metric == query.metric:
        return query
    return VectorQuery(query.column, query.vectors, query.batch, query.k, metric, query.nprobes, query.refine)


def _explained(index: VectorIndex | None, usable: VectorIndex | None, query: VectorQuery, rows: int) -> str:
    if usable is not None:
        return f"{usable.kind} index {usable.name!r} over {usable.rows} of {rows} base rows"
    if index is not None:
        return f"no index for {query.metric}: {index.name!r} is for {index.metric}, so all rows are compared"
    return (
        "no vector index: all rows are compared; "
        f'indexes.create("{query.column}", "IVF_PQ") would make that approximate and fast'
    )
