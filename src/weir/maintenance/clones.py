"""Detecting a table whose base came from another one without its shards, and making it independent.

Lance's clones and branches, and copies of files that leave ``_mem_wal`` out, have the merge progress of their
source table. While they have no shards they can be read safely. Before the first write the progress has to be
removed, or written rows would count as merged before they are.
"""

from __future__ import annotations

from uuid import UUID

from weir.base.details_commit import update_details
from weir.base.fresh_start import begun_anew, shards_with_progress
from weir.base.table import BaseTable
from weir.engine.logs import get_logger
from weir.errors import ShardConflictError
from weir.format import layout
from weir.format.index_details import IndexDetails
from weir.log.manifest_store import list_shards
from weir.sharding.shard_ids import RULE, VALUES

__all__ = ["missing_shards", "of_its_own"]

_log = get_logger(__name__)


def of_its_own(base: BaseTable) -> BaseTable:
    """Return the table, after a commit that makes it independent if it is a clone.

    Makes no request for a table at its original location, or without any merges; otherwise one listing.

    Raises
    ------
    ShardConflictError
        Some of the merged shards are missing, and others exist: what became of the missing rows is unknown.
    """
    if base.is_at_its_place or not shards_with_progress(base.details):
        return base

    def begin(details: IndexDetails) -> IndexDetails:
        # After the details: a shard that another writer makes after its commit is not there before it.
        missing, there = missing_shards(base, details)
        if missing and there:
            raise _incomplete(base, missing)
        return begun_anew(details, base.uri, {RULE: VALUES}) if missing else details

    own = update_details(base, begin, takes_back_progress=True)
    if own.identity != base.identity:
        _log.info("table.clone_begun_anew", where=base.uri, former=base.identity, version=own.version)
    return own


def missing_shards(base: BaseTable, details: IndexDetails) -> tuple[frozenset[UUID], frozenset[UUID]]:
    """Return the merged shards that do not exist, and all that do."""
    there = frozenset(list_shards(base.store))
    return shards_with_progress(details) - there, there


def _incomplete(base: BaseTable, missing: frozenset[UUID]) -> ShardConflictError:
    return ShardConflictError(
        f"{len(missing)} shards that have been merged are missing, {min(missing)} among them, while others "
        "exist: the table is part of a copy, or a clone that another program has written to",
        where=f"{base.uri}/{layout.MEM_WAL}",
        hint="Nothing was written. Copy the table as a whole, or clone it with weir.clone",
    )
