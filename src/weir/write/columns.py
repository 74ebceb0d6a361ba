"""The columns of a writer, which may change while it is open.

A running writer adopts altered columns between two groups of writes, without a new claim. It learns of them
from code that altered or read the table in this process; from a background check of the table, at most once a
second; and when rows do not fit the columns it knows. Writes that depend on the rows there are look first:
plain Lance may have changed rows of the base table.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeVar

import pyarrow as pa

from weir.base.column_marks import mark_columns
from weir.base.newest import seen
from weir.base.stored_types import check_stored_types
from weir.base.table import BaseTable
from weir.engine.logs import get_logger
from weir.errors import InputError, OptionError, SchemaError, TableError, UnknownFeatureError, WeirError
from weir.format.field_births import births_of, same_birth
from weir.format.field_ids import field_id, has_field_ids
from weir.format.resolution import resolve
from weir.format.wal_entry import wal_schema
from weir.sharding.router import Router

__all__ = ["FollowedColumns", "TableColumns", "resolved"]

_LOOK_SECONDS = 1.0

_log = get_logger(__name__)

Made = TypeVar("Made")


@dataclass(frozen=True, slots=True)
class TableColumns:
    """The columns of a table at a version. Made by :meth:`of`.

    Parameters
    ----------
    base : BaseTable
        The table at that version.
    router : Router
        Splits rows with these columns by shard.
    wal_schema : Schema
        What rows are brought into: the columns, and ``_tombstone``.

    Attributes
    ----------
    version : int
        The version.
    schema : Schema
        The columns.
    row_schema : Schema
        The columns and ``_tombstone`` with their field ids: the schema of log entries.
    primary_key : tuple of str
        The primary-key columns, in key order.
    """

    base: BaseTable
    router: Router
    wal_schema: pa.Schema = field(repr=False)
    version: int = field(init=False)
    schema: pa.Schema = field(init=False, repr=False)
    row_schema: pa.Schema = field(init=False, repr=False)
    primary_key: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        """Take from the base table what every write asks for."""
        for name in ("version", "schema", "row_schema", "primary_key"):
            object.__setattr__(self, name, getattr(self.base, name))

    @classmethod
    def of(cls, base: BaseTable, router: Router) -> TableColumns:
        """Return the columns of a version.

        Raises
        ------
        SchemaError
            If it has a column whose values no flush or merge could bring into files.
        """
        check_stored_types(base.dataset)
        return cls(base, router, wal_schema(base.schema))

    @property
    def sequence_by(self) -> tuple[str, ...]:
        """The sequence column, which also orders deletes, if there is one."""
        engine = self.base.merge_engine
        return (engine.sequence_by,) if engine is not None and engine.sequence_by else ()

    def refuse_merge_engine(self, what: str) -> None:
        """Refuse a write that depends on the row that is there.

        Raises
        ------
        OptionError
            If the table has a merge engine: there the row is settled when it is read.
        """
        if self.base.merge_engine is not None:
            raise OptionError(
                f"{what} depends on the present row, which this table computes only when it is read: its "
                f"merge engine is {self.base.merge_engine}",
                where="merge_engine",
                hint="Write rows and delete keys without conditions",
            )

    def refuse_append_only(self, what: str) -> None:
        """Refuse a write by key.

        Raises
        ------
        OptionError
            If rows are only added to the table.
        """
        if self.base.append_only is not None:
            raise OptionError(
                f"{what} needs keys, and this table is append-only",
                where="primary_key",
                hint="delete(where=...) removes rows; a table that replaces rows has a primary_key",
            )


class FollowedColumns:
    """The current columns of a writer. Thread-safe.

    Parameters
    ----------
    columns : TableColumns
        Those it begins with.
    router_of : callable
        Returns what splits the rows of a version of the table by shard.
    """

    def __init__(self, columns: TableColumns, router_of: Callable[[BaseTable], Router]) -> None:
        self._columns = columns
        self._seen = seen(columns.base)
        self._router_of = router_of
        self._lock = threading.Lock()
        self._looked_at = time.monotonic()
        # Numbers of looks: of the last that began, and of the last that succeeded.
        self._begun = 0
        self._succeeded = 0
        self._refused: TableError | None = None

    def current(self) -> TableColumns:
        """Return the known columns, without asking the store.

        Raises
        ------
        UnknownFeatureError
            The table uses a feature by now that this version of Weir does not know.
        """
        if self._refused is not None:
            raise self._refused.again()
        columns = self._columns
        if self._seen.version > columns.version:
            return self.newest()
        return columns

    def newest(self) -> TableColumns:
        """Return the columns that the table has now. Calls that wait for their turn share one look."""
        begun = self._begun
        with self._lock:
            if self._succeeded > begun:
                return self._columns  # another thread has checked since this call began
            self._begun += 1
            self._looked_at = time.monotonic()
            known = self._columns
            base = mark_columns(known.base.latest())
            if base is not known.base:
                if base.row_schema is known.row_schema:
                    self._columns = TableColumns(base, known.router, known.wal_schema)
                else:
                    self._columns = TableColumns.of(base, self._router_of(base))
                    _log.info(
                        "writer.columns_taken_over",
                        where=base.uri,
                        version=base.version,
                        columns=",".join(base.schema.names),
                    )
            self._succeeded = self._begun
            return self._columns

    def look_if_due(self, start: Callable[[Callable[[], None]], object]) -> None:
        """Start a background check of the table if there was none for a second."""
        if time.monotonic() - self._looked_at >= _LOOK_SECONDS:
            self._looked_at = time.monotonic()
            start(self._look)

    def _look(self) -> None:
        # If the store fails, the next look finds out, or a row that does not fit.
        with suppress(WeirError):
            try:
                self.newest()
            except UnknownFeatureError as error:
                self._refused = error

    def fitting(self, make: Callable[[TableColumns], Made]) -> tuple[TableColumns, Made]:
        """Return the converted input, and the columns it was converted for.

        Input that does not fit the known columns may fit those that the table has now.

        Raises
        ------
        InputError
            It fits neither.
        """
        columns = self.current()
        try:
            return columns, make(columns)
        except InputError:
            newest = self.newest()
            if newest.row_schema is columns.row_schema:
                raise
            return newest, make(newest)


def resolved(rows: pa.Table, columns: TableColumns) -> pa.Table:
    """Return rows of log entries that were made for the columns of some version with those of another.

    Raises
    ------
    SchemaError
        If they have values of a column that does not exist.
    """
    if not has_field_ids(rows.schema) or rows.schema.equals(columns.row_schema, check_metadata=True):
        return rows
    known = {field_id(one) for one in columns.row_schema}
    before, now = births_of(rows.schema), births_of(columns.row_schema)
    for one, values in zip(rows.schema, rows.columns, strict=True):
        number = field_id(one)
        if number is None or values.null_count == len(values):
            continue
        if number not in known or not same_birth(number, before, now):
            raise SchemaError(
                f"the table no longer has a column {one.name!r}",
                where=one.name,
                hint="Write the rows again without it",
            )
    plan = resolve(rows.schema, columns.row_schema)
    batches = [plan.apply(batch, where="rows that were routed") for batch in rows.to_batches()]
    return pa.Table.from_batches(batches, columns.row_schema)
