"""Changing the details of the MemWAL index without losing what others commit meanwhile."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection
from functools import partial
from uuid import UUID

from weir.base.maintained_indexes import with_maintained_named, without_lacking
from weir.base.manifest import read_manifest
from weir.base.publish import publish_details
from weir.base.table import BaseTable
from weir.errors import ConflictError, InputError, ObjectNotFoundError, TableNotFoundError
from weir.format.index_details import IndexDetails
from weir.format.unknown_fields import NOTED, carry_over, has_unknown_fields, noted, restored

__all__ = ["note_unknown_fields", "restore_unknown_fields", "update_details", "wait_for_turn"]

_MAX_ATTEMPTS = 64
_FIRST_WAIT_SECONDS = 0.002
_LONGEST_WAIT_SECONDS = 0.5


def update_details(
    base: BaseTable,
    change: Callable[[IndexDetails], IndexDetails],
    *,
    index_id: UUID | None = None,
    max_attempts: int = _MAX_ATTEMPTS,
    takes_back_progress: bool = False,
    lacking: Collection[str] = (),
) -> BaseTable:
    """Apply ``change`` to the newest details of the MemWAL index and commit the result.

    Safe against everything that commits to the table at the same time, in this process or another,
    Weir or the library: nobody's rows, merge progress or details are lost. The maintained indexes are named
    in the result (:mod:`weir.base.maintained_indexes`).

    Parameters
    ----------
    base : BaseTable
        The table at any version.
    change : callable
        Maps the newest details to what should follow them. It is called again after a lost race,
        and raises to give up: whatever it raises passes through. If it returns equal details,
        nothing is committed.
    index_id : UUID, optional
        The id the MemWAL index is to have, where a file under that id belongs to it. Default: a random
        one.
    max_attempts : int, default 64
        Races to lose before giving up.
    takes_back_progress : bool, default False
        Whether the change may take back merge progress, because it is that of another table.
    lacking : collection of str, default ()
        Indexes that are named as maintained no longer, but for those that are there when it is committed.

    Returns
    -------
    BaseTable
        The newest version of the table, with the change in it.

    Raises
    ------
    ConflictError
        Others committed during every attempt.
    InputError
        The change would take back merge progress.
    TableNotFoundError
        The table is gone.
    """
    for attempt in range(max_attempts):
        wait_for_turn(attempt)
        base = base.latest_to_change()
        changed = without_lacking(change(base.details), lacking, base.dataset)
        if changed == base.details:
            return base
        changed = with_maintained_named(changed, base.dataset)
        if not takes_back_progress:
            _check_progress(base, changed)
        try:
            manifest = read_manifest(base.store, base.version)
        except ObjectNotFoundError:
            continue  # cleaned up, so there is a newer version
        if manifest.mem_wal_index() is None:
            raise TableNotFoundError(
                "the table has lost its MemWAL index",
                where=base.uri,
                hint="To write to it through Weir, adopt it: weir.adopt",
            )
        if publish_details(base.store, manifest, changed, index_id) is not None:
            base = base.latest()
            if not has_unknown_fields(changed) or carry_over(base.details, changed) == base.details:
                return base
            # The library, which builds the version, has recorded in it how far an index has come, as it
            # does when a compaction has made it forget that. It will not do so a second time.
            change, index_id = partial(_carried_over, older=changed), None
    raise ConflictError(
        f"the table changed during each of {max_attempts} attempts to update its MemWAL index",
        where=base.uri,
        hint="Run fewer services on the table at once",
    )


def _carried_over(details: IndexDetails, *, older: IndexDetails) -> IndexDetails:
    return carry_over(details, older)


def note_unknown_fields(base: BaseTable) -> BaseTable:
    """Note the fields of a newer writer that a commit of the library is about to drop.

    Nothing is committed if there are none. What a process has noted that died before it restored them
    is restored first.

    Parameters
    ----------
    base : BaseTable
        The table at any version.
    """
    base = base.latest()
    if not has_unknown_fields(base.details) and NOTED not in base.details.writer_config_defaults:
        return base
    return update_details(base, noted)


def restore_unknown_fields(base: BaseTable, before: IndexDetails) -> BaseTable:
    """Write back the fields of a newer writer that commits of the library have dropped.

    The library keeps only what it knows whenever it records merge progress or changes an index. Nothing is
    committed if there was nothing else.

    Parameters
    ----------
    base : BaseTable
        The table at any version.
    before : IndexDetails
        What was stored before those commits; another service may have removed the note meanwhile.
    """
    if not has_unknown_fields(before) and NOTED not in base.details.writer_config_defaults:
        return base
    return update_details(base, lambda details: restored(carry_over(details, before)))


def wait_for_turn(attempt: int) -> None:
    """Wait before the next attempt of a commit that has lost races; not at all before the first."""
    if attempt:
        longest = min(_FIRST_WAIT_SECONDS * 2**attempt, _LONGEST_WAIT_SECONDS)
        time.sleep(random.uniform(0, longest))


def _check_progress(base: BaseTable, changed: IndexDetails) -> None:
    for merged in base.details.merged_generations:
        if changed.merged_generation(merged.shard_id) < merged.generation:
            raise InputError(
                f"merge progress of shard {merged.shard_id} cannot go back from generation "
                f"{merged.generation} to {changed.merged_generation(merged.shard_id)}",
                where=base.uri,
                hint="Change the details that are passed in, not ones read earlier",
            )
