"""Runs the commands of the language by calling the event store."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import chain, count
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from weir.errors import FencedError, InputError, QueryError
from weir.events.catalog import Catalog
from weir.events.instants import from_micros
from weir.events.language import tree
from weir.events.language.parser import parse
from weir.events.payloads import checked_event
from weir.events.query.parts import QueryRunner
from weir.events.query.planner import bound_instant, checked_context, type_named
from weir.events.query.replaying import ReplayPlan
from weir.events.query.scope import failure
from weir.events.result import Result

if TYPE_CHECKING:
    from weir.events.store import EventStore

__all__ = ["CommandRunner"]


class CommandRunner:
    """Runs commands on a store.

    Parameters
    ----------
    store : EventStore
        The store.
    runner : QueryRunner, optional
        Runs queries in parts. Default: each query runs as one part.
    """

    def __init__(self, store: EventStore, runner: QueryRunner | None = None) -> None:
        self._store = store
        self._runner = runner

    def run(self, text: str, once: str | None = None) -> Any:
        """Run one command and return its result; events that it appends may have a name."""
        command = parse(text)
        if once is not None and not isinstance(command, (tree.Store, tree.Batch)):
            raise InputError("only STORE and BATCH append events once", where="once")
        if isinstance(command, tree.Query):
            return self._store.run_query(command, self._runner)
        if isinstance(command, tree.Plot):
            return self._plot(command)
        if isinstance(command, tree.Replay):
            return self._store.run_replay(partial(self._planned_replay, command), self._runner)
        if isinstance(command, tree.Explain):
            return self._explain(command)
        if isinstance(command, tree.Compare):
            return self._compare(command)
        if isinstance(command, tree.Define):
            return self._define(command)
        if isinstance(command, (tree.Store, tree.Batch)):
            return self._append(command, once)
        if isinstance(command, tree.Remember):
            return self._remember(command, text)
        if isinstance(command, tree.Show):
            return self._store.shown(command.name.text, self._runner)
        if isinstance(command, tree.Drop):
            return self._store.drop(command.name.text)
        if isinstance(command, tree.ShowMaterializations):
            return _materializations(self._store)
        if isinstance(command, tree.ShowTypes):
            return _types(self._store)
        if isinstance(command, tree.Flush):
            return self._store.flush()
        if isinstance(command, tree.Retain):
            type_named(self._store._catalog(True), command.type)
            try:
                return self._store.retain(command.type.text, command.age)
            except InputError as error:
                raise failure(error.message, command.type.place, error.hint) from None
        if isinstance(command, tree.Forget):
            context = checked_context(command.context)
            assert context is not None
            return self._store.forget(context)
        if isinstance(command, tree.Ping):
            return "PONG"
        raise QueryError(f"{type(command).__name__.upper()} is no command here", where="line 1, column 1")

    def _define(self, command: tree.Define) -> None:
        try:
            self._store.define(command.name.text, command.fields, command.version)
        except InputError as error:
            raise failure(error.message, command.name.place, error.hint) from None

    def _remember(self, command: tree.Remember, text: str) -> Result:
        try:
            return self._store.remember(command.name.text, text)
        except QueryError:
            raise
        except InputError as error:
            raise failure(error.message, command.name.place, error.hint) from None

    def _plot(self, command: tree.Plot) -> Result:
        if not command.query.per:
            raise failure(
                "PLOT is of an aggregate over time", command.query.type.place, "Expected an aggregate and PER"
            )
        return self._store.run_query(command.query, self._runner)

    def _planned_replay(self, command: tree.Replay, catalog: Catalog) -> ReplayPlan:
        types = list(catalog.types.values()) if command.type is None else [type_named(catalog, command.type)]
        return ReplayPlan.of(
            self._store._table,
            catalog,
            types,
            context=checked_context(command.context),
            since=bound_instant(command.since),
            until=bound_instant(command.until),
            using=command.using,
            returns=command.returns,
        )

    def _explain(self, command: tree.Explain) -> Result:
        if isinstance(command.command, tree.Replay):
            explained = self._store.run_replay(partial(self._planned_replay, command.command))
        else:
            explained = self._store.run_query(command.command)
        return Result(
            lambda: pa.table({"plan": pa.array(explained.explain().splitlines(), pa.string())}),
            explained.explain,
        )

    def _compare(self, command: tree.Compare) -> Result:
        left, right = (self._store.run_query(one, self._runner) for one in (command.left, command.right))
        return compared(left, right, command)

    def _append(self, command: tree.Store | tree.Batch, once: str | None) -> Any:
        events = command.events if isinstance(command, tree.Batch) else (command,)
        first = events[0]
        checked_context(first.context)
        instants = [bound_instant(one.at) for one in events]
        given = [
            (one.type.text, one.payload, None if at is None else from_micros(at))
            for one, at in zip(events, instants, strict=True)
        ]
        arguments = first.context.text, given, first.expected
        try:
            try:
                return self._store._writer_of_commands().append_all(*arguments, once=once)
            except FencedError:
                # It was not accepted, and that writer is none for commands any more.
                return self._store._writer_of_commands().append_all(*arguments, once=once)
        except InputError as error:
            place = _misfit(self._store._catalog(True), events).type.place
            raise failure(error.message, place, error.hint) from None


def _misfit(catalog: Catalog, events: Sequence[tree.Store]) -> tree.Store:
    """Return the first of refused events that does not fit its type, or the first if all do."""
    for one in events:
        try:
            checked_event(catalog.type(one.type.text), one.payload, None)
        except InputError:
            return one
    return events[0]


def compared(left: Result, right: Result, command: tree.Compare) -> Result:
    """Return two results as one, with a leading column ``side`` of ``left`` or ``right``.

    If a query already has a column ``side``, it is called ``side_2``, and so on.
    """

    def run() -> pa.Table:
        sides = {"left": left.to_table(), "right": right.to_table()}
        taken = {name for table in sides.values() for name in table.column_names}
        numbered = (f"side_{number}" for number in count(2))
        name = next(one for one in chain(["side"], numbered) if one not in taken)
        tables = [
            table.add_column(0, name, pa.repeat(pa.scalar(side, pa.string()), table.num_rows))
            for side, table in sides.items()
        ]
        try:
            return pa.concat_tables(tables, promote_options="permissive")
        except pa.ArrowException:
            raise failure(
                "the two queries give a column of one name different types",
                command.right.type.place,
                "Compare columns of one type",
            ) from None

    return Result(run, lambda: f"{left.explain()}\n{right.explain()}", (*left.warnings, *right.warnings))


def _materializations(store: EventStore) -> Result:
    schema = pa.schema(
        [
            ("name", pa.string()),
            ("query", pa.string()),
            ("incremental", pa.bool_()),
            ("rows", pa.int64()),
            ("bytes", pa.int64()),
            ("mark", pa.int64()),
            ("lag", pa.int64()),
            ("keep_rows", pa.int64()),
            ("keep_age", pa.duration("us")),
            ("refreshed", pa.timestamp("us", "UTC")),
            ("refreshes", pa.int64()),
            ("refreshed_events", pa.int64()),
            ("refresh_time", pa.duration("us")),
        ]
    )

    def listed() -> pa.Table:
        rows = [
            {name: getattr(one, name) for name in schema.names} for one in store.materializations().values()
        ]
        return pa.Table.from_pylist(rows, schema)

    return Result(listed, lambda: "the materialisations of the catalog")


def _types(store: EventStore) -> Result:
    def listed() -> pa.Table:
        rows = [
            {
                "name": name,
                "version": kind.version,
                "fields": ", ".join(f"{field}: {of}" for field, of in kind.fields.items()),
            }
            for name, kind in store.types().items()
        ]
        return pa.Table.from_pylist(
            rows, pa.schema([("name", pa.string()), ("version", pa.int64()), ("fields", pa.string())])
        )

    return Result(listed, lambda: "the types of the catalog")
