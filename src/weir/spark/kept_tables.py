"""Tables that are kept open between the micro-batches of a streaming query.

Spark plans and commits every micro-batch in a Python process that it uses again
(``spark.python.worker.reuse``). Opening a table there reads its manifests; a table that is open only looks
whether there is a newer version.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterator
from contextlib import contextmanager

from weir.spark.options import TableLocation
from weir.table.table import Table

__all__ = ["KeptTables", "process_tables"]

_MOST_KEPT = 8


class KeptTables:
    """Open tables by location. Thread-safe.

    Parameters
    ----------
    most : int, default 8
        How many to keep: the most recently used ones.
    """

    def __init__(self, most: int = _MOST_KEPT) -> None:
        self._most = most
        self._kept: dict[Hashable, Table] = {}
        self._lock = threading.Lock()

    def newest(self, location: TableLocation, *, fsync: bool) -> Table:
        """Return the table at a location, at its newest version.

        Parameters
        ----------
        location : TableLocation
            The table.
        fsync : bool
            As for :func:`weir.open`.

        Raises
        ------
        TableNotFoundError
            If there is no table.
        """
        key = (location.uri, frozenset(location.storage_options.items()), fsync)
        with self._lock:
            table = self._kept.pop(key, None)
        if table is None or not _is_there_still(table):
            table = location.open(fsync=fsync)
        # A table without an id cannot be told from a later one at its place.
        if table.internals.base.has_id:
            with self._lock:
                self._kept[key] = table
                for surplus in list(self._kept)[: -self._most]:
                    del self._kept[surplus]
        return table

    @contextmanager
    def in_use(self, table: Table) -> Iterator[None]:
        """Use a table in the block. If that fails, it is opened anew the next time."""
        try:
            yield
        except BaseException:
            with self._lock:
                self._kept = {key: kept for key, kept in self._kept.items() if kept is not table}
            raise


def _is_there_still(table: Table) -> bool:
    """Look for a newer version; return False if there is another table by now."""
    before = table.identity
    table.internals.follow()
    return table.identity == before


process_tables = KeptTables()
"""The tables of this process."""
