"""Hybrid search: a ranking by vector and one by text over the same rows, fused."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from weir.errors import QueryError
from weir.format.plain_keys import stored_keys
from weir.search.chosen_rows import result_schema
from weir.search.text.search import TextSearchPlan
from weir.search.text.task import SCORE
from weir.search.vector.query import MAX_K, check_k
from weir.search.vector.search import VectorSearchPlan
from weir.search.vector.task import DISTANCE

__all__ = ["RELEVANCE", "Fusion", "HybridSearchPlan", "fusion"]

RELEVANCE = "_relevance"

_KINDS = ("rrf", "weighted")
_LARGEST_RRF_K = 1_000_000
_CANDIDATES_PER_ROW = 5
_LEAST_CANDIDATES = 50

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Fusion:
    """How two rankings become one. Made by :func:`fusion`.

    Parameters
    ----------
    kind : str
        ``"rrf"``: each ranking adds its weight divided by ``rrf_k`` plus the place in it, from 1.
        ``"weighted"``: each adds its weight times its scores, brought to 0 for the last and 1 for the best.
    vector_weight, text_weight : float
        The weights.
    rrf_k : int
        The larger, the less the first places stand out.
    k : int
        Rows to find.
    candidates : int
        Rows of each ranking that are considered.
    """

    kind: str
    vector_weight: float
    text_weight: float
    rrf_k: int
    k: int
    candidates: int

    def relevance(self, place: npt.NDArray[np.int64], goodness: Floats, weight: float) -> Floats:
        """Return what one ranking adds to its rows.

        Parameters
        ----------
        place : ndarray of int64
            Places, from 0.
        goodness : ndarray of float64
            Scores, larger ones better.
        """
        if self.kind == "rrf":
            return weight / (self.rrf_k + 1.0 + place.astype(np.float64))
        if not len(goodness):
            return goodness
        # A distance may be beyond all numbers.
        finite = goodness[np.isfinite(goodness)]
        goodness = goodness.clip(finite.min(initial=0.0), finite.max(initial=0.0))
        span = goodness.max() - goodness.min()
        normalised: Floats = (goodness - goodness.min()) / span if span > 0 else np.ones(len(goodness))
        return weight * normalised


def fusion(kind: str, weights: Sequence[float] | None, rrf_k: int, k: int, candidates: int | None) -> Fusion:
    """Check how two rankings are to become one.

    Raises
    ------
    QueryError
        Saying what cannot be used.
    """
    if kind not in _KINDS:
        raise QueryError(f"fusion must be 'rrf' or 'weighted', got {kind!r:.60}", where="fusion")
    if weights is None:
        weights = (1.0, 1.0) if kind == "rrf" else (0.5, 0.5)
    if isinstance(weights, str) or not isinstance(weights, Sequence) or len(weights) != 2:
        raise QueryError(
            f"weights are two numbers, for the vector and for the text, got {weights!r:.60}", where="weights"
        )
    for weight in weights:
        number = not isinstance(weight, bool) and isinstance(weight, int | float)
        if not number or not math.isfinite(weight) or weight < 0:
            raise QueryError(f"a weight is a number of at least 0, got {weight!r:.60}", where="weights")
    if not any(weights):
        raise QueryError("one of the weights must be more than 0", where="weights")
    if isinstance(rrf_k, bool) or not isinstance(rrf_k, int) or not 0 <= rrf_k <= _LARGEST_RRF_K:
        raise QueryError(
            f"rrf_k must be a whole number from 0 to {_LARGEST_RRF_K:,}, got {rrf_k!r:.60}", where="rrf_k"
        )
    k = check_k(k)
    if candidates is None:
        candidates = min(max(_CANDIDATES_PER_ROW * k, _LEAST_CANDIDATES), MAX_K)
    elif isinstance(candidates, bool) or not isinstance(candidates, int) or not k <= candidates <= MAX_K:
        raise QueryError(
            f"candidates must be a whole number from k, which is {k}, to {MAX_K:,}, got {candidates!r:.60}",
            where="candidates",
        )
    return Fusion(kind, float(weights[0]), float(weights[1]), rrf_k, k, candidates)


@dataclass(frozen=True, slots=True)
class HybridSearchPlan:
    """What a hybrid search will do: a search by vector and one by text, on the same snapshot.

    Parameters
    ----------
    by_vector, by_text : VectorSearchPlan, TextSearchPlan
        The searches, for the columns of the result and those of the primary key.
    fusion : Fusion
        How their rankings become one.
    columns : tuple of str
        Columns of the table in the result.
    primary_key : tuple of str
        The columns that identify rows.
    """

    by_vector: VectorSearchPlan
    by_text: TextSearchPlan
    fusion: Fusion
    columns: tuple[str, ...]
    primary_key: tuple[str, ...]

    @property
    def schema(self) -> pa.Schema:
        """Schema of the result."""
        added = [
            pa.field(DISTANCE, pa.float32()),
            pa.field(SCORE, pa.float32()),
            pa.field(RELEVANCE, pa.float32()),
        ]
        return result_schema(self.by_vector.schema, self.columns, added)

    def run(self) -> pa.Table:
        """Return the rows, most relevant first."""
        return self.fuse(self.by_vector.run(), self.by_text.run())

    def fuse(self, near: pa.Table, apt: pa.Table) -> pa.Table:
        """Return the rows of two rankings as one.

        Rows that are equally relevant come by their place in the ranking by vector, then by text.

        Parameters
        ----------
        near, apt : Table
            The rankings by vector and by text, best first.
        """
        number = _numbered(
            [pa.chunked_array([*near[name].chunks, *apt[name].chunks]) for name in self.primary_key]
        )
        rows = int(number.max()) + 1 if len(number) else 0
        distance = near[DISTANCE].to_numpy().astype(np.float64)
        score = apt[SCORE].to_numpy().astype(np.float64)
        relevance = np.zeros(rows)
        places = []
        for mine, goodness, weight in (
            (number[: near.num_rows], -distance, self.fusion.vector_weight),
            (number[near.num_rows :], score, self.fusion.text_weight),
        ):
            place = np.full(rows, len(number), dtype=np.int64)
            place[mine] = np.arange(len(mine))
            places.append(place)
            relevance[mine] += self.fusion.relevance(np.arange(len(mine)), goodness, weight)
        best = np.lexsort((places[1], places[0], -relevance))[: self.fusion.k]
        at_vector = pa.array(places[0][best], mask=places[0][best] >= near.num_rows)
        at_text = pa.array(places[1][best], mask=places[1][best] >= apt.num_rows)
        first = np.where(places[0] < near.num_rows, places[0], near.num_rows + places[1])[best]
        both = pa.concat_tables([near.select(list(self.columns)), apt.select(list(self.columns))])
        table = both.take(pa.array(first))
        added = (
            near[DISTANCE].take(at_vector),
            apt[SCORE].take(at_text),
            pa.array(relevance[best], pa.float32()),
        )
        for name, values in zip((DISTANCE, SCORE, RELEVANCE), added, strict=True):
            table = table.append_column(self.schema.field(name), values)
        return table

    def describe(self) -> str:
        """Return the plan for people, one source per line."""
        how = self.fusion
        by = (
            f"reciprocal ranks, k {how.rrf_k}"
            if how.kind == "rrf"
            else "scores brought to the range of 0 to 1"
        )
        return (
            f"{how.k} most relevant by {by}, weight {how.vector_weight:g} by vector and {how.text_weight:g} "
            f"by text, of\n{self.by_vector.describe()}\n{self.by_text.describe()}"
        )


def _numbered(columns: Sequence[pa.ChunkedArray]) -> npt.NDArray[Any]:
    """Return a number for every key, the same for equal ones."""
    number = np.zeros(len(columns[0]), dtype=np.int64)
    for column in columns:
        codes = pc.dictionary_encode(stored_keys(column.combine_chunks())).indices.to_numpy().astype(np.int64)
        _, number = np.unique(number * (int(codes.max(initial=0)) + 1) + codes, return_inverse=True)
    return number
