"""Bulk loads: rows that are written once, into generations of which the base table takes the files over.

A load is a write like any other, so that readers of the log, the change feed or the table see it in its place
among them: its generations are published in the shards, each shard's in one step, and then merged, in the
same call (:mod:`weir.merge.copied_generations`). It needs no log entry for its rows, no MemTable, and no
second copy of them. Whether a key is new is decided by the merge, which looks for it in the base table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from uuid import UUID

import pyarrow as pa

from weir.engine.logs import get_logger
from weir.engine.runner import Runner
from weir.errors import WeirError
from weir.format.source import Source
from weir.notebook import ShownAsTable
from weir.rows import RowInput, change_table, pieces, repeatable
from weir.sharding.shard_values import ShardValues
from weir.table.internals import TableInternals
from weir.table.maintenance import TableMaintenance
from weir.write.flush.rows_to_stage import RowsToStage
from weir.write.flush.staged_generations import StagedGeneration, discard_staged
from weir.write.table_writer import TableWriter
from weir.write.write_result import WriteResult

__all__ = ["LoadResult", "load_rows", "merge_loaded"]

_log = get_logger(__name__)
_PART_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class LoadResult(ShownAsTable):
    """What a bulk load did.

    Parameters
    ----------
    rows : int
        Rows written; of several with one key in one generation the last.
    positions : mapping of UUID to int
        For every shard the rows went to, where they stand in its log.
    deduplicated : tuple of UUID
        Shards that have had the rows already, as of :class:`weir.WriteResult`.
    version : int or None
        The version of the base table that has the rows; None if they could not be merged yet. They are
        written all the same, and the next merge takes them in.
    """

    rows: int
    positions: Mapping[UUID, int]
    deduplicated: tuple[UUID, ...]
    version: int | None


def load_rows(
    internals: TableInternals,
    maintenance: TableMaintenance,
    write: Callable[[Callable[[TableWriter], WriteResult]], WriteResult],
    rows: RowInput,
    *,
    source: Source | None,
    runner: Runner | None,
) -> LoadResult:
    """Load rows into a table: see :meth:`weir.Table.load`.

    Parameters
    ----------
    internals, maintenance
        Of the table.
    write : callable
        Runs a write with a writer of the table.
    rows, source, runner
        As for :meth:`weir.Table.load`.
    """
    schema = internals.follow()
    engine = internals.base.merge_engine
    router = internals.router
    spec_id = router.spec.spec_id
    also = set(router.source_columns)
    if engine is not None and engine.sequence_by:
        also.add(engine.sequence_by)
    row_schema, primary_key = internals.row_schema, internals.base.primary_key
    staged: dict[ShardValues, list[StagedGeneration]] = {}

    def stage(shard: ShardValues, own: pa.Table) -> None:
        staged.setdefault(shard, []).append(internals.stage(shard, own, spec_id=spec_id, indexed=False))

    held = RowsToStage(router, stage)
    stream = pieces(rows)
    first_row = 0
    try:
        for piece in [repeatable(rows)] if stream is None else stream:
            table = change_table(piece, schema, row_schema, primary_key, also=also, first_row=first_row)
            first_row += table.num_rows
            for part in _parts(table):
                held.add(part)
        for shard in held.held():
            stage(shard, held.take(shard))
    except BaseException:
        discard_staged(internals.store, [one for own in staged.values() for one in own])
        raise
    # From here on only a collection can tell whether a generation is listed.
    work = list(staged.items())
    result = write(lambda writer: writer.publish_routed(work, source=source, spec_id=spec_id))
    version = merge_loaded(maintenance, internals.store.uri, runner)
    return LoadResult(result.rows, result.positions, result.deduplicated, version)


def _parts(rows: pa.Table) -> Iterator[pa.Table]:
    """Yield rows that are in memory as a whole, some at a time."""
    step = max(rows.num_rows * _PART_BYTES // max(rows.nbytes, 1), 1)
    for start in range(0, rows.num_rows, step):
        yield rows.slice(start, step)


def merge_loaded(maintenance: TableMaintenance, where: str, runner: Runner | None = None) -> int | None:
    """Merge what was loaded; return the version that has it, or None if that has to wait."""
    try:
        return maintenance.merge_loaded(runner=runner).version
    except WeirError as error:
        # The rows are written. A caller that got an error would load them again.
        _log.warning("table.loaded_unmerged", table=where, error=str(error))
        return None
