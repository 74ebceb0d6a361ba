"""Table writers that are kept between the micro-batches of a streaming query.

Spark commits the micro-batches of a query one after the other in a separate Python process
(``spark.python.worker.reuse``). A writer needs about twenty round trips to learn the state of a shard, so it
is kept there for the next micro-batch. Between micro-batches it is paused: its leases read as released. Other
writers can then claim the shards, and a process that ends, or a query that continues in another one, blocks
nobody.

A micro-batch does not take the leases back, which would be two swaps for each shard, but only looks whether
they were taken. If another writer takes one just then, the fence stops this one.

Correctness does not depend on it. Replacing a lost or fenced writer costs no more than opening a new one, and
a repeated commit skips what was already written.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import TypeVar

from weir.errors import FencedError
from weir.spark.kept_pool import MOST_KEPT, KeptPool, close_quietly
from weir.spark.write_options import WriteOptions
from weir.table.table import Table
from weir.write.table_writer import TableWriter

__all__ = ["KeptWriters", "process_writers"]

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class _Kept:
    """A paused writer, the options it was opened with, and which table it writes to."""

    writer: TableWriter
    options: WriteOptions
    uri: str
    identity: str

    def serves(self, table: Table, options: WriteOptions) -> bool:
        """Whether it writes to this table, and not to a former one at the same location.

        It adopts altered columns by itself.
        """
        return (
            self.options == options
            and self.uri == table.internals.store.uri
            and self.identity == table.identity
        )

    def close(self) -> None:
        """Close the writer."""
        self.writer.close()


class KeptWriters:
    """The paused writers of several streaming queries. Thread-safe.

    Parameters
    ----------
    most : int, default 8
        How many to keep: the most recently used ones.
    """

    def __init__(self, most: int = MOST_KEPT) -> None:
        self._pool: KeptPool[_Kept] = KeptPool(most, close_quietly)

    def run(
        self,
        holder: str,
        table: Table,
        options: WriteOptions,
        action: Callable[[TableWriter], Result],
        *,
        flush: bool,
    ) -> Result:
        """Write with the writer of a query, and keep it. Its shards are free for other writers afterwards.

        Parameters
        ----------
        holder : str
            Name of the lease holder; there is one writer for each name.
        table : Table
            The table.
        options : WriteOptions
            The options of the write.
        action : callable
            Writes with a mark that makes it repeatable: if the kept writer was fenced, it is called again
            with a new one.
        flush : bool
            Whether to flush if the options do not say.

        Raises
        ------
        FencedError
            If another writer claims a shard at the same time.
        """
        kept = self._pool.take(holder, lambda one: one.serves(table, options))
        if kept is not None:
            # Where others have written meanwhile, a new writer finds what they have left.
            with suppress(FencedError):
                return self._run(holder, kept, action, flush=flush)
        writer = table.writer(**options.of_writer(holder=holder, flush=flush))
        # Not the table itself, which is kept too and follows what becomes of its place.
        kept = _Kept(writer, options, table.internals.store.uri, table.identity)
        return self._run(holder, kept, action, flush=flush)

    def _run(
        self, holder: str, kept: _Kept, action: Callable[[TableWriter], Result], *, flush: bool
    ) -> Result:
        with ExitStack() as until_kept:
            writer = until_kept.enter_context(kept.writer)
            result = action(writer)
            if flush if kept.options.flush is None else kept.options.flush:
                writer.flush()
            writer.pause(brief=True)
            until_kept.pop_all()
        self._pool.keep(holder, kept)
        return result


process_writers = KeptWriters()
"""The kept writers of this process."""
