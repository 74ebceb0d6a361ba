"""Opening the store for a location, whatever its kind."""

from __future__ import annotations

import os
from collections.abc import Mapping

from weir.engine.forked import refuse_forked
from weir.errors import OptionError
from weir.storage.interface import ObjectStore
from weir.storage.local import LocalStore
from weir.storage.location import parse_location

__all__ = ["open_store"]


def open_store(
    uri: str | os.PathLike[str], storage_options: Mapping[str, str] | None = None, *, fsync: bool = True
) -> ObjectStore:
    """Open the store at a location. Nothing is read or written yet.

    Parameters
    ----------
    uri : str or os.PathLike
        A path (``~`` is the home directory; relative paths start from the current directory),
        ``file:///path``, ``s3://bucket/path``, ``gs://bucket/path``, ``az://container/path``,
        ``abfss://container@account.dfs.core.windows.net/path``, or ``memory://name/path`` for tests.
    storage_options : mapping of str to str, optional
        Credentials, endpoint, region and the like, as Lance spells them. A local path has none.
    fsync : bool, default True
        Whether writes to a local disk wait until the disk has them. Object stores always do.

    Returns
    -------
    ObjectStore
        Its ``uri`` and ``storage_options`` are what Lance takes for the same place.

    Raises
    ------
    UriError
        The location cannot be parsed; the message says what is supported.
    OptionError
        A storage option is unknown or does not fit.
    ForkedProcessError
        This process was forked from one that had opened a table.

    Examples
    --------
    >>> open_store("/data/flights").uri
    '/data/flights'
    >>> open_store("ftp://host/flights")
    Traceback (most recent call last):
    weir.errors.UriError: The scheme 'ftp' is not supported [ftp://host/flights]. Give a path, \
file:///path, s3://bucket/path, gs://bucket/path, az://container/path, \
abfss://container@account.dfs.core.windows.net/path or memory://name/path
    """
    refuse_forked()
    location = parse_location(uri)
    if location.scheme == "file":
        if storage_options:
            raise OptionError(
                f"A local path has no storage options: {', '.join(map(repr, storage_options))}",
                where=location.uri,
                hint="Leave them out, or give the location of an object store",
            )
        return LocalStore(location.path, fsync=fsync)
    # Only those who use an object store pay for loading its client.
    from weir.storage.object_store import ObjectStoreBackend

    return ObjectStoreBackend(location.uri, storage_options)
