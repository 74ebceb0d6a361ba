"""Comparing the vectors of newer sources in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from weir.lsm.generation import Generation
from weir.lsm.levels import Level
from weir.search.chosen_rows import take_numbered
from weir.search.vector.ivf_partitions import Centroids, IvfPartitions, divided
from weir.search.vector.query import VectorQuery
from weir.search.vector.rows import VectorRows, vector_rows
from weir.search.vector.task import VectorCandidates

__all__ = ["LevelsVectorTask"]

_DEFAULT_PROBES = 20
_ROWS_TOGETHER = 250_000


@dataclass(frozen=True, slots=True)
class LevelsVectorTask:
    """Compare the vectors of generations, and of rows that are only in the log, in memory.

    Parameters
    ----------
    levels : tuple of Level
        The sources, and which of their rows are live.
    query : VectorQuery
        The query; the metric is set.
    columns : tuple of str
        Columns of the result.
    filter : str or None
        Only rows that match.
    centroids : Centroids or None
        By which the vectors may be divided.
    """

    levels: tuple[Level, ...]
    query: VectorQuery = field(repr=False)
    columns: tuple[str, ...]
    filter: str | None
    centroids: Centroids | None = field(repr=False)

    def candidates(self) -> VectorCandidates:
        """Return the nearest live rows."""
        query, metric = self.query, self.query.metric
        assert metric is not None
        parts = []
        for start, group in self._groups():
            probes: list[npt.NDArray[np.intp]] = []
            keeps = [level.matching(self.filter) for level in group]
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
                # If the filter leaves too few in those partitions, all are searched.
                for rows, distance in (
                    _nearest_of_each(group, self._held(group), keeps, vector, query.k, metric)
                    if found is None
                    else [found]
                ):
                    parts.append((np.full(len(rows), number, dtype=np.int32), distance, rows + start))
        return VectorCandidates(*(np.concatenate(column) for column in zip(*parts, strict=True)))

    def _groups(self) -> Iterator[tuple[int, tuple[Level, ...]]]:
        """Yield the levels that are searched together, and the number of the first row of each group.

        Generations are; the log would make the groups other ones with every write.
        """
        start = 0
        together: list[Level] = []
        for level in self.levels:
            log = not isinstance(level.source, Generation)
            rows = sum(len(one.live) for one in together)
            if together and (log or rows + len(level.live) > _ROWS_TOGETHER):
                yield start, tuple(together)
                start += rows
                together = []
            together.append(level)
            if log:
                yield start, (level,)
                start += len(level.live)
                together = []
        if together:
            yield start, tuple(together)

    def _held(self, group: Sequence[Level]) -> list[VectorRows]:
        return [
            vector_rows(level.engine.cache, level.namespace, level.source, self.query.column)
            for level in group
        ]

    def _division(self, group: Sequence[Level]) -> IvfPartitions | None:
        if self.centroids is None:
            return None
        key = (
            (group[0].namespace, self.query.column),
            *(level.source.identity for level in group),
        )
        # Vectors that have been divided are not needed as they were, and may leave the cache.
        sizes = [len(level.live) for level in group]
        return divided(group[0].engine.cache, key, lambda: self._held(group), sizes, self.centroids)

    def fetch(self, found: VectorCandidates, chosen: npt.NDArray[np.int64]) -> pa.Table:
        """Return the columns of the result of some candidates."""
        return take_numbered(self.levels, _starts(self.levels), found.rows[chosen], self.columns)

    def describe(self) -> str:
        """Return one line per level for people."""
        where = f" where {self.filter}" if self.filter else ""
        return "\n  ".join(
            f"{level.label}: compare {self.query.column} by {self.query.metric} in memory{where}, "
            f"{np.count_nonzero(~level.live)} of {len(level.live)} rows superseded or deleted"
            for level in self.levels
        )


def _nearest_of_each(
    group: Sequence[Level],
    held: Sequence[VectorRows],
    keeps: Sequence[npt.NDArray[np.bool_]],
    vector: npt.NDArray[Any],
    k: int,
    metric: str,
) -> Iterator[tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]]:
    for start, rows, keep in zip(_starts(group), held, keeps, strict=True):
        found, distance = rows.nearest(vector, k, metric, keep)
        yield found + start, distance


def _starts(levels: Sequence[Level]) -> list[int]:
    """Return the number that the first row of each level has when all are numbered one after the other."""
    starts: list[int] = np.cumsum([0, *(len(level.live) for level in levels[:-1])]).tolist()
    return starts
