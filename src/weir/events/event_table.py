"""The Weir table behind a store: one row per event of any type, one typed column per field.

There is one table for all types, so that events appended together to a context are one log entry of one
shard, and a query over several types sees one snapshot. Fields of the same name and type share a column.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import pyarrow as pa

from weir.errors import SchemaError
from weir.events.calendar import DAYS_OF_TIMESTAMP, calendars
from weir.events.event_types import CORE_FIELDS
from weir.events.field_types import INSTANT
from weir.sharding.shard_by import bucket
from weir.storage.interface import ObjectStore
from weir.table.lifecycle import create, open
from weir.table.table import Table

__all__ = [
    "ARRIVAL",
    "EVENTS",
    "add_columns",
    "column_types",
    "create_event_table",
    "event_schema",
    "open_event_table",
]

EVENTS = "events"
"""Location of the table below the store."""
ARRIVAL = "arrival_id"
"""For a restored event the id at which it arrived here; null otherwise, meaning the event's own id."""

_PLAIN: dict[str, pa.DataType] = {
    "string": pa.string(),
    "int64": pa.int64(),
    "double": pa.float64(),
    "bool": pa.bool_(),
    "date32[day]": pa.date32(),
    "timestamp[us, tz=UTC]": INSTANT,
}


def column_types(columns: Mapping[str, str]) -> dict[str, pa.DataType]:
    """Return the column types that texts in the catalog stand for."""
    return {name: _type(text) for name, text in columns.items()}


def event_schema(columns: Mapping[str, str]) -> pa.Schema:
    """Return the schema of the events table for columns of the catalog."""
    return _schema_of(tuple(columns.items()))


@lru_cache(16)
def _schema_of(of_fields: tuple[tuple[str, str], ...]) -> pa.Schema:
    columns = dict(of_fields)
    # Others are nullable, since tombstones have the key alone.
    core = [one.with_nullable(one.name != "event_id") for one in CORE_FIELDS]
    own = [*core, pa.field(ARRIVAL, pa.int64()), pa.field(DAYS_OF_TIMESTAMP, pa.date32())]
    return pa.schema([*own, *column_types({**columns, **calendars(columns)}).items()])


def _type(text: str) -> pa.DataType:
    if text in _PLAIN:
        return _PLAIN[text]
    if text.startswith("list<"):
        return pa.list_(_type(text[5:-1]))
    precision, scale = text.removeprefix("decimal128(").removesuffix(")").split(",")
    return pa.decimal128(int(precision), int(scale))


def create_event_table(
    store: ObjectStore, buckets: int, storage_options: Mapping[str, str] | None, fsync: bool
) -> Table:
    """Create the table of a store that has no types yet."""
    return create(
        f"{store.uri}/{EVENTS}",
        event_schema({}),
        primary_key="event_id",
        # A context is in one shard, whose writer decides the order of its events; an event never changes it.
        shard_by=bucket("context_id", buckets, immutable=True),
        storage_options=storage_options,
        fsync=fsync,
        maintenance="off",  # an event store looks after its table itself
    )


def open_event_table(store: ObjectStore, storage_options: Mapping[str, str] | None, fsync: bool) -> Table:
    """Open the table of a store."""
    return open(f"{store.uri}/{EVENTS}", storage_options=storage_options, fsync=fsync, maintenance="off")


def add_columns(table: Table, columns: Mapping[str, str]) -> None:
    """Add columns that the table lacks, and their calendars. Safe to run concurrently.

    Raises
    ------
    SchemaError
        If the table has such a column of another type.
    """
    types = column_types({**columns, **calendars(columns)})
    while True:
        schema = table.schema
        for name, kind in types.items():
            at = schema.get_field_index(name)
            if at >= 0 and schema.field(at).type != kind:
                raise SchemaError(
                    f"column {name!r} of the events is {schema.field(at).type}, not {kind}", where=table.uri
                )
        lacking = [pa.field(name, kind) for name, kind in types.items() if name not in schema.names]
        if not lacking:
            return
        try:
            table.alter(add=lacking)
        except SchemaError:
            before = set(table.schema.names)
            # What the table here knows may be old: a read takes the newest.
            table.scan(["event_id"], limit=1).to_table()
            if set(table.schema.names) == before:
                raise
