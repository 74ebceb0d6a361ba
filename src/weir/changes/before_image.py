"""Before-images: the row that each change replaced, with one lookup per batch of changes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from weir.base.table import BaseTable
from weir.format.field_ids import without_field_ids
from weir.format.newest import key_codes
from weir.format.shard_manifest import ShardManifest
from weir.format.snapshot_token import ShardCut
from weir.format.wal_entry import TOMBSTONE
from weir.log.manifest_store import read_manifest_version
from weir.log.replay import covered_position
from weir.lsm.keys import KeyIndex, KeySet
from weir.lsm.log_tail import TailRun, with_run
from weir.lsm.visible_generations import visible_generations
from weir.read.lookup import get_rows
from weir.schema.relabel import as_schema
from weir.snapshots.capture import cut_at
from weir.snapshots.expiry import naming_what_is_gone
from weir.snapshots.shard_view import ShardView
from weir.snapshots.snapshot import ReadSnapshot, is_complete
from weir.storage.interface import ObjectStore

__all__ = ["ShardState", "before_type", "previous_rows"]

Rows = npt.NDArray[np.int64]

_MAX_TAIL_BYTES = 256 * 1024 * 1024


def before_type(schema: pa.Schema) -> pa.StructType:
    """Return the type of a row of a table as one value. All of it is nullable, as the value is."""
    return pa.struct([pa.field(field.name, field.type) for field in schema])


def previous_rows(columns: list[pa.ChunkedArray]) -> Rows:
    """Return, for every row, the offset of the last row before it with the same key, or -1.

    Examples
    --------
    >>> previous_rows([pa.chunked_array([[1, 2, 1, 1]])]).tolist()
    [-1, -1, 0, 2]
    """
    codes, _ = key_codes(columns)
    order = np.argsort(codes, kind="stable")
    follows = codes[order][1:] == codes[order][:-1]
    previous = np.full(len(codes), -1, dtype=np.int64)
    previous[order[1:][follows]] = order[:-1][follows]
    return previous


class ShardState:
    """What a shard's rows are at one position of its log, moved on from there batch by batch.

    Parameters
    ----------
    store : ObjectStore
        The table's store.
    base : BaseTable
        The base table, at a version that contains nothing flushed after the view, with the columns that rows
        are given.
    view : ShardView
        The shard at the position.
    """

    def __init__(self, store: ObjectStore, base: BaseTable, view: ShardView) -> None:
        self._store = store
        self._base = base
        self._view = view
        shown = without_field_ids(base.row_schema)
        self._schema = shown.remove(shown.get_field_index(TOMBSTONE))

    @property
    def cut(self) -> ShardCut:
        """The position, and the manifest that the state is read from."""
        return cut_at(self._view.manifest, self._view.last_position)

    def rows_before(self, changes: pa.Table, deleted: npt.NDArray[np.bool_]) -> pa.StructArray:
        """Return, for every change after the position, the row it replaces or deletes; null if none.

        Parameters
        ----------
        changes : Table
            The changes in commit order, with the table's columns. Several may have one key.
        deleted : ndarray of bool
            Which of them are deletes.
        """
        names = list(self._base.primary_key)
        previous = previous_rows([changes.column(name) for name in names])
        first = np.flatnonzero(previous < 0)
        which, rows, found = self.find(KeySet([changes.column(name) for name in names]).take(first))

        # The rows found, and after them the changes themselves: before a change there is one or the other.
        source = np.full(changes.num_rows, -1, dtype=np.int64)
        source[first[which]] = rows
        repeated = np.flatnonzero(previous >= 0)
        repeated = repeated[~deleted[previous[repeated]]]
        source[repeated] = found.num_rows + previous[repeated]
        absent = source < 0
        together = pa.concat_tables([found, as_schema(changes.select(self._schema.names), self._schema)])
        taken = together.combine_chunks().take(pa.array(source, mask=absent))
        columns = [column.combine_chunks() for column in taken.columns]
        fields = list(before_type(self._schema))
        return pa.StructArray.from_arrays(columns, fields=fields, mask=pa.array(absent))

    def find(self, wanted: KeySet) -> tuple[Rows, Rows, pa.Table]:
        """Look keys up at the position.

        Returns
        -------
        which : ndarray of int64
            Which of the keys have a row.
        rows : ndarray of int64
            The row of each, as an offset.
        found : Table
            The rows.
        """
        found = self._lookup(wanted)
        keys = KeySet([found.column(name) for name in self._base.primary_key])
        return (*KeyIndex.build(keys).lookup(wanted), found)

    def move_on(self, run: TailRun, newest: ShardManifest | None) -> None:
        """Move on past the entries of ``run``, which follow the position.

        Parameters
        ----------
        newest : ShardManifest, optional
            A manifest up to which generations may take the place of log entries.
        """
        self._view = replace(self._view, tail=with_run(self._view.tail, run), last_position=run.last_position)
        if newest is not None and sum(part.nbytes for part in self._view.tail) > _MAX_TAIL_BYTES:
            self._shorten(newest)

    def _lookup(self, keys: KeySet) -> pa.Table:
        offsets = np.arange(len(keys), dtype=np.int64)
        snapshot = ReadSnapshot(self._base, (self._view,))
        with naming_what_is_gone(self._store, snapshot):
            found = get_rows(snapshot, keys, self._schema.names, lambda _, __: [(self._view, offsets)])
        return as_schema(found, self._schema)

    def _shorten(self, newest: ShardManifest) -> None:
        """Entries covered by generations are read from these, so that a long log does not fill memory."""
        manifest = self._view.manifest
        entries = [item for run in self._view.tail for item in run.entries]
        covered = covered_position(manifest, entries)
        while manifest.version < newest.version:
            following = read_manifest_version(self._store, newest.shard_id, manifest.version + 1)
            if following is None:
                break
            reached = covered_position(following, entries)
            # If no entry with rows is left, the generations may contain more than is known here.
            if not any(item.entry.num_rows for item in entries if item.position > reached):
                break
            manifest, covered = visible_generations(following, self._view.last_position), reached
        kept = (run.split_after(covered) for run in self._view.tail)
        view = replace(self._view, manifest=manifest, tail=tuple(run for run in kept if run is not None))
        # A generation that was taken off the list, since later versions of the base table contain it.
        if is_complete(ReadSnapshot(self._base, (view,)), view):
            self._view = view
