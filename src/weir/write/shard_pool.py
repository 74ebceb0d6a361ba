"""The shards that a table writer has claimed, and what they have in common: threads, a lease, limits."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Executor, Future
from typing import ParamSpec, TypeVar
from uuid import UUID

from weir.config import WriterOptions
from weir.engine.concurrent_map import concurrent_map
from weir.engine.context import EngineContext
from weir.errors import WriterClosedError, WriterError
from weir.sharding.shard_values import ShardValues
from weir.write.lease.heartbeat import Heartbeat, lease_renewals
from weir.write.memtable.backpressure import MergeBacklog, UnflushedBytes
from weir.write.shard_context import ShardContext
from weir.write.shard_writer import ShardWriter

__all__ = ["ShardPool"]

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


class ShardPool:
    """The shards of one table writer. Each is claimed when it is first asked for.

    Safe to use from many threads, and by the process alone that made it.

    Parameters
    ----------
    find_shards : callable
        Returns which shards hold, or will hold, the rows with some shard values.
    make_context : callable
        Returns what the shards have in common, of who flushes, who renews the leases, and the backlog.
    options : WriterOptions
        Limits.
    where : str
        The table, for errors.
    merge_progress : callable
        Reads from the base table how far merges have got; returns what gives the newest merged
        generation of a shard.
    engine : EngineContext
        Whose threads and limits it shares with other tables.

    Attributes
    ----------
    unflushed : UnflushedBytes
        Bounds the memory of the rows of all shards together.
    """

    def __init__(
        self,
        find_shards: Callable[[Collection[ShardValues]], Mapping[ShardValues, UUID]],
        make_context: Callable[[Executor, Heartbeat, MergeBacklog], ShardContext],
        options: WriterOptions,
        *,
        where: str,
        merge_progress: Callable[[], Callable[[UUID], int]],
        engine: EngineContext,
    ) -> None:
        self.engine = engine
        self._find_shards = find_shards
        self._writers: dict[ShardValues, ShardWriter] = {}
        self._opening = threading.Lock()
        self._closed = False
        self._process_id = os.getpid()
        self._heartbeat = Heartbeat(renewals=lease_renewals(engine))
        backlog = MergeBacklog(
            options.max_unmerged_generations,
            timeout=options.backpressure_timeout,
            where=where,
            merge_progress=merge_progress,
        )
        self._context = make_context(engine.executors.flushes, self._heartbeat, backlog)
        self.unflushed: UnflushedBytes = self._context.unflushed
        # A writer that is dropped without being closed lets its leases run out; here they are free at once.
        self._on_collection = weakref.finalize(self, self._heartbeat.abandon)
        self._on_collection.atexit = False

    @property
    def by_values(self) -> Mapping[ShardValues, ShardWriter]:
        """The writers of the shards that have been claimed so far, by their shard values."""
        return dict(self._writers)

    @property
    def writers(self) -> list[ShardWriter]:
        """The writers of the shards that have been claimed so far."""
        return list(self._writers.values())

    def of(self, wanted: Collection[ShardValues]) -> list[ShardWriter]:
        """Return the writers of shards; those that are not ours yet are claimed first.

        Raises
        ------
        WriterClosedError
            If the writer was closed meanwhile, and a shard would have to be claimed.
        LeaseHeldError
            If another writer holds the lease of a shard.
        """
        if any(values not in self._writers for values in wanted):
            with self._opening:
                # Whoever closes the writer closes the shards that are open by then.
                self.refuse_if_closed()
                self._claim([values for values in dict.fromkeys(wanted) if values not in self._writers])
        return [self._writers[values] for values in wanted]

    def _claim(self, missing: list[ShardValues]) -> None:
        shard_ids = self._find_shards(missing)

        def claim(values: ShardValues) -> None:
            self._writers[values] = ShardWriter(self._context, shard_ids[values], values.to_manifest())

        if len(missing) == 1:
            claim(missing[0])
            return
        # A claim is a score of round trips, one after the other; on a local disk it waits for that.
        for _ in concurrent_map(claim, missing, is_local=False, engine=self.engine):
            pass

    def start(
        self,
        action: Callable[_Arguments, _Result],
        *arguments: _Arguments.args,
        **named: _Arguments.kwargs,
    ) -> Future[_Result]:
        """Run something that waits for the storage of one shard, beside what does so for others."""
        return _run(self.engine.executors.writes, action, *arguments, **named)

    def for_each(self, action: Callable[[ShardWriter], None]) -> None:
        """Do something with every shard, side by side; raise the first error when all have come to an end."""
        futures = [self.start(action, shard) for shard in self.writers]
        errors = [error for future in futures if (error := future.exception()) is not None]
        if errors:
            raise errors[0]

    def close(self) -> None:
        """Close every shard, and claim no more. In a forked process the shards are its parent's."""
        if self._is_of_another_process():
            self._closed = True
            return
        self._refuse_more()
        try:
            self.for_each(ShardWriter.close)
        finally:
            self._shut_down()

    def abandon(self) -> None:
        """Let go of every shard without flushing, and claim no more."""
        if self._is_of_another_process():
            self._closed = True
            return
        self._refuse_more()
        for writer in self._writers.values():
            writer.abandon()
        self._shut_down()

    def begin_write(self) -> None:
        """Note that a write begins, for background work to give way; raise as :meth:`refuse_if_closed`."""
        self.refuse_if_closed()
        self.engine.throttle.foreground()

    def refuse_if_closed(self) -> None:
        """Raise if no more is to be written here.

        Raises
        ------
        WriterClosedError
            If the writer is closed.
        WriterError
            If it belongs to another process.
        """
        if self._is_of_another_process():
            raise WriterError(
                f"the writer belongs to process {self._process_id}, which this one was forked from",
                hint="Open the table in this process and make a writer there, for other shards",
            )
        if self._closed:
            raise WriterClosedError("the writer is closed", hint="Open a new one with table.writer()")

    def _refuse_more(self) -> None:
        """Take no more rows, and claim no more shards."""
        with self._opening:
            self._closed = True

    def _shut_down(self) -> None:
        self._on_collection.detach()
        self._heartbeat.stop()

    def _is_of_another_process(self) -> bool:
        # After a fork there are two copies of the writer and one lease: both would append at the same
        # position, with the same epoch. The copy has none of the threads either.
        return os.getpid() != self._process_id


def _run(
    pool: Executor,
    action: Callable[_Arguments, _Result],
    *arguments: _Arguments.args,
    **named: _Arguments.kwargs,
) -> Future[_Result]:
    """Run ``action`` on a thread; here, if none is to be had since writer or process are ending."""
    try:
        return pool.submit(action, *arguments, **named)
    except RuntimeError:
        done: Future[_Result] = Future()
        try:
            done.set_result(action(*arguments, **named))
        except Exception as error:
            done.set_exception(error)
        return done
