"""The claimed shards of a table writer, and their shared threads, lease and limits."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Hashable, Mapping
from concurrent.futures import Executor, Future
from dataclasses import replace
from typing import ParamSpec, TypeVar
from uuid import UUID

from weir.config import WriterOptions
from weir.engine.concurrent_map import concurrent_map
from weir.errors import ShardSealedError, WriterClosedError, WriterError
from weir.log.shard_catalog import FoundShard
from weir.sharding.shard_values import ShardValues
from weir.storage.interface import ObjectStore
from weir.write.held_shards import HeldShard, HeldShards
from weir.write.lease.heartbeat import Heartbeat
from weir.write.memtable.backpressure import MergeBacklog, UnflushedBytes
from weir.write.shard_context import ShardContext
from weir.write.shard_writer import ShardWriter

__all__ = ["ShardPool"]

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


class ShardPool:
    """The shards of one table writer. Each is claimed when it is first asked for.

    A shard that another table writer of the process has claimed is shared with it
    (:mod:`weir.write.held_shards`), on the terms on which that one has claimed it.

    Safe to use from many threads, and by the process alone that made it.

    Parameters
    ----------
    find_shards : callable
        Returns which shards hold, or will hold, the rows with some shard values.
    make_context : callable
        Returns what the shards have in common, of who flushes, and the backlog.
    options : WriterOptions
        Limits.
    store : ObjectStore
        Where the table is. With other tables it shares the threads that wait for its endpoint, and the limits
        of its engine.
    table : hashable
        Equal for the same table in the same store.
    merge_progress : callable
        Reads from the base table how far merges have got; returns what gives the newest merged
        generation of a shard.
    is_resharded : callable
        Asks the base table whether it is sharded by another rule by now.

    Attributes
    ----------
    open : dict of ShardValues to ShardWriter
        The writers of the shards that may be written to without asking here; none once it is closed.
    process_id : int
        The process that made it.
    unflushed : UnflushedBytes
        Bounds the memory of the rows of all shards together that were claimed here.
    """

    def __init__(
        self,
        find_shards: Callable[[Collection[ShardValues]], Mapping[ShardValues, FoundShard]],
        make_context: Callable[[Executor, MergeBacklog], ShardContext],
        options: WriterOptions,
        *,
        store: ObjectStore,
        table: Hashable,
        merge_progress: Callable[[], Callable[[UUID], int]],
        is_resharded: Callable[[], bool],
    ) -> None:
        self.engine = store.engine
        self._executors = store.executors
        self._find_shards = find_shards
        self._is_resharded = is_resharded
        self._held: dict[ShardValues, HeldShard] = {}
        self.open: dict[ShardValues, ShardWriter] = {}
        # Those of them that may have come too late: nothing is written to them before the table was asked.
        self._unasked: set[ShardValues] = set()
        # A named writer starts again by fencing its former self, also in the same process.
        self._table = table if options.holder is None else (table, object())
        self._options = options
        self._opening = threading.Lock()
        self._closed = False
        self.process_id = os.getpid()
        backlog = MergeBacklog(
            options.max_unmerged_generations,
            timeout=options.backpressure_timeout,
            where=store.uri,
            merge_progress=merge_progress,
        )
        self._context = make_context(self._executors.flushes, backlog)
        self.unflushed: UnflushedBytes = self._context.unflushed

    @property
    def by_values(self) -> Mapping[ShardValues, ShardWriter]:
        """The writers of the shards that have been claimed so far, by their shard values."""
        return {values: held.writer for values, held in list(self._held.items())}

    @property
    def writers(self) -> list[ShardWriter]:
        """The writers of the shards that have been claimed so far."""
        return [held.writer for held in list(self._held.values())]

    def of(self, wanted: Collection[ShardValues]) -> list[ShardWriter]:
        """Return the writers of shards, claiming new ones first.

        Raises
        ------
        WriterClosedError
            If the writer was closed meanwhile, and a shard would have to be claimed.
        LeaseHeldError
            If another process holds the lease of a shard, or another writer of this one has it to itself.
        """
        if any(values not in self._held or values in self._unasked for values in wanted):
            self._join(list(dict.fromkeys(wanted)), alone=False)
        return [self._held[values].writer for values in wanted]

    def claim_alone(self, wanted: Collection[ShardValues]) -> None:
        """Claim shards, and share them with no other writer of this process.

        Raises
        ------
        WriterClosedError
            If the writer was closed meanwhile.
        LeaseHeldError
            If anybody else writes one of them.
        """
        self._join(list(dict.fromkeys(wanted)), alone=True)

    def _join(self, wanted: list[ShardValues], *, alone: bool) -> None:
        with self._opening:
            # Closing the writer closes the shards that are open by then.
            self.refuse_if_closed()
            # Another thread may have claimed them while we waited for our turn.
            missing = [values for values in wanted if values not in self._held]
            if alone:
                for values in wanted:
                    if values in self._held:
                        self._held[values].keep_alone(self)
            if missing:
                self._claim(missing, alone=alone)
            if not self._unasked.isdisjoint(wanted):
                self._refuse_if_resharded()
            self.open.update((values, self._held[values].writer) for values in wanted)

    def _claim(self, missing: list[ShardValues], *, alone: bool) -> None:
        shards = self._find_shards(missing)

        def claim(values: ShardValues) -> None:
            found = shards[values]

            def open_shard(heartbeat: Heartbeat) -> ShardWriter:
                context = replace(self._context, heartbeat=heartbeat)
                return ShardWriter(context, found.shard_id, values.to_manifest(), absent=found.absent)

            self._unasked.add(values)
            self._held[values] = self.engine.part(HeldShards).join(
                self._table,
                found.shard_id,
                self,
                open_shard,
                self.engine,
                takeover=self._options.takeover,
                alone=alone,
            )

        if len(missing) == 1:
            claim(missing[0])
        else:
            # A claim is a score of round trips, one after the other; on a local disk it waits for that.
            for _ in concurrent_map(claim, missing, is_local=False, engine=self.engine):
                pass

    def _refuse_if_resharded(self) -> None:
        # Resharding is announced before shards are listed; we create shards and then check.
        if self._is_resharded():
            raise ShardSealedError(
                "the table is now sharded by another rule",
                where=self._context.store.uri,
                hint="Open a new writer with table.writer()",
            )
        self._unasked.clear()

    def start(
        self,
        action: Callable[_Arguments, _Result],
        *arguments: _Arguments.args,
        **named: _Arguments.kwargs,
    ) -> Future[_Result]:
        """Run something that waits for the storage of one shard, beside what does so for others."""
        return _run(self._executors.writes, action, *arguments, **named)

    def for_each(self, action: Callable[[ShardWriter], None]) -> None:
        """Do something with every shard concurrently; raise the first error when all have come to an end."""
        self._for_each_held(lambda held: action(held.writer))

    def flush_of_process(self) -> frozenset[UUID]:
        """Flush every shard of the table that this process writes, and return which these are."""
        shared = self.engine.part(HeldShards).writers_of(self._table)
        writers = {writer.shard_id: writer for writer in (*shared, *self.writers)}
        futures = [self.start(writer.flush) for writer in writers.values()]
        errors = [error for future in futures if (error := future.exception()) is not None]
        if errors:
            raise errors[0]
        return frozenset(writers)

    def pause(self, *, brief: bool = False) -> None:
        """Release the shards until they are written to again, except those that are shared here."""
        self._for_each_held(lambda held: None if held.is_shared_by(self) else held.writer.pause(brief=brief))

    def _for_each_held(self, action: Callable[[HeldShard], None]) -> None:
        futures = [self.start(action, held) for held in list(self._held.values())]
        errors = [error for future in futures if (error := future.exception()) is not None]
        if errors:
            raise errors[0]

    def close(self) -> None:
        """Close every shard without other users in this process, flush the others, and claim no more.

        In a forked process the shards are its parent's.
        """
        if self._is_of_another_process():
            self._closed = True
            return
        self._refuse_more()
        self._for_each_held(lambda held: held.close(self, flush=self._options.flush_on_close))

    def abandon(self) -> None:
        """Let go of every shard without flushing, and claim no more."""
        if self._is_of_another_process():
            self._closed = True
            return
        self._refuse_more()
        for held in self._held.values():
            held.abandon(self)

    def refuse_if_closed(self) -> None:
        """Raise if nothing more can be written here.

        Raises
        ------
        WriterClosedError
            If the writer is closed.
        WriterError
            If it belongs to another process.
        """
        if self._is_of_another_process():
            raise WriterError(
                f"the writer belongs to process {self.process_id}, from which this one was forked",
                hint="Open the table in this process and make a writer there, for other shards",
            )
        if self._closed:
            raise WriterClosedError("the writer is closed", hint="Open a new one with table.writer()")

    def _refuse_more(self) -> None:
        """Take no more rows, and claim no more shards."""
        with self._opening:
            self._closed = True
            self.open.clear()

    def _is_of_another_process(self) -> bool:
        # After a fork there are two copies of the writer and one lease: both would append at the same
        # position with the same epoch. The copy also lacks the threads.
        return os.getpid() != self.process_id


def _run(
    pool: Executor,
    action: Callable[_Arguments, _Result],
    *arguments: _Arguments.args,
    **named: _Arguments.kwargs,
) -> Future[_Result]:
    """Run ``action`` on a thread; on this one if none is available because writer or process are ending."""
    try:
        return pool.submit(action, *arguments, **named)
    except RuntimeError:
        done: Future[_Result] = Future()
        try:
            done.set_result(action(*arguments, **named))
        except Exception as error:
            done.set_exception(error)
        return done
