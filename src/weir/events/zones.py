"""Chooses the index of each events column, so that zones that cannot match are skipped.

The policy depends on the type of a field: bitmaps for enums and booleans, Bloom filters per zone for texts,
minimum and maximum per zone for numbers and times, for times a calendar too. These are indexes of the events
table: flushes build them per generation and list them in the generation's catalog, upkeep builds them in the
base table.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from weir.errors import IndexExistsError
from weir.events.calendar import DAYS_OF_TIMESTAMP, calendars
from weir.events.catalog import Catalog
from weir.events.field_types import FieldType
from weir.table.table import Table

__all__ = ["ROWS_WORTH_INDEXES", "build_indexes", "index_kinds", "zone_rows"]

ROWS_WORTH_INDEXES = 16_384
"""Events from which on a generation gets indexes."""
_DEFAULT_ZONE = 2048
_ROWS_OF_ZONE = {"ZONEMAP": "rows_per_zone", "BLOOMFILTER": "number_of_items"}
_CORE = {
    "event_type": "BITMAP",
    # What a replay asks for.
    "context_id": "BTREE",
    # Events come nearly in the order of their time.
    "timestamp": "ZONEMAP",
    DAYS_OF_TIMESTAMP: "BITMAP",
    # What has come since somebody looked. Of others than restored events the id says so, which is the key.
    "arrival_id": "ZONEMAP",
}
_BY_TYPE = {
    "enum": "BITMAP",
    "bool": "BITMAP",
    "string": "BLOOMFILTER",
    "int": "ZONEMAP",
    "float": "ZONEMAP",
    "decimal": "ZONEMAP",
    "date": "ZONEMAP",
    "datetime": "ZONEMAP",
}


def index_kinds(catalog: Catalog) -> dict[str, str]:
    """Return the index kind of every indexed column of the events table.

    Fields of the same name and type share a column. It counts as an enum if any of them is one.

    Examples
    --------
    >>> from weir.events.field_types import parse_field_type
    >>> fields = {"plan": parse_field_type(["free", "pro"], "signup", "plan")}
    >>> index_kinds(Catalog({}).defined("signup", fields, None))["f_plan"]
    'BITMAP'
    """
    found = {**_CORE, **dict.fromkeys(calendars(catalog.columns), "BITMAP")}
    for kind in catalog.types.values():
        for fields in kind.versions.values():
            for name, field in fields.items():
                for column in kind.columns[name]:
                    _add(found, column, field)
    return found


def _add(found: dict[str, str], column: str, field: FieldType) -> None:
    kind = _BY_TYPE.get(field.kind)
    if kind is not None and (column not in found or kind == "BITMAP"):
        found[column] = kind


def zone_rows(catalog: Catalog) -> int:
    """Return how many events a zone has."""
    return int(catalog.options.get("events_per_zone", _DEFAULT_ZONE))


def build_indexes(table: Table, catalog: Catalog) -> None:
    """Build the indexes that the events table lacks. Safe to run concurrently."""
    present = {index.column for index in table.indexes.list()}
    for column, kind in index_kinds(catalog).items():
        if column not in present:
            zones: dict[str, Any] = {_ROWS_OF_ZONE[kind]: zone_rows(catalog)} if kind in _ROWS_OF_ZONE else {}
            with suppress(IndexExistsError):
                table.indexes.create(column, kind, **zones)
