"""Cloning a table: a copy of one state of it, with its own shards, identity and history.

Everything is written before the base table of the clone is published, which is the last step. A call that
crashes leaves no table, but a record; repeating the call continues from there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

import numpy as np
import pyarrow as pa

from weir.base.copied import copy_files, publish_copy
from weir.base.dataset import open_dataset
from weir.base.fresh_start import begun_anew
from weir.base.table import TABLE_ID, BaseTable
from weir.engine import failpoint
from weir.engine.logs import get_logger
from weir.errors import ConflictError, TableExistsError, TableNotFoundError
from weir.format import layout
from weir.format.index_details import IndexDetails
from weir.format.shard_manifest import ShardManifest
from weir.format.source import SourceMarks
from weir.format.wal_entry import TOMBSTONE
from weir.log.manifest_store import commit_manifest, list_shards
from weir.lsm.newest import FreshSource
from weir.schema.relabel import as_schema
from weir.sharding.router import Router
from weir.sharding.shard_ids import RULE, VALUES, ShardIds
from weir.sharding.shard_values import ShardValues
from weir.snapshots.snapshot import ReadSnapshot
from weir.storage.interface import ObjectStore
from weir.write.flush.generation_rows import GenerationRows
from weir.write.flush.generation_writer import write_generation

__all__ = ["CloneReport", "clone_table", "rows_of", "write_shards"]

_UNDER_WAY = "_weir/clone_under_way"

_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class CloneReport:
    """What a clone was made of.

    Parameters
    ----------
    files : int
        Files of the base table.
    unmerged_rows : int
        Rows, deletes among them, that were not merged: in generations of the clone's shards.
    version : int
        The first version of its base table.
    """

    files: int
    unmerged_rows: int
    version: int


def clone_table(
    snapshot: ReadSnapshot,
    target: ObjectStore,
    router: Router,
    values: Mapping[UUID, ShardValues | None],
) -> tuple[BaseTable, CloneReport]:
    """Write a copy of a state of a table, and return its base table.

    Parameters
    ----------
    snapshot : ReadSnapshot
        The state, in which no two shards have a key in common.
    target : ObjectStore
        Where to.
    router : Router
        Computes the shard values of rows.
    values : mapping of UUID to ShardValues or None
        The values that each shard records.

    Raises
    ------
    TableExistsError
        There is something at the target, and no earlier call has left it.
    """
    base = snapshot.base
    _begin(target)
    details = begun_anew(base.details, target.uri, {RULE: VALUES})
    files = copy_files(base, target)
    failpoint.reach("clone.between_base_and_shards")
    rows = write_shards(snapshot, target, details, router, values)
    failpoint.reach("clone.before_publish")
    clone = publish_copy(base, target, details)
    target.delete([_UNDER_WAY])
    _log.info("table.cloned", where=target.uri, source=base.uri, files=files, unmerged_rows=rows)
    return clone, CloneReport(files, rows, clone.version)


def _begin(target: ObjectStore) -> None:
    try:
        open_dataset(target)
    except TableNotFoundError:
        pass
    else:
        raise _exists(target)
    if target.head(_UNDER_WAY) is None:
        if list_shards(target):
            raise _exists(target)
        target.put(_UNDER_WAY, b"")
        return
    # An earlier call has died: the shards it wrote have ids that are never used.
    target.delete([one.path for one in target.list(layout.MEM_WAL)])


def _exists(target: ObjectStore) -> TableExistsError:
    return TableExistsError(
        "there is already a table, a Lance dataset or the remains of one",
        where=target.uri,
        hint="Choose another location, or remove it first: weir.drop",
    )


def write_shards(
    snapshot: ReadSnapshot,
    target: ObjectStore,
    details: IndexDetails,
    router: Router,
    values: Mapping[UUID, ShardValues | None],
) -> int:
    """Write the unmerged rows, as one generation per shard that has any; return their number.

    Raises
    ------
    ConflictError
        Another process is writing them too.
    """
    base = snapshot.base
    # With the ids of the columns, which the clone's have too.
    schema = base.row_schema
    parts: dict[ShardValues, list[pa.Table]] = {}
    for view in snapshot.shards:
        recorded = values.get(view.shard_id)
        for source in snapshot.shard_levels(view).sources:
            rows = rows_of(source, schema)
            routed = [(recorded, rows)] if recorded is not None else router.route(rows)
            for held, own in routed:
                parts.setdefault(held, []).append(own)
    ids = ShardIds.of(details, router.spec, details.writer_config_defaults[TABLE_ID], made_by_weir=True)
    count = 0
    for held, tables in parts.items():
        rows = pa.concat_tables(tables)
        shard_id = ids.of_values(held)
        kept = GenerationRows.of(rows, base.primary_key, base.merge_engine, base.sort_by)
        flushed = write_generation(
            target,
            shard_id,
            1,
            kept,
            base.primary_key,
            in_memory_bytes=rows.nbytes,
        )
        first = ShardManifest(
            shard_id,
            version=1,
            current_generation=2,
            flushed_generations=(flushed,),
            shard_spec_id=router.spec.spec_id,
            shard_fields=held.to_manifest(),
            sources=SourceMarks(),
        )
        if commit_manifest(target, first, after=None) is None:
            raise ConflictError(
                "another process is writing the shards of the same table",
                where=f"{target.uri}/{layout.shard_directory(shard_id)}",
                hint="Try again when it has finished",
            )
        count += kept.num_rows
    return count


def rows_of(source: FreshSource, schema: pa.Schema) -> pa.Table:
    """Return the rows of a source as log entries have them, in their order."""
    every = np.arange(len(source.tombstones), dtype=np.int64)
    names = [name for name in schema.names if name != TOMBSTONE]
    rows = source.take(every, names)
    return as_schema(rows.append_column(TOMBSTONE, pa.array(source.tombstones)), schema)
