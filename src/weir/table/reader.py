"""The reads of one table: each is checked, given a snapshot or the state of a token, and planned on it.

:class:`~weir.Table` says what each of them means to callers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from typing import TypeVar

import numpy as np
import pyarrow as pa

from weir.base.table import BaseTable
from weir.changes.feed import FeedSource
from weir.changes.range import ChangeSource
from weir.engine import forked
from weir.engine.forked import refuse_forked
from weir.errors import ConflictError, CorruptionError, InputError, OptionError
from weir.format.newest import newest_rows
from weir.format.shard_manifest import ShardManifest
from weir.format.snapshot_token import SnapshotToken
from weir.lsm.keys import KeySet
from weir.read.checks import check_asked, checked_limit
from weir.read.lookup import get_rows
from weir.read.plan import Purpose, ScanPlan
from weir.read.planner import ScanPlanner
from weir.read.read_end import ReadEnd
from weir.read.scan import Scan
from weir.read.shard_choice import ShardChoice
from weir.read.sql import SqlQuery
from weir.read.sql_query import Needed
from weir.rows import RowInput, as_key_columns
from weir.search.open_ahead import open_ahead
from weir.search.requests import SearchRequest, arguments
from weir.search.search import Search, SearchPlan
from weir.search.top_rows import top_rows
from weir.snapshots.asked_state import AskedState, At
from weir.snapshots.capture import SnapshotCapture
from weir.snapshots.capture import token_of as token_of_snapshot
from weir.snapshots.named_states import token_of
from weir.snapshots.snapshot import MAX_SNAPSHOTS, STRONG, Consistency, ReadSnapshot, SnapshotReader
from weir.snapshots.time_travel import TokenReader
from weir.snapshots.tokens import as_token, release_token, take_token
from weir.storage.interface import ObjectStore

__all__ = ["TableReader"]

Query = TypeVar("Query")


class TableReader:
    """Answers the reads of one table, and remembers its last state. Safe to use from many threads.

    Parameters
    ----------
    store : ObjectStore
        Where the table is.
    base : BaseTable
        Its base table at any version.
    shards : ShardChoice
        Says which shards a read must visit.
    """

    def __init__(self, store: ObjectStore, base: BaseTable, shards: ShardChoice) -> None:
        self._store = store
        self._shards = shards
        self._throttle = store.engine.throttle
        self._captures = SnapshotCapture(store, base)
        self._states = TokenReader(store, base)
        self._planner = ScanPlanner(store, shards.for_filter, shards.for_keys)
        self.snapshots = SnapshotReader(store, base)
        self._has_searched = False

    @property
    def base(self) -> BaseTable:
        """The base table at the newest version seen."""
        return self.snapshots.base

    def follow(self, base: BaseTable) -> None:
        """Continue from a version of the base table that another reader has seen, if it is newer."""
        self.snapshots.follow(base)

    def _fitting(self, check: Callable[[pa.Schema], Query]) -> tuple[pa.Schema, Query]:
        """Return the columns that something asked for fits, and it as ``check`` returns it, or raises.

        What does not fit the columns that were seen last may fit those that the table has got since.
        """
        seen = self.base.schema
        try:
            return seen, check(seen)
        except InputError:
            newest = self.snapshots.follow().schema
            if newest is seen:
                raise
            return newest, check(newest)

    def take_newest(self) -> ReadSnapshot:
        """Return a strong snapshot with the newest manifest of every shard, for services."""
        refuse_forked()
        return self.snapshots.take_newest()

    def take_manifests(self) -> tuple[BaseTable, tuple[ShardManifest, ...]] | None:
        """Return what a merge needs, where it needs no rows of the log."""
        refuse_forked()
        return self.snapshots.take_manifests()

    def take_token(self, retain: timedelta | None) -> SnapshotToken:
        """Return a token of the table's present state, and pin what it needs for some time."""
        refuse_forked()
        return take_token(self._store, self._captures, retain)

    def token_of_seen(self) -> SnapshotToken:
        """Return a token of the table's present state, for reads that follow at once: nothing is kept for it.

        Of one shard, what a read sees is a state of the table: it costs no more than the read would, and
        the reads at it find what was seen.
        """
        refuse_forked()
        seen = self.snapshots.take(STRONG)
        if len(seen.shards) > 1 or seen.base.expiry is not None:
            return self.take_token(None)
        token = token_of_snapshot(seen)
        self._states.remember(token, seen)
        return token

    def token_of(self, named: At, where: str = "at") -> SnapshotToken:
        """Return the token of a state that a token, a tag or an instant names."""
        refuse_forked()
        return token_of(self.base, self._captures, named, where=where)

    def at(self, token: At) -> ReadSnapshot:
        """Return the snapshot that a token names, of which no two shards have a key in common."""
        snapshot = self._states.take(self.token_of(token))
        self._shards.refuse_shared_keys(snapshot)
        return snapshot

    def release(self, token: SnapshotToken | str) -> None:
        """Keep nothing more for a token."""
        release_token(self._store, as_token(token, self.base.identity, where="token"))

    @property
    def feed_source(self) -> FeedSource:
        """What a change feed of the table reads from."""
        return FeedSource(ChangeSource.of(self.base), self._captures, self._states)

    def scan(
        self,
        columns: Sequence[str] | None = None,
        filter: str | None = None,
        limit: int | None = None,
        *,
        consistency: str | Consistency,
        at: At | None,
        remade: Callable[[SnapshotToken | None], tuple[object, ...]] | None = None,
    ) -> Scan:
        """Return a scan that has not run. See :meth:`weir.Table.scan`.

        ``remade`` returns what makes it in another process, given the token of the state if one was named.
        """
        state = self._asked(consistency, at)
        again = None if remade is None else partial(remade, state.token)
        columns = _as_list(columns)
        checked: pa.Schema | None = None
        if state.token is None:
            checked, _ = self._fitting(lambda schema: check_asked(schema, columns, filter))
        limit = checked_limit(limit)
        named = {"columns": columns, "filter": filter, "limit": limit}
        asked = {name: value for name, value in named.items() if value is not None}

        def planned(snapshot: ReadSnapshot, purpose: Purpose) -> ScanPlan:
            return self._planner.plan(
                snapshot,
                columns=() if purpose is Purpose.COUNT else columns,
                filter=filter,
                limit=limit,
                consistency=state.said,
                purpose=purpose,
            )

        def planned_as_it_is(snapshot: ReadSnapshot, purpose: Purpose) -> ScanPlan:
            # It may have other columns than when it was asked.
            if snapshot.base.schema is not checked:
                check_asked(snapshot.base.schema, columns, filter)
            return planned(snapshot, purpose)

        if state.token is None:
            return self._scan_newest(state.fresh, planned_as_it_is, again, asked)
        return self._scan_at(state.token, planned_as_it_is, again, asked)

    def rows_after(
        self, end: ReadEnd | None, columns: Sequence[str], filter: str | None = None
    ) -> tuple[pa.Table | None, ReadEnd]:
        """Return the rows written since an earlier read, and how far this one came.

        Takes a snapshot with every acknowledged write. Rows deleted since are not told.

        Parameters
        ----------
        end : ReadEnd or None
            How far that read came; None if there was none.
        columns : sequence of str
            Columns of the result, in order.
        filter : str, optional
            SQL condition, as for :meth:`scan`.

        Returns
        -------
        rows : Table or None
            None if there was no read before, or more has to be read than the logs.
        end : ReadEnd
            For the next call.
        """
        refuse_forked()

        def read(snapshot: ReadSnapshot) -> tuple[pa.Table | None, ReadEnd]:
            check_asked(snapshot.base.schema, columns, filter)
            rows = None if end is None else self._planner.rows_after(snapshot, end, columns, filter)
            return rows, ReadEnd.of(snapshot)

        with self._throttle.reading():
            return self.snapshots.read(STRONG, read)

    def _scan_newest(
        self,
        fresh: Consistency,
        planned: Callable[[ReadSnapshot, Purpose], ScanPlan],
        remade: Callable[[], tuple[object, ...]] | None,
        asked: Mapping[str, object],
    ) -> Scan:
        read: ReadSnapshot | None = None

        def plan(purpose: Purpose) -> ScanPlan:
            def use(snapshot: ReadSnapshot) -> ScanPlan:
                nonlocal read
                read = snapshot
                return planned(snapshot, purpose)

            return self.snapshots.read(fresh, use)

        @contextmanager
        def reading() -> Iterator[None]:
            try:
                with self._throttle.reading():
                    yield
            except CorruptionError:
                if read is None:
                    raise
                with self.snapshots.reading(read):
                    raise

        return Scan(plan, reading, attempts=MAX_SNAPSHOTS, remade=remade, asked=asked)

    def _scan_at(
        self,
        token: SnapshotToken,
        planned: Callable[[ReadSnapshot, Purpose], ScanPlan],
        remade: Callable[[], tuple[object, ...]] | None,
        asked: Mapping[str, object],
    ) -> Scan:
        def plan(purpose: Purpose) -> ScanPlan:
            return planned(self._states.take(token), purpose)

        @contextmanager
        def reading() -> Iterator[None]:
            with self._throttle.reading(), self._states.reading(token):
                yield

        return Scan(plan, reading, remade=remade, asked=asked)

    def get(
        self,
        keys: RowInput,
        columns: Sequence[str] | None,
        *,
        consistency: str | Consistency,
        at: At | None,
    ) -> pa.Table:
        """Return the rows with some keys. See :meth:`weir.Table.get`."""
        state = self._asked(consistency, at)
        columns = _as_list(columns)
        checked: pa.Schema | None = None
        if state.token is None:
            checked, _ = self._fitting(lambda schema: check_asked(schema, columns, None))
        base = self.base
        if base.append_only is not None:
            raise OptionError(
                "rows cannot be looked up by key, since this table is append-only",
                where="keys",
                hint="Use scan(filter=...)",
            )
        wanted = _distinct(KeySet(as_key_columns(keys, base.schema, base.primary_key)))

        def found(snapshot: ReadSnapshot) -> pa.Table:
            if snapshot.base.schema is not checked:
                check_asked(snapshot.base.schema, columns, None)
            if snapshot.base.namespace != base.namespace and _key_of(snapshot.base) != _key_of(base):
                raise ConflictError(
                    "another table with another key was put in the place of the table",
                    where=base.uri,
                    hint="Look the keys up again",
                )
            names = snapshot.base.schema.names if columns is None else list(columns)
            return get_rows(snapshot, wanted, names, self._shards.for_keys)

        return self._read(state, found)

    def search(
        self,
        request: SearchRequest[Query],
        *,
        consistency: str | Consistency,
        at: At | None,
    ) -> Search:
        """Return a search that has not run: it is checked now, or when the columns at a token are known."""
        state = self._asked(consistency, at)
        token = state.token
        asked = arguments(request)
        if token is not None:
            return Search(
                partial(self._search_plan_at, token, request, str(state.said)),
                lambda _: self._states.reading(token),
                asked=asked,
            )
        checked, query = self._fitting(request.checked)

        def asked_of(seen: ReadSnapshot) -> Query:
            same = seen.base.schema is checked or seen.base.schema.equals(checked)
            return query if same else request.checked(seen.base.schema)

        def plan() -> tuple[ReadSnapshot, SearchPlan]:
            self._throttle.last_foreground = time.monotonic()
            if not self._has_searched:
                self._has_searched = True
                open_ahead(self.base, request.columns)
            return self.snapshots.read(state.fresh, planned)

        def planned(seen: ReadSnapshot) -> tuple[ReadSnapshot, SearchPlan]:
            self._shards.refuse_shared_keys(seen)
            return seen, request.plan(self._planner, seen, asked_of(seen), str(state.said))

        return Search(plan, self.snapshots.reading, attempts=MAX_SNAPSHOTS, asked=asked)

    def _search_plan_at(
        self, token: SnapshotToken, request: SearchRequest[Query], state: str
    ) -> tuple[ReadSnapshot, SearchPlan]:
        self._throttle.last_foreground = time.monotonic()
        with self._states.reading(token):
            seen = self._states.take(token)
            self._shards.refuse_shared_keys(seen)
            return seen, request.plan(self._planner, seen, request.checked(seen.base.schema), state)

    def sql(
        self,
        query: str,
        name: str,
        *,
        consistency: str | Consistency,
        at: At | None,
    ) -> SqlQuery:
        """Return a SQL query that has not run. See :meth:`weir.Table.sql`."""
        state = self._asked(consistency, at)

        def scan(needed: Needed) -> Scan:
            columns = needed.columns or None
            return self.scan(columns, needed.filter, needed.limit, consistency=consistency, at=state.token)

        def top(needed: Needed) -> pa.Table:
            def read(snapshot: ReadSnapshot) -> pa.Table:
                self._shards.refuse_shared_keys(snapshot)
                check_asked(snapshot.base.schema, needed.columns, None)
                return top_rows(self._planner, self._shards.for_keys, snapshot, needed)

            return self._read(state, read)

        # The meaning of ``*`` is settled when the query is planned.
        return SqlQuery(query, self._columns_of(state), name, scan, top)

    def _columns_of(self, state: AskedState) -> pa.Schema:
        """Return the columns of the table now, or at a token."""
        if state.token is None:
            return self.snapshots.follow().schema
        with self._states.reading(state.token):
            return self._states.take(state.token).base.schema

    def _asked(self, consistency: str | Consistency, at: At | None) -> AskedState:
        if forked.is_forked:
            refuse_forked()
        if at is not None:
            return AskedState.at(at, consistency, self.token_of)
        fresh = Consistency.parse(consistency)
        return AskedState(fresh, None, fresh)

    def _read(self, state: AskedState, use: Callable[[ReadSnapshot], pa.Table]) -> pa.Table:
        """Return the result for a snapshot that is fresh enough, or for that of a token."""
        with self._throttle.reading():
            if state.token is None:
                return self.snapshots.read(state.fresh, use)
            with self._states.reading(state.token):
                return use(self._states.take(state.token))


def _as_list(columns: Sequence[str] | None) -> Sequence[str] | None:
    """Return a copy of the columns, since a scan runs later. A text is not a list, and stays a text."""
    return columns if columns is None or isinstance(columns, str) else list(columns)


def _distinct(keys: KeySet) -> KeySet:
    """Return the first occurrence of every key, in order."""
    if len(keys) < 2:
        return keys
    last = newest_rows([column[::-1] for column in keys.columns])
    return keys.take(np.sort(len(keys) - 1 - last))


def _key_of(base: BaseTable) -> list[tuple[str, pa.DataType]]:
    return [(name, base.schema.field(name).type) for name in base.primary_key]
