"""Searches by vector and by text over an indexed base, unmerged generations and unflushed rows."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import lance
import numpy as np
import pyarrow as pa
from lance.mem_wal import LsmVectorSearchPlanner

import weir
from benchmarks.context import Context, Result
from benchmarks.harness import Case, Contender, Sense, Target, measure
from benchmarks.searched_table import SearchedTable, SearchScale, Vectors, build

__all__ = ["run"]

_K = 10
_CALLS = 60
_QUERIES = 200
_CHECKED = 50
_PROBES = 20
_REFINE = 30
_RECALL = 0.95
_VECTOR_FACTOR = 1.5
_TEXT_FACTOR = 2.0
_COLUMNS = ["id", "category", "at", "text"]

_WEIR = "weir, strong"
_BASE_ONLY = "base-only Lance search"
_LIBRARY = "pylance LsmVectorSearchPlanner"

_Search = Callable[[Any], pa.Table]


class LowRecallError(Exception):
    """The answers are not near enough to the truth for their time to mean anything."""


def run(context: Context) -> Result:
    """Measure searches by vector and by text."""
    context.say("search: writing the table")
    scale = SearchScale.of(context.scale)
    searched = build(context.directory, scale)
    table = weir.open(searched.uri)
    rounds = context.scale.rounds
    context.say("search: truth")
    vectors = searched.queries(_QUERIES)
    recall = _recall(table, searched, vectors[:_CHECKED])
    if recall < _RECALL:
        raise LowRecallError(f"recall@{_K} of {recall:.3f} is below {_RECALL}")
    context.say("search: by vector")
    by_vector = measure(
        [_contender(name, search, list(vectors)) for name, search in _by_vector(table, searched).items()],
        rounds=rounds,
        calls=_CALLS,
        warm_up=5,
    )
    context.say("search: by text")
    texts = searched.texts(_QUERIES)
    by_text = measure(
        [_contender(name, search, texts) for name, search in _by_text(table, searched.dataset()).items()],
        rounds=rounds,
        calls=_CALLS,
        warm_up=5,
    )
    return Result(
        "search",
        f"search for {_K}: {scale.base_rows:,} base rows of 128 dimensions, {scale.generations} unmerged "
        f"generations of {scale.generation_rows:,} and {scale.unflushed_rows:,} unflushed rows",
        (
            f"{_WEIR}: every search first makes sure that it sees every acknowledged write",
            f"{_BASE_ONLY}: the base table alone, which misses what is newer and finds what is replaced",
            f"{_LIBRARY}: plan_search and to_table of a planner made once for a fixed snapshot, without the "
            "unflushed rows",
            f"by vector: IVF_PQ of {scale.partitions:,} partitions, nprobes {_PROBES}, refine {_REFINE} for "
            f"all; recall@{_K} of Weir against all live rows {recall:.3f}",
            "by text: INVERTED, two or three words of very different frequency",
            f"{_QUERIES} queries in turn; columns {', '.join(_COLUMNS)}",
        ),
        (
            Case("search", "by vector", by_vector, (_target(_VECTOR_FACTOR),)),
            Case("search", "by text", by_text, (_target(_TEXT_FACTOR),)),
        ),
    )


def _target(factor: float) -> Target:
    return Target(_WEIR, Sense.WITHIN, factor, (_BASE_ONLY,))


def _by_vector(table: weir.Table, searched: SearchedTable) -> dict[str, _Search]:
    dataset = searched.dataset()
    planner = LsmVectorSearchPlanner(dataset, searched.snapshots(), "vector", ["id"], distance_type="l2")

    def ours(query: Any) -> pa.Table:
        return table.search(query, _K, columns=_COLUMNS, nprobes=_PROBES, refine=_REFINE).to_table()

    def base_only(query: Any) -> pa.Table:
        nearest = {"column": "vector", "q": query, "k": _K, "nprobes": _PROBES, "refine_factor": _REFINE}
        return dataset.scanner(
            columns=[*_COLUMNS, "_distance"], nearest=nearest, disable_scoring_autoprojection=True
        ).to_table()

    def theirs(query: Any) -> pa.Table:
        return planner.plan_search(
            pa.array(query), _K, _PROBES, columns=_COLUMNS, refine_base_table=True
        ).to_table()

    return {_WEIR: ours, _BASE_ONLY: base_only, _LIBRARY: theirs}


def _by_text(table: weir.Table, dataset: lance.LanceDataset) -> dict[str, _Search]:
    def ours(query: Any) -> pa.Table:
        return table.search_text(query, _K, column="text", columns=_COLUMNS).to_table()

    def base_only(query: Any) -> pa.Table:
        return dataset.scanner(
            columns=[*_COLUMNS, "_score"],
            full_text_query={"query": query, "columns": ["text"]},
            limit=_K,
            disable_scoring_autoprojection=True,
        ).to_table()

    return {_WEIR: ours, _BASE_ONLY: base_only}


def _recall(table: weir.Table, searched: SearchedTable, queries: Vectors) -> float:
    truth = searched.nearest(table, queries, _K)
    search = _by_vector(table, searched)[_WEIR]
    found = [set(search(query).column("id").to_pylist()) for query in queries]
    return float(np.mean([len(one & other) / _K for one, other in zip(found, truth, strict=True)]))


def _contender(name: str, search: _Search, queries: Sequence[Any]) -> Contender:
    turn = itertools.cycle(queries)

    @contextmanager
    def session() -> Iterator[Callable[[], object]]:
        yield lambda: search(next(turn))

    return Contender(name, session)
