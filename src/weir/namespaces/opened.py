"""An open namespace: its table, its writer, and state kept between calls."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import weir
from weir.errors import InputError, WeirError
from weir.namespaces.catalog import Known
from weir.namespaces.statistics import Statistics
from weir.write.table_writer import TableWriter

__all__ = ["LastUpkeep", "Opened"]


@dataclass(frozen=True, slots=True)
class LastUpkeep:
    """How the last round of upkeep in this process went.

    Parameters
    ----------
    outcome : str
        ``"never"``, ``"success"`` or ``"failure"``.
    finished_at : datetime, optional
        When.
    failures : int
        How many have failed since one did not.
    error : str
        What kind of error it was.
    """

    outcome: str = "never"
    finished_at: datetime | None = None
    failures: int = 0
    error: str = ""

    def failed(self, error: BaseException) -> LastUpkeep:
        """Return that of a round that failed after this one."""
        return LastUpkeep("failure", datetime.now(UTC), self.failures + 1, type(error).__name__)


class Opened:
    """A namespace's table as this process has it open.

    Parameters
    ----------
    known : Known
        The definition it was opened by.
    table : Table
        The table.
    writer_options : mapping of str to object
        Options of its writer.
    mark : callable
        Marks, for other processes, that the namespace needs maintenance.
    """

    def __init__(
        self, known: Known, table: weir.Table, writer_options: Mapping[str, Any], mark: Callable[[], None]
    ) -> None:
        assert known.definition is not None
        self.known = known
        self.table = table
        self.definition = known.definition
        self.used_at = time.monotonic()
        self._mark = mark
        self._writer_options = writer_options
        self._writer: TableWriter | None = None
        self._alone: TableWriter | None = None
        self._making = threading.Lock()
        self.written_at: datetime | None = None
        self.dirty_since: float | None = None
        self.entries: dict[str, tuple[int, list[Any]]] = {}
        self.keeping_up = threading.Lock()
        self.last_upkeep = LastUpkeep()
        self.pruned_at = time.monotonic()
        self.statistics: tuple[float, Statistics] | None = None
        self.measuring = threading.Lock()
        self.recent: tuple[float, str] | None = None

    def token(self) -> str:
        """Return a token of the newest state; remember it for reads that may be of an older one."""
        taken = time.monotonic()
        token = str(self.table.internals.reader.token_of_seen())
        self.recent = (taken, token)
        return token

    def recent_token(self, max_staleness: float) -> tuple[float, str]:
        """Return when a state was the newest, at most this many seconds ago, and its token."""
        recent = self.recent
        if recent is None or time.monotonic() - recent[0] > max_staleness:
            taken = time.monotonic()
            recent = (taken, self.token())
        return recent

    def updated_at(self) -> datetime:
        """Return when something was written last, by whatever process."""
        if self.written_at is not None:
            return self.written_at
        moments = [
            meta.last_modified for meta in self.table.internals.store.list("_mem_wal") if "/wal/" in meta.path
        ]
        return max([*moments, self.definition.created_at])

    def note_written(self, rows: int, bytes: int) -> None:
        """Record a write by this process, and update the known size of the namespace."""
        self.written_at = datetime.now(UTC)
        self.mark_dirty()
        known = self.statistics
        if known is not None:
            self.statistics = (known[0], known[1].with_waiting(rows, bytes))

    @property
    def is_dirty(self) -> bool:
        """Whether this process has unmerged writes."""
        return self.dirty_since is not None

    def mark_dirty(self) -> None:
        """Note that there is something to merge."""
        if self.dirty_since is None:
            self.dirty_since = time.monotonic()

    def is_unused(self, seconds: float) -> bool:
        """Whether it was idle for this long, and everything is merged."""
        return not self.is_dirty and time.monotonic() - self.used_at >= seconds

    @property
    def is_writing(self) -> bool:
        """Whether this process writes the table."""
        return self._writer is not None

    def writer(self) -> TableWriter:
        """Return the writer of the table."""
        with self._making:
            if self._writer is None:
                self._mark()
                self._writer = self.table.writer(**self._writer_options)
            return self._writer

    @contextmanager
    def writing(self) -> Iterator[TableWriter]:
        """Write with the writer of the table; a failed writer is released."""
        try:
            yield self.writer()
        except InputError:
            raise
        except WeirError:
            self.forget_writer()
            raise

    def claim(self) -> bool:
        """Let nobody else write to the table; return whether others might have until now."""
        with self.writing() as writer:
            writer.claim()
            is_new, self._alone = self._alone is not writer, writer
            return is_new

    def forget_writer(self) -> None:
        """Let go of a writer that has failed; the next write makes another one."""
        with self._making:
            writer, self._writer, self._alone = self._writer, None, None
        if writer is not None:
            with suppress(WeirError):
                writer.__exit__(WeirError, None, None)

    def flush(self) -> None:
        """Flush what was written here."""
        if self._writer is not None:
            self._writer.flush()

    def close(self) -> None:
        """Flush and release the table."""
        with self._making:
            writer, self._writer, self._alone = self._writer, None, None
        if writer is not None:
            writer.close()
