"""LanceDB databases: directories in which each table is a dataset ``NAME.lance``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from weir.table.opening import table_store

__all__ = ["database_tables"]

_SUFFIX = ".lance"
_VERSIONS = "_versions"


def database_tables(
    uri: str | Path, *, storage_options: Mapping[str, str] | None = None, fsync: bool = True
) -> dict[str, str]:
    """Return the locations of the tables of a LanceDB database, by name; none if it is itself a table.

    Takes one listing. Some may have no write spec; :func:`weir.open` refuses those.

    Parameters
    ----------
    uri, storage_options, fsync
        As for :func:`weir.open`: the directory of the database.

    Raises
    ------
    StorageError
        The store failed.

    Examples
    --------
    >>> import tempfile, pyarrow as pa, weir
    >>> place = tempfile.mkdtemp()
    >>> schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])
    >>> _ = weir.create(place + "/people.lance", schema, primary_key="id")
    >>> list(database_tables(place)), list(database_tables(place + "/people.lance"))
    (['people'], [])
    """
    store = table_store(uri, storage_options, fsync)
    found = store.list_directories("")
    if _VERSIONS in found:
        return {}
    names = sorted(name.removesuffix(_SUFFIX) for name in found if name.endswith(_SUFFIX))
    return {name: f"{store.uri.rstrip('/')}/{name}{_SUFFIX}" for name in names if name}
