"""Opening the writer of a table: its options, and how it claims a shard."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from typing import Any

from weir.base.column_marks import mark_columns
from weir.base.generation_indexes import generation_indexes
from weir.base.table import BaseTable
from weir.base.writer_defaults import recorded_options
from weir.config import WriterOptions
from weir.engine.logs import get_logger
from weir.errors import OptionError, ShardingError
from weir.format.resharding import is_resharding
from weir.format.sorted_rows import can_be_sorted_by
from weir.log.table_sharding import TableSharding, newest_spec
from weir.sharding.router import Router
from weir.storage.interface import ObjectStore
from weir.write.columns import FollowedColumns, TableColumns
from weir.write.former_shards import FormerShards
from weir.write.memtable.aging import FlushByAge
from weir.write.memtable.backpressure import MergeBacklog
from weir.write.routed_writes import WriterParts
from weir.write.shard_context import BaseVersions, ShardContext
from weir.write.shard_pool import ShardPool
from weir.write.table_writer import DeleteAppended, FindRows, TableWriter

__all__ = ["open_writer"]

_log = get_logger(__name__)


def open_writer(
    store: ObjectStore,
    base: BaseTable,
    sharding: TableSharding,
    find_rows: FindRows,
    delete_appended: DeleteAppended,
    follow_resharding: Callable[[BaseTable, int], BaseTable | None],
    *,
    options: Mapping[str, Any],
) -> TableWriter:
    """Return a writer of a table. It claims nothing yet.

    Parameters
    ----------
    store : ObjectStore
        Where the table is.
    base : BaseTable
        Its base table at any version.
    sharding : TableSharding
        By which rule it is sharded.
    find_rows : callable
        Returns columns of the rows that a filter matches now; strongly consistent.
    delete_appended : callable
        Deletes by filter from a table whose rows are only added.
    follow_resharding : callable
        Takes the base table and the id of a shard spec; returns the base table once it is sharded by another
        one, and None if it is not.
    options : mapping of str to object
        Fields of :class:`~weir.config.WriterOptions`. Others are as recorded with the table, or default.

    Raises
    ------
    OptionError
        If an option is unknown or out of range, or names an unknown column.
    ShardingError
        If a key may move from shard to shard.
    SchemaError
        If the table has a column whose values no merge could bring into its files.
    """
    recorded = recorded_options(base.details.writer_config_defaults, where=store.uri, given=options)
    checked = WriterOptions.from_keywords(**{**recorded, **options})
    unknown = next((name for name in checked.cluster_by if name not in base.schema.names), None)
    if unknown is not None:
        raise OptionError(f"writer option cluster_by: there is no column {unknown!r}", where="cluster_by")
    for name in checked.cluster_by:
        kind = base.schema.field(name).type
        if not can_be_sorted_by(kind):
            raise OptionError(
                f"writer option cluster_by: rows cannot be ordered by {name!r} of type {kind}",
                where="cluster_by",
                hint="Cluster by numbers, times or text",
            )
    parts = _parts(store, mark_columns(base), sharding, checked)

    def parts_after(before: WriterParts) -> WriterParts | None:
        found = follow_resharding(before.columns.current().base, before.spec_id)
        if found is None:
            return None
        _log.info("writer.resharded", where=found.uri, version=found.version)
        return _parts(store, mark_columns(found), TableSharding.of(store, found), checked)

    return TableWriter(parts, parts_after, find_rows, delete_appended)


def _parts(
    store: ObjectStore, base: BaseTable, sharding: TableSharding, options: WriterOptions
) -> WriterParts:
    """Return the columns that rows are brought into, and the shards that they go to."""
    spec = sharding.spec
    if not options.immutable and base.append_only is None:
        _refuse_keys_that_move(sharding.router, base)

    def router_of(version: BaseTable) -> Router:
        made = Router(spec, version.schema, version.columns_of(spec))
        if version.append_only is None:
            _refuse_lost_columns(made, version)
        return made

    columns = FollowedColumns(TableColumns.of(base, router_of(base)), router_of)

    def make_context(flusher: Executor, backlog: MergeBacklog) -> ShardContext:
        return ShardContext.of(
            store,
            lambda: columns.current().row_schema,
            base.primary_key,
            namespace=base.namespace,
            flusher=flusher,
            options=options,
            newest_schema=lambda: columns.newest().row_schema,
            backlog=backlog,
            indexes=lambda: generation_indexes(base),
            aging=store.engine.part(FlushByAge),
            spec_id=spec.spec_id,
            merge_engine=base.merge_engine,
            sort_by=base.sort_by or options.cluster_by,
            on_restore=base.leave_history,
            versions=BaseVersions(lambda: columns.current().base, lambda: columns.newest().base),
        )

    def is_resharded() -> bool:
        newest = columns.newest().base
        base.refuse_replaced(newest)
        # A backup may have another rule of this number.
        return newest_spec(newest) != spec or is_resharding(newest.details)

    shards = ShardPool(
        sharding.catalog.resolve,
        make_context,
        options,
        store=store,
        table=(base.namespace, spec.spec_id, store.sharing_key),
        merge_progress=lambda: base.latest().details.merged_generation,
        is_resharded=is_resharded,
    )
    return WriterParts(spec.spec_id, columns, shards, FormerShards(base))


def _refuse_lost_columns(router: Router, base: BaseTable) -> None:
    """Refuse a table whose rows no longer determine the shard of their key."""
    if router.has_lost_columns:
        raise ShardingError(
            "the table is sharded by a column that was dropped: new rows of a key would be in another shard "
            "than those it has",
            where=base.uri,
            hint="Restore the last version of the dataset that has the column: LanceDataset.restore",
        )


def _refuse_keys_that_move(router: Router, base: BaseTable) -> None:
    """Refuse a table in which a key may have versions in two shards without a known order."""
    columns = router.columns_that_may_change(base.primary_key)
    if columns:
        raise ShardingError(
            f"the table is sharded by {', '.join(columns)}, which is not part of its key "
            f"({', '.join(base.primary_key)}): a row that changed it would be in two shards",
            where=base.uri,
            hint="If no row ever changes it, promise that: table.writer(immutable=True)",
        )
