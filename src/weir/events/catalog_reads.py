"""Reads of events with a catalog that knows all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from weir.events.catalog import Catalog

__all__ = ["read_with_catalog"]

_Read = TypeVar("_Read")


def read_with_catalog(
    catalog: Catalog, newest: Callable[[], Catalog], read: Callable[[Catalog], _Read]
) -> tuple[_Read, Catalog]:
    """Read events, again if the catalog has changed meanwhile; return what was read, and with which catalog.

    The catalog and the events are read one after the other. An event may be of a version that was defined in
    between: of that, a catalog from before does not know all fields, or where they are.

    Parameters
    ----------
    catalog : Catalog
        A known one.
    newest : callable
        Returns the newest.
    read : callable
        Reads events with a catalog.
    """
    is_new = False
    while True:
        found = read(catalog)
        present = newest()
        # What is forgotten while this reads may be found: whoever goes on forgetting would hold it up.
        if present.types == catalog.types and (is_new or present.erasures == catalog.erasures):
            return found, catalog
        catalog, is_new = present, True
