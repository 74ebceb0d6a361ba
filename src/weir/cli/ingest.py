"""Bringing files of rows into a table, batch by batch."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from uuid import UUID

from weir.cli.input.checked import Operations, RowChecker
from weir.cli.input.files import RowFile, open_rows
from weir.cli.input.formats import FileFormat
from weir.cli.input.rows import ReadRequest
from weir.errors import InputError, OptionError
from weir.rows import check_deletable
from weir.table.table import Table
from weir.write.table_writer import TableWriter
from weir.write.write_result import WriteResult

__all__ = ["IngestOptions", "IngestReport", "ingest"]

_BATCHES_IN_FLIGHT = 4

OnProgress = Callable[[int, float], None]
"""Called with the rows that have been read and the fraction of all files that has, from 0 to 1."""


@dataclass(frozen=True, slots=True)
class IngestOptions:
    """How files are read and what is done with their rows.

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
        Between the values of CSV.
    null_values : tuple of str
        What stands for null in CSV, besides an empty value.
    dry_run : bool
        Whether only to check the files, and write nothing.
    """

    file_format: FileFormat | None = None
    op_column: str | None = None
    delete: bool = False
    batch_rows: int = 10_000
    delimiter: str = ","
    null_values: tuple[str, ...] = ()
    dry_run: bool = False

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
    """

    files: int
    rows: int
    upserted: int
    deleted: int
    shards: int
    seconds: float
    dry_run: bool

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
) -> IngestReport:
    """Write the rows of some files into a table.

    The columns of every file are checked before anything is written. Rows are checked batch by batch:
    if one is bad, nothing of its batch is written, and the error says how many rows before it are
    durable. Ingesting the same files again is safe.

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
            f"column {options.op_column!r} is a column of the table and cannot say what to do with a row",
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
    for file in files:
        if file.can_be_read_twice:
            with open_rows(file, options.file_format, request) as rows:
                checker.check_columns(rows.schema, file.name)
    reader = _Reader(files, options, request, checker, on_progress)
    report = reader.check_only() if options.dry_run else reader.write_to(table)
    return replace(report, seconds=time.monotonic() - started)


class _Reader:
    def __init__(
        self,
        files: Sequence[RowFile],
        options: IngestOptions,
        request: ReadRequest,
        checker: RowChecker,
        on_progress: OnProgress,
    ) -> None:
        self._files = files
        self._options = options
        self._request = request
        self._checker = checker
        self._on_progress = on_progress
        self._rows = 0

    def check_only(self) -> IngestReport:
        self._each_batch(lambda operations: None)
        return IngestReport(len(self._files), self._rows, 0, 0, 0, 0.0, dry_run=True)

    def write_to(self, table: Table) -> IngestReport:
        refused: InputError | None = None
        with table.writer() as writer:
            pending = _Pending(writer)
            try:
                self._each_batch(pending.write)
            except InputError as error:
                # The writer is well: what it has accepted becomes durable and is flushed as ever.
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
                    use(self._checker.check(rows, file.name))
                    self._rows += rows.rows.num_rows
                    done = sum(sizes[:number]) + sizes[number] * rows.fraction
                    self._on_progress(self._rows, done / sum(sizes) if sum(sizes) else 0.0)


def _after(error: InputError, rows: int) -> InputError:
    """Add to an error how much was written before it."""
    if not rows:
        return error
    done = f"The {rows:,} rows before it are in the table; it is safe to ingest them again"
    return type(error)(error.message, where=error.where, hint=f"{error.hint}. {done}" if error.hint else done)


class _Pending:
    """Writes that are on their way: some are, so that reading goes on while the disk is busy."""

    def __init__(self, writer: TableWriter) -> None:
        self._writer = writer
        self._futures: deque[tuple[Future[WriteResult], bool]] = deque()
        self.upserted = 0
        self.deleted = 0
        self.shards: set[UUID] = set()

    def write(self, operations: Operations) -> None:
        if operations.upserts.num_rows:
            self._add(self._writer.upsert(operations.upserts, wait=False), is_delete=False)
        if operations.deletes.num_rows:
            self._add(self._writer.delete(operations.deletes, wait=False), is_delete=True)
        while len(self._futures) > _BATCHES_IN_FLIGHT:
            self._settle_one()

    def settle(self) -> None:
        while self._futures:
            self._settle_one()

    def _add(self, future: WriteResult | Future[WriteResult], *, is_delete: bool) -> None:
        assert isinstance(future, Future)
        self._futures.append((future, is_delete))

    def _settle_one(self) -> None:
        future, is_delete = self._futures.popleft()
        receipt = future.result()
        self.shards.update(receipt.positions)
        if is_delete:
            self.deleted += receipt.rows
        else:
            self.upserted += receipt.rows
