"""WHERE as a DataFusion expression, in a sequence one for every step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from datafusion import Expr

from weir.events.instants import parse_instant
from weir.events.language import tree
from weir.events.query.comparisons import compared, is_one_of, matches
from weir.events.query.scope import Column, Scope, failure
from weir.events.visibility import all_of, any_of

__all__ = ["condition_of", "conjuncts", "fields_of_condition", "instants_between", "steps_of"]


def conjuncts(condition: tree.Condition | None) -> list[tree.Condition]:
    """Return the terms of a conjunction."""
    if condition is None:
        return []
    if isinstance(condition, tree.All):
        return [one for part in condition.conditions for one in conjuncts(part)]
    return [condition]


def fields_of_condition(condition: tree.Condition) -> Iterator[tree.FieldName]:
    """Yield every field that a condition names."""
    if isinstance(condition, tree.Not):
        yield from fields_of_condition(condition.condition)
    elif isinstance(condition, (tree.All, tree.AnyOf)):
        for one in condition.conditions:
            yield from fields_of_condition(one)
    else:
        yield condition.field


def steps_of(condition: tree.Condition | None, scope: Scope) -> list[list[tree.Condition]]:
    """Return the conditions of every step of a sequence, which select events before they are matched.

    Raises
    ------
    QueryError
        If a condition refers to two steps at once.
    """
    found: list[list[tree.Condition]] = [[] for _ in scope.types]
    for one in conjuncts(condition):
        fields = list(fields_of_condition(one))
        steps = {scope.get(field).step for field in fields}
        if len(steps) > 1:
            raise failure(
                "a condition of a sequence is of one step",
                fields[-1].place,
                "Join conditions of different steps by AND, outside of OR and NOT",
            )
        found[steps.pop()].append(one)
    return found


def condition_of(condition: tree.Condition, scope: Scope, column: Callable[[Column], Expr]) -> Expr:
    """Return a condition as an expression.

    Parameters
    ----------
    condition : Condition
        The condition.
    scope : Scope
        Resolves its fields.
    column : callable
        Returns the expression of a column.

    Raises
    ------
    QueryError
        If a field is unknown, or a value has the wrong type.
    """
    if isinstance(condition, tree.Not):
        return ~condition_of(condition.condition, scope, column)
    if isinstance(condition, (tree.All, tree.AnyOf)):
        parts = [condition_of(one, scope, column) for one in condition.conditions]
        joined = all_of(parts) if isinstance(condition, tree.All) else any_of(parts)
        assert joined is not None
        return joined
    found = scope.get(condition.field)
    if isinstance(condition, tree.IsNull):
        expression = column(found)
        return expression.is_not_null() if condition.negated else expression.is_null()
    if isinstance(condition, tree.Bare):
        if found.type.kind != "bool":
            raise failure(
                f"{condition.field} is {found.type}, and no condition by itself",
                condition.field.place,
                "Expected a comparison",
            )
        return column(found)
    if found.type.kind == "list":
        raise failure(
            f"{condition.field} is a list, which is compared with nothing",
            condition.field.place,
            "Expected IS NULL or IS NOT NULL",
        )
    return _compared(condition, found, column(found))


def _compared(
    condition: tree.Comparison | tree.IsIn | tree.Between | tree.Like, found: Column, expression: Expr
) -> Expr:
    if isinstance(condition, tree.Comparison):
        return compared(expression, found.type, condition.operator, condition.value)
    if isinstance(condition, tree.IsIn):
        result = is_one_of(expression, found.type, condition.values)
    elif isinstance(condition, tree.Between):
        low = compared(expression, found.type, ">=", condition.low)
        result = low & compared(expression, found.type, "<=", condition.high)
    else:
        result = matches(expression, found.type, condition.pattern)
    return ~result if condition.negated else result


def instants_between(
    conditions: Iterable[tree.Condition], scope: Scope
) -> dict[Column, tuple[int | None, int | None]]:
    """Return the bounds that a conjunction puts on every datetime field, inclusive and exclusive.

    Parameters
    ----------
    conditions : iterable of Condition
        Conditions that hold at once, with values of the types of their fields.
    scope : Scope
        Resolves their fields.
    """
    found: dict[Column, tuple[int | None, int | None]] = {}
    for condition in conditions:
        if not isinstance(condition, (tree.Comparison, tree.Between, tree.IsIn)):
            continue
        column = scope.get(condition.field)
        if column.type.kind == "datetime":
            since, until = _bounds(condition)
            former = found.get(column, (None, None))
            found[column] = (
                max((one for one in (former[0], since) if one is not None), default=None),
                min((one for one in (former[1], until) if one is not None), default=None),
            )
    return found


def _bounds(condition: tree.Comparison | tree.Between | tree.IsIn) -> tuple[int | None, int | None]:
    if isinstance(condition, tree.Comparison):
        value, operator = parse_instant(condition.value.value), condition.operator
        since = {"=": value, ">=": value, ">": value + 1}.get(operator)
        return since, {"=": value + 1, "<=": value + 1, "<": value}.get(operator)
    if condition.negated:
        return None, None
    values = condition.values if isinstance(condition, tree.IsIn) else (condition.low, condition.high)
    instants = [parse_instant(one.value) for one in values]
    if isinstance(condition, tree.IsIn):
        return min(instants), max(instants) + 1
    return instants[0], instants[1] + 1
