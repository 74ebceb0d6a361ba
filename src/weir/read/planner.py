"""Planning a scan: prunes shards, determines the live rows of each source, makes one task per source."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from weir.base.index_changes import base_indexes
from weir.base.table import BaseTable
from weir.engine.concurrent_map import ask_both
from weir.format.plain_keys import is_number
from weir.format.resolution import Resolution
from weir.format.wal_entry import TOMBSTONE
from weir.lsm.dataset_handle import DatasetHandle
from weir.lsm.deletion_mask import DeletionMask, has_places
from weir.lsm.filters import matching_rows, named_columns
from weir.lsm.folded_rows import FoldedRows
from weir.lsm.generation import Generation
from weir.lsm.held_values import can_match, held_in_base, held_in_generation, held_in_rows, is_about
from weir.lsm.key_reads import must_read_keys, read_keys
from weir.lsm.keys import KeySet
from weir.lsm.levels import Level, LiveRows, ShardLevels
from weir.lsm.log_tail import TailRun
from weir.lsm.read_along import is_read_along
from weir.lsm.strategy import TermStrategy, choose_strategies
from weir.lsm.superseded import superseded_rows
from weir.lsm.total_filter import is_total
from weir.read.begun_scan import BegunScan
from weir.read.lookup import KeyRouter, get_rows
from weir.read.named_keys import named_keys
from weir.read.plan import (
    LOOKED_UP,
    MANY_DEAD,
    DatasetTask,
    Pruned,
    Purpose,
    RowsTask,
    ScanPlan,
    ScanTask,
)
from weir.read.read_end import ReadEnd
from weir.read.remembered_plans import RememberedPlans, can_be_remembered
from weir.schema.relabel import as_schema
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
        purpose: Purpose = Purpose.ROWS,
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
            The purpose of the snapshot, for :meth:`ScanPlan.describe`.
        purpose : Purpose, default Purpose.ROWS
            What is done with it.
        """
        names = tuple(snapshot.base.schema.names if columns is None else columns)
        if purpose is Purpose.EXPLAIN:
            return self._made(snapshot, names, filter, limit, consistency, purpose)
        plans = snapshot.once(RememberedPlans.of)
        key = (names, filter, limit, str(consistency))
        plan = plans.get(key)
        if plan is None:
            plan = self._made(snapshot, names, filter, limit, consistency, purpose)
            if can_be_remembered(snapshot.base, filter):
                plans.keep(key, plan if plan.begun is None else replace(plan, begun=None))
        return plan

    def rows_after(
        self, snapshot: ReadSnapshot, end: ReadEnd, columns: Sequence[str], filter: str | None
    ) -> pa.Table | None:
        """Return the rows of a snapshot that were written after an earlier read, from the logs alone.

        None if the logs do not have all of them, or the state of a row follows from older ones.

        Parameters
        ----------
        end : ReadEnd
            How far that read came.
        columns : sequence of str
            Columns of the result, in order.
        filter : str, optional
            SQL condition, already checked.
        """
        base = snapshot.base
        tails = None if base.merge_engine is not None else end.tails(snapshot)
        if tails is None:
            return None
        snapshot = snapshot.shown_to(filter)
        views, _ = self.prune(snapshot, None)
        filter = snapshot.live_filter(filter)
        asked = _Asked(base.schema, tuple(columns), filter, ANYTHING, None, Purpose.TABLE)
        in_memory = []
        for view, tail in zip(views, tails, strict=True):
            shard = ShardLevels(base, view.shard_id, (), tail, snapshot.dead_at)
            in_memory.append(self._shard_tasks(shard, 0, asked, {})[1])
        found = (task.rows for tasks in _memory_tasks(in_memory, asked) for task in tasks)
        return pa.concat_tables(
            [asked.schema.empty_table(), *(as_schema(rows, asked.schema) for rows in found)]
        )

    def _made(
        self,
        snapshot: ReadSnapshot,
        names: tuple[str, ...],
        filter: str | None,
        limit: int | None,
        consistency: Consistency | str,
        purpose: Purpose,
    ) -> ScanPlan:
        base = snapshot.base
        snapshot = snapshot.shown_to(filter)
        filter = snapshot.live_filter(filter)
        asked = _Asked(base.schema, names, filter, _predicate(filter, base.schema), limit, purpose)
        kept, left_out = self.prune(snapshot, filter)
        pruned = [Pruned(f"shard {view.shard_id}", reason) for view, reason in left_out]
        header = (
            f"scan of {self.store.uri}, {consistency}: base version {base.version}, "
            f"{len(kept)} of {len(snapshot.shards)} shards"
        )
        keys = named_keys(asked.predicate, base)
        if keys is not None:
            task = self._key_task(snapshot, keys, asked)
            return ScanPlan(asked.schema, (task,), tuple(pruned), limit, header, self.store)
        shards = [snapshot.shard_levels(view) for view in kept]
        begun = self._begun(base, shards, asked)
        try:
            tasks = self._tasks(snapshot, kept, shards, asked, pruned, begun)
        except BaseException:
            if begun is not None:
                begun.end()
            raise
        return ScanPlan(asked.schema, tuple(tasks), tuple(pruned), limit, header, self.store, begun)

    def _begun(self, base: BaseTable, shards: Sequence[ShardLevels], asked: _Asked) -> BegunScan | None:
        """Return a scan of the base table to begin, if it takes time to learn which of its rows are dead."""
        if not (asked.is_plain and asked.purpose is Purpose.TABLE and asked.columns and base.store.is_local):
            return None
        if base.append_only is not None or not must_read_keys(shards) or not has_places(base.dataset):
            return None
        return BegunScan(base.dataset, asked.columns, self.store.executors.scans)

    def _tasks(
        self,
        snapshot: ReadSnapshot,
        kept: Sequence[ShardView],
        shards: Sequence[ShardLevels],
        asked: _Asked,
        pruned: list[Pruned],
        begun: BegunScan | None,
    ) -> list[ScanTask]:
        """Return a task for each source, the base table first; what needs none goes to ``pruned``."""
        base = snapshot.base
        key = None if begun is None else asked.number_key(base)
        along = read_keys(
            base,
            shards,
            asked.columns if asked.is_read else None,
            None if begun is None else begun.begin,
            shows_keys=key is not None,
        )
        # On an object store the key index is looked into where it is read anyway.
        is_known = base.store.is_local or any(shard.sources for shard in shards)
        with_base = not is_known or asked.can_match_base(base)

        def of_base() -> DatasetTask | None:
            if not with_base:
                return None
            if begun is not None and key is not None:
                # What is read anyway mostly shows it, and the mask finds it in the cache.
                sources = [source for shard in shards for source in shard.settled]
                superseded_rows(base.namespace, base, sources, partial(begun.rows_of_each, key))
            mask = snapshot.base_mask(tuple(kept))
            if begun is not None:
                mask.places_in(base.dataset)
            return self._base_task(base, mask, asked)

        def of_shards() -> list[ScanTask]:
            made: list[list[DatasetTask]] = []
            in_memory: list[_InMemory] = []
            for view, shard in zip(kept, shards, strict=True):
                merged = len(view.manifest.flushed_generations) - len(snapshot.unmerged(view))
                if merged:
                    pruned.append(
                        Pruned(f"shard {view.shard_id}, {_generations(merged)}", "merged into the base table")
                    )
                first = 0 if with_base else asked.first_match(shard)
                own, tail, dead = self._shard_tasks(shard, first, asked, along)
                made.append(own)
                in_memory.append(tail)
                pruned.extend(dead)
            tasks: list[ScanTask] = []
            for own, found in zip(made, _memory_tasks(in_memory, asked), strict=True):
                tasks += [*own, *found]
            return tasks

        # Of a first read both take milliseconds, mostly in NumPy, which lets others run meanwhile.
        first, others = ask_both(of_base, of_shards, is_local=begun is None, engine=base.engine)
        if first is not None:
            return [first, *others]
        label = f"base table version {base.version}"
        pruned.append(Pruned(label, "its indexes show no row that matches", base.dataset.count_rows()))
        return [
            RowsTask(label, asked.schema.empty_table(), 0, how="that its indexes show"),
            *others,
        ]

    def _key_task(self, snapshot: ReadSnapshot, keys: KeySet, asked: _Asked) -> RowsTask:
        key = snapshot.base.primary_key
        rows = get_rows(snapshot, keys, asked.needed or key[:1], self.route)
        label = f"look-up of {len(keys)} key{'' if len(keys) == 1 else 's'}"
        (found,) = _matching_each([rows], asked)
        return RowsTask(label, found, rows.num_rows, how=LOOKED_UP)

    def _base_task(self, base: BaseTable, mask: DeletionMask, asked: _Asked) -> DatasetTask:
        return DatasetTask(
            label=f"base table version {base.version}",
            source=DatasetHandle.of(base.dataset, self.store),
            columns=asked.columns,
            filter=asked.filter,
            mask=mask,
            limit=asked.limit,
            strategies=asked.strategies(lambda: _kinds_of_base(base)),
            is_total=asked.has_value(mask),
        )

    def _shard_tasks(
        self,
        shard: ShardLevels,
        first: int,
        asked: _Asked,
        along: Mapping[Hashable, pa.Table],
    ) -> tuple[list[DatasetTask], _InMemory, list[Pruned]]:
        """Return the sources of a shard to read, from the first with possible matches, and pruned ones."""
        where = f"shard {shard.shard_id}"
        no_match = "its catalog shows no row that matches"
        tasks: list[DatasetTask] = []
        pruned = [
            _left_out(f"{where}, {source.label}", source, no_match)
            for source in shard.settled[:first]
            if isinstance(source, Generation)
        ]
        in_memory: list[tuple[TailRun | FoldedRows, LiveRows]] = []
        for level in shard.levels_from(first):
            source = level.source
            if not isinstance(source, Generation):
                if asked.can_match(source):
                    in_memory.append((source, level.live))
            elif not level.live.any():
                pruned.append(_left_out(level.label, source, "every row is superseded or deleted"))
            elif not asked.can_match(source):
                pruned.append(_left_out(level.label, source, no_match))
            else:
                task = self._generation_task(source, level, asked)
                rows = along.get(source.identity)
                if rows is not None:
                    task.remember(rows.filter(pa.array(level.live)))
                tasks.append(task)
        return tasks, _InMemory(where, tuple(in_memory)), pruned

    def _generation_task(self, source: Generation, level: Level, asked: _Asked) -> DatasetTask:
        resolution = asked.resolution(source)
        return DatasetTask(
            label=level.label,
            source=DatasetHandle.of(source.dataset, self.store),
            columns=asked.columns,
            filter=asked.filter,
            mask=level.mask,
            limit=asked.limit,
            strategies=asked.strategies(lambda: _kinds_of_generation(source)),
            resolution=resolution,
            is_total=asked.has_value(level.mask),
            remembered=level.rows_key if resolution is None and asked.is_kept(source) else None,
            named=tuple(asked.named),
        )


@dataclass(frozen=True)
class _Asked:
    """What a scan asks of every source: the columns of the table, and which rows of them."""

    table: pa.Schema
    columns: tuple[str, ...]
    filter: str | None
    predicate: Predicate
    limit: int | None
    purpose: Purpose

    @property
    def is_plain(self) -> bool:
        """Whether all rows are asked for."""
        return self.filter is None and self.limit is None

    @property
    def is_read(self) -> bool:
        """Whether all rows will be read, and counted at least."""
        return self.is_plain and self.purpose is not Purpose.EXPLAIN

    def is_kept(self, source: Generation) -> bool:
        """Whether the rows of a generation, from which those that match are chosen, may be kept in memory."""
        if self.filter is None:
            return self.is_plain
        return is_read_along(source, self.needed)

    @cached_property
    def needed(self) -> list[str]:
        """The columns of the result, and those that the filter may name."""
        return list(dict.fromkeys([*self.columns, *self.named]))

    @cached_property
    def named(self) -> list[str]:
        """The columns that the filter may name."""
        return named_columns(self.filter, self.table)

    def has_value(self, mask: DeletionMask) -> bool:
        """Whether it is certain, and worth knowing, that the filter has a value for every row."""
        return len(mask) >= MANY_DEAD and self._is_total

    @cached_property
    def _is_total(self) -> bool:
        return self.filter is not None and is_total(self.filter, self.table)

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns of the result."""
        return pa.schema([self.table.field(name) for name in self.columns])

    def can_match(self, source: Generation | TailRun | FoldedRows) -> bool:
        """Whether a row of a source may match. The catalog is read only for a filter that confines."""
        if self.filter is None or self.predicate == ANYTHING:
            return True
        if isinstance(source, TailRun):
            return can_match(self.predicate, source.held)
        if isinstance(source, FoldedRows):
            return can_match(self.predicate, held_in_rows(source.rows))
        catalog = source.catalog
        return catalog is None or can_match(self.predicate, held_in_generation(catalog, source.columns))

    def number_key(self, base: BaseTable) -> str | None:
        """Return the key of the base table if the columns of the result show it, as numbers; else None."""
        key = base.primary_key
        is_shown = len(key) == 1 and key[0] in self.columns and is_number(self.table.field(key[0]).type)
        return key[0] if is_shown else None

    def first_match(self, shard: ShardLevels) -> int:
        """Return which source of a shard, oldest first, is the first that may have a row that matches."""
        matching = (at for at, source in enumerate(shard.settled) if self.can_match(source))
        return next(matching, len(shard.settled))

    def can_match_base(self, base: BaseTable) -> bool:
        """Whether a row of the base table may match.

        Looked into only for a filter of keys: other filters seldom leave out all of it.
        """
        key = base.primary_key
        if len(key) != 1 or not is_about(self.predicate, key[0]):
            return True
        return can_match(self.predicate, held_in_base(base))

    def resolution(self, generation: Generation) -> Resolution | None:
        """Return how the columns asked for are made of those of a generation; None if they are the same."""
        return None if generation.columns.is_same(self.needed) else generation.columns

    def strategies(self, kinds: Callable[[], Mapping[str, Collection[str]]]) -> tuple[TermStrategy, ...]:
        """Return how the terms of the filter are answered in a source with indexes of some kinds."""
        if self.filter is None or self.purpose is not Purpose.EXPLAIN:
            return ()
        return choose_strategies(self.predicate, self.table, kinds())


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


@dataclass(frozen=True, slots=True)
class _InMemory:
    """What a shard has in memory that may match: sources, oldest first, each with its live rows."""

    where: str
    sources: tuple[tuple[TailRun | FoldedRows, LiveRows], ...]

    @property
    def considered(self) -> int:
        return sum(source.rows.num_rows for source, _ in self.sources)

    @property
    def label(self) -> str:
        first, last = self.sources[0][0], self.sources[-1][0]
        if isinstance(first, TailRun) and isinstance(last, TailRun):
            return f"{self.where}, wal positions {first.first_position} to {last.last_position}"
        return f"{self.where}, {first.label}"

    def rows(self) -> pa.Table:
        """Return the live rows."""
        parts = []
        for source, live in self.sources:
            rows = source.rows.drop_columns([TOMBSTONE])
            parts.append(rows if live.all() else rows.filter(pa.array(live)))
        return pa.concat_tables(parts)


def _memory_tasks(shards: Sequence[_InMemory], asked: _Asked) -> list[list[RowsTask]]:
    """Return the task of every shard, if it has one; the filter is evaluated once for all of their rows."""
    of_shards = [one.rows() if one.sources else None for one in shards]
    parts = [rows for rows in of_shards if rows is not None]
    if not parts:
        return [[] for _ in shards]
    found = _matching_each(parts, asked)
    return [
        [] if rows is None else [RowsTask(one.label, next(found), one.considered)]
        for one, rows in zip(shards, of_shards, strict=True)
    ]


def _matching_each(parts: Sequence[pa.Table], asked: _Asked) -> Iterator[pa.Table]:
    """Yield the requested part of each of some tables."""
    # A table without columns would forget how many rows it has: a count keeps one.
    names = list(asked.columns or parts[0].schema.names[:1])
    rows = pa.concat_tables(parts)
    offsets = None if asked.filter is None or not rows.num_rows else matching_rows(rows, asked.filter)
    start = 0
    for part in parts:
        shown = part.select(names)
        if offsets is not None:
            first, end = offsets.searchsorted((start, start + part.num_rows))
            shown = _taken(shown, offsets[first:end] - start)
        start += part.num_rows
        yield shown.slice(0, asked.limit)


def _taken(rows: pa.Table, offsets: npt.NDArray[np.int64]) -> pa.Table:
    """Return some rows, ascending; of many chunks only those are touched that have some of them."""
    if not len(offsets):
        return rows.slice(0, 0)
    first, last = int(offsets[0]), int(offsets[-1])
    return rows.slice(first, last - first + 1).take(pa.array(offsets - first))
