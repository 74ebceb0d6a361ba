"""The effects of repeatable writes before a resharding, row by row.

A shard of the new rule has rows of many shards of the former one, some of which may have had a write and
others not, if its writer died in between. So a mark of the new shard could not express it; the sealed and
kept former shards still have their marks, and the results of single writes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import NamedTuple
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from weir.base.table import BaseTable
from weir.format.index_details import ShardSpec
from weir.format.resharding import newest_spec_id
from weir.format.source import Source, SourceMarks
from weir.format.write_window import decode_answer
from weir.log.manifest_store import list_shards, read_latest_manifest
from weir.log.recorded_sources import recorded_sources
from weir.log.shard_catalog import ShardCatalog
from weir.log.wal import Wal
from weir.sharding.router import Router
from weir.sharding.shard_values import ShardValues
from weir.write.write_result import WriteResult

__all__ = ["FormerShards"]


class _Former(NamedTuple):
    """A shard of a former rule, and its marks of repeatable writes."""

    shard_id: UUID
    marks: SourceMarks


class FormerShards:
    """The shards of a table that were made by former rules. They are looked for when a write has a source.

    Parameters
    ----------
    base : BaseTable
        The table.
    """

    def __init__(self, base: BaseTable) -> None:
        self._base = base
        newest = newest_spec_id(base.details)
        self._specs = [spec for spec in base.details.shard_specs if spec.spec_id != newest]

    @property
    def exist(self) -> bool:
        """Whether there was a former rule."""
        return bool(self._specs)

    def cover(self, source: Source) -> bool:
        """Whether any of them has a write."""
        return any(one.marks.covers(source) for _, former in self._marks for one in former.values())

    def answer(
        self, batches: Sequence[pa.RecordBatch], source: Source, key_columns: tuple[str, ...]
    ) -> WriteResult | None:
        """Return what they did for a single write; None if none has a part of it.

        Parameters
        ----------
        batches : sequence of RecordBatch
            The rows of the write, in its order, with the columns that the former rules are computed from.
        source : Source
            The mark of the write.
        key_columns : tuple of str
            Primary-key columns; empty for a write that does not depend on existing rows.
        """
        if not self._specs or not source.is_single or not self.cover(source):
            return None
        rows = pa.Table.from_batches(batches)
        done = np.zeros(rows.num_rows, dtype=np.bool_)
        theirs = np.zeros(rows.num_rows, dtype=np.bool_)
        positions: dict[UUID, int] = {}
        shards: list[UUID] = []
        for router, former in self._marks:
            # Each batch is split by itself, as it was the first time.
            parts = [router.partition(batch) for batch in batches]
            starts = np.cumsum([0, *(batch.num_rows for batch in batches)])
            for values, one in former.items():
                known = one.marks.window.get(source.name)
                mine = [
                    start + np.flatnonzero(part.shards == part.values.index(values))
                    for start, part in zip(starts, parts, strict=False)
                    if values in part.values
                ]
                if known is None or not mine:
                    continue
                at = np.concatenate(mine)
                told = decode_answer(known.answer, len(at))
                if told is not None:
                    done[at], theirs[at] = told, True
                    shards.append(one.shard_id)
                if known.position:
                    positions[one.shard_id] = known.position
        keys = rows.select(list(key_columns)).replace_schema_metadata(None)
        return WriteResult(
            int(done.sum()),
            positions,
            tuple(shards),
            keys.filter(pa.array(done)) if key_columns else None,
            keys.filter(pa.array(theirs & ~done)) if key_columns else None,
        )

    def pending(self, rows: pa.RecordBatch | pa.Table, source: Source) -> npt.NDArray[np.bool_] | None:
        """Return which of some rows a write has not written yet; None if that is all of them.

        Parameters
        ----------
        rows : RecordBatch or Table
            Rows with the columns that the former rules are computed from.
        source : Source
            The mark of the write.
        """
        if not self._specs or not rows.num_rows or not self.cover(source):
            return None
        pending = np.ones(rows.num_rows, dtype=np.bool_)
        for router, former in self._marks:
            partition = router.partition(rows)
            written = [
                (one := former.get(values)) is not None and one.marks.covers(source)
                for values in partition.values
            ]
            pending &= ~np.array(written, dtype=np.bool_)[partition.shards]
        return pending

    @cached_property
    def _marks(self) -> list[tuple[Router, Mapping[ShardValues, _Former]]]:
        return [self._marks_of(spec) for spec in self._specs]

    def _marks_of(self, spec: ShardSpec) -> tuple[Router, Mapping[ShardValues, _Former]]:
        base, store = self._base, self._base.store
        router = Router(spec, base.schema, base.columns_of(spec))
        manifests = [read_latest_manifest(store, shard_id) for shard_id in list_shards(store)]
        own = [one for one in manifests if one is not None and one.shard_spec_id == spec.spec_id]
        held: Mapping[UUID, ShardValues | None] = ShardCatalog(store, base, router, spec).values_of(own)
        found = {}
        for manifest in own:
            values = held[manifest.shard_id]
            if values is not None:
                wal = Wal(store, manifest.shard_id, namespace=base.namespace)
                found[values] = _Former(manifest.shard_id, recorded_sources(store, wal, manifest))
        return router, found
