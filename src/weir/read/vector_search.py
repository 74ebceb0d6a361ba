"""Searching by vector: the nearest rows of the merged view.

Every source is asked for its own nearest rows among those that count, and the nearest of them all are the
answer. The base table is searched by Lance, through its index if it has one, for somewhat more rows than
asked for, because rows that have been replaced or deleted are then dropped; should too few be left, Lance
is asked again and given the rows to pass over. Newer sources are compared in memory.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from weir.cache import process_cache
from weir.errors import QueryError
from weir.read.blocked import NOTHING_BLOCKED, BlockedRows
from weir.read.damage import reading
from weir.read.generation import Generation
from weir.read.layers import FreshLayer, base_blocked, fresh_layers
from weir.read.plan import Pruned
from weir.read.planner import ShardPruner
from weir.read.snapshot import Consistency, ReadSnapshot
from weir.read.vector_division import Centroids, Division, divided
from weir.read.vector_index import VectorIndex, generation_vector_index, vector_index
from weir.read.vector_query import VectorQuery, is_vector
from weir.read.vector_rows import VectorRows, fits_in_memory, vector_rows
from weir.storage.interface import ObjectStore

__all__ = ["DISTANCE", "QUERY_INDEX", "VectorCandidates", "VectorSearchPlan", "plan_vector_search"]

DISTANCE = "_distance"
QUERY_INDEX = "_query_index"

_LIBRARY_QUERY_INDEX = "query_index"
_ROW_ID = "_rowid"
_DATASET_BYTES = 64 * 1024
_SPARE_ROWS = 4
_DEFAULT_PROBES = 20
_ROWS_TOGETHER = 250_000


@dataclass(frozen=True, slots=True)
class VectorCandidates:
    """The nearest rows of one source.

    Parameters
    ----------
    query : ndarray of int32
        Which query vector each is for.
    distance : ndarray of float32
        Its distance to that.
    rows : ndarray of int64
        Where it is, for :meth:`VectorTask.fetch`.
    table : Table or None
        The columns of the result, where they have been read with the distances.
    """

    query: npt.NDArray[np.int32]
    distance: npt.NDArray[np.float32]
    rows: npt.NDArray[np.int64]
    table: pa.Table | None = None

    def filter(self, keep: npt.NDArray[np.bool_]) -> VectorCandidates:
        """Return some of them."""
        table = None if self.table is None else self.table.filter(pa.array(keep))
        return VectorCandidates(self.query[keep], self.distance[keep], self.rows[keep], table)


class VectorTask(Protocol):
    """One source's part of a vector search: small, stateless, and it can be pickled."""

    def candidates(self) -> VectorCandidates:
        """Return the nearest rows of the source, at least as many as asked for if there are so many."""
        ...

    def fetch(self, found: VectorCandidates, chosen: npt.NDArray[np.int64]) -> pa.Table:
        """Return the columns of the result of some candidates, by their offset."""
        ...

    def describe(self) -> str:
        """Return one line for people."""
        ...


@dataclass(frozen=True, slots=True)
class DatasetVectorTask:
    """Search a Lance dataset: the base table, or a generation too large to be held in memory.

    Parameters
    ----------
    label : str
        Name for people.
    uri : str
        The dataset.
    version : int
        Its version.
    storage_options : tuple of (str, str)
        How to reach it.
    query : VectorQuery
        What is asked for; the metric is set.
    columns : tuple of str
        Columns of the result.
    filter : str or None
        Only rows that match.
    blocked : BlockedRows
        Rows that do not count.
    rows : int
        Rows of the dataset.
    use_index : bool
        Whether there is an index for the metric.
    refine : int or None
        How many times as many candidates to rank by their exact distance.
    """

    label: str
    uri: str
    version: int
    storage_options: tuple[tuple[str, str], ...]
    query: VectorQuery = field(repr=False)
    columns: tuple[str, ...]
    filter: str | None
    blocked: BlockedRows = field(repr=False)
    rows: int
    use_index: bool
    refine: int | None

    @classmethod
    def over(
        cls, dataset: lance.LanceDataset, storage_options: Mapping[str, str], **fields: Any
    ) -> DatasetVectorTask:
        """Return the task of searching an open dataset; in this process it is not opened again."""
        task = cls(
            uri=dataset.uri,
            version=dataset.version,
            storage_options=tuple(sorted(storage_options.items())),
            **fields,
        )
        process_cache().put(task._dataset_key, dataset, _DATASET_BYTES)
        return task

    @property
    def _dataset_key(self) -> Hashable:
        return ("open", self.uri, self.version, self.storage_options)

    def _dataset(self) -> lance.LanceDataset:
        options = dict(self.storage_options) or None
        return process_cache().get_or_load(
            self._dataset_key,
            lambda: lance.dataset(self.uri, version=self.version, storage_options=options),
            lambda _: _DATASET_BYTES,
        )

    def candidates(self) -> VectorCandidates:
        """Return the nearest rows that count."""
        k = self.query.k
        share = len(self.blocked) / max(self.rows, 1)
        # Twice as many spare rows as will be dropped on average.
        spare = int(2 * k * share / max(1 - share, 0.01)) + _SPARE_ROWS if len(self.blocked) else 0
        with reading(self.label, self.uri, self.filter):
            if spare > 4 * k:
                return self._asked(k, self.blocked)
            found = self._asked(k + spare, NOTHING_BLOCKED)
            if not len(self.blocked):
                return found
            keep = ~self.blocked.contains(found.rows.astype(np.uint64))
            counts = np.bincount(found.query, minlength=len(self.query.vectors))
            left = np.bincount(found.query[keep], minlength=len(self.query.vectors))
            if np.any((left < k) & (counts == k + spare)):
                return self._asked(k, self.blocked)
        return found.filter(keep)

    def _asked(self, k: int, blocked: BlockedRows) -> VectorCandidates:
        vectors = self.query.vectors
        if len(vectors) == 1:
            return self._answer(vectors[0], k, blocked, 0)
        if _LIBRARY_QUERY_INDEX not in self._dataset().schema.names:
            return self._answer(vectors, k, blocked, None)
        parts = [self._answer(vector, k, blocked, at) for at, vector in enumerate(vectors)]
        return VectorCandidates(
            np.concatenate([part.query for part in parts]),
            np.concatenate([part.distance for part in parts]),
            np.concatenate([part.rows for part in parts]),
            pa.concat_tables([part.table for part in parts]) if self._at_once else None,
        )

    @property
    def _at_once(self) -> bool:
        """Whether to read the columns of the result with the distances.

        A few rows too many take less than going back for the best, unless there are vectors to read.
        """
        schema = self._dataset().schema
        return not any(is_vector(schema.field(name).type) for name in self.columns)

    def _answer(
        self, asked: npt.NDArray[Any], k: int, blocked: BlockedRows, number: int | None
    ) -> VectorCandidates:
        dataset = self._dataset()
        element = dataset.schema.field(self.query.column).type.value_type
        narrow = np.float16 if pa.types.is_float16(element) else asked.dtype
        nearest: dict[str, Any] = {
            "column": self.query.column,
            "q": asked.astype(narrow, copy=False),
            "k": k,
            "metric": self.query.metric,
            "use_index": self.use_index,
        }
        if self.use_index and self.query.nprobes is not None:
            nearest["nprobes"] = self.query.nprobes
        if self.use_index and self.refine is not None:
            # Spare rows need no more candidates.
            nearest["refine_factor"] = max(-(-self.refine * self.query.k // k), 1)
        table = dataset.scanner(
            columns=[*self.columns, DISTANCE] if self._at_once else [DISTANCE],
            nearest=nearest,
            filter=self.filter,
            prefilter=self.filter is not None,
            with_row_id=True,
            row_addr_blocklist=blocked.serialized,
            disable_scoring_autoprojection=True,
        ).to_table()
        distance = table.column(DISTANCE).to_numpy()
        rows = table.column(_ROW_ID).to_numpy().astype(np.int64)
        if number is None:
            query = table.column(_LIBRARY_QUERY_INDEX).to_numpy().astype(np.int32)
        else:
            query = np.full(len(rows), number, dtype=np.int32)
        read = table.select(list(self.columns)) if self._at_once else None
        return VectorCandidates(query, distance, rows, read)

    def fetch(self, found: VectorCandidates, chosen: npt.NDArray[np.int64]) -> pa.Table:
        """Return the columns of the result of some candidates."""
        if found.table is not None:
            return found.table.take(pa.array(chosen))
        with reading(self.label, self.uri):
            return take_row_ids(self._dataset(), found.rows[chosen], self.columns)

    def describe(self) -> str:
        """Return one line for people."""
        how = "index" if self.use_index else "flat"
        text = f"{self.label}: {how} search of {self.query.column} by {self.query.metric}"
        if self.use_index and self.query.nprobes is not None:
            text += f", {self.query.nprobes} partitions"
        if self.use_index and self.refine is not None:
            text += f", exact distances of {self.refine} x {self.query.k}"
        if self.filter:
            text += f" where {self.filter}"
        return f"{text}, {len(self.blocked)} rows superseded or deleted"


@dataclass(frozen=True, slots=True)
class LayersVectorTask:
    """Compare the vectors of generations, and of rows that are only in the log, in memory.

    Parameters
    ----------
    layers : tuple of FreshLayer
        The sources, and which of their rows count.
    query : VectorQuery
        What is asked for; the metric is set.
    columns : tuple of str
        Columns of the result.
    filter : str or None
        Only rows that match.
    centroids : Centroids or None
        By which the vectors may be divided.
    """

    layers: tuple[FreshLayer, ...]
    query: VectorQuery = field(repr=False)
    columns: tuple[str, ...]
    filter: str | None
    centroids: Centroids | None = field(repr=False)

    def candidates(self) -> VectorCandidates:
        """Return the nearest rows that count."""
        query, metric = self.query, self.query.metric
        assert metric is not None
        parts = []
        for start, group in self._groups():
            probes: list[npt.NDArray[np.intp]] = []
            keeps = [layer.matching(self.filter) for layer in group]
            division = self._division(group)
            if division is not None and self.centroids is not None:
                count = query.nprobes or _DEFAULT_PROBES
                probes = [self.centroids.probes(vector, count) for vector in query.vectors]
                keep = np.concatenate(keeps)
            for number, vector in enumerate(query.vectors):
                found = (
                    division.nearest(vector, query.k, metric, keep, probes[number])
                    if division is not None
                    else None
                )
                # Where the filter leaves too few in those partitions, all are looked at.
                for rows, distance in (
                    _nearest_of_each(group, self._held(group), keeps, vector, query.k, metric)
                    if found is None
                    else [found]
                ):
                    parts.append((np.full(len(rows), number, dtype=np.int32), distance, rows + start))
        return VectorCandidates(*(np.concatenate(column) for column in zip(*parts, strict=True)))

    def _groups(self) -> Iterator[tuple[int, tuple[FreshLayer, ...]]]:
        """Yield the layers that are searched together, and the number of the first row of each group.

        Generations are; the log would make the groups other ones with every write.
        """
        start = 0
        together: list[FreshLayer] = []
        for layer in self.layers:
            log = not isinstance(layer.source, Generation)
            rows = sum(len(one.live) for one in together)
            if together and (log or rows + len(layer.live) > _ROWS_TOGETHER):
                yield start, tuple(together)
                start += rows
                together = []
            together.append(layer)
            if log:
                yield start, (layer,)
                start += len(layer.live)
                together = []
        if together:
            yield start, tuple(together)

    def _held(self, group: Sequence[FreshLayer]) -> list[VectorRows]:
        return [vector_rows(layer.namespace, layer.source, self.query.column) for layer in group]

    def _division(self, group: Sequence[FreshLayer]) -> Division | None:
        if self.centroids is None:
            return None
        key = (
            (group[0].namespace, self.query.column),
            *(layer.source.identity for layer in group),
        )
        # Vectors that have been divided are not needed as they were, and may leave the cache.
        sizes = [len(layer.live) for layer in group]
        return divided(key, lambda: self._held(group), sizes, self.centroids)

    def fetch(self, found: VectorCandidates, chosen: npt.NDArray[np.int64]) -> pa.Table:
        """Return the columns of the result of some candidates."""
        return take_rows(self.layers, found.rows[chosen], self.columns)

    def describe(self) -> str:
        """Return one line per layer for people."""
        where = f" where {self.filter}" if self.filter else ""
        return "\n  ".join(
            f"{layer.label}: compare {self.query.column} by {self.query.metric} in memory{where}, "
            f"{np.count_nonzero(~layer.live)} of {len(layer.live)} rows superseded or deleted"
            for layer in self.layers
        )


def _nearest_of_each(
    group: Sequence[FreshLayer],
    held: Sequence[VectorRows],
    keeps: Sequence[npt.NDArray[np.bool_]],
    vector: npt.NDArray[Any],
    k: int,
    metric: str,
) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]]:
    for start, rows, keep in zip(layer_starts(group), held, keeps, strict=True):
        found, distance = rows.nearest(vector, k, metric, keep)
        yield found + start, distance


def layer_starts(layers: Sequence[FreshLayer]) -> list[int]:
    """Return the number that the first row of each layer has when all are numbered one after the other."""
    starts: list[int] = np.cumsum([0, *(len(layer.live) for layer in layers[:-1])]).tolist()
    return starts


class _Takes(Protocol):
    def take(self, rows: npt.NDArray[np.int64], columns: list[str]) -> pa.Table: ...


def take_rows(layers: Sequence[FreshLayer], rows: npt.NDArray[np.int64], columns: Sequence[str]) -> pa.Table:
    """Return some rows of layers by their numbers, in the order asked for, each as often as asked for."""
    return take_numbered(layers, layer_starts(layers), rows, columns)


def take_row_ids(
    dataset: lance.LanceDataset, row_ids: npt.NDArray[np.int64], columns: Sequence[str]
) -> pa.Table:
    """Return some rows of a dataset by their ids, in the order asked for, each as often as asked for."""
    if (row_ids[1:] > row_ids[:-1]).all():
        return dataset._take_rows(row_ids.tolist(), columns=list(columns))
    order = np.argsort(row_ids)
    ascending = row_ids[order]
    if (ascending[1:] > ascending[:-1]).all():
        distinct, place = ascending, np.argsort(order)
    else:
        distinct, place = np.unique(row_ids, return_inverse=True)
    return dataset._take_rows(distinct.tolist(), columns=list(columns)).take(pa.array(place))


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
    table = pa.concat_tables([part if part.schema.equals(schema) else part.cast(schema) for part in parts])
    return table.take(pa.array(place))


@dataclass(frozen=True, slots=True)
class VectorSearchPlan:
    """What a vector search will do.

    Parameters
    ----------
    schema : Schema
        Schema of the result.
    columns : tuple of str
        Columns of the table in it.
    query : VectorQuery
        What is asked for.
    tasks : tuple of VectorTask
        Each source's part.
    pruned : tuple of Pruned
        What was left out.
    header : str
        The search as a whole, for people.
    """

    schema: pa.Schema
    columns: tuple[str, ...]
    query: VectorQuery
    tasks: tuple[VectorTask, ...]
    pruned: tuple[Pruned, ...]
    header: str

    def run(self) -> pa.Table:
        """Return the nearest rows, nearest first."""
        # One after the other: Lance uses all cores by itself, and handing a search this short to another
        # thread takes longer than what is compared in memory.
        return self.merge([task.candidates() for task in self.tasks])

    def merge(self, found: Sequence[VectorCandidates]) -> pa.Table:
        """Return the nearest rows of all, by query vector and then by distance.

        Rows that are equally near come in the order of the tasks, and then of their places.
        """
        query = np.concatenate([one.query for one in found])
        distance = np.concatenate([one.distance for one in found])
        rows = np.concatenate([one.rows for one in found])
        task = np.repeat(np.arange(len(found)), [len(one.rows) for one in found])
        order = np.lexsort((rows, task, distance, query))
        starts = np.searchsorted(query[order], np.arange(len(self.query.vectors)))
        rank = np.arange(len(order)) - starts[query[order]]
        chosen = order[rank < self.query.k]
        table = fetch_chosen(self.schema, self.columns, self.tasks, found, task, chosen)
        added = {DISTANCE: pa.array(distance[chosen])}
        if self.query.batch:
            added[QUERY_INDEX] = pa.array(query[chosen])
        for name, values in added.items():
            table = table.append_column(self.schema.field(name), values)
        return table.select(self.schema.names)

    def describe(self) -> str:
        """Return the plan for people, one source per line."""
        lines = [self.header]
        lines += [f"  {task.describe()}" for task in self.tasks]
        lines += [f"  pruned {one.label}: {one.reason}" for one in self.pruned]
        return "\n".join(lines)


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
    sizes = np.cumsum([0, *(len(one.rows) for one in found)])
    parts, places = [], []
    for at in np.unique(task[chosen]).tolist():
        mine = np.flatnonzero(task[chosen] == at)
        part = tasks[at].fetch(found[at], chosen[mine] - sizes[at])
        part = part.select(list(columns))
        parts.append(part if part.schema.equals(wanted, check_metadata=True) else part.cast(wanted))
        places.append(mine)
    if not parts:
        return wanted.empty_table()
    if len(parts) == 1:
        return parts[0]
    return pa.concat_tables(parts).take(pa.array(np.argsort(np.concatenate(places))))


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
    index = vector_index(base, query.column)
    query = _with_metric(query, index, base.schema.field(query.column).type)
    kept, left_out = prune(snapshot, filter)
    pruned = [Pruned(f"shard {view.shard_id}", reason) for view, reason in left_out]
    layers = fresh_layers(store, snapshot, kept)
    usable = _usable(index, query)
    rows = base.dataset.count_rows()
    dataset_task = DatasetVectorTask.over
    tasks: list[VectorTask] = [
        dataset_task(
            base.dataset,
            store.storage_options,
            label=f"base table version {base.version}",
            query=query,
            columns=names,
            filter=filter,
            blocked=base_blocked(snapshot, layers),
            rows=rows,
            use_index=usable is not None,
            refine=_refined(usable, query),
        )
    ]
    centroids = None if usable is None else usable.centroids
    kind = base.schema.field(query.column).type
    held: list[FreshLayer] = []
    for layer in layers:
        if not layer.live.any():
            pruned.append(Pruned(layer.label, "every row is superseded or deleted"))
        elif fits_in_memory(layer.source, kind):
            held.append(layer)
        else:
            assert isinstance(layer.source, Generation)
            own = _usable(generation_vector_index(base.namespace, layer.source, query.column), query)
            tasks.append(
                dataset_task(
                    layer.source.dataset,
                    store.storage_options,
                    label=layer.label,
                    query=query,
                    columns=names,
                    filter=filter,
                    blocked=layer.blocked,
                    rows=len(layer.live),
                    use_index=own is not None,
                    refine=_refined(own, query),
                )
            )
    if held:
        tasks.append(LayersVectorTask(tuple(held), query, names, filter, centroids))
    header = (
        f"{query.k} nearest of {store.uri}, {consistency}: base version {base.version}, "
        f"{len(kept)} of {len(snapshot.shards)} shards, {_explained(index, usable, query, rows)}"
    )
    return VectorSearchPlan(schema, names, query, tuple(tasks), tuple(pruned), header)


def _usable(index: VectorIndex | None, query: VectorQuery) -> VectorIndex | None:
    return index if index is not None and index.metric == query.metric else None


def _refined(index: VectorIndex | None, query: VectorQuery) -> int | None:
    """Return how many times as many candidates to rank by their exact distance.

    An index of quantized vectors estimates distances, which would not compare with exact ones.
    """
    return None if index is None else query.refine or (1 if index.is_quantized else None)


def _added(query: VectorQuery) -> list[pa.Field]:
    added = [pa.field(DISTANCE, pa.float32())]
    return [pa.field(QUERY_INDEX, pa.int32()), *added] if query.batch else added


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
                f"the table has a column {one.name!r}, which is what the result's own is called",
                where="columns",
                hint="Leave it out with columns=[...]",
            )
    return pa.schema([*(schema.field(name) for name in columns), *added])


def _with_metric(query: VectorQuery, index: VectorIndex | None, kind: pa.DataType) -> VectorQuery:
    metric = query.metric or (index.metric if index is not None else None)
    if metric is None:
        metric = "hamming" if pa.types.is_integer(kind.value_type) else "l2"
    if metric == "cosine" and not query.vectors.any(axis=1).all():
        raise QueryError(
            "a query vector of zeros has no direction, and so no cosine to anything", where="vector"
        )
    return VectorQuery(query.column, query.vectors, query.batch, query.k, metric, query.nprobes, query.refine)


def _explained(index: VectorIndex | None, usable: VectorIndex | None, query: VectorQuery, rows: int) -> str:
    if usable is not None:
        return f"{usable.kind} index {usable.name!r} over {usable.rows} of {rows} base rows"
    if index is not None:
        return f"no index for {query.metric}: {index.name!r} is for {index.metric}, so all rows are compared"
    return (
        "no vector index: all rows are compared; "
        f'create_index("{query.column}", "IVF_PQ") would make that approximate and fast'
    )
