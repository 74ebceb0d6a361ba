"""Columns of which rows are looked up again and again: they are kept in memory, by fragment.

To look up a row takes as long as to scan a hundred, since what was compressed with it is decoded too.
So a column is read whole once as much time was spent on looking up rows of it: in the end that costs at most
twice what it had to. Files never change, so a fragment that later versions still have is not read again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from weir.format.row_address import FRAGMENT_BITS, OFFSET_MASK
from weir.lsm.dataset_handle import DatasetHandle
from weir.lsm.rows_by_id import take_row_ids
from weir.read.begun_scan import BATCH_ROWS

__all__ = ["KeptColumns"]

_SCANNED_FOR_ONE = 100
"""How many rows are scanned in the time that it takes to look one up."""
_LARGEST_BYTES = 32 * 1024 * 1024
_PARTS_OF_CACHE = 8
_MOST_FRAGMENTS = 32
_WORTH_SHARING = 256
"""Rows to look up from which on two threads do it."""


@dataclass(frozen=True, slots=True)
class _LookedUp:
    """What was looked up of a column of a version."""

    rows: int
    nbytes: int


@dataclass(frozen=True)
class KeptColumns:
    """The columns of a dataset that are kept in memory, in the cache of the process.

    Parameters
    ----------
    source : DatasetHandle
        The dataset.
    """

    source: DatasetHandle

    def take(self, row_ids: npt.NDArray[np.int64], columns: Sequence[str], threads: Executor) -> pa.Table:
        """Return some columns of some rows, in the order asked for.

        Those that are not kept are looked up; of more than a few rows two of the threads look up half each.
        """
        kept = self.kept(columns)
        arrays = dict(zip(kept, self.rows_of(kept, row_ids).columns, strict=True))
        left = [name for name in columns if name not in kept]
        if left:
            dataset = self.source.opened()
            shares = np.array_split(row_ids, 2 if len(row_ids) >= _WORTH_SHARING else 1)
            read = pa.concat_tables(threads.map(lambda share: take_row_ids(dataset, share, left), shares))
            self.note(read)
            arrays.update(zip(left, read.columns, strict=True))
        return pa.table([arrays[name] for name in columns], list(columns))

    def kept(self, columns: Sequence[str]) -> dict[str, pa.ChunkedArray]:
        """Return those of some columns that are kept, or are from now on, since they are looked up often."""
        if not self._fragments:
            return {}
        cache = self.source.engine.cache
        parts = {
            name: [cache.get(key) for key in self._keys(name)] for name in columns if self._is_plain(name)
        }
        due = (name for name, held in parts.items() if None in held and self._is_due(name, held))
        # One at a time, so that no answer waits for all of them.
        for name in islice(due, 1):
            # Should it have to leave, it is looked up as often before it is read again.
            cache.discard([self._key_of_use(name)])
            left = self._most_bytes - sum(one.nbytes for one in parts[name] if one is not None)
            for at, (key, fragment) in enumerate(zip(self._keys(name), self._fragments, strict=True)):
                if parts[name][at] is not None:
                    continue
                whole = self._read(fragment, name, left)
                if whole is None:
                    break
                parts[name][at] = whole
                left -= whole.nbytes
                cache.put(key, whole, whole.nbytes)
        return {name: pa.chunked_array(held) for name, held in parts.items() if None not in held}

    def rows_of(self, kept: Mapping[str, pa.ChunkedArray], row_ids: npt.NDArray[np.int64]) -> pa.Table:
        """Return some rows of columns that are kept."""
        if not kept:
            return pa.table({})
        numbers = np.array([one.fragment_id for one in self._fragments])
        starts = np.cumsum([0, *(one.physical_rows for one in self._fragments[:-1])])
        of_fragment = np.searchsorted(numbers, row_ids >> FRAGMENT_BITS)
        places = pa.array(starts[of_fragment] + (row_ids & OFFSET_MASK))
        return pa.table({name: column.take(places) for name, column in kept.items()})

    def note(self, rows: pa.Table) -> None:
        """Count rows that were looked up of the columns of a table."""
        if not self._fragments:
            return
        cache = self.source.engine.cache
        for name, column in zip(rows.column_names, rows.columns, strict=True):
            if self._is_plain(name):
                known = cache.get(self._key_of_use(name)) or _LookedUp(0, 0)
                now = _LookedUp(known.rows + len(column), known.nbytes + column.nbytes)
                cache.put(self._key_of_use(name), now, 0)

    def _read(self, fragment: lance.LanceFragment, name: str, most_bytes: int) -> pa.Array | None:
        """Return a column of a fragment; None if it has more bytes, since other rows are larger."""
        found, nbytes, rows = [], 0, 0
        for batch in fragment.scanner(columns=[name], batch_size=BATCH_ROWS).to_batches():
            found.append(batch.column(0))
            nbytes, rows = nbytes + batch.nbytes, rows + batch.num_rows
            if nbytes > most_bytes:
                # What the rows are like is known better now.
                self.source.engine.cache.put(self._key_of_use(name), _LookedUp(rows, nbytes), 0)
                return None
        return pa.chunked_array(found, self._types[name]).combine_chunks()

    def _is_due(self, name: str, held: Sequence[pa.Array | None]) -> bool:
        cache = self.source.engine.cache
        known = cache.get(self._key_of_use(name))
        if known is None or not known.rows:
            return False
        rows = [fragment.physical_rows for fragment in self._fragments]
        unread = sum(count for count, one in zip(rows, held, strict=True) if one is None)
        if known.rows * _SCANNED_FOR_ONE < unread:
            return False
        size: int = known.nbytes * sum(rows) // known.rows
        return size <= self._most_bytes

    @property
    def _most_bytes(self) -> int:
        return min(_LARGEST_BYTES, self.source.engine.cache.budget // _PARTS_OF_CACHE)

    def _is_plain(self, name: str) -> bool:
        """Whether a column is a field, and looked up as it is scanned."""
        kind = self._types.get(name)
        return kind is not None and bool(pa.types.is_primitive(kind) or pa.types.is_string(kind))

    def _keys(self, name: str) -> list[tuple[object, ...]]:
        number = self._numbers[name]
        return [("column", self.source.uri, files, name, number) for files in self._files]

    def _key_of_use(self, name: str) -> tuple[object, ...]:
        return "looked up", self.source.uri, self.source.version, name

    @cached_property
    def _types(self) -> dict[str, pa.DataType]:
        return {field.name: field.type for field in self.source.opened().schema}

    @cached_property
    def _numbers(self) -> dict[str, int]:
        """The id of every field: one that was dropped may have had the name of another."""
        return {field.name(): field.id() for field in self.source.opened().lance_schema.fields()}

    @cached_property
    def _files(self) -> list[tuple[str, ...]]:
        return [tuple(file.path for file in one.metadata.files) for one in self._fragments]

    @cached_property
    def _fragments(self) -> list[lance.LanceFragment]:
        """The fragments of the dataset, by id; none if its row ids do not tell where in them a row is."""
        dataset = self.source.opened()
        if dataset.has_stable_row_ids or self.source.is_gone:
            return []
        # Counted first: to list 5,000 with what they have takes 25 ms.
        if dataset.stats.dataset_stats()["num_fragments"] > _MOST_FRAGMENTS:
            return []
        found = sorted(dataset.get_fragments(), key=lambda one: one.fragment_id)
        plain = all(one.metadata.deletion_file is None and not one.metadata.overlays for one in found)
        return found if plain else []
