"""Planning of ``MERGE INTO`` as writes of Weir, without reading or writing.

For each source row, Spark determines which clause applies if the table has its key, and which if it has not,
so only conditions on the source choose between clauses. Whether the table has the key, and what its row is,
Weir decides at the write's position in the log. So only one clause, the last ``WHEN MATCHED``, may have a
condition on the table's row, and clauses set values computed from the source.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NoReturn, cast

import pyarrow as pa
from sqlglot import exp

from weir.errors import QueryError, SchemaError, UnsupportedError
from weir.spark.statements.constants import Evaluate, condition_text
from weir.spark.statements.expressions import renamed
from weir.spark.statements.own_names import own_name

__all__ = ["Clause", "MergePlan", "plan_merge_rows"]

_WHERE = "MERGE INTO"
Values = dict[str, exp.Expression]


@dataclass(frozen=True, slots=True)
class Clause:
    """One ``WHEN`` clause.

    Parameters
    ----------
    chosen_by : Expression or None
        The condition on the source.
    values : dict of str to Expression, or None
        What it sets: for each column, including the key, an expression over the source. None: it deletes.
    condition : str or None
        The condition on the table's row, in Weir's syntax.
    """

    chosen_by: exp.Expression | None
    values: Values | None
    condition: str | None = None


@dataclass(frozen=True, slots=True)
class MergePlan:
    """A ``MERGE INTO`` that can be executed.

    Parameters
    ----------
    keys : dict of str to Expression
        For each column of the primary key, its source expression.
    matched : tuple of Clause
        The clauses for existing keys, in order: the first whose condition holds applies.
    absent : tuple of Clause
        The same for missing keys.
    """

    keys: Values
    matched: tuple[Clause, ...]
    absent: tuple[Clause, ...]

    def is_upsert(self, matched: int, absent: int, columns: Sequence[str]) -> bool:
        """Whether two clauses together write the same whole row, whether or not the key exists."""
        update, insert = self.matched[matched].values, self.absent[absent].values
        return update is not None and update.keys() == set(columns) and update == insert


def plan_merge_rows(
    statement: exp.Merge,
    schema: pa.Schema,
    primary_key: Sequence[str],
    source_columns: Sequence[str],
    evaluate: Evaluate,
) -> MergePlan:
    """Return the plan of a statement.

    Parameters
    ----------
    statement : Merge
        The statement.
    schema : Schema
        Columns of the table.
    primary_key : sequence of str
        The columns of its key.
    source_columns : sequence of str
        Columns of the source.
    evaluate : callable
        Evaluates the constant parts of conditions on the table's row.

    Raises
    ------
    UnsupportedError
        If it cannot be expressed as writes of Weir.
    SchemaError
        If it names a column that does not exist.
    QueryError
        If a column is ambiguous.
    """
    names = _Names(statement, tuple(schema.names), tuple(source_columns))
    keys = _keys(names, statement.args["on"], primary_key)
    matched: list[Clause] = []
    absent: list[Clause] = []
    for when in statement.args["whens"].expressions:
        if when.args.get("source"):
            _refuse("WHEN NOT MATCHED BY SOURCE", "Delete such rows with DELETE FROM ... WHERE")
        is_match = bool(when.args["matched"])
        if is_match and matched and matched[-1].condition is not None:
            _refuse(
                f"a clause after WHEN MATCHED AND {matched[-1].condition}",
                "A condition on the row of the table can be on the last WHEN MATCHED alone",
            )
        clause = _clause(names, when, keys, partial(condition_text, schema=schema, evaluate=evaluate))
        (matched if is_match else absent).append(clause)
    return MergePlan(keys, tuple(matched), tuple(absent))


def _refuse(what: str, hint: str | None = None) -> NoReturn:
    raise UnsupportedError(f"weir.spark.sql cannot do {what}", where=_WHERE, hint=hint)


class _Names:
    """Resolves the columns of a statement to the table or the source."""

    def __init__(self, statement: exp.Merge, columns: tuple[str, ...], source: tuple[str, ...]) -> None:
        self._target = statement.this.alias_or_name.lower()
        self._source = statement.args["using"].alias_or_name.lower()
        self._source_columns = source
        self.columns = columns
        if self._target == self._source:
            raise QueryError("table and source have one name", where=_WHERE, hint="Give them aliases")

    def column(self, name: str) -> str:
        """Return a column of the table, by its name there."""
        found = own_name(name, self.columns)
        if found is None:
            raise SchemaError(f"the table has no column {name!r}", where=name)
        return found

    def of_source(self, name: str) -> exp.Column:
        """Return a column of the source."""
        found = own_name(name, self._source_columns)
        if found is None:
            raise SchemaError(f"the source has no column {name!r}", where=name)
        identifier = exp.to_identifier(found, quoted=True)
        # A query without an alias has no name, and nothing else is read.
        of = exp.to_identifier(self._source, quoted=True) if self._source else None
        return exp.Column(this=identifier, table=of)

    def of_star(self, keys: Values, what: str) -> Values:
        """Return what ``*`` sets: each column to that of the source with its name."""
        for name, value in keys.items():
            compared: exp.Expr = value
            while isinstance(compared, exp.Cast | exp.Paren):
                compared = compared.this
            if own_name(name, self._source_columns) is not None and compared != self.of_source(name):
                _refuse(
                    f"{what} * where ON compares {name} with {value.sql('spark')}",
                    "Name the columns and their values: the key of a row is what ON compares",
                )
        return {**keys, **{name: self.of_source(name) for name in self.columns if name not in keys}}

    def is_target(self, column: exp.Column) -> bool:
        """Whether a column belongs to the table."""
        if len(column.parts) > 2:
            _refuse(f"{column.sql('spark')}, a field of a column", "Make it a column of the source")
        of = column.table.lower()
        if of:
            if of not in (self._target, self._source):
                raise QueryError(f"{column.sql('spark')} is of neither table nor source", where=_WHERE)
            return bool(of == self._target)
        is_there = [
            own_name(column.name, names) is not None for names in (self.columns, self._source_columns)
        ]
        if all(is_there):
            raise QueryError(
                f"table and source both have a column {column.name!r}",
                where=column.name,
                hint="Qualify it with the name of the table or the source",
            )
        if not any(is_there):
            raise SchemaError(f"neither table nor source has a column {column.name!r}", where=column.name)
        return is_there[0]

    def depends_on_target(self, expression: exp.Expression) -> bool:
        """Whether an expression uses columns of the table."""
        found = {self.is_target(column) for column in expression.find_all(exp.Column)}
        return True in found

    def over_source(self, expression: exp.Expression, what: str) -> exp.Expression:
        """Return an expression over the source only, with the source's column names."""
        if self.depends_on_target(expression):
            _refuse(
                f"{what} {expression.sql('spark')}, which depends on the row of the table",
                'Set such columns with UPDATE ... SET, or create the table with merge_engine="aggregation"',
            )
        if expression.find(exp.Subquery, exp.Select):
            _refuse(f"{what} with a query inside", "Join it into the source")
        return renamed(expression, lambda column: self.of_source(column.name))


def _keys(names: _Names, on: exp.Expression, primary_key: Sequence[str]) -> Values:
    keys: Values = {}
    hint = f"Compare each column of the primary key with one of the source: {', '.join(primary_key)}"
    for one in on.flatten() if isinstance(on, exp.And) else [on]:
        one = one.unnest()
        if not isinstance(one, exp.EQ):
            _refuse(f"ON {one.sql('spark')}", hint)
        left, right = one.this.unnest(), one.expression.unnest()
        if isinstance(right, exp.Column) and names.is_target(right):
            left, right = right, left
        if not isinstance(left, exp.Column) or not names.is_target(left):
            _refuse(f"ON {one.sql('spark')}", hint)
        name, value = names.column(left.name), names.over_source(right, "ON")
        if keys.setdefault(name, value) != value:
            _refuse(f"ON with {name} compared twice", "Filter such rows in the source")
    if set(keys) != set(primary_key):
        _refuse(f"ON {on.sql('spark')}", hint)
    return {name: keys[name] for name in primary_key}


def _clause(names: _Names, when: exp.When, keys: Values, written: Callable[[exp.Expression], str]) -> Clause:
    condition = when.args.get("condition")
    then = when.args["then"]
    is_match = bool(when.args["matched"])
    values: Values | None
    if isinstance(then, exp.Update):
        values = _updated(names, then, keys)
    elif isinstance(then, exp.Insert):
        values = _inserted(names, then, keys)
    elif then.name.upper() == "DELETE":
        values = None
    else:
        _refuse(f"THEN {then.sql('spark')}")
    if condition is None:
        return Clause(None, values)
    if not names.depends_on_target(condition):
        return Clause(names.over_source(condition, "WHEN"), values)
    if not is_match:
        raise QueryError("a row that is not matched has no columns of the table", where=_WHERE)
    return Clause(None, values, written(_on_present_row(names, condition, values)))


def _on_present_row(names: _Names, condition: exp.Expression, values: Values | None) -> exp.Expression:
    """Return a condition over the existing row, with the new row as ``new``."""

    def written(column: exp.Column) -> exp.Expression:
        if names.is_target(column):
            own = names.column(column.name)
            return exp.Column(this=exp.to_identifier(own, quoted=True))
        of_source = names.of_source(column.name)
        for name, value in (values or {}).items():
            if value == of_source:
                new = exp.to_identifier(name, quoted=True)
                return exp.Column(this=new, table=exp.to_identifier("new"))
        _refuse(
            f"WHEN MATCHED AND {condition.sql('spark')}, since {column.sql('spark')} is not written",
            "A condition on the row of the table may compare it with values that the clause writes",
        )

    return renamed(condition, written)


def _updated(names: _Names, then: exp.Update, keys: Values) -> Values:
    values = dict(keys)
    done: set[str] = set()
    for one in then.expressions:
        if isinstance(one, exp.Star):
            values |= names.of_star(keys, "UPDATE SET")
            continue
        column = cast(exp.Column, one.this)
        if column.table and not names.is_target(column):
            _refuse(f"SET {one.sql('spark')}", "Only columns of the table are set")
        name = names.column(column.name)
        if name in done:
            raise QueryError(f"column {name!r} is set twice", where=name)
        done.add(name)
        value = names.over_source(one.expression, f"SET {name} =")
        if name in keys and value != keys[name]:
            _refuse(f"SET {one.sql('spark')}", "The primary key of a row does not change")
        values[name] = value
    return values


def _inserted(names: _Names, then: exp.Insert, keys: Values) -> Values:
    if isinstance(then.this, exp.Star):
        return names.of_star(keys, "INSERT")
    columns = then.this.expressions if then.this is not None else None
    given = then.expression.expressions if then.expression is not None else []
    if not columns or len(columns) != len(given):
        raise QueryError("INSERT needs as many columns as values", where=_WHERE)
    values = {
        names.column(one.name): names.over_source(value, "VALUES")
        for one, value in zip(columns, given, strict=True)
    }
    if len(values) != len(columns):
        raise QueryError("INSERT names a column twice", where=_WHERE)
    for name, value in keys.items():
        if values.get(name) != value:
            _refuse(f"INSERT with another {name} than ON has", f"Insert {value.sql('spark')} as {name}")
    return values
