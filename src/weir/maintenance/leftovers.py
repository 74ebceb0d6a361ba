"""The remains of a former table at a location: shards and more, without their MemWAL index.

Lance's ``mode="overwrite"``, and dropping the index, remove the details but leave ``_mem_wal``. A table
adopted there would treat the rows of the former one as its own.
"""

from __future__ import annotations

from uuid import uuid4

import pyarrow as pa

from weir.base.spent_versions import SET_ASIDE as TORN_VERSIONS
from weir.engine import failpoint
from weir.engine.logs import get_logger
from weir.errors import TableExistsError
from weir.format import layout
from weir.log.manifest_store import list_shards
from weir.maintenance.closed_shards import close_shards, refuse_live_writers
from weir.storage.interface import ObjectStore

__all__ = ["SET_ASIDE", "refuse_leftovers", "set_leftovers_aside"]

SET_ASIDE = "_weir/set_aside"
"""Directory for remains that were set aside, with a subdirectory for each time. Nothing reads it."""

_OWN = "_weir"
_UNFINISHED = "unfinished"

_log = get_logger(__name__)


def refuse_leftovers(store: ObjectStore) -> None:
    """Refuse a place at which a former table has left something.

    Raises
    ------
    TableExistsError
        There is something.
    """
    shards = store.list_directories(layout.MEM_WAL)
    kept = [
        name for name in store.list_directories(_OWN) if f"{_OWN}/{name}" not in (SET_ASIDE, TORN_VERSIONS)
    ]
    if shards or kept:
        what = f"{len(shards)} shards" if shards else f"{', '.join(kept)}"
        raise TableExistsError(
            f"a former table has left {what} here, and its rows would become rows of this one",
            where=f"{store.uri}/{layout.MEM_WAL if shards else _OWN}",
            hint=f"Adopt with set_aside=True to move the remains to {SET_ASIDE}",
        )


def set_leftovers_aside(store: ObjectStore, schema: pa.Schema) -> None:
    """Move what a former table has left out of the way, where nothing reads it. Can be repeated.

    Parameters
    ----------
    store : ObjectStore
        The place.
    schema : Schema
        Columns for fence entries.

    Raises
    ------
    LeaseHeldError
        The former table has an active writer. Nothing was changed.
    """
    shards = list_shards(store)
    refuse_live_writers(store, shards)
    close_shards(store, shards, schema)
    place = _place(store)
    moved = [one.path for one in store.list(layout.MEM_WAL)]
    moved += [one.path for one in store.list(_OWN) if not one.path.startswith(f"{SET_ASIDE}/")]
    for path in moved:
        store.put(f"{place}/{path}", store.get(path))
    failpoint.reach("leftovers.before_delete")
    store.delete(moved)
    store.delete([f"{place}/{_UNFINISHED}"])
    if moved:
        _log.warning("table.leftovers_set_aside", where=f"{store.uri}/{place}", objects=len(moved))


def _place(store: ObjectStore) -> str:
    """Return where to put them: where an unfinished call has begun to."""
    for name in store.list_directories(SET_ASIDE):
        if store.head(f"{SET_ASIDE}/{name}/{_UNFINISHED}") is not None:
            return f"{SET_ASIDE}/{name}"
    place = f"{SET_ASIDE}/{uuid4()}"
    store.put(f"{place}/{_UNFINISHED}", b"")
    return place
