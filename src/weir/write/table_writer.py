"""The table writer: upserts and deletes, checked, routed to shards, and awaited until durable."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Literal, NoReturn, overload
from uuid import UUID

import pyarrow as pa

from weir.errors import InputError, WeirError, WriterError
from weir.format.source import Source
from weir.lsm.staged_rows import staged_rows
from weir.rows import (
    RowInput,
    as_key_table,
    as_row_table,
    change_table,
    check_deletable,
    conformed,
    pieces,
    repeatable,
    tombstone_batches,
    upsert_batches,
)
from weir.rows.asked import asked_operations
from weir.rows.operations import Delete, Insert, OperationInput, Patch, Upsert
from weir.sharding.shard_values import ShardValues
from weir.write.columns import FollowedColumns, TableColumns, resolved
from weir.write.decision.by_filter import ChangeByFilter
from weir.write.decision.operation import Kind, LogPlaceBefore, Undecided
from weir.write.decision.prepare import made_operations, routed_operations
from weir.write.flush.staged_generations import StagedGeneration
from weir.write.routed_writes import FENCED, Known, PartsAfter, RoutedWrites, WriterParts, one_batch
from weir.write.shard_pool import ShardPool
from weir.write.shard_writer import ShardWriter
from weir.write.write_result import WriteResult, in_pieces, joined

__all__ = ["DeleteAppended", "FindRows", "TableWriter", "upsert_piece"]

FindRows = Callable[[Sequence[str], str], pa.Table]
"""Returns columns of the rows that a filter matches now; strongly consistent."""

DeleteAppended = Callable[[str, int | None, Collection[UUID]], tuple[int, int]]
"""Deletes by filter, with a limit, where rows are only added, once some shards are flushed; returns how many
rows it deleted, and how many are left that match."""

_MOST_BYTES_TOGETHER = 1024 * 1024
"""Most bytes of single writes that find room, or do not, as one."""

_RoutedBatch = tuple[ShardValues, pa.RecordBatch]


class TableWriter:
    """Writes upserts and deletes into the shards of a table.

    Made by :meth:`weir.table.table.Table.writer`; use it as a context manager. It claims a shard when the
    first row for it arrives, and owns the shard until it is closed or fenced, renewing a lease on it. Writers
    of the same table in one process share the shards that one of them has claimed, until the last of them is
    closed. Safe to use from many threads.

    If columns are added, dropped, renamed or widened meanwhile, the writer adopts the change between two
    writes: rows with the old columns are accepted as long as they still fit; an error names the column that
    does not. If the table is resharded meanwhile, writes wait and continue in the new shards; writes made
    with ``wait=False`` fail with :class:`~weir.errors.FencedError` and have to be repeated.

    Parameters
    ----------
    parts : WriterParts
        The table's columns, and the shards it claims.
    parts_after : callable
        Returns others once the table is sharded by another rule.
    find_rows : callable
        Returns columns of the rows that a filter matches now; strongly consistent.
    delete_appended : callable
        Deletes by filter from a table whose rows are only added.
    """

    def __init__(
        self,
        parts: WriterParts,
        parts_after: PartsAfter,
        find_rows: FindRows,
        delete_appended: DeleteAppended,
    ) -> None:
        self._writes = RoutedWrites(parts, parts_after)
        self._find_rows = find_rows
        self._delete_appended = delete_appended

    @property
    def _columns(self) -> FollowedColumns:
        return self._writes.parts.columns

    @property
    def _shards(self) -> ShardPool:
        return self._writes.parts.shards

    def _begin_write(self) -> None:
        """Note that a write begins, for background work to give way; raise if nothing more can be written."""
        shards = self._shards
        if not shards.open or shards.process_id != os.getpid():
            shards.refuse_if_closed()
        shards.engine.throttle.last_foreground = time.monotonic()

    @overload
    def upsert(
        self,
        data: RowInput,
        *,
        wait: Literal[True] = True,
        source: Source | None = None,
        condition: str | None = None,
        progress: Callable[[int], object] | None = None,
    ) -> WriteResult: ...
    @overload
    def upsert(
        self,
        data: RowInput,
        *,
        wait: Literal[False],
        source: Source | None = None,
        condition: str | None = None,
    ) -> Future[WriteResult]: ...
    @overload
    def upsert(
        self, data: RowInput, *, wait: bool, source: Source | None = None, condition: str | None = None
    ) -> WriteResult | Future[WriteResult]: ...
    def upsert(
        self,
        data: RowInput,
        *,
        wait: bool = True,
        source: Source | None = None,
        condition: str | None = None,
        progress: Callable[[int], object] | None = None,
    ) -> WriteResult | Future[WriteResult]:
        """Insert rows, replacing those with the same primary key. Without a key all rows are added.

        Parameters
        ----------
        data : table-like
            Arrow table, batch or reader, pandas or polars data frame (lazy too), anything that exports Arrow,
            a list of dicts, dataclasses or pydantic models, a dict of columns; or an iterator of batches or
            rows, which like a reader is written piece by piece. Columns are matched by name; a nullable
            column that is missing becomes null.
        wait : bool
            Whether to return only when every row is durable (invariant I1). Otherwise a future is returned as
            soon as the rows are queued, which may have to wait for room.
        source : Source, optional
            Makes the write repeatable: a shard that already has rows of the same source with this number, or
            a higher one, skips them. Each shard takes its rows and the mark together or not at all, so after
            an error or a crash the same call completes the write. A record batch reader is read to its end
            first.
        condition : str, optional
            SQL over the existing row, with the values of the new one as ``new.<column>``, such as ``"version
            < new.version"``. If it is false or null, the row stays as it is; the result names the keys that
            were written and those that were not. Rows that do not exist are written. The condition is
            evaluated at the write's position in the log, so concurrent writers lose no update. All rows of
            one shard then go into one log entry.
        progress : callable, optional
            Called with the number of rows durable so far: after every piece of a reader or an iterator,
            otherwise once. Only with ``wait``.

        Returns
        -------
        WriteResult or Future of WriteResult
            Where the last rows are in the WAL. Rows of one shard become durable and visible in their
            order: together, if they are in one batch, or the write has a source; else batch by batch, as
            far as batches do not fit one log entry. Shards are independent of each other.

        Raises
        ------
        SchemaError, KeyValueError
            If the data does not fit the table. Nothing is written; with a record batch reader, nothing from
            the bad batch on.
        FilterError
            If the condition does not parse, names unknown columns or is not boolean: nothing is written. If
            it cannot be evaluated for some row, nothing is written to the shard of that row.
        LeaseHeldError
            If another writer holds the lease of a shard that this writer would have to claim. Nothing was
            written.
        FencedError
            If another writer has claimed a shard, or this one has lost its lease.
        BackpressureError
            If flushes or merges did not make room in time. Nothing was written; with a record batch reader,
            nothing from the batch on that had to wait.
        StorageError
            If the store failed; writing the same rows again is safe.
        """
        if progress is not None and not wait:
            raise InputError("progress needs wait=True", where="progress", hint="Leave out wait")
        told = progress or (lambda _: None)
        self._begin_write()
        stream = None
        if not isinstance(data, pa.Table):
            if wait and source is None and condition is None:
                stream = pieces(data)
            if stream is None:
                # Out of a stream first: after returning, the caller may change what it holds.
                data = repeatable(data)
        if stream is None:
            result = self._upsert_whole(data, wait, source, condition)
            if isinstance(result, WriteResult):
                told(result.rows)
            return result
        return in_pieces(stream, partial(upsert_piece, self), told)

    def _upsert_whole(
        self, data: RowInput, wait: bool, source: Source | None, condition: str | None
    ) -> WriteResult | Future[WriteResult]:
        if condition is not None:
            return self._decided([Upsert(data, condition)], wait=wait, source=source)
        columns, batches = self._upserts(data)
        return self._write_all(columns, batches, source, wait)

    def _upserts(self, data: RowInput, first_row: int = 0) -> tuple[TableColumns, list[pa.RecordBatch]]:
        """Return checked rows as batches of log entries, and the columns that they have."""

        def made(columns: TableColumns) -> list[pa.RecordBatch]:
            checked = conformed if isinstance(data, pa.Table) else as_row_table
            rows = checked(data, columns.schema, columns.primary_key, first_row=first_row)
            return upsert_batches(rows, columns.wal_schema)

        return self._columns.fitting(made)

    @overload
    def insert(
        self, data: RowInput, *, wait: Literal[True] = True, source: Source | None = None
    ) -> WriteResult: ...
    @overload
    def insert(
        self, data: RowInput, *, wait: Literal[False], source: Source | None = None
    ) -> Future[WriteResult]: ...
    @overload
    def insert(
        self, data: RowInput, *, wait: bool, source: Source | None = None
    ) -> WriteResult | Future[WriteResult]: ...
    def insert(
        self, data: RowInput, *, wait: bool = True, source: Source | None = None
    ) -> WriteResult | Future[WriteResult]:
        """Insert rows whose keys do not exist, and leave existing rows as they are.

        If two writers insert the same key at the same time, one of them succeeds: the result names the keys
        that were inserted and those that existed.

        Parameters
        ----------
        data, wait, source
            As for :meth:`upsert`.

        Raises
        ------
        SchemaError, KeyValueError
            If the data does not fit the table. Nothing is written.
        LeaseHeldError, FencedError, BackpressureError, StorageError
            As for :meth:`upsert`.
        """
        return self._decided([Insert(repeatable(data))], wait=wait, source=source)

    @overload
    def patch(
        self,
        data: RowInput,
        *,
        wait: Literal[True] = True,
        source: Source | None = None,
        condition: str | None = None,
        missing: Literal["skip", "insert"] = "skip",
    ) -> WriteResult: ...
    @overload
    def patch(
        self,
        data: RowInput,
        *,
        wait: Literal[False],
        source: Source | None = None,
        condition: str | None = None,
        missing: Literal["skip", "insert"] = "skip",
    ) -> Future[WriteResult]: ...
    @overload
    def patch(
        self,
        data: RowInput,
        *,
        wait: bool,
        source: Source | None = None,
        condition: str | None = None,
        missing: Literal["skip", "insert"] = "skip",
    ) -> WriteResult | Future[WriteResult]: ...
    def patch(
        self,
        data: RowInput,
        *,
        wait: bool = True,
        source: Source | None = None,
        condition: str | None = None,
        missing: Literal["skip", "insert"] = "skip",
    ) -> WriteResult | Future[WriteResult]:
        """Change the given columns, and keep the others.

        Parameters
        ----------
        data : table-like
            Keys, and the columns to set. In a list of dicts every row sets the columns it has.
        wait, source
            As for :meth:`upsert`. A patch without a source that is repeated after a lost connection may be
            applied twice, which makes a difference only if another writer wrote in between.
        condition : str, optional
            As for :meth:`upsert`.
        missing : {"skip", "insert"}, default "skip"
            What to do with keys that do not exist: ``"skip"`` them, or ``"insert"`` rows with null in the
            other columns, whatever the condition.

        Raises
        ------
        SchemaError, KeyValueError, InputError
            If the data does not fit the table, or sets no column. Nothing is written.
        FilterError
            As for :meth:`upsert`.
        LeaseHeldError, FencedError, BackpressureError, StorageError
            As for :meth:`upsert`.
        """
        return self._decided([Patch(repeatable(data), condition, missing)], wait=wait, source=source)

    @overload
    def delete(
        self,
        keys: RowInput = None,
        *,
        wait: Literal[True] = True,
        source: Source | None = None,
        condition: str | None = None,
        where: str | None = None,
        limit: int | None = None,
    ) -> WriteResult: ...
    @overload
    def delete(
        self,
        keys: RowInput = None,
        *,
        wait: Literal[False],
        source: Source | None = None,
        condition: str | None = None,
        where: str | None = None,
        limit: int | None = None,
    ) -> Future[WriteResult]: ...
    @overload
    def delete(
        self,
        keys: RowInput = None,
        *,
        wait: bool,
        source: Source | None = None,
        condition: str | None = None,
        where: str | None = None,
        limit: int | None = None,
    ) -> WriteResult | Future[WriteResult]: ...
    def delete(
        self,
        keys: RowInput = None,
        *,
        wait: bool = True,
        source: Source | None = None,
        condition: str | None = None,
        where: str | None = None,
        limit: int | None = None,
    ) -> WriteResult | Future[WriteResult]:
        """Delete rows by primary key, or all that match a filter.

        Parameters
        ----------
        keys : list, Array or table-like
            Keys alone (a list of values, or of tuples for a composite key) or rows that contain them. Keys
            that do not exist are not an error. If the table has ``sequence_by``, rows may contain that column
            too, which then orders the delete.
        wait, source
            As for :meth:`upsert`. A delete by filter always waits, and takes no source.
        condition : str, optional
            SQL over the existing row. Rows for which it does not hold stay; keys that do not exist count as
            skipped.
        where : str, optional
            A filter as for :meth:`weir.Table.scan`, instead of keys. Matching rows are found first, and
            checked again at the delete's position in the log, together with everything written meanwhile: in
            each shard exactly the rows that match at that moment are deleted. Very many rows are deleted in
            parts, each of which is checked on its own. In an append-only table everything is flushed and
            merged first, and one commit removes the rows from the base table; rows added meanwhile stay, and
            the change feed does not report the deletes.
        limit : int, optional
            Most rows to delete by filter. ``remaining`` of the result says how many are left.

        Raises
        ------
        SchemaError
            If a column outside the key cannot be null, so that a tombstone could not be stored, or if a value
            does not fit its key column.
        KeyValueError
            If a key is missing or null.
        FilterError
            If the condition or filter cannot be used. Nothing is deleted.
        LeaseHeldError, FencedError, BackpressureError, StorageError
            As for :meth:`upsert`.
        """
        self._begin_write()
        if where is not None:
            if keys is not None or condition is not None or source is not None or not wait:
                raise InputError(
                    "delete by filter takes no keys, no condition and no source, and always waits",
                    where="where",
                    hint="Put all conditions into the filter",
                )
            return self._change_by_filter(where, Kind.DELETE, None, limit)
        if limit is not None:
            raise InputError("limit is for delete(where=...)", where="limit")
        if condition is not None:
            return self._decided([Delete(repeatable(keys), condition)], wait=wait, source=source)
        given = repeatable(keys)

        def made(columns: TableColumns) -> list[pa.RecordBatch]:
            columns.refuse_append_only("a delete by key")
            check_deletable(columns.schema, columns.primary_key)
            also = columns.router.source_columns
            table = as_key_table(
                given,
                columns.schema,
                columns.primary_key,
                also=also,
                optional=columns.sequence_by,
                to_delete=True,
            )
            return tombstone_batches(table, columns.wal_schema)

        columns, batches = self._columns.fitting(made)
        return self._write_all(columns, batches, source, wait)

    def update(self, where: str, set: Mapping[str, str], *, limit: int | None = None) -> WriteResult:
        """Set columns of all rows that match a filter.

        Parameters
        ----------
        where : str
            A filter, as for :meth:`delete` and just as exact.
        set : mapping of str to str
            The SQL of each column's new value, over the existing row: ``{"n": "n + 1"}``.
        limit : int, optional
            Most rows to change. ``remaining`` of the result says how many are left.

        Raises
        ------
        FilterError
            If the filter or an expression cannot be used, or cannot be evaluated for some row: a division by
            zero, an overflow. If the expressions read only numbers, nothing is written unless they have a
            value for every row.
        InputError
            If a column does not exist, belongs to the primary key, or decides the shard.
        LeaseHeldError, FencedError, BackpressureError, StorageError
            As for :meth:`upsert`. With many rows, some may have been changed, and if the store failed, the
            outcome for the last ones is unknown: do not blindly repeat an expression such as ``n + 1``.
        """
        self._begin_write()
        return self._change_by_filter(where, Kind.UPDATE, dict(set), limit)

    def apply(
        self,
        changes: RowInput | Sequence[OperationInput],
        *,
        source: Source | None = None,
        all_or_nothing: bool = False,
    ) -> WriteResult:
        """Apply several operations at once. Those for one shard become durable and visible together.

        Parameters
        ----------
        changes : sequence of Upsert, Insert, Patch and Delete, or table-like
            Operations, applied in this order: each sees the effect of those before it. Or rows, as for
            :meth:`upsert`, with an optional column ``_op`` that says what each row does to its key:
            ``"upsert"`` (also if null), ``"delete"``, ``"patch"`` or ``"insert"``. A delete uses only the key
            and the columns that decide the shard; a patch sets all columns present, in a list of dicts those
            of its row. A record batch reader is read to its end first.
        source : Source, optional
            As for :meth:`upsert`.
        all_or_nothing : bool, default False
            For a sequence of operations: whether a shard writes nothing unless every key in it is written. A
            condition on one row can thus decide for all.

        Returns
        -------
        WriteResult
            As for :meth:`upsert`; of a sequence of operations it names what was done and what was not.

        Raises
        ------
        InputError
            If an operation is unknown; and as for :meth:`upsert` and :meth:`delete`. Nothing is written.
        LeaseHeldError, FencedError, BackpressureError, StorageError
            As for :meth:`upsert`.
        """
        self._begin_write()
        if isinstance(changes, Sequence) and changes and isinstance(changes[0], OperationInput):
            return self._decided(list(changes), wait=True, source=source, all_or_nothing=all_or_nothing)
        if all_or_nothing:
            raise InputError(
                "all_or_nothing is for a list of weir.Upsert, Insert, Patch and Delete",
                where="all_or_nothing",
                hint="Rows without conditions are written together anyway, in each shard",
            )
        given = repeatable(changes)
        current = self._columns.current()
        asked = asked_operations(given, current.schema, current.primary_key)
        if asked is not None:
            return self._decided(asked, wait=True, source=source)
        columns, table = self._changes(given)
        batches = table.to_batches()
        return self._writes.write(columns, self._whole(columns, table), source, known=_known(batches, source))

    def apply_each(
        self, changes: pa.Table, sources: Sequence[tuple[int, Source]]
    ) -> Sequence[WriteResult | WeirError]:
        """Apply several repeatable writes in order; those to one shard share a log entry.

        Each is applied or skipped by its own mark, as by :meth:`apply`.

        Parameters
        ----------
        changes : Table
            The rows of all writes, as for :meth:`apply`; only upserts and deletes, which do not depend on
            existing rows.
        sources : sequence of (int, Source)
            For each write in turn, its number of rows and its mark.

        Returns
        -------
        sequence of WriteResult or WeirError
            What became of each.

        Raises
        ------
        InputError, SchemaError, KeyValueError
            If rows do not fit the table. Nothing is written.
        """
        self._begin_write()
        current = self._columns.current()
        if asked_operations(changes, current.schema, current.primary_key) is not None:
            raise InputError("apply_each takes rows that upsert or delete", hint="Make each write separately")
        if sum(count for count, _ in sources) != changes.num_rows:
            raise InputError("every row must belong to one of the writes", where="sources")
        columns, table = self._changes(changes)
        at_once = self._made_together(columns, table, sources)
        if at_once is not None:
            return at_once
        writes, begin = [], 0
        for count, source in sources:
            rows = table.slice(begin, count)
            begin += count
            writes.append((self._whole(columns, rows), source, _known(rows.to_batches(), source)))
        return self._writes.write_each(columns, writes)

    def _made_together(
        self, columns: TableColumns, rows: pa.Table, sources: Sequence[tuple[int, Source]]
    ) -> Sequence[WriteResult | WeirError] | None:
        """Make single writes as one if there is a single shard; None if they have to be made one by one."""
        is_one = (
            1 < len(sources) == len({source.name for _, source in sources})
            and rows.nbytes <= _MOST_BYTES_TOGETHER
            and not columns.router.source_columns
            and all(count and source.is_single for count, source in sources)
        )
        if not is_one:
            return None
        try:
            return self._writes.write_together(columns, self._whole(columns, rows)[0], sources)
        except WeirError as error:
            return [error.again() for _ in sources]

    def _changes(self, given: RowInput) -> tuple[TableColumns, pa.Table]:
        """Return checked rows that upsert or delete, as those of log entries, and the columns they have."""

        def made(columns: TableColumns) -> pa.Table:
            also = {*columns.router.source_columns, *columns.sequence_by}
            return change_table(given, columns.schema, columns.wal_schema, columns.primary_key, also=also)

        return self._columns.fitting(made)

    def apply_routed(
        self,
        changes: Sequence[tuple[ShardValues, pa.Table]],
        *,
        source: Source | None = None,
        spec_id: int | None = None,
    ) -> WriteResult:
        """Write rows that were already checked and routed, one log entry for each shard.

        Parameters
        ----------
        changes : sequence of (ShardValues, Table)
            Every shard once, with its rows in the schema of WAL entries, whose fields carry the ids of the
            table's columns, which may have changed since.
        source : Source, optional
            As for :meth:`upsert`.
        spec_id : int, optional
            The shard spec that they were routed by. Default: that of the writer.

        Raises
        ------
        SchemaError
            If rows have values of a column that was dropped meanwhile. Nothing was written.
        """
        self._begin_write()

        def made(columns: TableColumns) -> list[tuple[ShardValues, pa.Table]]:
            return [(values, resolved(rows, columns)) for values, rows in changes]

        columns, rows = self._columns.fitting(made)
        return self._writes.write(columns, [one_batch(item) for item in rows], source, spec_id)

    def claim(self, shards: Collection[ShardValues] | None = None) -> None:
        """Claim shards now instead of with their first rows, and share them with no other writer.

        For a caller that reads before it decides what to write: from then on no other writer, in this process
        or another, writes to the shards, so that what the caller reads stays true until its own write, or
        that write fails.

        Parameters
        ----------
        shards : collection of ShardValues, optional
            As :attr:`weir.table.table.Table.router` returns them. Default: the only one of an unsharded
            table.

        Raises
        ------
        WriterError
            If none are given and the table has several.
        LeaseHeldError
            If another writer holds the lease of one, or another writer of this process writes to it.
        """
        self._shards.refuse_if_closed()
        self._shards.claim_alone([self._only_shard()] if shards is None else shards)

    def _only_shard(self) -> ShardValues:
        router = self._columns.current().router
        if router.source_columns:
            raise WriterError("only in an unsharded table is the shard known before there are rows for it")
        [(values, _)] = router.route(pa.Table.from_arrays([pa.nulls(1)], ["unsharded"]))
        return values

    def single_write(self, shard: ShardValues | None, name: str, *, confirm: bool = False) -> int | None:
        """Return the number of a single write that was made; None if the shard has no record of one.

        Parameters
        ----------
        shard : ShardValues or None
            A shard, which is claimed if necessary; None for the only one of an unsharded table.
        name : str
            The name of its source; it begins with ``once:``.
        confirm : bool
            Whether to first find out what others wrote to the shard while the writer was paused, and whether
            a failed write took effect. Default False, which costs no request.

        Raises
        ------
        FencedError
            If another writer has the shard.
        """
        (writer,) = self._shards.of([self._only_shard() if shard is None else shard])
        if confirm:
            writer.confirm()
        done = writer.sources.window.get(name)
        return None if done is None else done.number

    def flush(self) -> None:
        """Flush every shard's MemTable to a generation, and wait for it.

        Raises
        ------
        WriterClosedError
            If the writer is closed, or another thread is closing it without a flush.
        FencedError
            If another writer has claimed a shard.
        StorageError
            If the store failed; the rows stay durable in the WAL.
        """
        parts = self._writes.parts
        parts.shards.refuse_if_closed()
        try:
            parts.shards.for_each(ShardWriter.flush)
        except FENCED as error:
            # The resharding has flushed them.
            self._writes.follow(parts, error).shards.for_each(ShardWriter.flush)

    def pause(self, *, brief: bool = False) -> None:
        """Release the shards to other writers until something is written here again.

        For a writer that writes occasionally and should not lock others out meanwhile. The state of each
        shard is kept: its next write takes the lease back with one round trip, where a new writer would need
        about twenty to claim the shard. If another writer held a shard meanwhile, a write to it fails with
        :class:`~weir.errors.FencedError`; a new writer then finds what the other one left.

        Waits for queued writes and running flushes. A shard that another writer of this process also writes
        to stays claimed.

        Parameters
        ----------
        brief : bool, default False
            Whether the next writes may do without the leases: they only look whether they were taken
            meanwhile. So another writer may claim a shard while one of them is under way, which then fails
            with :class:`~weir.errors.FencedError`, and has to be repeatable. What is flushed or staged
            still takes the leases back.

        Raises
        ------
        WriterClosedError
            If the writer is closed.
        """
        self._shards.refuse_if_closed()
        self._shards.pause(brief=brief)

    def close(self) -> None:
        """Write what is queued, flush unless the options say otherwise, and release the shards. Idempotent.

        In a forked process it does nothing: the writer belongs to the parent.

        Raises
        ------
        WeirError
            The first failure, after every shard has been closed.
        """
        parts = self._writes.parts
        try:
            parts.shards.close()
        except FENCED as error:
            # Acknowledged rows were flushed by the resharding.
            self._writes.parts_after(parts, error).shards.close()

    @property
    def epochs(self) -> dict[UUID, int]:
        """The writer epoch of every shard this writer has claimed."""
        return {writer.shard_id: writer.epoch for writer in self._shards.writers}

    def __enter__(self) -> TableWriter:
        """Return the writer itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the writer; after an error, release the shards without flushing."""
        if error is None:
            self.close()
            return
        # What failed is the news; that closing fails after it, fenced for example, is not.
        self._shards.abandon()

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled."""
        raise WriterError(
            "a writer cannot be pickled: it owns its shards in this process",
            hint="Open the table in the other process and make a writer there",
        )

    def publish_routed(
        self,
        staged: Sequence[tuple[ShardValues, Sequence[StagedGeneration]]],
        *,
        source: Source | None = None,
        spec_id: int | None = None,
    ) -> WriteResult:
        """Publish staged generations, those of each shard in one step.

        If the table was resharded since, their rows go through the log.

        Parameters
        ----------
        staged : sequence of (ShardValues, sequence of StagedGeneration)
            Every shard once, with its staged generations from oldest to newest.
        source : Source, optional
            As for :meth:`upsert`.
        spec_id : int, optional
            The shard spec that they were routed by. Default: that of the writer.

        Raises
        ------
        StorageError
            If a generation was staged too long ago, or if the store failed.
        LeaseHeldError, FencedError, BackpressureError
            As for :meth:`upsert`.
        """
        parts = self._writes.parts
        self._begin_write()
        if not staged:
            return WriteResult(0, {})
        if spec_id not in (None, parts.spec_id):
            return self._logged(staged, source)
        try:
            shards = parts.shards.of([values for values, _ in staged])
            if source is None or not parts.former.cover(source):
                return self._published(parts, shards, staged, source)
            return self._logged(staged, source)
        except FENCED as error:
            self._writes.follow(parts, error)
            return self._logged(staged, source)

    def _logged(
        self, staged: Sequence[tuple[ShardValues, Sequence[StagedGeneration]]], source: Source | None
    ) -> WriteResult:
        """Write the rows that were staged for shards of a former rule as rows of the log."""
        columns = self._columns.newest()
        store = columns.base.store
        batches = [
            batch
            for _, generations in staged
            for one in generations
            for batch in staged_rows(store, one.shard_id, one.flushed.path, columns.row_schema)
        ]
        if source is None:
            return self._write(columns, batches)
        rows = pa.Table.from_batches(batches, columns.row_schema)
        return self._writes.write(columns, self._whole(columns, rows), source)

    def _published(
        self,
        parts: WriterParts,
        shards: Sequence[ShardWriter],
        staged: Sequence[tuple[ShardValues, Sequence[StagedGeneration]]],
        source: Source | None,
    ) -> WriteResult:
        work = [
            (shard, parts.shards.start(shard.publish, generations, source))
            for shard, (_, generations) in zip(shards, staged, strict=True)
        ]
        errors = [error for _, future in work if (error := future.exception()) is not None]
        if errors:
            raise errors[0]
        rows, positions, deduplicated = 0, {}, []
        for (shard, future), (_, generations) in zip(work, staged, strict=True):
            position = future.result()
            if position is None:
                deduplicated.append(shard.shard_id)
            else:
                positions[shard.shard_id] = position
                rows += sum(one.flushed.physical_rows for one in generations)
        return WriteResult(rows, positions, tuple(deduplicated))

    def _write_all(
        self, columns: TableColumns, batches: list[pa.RecordBatch], source: Source | None, wait: bool
    ) -> WriteResult | Future[WriteResult]:
        """Write rows; with a mark, those of a shard go into one log entry, since they are taken together."""
        if source is None or len(batches) == 1:
            routed = self._routed(columns, batches)
        else:
            routed = self._whole(columns, pa.Table.from_batches(batches, columns.wal_schema))
        write = self._writes.write if wait else self._writes.write_later
        return write(columns, routed, source, known=_known(batches, source))

    def _whole(self, columns: TableColumns, rows: pa.Table) -> list[_RoutedBatch]:
        """Split rows by shard, one batch per shard: a batch becomes one log entry."""
        return [one_batch(item) for item in columns.router.route(rows)]

    def _routed(self, columns: TableColumns, batches: list[pa.RecordBatch]) -> list[_RoutedBatch]:
        only = columns.router.only
        if only is not None:
            return [(only, batch) for batch in batches]
        return [item for batch in batches for item in columns.router.route(batch)]

    def _write(self, columns: TableColumns, batches: list[pa.RecordBatch]) -> WriteResult:
        return self._writes.write(columns, self._routed(columns, batches))

    @overload
    def _decided(
        self,
        operations: Sequence[OperationInput],
        *,
        wait: Literal[True],
        source: Source | None,
        all_or_nothing: bool = False,
    ) -> WriteResult: ...
    @overload
    def _decided(
        self,
        operations: Sequence[OperationInput],
        *,
        wait: bool,
        source: Source | None,
        all_or_nothing: bool = False,
    ) -> WriteResult | Future[WriteResult]: ...
    def _decided(
        self,
        operations: Sequence[OperationInput],
        *,
        wait: bool,
        source: Source | None,
        all_or_nothing: bool = False,
    ) -> WriteResult | Future[WriteResult]:
        """Queue what depends on the rows there are, and is decided when it is written."""
        self._begin_write()
        columns = self._columns.newest()
        made = made_operations(operations, columns)
        undecided = [
            (values, Undecided(tuple(own), columns.row_schema, all_or_nothing))
            for values, own in routed_operations(made, columns).items()
        ]
        write = self._writes.write if wait else self._writes.write_later
        known = _known([one.rows for one in made], source, columns.primary_key)
        return write(columns, undecided, source, known=known)

    def _change_by_filter(
        self, where: str, kind: Kind, set_to: dict[str, str] | None, limit: int | None
    ) -> WriteResult:
        """Find the matching rows, and have each shard decide on them again, in parts."""
        if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 0):
            raise InputError(f"limit is a whole number of rows, got {limit!r}", where="limit")
        if kind is Kind.DELETE and self._columns.current().base.append_only is not None:
            self._shards.refuse_if_closed()
            deleted, remaining = self._delete_appended(where, limit, self._shards.flush_of_process())
            return WriteResult(deleted, {}, remaining=remaining)

        columns = self._columns.newest()
        change = ChangeByFilter.of(where, kind, set_to, columns)
        places, found = self._found(where, columns, change.numbers)
        remaining = 0
        if limit is not None and found.num_rows > limit:
            remaining = found.num_rows - limit
            found = found.slice(0, limit)
        found = change.checked(found, columns)
        result = WriteResult(0, {}, (), *change.nothing(columns), remaining)
        for part in change.parts(found, columns, places, is_whole=limit is None):
            written = self._writes.write(columns, list(part.items()))
            result = replace(joined(result, written), remaining=remaining)
        return result

    def _found(
        self, where: str, columns: TableColumns, more: Collection[str]
    ) -> tuple[dict[ShardValues, LogPlaceBefore], pa.Table]:
        """Return the keys that match, and how far each of their shards was before they were looked for.

        With the keys go the columns that decide their shards, and some more.
        """
        also = {*columns.router.source_columns, *more}
        names = [name for name in columns.schema.names if name in columns.primary_key or name in also]
        places: dict[ShardValues, LogPlaceBefore] = {}
        while True:
            found = self._find_rows(names, where)
            values = columns.router.partition(found).values
            if all(one in places for one in values):
                return places, found
            # Other writers write to a shard only before it is claimed here, and the check comes after the
            # claim.
            for one in values:
                self._shards.of([one])
            places = {one: shard.place for one, shard in self._shards.by_values.items()}


def _known(
    batches: Sequence[pa.RecordBatch], source: Source | None, key_columns: tuple[str, ...] = ()
) -> Known | None:
    """Return the lookup for what shards of a former rule did for a single write."""
    if source is None or not batches:
        return None
    return lambda former: former.answer(batches, source, key_columns)


def upsert_piece(writer: TableWriter, piece: RowInput, first_row: int) -> WriteResult:
    """Upsert a piece of a stream, whose rows errors count from ``first_row``."""
    writer._begin_write()
    return writer._write(*writer._upserts(piece, first_row))
