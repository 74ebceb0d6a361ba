"""Tables that are kept open between the micro-batches of a streaming query.

Spark plans and commits every micro-batch in a Python process that it uses again
(``spark.python.worker.reuse``). Opening a table there reads its manifests; a table that is open only looks
whether there is a newer version.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from weir.spark.kept_pool import MOST_KEPT, KeptPool
from weir.spark.options import TableLocation
from weir.table.table import Table

__all__ = ["KeptTables", "process_tables"]


class KeptTables:
    """Open tables by location. Thread-safe.

    Parameters
    ----------
    most : int, default 8
        How many to keep: the most recently used ones.
    """

    def __init__(self, most: int = MOST_KEPT) -> None:
        self._pool: KeptPool[Table] = KeptPool(most)

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
        table = self._pool.take(key, _is_there_still) or location.open(fsync=fsync)
        # A table without an id cannot be told from a later one at its place.
        if table.internals.base.has_id:
            self._pool.keep(key, table)
        return table

    @contextmanager
    def in_use(self, table: Table) -> Iterator[None]:
        """Use a table in the block. If that fails, it is opened anew the next time."""
        try:
            yield
        except BaseException:
            self._pool.forget(table)
            raise


def _is_there_still(table: Table) -> bool:
    """Look for a newer version; return False if there is another table by now."""
    before = table.identity
    table.internals.follow()
    return table.identity == before


process_tables = KeptTables()
"""The tables of this process."""
