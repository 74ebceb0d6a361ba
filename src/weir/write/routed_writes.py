"""Routed writes: queued, awaited, and routed again if the table is resharded."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from uuid import UUID

import pyarrow as pa

from weir.errors import BackpressureError, FencedError, InputError, ShardSealedError, WeirError
from weir.format.source import Source
from weir.sharding.shard_values import ShardValues
from weir.write.columns import FollowedColumns, TableColumns
from weir.write.decision.operation import Operation, Undecided
from weir.write.decision.prepare import routed_by_shard
from weir.write.former_shards import FormerShards
from weir.write.group_commit import PendingWrite
from weir.write.memtable.backpressure import UnflushedBytes
from weir.write.shard_pool import ShardPool
from weir.write.shard_writer import ShardWriter
from weir.write.write_result import WriteResult, together, with_answer

__all__ = ["FENCED", "Known", "PartsAfter", "Routed", "RoutedWrites", "WriterParts", "one_batch"]

Routed = tuple[ShardValues, pa.RecordBatch | Undecided]

_Write = tuple[ShardWriter, PendingWrite]

# A write that failed because its writer was fenced was not made.
FENCED = (FencedError, ShardSealedError)


@dataclass(frozen=True, slots=True)
class WriterParts:
    """The parts of a table writer under one shard rule.

    Parameters
    ----------
    spec_id : int
        The shard spec.
    columns : FollowedColumns
        The table's columns, its primary key, and what splits its rows by shard.
    shards : ShardPool
        The shards that were claimed.
    former : FormerShards
        Those of former rules.
    """

    spec_id: int
    columns: FollowedColumns
    shards: ShardPool
    former: FormerShards

    def shards_of(self, writes: Sequence[Routed]) -> list[ShardWriter]:
        """Return the writers of the shards of some writes, claiming new ones first."""
        try:
            return [self.shards.open[values] for values, _ in writes]
        except KeyError:
            return self.shards.of([values for values, _ in writes])

    def rerouted(self, writes: Sequence[Routed], *, whole: bool) -> list[Routed]:
        """Return writes that were split by a former rule, split by this one.

        Parameters
        ----------
        writes : sequence of (ShardValues, RecordBatch or Undecided)
            In the order in which they count.
        whole : bool
            Whether the rows of a shard have to be in one batch.
        """
        columns = self.columns.current()
        batches = [write for _, write in writes if isinstance(write, pa.RecordBatch)]
        undecided = [write for _, write in writes if isinstance(write, Undecided)]
        if whole and batches:
            routed: list[Routed] = [
                one_batch(item) for item in columns.router.route(pa.Table.from_batches(batches))
            ]
        else:
            routed = [item for batch in batches for item in columns.router.route(batch)]
        operations: dict[ShardValues, list[Operation]] = {}
        for write in undecided:
            for operation in write.operations:
                routed_by_shard(operation, columns, operations)
        routed += [
            (values, Undecided(tuple(own), undecided[0].schema, undecided[0].all_or_nothing))
            for values, own in operations.items()
        ]
        return routed

    def not_done(self, writes: Sequence[Routed], source: Source) -> list[Routed]:
        """Return the rest of a repeatable write, without the rows that former shards already have."""
        left: list[Routed] = []
        for values, write in writes:
            if isinstance(write, Undecided):
                operations = tuple(
                    operation.with_rows(rows)
                    for operation in write.operations
                    if (rows := self._not_done(operation.rows, source)).num_rows
                )
                if operations:
                    left.append((values, Undecided(operations, write.schema, write.all_or_nothing)))
            elif (rows := self._not_done(write, source)).num_rows:
                left.append((values, rows))
        return left

    def _not_done(self, rows: pa.RecordBatch, source: Source) -> pa.RecordBatch:
        pending = self.former.pending(rows, source)
        return rows if pending is None else rows.filter(pa.array(pending))


PartsAfter = Callable[[WriterParts], WriterParts | None]
"""Returns the parts of a table that is sharded by another rule by now; None if it is not."""


Known = Callable[[FormerShards], WriteResult | None]
"""Returns what shards of former rules have done of a single write."""


@dataclass(frozen=True, slots=True)
class _Queued:
    """Writes that wait for their log entries: what each is, and where it is queued, in the same order."""

    parts: WriterParts
    columns: TableColumns
    routed: Sequence[Routed]
    writes: list[_Write]
    source: Source | None


class RoutedWrites:
    """The writes of a table writer, across changes of the shard rule.

    Parameters
    ----------
    parts : WriterParts
        The initial parts.
    parts_after : callable
        Returns the new parts once the table is resharded.
    """

    def __init__(self, parts: WriterParts, parts_after: PartsAfter) -> None:
        self.parts = parts
        self._parts_after = parts_after
        self._following = threading.Lock()

    def write(
        self,
        columns: TableColumns,
        routed: Sequence[Routed],
        source: Source | None = None,
        spec_id: int | None = None,
        known: Known | None = None,
    ) -> WriteResult:
        """Write rows and wait for them; those too late for their shards go to the new ones.

        Parameters
        ----------
        columns : TableColumns
            What the rows were checked by.
        routed : sequence of (ShardValues, RecordBatch or Undecided)
            In the order in which they count. All of them are queued, or on an error none.
        source : Source, optional
            Makes the write repeatable.
        spec_id : int, optional
            The shard spec that they were routed by. Default: that of the columns.
        known : callable, optional
            Tells what was done of the write before the table was sharded by this rule.
        """
        return self._done(self._enqueued(columns, routed, source, spec_id), known)

    def write_each(
        self, columns: TableColumns, writes: Sequence[tuple[Sequence[Routed], Source, Known | None]]
    ) -> list[WriteResult | WeirError]:
        """Make several writes with separate marks, each as by :meth:`write`, and wait for all at the end.

        So what goes to one shard shares a log entry.

        Returns
        -------
        list of WriteResult or WeirError
            What became of each.
        """
        queued: list[_Queued | WeirError] = []
        for routed, source, _ in writes:
            try:
                queued.append(self._enqueued(columns, routed, source, None))
            except BackpressureError as error:
                # Each of those after it would wait for as long, one behind the other.
                queued += [error.again() for _ in range(len(writes) - len(queued))]
                break
            except WeirError as error:
                queued.append(error)
        outcomes: list[WriteResult | WeirError] = []
        for one, (_, _, known) in zip(queued, writes, strict=True):
            try:
                outcomes.append(one if isinstance(one, WeirError) else self._done(one, known))
            except WeirError as error:
                outcomes.append(error)
        return outcomes

    def write_together(
        self, columns: TableColumns, routed: Routed, parts_of: Sequence[tuple[int, Source]]
    ) -> list[WriteResult] | None:
        """Make several single writes to one shard as one, which takes little longer than one of them.

        Parameters
        ----------
        columns : TableColumns
            What the rows were checked by.
        routed : (ShardValues, RecordBatch)
            The rows of all of them.
        parts_of : sequence of (int, Source)
            For each in turn, its number of rows and its mark.

        Returns
        -------
        list of WriteResult or None
            What came of each. None if nothing was written, and each has to be made by itself: the shard has
            one of them already, or the table is, or was, sharded by another rule.
        """
        parts, (values, write) = self.parts, routed
        if parts.spec_id != columns.router.spec.spec_id or parts.former.exist:
            return None
        sources = [source for _, source in parts_of]
        try:
            (shard,) = parts.shards.of([values])
            pending = shard.prepare(write, sources, schema=columns.row_schema)
            parts.columns.look_if_due(parts.shards.start)
            _admit([(shard, pending)])
            pending.enqueue()
            position = pending.result()
        except FENCED:
            return None
        if pending.deduplicated:
            return None
        return [WriteResult(rows, {shard.shard_id: position}) for rows, _ in parts_of]

    def _done(self, queued: _Queued, known: Known | None) -> WriteResult:
        """Wait for queued writes; those too late for their shards go to the new ones."""
        before = None if known is None else known(queued.parts.former)
        try:
            written = self._waited_for(queued.writes)
        except FENCED as error:
            failed = [write for _, write in queued.writes if write.error is not None]
            other = next((one.error for one in failed if not isinstance(one.error, FENCED)), None)
            if other is not None:
                raise other from None
            self.follow(queued.parts, error)
            late = [
                item
                for item, (_, write) in zip(queued.routed, queued.writes, strict=True)
                if write.error is not None
            ]
            if any(isinstance(write, Undecided) and write.since is not None for _, write in late):
                raise  # the rows of changes by filter would have to be searched again
            if len(late) == len(queued.writes):
                # The shards that it was too late for may have it from before: now they are asked too.
                return self.write(queued.columns, late, queued.source, queued.parts.spec_id, known)
            done = _result([one for one in queued.writes if one[1].error is None])
            rest = self.write(queued.columns, late, queued.source, queued.parts.spec_id)
            written = with_answer(rest, done)
        return written if before is None else with_answer(written, before)

    def write_later(
        self,
        columns: TableColumns,
        routed: Sequence[Routed],
        source: Source | None = None,
        known: Known | None = None,
    ) -> Future[WriteResult]:
        """Queue rows as :meth:`write` does, without waiting. What comes too late for its shards fails."""
        queued = self._enqueued(columns, routed, source, None)
        before = None if known is None else known(queued.parts.former)
        written = self._future_of(queued.writes)
        return written if before is None else with_answer(written, before)

    def follow(self, parts: WriterParts, error: WeirError) -> WriterParts:
        """Return the new parts if the table was resharded; otherwise raise the error."""
        with self._following:
            if self.parts is not parts:
                return self.parts
            parts.shards.refuse_if_closed()
            after = self.parts_after(parts, error)
            self.parts = after
        parts.shards.abandon()
        return after

    def parts_after(self, parts: WriterParts, error: WeirError) -> WriterParts:
        """Return what comes after some parts, without going by it; raise the error if nothing does."""
        try:
            after = self._parts_after(parts)
        except WeirError as another:
            raise error from another
        if after is None:
            raise error
        return after

    def _enqueued(
        self, columns: TableColumns, routed: Sequence[Routed], source: Source | None, spec_id: int | None
    ) -> _Queued:
        """Queue writes at their shards: all of them, or on an error none."""
        split_by = columns.router.spec.spec_id if spec_id is None else spec_id
        marks = () if source is None else (source,)
        while True:
            parts = self.parts
            if parts.spec_id != split_by:
                routed, split_by = parts.rerouted(routed, whole=source is not None), parts.spec_id
            try:
                shards = parts.shards_of(routed)
                if source is not None:
                    # Only now, that there are shards of this rule, those of former ones get nothing more.
                    routed = parts.not_done(routed, source)
                    shards = parts.shards_of(routed)
                prepared = [
                    (shard, shard.prepare(write, marks, schema=columns.row_schema))
                    for shard, (_, write) in zip(shards, routed, strict=True)
                ]
            except FENCED as error:
                self.follow(parts, error)
                continue
            parts.columns.look_if_due(parts.shards.start)
            _admit(prepared)
            for _, pending in prepared:
                pending.enqueue()
            return _Queued(parts, columns, routed, prepared, source)

    def _waited_for(self, queued: list[_Write]) -> WriteResult:
        """Wait for writes; for a single one without another thread, so that the caller can lead its group."""
        if len(queued) != 1:
            # Each shard gets its rows in order; shards wait for their storage concurrently.
            return self._future_of(queued).result()
        queued[0][1].result()
        return _result(queued)

    def _future_of(self, queued: list[_Write]) -> Future[WriteResult]:
        shards = self.parts.shards
        waiting = [shards.start(pending.result) for _, pending in queued]
        return _future_result(queued, waiting)


def _result(written: Sequence[_Write]) -> WriteResult:
    """Return the result of writes that are durable."""
    positions: dict[UUID, int] = {}
    deduplicated: list[UUID] = []
    rows = 0
    decided: list[Undecided] = []
    for shard, pending in written:
        position = pending.position
        if pending.deduplicated:
            deduplicated.append(shard.shard_id)
            position = pending.answered_at
            if position is None:
                continue
        rows += pending.rows
        if position:
            positions[shard.shard_id] = max(positions.get(shard.shard_id, 0), position)
        if pending.undecided is not None:
            decided.append(pending.undecided)
    if not decided:
        return WriteResult(rows, positions, tuple(deduplicated))
    done, skipped = together([one.done for one in decided]), together([one.skipped for one in decided])
    return WriteResult(rows, positions, tuple(deduplicated), done, skipped)


def _future_result(written: Sequence[_Write], waiting: Sequence[Future[int]]) -> Future[WriteResult]:
    """Return a future of :func:`_result`, done when the last of those is that wait for the writes."""
    whole: Future[WriteResult] = Future()
    whole.set_running_or_notify_cancel()
    left = len(waiting)
    lock = threading.Lock()

    def settle(_: object) -> None:
        nonlocal left
        with lock:
            left -= 1
            if left > 0:
                return
        error = next((error for one in waiting if (error := one.exception()) is not None), None)
        if error is not None:
            whole.set_exception(error)
        else:
            whole.set_result(_result(written))

    if not waiting:
        settle(None)
    for future in waiting:
        future.add_done_callback(settle)
    return whole


def _admit(prepared: Sequence[_Write]) -> None:
    """Wait until there is room for all writes. A shard that is shared counts for who has claimed it."""
    wanted: dict[UnflushedBytes, int] = {}
    for shard, pending in prepared:
        wanted[shard.unflushed] = wanted.get(shard.unflushed, 0) + pending.held_bytes
    admitted: list[tuple[UnflushedBytes, int]] = []
    try:
        for limit, nbytes in wanted.items():
            limit.admit(nbytes)
            admitted.append((limit, nbytes))
    except BaseException:
        for limit, nbytes in admitted:
            limit.failed(nbytes)
        raise


def one_batch(item: tuple[ShardValues, pa.Table]) -> tuple[ShardValues, pa.RecordBatch]:
    """Return the rows of a shard as one batch.

    Raises
    ------
    InputError
        If they are more than one log entry holds.
    """
    values, rows = item
    batches = rows.combine_chunks().to_batches()
    if len(batches) > 1:
        raise InputError(
            f"the {rows.num_rows} rows for one shard are more than one log entry can hold: a text or binary "
            "column has more than 2 GiB",
            where=str(values) or None,
            hint="Write them in parts, each with its own number",
        )
    return values, batches[0]
