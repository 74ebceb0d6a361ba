"""Removal of a table: it is declared gone before any part of it is deleted.

The first step publishes a version of the base table that says so. From then on the table cannot be opened,
and processes that have it open find out when they next check the base table. Then its shards are fenced and
sealed, so that its writers stop, and its objects are deleted, that version of the base table last. After a
crash the call is repeated.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from weir.base.dataset import open_dataset
from weir.base.details_commit import wait_for_turn
from weir.base.manifest import VERSIONS, read_manifest
from weir.base.publish import publish_details
from weir.base.table import DROPPED
from weir.engine import failpoint
from weir.engine.logs import get_logger
from weir.errors import ConflictError, LeaseHeldError, TableNotFoundError
from weir.format import layout
from weir.log.manifest_store import list_shards
from weir.maintenance.closed_shards import close_shards, refuse_live_writers
from weir.notebook import ShownAsTable
from weir.storage.interface import ObjectStore

__all__ = ["DropReport", "drop_table"]

_MAX_ATTEMPTS = 64
_BATCH = 1000
# The directories of a table; nothing else at its location is touched. Shards first: their rows are nowhere
# else.
_DIRECTORIES = (layout.MEM_WAL, "_weir", "tree", "_refs", "_indices", "_deletions", "data", "_transactions")

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class DropReport(ShownAsTable):
    """What was removed.

    Parameters
    ----------
    uri : str
        Where the table was.
    objects, bytes : int
        Number and bytes of the objects that this call deleted.
    """

    uri: str
    objects: int
    bytes: int

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain values that JSON can hold."""
        return {"uri": self.uri, "objects": self.objects, "bytes": self.bytes}


def drop_table(
    store: ObjectStore,
    *,
    takeover: bool = False,
    on_progress: Callable[[int, int], None] | None = None,
    on_wait: Callable[[LeaseHeldError], None] | None = None,
) -> DropReport:
    """Remove a table. A call that did not finish can be repeated.

    Parameters
    ----------
    store : ObjectStore
        Where the table is.
    takeover : bool
        Whether to fence active writers.
    on_progress : callable, optional
        Called with (objects deleted, objects in all).
    on_wait : callable, optional
        Called when a wait for a lease begins, with whose lease it is.

    Raises
    ------
    TableNotFoundError
        There is no table, or a Lance dataset that is not a Weir table.
    LeaseHeldError
        A writer is active, and ``takeover`` is not set. Nothing was changed.
    """
    dataset = open_dataset(store)
    if not takeover:
        refuse_live_writers(store, list_shards(store))
    newest = _say_so(store)
    failpoint.reach("drop.after_saying_so")
    # An active writer may have created another shard meanwhile.
    closed: set[Any] = set()
    while shards := [one for one in list_shards(store) if one not in closed]:
        close_shards(store, shards, dataset.schema, on_wait=on_wait)
        closed.update(shards)
    failpoint.reach("drop.before_delete")
    found = [one for directory in _DIRECTORIES for one in store.list(directory)]
    found += sorted(
        (one for one in store.list(VERSIONS) if one.path != newest), key=lambda one: one.last_modified
    )
    for at in range(0, len(found), _BATCH):
        store.delete([one.path for one in found[at : at + _BATCH]])
        failpoint.reach("drop.between_deletes")
        if on_progress is not None:
            on_progress(min(at + _BATCH, len(found)), len(found))
    store.delete([newest])
    report = DropReport(store.uri, len(found) + 1, sum(one.size for one in found))
    _log.info("table.dropped", where=store.uri, objects=report.objects, bytes=report.bytes)
    return report


def _say_so(store: ObjectStore) -> str:
    """Publish a version that declares the table dropped, unless the newest does; return its path."""
    for attempt in range(_MAX_ATTEMPTS):
        wait_for_turn(attempt)
        manifest = read_manifest(store, open_dataset(store).version)
        entry = manifest.mem_wal_index()
        if entry is None:
            raise TableNotFoundError(
                "there is a Lance dataset, and it is not a Weir table",
                where=store.uri,
                hint="Nothing was changed. Remove it with Lance, if that is what you want",
            )
        details = manifest.decode_details(entry)
        if DROPPED in details.writer_config_defaults:
            return manifest.path
        said = {**details.writer_config_defaults, DROPPED: datetime.now(UTC).isoformat(timespec="seconds")}
        publish_details(store, manifest, replace(details, writer_config_defaults=said))
    raise ConflictError(
        f"the table changed during each of {_MAX_ATTEMPTS} attempts to drop it",
        where=store.uri,
        hint="Stop what writes to it, and try again",
    )
