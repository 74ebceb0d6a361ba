"""Fresh details of a MemWAL index, for a table whose base came from another one without its shards.

Lance copies the details of the MemWAL index wherever it copies a manifest: into clones, branches and plain
copies. ``_mem_wal`` it leaves behind. What the details say of shards is then about shards of another table.
A shard of the copy that has the id of one of those would begin at generation 1, and its generations would
count as merged long before they are written.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from uuid import UUID, uuid4

from weir.base.merge_guard import marks_of, without_guards
from weir.base.table import PLACE, TABLE_ID
from weir.format.index_details import IndexDetails
from weir.format.shard_snapshot import SNAPSHOT_RECORD
from weir.format.unknown_fields import NOTED

__all__ = ["begun_anew", "shards_with_progress", "without_progress"]


def shards_with_progress(details: IndexDetails) -> frozenset[UUID]:
    """Return the shards with merge progress."""
    return frozenset(one.shard_id for one in without_guards(details.merged_generations) if one.generation)


def begun_anew(details: IndexDetails, place: str, recorded: Mapping[str, str]) -> IndexDetails:
    """Return the details of a table with the same columns and rules that has had no shards yet.

    It is a different table, so it gets its own id: tokens of its source are not valid for it.

    Parameters
    ----------
    details : IndexDetails
        Details of the table it came from.
    place : str
        Where it is.
    recorded : mapping of str to str
        Writer defaults to set besides its id and place.
    """
    left = (SNAPSHOT_RECORD, NOTED)
    kept = {name: value for name, value in details.writer_config_defaults.items() if name not in left}
    return replace(
        details,
        snapshot_ts_millis=0,
        num_shards=0,
        inline_snapshots=None,
        merged_generations=(),
        index_catchup=(),
        writer_config_defaults={**kept, **recorded, TABLE_ID: str(uuid4()), PLACE: place},
    )


def without_progress(details: IndexDetails, shards: Collection[UUID]) -> IndexDetails:
    """Return the details without the merge progress of some shards."""
    marks = frozenset(mark for shard in shards for mark in marks_of(shard))
    return replace(
        details,
        merged_generations=tuple(one for one in details.merged_generations if one.shard_id not in marks),
        index_catchup=tuple(
            replace(index, caught_up=tuple(one for one in index.caught_up if one.shard_id not in marks))
            for index in details.index_catchup
        ),
    )
