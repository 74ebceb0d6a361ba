"""The query planner: binds every name and checks every value, without reading events."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta

from datafusion import Expr, col

from weir.errors import InputError
from weir.events.catalog import Catalog
from weir.events.event_types import EventType
from weir.events.instants import parse_instant
from weir.events.language import tree
from weir.events.names import check_context
from weir.events.query.buckets import check_zone
from weir.events.query.conditions import condition_of, fields_of_condition, steps_of
from weir.events.query.reading import Bounds, StepRead, StepsRead
from weir.events.query.scope import Column, Scope, failure
from weir.table.table import Table

__all__ = ["EVERYTHING", "BoundAggregate", "Grouping", "QueryPlan", "Window", "bound_instant", "plan_query"]


@dataclass(frozen=True, slots=True)
class Window:
    """Restricts the rows a query selects.

    Parameters
    ----------
    rows : int or None
        Keep this many of the newest, by the event id of their first step.
    age : int or None
        Keep those whose first step has a timestamp at most this many microseconds ago.
    """

    rows: int | None = None
    age: int | None = None


EVERYTHING = Window()


@dataclass(frozen=True, slots=True)
class BoundAggregate:
    """An aggregate and its column."""

    kind: str
    column: Column | None
    shown: str


@dataclass(frozen=True, slots=True)
class Grouping:
    """The grouping and the aggregates.

    Parameters
    ----------
    aggregates : tuple of BoundAggregate
        In order.
    by : tuple of (Column, str)
        The columns to group by, with their names in the result.
    unit : str or None
        The unit of the time buckets.
    time : Column or None
        The column they apply to.
    zone : str or None
        Their time zone. None for UTC.
    """

    aggregates: tuple[BoundAggregate, ...]
    by: tuple[tuple[Column, str], ...]
    unit: str | None
    time: Column | None
    zone: str | None

    @property
    def is_grouped(self) -> bool:
        """Whether the result has a row per group, not one for all."""
        return bool(self.by) or self.unit is not None


@dataclass(frozen=True, slots=True)
class QueryPlan:
    """A query that is ready to run.

    Parameters
    ----------
    query : Query
        The query.
    scope : Scope
        Its types.
    read : StepsRead
        What it reads.
    window : Window
        The requested window.
    conditions : tuple of tuple of Condition
        By step.
    before : tuple of bool
        For every step after the first, whether it precedes.
    links, times : tuple of Column
        For every step, the columns to match by.
    within : timedelta or None
        The maximum time between the first and last step.
    grouping : Grouping or None
        The aggregation; None for rows.
    shown : tuple of Column
        The columns of rows.
    order : tuple of ((Column or str), bool)
        The sort keys of rows or groups, each with whether it is descending.
    warnings : tuple of str
        What the query ignored.
    """

    query: tree.Query
    scope: Scope
    read: StepsRead
    window: Window
    conditions: tuple[tuple[tree.Condition, ...], ...]
    before: tuple[bool, ...]
    links: tuple[Column, ...]
    times: tuple[Column, ...]
    within: timedelta | None
    grouping: Grouping | None
    shown: tuple[Column, ...]
    order: tuple[tuple[Column | str, bool], ...]
    warnings: tuple[str, ...]


def bound_instant(value: tree.Value | None) -> int | None:
    """Return the instant that SINCE or UNTIL names.

    Raises
    ------
    QueryError
        If it is not valid.
    """
    if value is None:
        return None
    try:
        return parse_instant(value.value)
    except InputError as error:
        raise failure(error.message, value.place, error.hint) from None


def type_named(catalog: Catalog, name: tree.Name) -> EventType:
    """Return the type that a query names.

    Raises
    ------
    QueryError
        If it does not exist.
    """
    try:
        return catalog.type(name.text)
    except InputError as error:
        raise failure(error.message, name.place, error.hint) from None


def checked_context(context: tree.Name | None) -> str | None:
    """Return the context that a query names.

    Raises
    ------
    QueryError
        If it is not valid.
    """
    if context is None:
        return None
    try:
        return check_context(context.text)
    except InputError as error:
        raise failure(error.message, context.place, error.hint) from None


def plan_query(table: Table, catalog: Catalog, query: tree.Query, window: Window = EVERYTHING) -> QueryPlan:
    """Return the plan of a query.

    Parameters
    ----------
    table : Table
        The events table.
    catalog : Catalog
        The catalog.
    query : Query
        The query.
    window : Window, optional
        The requested window. Default: all.

    Raises
    ------
    QueryError
        If the query is not valid; the message has its position.
    """
    names = [query.type, *(step.type for step in query.steps)]
    scope = Scope(tuple(type_named(catalog, name) for name in names))
    for at, name in enumerate(names):
        if name.text in [one.text for one in names[:at]]:
            raise failure(
                f"{name.text!r} is in the sequence twice", name.place, "Each step is of a type of its own"
            )
    links = _links(query, scope)
    match_times = _times(query.using_time, scope)
    bound_times = _times(query.using, scope)
    since, until = bound_instant(query.since), bound_instant(query.until)
    conditions = tuple(tuple(one) for one in steps_of(query.where, scope))
    for of_step in conditions:
        for condition in of_step:
            condition_of(condition, scope, _no_column)
    zone = check_zone(query.zone)
    grouping = _grouping(query, scope, bound_times[0], zone)
    warnings: list[str] = []
    shown = () if grouping is not None else _shown(query, scope, warnings)
    if grouping is not None and query.returns is not None:
        warnings.append("RETURN is passed over: an aggregate has its own columns")
    order = _order(query, scope, grouping)
    steps = []
    for step, kind in enumerate(scope.types):
        needed: dict[str, Column] = {}

        def need(column: Column | None, step: int = step, needed: dict[str, Column] = needed) -> None:
            if column is not None and column.step == step:
                needed[column.internal] = column

        bounded = since is not None or until is not None
        need(bound_times[step] if bounded else None)
        for condition in conditions[step]:
            for field in fields_of_condition(condition):
                need(scope.get(field))
        if scope.is_sequence:
            for column in (links[step], match_times[step]):
                need(column)
        for column in shown:
            need(column)
        need(scope.core(step)[0])
        need(scope.of(step, "timestamp") if window.age is not None else None)
        for one in order:
            need(one[0] if isinstance(one[0], Column) else None)
        if grouping is not None:
            need(grouping.time)
            for column, _ in grouping.by:
                need(column)
            for aggregate in grouping.aggregates:
                need(aggregate.column)
        steps.append(
            StepRead(kind, tuple(needed.values()), bound_times[step] if bounded else None, conditions[step])
        )
    whole = Bounds(context=checked_context(query.context), since=since, until=until)
    return QueryPlan(
        query,
        scope,
        StepsRead(table, catalog, scope, tuple(steps), whole),
        window,
        conditions,
        tuple(step.before for step in query.steps),
        links,
        match_times,
        query.within,
        grouping,
        shown,
        order,
        tuple(warnings),
    )


def _no_column(column: Column) -> Expr:
    return col(column.internal)


def _links(query: tree.Query, scope: Scope) -> tuple[Column, ...]:
    if not scope.is_sequence:
        return ()
    field = query.linked_by
    assert field is not None
    found = _in_every_step(field, scope)
    for column in found:
        if column.type.arrow != found[0].type.arrow:
            raise failure(
                f"{field.text!r} is {found[0].type} in {scope.types[0].name!r} and {column.type} in "
                f"{scope.types[column.step].name!r}",
                field.place,
                "A sequence is linked by a field of one type",
            )
        if column.type.kind == "list":
            raise failure(f"{field.text!r} is a list, which links nothing", field.place)
    return found


def _in_every_step(field: tree.FieldName, scope: Scope) -> tuple[Column, ...]:
    if field.type is not None and scope.is_sequence:
        raise failure(f"{field} is of one step", field.place, f"Name the field alone: {field.text}")
    return tuple(
        scope.of(step, field.text) or scope.get(replace(field, type=kind.name))
        for step, kind in enumerate(scope.types)
    )


def _times(field: tree.FieldName | None, scope: Scope) -> tuple[Column, ...]:
    if field is None:
        field = tree.FieldName("timestamp", None)  # type: ignore[arg-type]
    found = _in_every_step(field, scope)
    for column in found:
        if not column.type.is_time:
            raise failure(
                f"{field} of {scope.types[column.step].name!r} is {column.type}, and no time",
                field.place,
                "Expected a datetime or a date",
            )
    return found


def _shown(query: tree.Query, scope: Scope, warnings: list[str]) -> tuple[Column, ...]:
    asked: list[list[Column]] = [[] for _ in scope.types]
    if not query.returns:
        asked = [list(scope.columns_of(step)) for step in range(len(scope.types))]
    for field in query.returns or ():
        column = scope.find(field)
        if column is None:
            warnings.append(f"RETURN: there is no field {str(field)!r:.150}, which is passed over")
        else:
            asked[column.step].append(column)
    found: dict[str, Column] = {}
    for step, columns in enumerate(asked):
        for column in (*scope.core(step), *columns):
            found[column.internal] = column
    return tuple(found.values())


def _grouping(query: tree.Query, scope: Scope, time: Column, zone: str | None) -> Grouping | None:
    if not query.aggregates:
        return None
    aggregates: dict[str, BoundAggregate] = {}
    for one in query.aggregates:
        column = None if one.field is None else scope.get(one.field)
        if column is not None:
            _check_aggregate(one, column)
        bound = BoundAggregate(one.kind, column, one.column)
        if aggregates.setdefault(one.column, bound) != bound:
            # COUNT UNIQUE x, and COUNT of a field that is called unique_x.
            raise failure(f"two columns of the result would be called {one.column!r}", query.type.place)
    by: dict[str, tuple[Column, str]] = {}
    for field in query.by:
        column = scope.get(field, first_step=True)
        if column.type.kind == "list":
            raise failure(f"{field} is a list, which makes no groups", field.place)
        by[str(field)] = column, str(field)
    names = [*(["bucket"] if query.per else []), *by, *aggregates]
    doubled = next((name for name in names if names.count(name) > 1), None)
    if doubled is not None:
        raise failure(f"two columns of the result would be called {doubled!r}", query.type.place)
    return Grouping(
        tuple(aggregates.values()), tuple(by.values()), query.per, time if query.per else None, zone
    )


def _check_aggregate(one: tree.Aggregate, column: Column) -> None:
    assert one.field is not None
    if one.kind in ("total", "avg") and not column.type.is_number:
        raise failure(
            f"{one.kind.upper()} takes numbers: {one.field} is {column.type}",
            one.field.place,
            "Expected an int, a float or a decimal",
        )
    if column.type.kind == "list" and one.kind != "count":
        raise failure(f"{one.field} is a list, of which there is only COUNT", one.field.place)


def _order(
    query: tree.Query, scope: Scope, grouping: Grouping | None
) -> tuple[tuple[Column | str, bool], ...]:
    found: list[tuple[Column | str, bool]] = []
    for one in query.order_by:
        if grouping is None:
            column = scope.get(one.field)
            if column.type.kind == "list":
                raise failure(f"{one.field} is a list, which has no order", one.field.place)
            found.append((column, one.descending))
            continue
        names = [
            *(["bucket"] if grouping.unit else []),
            *(name for _, name in grouping.by),
            *(aggregate.shown for aggregate in grouping.aggregates),
        ]
        name = str(one.field)
        if name.startswith("sum_") and f"total_{name[4:]}" in names:
            name = f"total_{name[4:]}"
        if name not in names:
            raise failure(
                f"the result has no column {name!r:.150}",
                one.field.place,
                f"Its columns are {', '.join(names)}",
            )
        found.append((name, one.descending))
    return tuple(found)
