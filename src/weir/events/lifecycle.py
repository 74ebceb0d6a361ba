"""Creating and opening event stores."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path

from weir.errors import OptionError, TableExistsError
from weir.events.catalog import Catalog
from weir.events.catalog_store import StoredCatalog
from weir.events.event_table import create_event_table, open_event_table
from weir.events.store import EventStore
from weir.table.opening import table_store

__all__ = ["create", "open"]

_LEAST_MOST = {"buckets": (1, 1024), "flush_threshold": (1, 1 << 31), "events_per_zone": (1, 1 << 20)}


def create(
    uri: str | Path,
    *,
    buckets: int = 4,
    flush_threshold: int = 100_000,
    events_per_zone: int = 2048,
    fsync: bool = True,
    storage_options: Mapping[str, str] | None = None,
) -> EventStore:
    """Create an event store.

    Parameters
    ----------
    uri : str or Path
        The location: a directory, or ``s3://``, ``gs://`` or ``az://``.
    buckets : int
        Number of shards. All events of a context are in one shard, and each shard has one writer at a time.
        From 1 to 1,024, default 4.
    flush_threshold : int
        Events of a shard that are held in memory before they are flushed to a generation. Default 100,000.
    events_per_zone : int
        Events per zone, for which the minimum and maximum of numbers are kept: a query skips zones that
        cannot match. Smaller zones let it skip more, at the cost of more metadata. Default 2,048.
    fsync : bool
        On local disk, whether an acknowledged event survives the loss of power. Default True.
    storage_options : mapping of str to str, optional
        Credentials and other options of the store, named as in Lance.

    Raises
    ------
    TableExistsError
        If an event store already exists there.
    OptionError
        If an option is out of range.

    Examples
    --------
    >>> import tempfile, weir
    >>> store = weir.events.create(tempfile.mkdtemp() + "/store", buckets=2)
    >>> store.define("signup", {"plan": ["free", "pro"], "amount": "decimal(12,2)"})
    >>> with store.writer() as writer:
    ...     appended = writer.append("signup", "user-42", {"plan": "pro", "amount": "9.90"}, expected=0)
    >>> store.execute('QUERY signup WHERE plan != "free" COUNT').to_table().to_pylist()
    [{'count': 1}]
    """
    options = {
        "buckets": buckets,
        "flush_threshold": flush_threshold,
        "events_per_zone": events_per_zone,
    }
    for name, value in options.items():
        least, most = _LEAST_MOST[name]
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise OptionError(
                f"{name} must be a whole number from {least} to {most:,}, got {value!r}", where=name
            )
    store = table_store(uri, storage_options, fsync)
    catalog = StoredCatalog(store)
    catalog.refuse_if_there()
    catalog.refuse_if_lost()
    with contextlib.suppress(TableExistsError):
        # A former call may have come as far as this.
        create_event_table(store, buckets, storage_options, fsync)
    catalog.create(Catalog(options))
    return open(uri, fsync=fsync, storage_options=storage_options)


def open(
    uri: str | Path, *, fsync: bool = True, storage_options: Mapping[str, str] | None = None
) -> EventStore:
    """Open an event store.

    Parameters
    ----------
    uri, fsync, storage_options
        As for :func:`create`.

    Raises
    ------
    TableNotFoundError
        If it does not exist.
    """
    store = table_store(uri, storage_options, fsync)
    catalog = StoredCatalog(store)
    catalog.read()
    table = open_event_table(store, storage_options, fsync)
    return EventStore(store, catalog, table, str(uri), storage_options, fsync)
