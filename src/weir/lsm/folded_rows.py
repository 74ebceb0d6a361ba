"""The rows of one shard above the base table under a merge engine: one level of already folded rows.

Without an engine a row is live or not, and stays in its source. With one, the row of a key may be in no
source: it follows from all versions of the key, including that of the base table. So the versions above the
base table are read, those of the base table looked up, and the result is one level in memory that replaces
all of them.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import cached_property
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from weir.base.table import BaseTable
from weir.format.field_ids import without_field_ids
from weir.format.merge_engine import MergeEngine
from weir.format.wal_entry import TOMBSTONE
from weir.lsm.base_rows import base_rows_with_keys
from weir.lsm.damage import reading
from weir.lsm.fold import Settled, fold, settle
from weir.lsm.generation import Generation
from weir.lsm.keys import KeyIndex, KeySet
from weir.lsm.log_tail import TailRun
from weir.schema.relabel import as_schema

__all__ = ["FoldedRows", "folded_rows", "settled_rows"]


class FoldedRows:
    """The row or tombstone of every key with a version above the base table. Can be pickled.

    Parameters
    ----------
    shard_id : UUID
        The shard.
    rows : Table
        The rows, with ``_tombstone``.
    key_columns : tuple of str
        Primary-key columns.
    identity : Hashable
        Identifies them among all sources of the table, for caches.
    """

    def __init__(
        self, shard_id: UUID, rows: pa.Table, key_columns: tuple[str, ...], identity: Hashable
    ) -> None:
        self.shard_id = shard_id
        self.rows = rows
        self.identity = identity
        self._key_columns = key_columns

    @property
    def label(self) -> str:
        """Name for people."""
        return "generations and log, folded"

    @cached_property
    def keys(self) -> KeySet:
        """The key of every row."""
        return KeySet([self.rows.column(name) for name in self._key_columns])

    @cached_property
    def index(self) -> KeyIndex:
        """From keys to rows."""
        return KeyIndex.build(self.keys)

    @cached_property
    def tombstones(self) -> npt.NDArray[np.bool_]:
        """Which rows are deletes."""
        flags: npt.NDArray[np.bool_] = self.rows.column(TOMBSTONE).to_numpy()
        return flags

    def column(self, name: str) -> pa.Array:
        """Return one column of every row."""
        return self.rows.column(name).combine_chunks()

    def take(self, rows: npt.NDArray[np.int64], columns: list[str]) -> pa.Table:
        """Return some rows, by their offset."""
        return self.rows.select(columns).take(pa.array(rows))

    @property
    def nbytes(self) -> int:
        """Bytes the rows take in memory."""
        return int(self.rows.nbytes)


def folded_rows(
    base: BaseTable, engine: MergeEngine, shard_id: UUID, sources: Sequence[Generation | TailRun]
) -> FoldedRows:
    """Return what the sources of a shard and the base table come to.

    Parameters
    ----------
    base : BaseTable
        The base table, pinned at a version.
    engine : MergeEngine
        Its engine.
    shard_id : UUID
        The shard.
    sources : sequence of Generation or TailRun
        Oldest first, at least one.
    """
    identity = ("folded", str(engine), base.version_key, tuple(source.identity for source in sources))

    def load() -> FoldedRows:
        versions = _versions(base, engine, tuple(sources))
        rows = settled_rows(base, engine, versions).rows
        return FoldedRows(shard_id, rows, base.primary_key, identity)

    return base.engine.cache.get_or_load(
        ("source", base.namespace, identity), load, lambda loaded: loaded.nbytes, base.lifetime
    )


def settled_rows(base: BaseTable, engine: MergeEngine, versions: pa.Table) -> Settled:
    """Return what versions of some keys and the rows that the base table has of them come to.

    Parameters
    ----------
    base : BaseTable
        The base table, pinned at a version.
    engine : MergeEngine
        Its engine.
    versions : Table
        With the columns of the base table and ``_tombstone``, those of a key from the oldest to the newest.
    """
    keys = KeySet([versions.column(name) for name in base.primary_key])
    newest = KeyIndex.build(keys).rows
    names = [name for name in versions.schema.names if name != TOMBSTONE]
    _, found = base_rows_with_keys(base, keys.take(newest), names)
    if found is None or not found.num_rows:
        return settle(engine, versions, base.primary_key)
    flags = pa.repeat(pa.scalar(False), found.num_rows)
    older = found.select(names).append_column(TOMBSTONE, flags).select(versions.schema.names)
    both = pa.concat_tables([as_schema(older, versions.schema), versions])
    return settle(engine, both, base.primary_key, older=older.num_rows)


def _versions(base: BaseTable, engine: MergeEngine, sources: tuple[Generation | TailRun, ...]) -> pa.Table:
    """Return the versions in some sources, folded; those in the ones before the last are in the cache."""
    cache = base.engine.cache

    def key(some: tuple[Generation | TailRun, ...]) -> Hashable:
        return ("versions", base.namespace, str(engine), tuple(source.identity for source in some))

    known = cache.get(key(sources))
    if isinstance(known, pa.Table):
        # They stay for as long as the newest version of the base table that they were read beside.
        cache.put(key(sources), known, known.nbytes, base.lifetime)
        return known
    before = cache.get(key(sources[:-1])) if len(sources) > 1 else None
    if isinstance(before, pa.Table):
        parts = [before, _rows_of(sources[-1], base.row_schema)]
    else:
        parts = [_rows_of(source, base.row_schema) for source in sources]
    made = fold(engine, pa.concat_tables(parts), base.primary_key)
    cache.put(key(sources), made, made.nbytes, base.lifetime)
    return made


def _rows_of(source: Generation | TailRun, row_schema: pa.Schema) -> pa.Table:
    """Return all the rows of a source, in their order."""
    if isinstance(source, TailRun):
        return source.rows
    schema = without_field_ids(row_schema)
    columns = source.columns
    with reading(f"{source.label} of shard {source.shard_id}", source.uri):
        found = source.dataset.scanner(columns=columns.source_names, scan_in_order=True).to_table()
        rows = columns.table(found, where=source.uri)
    return pa.Table.from_batches(rows.to_batches(), schema)
