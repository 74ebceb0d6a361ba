"""Reading the newest manifest of a table in parallel with the library, which exposes only half of it."""

from __future__ import annotations

from weir.base.manifest import VERSIONS, TableManifest, manifest_version
from weir.errors import ObjectNotFoundError
from weir.storage.interface import ObjectStore

__all__ = ["read_first_listed"]


def read_first_listed(store: ObjectStore) -> TableManifest | None:
    """Return the newest manifest by the names listed first; None if there is none.

    If the newest sorts first, as in all but very old tables, it is the newest one. Takes two requests. The
    caller has to compare it with the version that the library finds.
    """
    listed = ((manifest_version(entry.path), entry.path) for entry in store.list_first(VERSIONS))
    version, path = max(((version, path) for version, path in listed if version is not None), default=(0, ""))
    if not version:
        return None
    try:
        return TableManifest(version, path, store.get(path), f"{store.uri}/{path}")
    except ObjectNotFoundError:
        return None
