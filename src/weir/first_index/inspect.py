"""Inspection of a region's MemWAL, or of an entry of its WAL, wherever that is."""

from __future__ import annotations

from weir.base.dataset import open_dataset
from weir.base.manifest import read_manifest
from weir.errors import OptionError
from weir.first_index.view import regions_of
from weir.first_index.wal import entry_path, wal_store
from weir.format.first_index_details import FirstIndexDetails, MemWal
from weir.maintenance.inspect import inspect
from weir.maintenance.inspection.describe import mem_wal_facts
from weir.maintenance.inspection.description import Description
from weir.storage.interface import ObjectStore

__all__ = ["inspect_regions"]

_PREFIX = "region/"


def inspect_regions(store: ObjectStore, what: str | None = None, *, rows: bool = False) -> Description:
    """Describe a table, an object of it, or ``region/NAME/GENERATION`` and ``region/NAME/GENERATION/ENTRY``.

    Parameters
    ----------
    store : ObjectStore
        The table's store.
    what : str, optional
        As for :func:`weir.maintenance.inspect.inspect`, or a MemWAL or an entry of one.
    rows : bool, default False
        Whether to return the rows of an entry too.

    Raises
    ------
    ObjectNotFoundError
        If the object does not exist.
    OptionError
        If ``what`` means nothing.
    """
    if what is None or not what.startswith(_PREFIX):
        return inspect(store, what, rows=rows)
    manifest = read_manifest(store, open_dataset(store).version)
    details = regions_of(manifest)
    if details is None:
        raise OptionError(
            f"{what[:200]!r} cannot be inspected: the table has no regions",
            where=store.uri,
            hint="It is a table of the current form, with shards",
        )
    mem_wal, entry = _found(store, details, what.removeprefix(_PREFIX).rstrip("/"))
    if entry is None:
        return Description("MemWAL", manifest.where, mem_wal_facts(mem_wal))
    place, directory = wal_store(store, mem_wal.wal_location)
    shown = inspect(place, entry_path(directory, entry), rows=rows)
    facts = {"region": mem_wal.region, "is_listed": entry in mem_wal.entries, **shown.facts}
    return Description(shown.kind, shown.where, facts, shown.problems, shown.rows)


def _found(store: ObjectStore, details: FirstIndexDetails, what: str) -> tuple[MemWal, int | None]:
    names = {f"{one.region}/{one.generation}": one for one in details.mem_wals}
    if what in names:
        return names[what], None
    name, _, number = what.rpartition("/")
    if name in names and number.isascii() and number.isdecimal() and int(number) < 1 << 64:
        return names[name], int(number)
    raise OptionError(
        f"{what[:200]!r} cannot be inspected: there is no such MemWAL",
        where=store.uri,
        hint=f"There are {', '.join(_PREFIX + one for one in sorted(names)[:20])}, and /ENTRY after each",
    )
