"""Where the tables of namespaces are, and how they are made, opened, copied and removed."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NoReturn

import weir
from weir.engine.context import EngineContext
from weir.errors import LeaseHeldError, TableNotFoundError
from weir.namespaces.definition import Definition
from weir.namespaces.indexes import make_text_index
from weir.namespaces.names import ID
from weir.storage.interface import ObjectStore

__all__ = ["Tables"]

_DIRECTORY = "namespaces"


class Tables:
    """Where the tables of namespaces are, and how they are opened.

    Parameters
    ----------
    root : str
        The directory or bucket path of all namespaces.
    store : ObjectStore
        The same.
    storage_options : mapping of str to str, optional
        Of the store.
    fsync : bool
        Whether acknowledged writes survive the loss of power.
    writer_options : mapping of str to object
        Of writers.
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
        """Remove a table, which nobody can write from then on.

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

    def names(self, directory: str) -> list[str]:
        """Return the tables that there are of a namespace, also those that are half made. One listing."""
        return [*self._store.list_directories(f"{_DIRECTORY}/{directory}")]

    def remove(self, directory: str, name: str) -> None:
        """Remove a table that no definition names and none will, and whatever else is at its place.

        Raises
        ------
        LeaseHeldError
            As :meth:`drop`.
        """
        with suppress(TableNotFoundError):
            self.drop(directory, name)
        self._store.delete([meta.path for meta in self._store.list(f"{_DIRECTORY}/{directory}/{name}")])

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


def _leave(held: LeaseHeldError) -> NoReturn:
    raise held
