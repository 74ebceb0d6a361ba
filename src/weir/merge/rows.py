"""The newest row of every key in runs of generations, of one shard or of several.

Lance MemWAL spec, section "LSM Tree Merging Read": the higher generation wins, and within one
generation the higher row address. Rows a generation has deleted itself (the library's flush drops
superseded rows that way) are not there for anybody.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from weir.base.damaged_file import damaged_file
from weir.base.dataset import library_options
from weir.base.dataset_fields import generation_columns
from weir.base.library_errors import (
    LIBRARY_ERRORS,
    LibraryFailure,
    classify,
    is_panic,
    storage_failure,
)
from weir.base.table import BaseTable
from weir.base.wide_scan import scanned_batches
from weir.errors import CorruptionError, ObjectNotFoundError
from weir.format import generation_catalog, layout
from weir.format.field_ids import without_field_ids
from weir.format.generation_catalog import GenerationCatalog
from weir.format.merge_engine import MergeEngine
from weir.format.newest import newest_rows
from weir.format.resolution import Resolution
from weir.format.shard_manifest import FlushedGeneration
from weir.format.wal_entry import TOMBSTONE
from weir.lsm.folded_rows import settled_rows
from weir.lsm.generation_files import check_generation_files
from weir.lsm.stored_columns import stored_columns
from weir.merge.plan import MergeTask
from weir.schema.relabel import as_schema

__all__ = [
    "Run",
    "RunRows",
    "SettledRuns",
    "WholeGeneration",
    "catalog_of",
    "open_generation",
    "read_rows",
    "read_runs",
    "settle_runs",
]

_ROWS = ("data", "_deletions", "_versions")
"""Where the library keeps what the rows of a generation are made of."""

Run = tuple[MergeTask, Sequence[FlushedGeneration]]
"""A task of a shard, and its generations to merge, ascending."""


@dataclass(frozen=True, slots=True)
class _Source:
    """One generation and the rows of it that nothing in the run supersedes."""

    task: MergeTask
    flushed: FlushedGeneration
    dataset: lance.LanceDataset
    upserts: npt.NDArray[np.bool_]

    @property
    def generation(self) -> int:
        return self.flushed.generation

    def columns(self, schema: pa.Schema) -> Resolution:
        """Return how the columns of a table are made of those of the generation."""
        return _columns(self.task, self.flushed, self.dataset, schema)


@dataclass(frozen=True, slots=True)
class WholeGeneration:
    """A generation that was read, and whose rows are all live.

    Parameters
    ----------
    task : MergeTask
        What it is merged by.
    flushed : FlushedGeneration
        What the shard manifest lists.
    dataset : LanceDataset
        Its rows.
    """

    task: MergeTask
    flushed: FlushedGeneration
    dataset: lance.LanceDataset

    def columns(self, schema: pa.Schema) -> Resolution:
        """Return how the columns of a table map to its own."""
        return _columns(self.task, self.flushed, self.dataset, schema)


class RunRows:
    """What runs of generations come to: for every key either one row or a delete.

    Parameters
    ----------
    sources : sequence of _Source
        The generations, those of a shard ascending.
    deletes : Table
        The key columns of the keys that are deleted.
    upserted : Table
        Those of the keys that have a row.
    """

    def __init__(self, sources: Sequence[_Source], deletes: pa.Table, upserted: pa.Table) -> None:
        self._sources = sources
        self.deletes = deletes
        self.upserted = upserted

    @cached_property
    def num_upserts(self) -> int:
        """Keys that have a row."""
        return sum(int(np.count_nonzero(source.upserts)) for source in self._sources)

    def take_whole(self, take: Callable[[WholeGeneration], bool]) -> None:
        """Offer the generations whose rows are all live; an accepted one is not read further.

        Parameters
        ----------
        take : callable
            Is called with each of them, and returns whether it takes it.
        """
        self._sources = [
            one
            for one in self._sources
            if not (one.upserts.all() and take(WholeGeneration(one.task, one.flushed, one.dataset)))
        ]

    def upserts(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Read the rows.

        Parameters
        ----------
        schema : pyarrow.Schema
            The columns of the base table, with their field ids. Those that a generation never had are null.

        Yields
        ------
        RecordBatch
            Rows of the base table's schema, in no particular order, every key once.

        Raises
        ------
        CorruptionError
            A generation has changed since its keys were read.
        """
        plain = without_field_ids(schema)
        for source in self._sources:
            if not source.upserts.any():
                continue
            columns = source.columns(schema)
            columns = Resolution(plain, columns.columns)
            where = source.dataset.uri
            at = 0
            for batch in _scan(source.dataset, columns.source_names):
                kept = source.upserts[at : at + batch.num_rows]
                at += len(kept)
                if not kept.all():
                    batch = batch.filter(pa.array(kept))
                if batch.num_rows:
                    yield columns.apply(batch, where=where)
            if at != len(source.upserts):
                raise CorruptionError(
                    f"generation {source.generation} had {len(source.upserts)} rows and now has {at}",
                    where=where,
                    hint="Generations are immutable: another program writes there",
                )


def read_runs(runs: Sequence[Run], key_schema: pa.Schema) -> RunRows:
    """Read the keys of runs and settle which row of each key counts. Reads no other columns.

    All versions of a row are in one shard. Should a key be in several all the same, the last of them
    counts, as if they were merged one after the other.

    Parameters
    ----------
    runs : sequence of tuple of MergeTask and sequence of FlushedGeneration
        For each shard a task, which names store and shard, and its run of generations, ascending, not empty.
    key_schema : pyarrow.Schema
        The primary-key columns of the base table, with their field ids.

    Raises
    ------
    CorruptionError
        A generation that the shard manifest lists is not there or cannot be read.
    """
    generations = [(task, flushed) for task, run in runs for flushed in run]
    datasets = [_open(task, flushed) for task, flushed in generations]
    keys: list[pa.RecordBatch] = []
    tombstones: list[npt.NDArray[np.bool_]] = []
    bounds: list[int] = []
    rows = 0
    for (task, flushed), dataset in zip(generations, datasets, strict=True):
        columns = _columns(task, flushed, dataset, key_schema)
        for batch in _scan_keys(dataset, columns):
            keys.append(columns.apply(batch, where=dataset.uri))
            tombstones.append(_flags(batch))
            rows += batch.num_rows
        bounds.append(rows)
    together = pa.Table.from_batches(keys, schema=without_field_ids(key_schema))
    newest = np.zeros(rows, dtype=bool)
    if rows:
        newest[newest_rows(together.columns)] = True
    deleted = np.concatenate(tombstones) if rows else newest
    upserts = np.split(newest & ~deleted, bounds[:-1])
    sources = [
        _Source(task, flushed, dataset, mask)
        for (task, flushed), dataset, mask in zip(generations, datasets, upserts, strict=True)
    ]
    kept, gone = (together.filter(pa.array(mask)) for mask in (newest & ~deleted, newest & deleted))
    return RunRows(sources, gone, kept)


def open_generation(task: MergeTask, flushed: FlushedGeneration) -> WholeGeneration:
    """Open a generation of a table whose rows are only added.

    Raises
    ------
    CorruptionError
        It is not there or cannot be read.
    """
    return WholeGeneration(task, flushed, _open(task, flushed))


def read_rows(runs: Sequence[Run], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Read every row of runs, in the order of generations: no row replaces another.

    Parameters
    ----------
    runs : sequence of tuple of MergeTask and sequence of FlushedGeneration
        As for :func:`read_runs`.
    schema : Schema
        The columns of the base table, with their field ids. Those that a generation never had are null.
    """
    for task, run in runs:
        for flushed in run:
            dataset = _open(task, flushed)
            columns = _columns(task, flushed, dataset, schema)
            columns = Resolution(without_field_ids(schema), columns.columns)
            for batch in _scan(dataset, columns.source_names):
                yield columns.apply(batch, where=dataset.uri)


class SettledRuns:
    """The rows of runs of generations and the base table, folded by a merge engine, as :class:`RunRows`.

    Parameters
    ----------
    rows : Table
        The new row of every changed key.
    deletes : Table
        The key columns of the keys that have none any more.
    upserted : Table
        Those of the keys that change their row.
    """

    def __init__(self, rows: pa.Table, deletes: pa.Table) -> None:
        self._rows = rows
        self.deletes = deletes
        self.upserted = rows.select(deletes.schema.names)

    @property
    def num_upserts(self) -> int:
        """Keys that have a row."""
        return int(self._rows.num_rows)

    def upserts(self, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield the rows: see :meth:`RunRows.upserts`."""
        yield from as_schema(self._rows, without_field_ids(schema)).to_batches()


def settle_runs(runs: Sequence[Run], base: BaseTable, engine: MergeEngine) -> SettledRuns:
    """Read runs, and fold them with the rows of the base table.

    Parameters
    ----------
    runs : sequence of tuple of MergeTask and sequence of FlushedGeneration
        As for :func:`read_runs`.
    base : BaseTable
        The base table at the version that the rows are merged into.
    engine : MergeEngine
        Its engine.
    """
    schema = without_field_ids(base.row_schema)
    parts = []
    for task, run in runs:
        for flushed in run:
            dataset = _open(task, flushed)
            columns = _columns(task, flushed, dataset, base.row_schema)
            batches = _scan(dataset, columns.source_names)
            parts += [columns.apply(batch, where=dataset.uri) for batch in batches]
    found = settled_rows(base, engine, pa.Table.from_batches(parts, schema))
    gone = found.rows.column(TOMBSTONE).to_numpy()
    changed = found.rows.filter(pa.array(~gone & ~found.unchanged)).drop_columns([TOMBSTONE])
    deleted = found.rows.filter(pa.array(gone & found.known)).select(list(base.primary_key))
    return SettledRuns(changed, deleted)


def _open(task: MergeTask, flushed: FlushedGeneration) -> lance.LanceDataset:
    store = task.store
    where = f"{store.uri}/{layout.generation_path(task.shard_id, flushed.path)}"
    _refuse_damaged(task, flushed)
    try:
        return lance.dataset(where, storage_options=library_options(store))
    except LIBRARY_ERRORS as error:
        if classify(error) is LibraryFailure.ABSENT:
            raise CorruptionError(
                f"generation {flushed.generation} is in the manifest of shard {task.shard_id} but not on "
                "storage",
                where=where,
                hint="Its files were deleted before it was merged: restore them from a backup",
            ) from error
        if classify(error) is LibraryFailure.DAMAGED:
            raise _unreadable(where, error) from error
        raise storage_failure(error, f"opening generation {flushed.generation}", where=where) from error
    except BaseException as error:
        if not is_panic(error):
            raise
        raise _unreadable(where, error) from error


def _refuse_damaged(task: MergeTask, flushed: FlushedGeneration) -> None:
    """Verify the rows against checksums, which is no longer possible afterwards.

    Only local disks have checksums of all files. Only data files are checked here.
    """
    if not task.store.is_local:
        return
    path = layout.generation_path(task.shard_id, flushed.path)
    catalog = catalog_of(task, flushed)
    if catalog is None:
        return
    kept = {name: one for name, one in catalog.checksums.items() if name.partition("/")[0] in _ROWS}
    for damage in check_generation_files(task.store, path, replace(catalog, checksums=kept)):
        raise CorruptionError(
            f"generation {flushed.generation} is not what was written: {damage.problem}",
            where=f"{task.store.uri}/{damage.path}",
            hint="Restore the file from a backup: until it is merged its rows are nowhere else",
        )


def catalog_of(task: MergeTask, flushed: FlushedGeneration) -> GenerationCatalog | None:
    """Return the catalog of a generation; None if its writer left none."""
    path = f"{layout.generation_path(task.shard_id, flushed.path)}/{layout.CATALOG}"
    try:
        return generation_catalog.decode(task.store.get(path), where=f"{task.store.uri}/{path}")
    except ObjectNotFoundError:
        return None


def _scan(dataset: lance.LanceDataset, columns: list[str]) -> Iterator[pa.RecordBatch]:
    """Read columns in row-address order, without the rows the generation has deleted."""
    try:
        yield from scanned_batches(dataset, columns, scan_in_order=True)
    except LIBRARY_ERRORS as error:
        raise _unreadable(dataset.uri, error) from error
    except BaseException as error:
        if not is_panic(error):
            raise
        raise _unreadable(dataset.uri, error) from error


def _unreadable(where: str, error: BaseException) -> CorruptionError:
    return CorruptionError(
        f"the generation cannot be read: {error}",
        where=damaged_file(where),
        hint="Restore its files from a backup: until it is merged its rows are nowhere else",
    )


def _columns(
    task: MergeTask, flushed: FlushedGeneration, dataset: lance.LanceDataset, schema: pa.Schema
) -> Resolution:
    """Return how the columns of a table are made of those of a generation."""
    stored = partial(stored_columns, task.store, task.shard_id, flushed)
    return generation_columns(dataset, schema, lambda: catalog_of(task, flushed), stored)


def _scan_keys(dataset: lance.LanceDataset, keys: Resolution) -> Iterator[pa.RecordBatch]:
    """Read the key columns and, where the generation has it, the tombstone column."""
    missing = [name for name in keys.schema.names if keys.source_name(name) is None]
    if missing:
        raise CorruptionError(f"the generation has no key column {missing[0]!r}", where=dataset.uri)
    own = [TOMBSTONE] if TOMBSTONE in dataset.schema.names else []
    return _scan(dataset, [*keys.source_names, *own])


def _flags(batch: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    """Return which rows are deletes."""
    if TOMBSTONE not in batch.schema.names:
        return np.zeros(batch.num_rows, dtype=bool)
    flags: npt.NDArray[np.bool_] = batch.column(TOMBSTONE).fill_null(False).to_numpy(zero_copy_only=False)
    return flags
