"""A read plan as a value: which sources are read and how, and which were pruned and why.

A plan consists of small, stateless tasks that can be pickled, so that this process or a cluster can run them
without anything else.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Any

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from weir.base.wide_scan import asked_columns, scanned_batches
from weir.engine.cancellation import check_cancelled
from weir.errors import CorruptionError
from weir.format.resolution import Resolution
from weir.lsm.damage import reading
from weir.lsm.dataset_handle import DatasetHandle
from weir.lsm.deletion_mask import DeletionMask, without_places
from weir.lsm.filters import matching_rows, named_columns
from weir.lsm.plain_filter import plain_matches
from weir.lsm.read_along import MOST_BYTES
from weir.lsm.strategy import TermStrategy
from weir.lsm.whole_rows import are_plain
from weir.read.begun_scan import BATCH_ROWS, BegunScan
from weir.storage.interface import ObjectStore

__all__ = ["LOOKED_UP", "MANY_DEAD", "DatasetTask", "Pruned", "Purpose", "RowsTask", "ScanPlan", "ScanTask"]

LOOKED_UP = "found"
"""How rows of keys were come by."""

MANY_DEAD = 32
"""Dead rows from which on a block list takes longer than what else a scan of few rows does."""
_FEW_ROWS = 1_000
"""Rows of a limit up to which twice as many may be read."""


class Purpose(Enum):
    """What a scan is planned for."""

    ROWS = auto()
    TABLE = auto()
    """All rows at once."""
    COUNT = auto()
    """The number of rows, without their columns."""
    EXPLAIN = auto()
    """The rows, and an explanation of how the filter is evaluated in each source."""


@dataclass(frozen=True, slots=True)
class DatasetTask:
    """Read part of a Lance dataset: the base table or a flushed generation.

    Parameters
    ----------
    label : str
        Name for people.
    source : DatasetHandle
        The dataset.
    columns : tuple of str
        Columns to return.
    filter : str or None
        Only rows that match.
    mask : DeletionMask
        Rows that are dead: replaced or deleted by newer ones.
    limit : int or None
        Rows after which to stop.
    strategies : tuple of TermStrategy, default ()
        How each term of the filter is evaluated, for explanations.
    fragments : tuple of int or None, default None
        Ids of the fragments to read. None for all.
    resolution : Resolution or None, default None
        How the table's columns are made of those of the dataset, which was written under another schema.
        None where those asked for are the same.
    is_total : bool, default False
        Whether the filter has a value for every row, also for dead ones.
    remembered : hashable, optional
        Under what its live rows are kept in the cache of the process, of a small source: a scan of few rows
        takes no time but that of its beginning.
    named : tuple of str, default ()
        The columns that the filter may name, where rows are remembered.
    """

    label: str
    source: DatasetHandle
    columns: tuple[str, ...]
    filter: str | None
    mask: DeletionMask = field(repr=False)
    limit: int | None
    strategies: tuple[TermStrategy, ...] = ()
    fragments: tuple[int, ...] | None = None
    resolution: Resolution | None = field(default=None, repr=False)
    is_total: bool = False
    remembered: Hashable = field(default=None, repr=False)
    named: tuple[str, ...] = field(default=(), repr=False)

    def _scanned_fragments(self) -> list[lance.LanceFragment] | None:
        if self.fragments is None:
            return None
        wanted = set(self.fragments)
        return [one for one in self.source.opened().get_fragments() if one.fragment_id in wanted]

    def _options(self, limit: int | None) -> dict[str, Any]:
        return {
            "filter": self.filter,
            "limit": limit,
            "fragments": self._scanned_fragments(),
        }

    @property
    def _reads_dead_rows(self) -> bool:
        """Whether dead rows are read too, and left out of what is found.

        A block list takes the library a third of a microsecond for each dead row, for whatever it finds.
        """
        if len(self.mask) < MANY_DEAD or not (self.filter is None or self.is_total):
            return False
        return 2 * len(self.mask) <= self.source.opened().count_rows()

    def _live_rows(
        self, columns: Sequence[str], limit: int | None = None, *, with_row_id: bool = False, **others: Any
    ) -> Iterator[pa.RecordBatch]:
        """Yield the live rows that match, at most ``limit``; without columns their row ids."""
        dataset = self.source.opened()
        options, with_row_id = {**self._options(limit), **others}, with_row_id or not columns
        if self._reads_dead_rows and (limit is None or limit <= _FEW_ROWS):
            if limit is None:
                read = scanned_batches(dataset, columns, with_row_id=True, **options)
                yield from (self.mask.remove_from(batch, with_row_id=with_row_id) for batch in read)
                return
            # Some more than are wanted, since a few of them may be dead.
            options["limit"] = most = 2 * limit + MANY_DEAD
            found = list(scanned_batches(dataset, columns, with_row_id=True, **options))
            live = [self.mask.remove_from(batch, with_row_id=with_row_id) for batch in found]
            if _count(found) < most or _count(live) >= limit:
                yield from pa.Table.from_batches(live).slice(0, limit).to_batches() if live else ()
                return
            options = {**self._options(limit), **others}
        options["row_addr_blocklist"] = self.mask.serialized
        yield from scanned_batches(dataset, columns, with_row_id=with_row_id, **options)

    def first_columns(self, columns: Sequence[str]) -> pa.Table:
        """Return some columns of the rows, and ``_rowid`` for reading the others later.

        For a dataset that has the table's own columns.
        """
        with reading(self.label, self.source.uri, self.filter):
            found = list(self._live_rows(columns, with_row_id=True, batch_size=BATCH_ROWS))
            if found:
                return pa.Table.from_batches(found)
            return self._nothing(columns, with_row_id=True)

    def split(self, rows: int) -> Iterator[tuple[DatasetTask, int]]:
        """Yield tasks that together read the same rows, each with its number of rows.

        A fragment is never divided; small ones that follow each other are read together. No file is
        read for it. A task with a limit stays whole, as does a dataset without fragments.

        Parameters
        ----------
        rows : int
            Rows after which a task ends.
        """
        dataset = self.source.opened()
        fragments = dataset.get_fragments() if self.fragments is None else self._scanned_fragments()
        if not fragments or self.limit is not None:
            yield self, sum(one.metadata.num_rows for one in fragments or ())
            return
        # A stable row id does not say which fragment the row is in.
        by_fragment = not dataset.has_stable_row_ids
        group: list[int] = []
        count = 0
        for fragment in fragments:
            following = fragment.metadata.num_rows
            if group and count + following > rows:
                yield self._part(group, by_fragment), count
                group, count = [], 0
            group.append(fragment.fragment_id)
            count += following
        yield self._part(group, by_fragment), count

    def _part(self, fragments: list[int], by_fragment: bool) -> DatasetTask:
        mask = self.mask.in_fragments(fragments) if by_fragment else self.mask
        return replace(self, fragments=tuple(fragments), mask=mask, remembered=None)

    def batches(self, limit: int | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows, at most ``limit``."""
        limit = limit if limit is not None else self.limit
        known = self._known_rows(read=True)
        if known is not None:
            yield from known.slice(0, limit).to_batches()
            return
        with reading(self.label, self.source.uri, self.filter):
            resolution = self.resolution
            rows = self._batches(limit) if resolution is None else self._resolved(resolution, limit)
            for batch in rows:
                check_cancelled()
                yield batch

    def _batches(self, limit: int | None) -> Iterator[pa.RecordBatch]:
        if self.filter is not None or limit is not None or not self.columns or not len(self.mask):
            yield from self._live_rows(self.columns, limit)
            return
        dataset = self.source.opened()
        places = self.mask.places_in(dataset) if self.fragments is None else None
        batches = scanned_batches(
            dataset,
            self.columns,
            with_row_id=places is None,
            batch_size=BATCH_ROWS,
            scan_in_order=True,
            fragments=self._scanned_fragments(),
        )
        if places is None:
            yield from map(self.mask.remove_from, batches)
            return
        yield from self._without_places(dataset, batches, places, map)

    def _without_places(
        self,
        dataset: lance.LanceDataset,
        batches: Iterable[pa.RecordBatch],
        places: npt.NDArray[np.int64],
        apply: Callable[..., Iterator[pa.RecordBatch]],
    ) -> Iterator[pa.RecordBatch]:
        """Yield all rows of the dataset that do not stand at some places."""
        count = 0

        def with_start() -> Iterator[tuple[pa.RecordBatch, int]]:
            nonlocal count
            for batch in batches:
                check_cancelled()
                count += batch.num_rows
                yield batch, count - batch.num_rows

        yield from apply(lambda each: without_places(each[0], each[1], places), with_start())
        if count != (counted := dataset.count_rows()):
            raise CorruptionError(
                f"{count} rows were read of {counted} that the manifest counts", where=self.source.uri
            )

    def table_of(self, begun: BegunScan, threads: Executor) -> pa.Table:
        """Return the rows, of those that are being read.

        Parameters
        ----------
        begun : BegunScan
            All rows of the dataset, of these columns.
        threads : Executor
            These leave out the dead rows.
        """
        with reading(self.label, self.source.uri):
            dataset = self.source.opened()
            places = self.mask.places_in(dataset)
            assert places is not None
            return pa.Table.from_batches(
                list(self._without_places(dataset, begun.batches(), places, threads.map))
            )

    def _resolved(self, resolution: Resolution, limit: int | None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a dataset that has the columns of another schema.

        A filter is for the dataset to answer if it has all that it names, and else for the rows as they are
        then.
        """
        named = named_columns(self.filter, resolution.schema)
        pushed = self.filter is not None and resolution.is_same(named)
        read = resolution.select(self.columns if pushed else list(dict.fromkeys([*self.columns, *named])))
        batches = self._live_rows(
            read.source_names,
            with_row_id=True,
            filter=self.filter if pushed else None,
            scan_in_order=True,
            batch_size=BATCH_ROWS,
        )
        left = limit
        for batch in batches:
            if left is not None and left <= 0:
                return
            # For a column that the dataset lacks, the row ids give the number of rows.
            rows = read.apply(batch, where=self.source.uri)
            if self.filter is not None and not pushed and batch.num_rows:
                kept = matching_rows(pa.Table.from_batches([rows]), self.filter)
                rows, batch = rows.take(pa.array(kept)), batch.take(pa.array(kept))
            rows = rows.select(list(self.columns)) if self.columns else batch.select(["_rowid"])
            rows = rows.slice(0, left)
            left = None if left is None else left - rows.num_rows
            yield rows

    def known(self) -> pa.Table | None:
        """Return the rows if nothing has to be read for them."""
        known = self._known_rows(read=False)
        return None if known is None else known.slice(0, self.limit)

    def table(self, limit: int | None = None) -> pa.Table:
        """Return the rows, at most ``limit``."""
        known = self._known_rows(read=True)
        if known is not None:
            return known.slice(0, limit if limit is not None else self.limit)
        batches = list(self.batches(limit))
        if batches:
            rows = pa.Table.from_batches(batches)
            if limit is None:
                self.remember(rows)
            return rows
        if self.resolution is not None:
            return self.resolution.select(self.columns).schema.empty_table()
        return self._nothing(self.columns)

    def _nothing(self, columns: Sequence[str], *, with_row_id: bool = False) -> pa.Table:
        """Return no rows, of some columns."""
        dataset = self.source.opened()
        if columns and not with_row_id and are_plain(dataset.schema, columns):
            return pa.schema([dataset.schema.field(name) for name in columns]).empty_table()
        # It takes the library as long as a scan to say what columns there are.
        scanner = dataset.scanner(columns=list(columns), with_row_id=with_row_id or not columns)
        return scanner.projected_schema.empty_table()

    def _known_rows(self, *, read: bool) -> pa.Table | None:
        """Return the rows, if they are found among those in the cache.

        With ``read``, those of a small source are read to be kept there.
        """
        # Missing files, as after restoring a backup, must not be shown.
        if self.remembered is None or not self.columns or self.source.is_gone:
            return None
        if self.filter is not None:
            return self._filtered_in_memory(self.filter, read)
        known = self.source.engine.cache.get((self.remembered, self.columns))
        return known if isinstance(known, pa.Table) else None

    def _filtered_in_memory(self, filter: str, read: bool) -> pa.Table | None:
        """Return the rows, found among all live ones, which are read once; None if a filter is not plain."""
        needed = tuple(dict.fromkeys([*self.columns, *self.named]))
        whole = replace(self, columns=needed, filter=None, limit=None)
        rows = whole._known_rows(read=False)
        if rows is None:
            schema = self.source.opened().schema
            one_row = pa.Table.from_pylist([{}], pa.schema(map(schema.field, self.named)))
            if not read or plain_matches(one_row, filter) is None:
                return None
            rows = whole.table()
        matching = plain_matches(rows.select(list(self.named)), filter)
        if matching is None and rows.num_rows:
            return None
        rows = rows.select(list(self.columns))
        return rows if matching is None else rows.take(pa.array(matching))

    def remember(self, rows: pa.Table) -> None:
        """Keep all its rows in the cache, if they are few."""
        is_whole = self.filter is None and self.limit is None
        if self.remembered is not None and is_whole and self.columns and rows.nbytes <= MOST_BYTES:
            self.source.engine.cache.put((self.remembered, self.columns), rows, rows.nbytes)

    def count(self) -> int:
        """Return how many rows there are."""
        if self.resolution is not None and self.filter is not None:
            return _count(self.batches())
        with reading(self.label, self.source.uri, self.filter):
            if self._reads_dead_rows:
                return _count(self._live_rows(()))
            dataset = self.source.opened()
            scanner = dataset.scanner(
                columns=asked_columns(dataset, self.columns),
                with_row_id=not self.columns,
                row_addr_blocklist=self.mask.serialized,
                **self._options(None),
            )
            return int(scanner.count_rows())

    def describe(self) -> str:
        """Return one line for people."""
        text = f"{self.label}: read {', '.join(self.columns) or 'no columns'}"
        if self.filter:
            text += f" where {self.filter}"
        if self.strategies:
            text += f" by {', '.join(map(str, self.strategies))}"
        return f"{text}, {_rows(len(self.mask))} superseded or deleted"


@dataclass(frozen=True, slots=True)
class RowsTask:
    """Return rows that planning has come by: live rows of a shard's WAL tail, or those of keys.

    Parameters
    ----------
    label : str
        Name for people.
    rows : Table
        The rows, filtered and projected.
    considered : int
        How many rows were examined.
    how : str, default "in memory"
        How they were come by.
    """

    label: str
    rows: pa.Table = field(repr=False)
    considered: int
    how: str = "in memory"

    @property
    def is_looked_up(self) -> bool:
        """Whether they are those of some keys, which were read for this plan."""
        return self.how == LOOKED_UP

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the rows as an Arrow stream, which of a slice has no more than it shows."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, self.rows.schema) as stream:
            stream.write_table(self.rows)
        return _rows_task, (self.label, sink.getvalue().to_pybytes(), self.considered, self.how)

    def split(self, nbytes: int) -> Iterator[RowsTask]:
        """Yield tasks that together return the same rows, each with at most about this many bytes."""
        length = max(self.rows.num_rows * nbytes // max(self.rows.nbytes, 1), 1)
        for start in range(0, self.rows.num_rows, length):
            part = self.rows.slice(start, length)
            yield RowsTask(self.label, part, part.num_rows, self.how)

    def batches(self, limit: int | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows, at most ``limit``."""
        yield from self.table(limit).to_batches()

    def known(self) -> pa.Table | None:
        """Return the rows: nothing has to be read for them."""
        return self.rows

    def table(self, limit: int | None = None) -> pa.Table:
        """Return the rows, at most ``limit``."""
        return self.rows if limit is None else self.rows.slice(0, limit)

    def count(self) -> int:
        """Return how many rows there are."""
        return int(self.rows.num_rows)

    def describe(self) -> str:
        """Return one line for people."""
        return f"{self.label}: {self.rows.num_rows:,} of {_rows(self.considered)} {self.how}"


def _rows_task(label: str, stream: bytes, considered: int, how: str) -> RowsTask:
    return RowsTask(label, pa.ipc.open_stream(stream).read_all(), considered, how)


ScanTask = DatasetTask | RowsTask


@dataclass(frozen=True, slots=True)
class Pruned:
    """A source that was not read.

    Parameters
    ----------
    label : str
        Name for people.
    reason : str
        Why it cannot contain matching rows.
    rows, nbytes : int or None, default None
        Rows skipped for it, and their bytes in memory; None if unknown.
    """

    label: str
    reason: str
    rows: int | None = None
    nbytes: int | None = None

    def describe(self) -> str:
        """Return one line for people."""
        text = f"pruned {self.label}: {self.reason}"
        if self.rows is not None:
            text += f", {_rows(self.rows)} skipped"
        if self.nbytes:
            text += f", {self.nbytes:,} bytes"
        return text


@dataclass(frozen=True, slots=True)
class ScanPlan:
    """What a scan will do.

    Parameters
    ----------
    schema : Schema
        Schema of the result.
    tasks : tuple of DatasetTask or RowsTask
        Each source's part; together they hold every live row that matches exactly once.
    pruned : tuple of Pruned
        What was left out.
    limit : int or None
        Rows after which to stop.
    header : str
        The read as a whole, as text.
    store : ObjectStore
        Where the table is; the threads that wait for it read.
    begun : BegunScan, optional
        The rows of the first task, dead ones too, which are being read already.
    """

    schema: pa.Schema
    tasks: tuple[ScanTask, ...]
    pruned: tuple[Pruned, ...]
    limit: int | None
    header: str
    store: ObjectStore = field(repr=False, compare=False)
    begun: BegunScan | None = field(default=None, repr=False, compare=False)

    def describe(self) -> str:
        """Return the plan as text, one source per line."""
        lines = [self.header]
        lines += [f"  {task.describe()}" for task in self.tasks]
        lines += [f"  {one.describe()}" for one in self.pruned]
        return "\n".join(lines)


def _count(batches: Iterable[pa.RecordBatch]) -> int:
    return sum(batch.num_rows for batch in batches)


def _rows(count: int) -> str:
    return f"{count:,} row{'' if count == 1 else 's'}"
