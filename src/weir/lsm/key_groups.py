"""Fresh sources of a shard in groups, each of which is searched for keys like one source.

A lookup in every generation would cost more with every flush. Neighbouring generations share a key index
instead. Groups double in size towards the older ones, like the levels of an LSM tree: their number is
logarithmic in the number of generations, and every key is reindexed as often.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from weir.engine.cache import ByteBudgetCache
from weir.lsm.generation import Generation
from weir.lsm.keys import KeyIndex, KeySet
from weir.lsm.newest import FreshSource

__all__ = ["KeyGroup", "key_groups"]

Offsets = npt.NDArray[np.int64]

_ASK_FILTERS = 16
_GROWTH = 2


class KeyGroup:
    """Sources of one shard that follow each other: generations, or one run of the log.

    Parameters
    ----------
    namespace : str
        Identity of the table, for the cache.
    sources : sequence of Generation or TailRun
        Oldest first.
    """

    def __init__(self, cache: ByteBudgetCache, namespace: str, sources: Sequence[FreshSource]) -> None:
        self._cache = cache
        self.sources = tuple(sources)
        self._key: Hashable = ("key group", namespace, tuple(source.identity for source in sources))

    def newest(self, wanted: KeySet) -> Iterator[tuple[FreshSource, Offsets, Offsets]]:
        """Find keys.

        Yields
        ------
        source : Generation or TailRun
            The newest source of some of the keys.
        found : ndarray of int64
            Which of ``wanted`` these are.
        rows : ndarray of int64
            Their newest rows in the source, aligned with ``found``.
        """
        if len(self.sources) == 1 and not isinstance(self.sources[0], Generation):
            found, rows = self.sources[0].index.lookup(wanted)
            if found.size:
                yield self.sources[0], found, rows
            return
        merged = self._merged()
        if merged is None:
            yield from self._by_filters(wanted)
            return
        index, starts = merged
        found, rows = index.lookup(wanted)
        if not found.size:
            return
        number = starts.searchsorted(rows, side="right") - 1
        for at in np.unique(number).tolist():
            mine = number == at
            yield self.sources[at], found[mine], rows[mine] - starts[at]

    def _by_filters(self, wanted: KeySet) -> Iterator[tuple[FreshSource, Offsets, Offsets]]:
        """Find keys in the generations one by one; the keys of those whose filters deny them are not read."""
        left = np.arange(len(wanted), dtype=np.int64)
        for source in reversed(self.sources):
            assert isinstance(source, Generation)
            asked = left
            bloom_filter = None if source.has_read_keys else source.bloom_filter
            if bloom_filter is not None:
                asked = asked[bloom_filter.contains(wanted.bloom_hashes[asked])]
            if not asked.size:
                continue
            found, rows = source.index.lookup(wanted.take(asked))
            if found.size:
                yield source, asked[found], rows
                left = np.setdiff1d(left, asked[found], assume_unique=True)

    def _merged(self) -> tuple[KeyIndex, Offsets] | None:
        """Return one index over all keys and where each source begins, if that pays.

        The first few lookups ask the bloom filters, for which nothing else need be loaded; but not for the
        sake of a few generations among many that are.
        """
        cache = self._cache
        known = cache.get(self._key)
        if isinstance(known, tuple):
            return known
        asked = (known or 0) + 1
        indexed = sum(isinstance(one, Generation) and one.has_read_keys for one in self.sources)
        if asked <= _ASK_FILTERS and 2 * indexed <= len(self.sources) and indexed < len(self.sources):
            cache.put(self._key, asked, 0)
            return None
        indexes = [source.index for source in self.sources]
        starts = np.cumsum([0, *(len(one.keys) for one in indexes[:-1])])
        # That of a single generation is in the cache already.
        index = indexes[0] if len(indexes) == 1 else KeyIndex.merge(indexes)
        cache.put(self._key, (index, starts), 0 if len(indexes) == 1 else index.nbytes)
        return index, starts


def key_groups(cache: ByteBudgetCache, namespace: str, sources: Sequence[FreshSource]) -> list[KeyGroup]:
    """Return the groups of the sources of one shard, newest first.

    Parameters
    ----------
    namespace : str
        Identity of the table, for the cache.
    sources : sequence of Generation or TailRun
        Oldest first: generations, and then the runs of the log, which grow in the same way by themselves.
    """
    groups: list[tuple[int, list[FreshSource]]] = []
    runs: list[list[FreshSource]] = []
    for source in sources:
        if not isinstance(source, Generation):
            runs.append([source])
            continue
        # Not every manifest has the number of rows.
        groups.append((max(source.flushed.physical_rows, 1), [source]))
        while len(groups) > 1 and groups[-2][0] < _GROWTH * groups[-1][0]:
            rows, newer = groups.pop()
            groups[-1] = (groups[-1][0] + rows, groups[-1][1] + newer)
    together = [*(group for _, group in groups), *runs]
    return [KeyGroup(cache, namespace, group) for group in reversed(together)]
