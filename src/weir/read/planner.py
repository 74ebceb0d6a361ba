"""Planning a scan: prune shards, decide which rows of each source count, make one task per source."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from weir.base.index_changes import base_indexes
from weir.base.table import BaseTable
from weir.format.resolution import Resolution
from weir.format.wal_entry import TOMBSTONE
from weir.lsm.dataset_handle import DatasetHandle
from weir.lsm.deletion_mask import DeletionMask
from weir.lsm.filters import matching_rows, named_columns
from weir.lsm.folded_rows import FoldedRows
from weir.lsm.generation import Generation
from weir.lsm.held_values import can_match, held_in_base, held_in_generation, held_in_rows, is_about
from weir.lsm.keys import KeySet
from weir.lsm.levels import Level, LiveRows, ShardLevels, read_keys
from weir.lsm.log_tail import TailRun
from weir.lsm.strategy import TermStrategy, choose_strategies
from weir.read.lookup import KeyRouter, get_rows
from weir.read.named_keys import named_keys
from weir.read.plan import DatasetTask, Pruned, RowsTask, ScanPlan, ScanTask
from weir.sharding.predicate import ANYTHING, Predicate, read_filter
from weir.snapshots.shard_view import ShardView
from weir.snapshots.snapshot import Consistency, ReadSnapshot
from weir.storage.interface import ObjectStore

__all__ = ["ScanPlanner", "ShardPruner"]

ShardPruner = Callable[
    [ReadSnapshot, str | None], tuple[Sequence[ShardView], Sequence[tuple[ShardView, str]]]
]
"""Splits the shards of a snapshot into those a filter may touch and those it cannot, with reasons."""


@dataclass(frozen=True, slots=True)
class ScanPlanner:
    """Plans scans of one table.

    Parameters
    ----------
    store : ObjectStore
        The table's store.
    prune : callable
        Decides which shards a filter may touch.
    route : callable
        Narrows down the shards that a key may be in.
    """

    store: ObjectStore
    prune: ShardPruner
    route: KeyRouter

    def plan(
        self,
        snapshot: ReadSnapshot,
        *,
        columns: Sequence[str] | None,
        filter: str | None,
        limit: int | None,
        consistency: Consistency | str,
        explained: bool = False,
    ) -> ScanPlan:
        """Return what a scan of ``snapshot`` will do.

        Parameters
        ----------
        columns : sequence of str, optional
            Columns of the result, in order. None for all; empty for none (to count).
        filter : str, optional
            SQL condition, already checked.
        limit : int, optional
            Rows after which to stop.
        consistency : Consistency or str
            What the snapshot was taken for, for :meth:`ScanPlan.describe`.
        explained : bool, default False
            Whether to say how the filter is answered in each source.
        """
        base = snapshot.base
        names = tuple(base.schema.names if columns is None else columns)
        filter = snapshot.live_filter(filter)
        asked = _Asked(names, filter, _predicate(filter, base.schema), limit, explained)
        kept, left_out = self.prune(snapshot, filter)
        pruned = [Pruned(f"shard {view.shard_id}", reason) for view, reason in left_out]
        header = (
            f"scan of {self.store.uri}, {consistency}: base version {base.version}, "
            f"{len(kept)} of {len(snapshot.shards)} shards"
        )
        schema = pa.schema([base.schema.field(name) for name in names])
        keys = named_keys(asked.predicate, base)
        if keys is not None:
            task = self._key_task(snapshot, keys, asked)
            return ScanPlan(schema, (task,), tuple(pruned), limit, header, self.store)
        tasks: list[ScanTask] = []
        read_keys(base, [snapshot.shard_levels(view) for view in kept])
        for view in kept:
            merged = len(view.manifest.flushed_generations) - len(snapshot.unmerged(view))
            if merged:
                pruned.append(
                    Pruned(f"shard {view.shard_id}, {_generations(merged)}", "merged into the base table")
                )
            made, dead = self._shard_tasks(base, snapshot.shard_levels(view), asked)
            tasks += made
            pruned += dead
        if any(snapshot.shard_levels(view).sources for view in kept) and not asked.can_match_base(base):
            label = f"base table version {base.version}"
            pruned.append(Pruned(label, "its indexes show no row that matches", base.dataset.count_rows()))
            tasks.insert(0, RowsTask(label, schema.empty_table(), 0, how="that its indexes show"))
        else:
            tasks.insert(0, self._base_task(base, snapshot.base_mask(tuple(kept)), asked))
        return ScanPlan(schema, tuple(tasks), tuple(pruned), limit, header, self.store)

    def _key_task(self, snapshot: ReadSnapshot, keys: KeySet, asked: _Asked) -> RowsTask:
        key = snapshot.base.primary_key
        names = list(dict.fromkeys([*asked.columns, *named_columns(asked.filter, snapshot.base.schema)]))
        rows = get_rows(snapshot, keys, names or key[:1], self.route)
        label = f"look-up of {len(keys)} key{'' if len(keys) == 1 else 's'}"
        return replace(_rows_that_match(label, rows, asked), how="found")

    def _base_task(self, base: BaseTable, mask: DeletionMask, asked: _Asked) -> DatasetTask:
        return DatasetTask(
            label=f"base table version {base.version}",
            source=DatasetHandle.of(base.dataset, self.store),
            columns=asked.columns,
            filter=asked.filter,
            mask=mask,
            limit=asked.limit,
            strategies=asked.strategies(base.schema, lambda: _kinds_of_base(base)),
        )

    def _shard_tasks(
        self,
        base: BaseTable,
        shard: ShardLevels,
        asked: _Asked,
    ) -> tuple[list[ScanTask], list[Pruned]]:
        where = f"shard {shard.shard_id}"
        tasks: list[ScanTask] = []
        pruned: list[Pruned] = []
        in_memory: list[tuple[TailRun | FoldedRows, LiveRows]] = []
        for level in shard.levels:
            source = level.source
            if not isinstance(source, Generation):
                if asked.can_match(source):
                    in_memory.append((source, level.live))
            elif not level.live.any():
                pruned.append(_left_out(level.label, source, "every row is superseded or deleted"))
            elif not asked.can_match(source):
                pruned.append(_left_out(level.label, source, "its catalog shows no row that matches"))
            else:
                tasks.append(self._generation_task(base, source, level, asked))
        if in_memory:
            tasks.append(_memory_task(where, in_memory, asked))
        return tasks, pruned

    def _generation_task(
        self,
        base: BaseTable,
        source: Generation,
        level: Level,
        asked: _Asked,
    ) -> DatasetTask:
        resolution = asked.resolution(source)
        is_plain = resolution is None and asked.filter is None and asked.limit is None
        return DatasetTask(
            label=level.label,
            source=DatasetHandle.of(source.dataset, self.store),
            columns=asked.columns,
            filter=asked.filter,
            mask=level.mask,
            limit=asked.limit,
            strategies=asked.strategies(base.schema, lambda: _kinds_of_generation(source)),
            resolution=resolution,
            remembered=level.rows_key if is_plain else None,
        )


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a scan asks of every source."""

    columns: tuple[str, ...]
    filter: str | None
    predicate: Predicate
    limit: int | None
    explained: bool

    def can_match(self, source: Generation | TailRun | FoldedRows) -> bool:
        """Whether a row of a source may match. The catalog is read only for a filter that confines."""
        if self.filter is None or self.predicate == ANYTHING:
            return True
        if not isinstance(source, Generation):
            return can_match(self.predicate, held_in_rows(source.rows))
        catalog = source.catalog
        return catalog is None or can_match(self.predicate, held_in_generation(catalog, source.columns))

    def can_match_base(self, base: BaseTable) -> bool:
        """Whether a row of the base table may match.

        Looked into only for a filter of keys: the key index is read anyway where there are rows above the
        base table, and other filters seldom leave out all of it.
        """
        key = base.primary_key
        if len(key) != 1 or not is_about(self.predicate, key[0]):
            return True
        return can_match(self.predicate, held_in_base(base))

    def resolution(self, generation: Generation) -> Resolution | None:
        """Return how the columns asked for are made of those of a generation; None if they are the same."""
        columns = generation.columns
        return (
            None if columns.is_same([*self.columns, *named_columns(self.filter, columns.schema)]) else columns
        )

    def strategies(
        self, schema: pa.Schema, kinds: Callable[[], Mapping[str, Collection[str]]]
    ) -> tuple[TermStrategy, ...]:
        """Return how the terms of the filter are answered in a source with indexes of some kinds."""
        if self.filter is None or not self.explained:
            return ()
        return choose_strategies(self.predicate, schema, kinds())


def _predicate(filter: str | None, schema: pa.Schema) -> Predicate:
    if filter is None:
        return ANYTHING
    try:
        return read_filter(filter, schema)
    except (ValueError, RecursionError):
        return ANYTHING


def _kinds_of_base(base: BaseTable) -> Mapping[str, Collection[str]]:
    def load() -> dict[str, list[str]]:
        kinds: dict[str, list[str]] = {}
        for index in base_indexes(base):
            if index.definition is not None:
                kinds.setdefault(index.column, []).append(index.definition.kind)
        return kinds

    key = ("index kinds", base.namespace, base.version_key)
    return base.engine.cache.get_or_load(key, load, lambda _: 1024, base.lifetime)


def _kinds_of_generation(generation: Generation) -> Mapping[str, Collection[str]]:
    catalog, columns = generation.catalog, generation.columns
    if catalog is None:
        return {}
    known = {
        plan.target.name: catalog.columns.get(plan.source.name)
        for plan in columns.columns
        if plan.source is not None and not plan.cast and not plan.children
    }
    return {name: column.kinds for name, column in known.items() if column is not None}


def _generations(count: int) -> str:
    return f"{count} generation{'' if count == 1 else 's'}"


def _left_out(label: str, generation: Generation, reason: str) -> Pruned:
    flushed = generation.flushed
    return Pruned(label, reason, flushed.physical_rows, flushed.in_memory_bytes)


def _memory_task(
    where: str, sources: Sequence[tuple[TailRun | FoldedRows, LiveRows]], asked: _Asked
) -> RowsTask:
    considered = sum(source.rows.num_rows for source, _ in sources)
    parts = []
    for source, live in sources:
        rows = source.rows.drop_columns([TOMBSTONE])
        parts.append(rows if live.all() else rows.filter(pa.array(live)))
    first, last = sources[0][0], sources[-1][0]
    if isinstance(first, TailRun) and isinstance(last, TailRun):
        label = f"wal positions {first.first_position} to {last.last_position}"
    else:
        label = first.label
    found = _rows_that_match(f"{where}, {label}", pa.concat_tables(parts), asked)
    return replace(found, considered=considered)


def _rows_that_match(label: str, rows: pa.Table, asked: _Asked) -> RowsTask:
    considered = rows.num_rows
    # A table without columns would forget how many rows it has: a count keeps one.
    shown = rows.select(list(asked.columns or rows.schema.names[:1]))
    if asked.filter is not None and considered:
        shown = _taken(shown, matching_rows(rows, asked.filter))
    return RowsTask(label, shown.slice(0, asked.limit), considered)


def _taken(rows: pa.Table, offsets: npt.NDArray[np.int64]) -> pa.Table:
    """Return some rows, ascending; of many chunks only those are touched that have some of them."""
    if not len(offsets):
        return rows.slice(0, 0)
    first, last = int(offsets[0]), int(offsets[-1])
    return rows.slice(first, last - first + 1).take(pa.array(offsets - first))
