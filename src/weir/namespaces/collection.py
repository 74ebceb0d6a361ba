"""All namespaces below a root."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any
from weakref import WeakValueDictionary

from weir.engine.context import EngineContext
from weir.namespaces.catalog import Catalog
from weir.namespaces.dirty import Dirty
from weir.namespaces.names import check_namespace_name, directory_of, namespace_of
from weir.namespaces.namespace import Namespace
from weir.namespaces.tables import Tables
from weir.storage.interface import ObjectStore
from weir.storage.open import open_store

__all__ = ["Namespaces", "open"]


class Namespaces:
    """Namespaces of documents. Made by :func:`open`; safe to use from many threads.

    Parameters
    ----------
    store : ObjectStore
        The root.
    tables : Tables
        Opens their tables.
    process : str
        Id of this process among those that serve the root; empty if it does not serve it.
    """

    def __init__(self, store: ObjectStore, tables: Tables, process: str) -> None:
        self.store = store
        self.dirty = Dirty(store, process)
        self._tables = tables
        self._catalog = Catalog(store)
        # Namespaces in use and those whose table is open: a client may request any number of names that do
        # not exist.
        self._known: WeakValueDictionary[str, Namespace] = WeakValueDictionary()
        self._open: set[Namespace] = set()
        self._lock = threading.Lock()

    def namespace(self, name: str) -> Namespace:
        """Return a namespace, whether or not there is one of that name yet.

        Raises
        ------
        InputError
            If no namespace can have the name.
        """
        check_namespace_name(name)
        with self._lock:
            known = self._known.get(name)
            if known is None:
                known = Namespace(name, self._catalog, self._tables, self.dirty, self._open)
                self._known[name] = known
            return known

    def names(self, prefix: str = "", after: str = "", most: int | None = None) -> list[str]:
        """Return the names of namespaces, in order.

        Parameters
        ----------
        prefix : str
            What they begin with. Default: all.
        after : str
            The last name that is known already. Default: from the first.
        most : int, optional
            How many. Default: all.
        """
        # In this order: a namespace is known before it has a table that a definition names.
        directories = self._tables.directories()
        deleted = self._catalog.names()
        found = {name for name, is_deleted in deleted.items() if not is_deleted}
        for directory in directories:
            name = namespace_of(directory)
            # A namespace whose definition is missing counts as existing; opening it raises an error.
            if deleted.get(name, True) and self._tables.has_lost(directory_of(name)):
                found.add(name)
        names = sorted(name for name in found if name.startswith(prefix) and name > after)
        return names if most is None else names[:most]

    def with_old_notes(self) -> list[str]:
        """Return the names with a record of a table given up so long ago that nobody writes it any more."""
        return sorted(namespace_of(directory) for directory in self._tables.with_old_notes())

    def open_here(self) -> list[Namespace]:
        """Return the namespaces whose tables this process has open."""
        return [*self._open.copy()]

    def close(self) -> None:
        """Flush what was written here, and release every namespace; a failure is raised at the end."""
        with ExitStack() as closing:
            for namespace in self.open_here():
                closing.callback(namespace.close)

    def __enter__(self) -> Namespaces:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def open(
    root: str | Path,
    *,
    storage_options: Mapping[str, str] | None = None,
    fsync: bool = True,
    engine: EngineContext | None = None,
    max_attributes: int = 1024,
    **writer_options: Any,
) -> Namespaces:
    """Open the namespaces below a directory or bucket path; there need not be any yet.

    Parameters
    ----------
    root : str or Path
        Where they are.
    storage_options, fsync
        As for :func:`weir.create`.
    engine : Engine, optional
        What their tables share. Default: that of the process.
    max_attributes : int
        The most attributes of a namespace. Default 1,024.
    **writer_options
        As for :meth:`weir.Table.writer`.

    Examples
    --------
    >>> import tempfile, weir.namespaces
    >>> from weir.namespaces import Documents, Write
    >>> namespaces = weir.namespaces.open(tempfile.mkdtemp())
    >>> docs = namespaces.namespace("docs")
    >>> docs.write(Write(upserts=Documents.of_rows([{"id": 1, "title": "walrus"}]))).upserted
    1
    >>> namespaces.names()
    ['docs']
    >>> namespaces.close()
    """
    store = open_store(root, storage_options, fsync=fsync)
    tables = Tables(str(root), store, storage_options, fsync, writer_options, engine, max_attributes)
    # A serving process has an id; other processes maintain what they write themselves.
    process = str(writer_options.get("holder") or "")
    return Namespaces(store, tables, process)
