"""The writer that a table keeps for calls without one: opened by the first call, closed when idle."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from weir.engine.living import Living
from weir.errors import FencedError, LeaseHeldError, ShardSealedError, WeirError, WriterClosedError
from weir.write.table_writer import TableWriter

__all__ = ["KeptWriter", "release_kept"]

Result = TypeVar("Result")

_IDLE_SECONDS = 5.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0

# The shard is lost or accepts no more writes. If a shard is held elsewhere, or there was no room, the writer
# stays usable.
_OF_NO_USE_ANY_MORE = (FencedError, ShardSealedError, WriterClosedError)

# The kept writers of this process: each gives its shards to others of the same table.
_living: Living[KeptWriter] = Living()


class KeptWriter:
    """Runs single writes of a table with a writer that is kept for the next ones. Thread-safe.

    Its shards are released when nothing was written for five seconds, when this process opens a writer of the
    table, and when the process ends.

    Parameters
    ----------
    open_writer : callable
        Opens a writer.
    where : str
        The table.
    """

    def __init__(self, open_writer: Callable[[], TableWriter], where: str) -> None:
        self._open_writer = open_writer
        self.where = where
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._writer: TableWriter | None = None
        self._retired: TableWriter | None = None
        self._users = 0
        self._used_at = 0.0
        self._timer: threading.Timer | None = None
        _living.add(self)

    def write(self, write: Callable[[TableWriter], Result], lease_wait: float) -> Result:
        """Return the result of a write; if another writer holds a shard, wait this many seconds for it.

        Raises
        ------
        LeaseHeldError
            If it was held all that time. Nothing was written.
        """
        give_up = time.monotonic() + lease_wait
        pause = _FIRST_PAUSE
        while True:
            try:
                return self._write(write)
            except LeaseHeldError:
                # Another table object of this process may keep it.
                if not release_kept(self.where, but=self):
                    left = give_up - time.monotonic()
                    if left <= 0:
                        raise
                    time.sleep(min(pause, left))
                    pause = min(2 * pause, _LONGEST_PAUSE)

    def _write(self, write: Callable[[TableWriter], Result]) -> Result:
        with self._lock:
            while self._retired is not None:
                # Its shards become free when its last write has ended.
                self._changed.wait()
            if self._writer is None:
                self._writer = self._open_writer()
            writer = self._writer
            self._users += 1
        try:
            return write(writer)
        except _OF_NO_USE_ANY_MORE:
            with self._lock:
                if self._writer is writer:
                    self._writer, self._retired = None, writer
            raise
        finally:
            with self._lock:
                self._users -= 1
                self._used_at = time.monotonic()
                self._close_retired()
                self._watch()

    def _close_retired(self) -> None:
        """Close a writer that can no longer write, once the writes of other threads with it have ended."""
        if self._retired is None or self._users:
            return
        try:
            # Its error is known: a write has raised it.
            with suppress(WeirError):
                self._retired.close()
        finally:
            self._retired = None
            self._changed.notify_all()

    def _watch(self) -> None:
        if self._timer is None and self._writer is not None:
            self._timer = threading.Timer(_IDLE_SECONDS, self._look)
            self._timer.daemon = True
            self._timer.name = "weir-kept-writer"
            self._timer.start()

    def _look(self) -> None:
        with self._lock:
            self._timer = None
            if self._users or time.monotonic() - self._used_at < _IDLE_SECONDS:
                self._watch()
                return
        self.let_go()

    def let_go(self) -> bool:
        """Release the shards, unless a write is running. Return whether there was a writer to close."""
        with self._lock:
            if self._users or self._writer is None:
                return False
            writer, self._writer = self._writer, None
            # Under the lock: a write that arrives now would find the shards still held. Rows that could not
            # be flushed are in their logs, for the next writer.
            with suppress(WeirError):
                writer.close()
        return True


def release_kept(where: str, but: KeptWriter | None = None) -> bool:
    """Release the shards of a table that kept writers of this process hold; return whether any did.

    Parameters
    ----------
    where : str
        The table.
    but : KeptWriter, optional
        One that keeps its shards.
    """
    let_go = [one.let_go() for one in _living.all() if one.where == where and one is not but]
    return any(let_go)
