"""The current rows of a shard for its writer: in MemTables, generations and the base table.

The leader of a commit group owns the end of the log, so what it finds stays valid until it has written. New
rows need no round trip: all of them went through this writer. Generations and base table are read if keys are
not in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from weir.base.table import BaseTable
from weir.errors import ConflictError, CorruptionError, StorageError
from weir.format.field_ids import without_field_ids
from weir.format.shard_manifest import ShardManifest
from weir.lsm.base_rows import base_rows_with_keys
from weir.lsm.expired_rows import live_mask
from weir.lsm.generation import Generation
from weir.lsm.key_groups import KeyGroup, key_groups
from weir.lsm.keys import KeySet
from weir.lsm.log_tail import TailRun, with_run
from weir.lsm.newest import FreshSource
from weir.schema.relabel import as_schema
from weir.storage.interface import ObjectStore
from weir.write.decision.operation import LogPlaceBefore
from weir.write.memtable.memtable import MemTable
from weir.write.memtable.memtable_set import MemTables
from weir.write.shard_context import BaseVersions

__all__ = ["PresentRows"]

Offsets = npt.NDArray[np.int64]


class PresentRows:
    """Looks up rows of one shard for its writer. Only who leads a commit group uses it.

    Parameters
    ----------
    store : ObjectStore
        The table's store.
    shard_id : UUID
        The shard.
    key_columns : tuple of str
        Primary-key columns.
    memtables : MemTables
        The durable rows that are not flushed.
    versions : BaseVersions
        Where the base table is found.
    """

    def __init__(
        self,
        store: ObjectStore,
        shard_id: UUID,
        key_columns: tuple[str, ...],
        memtables: MemTables,
        versions: BaseVersions,
    ) -> None:
        self._store = store
        self._shard_id = shard_id
        self._key_columns = key_columns
        self._memtables = memtables
        self._versions = versions
        self._runs: dict[tuple[int, int], tuple[int, tuple[TailRun, ...]]] = {}
        self._groups: tuple[object, Sequence[KeyGroup]] | None = None
        # Version of the manifest whose generations are known to match the base table.
        self._complete: tuple[int, int] | None = None

    def find(self, keys: KeySet, columns: Sequence[str], schema: pa.Schema) -> tuple[Offsets, pa.Table]:
        """Return the present rows of some keys.

        Parameters
        ----------
        keys : KeySet
            Distinct keys.
        columns : sequence of str
            Columns of the result.
        schema : Schema
            Schema of log entries: the columns with their field ids, and ``_tombstone``.

        Returns
        -------
        which : ndarray of int64
            Which of the keys have a row.
        rows : Table
            The rows, aligned with them.

        Raises
        ------
        ConflictError
            If the table has got other columns than those of ``schema`` meanwhile.
        CorruptionError, StorageError
            If something cannot be read.
        """
        base = self._base(schema)
        try:
            return self._find(base, keys, columns, schema)
        except (CorruptionError, StorageError):
            # Collected, perhaps, since it is merged: the newest version of the base table has it.
            newest = self._newest(schema)
            if newest.version == base.version:
                raise
            self._groups = None
            return self._find(newest, keys, columns, schema)

    def written_since(self, since: LogPlaceBefore, schema: pa.Schema) -> pa.Table:
        """Return the keys that were written after a place in the log, and perhaps some more.

        Raises
        ------
        ConflictError
            If what was written has been merged and collected since.
        """
        memtables, manifest = self._memtables.in_memory()
        key_schema = pa.schema([pa.field(name, schema.field(name).type) for name in self._key_columns])
        parts = []
        for memtable in memtables:
            entries = [item for item in memtable.entries if item.position > since.position]
            if any(item.entry.num_rows for item in entries):
                run = TailRun(self._shard_id, entries, schema, self._key_columns)
                parts.append(as_schema(run.rows.select(list(self._key_columns)), key_schema))
        listed = [one for one in manifest.flushed_generations if one.generation >= since.generation]
        if len(listed) < manifest.current_generation - since.generation:
            raise ConflictError(
                "what was written since the rows were looked up has already been merged and collected",
                where=self._store.uri,
                hint="Try again",
            )
        namespace = self._versions.known().namespace
        for one in listed:
            generation = Generation.cached(
                self._store, namespace, self._shard_id, one, self._key_columns, schema
            )
            parts.append(pa.Table.from_arrays(list(generation.keys.columns), schema=key_schema))
        return pa.concat_tables(parts) if parts else key_schema.empty_table()

    def _base(self, schema: pa.Schema) -> BaseTable:
        base = self._versions.known()
        return base if base.row_schema is schema else self._newest(schema)

    def _newest(self, schema: pa.Schema) -> BaseTable:
        base = self._versions.newest()
        if base.row_schema is not schema:
            raise ConflictError(
                "the columns of the table changed while a write waited for its turn",
                where=base.uri,
                hint="Nothing was written; write it again",
            )
        return base

    def _find(
        self, base: BaseTable, keys: KeySet, columns: Sequence[str], schema: pa.Schema
    ) -> tuple[Offsets, pa.Table]:
        if base.expiry is None:
            return self._newest_rows(base, keys, columns, schema)
        # A row that has expired is not there.
        read = list(dict.fromkeys([*columns, base.expiry.column]))
        which, rows = self._newest_rows(base, keys, read, schema)
        live = live_mask(base, rows, None)
        if live is not None:
            which, rows = which[live], rows.filter(pa.array(live))
        return which, rows.select(list(columns))

    def _newest_rows(
        self, base: BaseTable, keys: KeySet, columns: Sequence[str], schema: pa.Schema
    ) -> tuple[Offsets, pa.Table]:
        memtables, manifest = self._memtables.in_memory()
        base = self._with_what_is_not_listed(base, manifest, schema)
        plain = without_field_ids(schema)
        wanted = pa.schema([plain.field(name) for name in columns])
        which: list[Offsets] = []
        parts: list[pa.Table] = []
        left = np.arange(len(keys), dtype=np.int64)
        for group in (*self._in_memory(base, memtables, schema), *self._flushed(base, manifest, schema)):
            if not left.size:
                break
            asked = keys if left.size == len(keys) else keys.take(left)
            settled = np.zeros(left.size, dtype=bool)
            for source, found, rows in group.newest(asked):
                settled[found] = True
                alive = ~source.tombstones[rows]
                if alive.any():
                    which.append(left[found[alive]])
                    parts.append(as_schema(source.take(rows[alive], list(columns)), wanted))
            left = left[~settled]
        if left.size:
            found, rows_of_base = base_rows_with_keys(base, keys.take(left), list(columns))
            if rows_of_base is not None and found.size:
                which.append(left[found])
                parts.append(as_schema(rows_of_base.select(list(columns)), wanted))
        if not parts:
            return np.zeros(0, dtype=np.int64), wanted.empty_table()
        return np.concatenate(which), pa.concat_tables(parts)

    def _with_what_is_not_listed(
        self, base: BaseTable, manifest: ShardManifest, schema: pa.Schema
    ) -> BaseTable:
        """Return a version of the base table that has the generations which a manifest lists no more."""
        merged = base.details.merged_generation(self._shard_id)
        listed = sum(one.generation > merged for one in manifest.flushed_generations)
        if listed == max(manifest.current_generation - 1 - merged, 0):
            return base
        if self._complete is not None:
            listing, version = self._complete
            if listing == manifest.version and version <= base.version:
                return base
        newest = self._newest(schema)
        self._complete = (manifest.version, newest.version)
        return newest

    def _in_memory(self, base: BaseTable, memtables: Sequence[MemTable], schema: pa.Schema) -> list[KeyGroup]:
        kept: dict[tuple[int, int], tuple[int, tuple[TailRun, ...]]] = {}
        groups: list[KeyGroup] = []
        for memtable in memtables:
            # By position: a MemTable without rows has the same generation as its successor.
            place = (memtable.first_position, id(schema))
            count, runs = self._runs.get(place, (0, ()))
            entries = memtable.entries
            if count > len(entries):
                count, runs = 0, ()
            fresh = [item for item in entries[count:] if item.entry.num_rows]
            if fresh:
                runs = with_run(runs, TailRun(self._shard_id, fresh, schema, self._key_columns))
            kept[place] = (len(entries), runs)
            groups += [KeyGroup(self._store.engine.cache, base.namespace, [run]) for run in runs]
        self._runs = kept
        return groups[::-1]

    def _flushed(self, base: BaseTable, manifest: ShardManifest, schema: pa.Schema) -> Sequence[KeyGroup]:
        merged = base.details.merged_generation(self._shard_id)
        place = (manifest.version, merged, id(schema), base.namespace)
        if self._groups is None or self._groups[0] != place:
            unmerged = sorted(
                (one for one in manifest.flushed_generations if one.generation > merged),
                key=lambda one: one.generation,
            )
            sources: list[FreshSource] = [
                Generation.cached(self._store, base.namespace, self._shard_id, one, self._key_columns, schema)
                for one in unmerged
            ]
            self._groups = (place, key_groups(self._store.engine.cache, base.namespace, sources))
        return self._groups[1]
