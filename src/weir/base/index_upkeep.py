"""Index upkeep: what each index of the base table lacks, built piece by piece.

Merged rows are in fragments that no index covers yet; the library searches those by reading them. An
index is extended by segments over such fragments, which can be built anywhere and are committed
together.

How far merges were in a version whose every fragment an index covers is recorded in the MemWAL index, as
the Lance MemWAL spec asks of index catch-up. The library does so when it commits to the index, and
forgets it when it compacts, which moves the index along.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import lance
from lance.dataset import Index
from lance.indices import IndexSegment

from weir.base.details_commit import update_details
from weir.base.index_changes import base_indexes
from weir.base.index_files import refuse_damaged_indexes
from weir.base.index_store import index_store
from weir.base.library_commit import commit_with_library
from weir.base.library_errors import (
    LIBRARY_ERRORS,
    LibraryFailure,
    classify,
    is_panic,
    storage_failure,
)
from weir.base.table import BaseTable
from weir.errors import ConflictError, CorruptionError, WeirError
from weir.format.index_details import IndexCatchup, IndexDetails
from weir.indexing.build import build_index, build_segment
from weir.indexing.describe import ExistingIndex
from weir.indexing.library_message import library_message
from weir.indexing.vector_model import VectorModel, imbalance, partition_sizes, read_vector_model
from weir.storage.interface import ObjectStore

__all__ = [
    "MAX_SEGMENTS",
    "BuiltSegment",
    "RebuildTask",
    "SegmentTask",
    "build_segment_of",
    "commit_segments",
    "gone_fragments",
    "has_values",
    "model_imbalance",
    "model_of",
    "rebuild_of",
    "uncovered_fragments",
    "unite_segments",
]

MAX_SEGMENTS = 16
"""Segments of an index after which they become one: every search asks each of them."""


@dataclass(frozen=True, slots=True)
class SegmentTask:
    """Build one segment of an index. Picklable, stateless.

    Parameters
    ----------
    store : ObjectStore
        The table's store.
    version : int
        The version of the base table to read.
    name : str
        The index.
    fragment_ids : tuple of int
        The fragments to cover.
    """

    store: ObjectStore
    version: int
    name: str
    fragment_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RebuildTask:
    """Rebuild an index and commit it. Picklable and stateless; running it twice has the effect of once.

    Parameters
    ----------
    store : ObjectStore
        The table's store.
    name : str
        The index.
    segments : tuple of str
        The ids of its segments as they are now.
    """

    store: ObjectStore
    name: str
    segments: tuple[str, ...]

    @classmethod
    def of(cls, base: BaseTable, index: ExistingIndex) -> RebuildTask:
        """Return the task for an existing index."""
        return cls(base.store, index.name, tuple(segment.uuid for segment in index.segments))


@dataclass(frozen=True, slots=True)
class BuiltSegment:
    """A segment that has been built and not been committed.

    Parameters
    ----------
    task : SegmentTask
        The definition it was built for.
    segment : Index
        What the library commits.
    """

    task: SegmentTask
    segment: Index


def record_catchup(base: BaseTable, names: Collection[str]) -> BaseTable:
    """Record for every index that covers all fragments of a version how far merges were in it.

    Parameters
    ----------
    base : BaseTable
        The version.
    names : collection of str
        The indexes.

    Returns
    -------
    BaseTable
        The newest version of the table, with the record.
    """
    merged = {one.shard_id: one.generation for one in base.details.merged_generations}
    current = {
        index.name
        for index in base_indexes(base)
        if index.name in names and not uncovered_fragments(base, index)
    }

    def record(details: IndexDetails) -> IndexDetails:
        known = {one.index_name: one for one in details.index_catchup}
        for name in current:
            known[name] = known.get(name, IndexCatchup(name)).raised_to(merged)
        return replace(details, index_catchup=tuple(known[name] for name in sorted(known)))

    return update_details(base, record) if current and merged else base.latest()


def uncovered_fragments(base: BaseTable, index: ExistingIndex) -> tuple[int, ...]:
    """Return the fragments of the base table that an index does not cover, ascending."""
    present = {fragment.fragment_id for fragment in base.dataset.get_fragments()}
    return tuple(sorted(present - index.fragment_ids))


def gone_fragments(base: BaseTable, index: ExistingIndex) -> frozenset[int]:
    """Return the fragments that an index covers and that are gone: they were deleted as a whole."""
    return index.fragment_ids - {fragment.fragment_id for fragment in base.dataset.get_fragments()}


def has_values(base: BaseTable, column: str) -> bool:
    """Whether some row of the base table has a value in a column: a vector index learns from nothing else."""
    try:
        scanner = base.dataset.scanner(columns=[column], filter=f"`{column}` IS NOT NULL", limit=1)
        return bool(scanner.to_table().num_rows)
    except LIBRARY_ERRORS as error:
        raise storage_failure(error, f"reading the column {column!r}", where=base.uri) from error


def model_of(base: BaseTable, index: ExistingIndex) -> VectorModel | None:
    """Return the trained model of a vector index; None for other kinds, and for an untrained one.

    Read once per process for each state of the index.

    Raises
    ------
    CorruptionError
        If the files of the index are damaged.
    StorageError
        If the store failed.
    """
    definition = index.definition
    if definition is None or not definition.kind.is_vector or not index.num_rows:
        return None
    kind = definition.kind

    def load() -> VectorModel:
        with _reading(base, index):
            segment = index.segments[-1].uuid
            return read_vector_model(index_store(base, segment), base.dataset, index.name, kind, segment)

    return base.engine.cache.get_or_load(
        ("vector model", base.namespace, index.segments), load, lambda model: model.nbytes
    )


@contextmanager
def _reading(base: BaseTable, index: ExistingIndex) -> Iterator[None]:
    """Give what the library raises over the files of an index a name and a place."""
    try:
        yield
    except WeirError:
        raise
    except BaseException as error:
        if isinstance(error, OSError) and classify(error) is not LibraryFailure.DAMAGED:
            raise storage_failure(error, f"reading the index {index.name!r}", where=base.uri) from error
        if not isinstance(error, LIBRARY_ERRORS) and not is_panic(error):
            raise
        raise CorruptionError(
            f"the index {index.name!r} cannot be read: {library_message(error)}",
            where=base.uri,
            hint="Drop the index and create it again",
        ) from error


def model_imbalance(base: BaseTable, index: ExistingIndex) -> float:
    """Return how many times larger the largest partition is than the smallest that is not empty."""
    with _reading(base, index):
        places = [(index_store(base, segment.uuid), segment.uuid) for segment in index.segments]
        sizes = partition_sizes(places)
    return imbalance(sizes)


def build_segment_of(task: SegmentTask) -> BuiltSegment:
    """Build one segment.

    Raises
    ------
    SnapshotExpiredError
        If the version has been cleaned up.
    ConflictError
        If the index has changed since the task was created.
    StorageError
        If the library fails.
    """
    base = BaseTable.open(task.store, version=task.version)
    index = next((one for one in base_indexes(base) if one.name == task.name), None)
    if index is None or index.definition is None:
        raise ConflictError(
            f"version {task.version} of the table has no index {task.name!r} to extend",
            where=base.uri,
            hint="Let the indexes catch up again",
        )
    try:
        segment = build_segment(
            copy.copy(base.dataset), index.definition, task.fragment_ids, model_of(base, index)
        )
    except LIBRARY_ERRORS as error:
        raise storage_failure(error, f"extending the index {task.name!r}", where=base.uri) from error
    return BuiltSegment(task, segment)


def commit_segments(base: BaseTable, index: ExistingIndex, built: Sequence[BuiltSegment]) -> BaseTable:
    """Add segments to an index. Fragments that are gone since count for nothing.

    Returns
    -------
    BaseTable
        The newest version of the table. If another process has extended, rebuilt or dropped the index
        meanwhile, the segments are discarded, and nothing is lost.

    Raises
    ------
    ConflictError
        Concurrent commits got in the way of every attempt.
    """
    segments: list[IndexSegment | Index] = [one.segment for one in built]

    def commit(base: BaseTable, dataset: lance.LanceDataset) -> None:
        now = next((one for one in base_indexes(base) if one.name == index.name), None)
        if now is not None and now.segments == index.segments:
            dataset.commit_existing_index_segments(index.name, index.column, segments)

    return commit_with_library(base, commit, doing=f"extending the index {index.name!r}")


def unite_segments(base: BaseTable, name: str, segments: int) -> BaseTable:
    """Make one segment of some of an index's, and of the fragments that none covers.

    Parameters
    ----------
    name : str
        The index.
    segments : int
        How many of the newest segments. With 0, only a segment for uncovered fragments is added.

    Raises
    ------
    CorruptionError
        A file of the index is damaged, as far as there are checksums.
    """
    doing = f"uniting the segments of the index {name!r}"

    def unite(base: BaseTable, dataset: lance.LanceDataset) -> None:
        if segments:
            refuse_damaged_indexes(base, {name}, doing=doing)
        dataset.optimize.optimize_indices(index_names=[name], num_indices_to_merge=segments)

    return commit_with_library(base, unite, doing=doing)


def rebuild_of(task: RebuildTask) -> None:
    """Rebuild an index over all rows, with its own parameters; a vector index is retrained.

    Nothing is done if the index has changed since the task was created: this task may have run before without
    its result arriving.

    Raises
    ------
    ConflictError
        Concurrent commits got in the way of every attempt.
    StorageError
        If the library fails.
    """
    base = BaseTable.open(task.store)
    index = next((one for one in base_indexes(base) if one.name == task.name), None)
    if index is None or index.definition is None:
        return
    if RebuildTask.of(base, index).segments != task.segments:
        return
    definition = index.definition

    def build(base: BaseTable, dataset: lance.LanceDataset) -> None:
        build_index(dataset, definition)

    commit_with_library(base, build, doing=f"building the index {index.name!r} anew")
