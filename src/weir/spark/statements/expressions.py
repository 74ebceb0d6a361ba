"""Expressions of Spark's SQL as those that Weir evaluates."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.tokens import Tokenizer as PlainTokenizer

__all__ = ["filter_text", "renamed"]


class _Filters(Dialect):
    """How Weir's filters are written: names that need it in backticks, quotation marks in texts doubled."""

    class Tokenizer(PlainTokenizer):
        IDENTIFIERS: ClassVar = ["`"]


def filter_text(expression: exp.Expression) -> str:
    r"""Return an expression as Weir's filters and conditions have it.

    Examples
    --------
    >>> import sqlglot
    >>> filter_text(sqlglot.parse_one(r"`a b` = 'it\'s' AND n <=> 1", read="spark"))
    "`a b` = 'it''s' AND n IS NOT DISTINCT FROM 1"
    """
    return expression.sql(_Filters)


def renamed(expression: exp.Expression, new: Callable[[exp.Column], exp.Expression | None]) -> exp.Expression:
    """Return an expression with other expressions in place of its columns; None leaves one as it is."""

    def replace(node: exp.Expression) -> exp.Expression:
        found = new(node) if isinstance(node, exp.Column) else None
        return node if found is None else found

    return expression.copy().transform(replace)
