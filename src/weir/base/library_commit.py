"""Commits to the base table through the library, retried after every conflict."""

from __future__ import annotations

from collections.abc import Callable

import lance

from weir.base.details_commit import note_unknown_fields, restore_unknown_fields, wait_for_turn
from weir.base.durability import committing
from weir.base.library_errors import LIBRARY_ERRORS, LibraryFailure, classify, storage_failure
from weir.base.table import BaseTable
from weir.errors import ConflictError, WeirError

__all__ = ["commit_with_library"]

_MAX_ATTEMPTS = 16


def commit_with_library(
    base: BaseTable,
    change: Callable[[BaseTable, lance.LanceDataset], None],
    *,
    doing: str,
    attempts: int | None = None,
) -> BaseTable:
    """Let ``change`` commit to the newest version of the table.

    Parameters
    ----------
    base : BaseTable
        The table at any version.
    change : callable
        Receives the newest version, and a separate dataset at that version to commit with. It is called again
        with a newer version after a conflict. Weir errors that it raises pass through.
    doing : str
        The action, as the subject of "failed".
    attempts : int, optional
        Conflicts after which to give up. Default 16.

    Returns
    -------
    BaseTable
        The newest version of the table afterwards.

    Raises
    ------
    ConflictError
        Concurrent commits got in the way of every attempt; or a backup was restored in place of the table.
    StorageError
        The library failed otherwise.
    """
    attempts = attempts or _MAX_ATTEMPTS
    begun = base
    base = base.latest_to_change()
    begun.refuse_restored(base)
    base = note_unknown_fields(base)
    before = base.details
    for attempt in range(attempts):
        if attempt:
            wait_for_turn(attempt)
            base = base.latest_to_change()
            begun.refuse_restored(base)
        try:
            with committing(base.store, base.dataset) as dataset:
                change(base, dataset)
        except WeirError:
            raise
        except LIBRARY_ERRORS as error:
            if classify(error) is LibraryFailure.CONFLICT:
                continue
            raise storage_failure(error, doing, where=base.uri) from error
        return restore_unknown_fields(base.latest(), before)
    raise ConflictError(
        f"concurrent commits got in the way of {attempts} attempts at {doing}",
        where=base.uri,
        hint="Run compaction and index builds one after the other",
    )
