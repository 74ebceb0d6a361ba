"""The event store of a pipeline: opens or creates it, with the type of its events."""

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
    """Return the store; None if the store or the type has yet to be created.

    Raises
    ------
    TableNotFoundError
        If there is no store, and no fields are given to create the type.
    InputError
        If the store lacks the type, or its type cannot become the pipeline's.
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
    """Return the store; create the store, the type, or the version that the pipeline describes.

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
    """Return the type that events will have, which the pipeline may define.

    Raises
    ------
    InputError
        If there is no such type, or it cannot become what the pipeline describes.
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
    """Return an expression for why a row is not an event of a type; null if it is.

    Parameters
    ----------
    rows : StructType
        The columns of the rows.
    kind : EventType
        The type.
    leave : str
        A column that is not part of the event.
    """
    names = [name for name in rows.fieldNames() if name != leave]
    told = arrow_udf(_telling(kind), "string")
    reason: Column = told(functions.struct(*(functions.col(f"`{name}`") for name in names)))
    return reason


def _telling(kind: EventType) -> Callable[[pa.Array], pa.Array]:
    """Return a function that says why rows are not events of a type, usable in any process."""

    def tell(rows: pa.Array) -> pa.Array:
        return misfits(kind, pa.Table.from_struct_array(rows))

    # Spark looks at what the annotations mean, and they are text here.
    tell.__annotations__ = {"rows": pa.Array, "return": pa.Array}
    return tell
