"""The levels of the merged view, and which of their rows are live: what every read begins with.

The base table is the lowest level. Above it each shard has its flushed generations that are not merged yet,
and above those the tail of its log. A row is live if it is its key's newest version and no tombstone. All
versions of a key are in one shard, so that the levels of different shards never concern each other.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import xxhash

from weir.base.table import BaseTable
from weir.engine.context import EngineContext
from weir.format.shard_manifest import FlushedGeneration
from weir.format.wal_entry import TOMBSTONE
from weir.lsm.damage import reading
from weir.lsm.deletion_mask import DeletionMask
from weir.lsm.expired_rows import expired_filter, live_mask
from weir.lsm.filters import matching_rows, named_columns
from weir.lsm.folded_rows import folded_rows
from weir.lsm.generation import Generation
from weir.lsm.key_groups import KeyGroup, key_groups
from weir.lsm.log_tail import TailRun
from weir.lsm.newest import FreshSource, overlay
from weir.lsm.read_along import MOST_ROWS
from weir.lsm.superseded import superseded_rows
from weir.schema.vectors import is_vector

__all__ = ["Level", "ShardLevels", "base_mask"]

Rows = npt.NDArray[np.int64]
LiveRows = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Level:
    """A source that is newer than the base table, and its live mask. Can be pickled.

    Parameters
    ----------
    shard_id : UUID
        The shard.
    source : Generation, TailRun or FoldedRows
        The source.
    live : ndarray of bool
        Per row: whether it is its key's newest version and no tombstone.
    namespace : str
        Identity of the table, for caches.
    decided_by : tuple
        Identities of the sources that ``live`` follows from.
    engine : EngineContext
        The engine whose cache is used.
    """

    shard_id: UUID
    source: FreshSource
    live: LiveRows = field(repr=False)
    namespace: str
    decided_by: tuple[Hashable, ...] = field(repr=False)
    engine: EngineContext = field(repr=False, compare=False)

    @property
    def label(self) -> str:
        """Name for people."""
        return f"shard {self.shard_id}, {self.source.label}"

    @property
    def mask(self) -> DeletionMask:
        """The rows of a generation that are not live, as Lance takes them."""
        source = self.source
        assert isinstance(source, Generation)
        return self.engine.cache.get_or_load(
            ("deletion mask", self.namespace, self.decided_by),
            lambda: DeletionMask(np.sort(source.row_ids[~self.live])),
            lambda loaded: loaded.nbytes,
        )

    @property
    def rows_key(self) -> Hashable:
        """What its live rows follow from, for a cache; None if they are many."""
        if len(self.live) > MOST_ROWS:
            return None
        return ("live rows", self.namespace, self.source.identity, self.decided_by)

    def without_expired(self, base: BaseTable, instant: datetime) -> Level:
        """Return the level with the rows dead that have expired at an instant."""
        assert base.expiry is not None
        times = self.take(np.arange(len(self.live)), [base.expiry.column])
        live = live_mask(base, times, instant)
        if live is None:
            return self
        live = self.live & live
        # Not by the instant: reads a moment apart mostly find the same rows dead, and share what is cached.
        dead = xxhash.xxh3_128_digest(np.packbits(live).tobytes())
        return replace(self, live=live, decided_by=(*self.decided_by, ("expired", dead)))

    def take(self, rows: Rows, columns: list[str]) -> pa.Table:
        """Return some rows, by their offset.

        Searches come back to the same few generations again and again. Columns of a generation that take
        little memory are held in the process cache.
        """
        source = self.source
        if not isinstance(source, Generation):
            return source.take(rows, columns)
        schema = source.columns.schema
        if len(self.live) > MOST_ROWS or any(is_vector(schema.field(name).type) for name in columns):
            return source.take(rows, columns)
        held = [self._held(source, name) for name in columns]
        places = pa.array(rows)
        wanted = pa.schema([schema.field(name) for name in columns])
        return pa.table([column.take(places) for column in held], schema=wanted)

    def _held(self, source: Generation, name: str) -> pa.Array:
        return self.engine.cache.get_or_load(
            ("column", self.namespace, source.identity, name),
            lambda: source.column(name),
            lambda loaded: loaded.nbytes,
        )

    def matching(self, filter: str | None) -> LiveRows:
        """Return, per row, whether it is live and a filter lets it pass."""
        if filter is None:
            return self.live
        if isinstance(self.source, Generation):
            return self.engine.cache.get_or_load(
                ("matching", self.namespace, self.decided_by, filter),
                lambda: self._matching_of_generation(filter),
                lambda loaded: loaded.nbytes,
            )
        names = self.source.rows.drop_columns([TOMBSTONE]).column_names
        return self._matching_of(self.source.take, names, filter)

    def _matching_of(
        self, take: Callable[[Rows, list[str]], pa.Table], columns: list[str], filter: str
    ) -> LiveRows:
        # Only live rows are shown to the filter, which may fail on others.
        rows = np.flatnonzero(self.live)
        found = np.zeros(len(self.live), dtype=bool)
        if len(rows):
            found[rows[matching_rows(take(rows, columns), filter)]] = True
        return found

    def _matching_of_generation(self, filter: str) -> LiveRows:
        source = self.source
        assert isinstance(source, Generation)
        named = named_columns(filter, source.columns.schema)
        if not source.columns.is_same(named):
            return self._matching_of(source.take, named, filter)
        with reading(self.label, source.uri, filter):
            scanner = source.dataset.scanner(
                columns=[], filter=filter, with_row_id=True, row_addr_blocklist=self.mask.serialized
            )
            row_ids = scanner.to_table().column("_rowid").to_numpy()
        return np.isin(source.row_ids, row_ids)


class ShardLevels:
    """What one shard has above the base table, each part worked out when it is first asked for.

    Parameters
    ----------
    base : BaseTable
        The base table, pinned at a version.
    shard_id : UUID
        The shard.
    generations : sequence of FlushedGeneration
        Its flushed generations that the base table does not contain, ascending.
    tail : sequence of TailRun
        The runs of its log tail, oldest first.
    dead_at : datetime, optional
        Rows that have expired at this instant are dead too. None: expiry is for others to judge.
    """

    def __init__(
        self,
        base: BaseTable,
        shard_id: UUID,
        generations: Sequence[FlushedGeneration],
        tail: Sequence[TailRun],
        dead_at: datetime | None = None,
    ) -> None:
        self._base = base
        self.shard_id = shard_id
        self._generations = tuple(generations)
        self._tail = tuple(tail)
        self._dead_at = dead_at

    @cached_property
    def sources(self) -> tuple[Generation | TailRun, ...]:
        """The generations and the runs of the tail that hold rows, oldest first."""
        base = self._base
        generations = (
            Generation.cached(
                base.store, base.namespace, self.shard_id, flushed, base.primary_key, base.row_schema
            )
            for flushed in self._generations
        )
        return (*generations, *(run for run in self._tail if run.rows.num_rows))

    @cached_property
    def settled(self) -> tuple[FreshSource, ...]:
        """The sources of the shard's rows, in which the newest row of a key is live.

        Under a merge engine one source with the folded rows replaces them.
        """
        engine, sources = self._base.merge_engine, self.sources
        if engine is None or not sources:
            return sources
        return (folded_rows(self._base, engine, self.shard_id, sources),)

    @cached_property
    def levels(self) -> tuple[Level, ...]:
        """The same with their live masks, oldest first."""
        return self.levels_from(0)

    def levels_from(self, first: int) -> tuple[Level, ...]:
        """Return those from a source on; older ones replace no row of theirs."""
        levels, at = self._levels_from(first), self._dead_at
        return levels if at is None else tuple(one.without_expired(self._base, at) for one in levels)

    def _levels_from(self, first: int) -> tuple[Level, ...]:
        namespace = self._base.namespace
        sources = self.settled[first:]
        if self._base.append_only is not None:
            # No row replaces another.
            return tuple(
                Level(
                    self.shard_id,
                    source,
                    ~source.tombstones,
                    namespace,
                    (source.identity,),
                    self._base.engine,
                )
                for source in sources
            )
        merged = overlay(self._base.engine.cache, namespace, sources, self._base.lifetime)
        identities = tuple(source.identity for source in merged.sources)
        return tuple(
            Level(self.shard_id, source, live, namespace, identities[at:], self._base.engine)
            for at, (source, live) in enumerate(zip(merged.sources, merged.live, strict=True))
        )

    @cached_property
    def key_groups(self) -> Sequence[KeyGroup]:
        """The sources in groups that are looked into together, newest first."""
        return key_groups(self._base.engine.cache, self._base.namespace, self.settled)


def base_mask(
    base: BaseTable, shards: Sequence[ShardLevels], dead_at: datetime | None = None
) -> DeletionMask:
    """Return the base table's rows that some level of some shards has replaced or deleted.

    Parameters
    ----------
    dead_at : datetime, optional
        And those that have expired at this instant.
    """
    replaced = _replaced_in_base(base, shards)
    expired = None if dead_at is None else expired_filter(base, dead_at)
    if expired is None:
        return replaced
    with reading(f"base table version {base.version}", base.uri):
        return replaced.with_matching(base.dataset, expired)


def _replaced_in_base(base: BaseTable, shards: Sequence[ShardLevels]) -> DeletionMask:
    keyed = () if base.append_only is not None else shards
    sources = [source for shard in keyed for source in shard.settled]
    return base.engine.cache.get_or_load(
        ("deletion mask", base.namespace, base.version_key, tuple(source.identity for source in sources)),
        lambda: DeletionMask(superseded_rows(base.namespace, base, sources)),
        lambda loaded: loaded.nbytes,
        base.lifetime,
    )
