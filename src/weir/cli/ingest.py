"""Ingesting files of rows into a table, batch by batch."""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from uuid import UUID

from weir.cli.bad_row_policy import BadRowPolicy
from weir.cli.bad_rows import BadRows
from weir.cli.input.checked import Operations, RowChecker
from weir.cli.input.files import RowFile, open_rows
from weir.cli.input.formats import FileFormat
from weir.cli.input.rows import BadRow, FileRows, ReadRequest
from weir.errors import InputError, LeaseHeldError, OptionError
from weir.rows import check_deletable
from weir.table.table import Table
from weir.write.table_writer import TableWriter
from weir.write.write_result import WriteResult

__all__ = ["IngestOptions", "IngestReport", "ingest"]

_BATCHES_IN_FLIGHT = 4
# Apart, so that two who wait for each other do not come back together.
_PAUSE_SECONDS = (0.05, 0.5)

OnProgress = Callable[[int, float], None]
"""Called with the rows that have been read and the fraction of all files that has, from 0 to 1."""


OnWait = Callable[[LeaseHeldError], None]
"""Called with who holds a shard, when the waiting for it begins."""


@dataclass(frozen=True, slots=True)
class IngestOptions:
    """How files are read and what happens to their rows.

    Parameters
    ----------
    file_format : FileFormat, optional
        Format of all files. Default: told for each one.
    op_column : str, optional
        Column that says what to do with each row, ``upsert`` or ``delete``.
    delete : bool
        Whether all rows are keys to delete; other columns are then ignored.
    batch_rows : int
        Rows that become durable together.
    delimiter : str
        Separator of CSV values.
    null_values : tuple of str
        Texts that mean null in CSV, besides an empty value.
    dry_run : bool
        Whether only to check the files, and write nothing.
    on_bad_row : BadRowPolicy
        What becomes of a row that does not fit the table.
    quarantine : Path, optional
        The file to which such rows go.
    lease_wait : timedelta
        How long to wait for a shard that another writer holds.
    takeover : bool
        Whether to claim such a shard at once, which fences the other writer.
    immutable : bool
        The promise that no row changes the columns the table is sharded by.
    """

    file_format: FileFormat | None = None
    op_column: str | None = None
    delete: bool = False
    batch_rows: int = 10_000
    delimiter: str = ","
    null_values: tuple[str, ...] = ()
    dry_run: bool = False
    on_bad_row: BadRowPolicy = BadRowPolicy.FAIL
    quarantine: Path | None = None
    lease_wait: timedelta = timedelta(0)
    takeover: bool = False
    immutable: bool = False

    def __post_init__(self) -> None:
        if self.batch_rows < 1:
            raise OptionError(f"batch-rows must be at least 1, got {self.batch_rows}", where="batch-rows")
        if len(self.delimiter) != 1 or self.delimiter in '"\r\n':
            raise OptionError(
                f"the delimiter must be one character, got {self.delimiter!r}", where="delimiter"
            )
        if self.delete and self.op_column is not None:
            raise OptionError(
                "either every row is deleted or a column says what to do with each",
                where="delete, op-column",
                hint="Leave out one of --delete and --op-column",
            )
        if (self.on_bad_row is BadRowPolicy.QUARANTINE) != (self.quarantine is not None):
            raise OptionError(
                "bad rows are put into quarantine with the file to which they go, and only then",
                where="on-bad-row, quarantine",
                hint="For example --on-bad-row quarantine --quarantine bad.jsonl",
            )
        if self.takeover and self.lease_wait:
            raise OptionError(
                "a shard that another writer holds is waited for, or taken from it",
                where="wait, takeover",
                hint="Leave out one of --wait and --takeover",
            )


@dataclass(frozen=True, slots=True)
class IngestReport:
    """What was ingested.

    Parameters
    ----------
    files : int
        Files that were read.
    rows : int
        Rows that were read; rows of a batch with the same key are written once if some are deletes.
    upserted, deleted : int
        Rows and tombstones that are durable.
    shards : int
        Shards they went to.
    seconds : float
        How long it took.
    dry_run : bool
        Whether the rows were only checked.
    bad_rows : int
        Rows that were left out because they do not fit the table. They are among ``rows``.
    first_bad : tuple of BadRow
        The first ten of them.
    quarantine : str, optional
        The file they were written to.
    """

    files: int
    rows: int
    upserted: int
    deleted: int
    shards: int
    seconds: float
    dry_run: bool
    bad_rows: int = 0
    first_bad: tuple[BadRow, ...] = ()
    quarantine: str | None = None

    @property
    def rows_per_second(self) -> float:
        """Rows read in each second."""
        return self.rows / self.seconds if self.seconds > 0 else 0.0


def ingest(
    table: Table,
    files: Sequence[RowFile],
    options: IngestOptions,
    *,
    on_progress: OnProgress = lambda rows, fraction: None,
    on_wait: OnWait = lambda error: None,
) -> IngestReport:
    """Write the rows of some files into a table.

    The columns of every file are checked before anything is written. Rows are checked batch by batch: if one
    is bad, nothing of its batch is written, and the error says how many rows before it are durable. Ingesting
    the same files again is safe. If the options say so, bad rows are skipped, including lines that cannot be
    parsed as rows.

    Parameters
    ----------
    table : Table
        Where the rows go.
    files : sequence of RowFile
        The files, in the order in which their rows are written.
    options : IngestOptions
        How.
    on_progress : callable, optional
        Told how far it has got.
    on_wait : callable, optional
        Told when it begins to wait for a shard that another writer holds.

    Raises
    ------
    InputError
        If a file is missing or broken, or its columns or rows do not fit the table.
    WriterError, StorageError
        If the rows cannot be written.
    """
    started = time.monotonic()
    if options.op_column is not None and options.op_column in table.schema.names:
        raise OptionError(
            f"column {options.op_column!r} is a column of the table, so it cannot say what to do with a row",
            where="op-column",
        )
    if options.delete or options.op_column is not None:
        check_deletable(table.schema, table.primary_key)
    checker = RowChecker(table.schema, table.primary_key, options.op_column, options.delete)
    request = ReadRequest(
        checker.read_schema,
        ignore_others=options.delete,
        batch_rows=options.batch_rows,
        delimiter=options.delimiter,
        null_values=("", *options.null_values),
    )
    bad_rows = BadRows(options.on_bad_row, None if options.dry_run else options.quarantine)
    for file in files:
        if file.can_be_read_twice:
            with open_rows(file, options.file_format, request) as rows:
                checker.check_columns(rows.schema, file.name)
    with bad_rows:
        reader = _Reader(files, options, request, checker, bad_rows, on_progress, on_wait)
        report = reader.check_only() if options.dry_run else reader.write_to(table)
    return replace(
        report,
        seconds=time.monotonic() - started,
        bad_rows=bad_rows.count,
        first_bad=tuple(bad_rows.first),
        quarantine=bad_rows.written_to,
    )


class _Reader:
    def __init__(
        self,
        files: Sequence[RowFile],
        options: IngestOptions,
        request: ReadRequest,
        checker: RowChecker,
        bad_rows: BadRows,
        on_progress: OnProgress,
        on_wait: OnWait,
    ) -> None:
        self._files = files
        self._options = options
        self._request = replace(request, on_bad_row=bad_rows.leave_out)
        self._checker = checker
        self._bad_rows = bad_rows
        self._on_progress = on_progress
        self._on_wait = on_wait
        self._good_rows = 0

    @property
    def _rows(self) -> int:
        return self._good_rows + self._bad_rows.count

    def check_only(self) -> IngestReport:
        self._each_batch(lambda operations: None)
        return IngestReport(len(self._files), self._rows, 0, 0, 0, 0.0, dry_run=True)

    def write_to(self, table: Table) -> IngestReport:
        refused: InputError | None = None
        options = self._options
        promised = {name: True for name in ("takeover", "immutable") if getattr(options, name)}
        with _Pending(lambda: table.writer(**promised), options.lease_wait, self._on_wait) as pending:
            try:
                self._each_batch(pending.write)
            except InputError as error:
                # The writer is intact: what it has accepted becomes durable and is flushed as usual.
                refused = error
            pending.settle()
        if refused is not None:
            raise _after(refused, self._rows)
        return IngestReport(
            len(self._files),
            self._rows,
            pending.upserted,
            pending.deleted,
            len(pending.shards),
            0.0,
            dry_run=False,
        )

    def _each_batch(self, use: Callable[[Operations], None]) -> None:
        sizes = [file.size for file in self._files]
        for number, file in enumerate(self._files):
            with open_rows(file, self._options.file_format, self._request) as stream:
                self._checker.check_columns(stream.schema, file.name)
                for rows in stream.batches:
                    bad_before = self._bad_rows.count
                    use(self._checked(rows, file.name))
                    self._good_rows += rows.rows.num_rows - (self._bad_rows.count - bad_before)
                    done = sum(sizes[:number]) + sizes[number] * rows.fraction
                    self._on_progress(self._rows, done / sum(sizes) if sum(sizes) else 0.0)

    def _checked(self, rows: FileRows, file: str) -> Operations:
        on_bad_row = self._request.on_bad_row
        if on_bad_row is None:
            return self._checker.check(rows, file)
        return self._checker.check_apart(rows, file, on_bad_row)


def _after(error: InputError, rows: int) -> InputError:
    """Add to an error how much was written before it."""
    if not rows:
        return error
    done = f"The {rows:,} rows before it are in the table; it is safe to ingest them again"
    return type(error)(error.message, where=error.where, hint=f"{error.hint}. {done}" if error.hint else done)


class _Pending:
    """Pending writes: there are several, so that reading continues while the disk is busy."""

    def __init__(
        self, open_writer: Callable[[], TableWriter], lease_wait: timedelta, on_wait: OnWait
    ) -> None:
        self._open_writer = open_writer
        self._lease_wait = lease_wait
        self._on_wait = on_wait
        self._held = ExitStack()
        self._writer = self._held.enter_context(open_writer())
        self._futures: deque[tuple[Future[WriteResult], bool]] = deque()
        self.upserted = 0
        self.deleted = 0
        self.shards: set[UUID] = set()

    def __enter__(self) -> _Pending:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._held.__exit__(kind, error, trace)

    def write(self, operations: Operations) -> None:
        if operations.upserts.num_rows:
            self._add(lambda: self._writer.upsert(operations.upserts, wait=False), is_delete=False)
        if operations.deletes.num_rows:
            self._add(lambda: self._writer.delete(operations.deletes, wait=False), is_delete=True)
        while len(self._futures) > _BATCHES_IN_FLIGHT:
            self._settle_one()

    def settle(self) -> None:
        while self._futures:
            self._settle_one()

    def _add(self, write: Callable[[], Future[WriteResult]], *, is_delete: bool) -> None:
        give_up = time.monotonic() + self._lease_wait.total_seconds()
        waits = False
        while True:
            try:
                # All shards are claimed before anything is written to one: it may be tried again.
                self._futures.append((write(), is_delete))
            except LeaseHeldError as error:
                left = give_up - time.monotonic()
                if left <= 0:
                    raise
                if not waits:
                    waits = True
                    self._on_wait(error)
                self.settle()
                # Who has what we want may want what we have.
                self._held.close()
                time.sleep(min(left, random.uniform(*_PAUSE_SECONDS)))
                self._writer = self._held.enter_context(self._open_writer())
            else:
                return

    def _settle_one(self) -> None:
        future, is_delete = self._futures.popleft()
        result = future.result()
        self.shards.update(result.positions)
        if is_delete:
            self.deleted += result.rows
        else:
            self.upserted += result.rows
