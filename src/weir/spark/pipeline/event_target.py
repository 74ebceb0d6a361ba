"""The event store of a pipeline: opened, or created if there is none, with the type of its events."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from pyspark.sql import Column, functions
from pyspark.sql.functions import arrow_udf  # type: ignore[attr-defined]
from pyspark.sql.types import StructType

import weir
from weir.errors import InputError, TableExistsError, TableNotFoundError
from weir.events.catalog import Catalog
from weir.events.definitions import fields_of
from weir.events.event_types import EventType
from weir.events.payloads import misfits
from weir.events.store import EventStore
from weir.spark.pipeline.settings import TargetEvents

__all__ = ["event_misfit", "find_events", "open_or_create_events", "type_of_events"]


def find_events(target: TargetEvents) -> EventStore | None:
    """Return the store, None if store or type are still to be made.

    Raises
    ------
    TableNotFoundError
        If there is no store, and nothing says what its type should be.
    InputError
        If the store does not have the type, or one that cannot become the pipeline's.
    """
    options = target.storage_options or None
    try:
        store = weir.events.open(target.uri, fsync=target.fsync, storage_options=options)
    except TableNotFoundError as error:
        if target.fields is None:
            raise TableNotFoundError(
                error.message,
                where=error.where,
                hint="Create the event store, or give the pipeline the fields to create it with",
            ) from error
        type_of_events(target, None)
        return None
    type_of_events(target, store)
    return store if target.type in store.types() else None


def open_or_create_events(target: TargetEvents) -> EventStore:
    """Return the store; create it, the type, or the version of it that the pipeline describes.

    Raises
    ------
    TableNotFoundError, InputError
        As for :func:`find_events`.
    """
    find_events(target)
    options = target.storage_options or None
    try:
        store = weir.events.open(target.uri, fsync=target.fsync, storage_options=options)
    except TableNotFoundError:
        try:
            store = weir.events.create(
                target.uri,
                **({} if target.buckets is None else {"buckets": target.buckets}),
                fsync=target.fsync,
                storage_options=options,
            )
        except TableExistsError:
            # Another driver was faster.
            store = weir.events.open(target.uri, fsync=target.fsync, storage_options=options)
    if target.fields is not None and not _is_known(target, store.types().get(target.type)):
        store.define(target.type, target.fields)
    return store


def type_of_events(target: TargetEvents, store: EventStore | None) -> EventType:
    """Return the type that events will have, as the pipeline may define it.

    Raises
    ------
    InputError
        If there is no such type, or the pipeline describes what it cannot become.
    """
    known = None if store is None else store.types().get(target.type)
    if known is not None and (target.fields is None or _is_known(target, known)):
        return known
    if target.fields is None:
        raise InputError(
            f"there is no event type {target.type!r:.150}",
            where="events.type",
            hint="Define it, or give the pipeline the fields to define it with",
        )
    if store is not None:
        return store.planned_type(target.type, target.fields)
    described = fields_of(target.fields, target.type)
    return Catalog({}).defined(target.type, described, None).type(target.type)


def _is_known(target: TargetEvents, kind: EventType | None) -> bool:
    """Whether a type has, or has had, the fields that a pipeline describes."""
    if kind is None:
        return False
    described = fields_of(target.fields, target.type)
    return any(dict(fields) == described for fields in kind.versions.values())


def event_misfit(rows: StructType, kind: EventType, leave: str) -> Column:
    """Return what says why a row is no event of a type; null where it is one.

    Parameters
    ----------
    rows : StructType
        The columns of the rows.
    kind : EventType
        The type.
    leave : str
        A column that is none of the event.
    """
    names = [name for name in rows.fieldNames() if name != leave]
    told = arrow_udf(_telling(kind), "string")
    reason: Column = told(functions.struct(*(functions.col(f"`{name}`") for name in names)))
    return reason


def _telling(kind: EventType) -> Callable[[pa.Array], pa.Array]:
    """Return what tells of rows why they are no events of a type, in whatever process."""

    def tell(rows: pa.Array) -> pa.Array:
        return misfits(kind, pa.Table.from_struct_array(rows))

    # Spark looks at what the annotations mean, and they are text here.
    tell.__annotations__ = {"rows": pa.Array, "return": pa.Array}
    return tell
