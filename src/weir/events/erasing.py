"""Retention and forgetting of contexts: the catalog hides events at once, upkeep removes them from files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from weir import MaintenanceReport
from weir.errors import InputError, LeaseHeldError
from weir.events.catalog import Catalog, Floor, Forgotten, Retention
from weir.events.clock import SHARD_BITS, HybridClock
from weir.events.cursors import arrivals
from weir.events.given_back import give_back_memory
from weir.events.instants import now_micros
from weir.events.visibility import any_of, arrived_after, filter_text, of_context, of_contexts, visible
from weir.table.table import Table

__all__ = [
    "Erasure",
    "MaintainReport",
    "checked_age",
    "conditions_apart",
    "erase",
    "forgotten",
    "has_former_versions",
    "is_collected",
    "maintained",
    "newest_arrival",
    "raised",
    "retained",
    "sweeps",
    "swept",
    "with_raised",
    "without_erased",
    "without_former",
    "without_swept",
]

_Report = TypeVar("_Report")
_BATCH = 50_000
_SHARD = (1 << SHARD_BITS) - 1
"""Bits of an id that hold the shard number."""
_FORMER_KEPT = timedelta(seconds=15)
"""Longer than a local disk keeps former versions of swapped objects."""


@dataclass(frozen=True, slots=True)
class Erasure:
    """The result of erasing.

    Parameters
    ----------
    events : int
        Deleted events, which the next merges and collections remove from the files.
    left : int
        Events not deleted because another writer holds their shard. Queries no longer return them, and the
        next upkeep tries again.
    """

    events: int
    left: int


@dataclass(frozen=True, slots=True)
class MaintainReport:
    """The result of upkeep.

    Parameters
    ----------
    erasure : Erasure
        Events removed by retention or forgetting.
    tables : dict of str to MaintenanceReport
        By table name.
    """

    erasure: Erasure
    tables: dict[str, MaintenanceReport]


def checked_age(age: object) -> int | None:
    """Return an age in microseconds; None for ever.

    Raises
    ------
    InputError
        If it is not a duration.
    """
    if age is None:
        return None
    if not isinstance(age, timedelta) or age <= timedelta():
        raise InputError(f"events are kept for a duration, or for ever (None), got {age!r:.80}", where="age")
    return age // timedelta(microseconds=1)


def retained(catalog: Catalog, name: str, age: int | None, newest: Callable[[], int]) -> Catalog:
    """Return the catalog with another retention age for a type.

    What the former age has removed stays removed: up to the event that ``newest`` returns, which reads the
    ids of all.
    """
    kind = catalog.type(name)
    present = catalog.retention.get(kind.name, Retention(None))
    if present.age == age:
        return catalog
    floors = present.floors
    if present.age is not None:
        floors = (*floors, Floor(now_micros() - present.age, newest()))
    changed = {**catalog.retention, kind.name: Retention(age, floors)}
    return replace(catalog, retention=changed, erasures=catalog.erasures + 1)


def forgotten(catalog: Catalog, context: str, through: int) -> Catalog:
    """Return the catalog with a context forgotten, up to an event."""
    others = tuple(one for one in catalog.forgotten if one.context != context)
    before = max((one.through for one in catalog.forgotten if one.context == context), default=0)
    entry = Forgotten(context, max(through, before))
    return replace(catalog, forgotten=(*others, entry), erasures=catalog.erasures + 1)


def conditions_apart(forgotten: Sequence[Forgotten]) -> int:
    """Return how many conditions of a query forgotten contexts are, beyond one for each of their shards.

    Examples
    --------
    >>> conditions_apart([Forgotten("a", 5 << SHARD_BITS), Forgotten("b", 7 << SHARD_BITS)])
    1
    """
    through = {one.through for one in forgotten}
    return len(through) - len({one & _SHARD for one in through})


def raised(table: Table, forgotten: Sequence[Forgotten]) -> dict[Forgotten, Forgotten]:
    """Return contexts that may as well be forgotten up to a later event, each with that.

    Contexts that are forgotten up to the same event are one condition of a query. Within a shard ids rise in
    the order of the log: by the last event of a forgotten context, all before it are there. A context of the
    shard that has none of them since it was forgotten may be forgotten up to there.

    Parameters
    ----------
    table : Table
        The events table.
    forgotten : sequence of Forgotten
        The forgotten contexts.
    """
    last: dict[int, int] = {}
    for one in forgotten:
        shard = one.through & _SHARD
        last[shard] = max(one.through, last.get(shard, 0))
    earlier = [one for one in forgotten if one.through < last[one.through & _SHARD]]
    if not earlier:
        return {}
    through = np.array([one.through for one in earlier])
    later = np.array([last[one.through & _SHARD] for one in earlier])
    contexts = [one.context for one in earlier]
    since = of_contexts(contexts) & arrived_after(int(through.min()))
    columns = ["event_id", "arrival_id", "context_id"]
    rows = table.scan(columns, filter=filter_text(since, table.schema)).to_table()
    arrived = arrivals(rows)
    of_rows = pc.index_in(rows.column("context_id"), pa.array(contexts, pa.string())).to_numpy()
    began_anew = set(of_rows[(arrived > through[of_rows]) & (arrived <= later[of_rows])].tolist())
    return {
        one: replace(one, through=int(later[at])) for at, one in enumerate(earlier) if at not in began_anew
    }


def with_raised(catalog: Catalog, *, known: Mapping[Forgotten, Forgotten]) -> Catalog:
    """Return the catalog with contexts forgotten up to later events."""
    changed = tuple(known.get(one, one) for one in catalog.forgotten)
    return catalog if changed == catalog.forgotten else replace(catalog, forgotten=changed)


def without_erased(catalog: Catalog, *, erased: Catalog) -> Catalog:
    """Return the catalog without entries whose events have been deleted.

    Parameters
    ----------
    catalog : Catalog
        The catalog as it is.
    erased : Catalog
        The catalog at the time when everything it hides was deleted.
    """
    if not erased.forgotten and not any(one.floors for one in erased.retention.values()):
        return catalog
    retention = {}
    for name, one in catalog.retention.items():
        known = erased.retention.get(name, Retention(None)).floors
        retention[name] = replace(one, floors=tuple(floor for floor in one.floors if floor not in known))
    left = tuple(one for one in catalog.forgotten if one not in erased.forgotten)
    cleared = now_micros() if len(left) < len(catalog.forgotten) else catalog.cleared
    return replace(catalog, retention=retention, forgotten=left, cleared=cleared)


def without_former(catalog: Catalog, *, horizon: timedelta) -> Catalog:
    """Return the catalog after former versions with names of forgotten contexts need not be kept.

    A swapped object keeps its former version until the next swap, which removes it.
    """
    patience = max(horizon, _FORMER_KEPT)
    if catalog.cleared is None or now_micros() - catalog.cleared < patience // timedelta(microseconds=1):
        return catalog
    return replace(catalog, cleared=None)


def sweeps(catalog: Catalog) -> bool:
    """Whether files of the newest table versions may still contain erased rows."""
    return catalog.swept < catalog.erasures


def maintained(table: Table, catalog: Catalog, horizon: timedelta) -> MaintenanceReport:
    """Run one round of upkeep on a table, which removes erased rows from its files.

    Parameters
    ----------
    table : Table
        The table.
    catalog : Catalog
        Records how far former rounds have come.
    horizon : timedelta
        How long garbage is kept.
    """
    upkeep, is_swept = table.maintenance, not sweeps(catalog)

    def lean(work: Callable[[], _Report]) -> _Report:
        done = work()
        # The next runs on other threads with other memory.
        give_back_memory(table.engine)
        return done

    upkeep.recover_dead()
    # Earlier versions have what was erased, and are kept unless somebody says for how long.
    retention = None if is_swept and catalog.swept_at is None else horizon
    return MaintenanceReport(
        merge=lean(upkeep.merge),
        expired=upkeep.expire(),
        compact=lean(upkeep.compact if is_swept else partial(upkeep.compact, max_deleted=0.0)),
        indexes=lean(partial(upkeep.catch_up_indexes, without_gone=not is_swept)),
        garbage=upkeep.collect_garbage(horizon=horizon, version_retention=retention),
    )


def swept(catalog: Catalog, *, erasures: int) -> Catalog:
    """Return the catalog after the rows of this many erasures left the newest version of every table."""
    if catalog.swept >= erasures:
        return catalog
    return replace(catalog, swept=erasures, swept_at=now_micros())


def has_former_versions(table: Table, began: int, horizon: timedelta) -> bool:
    """Whether a table still has versions that were superseded a horizon before its collection began.

    A pin or a tag holds them. Without it the next collection of versions removes them.
    """
    superseded = began / 1e6 - horizon.total_seconds()
    times = [one["timestamp"] for one in table.internals.base.dataset.versions()]
    return sum(isinstance(at, datetime) and at.timestamp() < superseded for at in times) > 1


def is_collected(catalog: Catalog, *, began: int, horizon: timedelta) -> bool:
    """Whether a collection reached the former versions with erased rows, unless a pin or a tag holds them.

    Parameters
    ----------
    catalog : Catalog
        The catalog when the collection began.
    began : int
        When it began, in microseconds since 1970.
    horizon : timedelta
        Its horizon, for versions and then for other garbage.
    """
    return catalog.swept_at is not None and began - catalog.swept_at >= 2 * (
        horizon // timedelta(microseconds=1)
    )


def without_swept(catalog: Catalog, *, looked: Catalog) -> Catalog:
    """Return the catalog after former versions were collected, unless more was erased meanwhile.

    Parameters
    ----------
    catalog : Catalog
        The catalog as it is.
    looked : Catalog
        The catalog when the collection began.
    """
    return replace(catalog, swept_at=None) if catalog.swept_at == looked.swept_at else catalog


def newest_arrival(table: Table, context: str | None, clock: HybridClock) -> int:
    """Return the arrival id of the last event of a context, or of all; 0 if there is none."""
    condition = None if context is None else filter_text(of_context(context), table.schema)
    rows = table.scan(["event_id", "arrival_id"], filter=condition).to_table()
    if rows.num_rows == 0:
        return 0
    newest = int(arrivals(rows).max())
    clock.observe(newest)
    return newest


def erase(
    table: Table,
    catalog: Catalog,
    about_to_erase: Callable[[int], object],
    delete: Callable[[pa.Table], None],
) -> Erasure:
    """Delete events that are past retention or forgotten.

    Parameters
    ----------
    table : Table
        The events table.
    catalog : Catalog
        Says which events these are.
    about_to_erase : callable
        Called before the first deletion, with the highest id to be deleted.
    delete : callable
        Deletes events of one shard, given by ``event_id`` and ``context_id``.
    """
    gone = any_of(~one for one in visible(catalog))
    if gone is None:
        return Erasure(0, 0)
    columns = ["event_id", "arrival_id", "context_id"]
    rows = table.scan(columns, filter=filter_text(gone, table.schema)).to_table()
    if rows.num_rows == 0:
        return Erasure(0, 0)
    about_to_erase(max(int(arrivals(rows).max()), pc.max(rows.column("event_id")).as_py()))
    rows = rows.drop_columns(["arrival_id"])
    erased = left = 0
    partition = table.internals.router.partition(rows.select(["context_id"]))
    for at in range(len(partition.values)):
        of_shard = rows.filter(pc.equal(pa.array(partition.shards), at))
        try:
            for start in range(0, of_shard.num_rows, _BATCH):
                delete(of_shard.slice(start, _BATCH))
            erased += of_shard.num_rows
        except LeaseHeldError:
            left += of_shard.num_rows
    return Erasure(erased, left)
