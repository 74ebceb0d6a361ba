"""The event store: types, writers, queries, replays. Its state is in Weir tables and a catalog."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from weir.errors import (
    FencedError,
    InputError,
    LeaseHeldError,
    OptionError,
    QueryError,
    SchemaError,
    TableNotFoundError,
    WriterClosedError,
)
from weir.events.arguments import field_of, micros_of, names_of, query_of_call
from weir.events.catalog import Catalog, type_text
from weir.events.catalog_reads import read_with_catalog
from weir.events.catalog_store import CATALOG, StoredCatalog
from weir.events.clock import process_clock
from weir.events.commands import CommandRunner
from weir.events.cursors import Cursor, arrivals
from weir.events.definitions import fields_of
from weir.events.erasing import (
    MaintainReport,
    checked_age,
    conditions_apart,
    erase,
    forgotten,
    has_former_versions,
    is_collected,
    maintained,
    newest_arrival,
    raised,
    retained,
    sweeps,
    swept,
    with_raised,
    without_erased,
    without_former,
    without_swept,
)
from weir.events.event_table import EVENTS, add_columns
from weir.events.event_types import EventType
from weir.events.given_back import give_back_memory
from weir.events.instants import now_micros
from weir.events.language import tree
from weir.events.language.parser import parse
from weir.events.materialization_table import Kept, drop_table, stored_tables
from weir.events.materializations import (
    Materialization,
    MaterializationInfo,
    Shown,
    check_remembered,
    query_of,
    remembered_as,
    without_materialization,
)
from weir.events.names import check_context, check_name
from weir.events.portable import (
    FILE_ROWS,
    ExportReport,
    export_events,
    read_manifest,
    restored_tables,
    stored_columns,
)
from weir.events.query.parts import (
    QueryRunner,
    ReplayPart,
    replay_parts,
    run_query_by_parts,
    run_replay_by_parts,
)
from weir.events.query.planner import QueryPlan, plan_query
from weir.events.query.replaying import ReplayPlan
from weir.events.query.running import explain_query, run_query
from weir.events.query.sql import ConditionPlan, SqlPlan
from weir.events.result import Result
from weir.events.saving import Saving
from weir.events.subscriptions import Subscription
from weir.events.visibility import arrived_after, ids_between, ids_by_type, of_context, scan_events
from weir.events.writer import EventWriter
from weir.events.zones import build_indexes
from weir.storage.interface import ObjectStore
from weir.table.opening import table_store
from weir.table.table import Table

__all__ = ["EventStore"]


class _Planned(Protocol):
    @property
    def warnings(self) -> tuple[str, ...]: ...


_Plan = TypeVar("_Plan", bound=_Planned)
_Read = TypeVar("_Read")
_MOST_FORGOTTEN = 16
"""Conditions on forgotten contexts, beyond one for each shard, before some are united: the time to plan them
grows by their square."""


class EventStore:
    """A store of typed events. A context manager; thread-safe.

    Made by :func:`weir.events.create` and :func:`weir.events.open`.

    Parameters
    ----------
    store : ObjectStore
        Where it is.
    catalog : StoredCatalog
        Its catalog.
    table : Table
        Its events.
    path : str
        Its location, as given by the user.
    storage_options, fsync
        The options it was opened with.
    """

    def __init__(
        self,
        store: ObjectStore,
        catalog: StoredCatalog,
        table: Table,
        path: str,
        storage_options: Mapping[str, str] | None = None,
        fsync: bool = True,
    ) -> None:
        self._store = store
        self._stored_catalog = catalog
        self._known = catalog.read()
        self._table = table
        self._writers: list[EventWriter] = []
        self._own: EventWriter | None = None
        self._kept: dict[str, tuple[str, Kept]] = {}
        self._saving = Saving()
        self._left_apart = 0
        self._lock = threading.RLock()
        self._closed = False
        self._storage_options = storage_options
        self._fsync = fsync
        self.path = path

    # --- Types -----------------------------------------------------------------------------------

    def define(self, name: str, fields: Any, version: int | None = None) -> None:
        """Define a type of events, or a new version of one.

        A new version may add optional fields, add values to enums, and widen types. Repeating a definition
        changes nothing.

        Parameters
        ----------
        name : str
            Its name.
        fields : dict, Schema, dataclass or pydantic model
            Its fields: by name ``"string"``, ``"int"``, ``"float"``, ``"bool"``, ``"date"``, ``"datetime"``,
            ``"decimal(p,s)"``, ``"list<...>"``, each with ``" | null"`` if it is optional, or a list of texts
            for an enum.
        version : int, optional
            Its number. Default: the next.

        Raises
        ------
        InputError
            If the definition is not valid; the message names event and field. Nothing is changed.
        """
        self._refuse_if_closed()
        if version is not None and (
            not isinstance(version, int) or isinstance(version, bool) or not 1 <= version < 1 << 31
        ):
            raise InputError(
                f"a version is a whole number of at least 1, got {version!r:.80}", where="version"
            )
        checked = fields_of(fields, str(name))

        def defined(catalog: Catalog) -> Catalog:
            while True:
                present = {one.name: type_text(one.type) for one in self._table.schema}
                changed = catalog.defined(name, checked, version, present)
                try:
                    # The columns are there before anybody can know of them.
                    add_columns(self._table, changed.columns)
                    return changed
                except SchemaError:
                    # Another process may have added a column of that name and another type.
                    if present.keys() == set(self._table.schema.names):
                        raise

        self._known = self._stored_catalog.change(defined)

    def types(self) -> dict[str, EventType]:
        """Return the event types by name, with their versions."""
        return dict(self._catalog(True).types)

    def planned_type(self, name: str, fields: Any) -> EventType:
        """Return the type that :meth:`define` would create. Nothing is changed.

        Raises
        ------
        InputError
            As for :meth:`define`.
        """
        return self._catalog(True).defined(name, fields_of(fields, str(name)), None).type(name)

    def event_type(self, name: str) -> EventType:
        """Return a type of events.

        Raises
        ------
        InputError
            If no such name exists.
        """
        return self._catalog(True).type(name)

    def _catalog(self, newest: bool) -> Catalog:
        if newest:
            known = self._stored_catalog.read()
            if known is not self._known:
                self._known = known
        return self._known

    # --- Writing ---------------------------------------------------------------------------------

    def writer(
        self,
        hold: bool = True,
        lease_wait: float = 0,
        takeover: bool = False,
        address: str | None = None,
        **options: Any,
    ) -> EventWriter:
        """Return a writer, to be used as a context manager.

        Parameters
        ----------
        hold : bool
            Whether it holds the shards it has claimed until it is closed. Default True. Otherwise it takes
            turns with other processes.
        lease_wait : float
            Seconds to wait for a shard that another writer holds. Default 0; at least 5 when taking turns.
        takeover : bool
            Whether to take over shards that another writer holds, fencing that writer. Default False.
        address : str, optional
            The address of this process, included in the error that other writers get for a held shard.
        **options
            Other options of :meth:`weir.Table.writer`, such as ``flush_on_close``.

        Raises
        ------
        OptionError
            If an option is unknown or out of range.
        """
        self._refuse_if_closed()
        if not isinstance(lease_wait, (int, float)) or isinstance(lease_wait, bool) or lease_wait < 0:
            raise OptionError(
                f"lease_wait is a number of seconds, got {lease_wait!r:.80}", where="lease_wait"
            )
        options = {
            "max_memtable_rows": int(self._known.options.get("flush_threshold", 100_000)),
            # Nearly every query is of one type. Of its zones, few have the times of late events.
            "cluster_by": ("event_type", "timestamp"),
            **options,
            "takeover": takeover,
            "address": address,
        }
        writer = EventWriter(
            self._table,
            self._catalog,
            process_clock,
            hold=hold,
            lease_wait=lease_wait,
            options=options,
            on_close=self._forget_writer,
        )
        with self._lock:
            self._writers.append(writer)
        return writer

    def _forget_writer(self, writer: EventWriter) -> None:
        with self._lock:
            if writer in self._writers:
                self._writers.remove(writer)

    def _writer_of_commands(self) -> EventWriter:
        """Return the writer for commands: an open writer of this store, or one that takes turns."""
        with self._lock:
            holding = next((one for one in self._writers if one.holds), None)
            if holding is not None:
                return holding
            if self._own is None:
                self._own = self.writer(hold=False)
            return self._own

    def flush(self) -> None:
        """Flush the open writers of this store to generations, and wait for it."""
        self._refuse_if_closed()
        with self._lock:
            writers = list(self._writers)
        for writer in writers:
            # What a fenced writer had in memory is in the log of who has taken over.
            with contextlib.suppress(WriterClosedError, FencedError):
                writer.flush()

    # --- Reading ---------------------------------------------------------------------------------

    def execute(self, text: str, spark: Any = None, *, once: str | None = None) -> Any:
        """Run a command of the language.

        Parameters
        ----------
        text : str
            One command.
        spark : SparkSession, optional
            Runs queries, replays and comparisons in parts on its executors. Default: in this process.
        once : str, optional
            A name for the events of a ``STORE`` or ``BATCH``, as for :meth:`EventWriter.append_all`.

        Returns
        -------
        object
            A :class:`~weir.events.result.Result` for queries and for commands that list something.

        Raises
        ------
        QueryError
            If the command is not valid or names something that does not exist; the message has line and
            column.
        """
        self._refuse_if_closed()
        return CommandRunner(self, None if spark is None else _runner_on(spark)).run(text, once)

    def run_query(self, query: tree.Query, runner: QueryRunner | None = None) -> Result:
        """Return the result of a query, whose parts a runner runs if there is one."""

        def run(plan: QueryPlan) -> pa.Table:
            if runner is None:
                return run_query(plan, process_clock)
            return run_query_by_parts(plan, process_clock, runner)

        return self._answer(partial(plan_query, self._table, query=query), run, explain_query)

    def _answer(
        self,
        planned: Callable[[Catalog], _Plan],
        run: Callable[[_Plan], pa.Table],
        explain: Callable[[_Plan], str],
    ) -> Result:
        """Return a result that is planned now, so that errors surface at once, and computed when read.

        If types have changed by then, or events were erased, it is planned again.
        """
        catalog = self._catalog(True)
        plan = planned(catalog)

        def plan_of(present: Catalog) -> _Plan:
            return plan if present is catalog else planned(present)

        return Result(
            lambda: self._read_with(catalog, lambda present: run(plan_of(present))),
            lambda: explain(plan_of(self._catalog(True))),
            plan.warnings,
        )

    def _read_with(self, catalog: Catalog, read: Callable[[Catalog], _Read]) -> _Read:
        return read_with_catalog(catalog, partial(self._catalog, True), read)[0]

    def query(
        self,
        type: str,
        where: str | None = None,
        columns: Sequence[str] | None = None,
        context: str | None = None,
        since: datetime | str | float | None = None,
        until: datetime | str | float | None = None,
        using: str | None = None,
    ) -> Result:
        """Return the events of a type, in the order of their ids.

        Parameters
        ----------
        type : str
            The type.
        where : str, optional
            A SQL condition over its columns.
        columns : sequence of str, optional
            The fields of the result. Default: all.
        context : str, optional
            Their context. Default: any.
        since, until : datetime, str or number, optional
            Time bounds: ``since`` is inclusive, ``until`` exclusive.
        using : str, optional
            The field these bounds apply to. Default: the timestamp.

        Raises
        ------
        InputError
            If the type, the condition or a column is unknown.
        """
        self._refuse_if_closed()
        shown = None if columns is None else names_of(columns, "columns")

        def planned(catalog: Catalog) -> QueryPlan:
            query = query_of_call(catalog.type(type), shown, context, since, until, using)
            return plan_query(self._table, catalog, query)

        if where is None:
            return self._answer(planned, lambda plan: run_query(plan, process_clock), explain_query)
        return self._answer(
            lambda catalog: ConditionPlan.of(planned(catalog), where),
            lambda plan: plan.run(process_clock),
            ConditionPlan.explain,
        )

    def replay(
        self,
        context: str | None = None,
        type: str | None = None,
        since: datetime | str | float | None = None,
        until: datetime | str | float | None = None,
        using: str | None = None,
    ) -> Result:
        """Return events in the order of their ids, which within a context is the order of acknowledgement.

        Parameters
        ----------
        context : str, optional
            The context. Default: all.
        type : str, optional
            The type. Default: all, with the columns of all of them.
        since, until, using
            As for :meth:`query`.

        Raises
        ------
        InputError
            If the context is not valid, or the type or field is unknown.
        """
        self._refuse_if_closed()
        return self.run_replay(partial(self._planned_replay, context, type, since, until, using))

    def plan_replay(
        self,
        context: str | None = None,
        type: str | None = None,
        since: datetime | str | float | None = None,
        until: datetime | str | float | None = None,
        using: str | None = None,
    ) -> ReplayPlan:
        """Return the plan of a replay, with the arguments of :meth:`replay`."""
        self._refuse_if_closed()
        return self._planned_replay(context, type, since, until, using, self._catalog(True))

    def replay_parts(
        self,
        context: str | None = None,
        type: str | None = None,
        since: datetime | str | float | None = None,
        until: datetime | str | float | None = None,
        using: str | None = None,
        *,
        rows: int | None = None,
        after: Cursor | None = None,
    ) -> tuple[ReplayPlan, list[ReplayPart]]:
        """Return the plan of a replay, and its parts, which are of one snapshot and can be read anywhere.

        Parameters
        ----------
        context, type, since, until, using
            As for :meth:`replay`.
        rows : int, optional
            Rows of the base table after which a part ends.
        after : Cursor, optional
            Where to begin. Default: with the first event.
        """
        self._refuse_if_closed()

        def read(catalog: Catalog) -> tuple[ReplayPlan, list[ReplayPart]]:
            plan = self._planned_replay(context, type, since, until, using, catalog)
            return plan, replay_parts(plan, rows, after)

        return self._read_with(self._catalog(True), read)

    def _planned_replay(
        self, context: Any, type: Any, since: Any, until: Any, using: Any, catalog: Catalog
    ) -> ReplayPlan:
        return ReplayPlan.of(
            self._table,
            catalog,
            list(catalog.types.values()) if type is None else [catalog.type(type)],
            context=None if context is None else check_context(context),
            since=micros_of(since, "since"),
            until=micros_of(until, "until"),
            using=field_of(using),
        )

    def run_replay(
        self, planned: Callable[[Catalog], ReplayPlan], runner: QueryRunner | None = None
    ) -> Result:
        """Return the result of a replay, given its planner; a runner runs its parts if there is one."""

        def run(plan: ReplayPlan) -> pa.Table:
            if runner is None:
                return plan.run(process_clock)
            return run_replay_by_parts(plan, process_clock, runner)

        return self._answer(planned, run, ReplayPlan.explain)

    def sql(self, query: str) -> Result:
        """Query with SQL, through DataFusion. Every type is a table, all of one snapshot.

        Parameters
        ----------
        query : str
            One query, such as ``"SELECT plan, count(*) FROM signup GROUP BY plan"``. Names are
            case-sensitive.

        Raises
        ------
        QueryError
            If it does not parse, is not a query, or names something that does not exist.
        """
        self._refuse_if_closed()
        return self._answer(
            lambda catalog: SqlPlan.of(self._table, catalog, query),
            lambda plan: plan.run(process_clock),
            SqlPlan.explain,
        )

    def arrivals_after(self, cursor: Cursor) -> NDArray[np.int64]:
        """Return the arrival ids of events after a cursor."""
        self._refuse_if_closed()
        catalog = self._catalog(True)
        seen = cursor.least(int(catalog.options["buckets"]))
        conditions = [] if seen is None else [arrived_after(seen)]
        arrived = arrivals(scan_events(self._table, catalog, ["event_id", "arrival_id"], conditions))
        return arrived[cursor.beyond(arrived)]

    def version(self, context: str) -> int:
        """Return the version of a context: the id of its last event, 0 if it has none."""
        self._refuse_if_closed()
        rows = scan_events(
            self._table, self._catalog(True), ["event_id"], [of_context(check_context(context))]
        )
        newest = pc.max(rows.column("event_id")).as_py() or 0
        process_clock.observe(newest)
        return int(newest)

    # --- Remembering -----------------------------------------------------------------------------

    def remember(
        self,
        name: str,
        query: str,
        *,
        keep_rows: int | None = None,
        keep_age: timedelta | None = None,
    ) -> Result:
        """Keep the answer to a query up to date under a name.

        Parameters
        ----------
        name : str
            The name.
        query : str
            A ``QUERY``; or a ``REMEMBER``, of which the name does not count.
        keep_rows : int, optional
            How many of the newest rows to keep. Default: what a ``REMEMBER`` says, else all.
        keep_age : timedelta, optional
            Maximum age of rows, by their timestamp. Default: what a ``REMEMBER`` says, else any age.

        Raises
        ------
        QueryError
            If it is not a query, or has a limit without an order.
        TableExistsError
            If a materialisation of that name exists.
        """
        self._refuse_if_closed()
        check_name(name, "a materialisation")
        command = parse(query)
        if isinstance(command, tree.Remember):
            keep_rows = command.keep_rows if keep_rows is None else keep_rows
            keep_age = command.keep_age if keep_age is None else keep_age
        if keep_rows is not None and (
            not isinstance(keep_rows, int) or isinstance(keep_rows, bool) or keep_rows < 1
        ):
            raise InputError(
                f"keep_rows is a whole number of at least 1, got {keep_rows!r:.80}", where="keep_rows"
            )
        age = checked_age(keep_age)
        parsed = query_of(query)
        check_remembered(parsed)
        plan_query(self._table, self._catalog(True), parsed)
        self._known = self._stored_catalog.change(
            lambda catalog: remembered_as(catalog, name, query, keep_rows, age)
        )
        try:
            self.refresh(name)
        except QueryError:
            self.drop(name)
            raise
        return self.show(name)

    def _materialization(self, name: str, catalog: Catalog | None = None) -> Materialization:
        return Materialization(
            self._store,
            self._table,
            catalog or self._catalog(True),
            name,
            process_clock,
            self._table_options,
            self._kept,
        )

    def show(self, name: str, *, spark: Any = None) -> Result:
        """Return the current result of a materialisation: the stored rows combined with newer events.

        Parameters
        ----------
        name : str
            The materialisation.
        spark : SparkSession, optional
            Reads and aggregates newer events on its executors. Default: in this process.

        Raises
        ------
        TableNotFoundError
            If there is no materialisation of that name.
        """
        return self.shown(name, None if spark is None else _runner_on(spark))

    def shown(self, name: str, runner: QueryRunner | None = None) -> Result:
        """Return the result of :meth:`show`; a runner reads newer events, if there is one."""
        self._refuse_if_closed()
        catalog = self._catalog(True)
        shown = self._materialization(name, catalog)
        explained = "what is stored, and what has come since" if shown.incremental else "run afresh"

        def show(present: Catalog) -> Shown:
            again = shown.later() if present is catalog else self._materialization(name, present)
            return again.show(runner)

        def run() -> pa.Table:
            answer = self._read_with(self._catalog(True), show)
            # Last, since of two threads that compute each waits for the other.
            answer.save_by(self._saving)
            return answer.table

        return Result(
            run,
            lambda: f"materialisation {name}: {explained}\n{explain_query(shown.plan)}",
            shown.plan.warnings,
        )

    def refresh(self, name: str, *, spark: Any = None) -> None:
        """Update a stored materialisation with newer events.

        Parameters
        ----------
        name, spark
            As for :meth:`show`.

        Raises
        ------
        TableNotFoundError
            If there is no materialisation of that name.
        """
        self._refuse_if_closed()
        materialization = self._materialization(name)
        self._saving.settle()
        materialization.refresh(None if spark is None else _runner_on(spark))

    def drop(self, name: str) -> None:
        """Drop a materialisation and its stored rows.

        Raises
        ------
        TableNotFoundError
            If there is no materialisation of that name.
        """
        self._refuse_if_closed()
        dropped = self._materialization(name)
        self._saving.settle()
        self._known = self._stored_catalog.change(partial(without_materialization, name=name))
        for place in stored_tables(self._store, dropped.entry.incarnation):
            drop_table(self._store, place, self._table_options)
            self._kept.pop(f"{self._store.uri}/{place}", None)

    def materialization_names(self) -> list[str]:
        """Return the names of the materialisations."""
        return list(self._catalog(True).materializations)

    def materializations(self) -> dict[str, MaterializationInfo]:
        """Return the state of every materialisation, by name."""
        self._refuse_if_closed()
        self._saving.settle()
        catalog = self._catalog(True)
        return {name: self._materialization(name, catalog).info() for name in catalog.materializations}

    # --- Following, keeping and forgetting ---------------------------------------------------------

    def subscribe(self, name: str, types: Sequence[str] | None = None) -> Subscription:
        """Return the events that a subscriber has not processed yet, in arrival order.

        Iterate over it for batches of the events there are now; ``commit()`` records everything up to the
        last batch as processed. A new name begins with the first event.

        Parameters
        ----------
        name : str
            The name.
        types : sequence of str, optional
            The types of events. Default: all.

        Raises
        ------
        InputError
            If the name is not valid, or a type is unknown.
        """
        self._refuse_if_closed()
        check_name(name, "a subscription")
        wanted = None if types is None else names_of(types, "types")
        catalog = self._catalog(True)
        for one in wanted or ():
            catalog.type(one)
        return Subscription(
            self._store, self._table, partial(self._catalog, True), process_clock, name, wanted
        )

    def retain(self, type: str, age: timedelta | None) -> None:
        """Keep the events of a type for a duration after their timestamp; None is for ever.

        Queries stop returning older events at once; they leave the files some time after the next
        :meth:`maintain`. Increasing the age does not bring back removed events.

        Raises
        ------
        InputError
            If the type is unknown, or the age is not a duration.
        """
        self._refuse_if_closed()
        micros = checked_age(age)

        def changed(catalog: Catalog) -> Catalog:
            catalog.type(type)
            return retained(catalog, type, micros, partial(newest_arrival, self._table, None, process_clock))

        self._known = self._stored_catalog.change(changed)

    def forget(self, context: str) -> None:
        """Forget a context: queries stop returning its events at once.

        They leave the files some time after the next :meth:`maintain`. New events may be appended to the
        context.

        Raises
        ------
        InputError
            If the name is not valid.
        """
        self._refuse_if_closed()
        checked = check_context(context)
        through = newest_arrival(self._table, checked, process_clock)
        if not through:
            return
        known = self._stored_catalog.change(lambda catalog: forgotten(catalog, checked, through))
        apart = conditions_apart(known.forgotten)
        self._left_apart = min(self._left_apart, apart)
        if apart >= self._left_apart + _MOST_FORGOTTEN:
            later = raised(self._table, known.forgotten)
            known = self._stored_catalog.change(partial(with_raised, known=later))
            # Those that began anew stay apart, which need not be found out with each that comes.
            self._left_apart = conditions_apart(known.forgotten)
        self._known = known

    def maintain(self, *, horizon: timedelta = timedelta(minutes=15)) -> MaintainReport:
        """Run all upkeep now, concurrently with everything else.

        It erases, refreshes materialisations, flushes, merges, compacts, indexes and collects garbage.

        Parameters
        ----------
        horizon : timedelta
            How long garbage is kept after it was marked. Default 15 minutes.

        Returns
        -------
        MaintainReport
            What was done.

        Raises
        ------
        OptionError
            If the horizon is not a duration.
        """
        self._refuse_if_closed()
        if not isinstance(horizon, timedelta) or horizon < timedelta():
            raise OptionError(f"horizon is a duration, got {horizon!r:.80}", where="horizon")
        catalog = self._catalog(True)

        def counted(highest: int) -> None:
            # What is told apart by its age may have been counted before by somebody who will look again.
            self._stored_catalog.change(
                lambda one: replace(
                    one, erasures=one.erasures + 1, erased_through=max(one.erased_through, highest)
                )
            )

        erasure = erase(self._table, catalog, counted, self._delete)
        if erasure.left == 0:
            self._known = self._stored_catalog.change(partial(without_erased, erased=catalog))
        self._known = self._stored_catalog.change(partial(without_former, horizon=horizon))
        self._drop_outdated()
        for name in self.materialization_names():
            # Dropped meanwhile, or of what cannot be answered now: whoever asks is told.
            with contextlib.suppress(TableNotFoundError, QueryError):
                self.refresh(name)
        self.flush()
        give_back_memory(self._table.engine)
        catalog, began = self._catalog(True), now_micros()
        reports = {name: maintained(table, catalog, horizon) for name, table in self.tables.items()}
        if any(index.num_rows for index in self._table.indexes.list()):
            build_indexes(self._table, self._catalog(True))
        if sweeps(catalog):
            # Otherwise a later call does it again.
            is_whole = erasure.left == 0 and not any(one.merge.in_conflict for one in reports.values())
            names = catalog.materializations
            if is_whole and not any(self._materialization(name, catalog).lags_erasures for name in names):
                change = partial(swept, erasures=catalog.erasures)
                self._known = self._stored_catalog.change(change)
        elif is_collected(catalog, began=began, horizon=horizon) and not any(
            has_former_versions(table, began, horizon) for table in self.tables.values()
        ):
            self._known = self._stored_catalog.change(partial(without_swept, looked=catalog))
        return MaintainReport(erasure, reports)

    def _drop_outdated(self) -> None:
        """Remove the stored rows of dropped materialisations, and those of former versions of types."""
        # In this order: what is stored now and of none in the catalog by then, is of none that is being made.
        stored = stored_tables(self._store)
        catalog = self._catalog(True)
        used = {self._materialization(name, catalog).place for name in catalog.materializations}
        for place in stored:
            if place not in used:
                drop_table(self._store, place, self._table_options)
        for uri in self._kept.keys() - {f"{self._store.uri}/{place}" for place in used}:
            self._kept.pop(uri, None)

    @property
    def _table_options(self) -> dict[str, Any]:
        return {"storage_options": self._storage_options, "fsync": self._fsync}

    def _delete(self, keys: pa.Table) -> None:
        with self._lock:
            holding = [one for one in self._writers if one.holds]
        for writer in holding:
            try:
                writer.erase(keys)
                return
            except (FencedError, LeaseHeldError, WriterClosedError):
                continue
        with self.writer(hold=False) as writer:
            writer.erase(keys)

    # --- Export and restore ----------------------------------------------------------------------

    def export(self, folder: str | Path, format: str = "parquet") -> ExportReport:
        """Export all events to files: those of one snapshot, unless they are erased meanwhile.

        After a crash the call can be repeated, and writes what is missing.

        Parameters
        ----------
        folder : str or Path
            The target: a directory, or a location on an object store.
        format : str
            ``"parquet"``, or ``"snp"`` for files of length-prefixed JSON, with the ranges they cover.

        Raises
        ------
        OptionError
            If the format is unknown.
        InputError
            If the folder is that of an event store.
        """
        self._refuse_if_closed()
        target = table_store(folder, self._storage_options, self._fsync)
        if target.head(CATALOG) is not None:
            raise InputError(
                "an event store is there", where=target.uri, hint="Export to a folder of its own"
            )

        newest = partial(self._catalog, True)
        # Events do not change: which there are says what is exported, whenever each is read.
        ids, catalog = read_with_catalog(newest(), newest, partial(ids_by_type, self._table))
        process_clock.observe(max((int(one[-1]) for one in ids.values()), default=0))

        def parts_of(kind: EventType) -> Iterator[pa.Table]:
            plan = ReplayPlan.of(self._table, catalog, [kind])
            return plan.in_parts(ids.get(kind.name, np.array([], np.int64)), FILE_ROWS)

        return export_events(target, catalog.types, parts_of, format, catalog.options)

    def restore(self, folder: str | Path) -> ExportReport:
        """Import the events and types of an export into the store, with their ids.

        Events that exist already are skipped, so that a call can be repeated. Later events get higher ids.

        Parameters
        ----------
        folder : str or Path
            Where the export is.

        Returns
        -------
        ExportReport
            The events that were written.

        Raises
        ------
        InputError
            If there is no export, or its types or events conflict with those of the store. Nothing is
            written.
        CorruptionError
            If a file is missing or damaged. Nothing is written.
        """
        self._refuse_if_closed()
        source = table_store(folder, self._storage_options, self._fsync)
        manifest = read_manifest(source)
        catalog = self._catalog(True)
        for kind in manifest.types.values():
            for number, fields in sorted(kind.versions.items()):
                catalog = catalog.defined(kind.name, fields, number)
        for _, rows in restored_tables(source, manifest):
            self._missing(rows)
        for kind in manifest.types.values():
            for number, fields in sorted(kind.versions.items()):
                self.define(kind.name, fields, number)
        writer = self._writer_of_commands()
        events = files = 0
        for kind, rows in restored_tables(source, manifest):
            missing = self._missing(rows)
            files += 1
            if missing.num_rows:
                process_clock.observe(pc.max(missing.column("event_id")).as_py())
                events += writer.restore(stored_columns(self._known.types[kind.name], missing), self._missing)
        return ExportReport(events, files)

    def _missing(self, rows: pa.Table) -> pa.Table:
        """Return the events that do not exist yet; refuse those whose id another event has."""
        if rows.num_rows == 0:
            return rows
        bounds = pc.min_max(rows.column("event_id")).as_py()
        present = scan_events(
            self._table,
            self._catalog(True),
            ["event_id", "context_id", "event_type"],
            ids_between(bounds["min"], bounds["max"]),
        )
        at = pc.index_in(rows.column("event_id"), present.column("event_id").combine_chunks())
        known = rows.filter(pc.is_valid(at))
        same = present.take(pc.drop_null(at))
        for name in ("context_id", "event_type"):
            if not known.column(name).equals(same.column(name)):
                raise InputError(
                    "an event of the export has the id of another event of the store", where="event_id"
                )
        return rows.filter(pc.is_null(at))

    # --- Beside reading and writing --------------------------------------------------------------

    @property
    def tables(self) -> dict[str, Table]:
        """The Weir tables behind the store, by name."""
        catalog = self._catalog(True)
        remembered = {
            f"materializations/{name}": table
            for name in catalog.materializations
            for table in self._materialization(name, catalog).tables()
        }
        return {EVENTS: self._table, **remembered}

    def close(self) -> None:
        """Close the writers of this store. Idempotent."""
        with self._lock:
            writers = list(self._writers)
            self._closed = True
        for writer in writers:
            writer.close()
        self._saving.close()

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise WriterClosedError("the event store is closed", hint="Open it again with weir.events.open()")

    def __enter__(self) -> EventStore:
        """Return the store itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Close it."""
        self.close()

    def __repr__(self) -> str:
        return f"<EventStore {self.path}>"


def _runner_on(spark: Any) -> QueryRunner:
    # What runs on Spark stands above the event store, and is there only where Spark is.
    runner: QueryRunner = import_module("weir.spark").SparkRunner(spark)
    return runner
