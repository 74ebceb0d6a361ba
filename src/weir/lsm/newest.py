"""The live rows of a shard's fresh sources: the newest row of every key, without tombstones.

Lance MemWAL spec, "LSM Tree Merging Read": highest generation first, then highest row address. A
shard's fresh sources are, oldest first, its unmerged generations and the runs of its WAL tail.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from weir.engine.cache import ByteBudgetCache, Lifetime
from weir.format.newest import newest_rows
from weir.lsm.folded_rows import FoldedRows
from weir.lsm.generation import Generation
from weir.lsm.keys import KeySet
from weir.lsm.log_tail import TailRun

__all__ = ["FreshSource", "Overlay", "overlay"]

FreshSource = Generation | TailRun | FoldedRows


@dataclass(frozen=True, slots=True)
class Overlay:
    """Which rows of some sources of one shard count.

    Parameters
    ----------
    sources : tuple of Generation or TailRun
        Oldest first.
    live : tuple of ndarray of bool
        Per source and row: whether the row is its key's newest version and no tombstone.
    """

    sources: tuple[FreshSource, ...]
    live: tuple[npt.NDArray[np.bool_], ...]

    @property
    def nbytes(self) -> int:
        """Bytes the masks take in memory."""
        return sum(mask.nbytes for mask in self.live)


def overlay(
    cache: ByteBudgetCache,
    namespace: str,
    sources: Sequence[FreshSource],
    lifetime: Lifetime | None = None,
) -> Overlay:
    """Return which rows of ``sources`` count.

    Parameters
    ----------
    cache : ByteBudgetCache
        Holds the results.
    namespace : str
        Identity of the table, for the cache.
    sources : sequence of Generation or TailRun
        The fresh sources of one shard, oldest first.
    lifetime : Lifetime, optional
        That of the base table's version which they are read beside: later ones have merged them.
    """
    sources = tuple(sources)
    if not sources:
        return Overlay((), ())
    known = cache.get(_key(namespace, sources))
    if known is not None:
        # It stays for as long as the newest version that it was read beside.
        cache.put(_key(namespace, sources), known, known.nbytes, lifetime)
        return Overlay(sources, known.live)
    before = cache.get(_key(namespace, sources[:-1])) if len(sources) > 1 else None
    built = _build(sources) if before is None else _extended(Overlay(sources[:-1], before.live), sources[-1])
    cache.put(_key(namespace, sources), Overlay((), built.live), built.nbytes, lifetime)
    return built


def _key(namespace: str, sources: tuple[FreshSource, ...]) -> Hashable:
    return ("overlay", namespace, tuple(source.identity for source in sources))


def _build(sources: tuple[FreshSource, ...]) -> Overlay:
    keys = KeySet.concat([source.keys for source in sources])
    newest = np.zeros(len(keys), dtype=bool)
    newest[newest_rows(keys.columns)] = True
    ends = np.cumsum([len(source.keys) for source in sources])
    masks = np.split(newest, ends[:-1])
    return Overlay(
        sources, tuple(mask & ~source.tombstones for mask, source in zip(masks, sources, strict=True))
    )


def _extended(before: Overlay, newer: FreshSource) -> Overlay:
    if newer.keys.follow([source.keys for source in before.sources]):
        return Overlay((*before.sources, newer), (*before.live, ~newer.tombstones))
    newest = newer.index.rows
    keys = newer.index.keys.take(newest)
    live = []
    for source, mask in zip(before.sources, before.live, strict=True):
        _, rows = source.index.lookup(keys)
        if mask[rows].any():
            mask = mask.copy()
            mask[rows] = False
        live.append(mask)
    own = np.zeros(len(newer.keys), dtype=bool)
    own[newest] = True
    return Overlay((*before.sources, newer), (*live, own & ~newer.tombstones))
