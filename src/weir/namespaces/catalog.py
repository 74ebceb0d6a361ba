"""The catalog of namespaces: one definition object each, replaced by compare-and-swap.

``catalog/{name}.json`` below the root. The object of a deleted namespace stays, with just a random number: of
concurrent deletes and re-creations only one wins, even if a store identifies versions by content. A missing
definition is genuine only if there is no table that one should name:
:meth:`weir.namespaces.tables.Tables.has_lost`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from uuid import uuid4

from weir.errors import (
    ConflictError,
    CorruptionError,
    ObjectExistsError,
    ObjectNotFoundError,
    PreconditionError,
)
from weir.namespaces.definition import Definition, decode, encode
from weir.namespaces.names import directory_of, namespace_of
from weir.storage.interface import ObjectStore

__all__ = ["Catalog", "Known"]

_DIRECTORY = "catalog"
_SUFFIX = ".json"
_DELETED = re.compile(rb"[0-9a-f]{32}\Z")
"""What the object of a namespace that was deleted holds; a definition is longer."""
_DELETED_BYTES = 32


@dataclass(frozen=True, slots=True)
class Known:
    """A definition, and the version of the object it was read from.

    Parameters
    ----------
    definition : Definition, optional
        None for a namespace that does not exist.
    version : str
        The version of the object; empty if there is none.
    """

    definition: Definition | None
    version: str


class Catalog:
    """The definitions below a root. Safe to use from many threads and processes.

    Parameters
    ----------
    store : ObjectStore
        The root.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def version(self, name: str) -> str:
        """Return the version of a definition; empty if there is none. Takes one request."""
        meta = self._store.head(_path(name))
        return "" if meta is None else meta.version

    def read(self, name: str) -> Known:
        """Return the definition of a namespace.

        Raises
        ------
        ConflictError
            If it changes all the time.
        CorruptionError
            If it cannot be read.
        """
        path = _path(name)
        found = self._found(path)
        if found is None:
            return Known(None, "")
        content, version = found
        if _DELETED.match(content):
            return Known(None, version)
        with self._store.naming(path) as where:
            return Known(decode(content, where), version)

    def lost(self, name: str) -> CorruptionError:
        """Return the error for a namespace whose definition is missing although it has tables."""
        path = _path(name)
        return CorruptionError(
            f"the namespace {name!r} has lost its definition: no file names its tables",
            where=self._store.location_of(path),
            hint=f"Restore the file, with {_DIRECTORY}/.weir-swaps beside it on a local disk, from a backup; "
            f"or remove namespaces/{directory_of(name)} below the root, which abandons the documents",
        )

    def replace(self, name: str, definition: Definition | None, known: Known) -> Known:
        """Replace a definition that was read; None deletes it.

        Raises
        ------
        ConflictError
            If another process has changed it.
        """
        path, data = _path(name), uuid4().hex.encode() if definition is None else encode(definition)
        try:
            if not known.version:
                self._store.put_if_absent(path, data)
                return self._made(name, definition)
            return Known(definition, self._store.compare_and_swap(path, data, known.version))
        except PreconditionError as error:
            found = self._found(path)
            if found is None or found[0] != data:
                raise ConflictError("another writer has changed the namespace", where=name) from error
            return Known(definition, found[1])  # it was this very swap, and its answer was lost (I4)
        except ObjectExistsError as error:
            raise ConflictError("another writer has changed the namespace", where=name) from error

    def _found(self, path: str) -> tuple[bytes, str] | None:
        try:
            data, version = self._store.get_with_version(path)
        except ObjectNotFoundError:
            return None
        return bytes(memoryview(data)), version

    def _made(self, name: str, definition: Definition | None) -> Known:
        """Return the definition of a namespace that was made, which others may have changed already."""
        found = self.read(name)
        made, wanted = (None if one is None else one.table for one in (found.definition, definition))
        if made != wanted:
            raise ConflictError("another writer has changed the namespace", where=name)
        return found

    def names(self) -> Mapping[str, bool]:
        """Return the namespaces that are known, and of each whether it was deleted. One listing."""
        return {
            namespace_of(meta.path.removeprefix(f"{_DIRECTORY}/").removesuffix(_SUFFIX)): (
                meta.size == _DELETED_BYTES
            )
            for meta in self._store.list(_DIRECTORY)
            if meta.path.endswith(_SUFFIX)
        }


def _path(name: str) -> str:
    return f"{_DIRECTORY}/{directory_of(name)}{_SUFFIX}"
