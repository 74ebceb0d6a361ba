"""A table with the first form of the MemWAL index, behind the front door: read and verified, not written."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NoReturn

from weir.base.dataset import open_dataset
from weir.base.table import BaseTable
from weir.engine.forked import refuse_forked
from weir.engine.runner import Runner, ThreadRunner
from weir.first_index.inspect import inspect_regions
from weir.first_index.verify import verify_regions
from weir.first_index.view import base_of, base_only, refusal, take_view
from weir.maintenance.inspection.description import Description
from weir.maintenance.verify import VerifyReport
from weir.storage.interface import ObjectStore
from weir.table.indexes import TableIndexes
from weir.table.inspection import TableInspection
from weir.table.kept_writer import KeptWriter
from weir.table.maintenance import TableMaintenance
from weir.table.open_table import OpenTable
from weir.table.table import Table

__all__ = ["RegionTable"]


class RegionTable(Table):
    """A table with the first form of the MemWAL index. Made by :func:`weir.open`.

    Every read is of the newest version: the base table and all MemWALs that are not merged. What writes is
    refused by name. If the index becomes one of today, reads go on, and the table is opened anew to be
    written.

    Parameters
    ----------
    store : ObjectStore
        Where the table is.

    Raises
    ------
    SchemaError
        The table has no primary key.
    """

    def __init__(self, store: ObjectStore) -> None:
        refuse_forked()
        # It is not too late to find that out at the first read, but too far from the mistake.
        base_only(store)
        self._store = store
        self._is_tended = False
        self._kept = KeptWriter(self._open_writer, store.uri)
        self._lock = threading.Lock()
        self._seen: tuple[int, OpenTable] | None = None

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle as where the table is."""
        return (RegionTable, (self._store,))

    @property
    def _table(self) -> OpenTable:
        """The newest version, whose regions are read when they have changed."""
        with self._lock:
            seen = self._seen
            # An upgraded one follows what changes by itself.
            if seen is None or (seen[0] and seen[0] != open_dataset(self._store).version):
                view = take_view(self._store)
                if view is None:
                    seen = 0, OpenTable(self._store, BaseTable.open(self._store))
                else:
                    seen = view.version, OpenTable(view, base_of(view))
                self._seen = seen
            return seen[1]

    @property
    def maintenance(self) -> TableMaintenance:
        """The jobs of a table, of which only verifying it is not refused."""
        return _RegionMaintenance(self._store)

    @property
    def indexes(self) -> TableIndexes:
        """The indexes of the base table, which are listed and not changed."""
        return _RegionIndexes(self._table)

    @property
    def inspect(self) -> TableInspection:
        """Shows the regions and what else is stored."""
        return _RegionInspection(self._store)

    def changes(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse: a version has no position in a log from which the next version could continue."""
        raise refusal("there is no change feed of it", self._store.uri)

    def alter(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse."""
        raise refusal("its columns cannot be altered", self._store.uri)

    def _open_writer(self, **options: Any) -> NoReturn:
        raise refusal("it is read, and not written", self._store.uri)

    def writer(self, **options: Any) -> NoReturn:
        """Refuse."""
        self._open_writer()

    def load(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse."""
        self._open_writer()

    def __repr__(self) -> str:
        """Return location, key, and that it has regions."""
        return f"RegionTable({self.uri!r}, primary_key={self.primary_key})"


class _RegionMaintenance(TableMaintenance):
    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def __getattribute__(self, name: str) -> Any:
        """Refuse every job but :meth:`verify`."""
        if not name.startswith("_") and name != "verify" and hasattr(TableMaintenance, name):
            raise refusal(f"there is no {name.replace('_', ' ')} for it", self._store.uri)
        return super().__getattribute__(name)

    def verify(
        self,
        *,
        base_rows: bool = True,
        runner: Runner | None = None,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> VerifyReport:
        return verify_regions(
            self._store, runner or ThreadRunner(), base_rows=base_rows, on_progress=on_progress
        )


class _RegionIndexes(TableIndexes):
    def create(self, *_: Any, **__: Any) -> NoReturn:
        raise refusal("no index can be built", self._table.store.uri)

    def policy(self, *_: Any, **__: Any) -> NoReturn:
        raise refusal("no index can be built", self._table.store.uri)

    def drop(self, *_: Any, **__: Any) -> NoReturn:
        raise refusal("no index can be dropped", self._table.store.uri)


class _RegionInspection(TableInspection):
    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def show(self, what: str | None = None, *, rows: bool = False) -> Description:
        return inspect_regions(self._store, what, rows=rows)
