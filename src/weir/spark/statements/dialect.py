"""The dialect of what is passed on to Spark: it comes out as it was written.

The dialect of the parser's own understands functions, and writes some of them another way: ``to_char(n,
'999')`` as a cast, ``TIME '12:00:00'`` as an instant. Here functions are names with arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import ClassVar

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError
from sqlglot.generators.spark import SparkGenerator
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import TokenType

__all__ = ["PassedOn", "is_known", "understood"]

_WITH_WORDS_INSIDE = ("CAST", "EXTRACT", "OVERLAY", "POSITION", "SUBSTRING", "TRIM", "TRY_CAST")
_UNKNOWN_TO_THE_PARSER = frozenset({"NOW"})
_HINTS = ("BROADCAST", "BROADCASTJOIN", "MAPJOIN", "MERGE", "MERGEJOIN", "SHUFFLEMERGE", "SHUFFLE_HASH")


class PassedOn(Spark):
    """Spark's SQL, whose functions are not understood."""

    class Parser(SparkParser):
        """Takes functions for names with arguments, but where words stand between these."""

        FUNCTIONS: ClassVar = {}
        ARRAY_CONSTRUCTORS: ClassVar = {}
        FUNCTION_PARSERS: ClassVar = {
            name: SparkParser.FUNCTION_PARSERS[name] for name in (*_WITH_WORDS_INSIDE, *_HINTS)
        }

        def _parse_types(
            self,
            check_func: bool = False,
            schema: bool = False,
            allow_identifiers: bool = True,
            with_collation: bool = False,
        ) -> exp.Expr | None:
            """Return a type, but none for a call of the function of its name.

            What is in the parentheses would be read as that of a type, and again as that of a call, so that
            each call inside another doubled the time.
            """
            if check_func and self._is_call():
                return None
            return super()._parse_types(check_func, schema, allow_identifiers, with_collation)

        def _is_call(self) -> bool:
            """Whether a name of a type has parentheses, and after these comes no text of that type."""
            if self._curr.token_type not in self.TYPE_TOKENS or self._next.token_type != TokenType.L_PAREN:
                return False
            open_ones = 0
            for number in range(self._index + 1, len(self._tokens)):
                kind = self._tokens[number].token_type
                open_ones += (kind == TokenType.L_PAREN) - (kind == TokenType.R_PAREN)
                if not open_ones:
                    after = self._tokens[number + 1 : number + 2]
                    return not (after and after[0].token_type in self.STRING_PARSERS)
            return False

    class Generator(SparkGenerator):
        """Writes times of the day as such."""

        TYPE_MAPPING: ClassVar = {**SparkGenerator.TYPE_MAPPING, exp.DataType.Type.TIME: "TIME"}

        def cast_sql(self, expression: exp.Cast, safe_prefix: str | None = None) -> str:
            """Return a cast; of a text to a time of the day the literal, which needs no setting."""
            if expression.to.this == exp.DataType.Type.TIME and expression.this.is_string and not safe_prefix:
                return f"TIME {self.sql(expression.this)}"
            return super().cast_sql(expression, safe_prefix=safe_prefix)

        def datatype_sql(self, expression: exp.DataType) -> str:
            """Return a type; of a time of the day with its digits."""
            if expression.this == exp.DataType.Type.TIME and expression.expressions:
                return f"TIME({self.expressions(expression, flat=True)})"
            return super().datatype_sql(expression)


def is_known(function: exp.Anonymous) -> bool:
    """Whether it is a function of Spark's own."""
    name = function.name.upper()
    known = (SparkParser.FUNCTIONS, SparkParser.FUNCTION_PARSERS, _UNKNOWN_TO_THE_PARSER)
    return any(name in names for names in known)


def understood(expression: exp.Expr, is_passed_on: Callable[[exp.Expr], bool]) -> exp.Expr:
    """Return an expression whose functions are understood, but for those that are passed on.

    Examples
    --------
    >>> import sqlglot
    >>> passed_on = sqlglot.parse_one("lower(a) = lower('B')", read=PassedOn)
    >>> found = understood(passed_on, lambda part: part.find(exp.Column) is None)
    >>> type(found.left).__name__, type(found.right).__name__
    ('Lower', 'Anonymous')
    """
    # A node that is replaced needs one above it.
    whole = exp.Paren(this=expression.copy())
    for function in reversed(list(whole.find_all(exp.Anonymous))):
        if isinstance(function.this, str) and not is_passed_on(function):
            # With arguments that it does not have it stays unknown.
            with suppress(SqlglotError, ValueError, TypeError, IndexError):
                function.replace(exp.func(function.name, *function.expressions, dialect="spark"))
    inside = whole.this
    assert isinstance(inside, exp.Expr)
    return inside
