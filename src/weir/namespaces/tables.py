"""The tables of namespaces: their locations, creation, opening, copying and removal.

``namespaces/{namespace}/{table}`` below the root. A table without a definition is recorded, in
``unnamed/{namespace}/{table}``: from before its creation until its definition exists, and from before the
definition is removed until a day later, since a process that has not noticed may still write files there. So
a table with neither a definition nor a record has lost its definition, and is not a leftover.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any, NoReturn

import weir
from weir.engine.context import EngineContext
from weir.errors import LeaseHeldError, StorageError, TableNotFoundError
from weir.namespaces.definition import Definition
from weir.namespaces.indexes import make_text_index
from weir.namespaces.names import ID, namespace_of
from weir.storage.interface import ObjectStore
from weir.storage.paths import is_reserved

__all__ = ["Tables"]


_DIRECTORY = "namespaces"
_UNNAMED = "unnamed"
_KEPT = timedelta(days=1)


class Tables:
    """Where the tables of namespaces are, and how they are opened.

    Parameters
    ----------
    root : str
        The directory or bucket path of all namespaces.
    store : ObjectStore
        The same.
    storage_options : mapping of str to str, optional
        Options of the store.
    fsync : bool
        Whether acknowledged writes survive the loss of power.
    writer_options : mapping of str to object
        Options of writers.
    engine : Engine, optional
        What all of them share. Default: that of the process.
    max_attributes : int
        The most attributes of a namespace.
    """

    def __init__(
        self,
        root: str,
        store: ObjectStore,
        storage_options: Mapping[str, str] | None,
        fsync: bool,
        writer_options: Mapping[str, Any],
        engine: EngineContext | None,
        max_attributes: int = 1024,
    ) -> None:
        self.max_attributes = max_attributes
        self._root = root.rstrip("/")
        self._store = store
        self._engine = engine
        self._options: dict[str, Any] = {"storage_options": storage_options, "fsync": fsync}
        self.writer_options = writer_options

    def _uri(self, directory: str, definition: Definition) -> str:
        return f"{self._root}/{_DIRECTORY}/{directory}/{definition.table}"

    def _place(self, directory: str) -> str:
        """Return the same below the root of the store: an object store takes the text for encoded."""
        plain = namespace_of(directory)
        is_as_named = self._store.is_local or is_reserved(plain)
        return f"{_DIRECTORY}/{directory if is_as_named else plain}"

    def create(self, directory: str, definition: Definition) -> weir.Table:
        """Make the table of a namespace."""
        table = weir.create(
            self._uri(directory, definition),
            definition.schema,
            primary_key=ID,
            engine=self._engine,
            maintenance="off",  # a namespace looks after its table itself
            **self._options,
        )
        for attribute in definition.attributes.values():
            make_text_index(table, attribute)
        return table

    def open(self, directory: str, definition: Definition) -> weir.Table:
        """Open the table of a namespace."""
        uri = self._uri(directory, definition)
        return weir.open(uri, engine=self._engine, maintenance="off", **self._options)

    def drop(self, directory: str, name: str) -> None:
        """Remove a table, which can no longer be written from then on.

        Raises
        ------
        LeaseHeldError
            If the process that wrote it may not have noticed. Nobody waits for its lease to run out: a later
            call removes the files.
        TableNotFoundError
            If there is none.
        """
        uri = f"{self._root}/{_DIRECTORY}/{directory}/{name}"
        weir.drop(uri, takeover=True, on_wait=_leave, **self._options)

    def directories(self) -> list[str]:
        """Return the directories of namespaces that have tables. One listing."""
        return [*self._store.list_directories(_DIRECTORY)]

    def names(self, directory: str) -> list[str]:
        """Return the existing tables of a namespace, including unfinished ones. Takes one listing."""
        return [*self._store.list_directories(self._place(directory))]

    def note_unnamed(self, directory: str, name: str) -> None:
        """Note that no definition names a table, which is made now, or given up."""
        self._store.put(_note(directory, name), b"{}")

    def forget_unnamed(self, directory: str, name: str) -> None:
        """Remove the note of a table that a definition names now, or that nobody else knew of.

        If that fails it is removed a day later: records of such tables are not used.
        """
        with suppress(StorageError):
            self._store.delete([_note(directory, name)])

    def unnamed(self, directory: str) -> list[str]:
        """Return the tables of a namespace that are noted as named by no definition. One listing."""
        place = f"{_UNNAMED}/{directory}"
        return [meta.path.removeprefix(f"{place}/") for meta in self._store.list(place)]

    def with_old_notes(self) -> set[str]:
        """Return the directories of namespaces with notes that are older than they are kept. One listing."""
        now = datetime.now(UTC)
        old = [meta.path for meta in self._store.list(_UNNAMED) if now - meta.last_modified > _KEPT]
        return {path.split("/")[1] for path in old}

    def has_lost(self, directory: str) -> bool:
        """Whether a namespace without a definition has tables that one has named.

        The caller checks again whether there is a definition now. Takes one listing if there are no tables.
        """
        # In this order: the note of a table is there before it.
        if not self.names(directory):
            return False
        unnamed = self.unnamed(directory)
        return any(name not in unnamed for name in self.names(directory))

    def remove(self, directory: str, name: str) -> None:
        """Remove a table that no definition names and none will, and whatever else is at its place.

        Raises
        ------
        LeaseHeldError
            As :meth:`drop`.
        """
        with suppress(TableNotFoundError):
            self.drop(directory, name)
        self._store.delete([meta.path for meta in self._store.list(f"{self._place(directory)}/{name}")])

    def forget_old(self, directory: str, named: str | None) -> None:
        """Remove old records of a namespace, for the named table and for tables that are gone."""
        # A process that creates or abandons a table may sleep between the record and the next step.
        place, now = f"{_UNNAMED}/{directory}", datetime.now(UTC)
        old = [meta.path for meta in self._store.list(place) if now - meta.last_modified > _KEPT]
        if old:
            left = {_note(directory, name) for name in self.names(directory) if name != named}
            self._store.delete([path for path in old if path not in left])

    def clone(self, source: weir.Table, at: Any, directory: str, definition: Definition) -> weir.Table:
        """Copy a state of a table to be that of a namespace."""
        weir.clone(
            source.uri,
            self._uri(directory, definition),
            at=at,
            storage_options=self._options["storage_options"],
            target_options=self._options["storage_options"],
            fsync=self._options["fsync"],
        )
        return self.open(directory, definition)


def _note(directory: str, name: str) -> str:
    return f"{_UNNAMED}/{directory}/{name}"


def _leave(held: LeaseHeldError) -> NoReturn:
    raise held
