"""The BTREE indexes on the primary key of the base table, which make key lookups cheap.

A single key column has one index. Lance has no index over several columns, so every column of a
composite key has its own, and a lookup intersects them. Merged rows are not in an index until it is
extended; until then the library scans the fragments it does not cover.

The library keeps index catch-up itself: a commit that leaves an index covering every fragment of the
version it read credits the index with the merge progress of that version, and a later merge leaves
the credit where it is.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import lance
from lance.bitmap import Bitmap
from lance.dataset import Index

from weir.base.index_list import REUSE_INDEX, list_indexes
from weir.base.library_commit import commit_with_library
from weir.base.library_errors import LIBRARY_ERRORS, storage_failure
from weir.base.publish import SegmentChange
from weir.base.table import BaseTable

__all__ = [
    "MAX_SEGMENTS",
    "build_key_index",
    "build_missing_segments",
    "extend_key_index",
    "is_behind_merges",
    "key_index_name",
    "key_index_names",
    "removed_segment",
    "segments_of_extensible",
]

MAX_SEGMENTS = 16
"""Segments of an index after which the next extension makes them one."""


def key_index_name(column: str) -> str:
    """Return the name of the key index on a column: the one the library would give it.

    Examples
    --------
    >>> key_index_name("id")
    'id_idx'
    """
    return f"{column}_idx"


def key_index_names(dataset: lance.LanceDataset, primary_key: tuple[str, ...]) -> dict[str, str]:
    """Return the BTREE index of every key column that has one, under any name."""
    names: dict[str, str] = {}
    for index in list_indexes(dataset):
        if (
            index.index_type == "BTree"
            and len(index.field_names) == 1
            and index.field_names[0] in primary_key
        ):
            names.setdefault(index.field_names[0], index.name)
    return names


def extend_key_index(base: BaseTable) -> BaseTable:
    """Bring the key indexes up to date with the newest version of the table.

    Missing indexes are built; the others get a segment over the fragments they lack, which costs in
    proportion to those. Once an index has more than 16 segments they become one.

    Safe beside merges, compaction and other calls of this function; when another call does the
    same work first, that is as good.

    Returns
    -------
    BaseTable
        The newest version of the table.

    Raises
    ------
    ConflictError
        Concurrent commits got in the way of every attempt.
    """
    return commit_with_library(
        base,
        lambda base, dataset: build_key_index(dataset, base.primary_key),
        doing="extending the key index",
    )


def is_behind_merges(base: BaseTable) -> bool:
    """Whether the recorded coverage of a key index is incomplete, because a merge did not get that far."""
    details = base.details
    merged = {(one.shard_id, one.generation) for one in details.merged_generations}
    credited = {
        one.index_name: {(covered.shard_id, covered.generation) for covered in one.caught_up}
        for one in details.index_catchup
    }
    names = key_index_names(base.dataset, base.primary_key).values()
    return any(merged - credited.get(name, set()) for name in names)


def segments_of_extensible(base: BaseTable) -> dict[str, int] | None:
    """Return how many segments each key index has; None where they are extended by the library alone.

    That is where an index is missing or has many segments, or rows may have moved below it.
    """
    dataset = base.dataset
    described = {index.name: len(index.segments) for index in list_indexes(dataset)}
    names = key_index_names(dataset, base.primary_key)
    if len(names) < len(base.primary_key) or REUSE_INDEX in described or dataset.has_stable_row_ids:
        return None
    found = {name: described[name] for name in names.values()}
    return None if any(count > MAX_SEGMENTS for count in found.values()) else found


def build_missing_segments(base: BaseTable, early: Sequence[Index] = ()) -> SegmentChange | None:
    """Build segments of the key indexes over the fragments they lack, for a version yet to be published.

    Parameters
    ----------
    base : BaseTable
        The version.
    early : sequence of Index
        Segments that have been built over fragments of that version and not been committed: those that add
        something become part of the change.

    Returns
    -------
    SegmentChange or None
        None where it is left to :func:`extend_key_index`: nothing is lacking, an index is missing or has many
        segments, or rows may have moved below it.

    Raises
    ------
    StorageError
        The library failed.
    """
    if segments_of_extensible(base) is None:
        return None
    dataset = base.dataset
    described = {index.name: index for index in list_indexes(dataset)}
    existing = {fragment.fragment_id for fragment in dataset.get_fragments()}
    new: list[Index] = []
    removed: list[Index] = []
    for column, name in key_index_names(dataset, base.primary_key).items():
        lacking = set(existing)
        for segment in described[name].segments:
            covered = existing.intersection(segment.fragment_ids)
            lacking -= covered
            if not covered:
                removed.append(removed_segment(segment.uuid, name, dataset.version))
        for one in early:
            if one.name == name and lacking.issuperset(one.fragment_ids or ()):
                lacking.difference_update(one.fragment_ids or ())
                new.append(one)
        if lacking:
            new.append(_built(base, column, name, lacking))
    return SegmentChange(new, removed) if new else None


def _built(base: BaseTable, column: str, name: str, fragment_ids: set[int]) -> Index:
    try:
        # "replace", for the library refuses a name otherwise that segments have already.
        return copy.copy(base.dataset).create_index_uncommitted(
            column, "BTREE", name=name, replace=True, fragment_ids=sorted(fragment_ids)
        )
    except LIBRARY_ERRORS as error:
        raise storage_failure(error, "extending the key index", where=base.uri) from error


def removed_segment(uuid: str, name: str, version: int) -> Index:
    """Return the description by which the library drops a segment: only the id matters."""
    return Index(str(uuid), name, [], version, Bitmap(), 0)


def build_key_index(dataset: lance.LanceDataset, primary_key: tuple[str, ...]) -> None:
    """Build the key indexes that a dataset lacks, and extend the others; it is at the newest version then."""
    names = key_index_names(dataset, primary_key)
    for column in primary_key:
        if column not in names:
            dataset.create_scalar_index(column, "BTREE", name=_free_name(dataset, column))
    if not names:
        return
    segments = {index.name: len(index.segments) for index in list_indexes(dataset)}
    few = [name for name in names.values() if segments[name] <= MAX_SEGMENTS]
    many = [name for name in names.values() if segments[name] > MAX_SEGMENTS]
    if few:
        dataset.optimize.optimize_indices(index_names=few, num_indices_to_merge=0)
    for name in many:
        dataset.optimize.optimize_indices(index_names=[name], num_indices_to_merge=segments[name])


def _free_name(dataset: lance.LanceDataset, column: str) -> str:
    taken = {index.name for index in list_indexes(dataset)}
    name = key_index_name(column)
    while name in taken:
        name = f"key_{name}"
    return name
