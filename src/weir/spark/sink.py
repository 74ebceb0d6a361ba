"""The commit of a write on the driver: the rows of all tasks, one step per shard.

A shard takes all rows that a commit has for it together with the mark of the commit, or nothing. If the
outcome of a commit is unknown, it is made again, and shards that have it skip it (:mod:`weir.format.source`).
So exactly-once needs only the mark, and no state on the driver.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql.types import StructType

from weir.engine import failpoint
from weir.engine.logs import get_logger
from weir.errors import (
    LeaseHeldError,
    OptionError,
    SchemaError,
    WeirError,
    WriterError,
)
from weir.format.field_births import births_of, same_birth
from weir.format.field_ids import field_id
from weir.format.source import Source
from weir.rows.changes import OPERATION
from weir.sharding.shard_values import ShardValues
from weir.spark.batch_order import batch_of_stream
from weir.spark.kept_writers import KeptWriters
from weir.spark.lease_retry import in_turn
from weir.spark.staging import InlineRows, TaskResult, TaskRows, pieces_by_shard
from weir.spark.types import arrow_schema
from weir.spark.write_options import WriteOptions
from weir.table.table import Table
from weir.write.flush.staged_generations import StagedGeneration, discard_staged
from weir.write.table_writer import TableWriter
from weir.write.write_result import WriteResult

__all__ = [
    "abort",
    "commit",
    "commit_batch_of_stream",
    "parted",
    "prepare",
]

_log = get_logger(__name__)

_MAX_LOG_BYTES = 32 * 1024 * 1024
"""Most bytes of rows for a shard that go into a log entry, which readers hold in memory until the flush."""


def prepare(table: Table, options: WriteOptions, schema: StructType, overwrite: bool) -> TaskRows:
    """Check on the driver what can be checked before any task runs; return the row reader for tasks.

    Raises
    ------
    OptionError
        If overwriting is requested, or the table cannot be written in that mode.
    SchemaError, KeyValueError
        If rows of ``schema`` do not fit the table, or one of their columns cannot be added to it.
    """
    if overwrite:
        raise OptionError(
            "a Weir table is not overwritten: a write upserts rows by their primary key",
            where=table.uri,
            hint='Write with mode("append"), or outputMode "append" or "update"; delete rows with a column '
            "_op, and for a table of other rows create a new one",
        )
    options.check_mode(table)
    given = arrow_schema(schema)
    if options.merge_schema:
        # What is there already has to fit before anything is added.
        known = table.internals.follow().names
        rows = _rows_of(table, options)
        rows.check_schema(pa.schema([one for one in given if one.name in (*known, OPERATION)]))
        _add_columns(table, given)
    rows = _rows_of(table, options)
    rows.check_schema(given)
    return rows


def _rows_of(table: Table, options: WriteOptions) -> TaskRows:
    return TaskRows.of(
        options.location,
        table,
        fsync=options.fsync,
        looks_as=options.looks_as,
        is_merged_at_once=options.is_merged_at_once,
    )


def _add_columns(table: Table, given: pa.Schema) -> None:
    """Add the columns that a table lacks, in one step."""
    while True:
        known = table.internals.follow().names
        missing = [field.with_nullable(True) for field in given if field.name not in (*known, OPERATION)]
        if not missing:
            return
        for field in missing:
            if pa.types.is_null(field.type):
                raise SchemaError(
                    f"the table has no column {field.name!r}, and nothing says of which type it is",
                    where=field.name,
                    hint="Cast it, as in CAST(NULL AS STRING), or leave it out",
                )
        try:
            table.alter(add=missing)
        except SchemaError:
            # Another batch may have added one of them first; whether it is as ours then the check tells.
            if not {field.name for field in missing} & set(table.internals.follow().names):
                raise


def commit(
    table: Table,
    results: Sequence[TaskResult],
    source: Source | None,
    options: WriteOptions,
    *,
    holder: str | None,
    flush: bool,
    kept: KeptWriters | None = None,
) -> None:
    """Write the results of the tasks.

    Parameters
    ----------
    table : Table
        The table.
    results : sequence of TaskResult
        The results, in the order of the partitions.
    source : Source, optional
        The mark of the commit.
    options : WriteOptions
        The options of the write.
    holder : str, optional
        Name of the lease holder.
    flush : bool
        Whether to flush if the options do not say.
    kept : KeptWriters, optional
        Where to look for a writer of the holder, and to keep it for its next commit. Default: a writer is
        opened for this commit and closed after it.

    Raises
    ------
    LeaseHeldError, FencedError
        If another writer held the shards for longer than the options say to wait.
    """
    # Tasks of one write share the router that they were planned with.
    planned = (one.spec_id for one in results if one.spec_id is not None)
    spec_id = next(planned, table.internals.sharding.spec.spec_id)
    changes, staged = parted(table, results, spec_id)
    asked = [one.asked.rows for one in results if one.asked is not None]
    failpoint.reach("sink.before_commit")

    applied = False

    def write(writer: TableWriter) -> tuple[WriteResult, WriteResult]:
        nonlocal applied
        if asked:
            _refuse_altered(table, asked[0].schema)
            first = writer.apply(pa.concat_tables(asked), source=source)
        else:
            first = writer.apply_routed(changes, source=source, spec_id=spec_id)
        applied = bool(changes or asked)
        written = first, writer.publish_routed(staged, source=source, spec_id=spec_id)
        failpoint.reach("sink.before_close")
        return written

    def attempt() -> tuple[WriteResult, WriteResult]:
        if kept is None or holder is None or source is None:
            with table.writer(**options.of_writer(holder=holder, flush=flush)) as writer:
                return write(writer)
        return kept.run(holder, table, options, write, flush=flush)

    def may_repeat(error: WriterError) -> bool:
        # Without a mark only what has certainly not begun: a lease that is held is found before that.
        return source is not None or (isinstance(error, LeaseHeldError) and not applied)

    if changes or staged or asked:
        written = in_turn(attempt, seconds=options.lease_wait, may_repeat=may_repeat, where=table.uri)
        _log.info(
            "sink.committed",
            table=table.uri,
            source=None if source is None else source.name,
            sequence=None if source is None else source.sequence,
            rows=sum(one.rows for one in written),
            shards=sum(len(one.positions) for one in written),
            deduplicated=sum(len(one.deduplicated) for one in written),
        )
    failpoint.reach("sink.after_commit")


def _refuse_altered(table: Table, given: pa.Schema) -> None:
    """Refuse rows read when the table's columns had other names, since names decide what is set.

    Raises
    ------
    SchemaError
        Naming a column that has changed.
    """
    table.internals.follow()
    current = table.internals.row_schema
    before, now = births_of(given), births_of(current)
    for field in given:
        if field.name == OPERATION:
            continue
        number = field_id(field)
        there = field.name in current.names and field_id(current.field(field.name)) == number
        if not there or not (number is None or same_birth(number, before, now)):
            raise SchemaError(
                f"column {field.name!r} was renamed or dropped while its rows were on their way",
                where=table.uri,
                hint="Nothing of them was written: write them again, with the columns there are now",
            )


def abort(table: Table, messages: Sequence[object]) -> None:
    """Delete what the tasks of a write staged, if it was certainly not committed.

    If every task has a result, a commit may have been attempted and may have succeeded even though its answer
    was lost. Then garbage collection deletes what is not referenced.
    """
    results = [message for message in messages if isinstance(message, TaskResult)]
    if len(results) < len(messages):
        discard_staged(table.internals.store, [one for result in results for one in result.staged])


def parted(
    table: Table, results: Sequence[TaskResult], spec_id: int
) -> tuple[list[tuple[ShardValues, pa.Table]], list[tuple[ShardValues, list[StagedGeneration]]]]:
    """Return the shards whose rows go through the log, and those whose rows are staged, here or by tasks.

    Each with its rows in task order.
    """
    changes, staged = [], []
    for shard, pieces in pieces_by_shard(results).items():
        inline = [piece for piece in pieces if isinstance(piece, InlineRows)]
        if len(inline) == len(pieces) and sum(len(one.data) for one in inline) <= _MAX_LOG_BYTES:
            changes.append((shard, pa.concat_tables([one.rows for one in inline])))
        else:
            staged.append((shard, list(_all_staged(table, shard, pieces, spec_id))))
    return changes, staged


def _all_staged(
    table: Table, shard: ShardValues, pieces: Iterable[InlineRows | StagedGeneration], spec_id: int
) -> Iterator[StagedGeneration]:
    """Yield staged pieces in order, staging here those that were not."""
    held: list[pa.Table] = []
    for piece in pieces:
        if isinstance(piece, InlineRows):
            held.append(piece.rows)
            continue
        if held:
            yield table.internals.stage(shard, pa.concat_tables(held), spec_id=spec_id)
            held = []
        yield piece
    if held:
        yield table.internals.stage(shard, pa.concat_tables(held), spec_id=spec_id)


def commit_batch_of_stream(
    table: Table,
    results: Sequence[TaskResult],
    batch_id: int,
    options: WriteOptions,
    *,
    kept: KeptWriters | None = None,
) -> None:
    """Write a batch of a streaming query, exactly once however often it is committed.

    Parameters
    ----------
    table, results, options, kept
        As for :func:`commit`.
    batch_id : int
        The number of the batch.

    Raises
    ------
    InputError
        If the query wrote its earlier batches to another table.
    FencedError
        If a backup without some of them was put in the place of the table.
    """
    query_ids = {result.query_id for result in results}
    if len(query_ids) != 1 or None in query_ids:
        raise WeirError(
            f"the tasks of batch {batch_id} belong to the streaming queries {query_ids}, and not to one",
            where=table.uri,
        )
    query_id = str(query_ids.pop())
    name = f"spark/{query_id}"
    with batch_of_stream(table.internals.store, query_id, batch_id):
        commit(table, results, Source(name, batch_id), options, holder=name, flush=False, kept=kept)
