"""Removes expired rows from the base table.

Reads skip them from the moment they expire; this frees their space. A fragment whose rows have all expired is
removed as a whole, without being read or written.
"""

from __future__ import annotations

from dataclasses import dataclass

import lance

from weir.base.library_commit import commit_with_library
from weir.base.library_errors import LIBRARY_ERRORS, storage_failure
from weir.base.table import BaseTable
from weir.engine.logs import get_logger
from weir.lsm.expired_rows import expired_filter, expiry_instant

__all__ = ["ExpireReport", "expire_rows"]

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ExpireReport:
    """What was removed.

    Parameters
    ----------
    rows : int
        Expired rows removed from the base table.
    fragments : int
        Fragments that were removed as a whole.
    version : int
        Version of the base table afterwards.
    """

    rows: int
    fragments: int
    version: int


def expire_rows(base: BaseTable) -> ExpireReport:
    """Delete expired rows of the base table. Unmerged rows are removed after their merge.

    Raises
    ------
    ConflictError
        If concurrent commits got in the way of every attempt.
    StorageError
        If the library failed.
    """
    base = base.latest()
    instant = expiry_instant()
    condition = expired_filter(base, instant)
    if condition is None:
        return ExpireReport(0, 0, base.version)
    before = len(base.dataset.get_fragments())
    try:
        found = base.dataset.count_rows(filter=condition)
    except LIBRARY_ERRORS as error:
        raise storage_failure(error, "looking for rows that have expired", where=base.uri) from error
    if not found:
        return ExpireReport(0, 0, base.version)
    rows = fragments = 0

    def delete(base: BaseTable, dataset: lance.LanceDataset) -> None:
        nonlocal rows, fragments, before
        # By the rule of this version: the name of the column may be another one's by now.
        condition = expired_filter(base, instant)
        if condition is None:
            return
        before = len(dataset.get_fragments())
        rows = int(dataset.delete(condition, conflict_retries=0)["num_deleted_rows"])
        fragments = before - len(dataset.get_fragments())

    after = commit_with_library(base, delete, doing="removing rows that have expired")
    _log.info("table.rows_expired", rows=rows, fragments=fragments, version=after.version)
    return ExpireReport(rows, fragments, after.version)
