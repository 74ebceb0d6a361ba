"""The facts about a table that verification tasks need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from weir.base.table import BaseTable
from weir.errors import CorruptionError, ShardingError, WeirError
from weir.format.garbage_marks import ShardMarks
from weir.format.index_details import ShardSpec
from weir.format.merge_engine import MergeEngine
from weir.format.shard_manifest import ShardManifest
from weir.format.snapshot_token import ShardCut
from weir.format.wal_entry import TOMBSTONE
from weir.sharding.router import Router
from weir.sharding.shard_values import ShardValues
from weir.storage.interface import ObjectStore

__all__ = ["Need", "ShardFacts", "TableFacts", "values_of"]


@dataclass(frozen=True, slots=True)
class TableFacts:
    """What is the same for all shards. Picklable.

    Parameters
    ----------
    store : ObjectStore
        The table's store.
    row_schema : Schema
        Columns of the table, with their field ids, and ``_tombstone``.
    primary_key : tuple of str
        Key columns.
    specs : mapping of int to ShardSpec
        Shard specs by id.
    routers : mapping of int to Router
        What computes the shard values of each spec.
    merge_engine : MergeEngine or None, default None
        What the versions of a key come to.
    """

    store: ObjectStore
    row_schema: pa.Schema
    primary_key: tuple[str, ...]
    specs: Mapping[int, ShardSpec]
    routers: Mapping[int, Router]
    merge_engine: MergeEngine | None = None

    @classmethod
    def of(cls, base: BaseTable) -> TableFacts:
        """Return the facts of a table."""
        specs = {spec.spec_id: spec for spec in base.details.shard_specs}
        routers = {number: Router(spec, base.schema, base.columns_of(spec)) for number, spec in specs.items()}
        return cls(base.store, base.row_schema, base.primary_key, specs, routers, base.merge_engine)

    def strangers(self, rows: pa.RecordBatch | pa.Table, manifest: ShardManifest) -> str | None:
        """Return what is wrong with the shard of some rows, or None if they belong to it.

        Parameters
        ----------
        rows : RecordBatch or Table
            Rows with ``_tombstone``.
        manifest : ShardManifest
            The shard's manifest.
        """
        router = self.routers.get(manifest.shard_spec_id)
        if router is None:
            return None
        try:
            if router.has_lost_columns:
                return None  # nothing tells any more where a row belongs
            columns = sorted(router.source_columns)
            if not set(columns) <= set(self.primary_key):
                # A tombstone has its key alone.
                rows = rows.filter(pc.invert(rows.column(TOMBSTONE)))
            found = set(router.partition(rows.select(columns)).values)
        except WeirError as error:
            return f"its shard cannot be computed: {error.message}"
        held = values_of(manifest, self.specs)
        if held is not None and found - {held}:
            other = next(iter(found - {held}))
            return f"a row belongs to the shard with {other}, and this one has {held}"
        if len(found) > 1:
            return f"its rows belong to {len(found)} shards"
        return None


def values_of(manifest: ShardManifest, specs: Mapping[int, ShardSpec]) -> ShardValues | None:
    """Return the values of a shard; None if its manifest does not tell."""
    spec = specs.get(manifest.shard_spec_id)
    try:
        return None if spec is None else ShardValues.from_manifest(manifest.shard_fields, spec)
    except (CorruptionError, ShardingError):
        return None


@dataclass(frozen=True, slots=True)
class Need:
    """What a pinned snapshot or a consumer needs of a shard.

    Parameters
    ----------
    path : str
        The object that says so.
    cut : ShardCut, optional
        Names the version of the shard manifest that has to exist; None if none has to.
    first_position, last_position : int
        The log positions that have to exist; none if the last is below the first.
    merged : int or None
        The newest generation that the version of the base table has, so that later ones of that manifest
        have to exist. None if that is not known.
    """

    path: str
    cut: ShardCut | None
    first_position: int
    last_position: int
    merged: int | None = None


@dataclass(frozen=True, slots=True)
class ShardFacts:
    """What the rest of the table says of one shard. Picklable.

    Parameters
    ----------
    shard_id : UUID
        The shard.
    merged : int
        Its newest merged generation.
    published : ShardManifest, optional
        What the shard snapshot has of it.
    marks : ShardMarks
        What garbage collection has marked.
    needs : tuple of Need
        What tokens need.
    """

    shard_id: UUID
    merged: int
    published: ShardManifest | None = None
    marks: ShardMarks = field(default_factory=ShardMarks)
    needs: tuple[Need, ...] = ()
