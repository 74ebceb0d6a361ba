"""Table writers that live on between the micro-batches of a streaming query.

Spark has the micro-batches of a query committed by a Python process of its own, which it gives one after
the other (``spark.python.worker.reuse``). What a writer knows of a shard it has found out with a score of
round trips, so it is kept there for the next micro-batch. Between two of them it is paused: its leases read
as released. Other writers may have the shards then, and a process that ends, or a query that goes on in
another one, is in nobody's way.

Nothing depends on it. A writer that is lost, or that others have fenced, costs what a new one costs, and
what it has written is passed over where a commit is made again.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import TypeVar

from weir.errors import FencedError
from weir.spark.write_options import WriteOptions
from weir.spark.writer_pool import MOST_KEPT, WriterPool
from weir.table.table import Table
from weir.write.table_writer import TableWriter

__all__ = ["KeptWriters", "process_writers"]

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class _Kept:
    """A writer that is paused, and what it was made for."""

    writer: TableWriter
    table: Table
    options: WriteOptions

    def serves(self, table: Table, options: WriteOptions) -> bool:
        """Whether it writes to this table, and not to one that was there before.

        It takes columns that were altered meanwhile over by itself.
        """
        return (
            self.options == options
            and self.table.internals.store.uri == table.internals.store.uri
            and self.table.identity == table.identity
        )

    def close(self) -> None:
        """Close the writer."""
        self.writer.close()


class KeptWriters:
    """The writers of some streaming queries, each paused. Safe to use from many threads.

    Parameters
    ----------
    most : int, default 8
        How many are kept: those that were used last.
    """

    def __init__(self, most: int = MOST_KEPT) -> None:
        self._pool: WriterPool[_Kept] = WriterPool(most)

    def run(
        self,
        holder: str,
        table: Table,
        options: WriteOptions,
        action: Callable[[TableWriter], Result],
        *,
        flush: bool,
    ) -> Result:
        """Write with the writer of a query, and keep it. Its shards are free for others afterwards.

        Parameters
        ----------
        holder : str
            Name of who holds the leases; there is one writer for each name.
        table : Table
            The table.
        options : WriteOptions
            The options of the write.
        action : callable
            Writes, with a mark that makes it repeatable: where a writer that was kept has been fenced,
            it is called once more with a new one.
        flush : bool
            Whether to flush, where the options do not say.

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
        return self._run(holder, _Kept(writer, table, options), action, flush=flush)

    def _run(
        self, holder: str, kept: _Kept, action: Callable[[TableWriter], Result], *, flush: bool
    ) -> Result:
        with ExitStack() as until_kept:
            writer = until_kept.enter_context(kept.writer)
            result = action(writer)
            if flush if kept.options.flush is None else kept.options.flush:
                writer.flush()
            writer.pause()
            until_kept.pop_all()
        self._pool.keep(holder, kept)
        return result


process_writers = KeptWriters()
"""Those of this process."""
