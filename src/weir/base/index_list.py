"""Listing the indexes of a dataset through the library."""

from __future__ import annotations

from typing import TYPE_CHECKING

import lance

from weir.base.library_errors import LIBRARY_ERRORS, LibraryFailure, classify, is_panic, storage_failure
from weir.engine.cache import ByteBudgetCache
from weir.errors import CorruptionError
from weir.indexing.describe import ExistingIndex, describe_indexes
from weir.indexing.library_message import library_message

if TYPE_CHECKING:
    from lance.lance import IndexDescription

__all__ = ["REUSE_INDEX", "existing_indexes", "list_indexes"]

REUSE_INDEX = "__lance_frag_reuse"
"""Name of the index with new positions of rows that a compaction moved without remapping indexes."""


def list_indexes(dataset: lance.LanceDataset) -> list[IndexDescription]:
    """Return the indexes of a dataset, with their segments.

    Raises
    ------
    CorruptionError
        The part of the manifest that lists them cannot be decoded.
    StorageError
        The store failed.
    """
    try:
        return dataset.describe_indices()
    except BaseException as error:
        if is_panic(error) or classify(error) is LibraryFailure.DAMAGED:
            raise CorruptionError(
                f"the indexes of version {dataset.version} cannot be read: {library_message(error)}",
                where=dataset.uri,
                hint="The version's manifest is damaged: restore it from a backup",
            ) from error
        if isinstance(error, LIBRARY_ERRORS):
            raise storage_failure(error, "reading the list of indexes", where=dataset.uri) from error
        raise


def existing_indexes(dataset: lance.LanceDataset, cache: ByteBudgetCache) -> tuple[ExistingIndex, ...]:
    """Return the indexes of a dataset by name, with what the same index is built with elsewhere.

    Without the library's own tables, such as the MemWAL index. Raises what :func:`list_indexes` does.

    Parameters
    ----------
    dataset : LanceDataset
        The dataset.
    cache : ByteBudgetCache
        Keeps what is read to describe them.
    """
    listed = list_indexes(dataset)
    try:
        return describe_indexes(dataset, listed, cache)
    except BaseException as error:
        if not isinstance(error, LIBRARY_ERRORS) and not is_panic(error):
            raise
        raise storage_failure(error, "reading what an index is built with", where=dataset.uri) from error
