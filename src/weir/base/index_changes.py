"""Creating and dropping indexes of the base table."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace as changed

import lance
from lance.dataset import Index

from weir.base.details_commit import commit_details, update_details, wait_for_turn
from weir.base.index_list import existing_indexes, list_indexes
from weir.base.key_index import key_index_names, removed_segment
from weir.base.library_commit import commit_with_library
from weir.base.library_errors import LIBRARY_ERRORS, LibraryFailure, classify
from weir.base.publish import SegmentChange
from weir.base.table import BaseTable
from weir.errors import (
    ConflictError,
    IndexDefinitionError,
    IndexExistsError,
    IndexNotFoundError,
    StorageError,
    WeirError,
)
from weir.format.index_details import IndexDetails
from weir.indexing.build import build_index
from weir.indexing.definition import IndexDefinition
from weir.indexing.describe import ExistingIndex
from weir.indexing.kinds import IndexKind
from weir.indexing.library_message import library_message
from weir.storage.local_errors import hint_for

__all__ = ["base_indexes", "create_index", "drop_index", "free_index_name"]

_DECLARED = "weir.index."
"""Before an index's name: the key in the table's configuration of what the library forgets of it."""

_FORGOTTEN = ("num_partitions", "custom_stop_words", "rows_per_zone", "number_of_items", "probability")
"""Parameters that the library does not keep, or not of an index without rows."""

_MAX_DROP_ATTEMPTS = 16


def base_indexes(base: BaseTable) -> tuple[ExistingIndex, ...]:
    """Return the indexes of the base table, with the parameters they were declared with, by name."""
    config: Mapping[str, str] = base.dataset.config()
    return tuple(
        index.declared_with(json.loads(config[_DECLARED + index.name]))
        if _DECLARED + index.name in config
        else index
        for index in existing_indexes(base.dataset, base.engine.cache)
    )


def free_index_name(base: BaseTable, column: str, kind: IndexKind) -> str:
    """Return a name for a new index: the library's default, if it is free.

    Raises
    ------
    IndexExistsError
        If the column has an index of that kind already.
    """
    existing = existing_indexes(base.dataset, base.engine.cache)
    for index in existing:
        if index.column == column and index.definition is not None and index.definition.kind is kind:
            raise IndexExistsError(
                f"column {column!r} already has an index of kind {kind}, {index.name!r}",
                where=base.uri,
                hint=f"Name it to rebuild it: name={index.name!r}, replace=True",
            )
    taken = {index.name for index in existing}
    name = f"{column}_idx"
    return name if name not in taken else f"{column}_{kind.lower()}_idx"


def create_index(base: BaseTable, definition: IndexDefinition, *, replace: bool = False) -> BaseTable:
    """Build an index of the base table over all of its rows, and have it maintained from then on.

    On a table without rows, or with too few to learn from, it is empty until indexes catch up.

    Parameters
    ----------
    base : BaseTable
        The table at any version.
    definition : IndexDefinition
        The index.
    replace : bool, default False
        Whether to rebuild an existing index of the same name.

    Returns
    -------
    BaseTable
        The newest version of the table, with the index.

    Raises
    ------
    IndexDefinitionError
        The column cannot have it, or the library refuses the parameters.
    IndexExistsError
        There is an index of that name, and it is not to be replaced.
    ConflictError
        Concurrent commits got in the way of every attempt.
    StorageError
        The operating system has refused a write.
    """
    definition.check_column(base.schema)

    def build(base: BaseTable, dataset: lance.LanceDataset) -> None:
        _refuse_taken_name(base, definition, replace)
        if _DECLARED + definition.name in dataset.config():
            # Of the index that is replaced, or of one that was dropped.
            dataset.delete_config_keys([_DECLARED + definition.name])
        declared = {name: definition.parameters[name] for name in _FORGOTTEN if name in definition.parameters}
        if declared:
            dataset.update_config({_DECLARED + definition.name: json.dumps(declared)})
        try:
            build_index(dataset, definition)
        except LIBRARY_ERRORS as error:
            # An error of the operating system does not concern the index.
            if classify(error) is LibraryFailure.CONFLICT or hint_for(error) is not None:
                raise
            raise IndexDefinitionError(
                f"the index {definition.name!r} of kind {definition.kind} cannot be built: "
                f"{library_message(error)}",
                where=definition.column,
                hint="Change its parameters, or choose another kind",
            ) from error
        if not _is_as_before(base.dataset, dataset, definition.column):
            # The library commits it anyway, and cannot read the table by it, or misses rows.
            dataset.drop_index(definition.name)
            raise ConflictError(
                f"column {definition.column!r} was altered while the index {definition.name!r} was built",
                where=base.uri,
                hint="The index was dropped again: call again",
            )

    name = definition.name
    base = base.latest()
    _refuse_taken_name(base, definition, replace)
    # Named first, and then built: LanceDB searches by no index that is not named, and a handle of its stays
    # at the version that it was opened at.
    named = update_details(base, lambda details: _maintained(details, name))
    try:
        created = commit_with_library(named, build, doing=f"building the index {name!r}")
    except WeirError:
        if name not in base.details.maintained_indexes:
            # Another process may have built one of that name meanwhile.
            update_details(named, lambda details: details, lacking=[name])
        raise
    return update_details(created, lambda details: _maintained(details, name))


def drop_index(base: BaseTable, name: str) -> BaseTable:
    """Drop an index of the base table; generations keep theirs until they are merged.

    Raises
    ------
    IndexNotFoundError
        No index has that name.
    IndexDefinitionError
        It is the key index, which lookups and merges need.
    ConflictError
        Concurrent commits got in the way of every attempt; or a backup was restored in place of the table.
    StorageError
        The store failed, or the disk is full. The index is as it was.
    """
    begun = base = base.latest()
    for attempt in range(_MAX_DROP_ATTEMPTS):
        wait_for_turn(attempt)
        if attempt:
            base = base.latest()
            begun.refuse_restored(base)
        segments = SegmentChange((), _segments_to_drop(base, name), dropped=(name,))
        try:
            # One version without the index and without its name in the details: no failure divides them.
            base, version = commit_details(
                base, lambda details: _not_maintained(details, name), segments=segments
            )
        except ConflictError:
            continue
        return _without_declaration(base if version == base.version else base.latest(), name)
    raise ConflictError(
        f"concurrent commits got in the way of {_MAX_DROP_ATTEMPTS} attempts at dropping the index {name!r}",
        where=base.uri,
        hint="Run fewer services on the table at once",
    )


def _segments_to_drop(base: BaseTable, name: str) -> list[Index]:
    indexes = {index.name: index for index in list_indexes(base.dataset) if index.field_names}
    if name not in indexes:
        raise IndexNotFoundError(
            f"the table has no index {name!r}",
            where=base.uri,
            hint=f"Its indexes are {', '.join(sorted(indexes))}" if indexes else "It has none",
        )
    if name in key_index_names(base.dataset, base.primary_key).values():
        raise IndexDefinitionError(
            f"{name!r} is the index of the primary key, without which lookups and merges read everything",
            where=base.uri,
            hint="Keep it",
        )
    return [removed_segment(segment.uuid, name, base.version) for segment in indexes[name].segments]


def _without_declaration(base: BaseTable, name: str) -> BaseTable:
    """Remove what was declared of an index that was dropped.

    Where that fails it does no harm: an index that gets the name later replaces it.
    """
    if _DECLARED + name not in base.dataset.config():
        return base

    def forget(base: BaseTable, dataset: lance.LanceDataset) -> None:
        if name not in {index.name for index in list_indexes(base.dataset)}:
            dataset.delete_config_keys([_DECLARED + name])

    try:
        return commit_with_library(base, forget, doing=f"forgetting what was declared of the index {name!r}")
    except (ConflictError, StorageError):
        return base


def _is_as_before(before: lance.LanceDataset, after: lance.LanceDataset, column: str) -> bool:
    """Whether a version has the column of an earlier one, under any name, with the same type."""
    (number,) = (field.id() for field in before.lance_schema.fields() if field.name() == column)
    names = [field.name() for field in after.lance_schema.fields() if field.id() == number]
    same: bool = bool(names) and before.schema.field(column).type == after.schema.field(names[0]).type
    return same


def _refuse_taken_name(base: BaseTable, definition: IndexDefinition, replace: bool) -> None:
    for index in existing_indexes(base.dataset, base.engine.cache):
        if index.name != definition.name:
            continue
        if not replace:
            raise IndexExistsError(
                f"the table already has an index {index.name!r}, of kind {index.library_kind} on "
                f"{index.column!r}",
                where=base.uri,
                hint="Give another name, or replace=True to rebuild it",
            )
        if index.name in key_index_names(base.dataset, base.primary_key).values() and (
            definition.column,
            definition.kind,
        ) != (index.column, IndexKind.BTREE):
            raise IndexDefinitionError(
                f"{index.name!r} is the index of the primary key and cannot become another one",
                where=base.uri,
                hint="Give another name",
            )


def _maintained(details: IndexDetails, name: str) -> IndexDetails:
    if name in details.maintained_indexes:
        return details
    return changed(details, maintained_indexes=(*details.maintained_indexes, name))


def _not_maintained(details: IndexDetails, name: str) -> IndexDetails:
    return changed(
        details,
        maintained_indexes=tuple(one for one in details.maintained_indexes if one != name),
        index_catchup=tuple(one for one in details.index_catchup if one.index_name != name),
    )
