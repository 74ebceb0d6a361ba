"""Changing the details of the MemWAL index without losing concurrent commits."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Collection
from functools import partial
from uuid import UUID

from weir.base.maintained_indexes import with_maintained_named, without_lacking
from weir.base.publish import SegmentChange, publish_details
from weir.base.table import BaseTable
from weir.errors import ConflictError, InputError, ObjectNotFoundError, TableNotFoundError
from weir.format.index_details import IndexDetails
from weir.format.unknown_fields import NOTED, carry_over, has_unknown_fields, noted, restored

__all__ = [
    "commit_details",
    "may_have_dropped_fields",
    "note_unknown_fields",
    "restore_unknown_fields",
    "update_details",
    "wait_for_turn",
]

_MAX_ATTEMPTS = 64
_FIRST_WAIT_SECONDS = 0.002
_LONGEST_WAIT_SECONDS = 0.5


def update_details(
    base: BaseTable,
    change: Callable[[IndexDetails], IndexDetails],
    *,
    max_attempts: int = _MAX_ATTEMPTS,
    takes_back_progress: bool = False,
    lacking: Collection[str] = (),
) -> BaseTable:
    """Apply ``change`` to the newest details of the MemWAL index and commit the result.

    Safe against all concurrent commits to the table, in this process or another, by Weir or the library: no
    rows, merge progress or details are lost. The maintained indexes are named in the result
    (:mod:`weir.base.maintained_indexes`).

    Parameters
    ----------
    base : BaseTable
        The table at any version.
    change : callable
        Maps the newest details to what should follow them. It is called again after a lost race,
        and raises to give up: whatever it raises passes through. If it returns equal details,
        nothing is committed.
    max_attempts : int, default 64
        Races to lose before giving up.
    takes_back_progress : bool, default False
        Whether the change may reset merge progress, because it belongs to another table.
    lacking : collection of str, default ()
        Indexes to remove from the list of maintained ones, unless they exist at the commit.

    Returns
    -------
    BaseTable
        The newest version of the table, with the change in it.

    Raises
    ------
    ConflictError
        Others committed during every attempt; or a backup was restored in place of the table.
    InputError
        The change would take back merge progress.
    TableNotFoundError
        The table is gone.
    """
    base, version = commit_details(
        base, change, max_attempts=max_attempts, takes_back_progress=takes_back_progress, lacking=lacking
    )
    return base if version == base.version else base.latest()


def commit_details(
    base: BaseTable,
    change: Callable[[IndexDetails], IndexDetails],
    *,
    index_id: UUID | None = None,
    max_attempts: int = _MAX_ATTEMPTS,
    takes_back_progress: bool = False,
    lacking: Collection[str] = (),
    segments: SegmentChange | None = None,
    is_newest: bool = False,
) -> tuple[BaseTable, int]:
    """Do as :func:`update_details`, without opening the version that was committed.

    Parameters
    ----------
    base, change, max_attempts, takes_back_progress, lacking
        As there.
    index_id : UUID, optional
        The id for the MemWAL index, if a file under that id belongs to it. Default: a random one.
    segments : SegmentChange, optional
        A further change to the indexes of ``base`` in the same version: if another commit comes first, there
        is no second attempt.
    is_newest : bool, default False
        Whether ``base`` was the newest version a moment ago: before the first attempt no newer one is looked
        for.

    Returns
    -------
    base : BaseTable
        The version whose details were changed.
    version : int
        The version with the change in it: the same one if there was nothing to change.
    """
    begun = base
    for attempt in range(max_attempts):
        wait_for_turn(attempt)
        if attempt or base.torn or not is_newest:
            base = base.latest_to_change()
        if attempt or base.version <= begun.version:
            begun.refuse_restored(base)
        if segments is not None and (attempt or base.version_key != begun.version_key):
            break
        changed = without_lacking(change(base.details), lacking, base.dataset)
        if changed == base.details and segments is None:
            return base, base.version
        dropped = () if segments is None else segments.dropped
        changed = with_maintained_named(changed, base.dataset, dropped)
        if not takes_back_progress:
            _check_progress(base, changed)
        try:
            manifest = base.manifest()
        except ObjectNotFoundError:
            continue  # cleaned up, so there is a newer version
        if manifest.mem_wal_index() is None:
            raise TableNotFoundError(
                "the table has lost its MemWAL index",
                where=base.uri,
                hint="To write to it through Weir, adopt it: weir.adopt",
            )
        published = publish_details(base.store, manifest, changed, index_id, segments=segments)
        if published is not None:
            if not has_unknown_fields(changed):
                return base, published
            base, segments = base.latest(), None
            if carry_over(base.details, changed) == base.details:
                return base, base.version
            # The library, which builds the version, has recorded in it how far an index has come, as it
            # does when a compaction has made it forget that. It will not do so a second time.
            change, index_id = partial(carry_over, older=changed), None
    raise ConflictError(
        f"the table changed during each of {max_attempts} attempts to update its MemWAL index",
        where=base.uri,
        hint="Run fewer services on the table at once",
    )


def note_unknown_fields(base: BaseTable) -> BaseTable:
    """Note the fields of a newer writer that a commit of the library is about to drop.

    Nothing is committed, and the version returned, if there are none. What a process has noted that died
    before it restored them is restored first.

    Parameters
    ----------
    base : BaseTable
        The table at a recent version.
    """
    if not has_unknown_fields(base.details) and NOTED not in base.details.writer_config_defaults:
        return base
    return update_details(base, noted)


def restore_unknown_fields(base: BaseTable, before: IndexDetails) -> BaseTable:
    """Write back the fields of a newer writer that commits of the library have dropped.

    Whenever the library records merge progress or changes an index, it drops fields it does not know. Nothing
    is committed if there were none.

    Parameters
    ----------
    base : BaseTable
        The table at any version.
    before : IndexDetails
        The details before those commits; another service may have removed the note meanwhile.
    """
    if not may_have_dropped_fields(base, before):
        return base
    return update_details(base, lambda details: restored(carry_over(details, before)))


def may_have_dropped_fields(base: BaseTable, before: IndexDetails) -> bool:
    """Whether there is something for :func:`restore_unknown_fields` to check."""
    return has_unknown_fields(before) or NOTED in base.details.writer_config_defaults


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
