"""Names of columns and of their fields, found whatever their case, as Spark finds them."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
from sqlglot import exp

from weir.errors import QueryError
from weir.spark.statements.expressions import column_type

__all__ = ["own_name", "with_own_fields"]


_COLUMN_PARTS = ("this", "table", "db", "catalog")
"""The names of a column and of the columns it is in, the innermost first."""


def own_name(name: str, names: Iterable[str]) -> str | None:
    """Return one of some names as it is written there; None if it is not among them.

    Parameters
    ----------
    name : str
        The name as it is in a statement.
    names : iterable of str
        The names there are.

    Raises
    ------
    QueryError
        If several differ from it by their case, and none is the same.

    Examples
    --------
    >>> own_name("ID", ["id", "day"])
    'id'
    >>> own_name("a", ["A", "a"])
    'a'
    """
    alike = [one for one in names if one.lower() == name.lower()]
    if name in alike:
        return name
    if len(alike) > 1:
        raise QueryError(
            f"{name!r} may be any of {', '.join(alike)}",
            where=name,
            hint="Write the one that is meant as it is",
        )
    return alike[0] if alike else None


def with_own_fields(expression: exp.Expression, schema: pa.Schema) -> exp.Expression:
    """Return an expression with the fields of columns named as the columns have them.

    Fields that there are not keep their names.

    Parameters
    ----------
    expression : Expression
        An expression over columns of the schema, named as they are there.
    schema : Schema
        Columns.

    Raises
    ------
    QueryError
        If a name may be that of several fields.

    Examples
    --------
    >>> import sqlglot
    >>> schema = pa.schema([("s", pa.struct([("X", pa.int64())]))])
    >>> with_own_fields(sqlglot.parse_one("s.x = 1"), schema).sql()
    's.X = 1'
    """
    # A node that is replaced needs one above it.
    whole = exp.Paren(this=expression.copy())
    for column in list(whole.find_all(exp.Column)):
        first, *fields = column.parts
        kind = column_type(exp.Column(this=first.copy()), schema)
        for field in fields:
            kind = _renamed(field, kind)
        _follow(column, kind)
    inside = whole.this
    assert isinstance(inside, exp.Expression)
    return inside


def _follow(part: exp.Expr, kind: pa.DataType | None) -> None:
    """Rename the fields that are taken of a value, of its elements, and so on."""
    above = part.parent
    if kind is None or above is None or above.this is not part:
        return
    if isinstance(above, exp.Dot) and isinstance(above.expression, exp.Identifier):
        _follow(above, _renamed(above.expression, kind))
    elif isinstance(above, exp.Bracket) and pa.types.is_struct(kind):
        name = above.expressions[0]
        if len(above.expressions) == 1 and name.is_string:
            # Not an element: what is in brackets is the name of a field.
            field = exp.to_identifier(name.name, quoted=True)
            inside = _renamed(field, kind)
            _follow(above.replace(_field_of(part, field)), inside)
    elif isinstance(above, exp.Bracket):
        is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
        _follow(above, kind.value_type if is_list else kind.item_type if pa.types.is_map(kind) else None)


def _field_of(part: exp.Expr, field: exp.Identifier) -> exp.Expr:
    """Return the field of a value: of a column as long as there are names for it."""
    names = [*part.parts, field] if isinstance(part, exp.Column) else []
    if not 0 < len(names) <= len(_COLUMN_PARTS):
        return exp.Dot(this=part.copy(), expression=field)
    return exp.Column(**dict(zip(_COLUMN_PARTS, (one.copy() for one in reversed(names)), strict=False)))


def _renamed(field: exp.Expr, kind: pa.DataType | None) -> pa.DataType | None:
    """Give a field of a struct its own name; return its type, or None if there is no such field."""
    if kind is None or not pa.types.is_struct(kind):
        return None
    name = own_name(field.name, [one.name for one in kind])
    if name is None:
        return None
    if name != field.name:
        field.set("this", name)
    return kind.field(name).type
