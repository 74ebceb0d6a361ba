"""The levels of the merged view as a search sees them: which rows of each source count."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from weir.engine.cache import process_cache
from weir.format.snapshot_token import STAMP_BYTES, SnapshotToken
from weir.format.wal_entry import TOMBSTONE
from weir.log.wal import first_unflushed_position
from weir.lsm.damage import reading
from weir.lsm.deletion_mask import DeletionMask
from weir.lsm.filters import matching_rows, named_columns
from weir.lsm.generation import Generation
from weir.lsm.newest import FreshSource, overlay
from weir.lsm.superseded import superseded_rows
from weir.read.planner import fresh_sources
from weir.search.vector.query import is_vector
from weir.snapshots.capture import cut_at
from weir.snapshots.shard_view import ShardView
from weir.snapshots.snapshot import ReadSnapshot
from weir.storage.interface import ObjectStore

__all__ = ["Level", "base_blocked", "fresh_levels", "token_of"]


Rows = npt.NDArray[np.int64]

_HELD_ROWS = 100_000


@dataclass(frozen=True, slots=True)
class Level:
    """A source that is newer than the base table, and which of its rows count.

    Parameters
    ----------
    shard_id : UUID
        The shard.
    source : Generation or TailRun
        The source.
    live : ndarray of bool
        Per row: whether it is its key's newest version and no tombstone.
    namespace : str
        Identity of the table, for caches.
    decided_by : tuple
        Identities of the sources that ``live`` follows from.
    """

    shard_id: UUID
    source: FreshSource
    live: npt.NDArray[np.bool_] = field(repr=False)
    namespace: str
    decided_by: tuple[Hashable, ...] = field(repr=False)

    @property
    def label(self) -> str:
        """Name for people."""
        return f"shard {self.shard_id}, {self.source.label}"

    @property
    def blocked(self) -> DeletionMask:
        """The rows of a generation that do not count, as Lance takes them."""
        source = self.source
        assert isinstance(source, Generation)
        return process_cache().get_or_load(
            ("blocked", self.namespace, self.decided_by),
            lambda: DeletionMask(np.sort(source.row_ids[~self.live])),
            lambda loaded: loaded.nbytes,
        )

    def take(self, rows: npt.NDArray[np.int64], columns: list[str]) -> pa.Table:
        """Return some rows, by their offset.

        Searches come back to the same few generations again and again. Columns of a generation that take
        little memory are held in the process cache.
        """
        source = self.source
        if not isinstance(source, Generation):
            return source.take(rows, columns)
        schema = source.columns.schema
        if len(self.live) > _HELD_ROWS or any(is_vector(schema.field(name).type) for name in columns):
            return source.take(rows, columns)
        held = [self._held(source, name) for name in columns]
        places = pa.array(rows)
        wanted = pa.schema([schema.field(name) for name in columns])
        return pa.table([column.take(places) for column in held], schema=wanted)

    def _held(self, source: Generation, name: str) -> pa.Array:
        return process_cache().get_or_load(
            ("column", self.namespace, source.identity, name),
            lambda: source.column(name),
            lambda loaded: loaded.nbytes,
        )

    def matching(self, filter: str | None) -> npt.NDArray[np.bool_]:
        """Return, per row, whether it counts and a filter lets it pass."""
        if filter is None:
            return self.live
        if isinstance(self.source, Generation):
            return process_cache().get_or_load(
                ("matching", self.namespace, self.decided_by, filter),
                lambda: self._matching_of_generation(filter),
                lambda loaded: loaded.nbytes,
            )
        names = self.source.rows.drop_columns([TOMBSTONE]).column_names
        return self._matching_of(self.source.take, names, filter)

    def _matching_of(
        self, take: Callable[[Rows, list[str]], pa.Table], columns: list[str], filter: str
    ) -> npt.NDArray[np.bool_]:
        # Only rows that count are shown to the filter, which may fail on others.
        rows = np.flatnonzero(self.live)
        found = np.zeros(len(self.live), dtype=bool)
        if len(rows):
            found[rows[matching_rows(take(rows, columns), filter)]] = True
        return found

    def _matching_of_generation(self, filter: str) -> npt.NDArray[np.bool_]:
        source = self.source
        assert isinstance(source, Generation)
        named = named_columns(filter, source.columns.schema)
        if not source.columns.is_same(named):
            return self._matching_of(source.take, named, filter)
        with reading(self.label, source.uri, filter):
            scanner = source.dataset.scanner(
                columns=[], filter=filter, with_row_id=True, row_addr_blocklist=self.blocked.serialized
            )
            row_ids = scanner.to_table().column("_rowid").to_numpy()
        return np.isin(source.row_ids, row_ids)


def fresh_levels(store: ObjectStore, snapshot: ReadSnapshot, views: Sequence[ShardView]) -> tuple[Level, ...]:
    """Return the levels of some shards above the base table: by shard, oldest first."""
    key = ("levels", tuple(view.shard_id for view in views))
    known: tuple[Level, ...] | None = snapshot.derived.get(key)
    if known is not None:
        return known
    found: list[Level] = []
    for view in views:
        merged = overlay(snapshot.base.namespace, fresh_sources(store, snapshot, view))
        namespace = snapshot.base.namespace
        identities = tuple(source.identity for source in merged.sources)
        found += [
            Level(view.shard_id, source, live, namespace, identities[at:])
            for at, (source, live) in enumerate(zip(merged.sources, merged.live, strict=True))
        ]
    known = snapshot.derived[key] = tuple(found)
    return known


def base_blocked(snapshot: ReadSnapshot, levels: Sequence[Level]) -> DeletionMask:
    """Return the base table's rows that some level has replaced or deleted."""
    base = snapshot.base
    sources = [level.source for level in levels]
    key = ("blocked", base.namespace, base.version_key, tuple(source.identity for source in sources))
    known: DeletionMask | None = snapshot.derived.get(key)
    if known is None:
        known = snapshot.derived[key] = process_cache().get_or_load(
            key,
            lambda: DeletionMask(superseded_rows(base.namespace, base, sources)),
            lambda loaded: loaded.nbytes,
        )
    return known


def token_of(snapshot: ReadSnapshot) -> SnapshotToken:
    """Return the token of a snapshot; nothing is kept for it."""
    cuts = []
    for view in sorted(snapshot.shards, key=lambda one: one.shard_id):
        # A published snapshot shows a shard without its log.
        end = max(view.last_position, first_unflushed_position(view.manifest) - 1)
        cuts.append(cut_at(view.manifest, end))
    base = snapshot.base
    stamp = base.version_identity[:STAMP_BYTES]
    return SnapshotToken(base.identity, base.version, tuple(cuts), base_stamp=stamp)
