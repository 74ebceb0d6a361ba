"""A search: the rows that match a query best, in order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from datetime import datetime
from typing import Protocol, TypeVar

import pyarrow as pa

from weir.errors import SnapshotExpiredError
from weir.format.snapshot_token import SnapshotToken
from weir.lsm.expired_rows import expiry_instant
from weir.read.result import RowResult
from weir.snapshots.capture import token_of
from weir.snapshots.snapshot import ReadSnapshot

__all__ = ["Search", "SearchPlan"]

Result = TypeVar("Result")


class SearchPlan(Protocol):
    """What a search will do."""

    def run(self) -> pa.Table:
        """Return the rows, best first."""
        ...

    def describe(self) -> str:
        """Return the plan for people, one source per line."""
        ...


class Search(RowResult):
    """A search that has not run yet. Each of its methods that returns rows runs it again.

    Made by :meth:`weir.Table.search`, :meth:`~weir.Table.search_text` and :meth:`~weir.Table.search_hybrid`.
    Rows come best first; equally good ones by their primary key if that is among the columns, of a hybrid
    search by their place in the ranking by vector, and then by text. Which of equally good rows are returned,
    if not all fit, stays the same while the snapshot does; by vector, until the vectors of the base table are
    held in memory or are no more.

    Parameters
    ----------
    plan : callable
        Takes the snapshot and plans the search on it; returns both.
    reading : callable
        Returns the context that everything is read in, given the snapshot if there is one.
    attempts : int
        How often to start again, on a newer snapshot, when garbage collection has removed what was read.
    asked : mapping, optional
        The arguments by name, for people.
    """

    def __init__(
        self,
        plan: Callable[[], tuple[ReadSnapshot, SearchPlan]],
        reading: Callable[[ReadSnapshot], AbstractContextManager[None]],
        attempts: int = 1,
        asked: Mapping[str, object] | None = None,
    ) -> None:
        self._asked = asked or {}
        self._plan = plan
        self._reading = reading
        self._attempts = attempts
        self._seen: ReadSnapshot | None = None
        self._read_at: datetime | None = None

    def explain(self) -> str:
        """Return what would be searched, and how, as text, one source per line."""
        return self.plan().describe()

    def plan(self) -> SearchPlan:
        """Return the plan: the task of each source, and what was left out."""
        return self._planned()[1]

    def _planned(self) -> tuple[ReadSnapshot, SearchPlan]:
        self._read_at = expiry_instant()
        self._seen, plan = self._plan()
        return self._seen, plan

    def to_table(self) -> pa.Table:
        """Return the rows as a table."""
        for _ in range(self._attempts - 1):
            with suppress(SnapshotExpiredError):
                return self._run()
        return self._run()

    def _run(self) -> pa.Table:
        snapshot, plan = self._planned()
        with self._reading(snapshot):
            return plan.run()

    @property
    def snapshot(self) -> SnapshotToken:
        """The state of the table that the last run saw, or the plan if it has not run.

        A token that nothing is kept for: to read at it later, take one with
        :meth:`weir.Table.snapshot` and search at that.
        """
        if self._seen is None:
            self._planned()
        assert self._seen is not None
        if self._seen.base.expiry is None:
            return self._seen.once(token_of)
        return token_of(self._seen, self._read_at)
