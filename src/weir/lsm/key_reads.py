"""Reading the keys of what is newer than the base table, all at once, with what a scan needs next."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from threading import Lock

import numpy as np
import pyarrow as pa

from weir.base.key_pages import key_pages
from weir.base.table import BaseTable
from weir.engine.concurrent_map import concurrent_map, processors
from weir.lsm.damage import reading
from weir.lsm.generation import Generation
from weir.lsm.levels import ShardLevels
from weir.lsm.marked_keys import lie_close
from weir.lsm.read_along import is_read_along

__all__ = ["must_read_keys", "read_keys"]

_MANY_KEYS = 4_000
_SAMPLED_KEYS = 1_000
"""So many keys of a generation show whether most pages of the base table's key index are needed."""


def read_keys(
    base: BaseTable,
    shards: Sequence[ShardLevels],
    columns: Sequence[str] | None = None,
    then: Callable[[], object] | None = None,
    *,
    shows_keys: bool = False,
) -> Mapping[Hashable, pa.Table]:
    """Read the keys of all generations of some shards, and open those of the base table, all at once.

    On local disk where there are many: there a few take less time than handing them to a thread.

    Parameters
    ----------
    base : BaseTable
        The base table, pinned at a version.
    shards : sequence of ShardLevels
        The shards.
    columns : sequence of str, optional
        The columns of a scan, if all live rows are read next, those of the base table too.
    then : callable, optional
        Begins what is to be done beside, once a thread has no more keys to read: the few keys, which all else
        waits for, would have to wait in turn for what the library does for it. Not called where nothing is
        read beside anything.
    shows_keys : bool, default False
        Whether the rows of the base table, which are read beside, are looked through for keys that lie close
        together, so that its key index is not needed for these.

    Returns
    -------
    mapping of hashable to Table
        By the identity of a generation, the columns of all its rows. Of those that are small and whose keys
        had to be read.
    """
    generations = _without_keys(shards)
    if not generations:
        return {}
    is_local = base.store.is_local
    found: dict[Hashable, pa.Table] = {}
    if is_local and _rows(generations) < _MANY_KEYS:
        for one in generations if columns else ():
            _read(one, columns, found)
        return found
    with_keys = base.append_only is None
    ahead = _KeysOfBase(base, shows_keys) if is_local and columns is not None and with_keys else None

    def read(source: Generation) -> None:
        _read(source, columns, found)
        if ahead is not None:
            ahead.read_for(source)

    reads: list[Callable[[], object]] = [partial(read, one) for one in generations]
    if with_keys and (not is_local or columns is None):
        reads.append(partial(_open_keys, base))
    if then is not None:
        reads.append(then)
    # From local disk, decoding takes the time.
    at_once = processors() if is_local else len(reads)
    for _ in concurrent_map(lambda read: read(), reads, is_local=False, engine=base.engine, at_once=at_once):
        pass
    return found


def must_read_keys(shards: Sequence[ShardLevels]) -> bool:
    """Whether there are many keys of generations that have not been read."""
    return _rows(_without_keys(shards)) >= _MANY_KEYS


def _without_keys(shards: Sequence[ShardLevels]) -> list[Generation]:
    return [
        source
        for shard in shards
        for source in shard.settled
        if isinstance(source, Generation) and not source.has_read_keys
    ]


def _rows(generations: Sequence[Generation]) -> int:
    return sum(one.flushed.physical_rows for one in generations)


def _read(source: Generation, columns: Sequence[str] | None, found: dict[Hashable, pa.Table]) -> None:
    rows = source.read_with_keys(columns) if columns and is_read_along(source, columns) else None
    if rows is not None:
        found[source.identity] = rows
    else:
        _ = source.tombstones


def _open_keys(base: BaseTable) -> None:
    with reading(f"base table version {base.version}", base.uri):
        key_pages(base)


class _KeysOfBase:
    """Reads the key index of a base table, by one of the threads that read generations.

    Parameters
    ----------
    base : BaseTable
        The base table.
    shows_keys : bool
        Whether keys that lie close together are found without it.
    """

    def __init__(self, base: BaseTable, shows_keys: bool) -> None:
        self._base = base
        self._shows_keys = shows_keys
        self._turn = Lock()
        self._is_read = False

    def read_for(self, source: Generation) -> None:
        """Open it, and read it if the keys of a generation need most of it, unless another thread does so."""
        if self._is_read or not self._turn.acquire(blocking=False):
            return
        try:
            self._is_read = self._needs_no_more(source)
        finally:
            self._turn.release()

    def _needs_no_more(self, source: Generation) -> bool:
        if self._shows_keys and lie_close(source.keys.columns[0]):
            return False
        with reading(f"base table version {self._base.version}", self._base.uri):
            pages = key_pages(self._base)
            if pages is None:
                return True
            (keys,) = source.keys.columns
            step = max(len(keys) // _SAMPLED_KEYS, 1)
            return pages.read_ahead(keys.take(pa.array(np.arange(0, len(keys), step))))
