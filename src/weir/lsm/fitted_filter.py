"""Casting literals of a filter to the types of the columns they are compared with.

Lance treats ``day >= '2026-01-01'`` as a comparison of a date with a text, and refuses it; in SQL the literal
is a date. So before a filter goes to Lance, a text or number that is compared with a column is rewritten as a
value of the column's type: in comparisons, ``BETWEEN`` and ``IN``, anywhere in the filter. Everything else is
unchanged.

A literal between two values of the type, or beyond all of them, keeps its meaning too: with whole numbers
``n > 1.5`` is ``n > 1``, and ``n = 1.5`` is true of no row.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation, localcontext
from functools import lru_cache
from uuid import UUID

import pyarrow as pa

from weir.errors import FilterError
from weir.format.plain_keys import stored_type
from weir.schema.uuid_text import UUID_TEXT
from weir.schema.zone_clocks import instants_shown
from weir.sharding.sql import named_fields

__all__ = ["fitted_filter"]

_TOKEN = re.compile(
    r"""(?P<space>\s+|--[^\n]*|/\*.*?\*/)
    |(?P<text>'(?:[^']|'')*')
    |(?P<quoted>`(?:[^`]|``)*`)
    |(?P<other>"(?:[^"]|"")*")
    |(?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)
    |(?P<word>[^\W\d]\w*)
    |(?P<sign><=|>=|<>|!=|==|\|\||::|.)""",
    re.DOTALL | re.VERBOSE,
)
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "==": "==", "<>": "<>", "!=": "!="}
_UUID_BYTES = 16
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_UNITS = {"s": "Second", "ms": "Millisecond", "us": "Microsecond", "ns": "Nanosecond"}
_NANOSECONDS = re.compile(r"\.[0-9]{7}")
_ZONE = re.compile(r"(?:Z|[+-][0-9]{2}(?::?[0-9]{2})?)$")


def fitted_filter(text: str, schema: pa.Schema) -> str:
    """Return a filter whose literals have the types of the columns that they are compared with.

    Parameters
    ----------
    text : str
        The filter, as Lance would take it. What does not parse stays as it is.
    schema : Schema
        The columns.

    Raises
    ------
    FilterError
        If a text that is compared with a date, a time or a number is none.

    Examples
    --------
    >>> import pyarrow as pa
    >>> schema = pa.schema([("day", pa.date32()), ("price", pa.decimal128(6, 2)), ("n", pa.int32())])
    >>> fitted_filter("day >= '2026-01-01' AND price IN (2.5, 3)", schema)
    "day >= date '2026-01-01' AND price IN (CAST('2.50' AS DECIMAL(6, 2)), CAST('3.00' AS DECIMAL(6, 2)))"
    >>> fitted_filter("n BETWEEN 1.5 AND 7", schema)
    '(n > 1 AND n <= 7)'
    """
    columns = named_fields(text, schema)
    if not any(_may_fit(kind) for _, kind in columns):
        return text
    return _fitted(text, columns)


def _may_fit(kind: pa.DataType) -> bool:
    of_itself = pa.types.is_struct(kind) or pa.types.is_floating(kind) or _is_binary(kind)
    return of_itself or _grid_of(kind) is not None


def _is_binary(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


@lru_cache(maxsize=1024)
def _fitted(text: str, columns: tuple[tuple[str, pa.DataType], ...]) -> str:
    return _Fitting(text, dict(columns)).result()


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    start: int
    end: int

    @property
    def upper(self) -> str:
        return self.text.upper() if self.kind == "word" else self.text


@dataclass(frozen=True, slots=True)
class _Column:
    """A column in the text of a filter: its type, how it is written there, and where it ends."""

    kind: pa.DataType
    text: str
    following: int


@dataclass(frozen=True, slots=True)
class _Literal:
    """A text, or a number with its sign, and where it ends."""

    value: str
    is_text: bool
    following: int


_END = _Token("end", "", -1, -1)
_BEFORE = {"(", ",", "AND", "OR", "NOT", ""}
_AFTER = {")", ",", "AND", "OR", ""}


class _Fitting:
    """One pass over the tokens of a filter."""

    def __init__(self, text: str, columns: dict[str, pa.DataType]) -> None:
        self._text = text
        self._columns = columns
        self._tokens = [
            _Token(match.lastgroup or "", match.group(), match.start(), match.end())
            for match in _TOKEN.finditer(text)
            if match.lastgroup != "space"
        ]

    def result(self) -> str:
        parts: list[str] = []
        copied = at = 0
        while at < len(self._tokens):
            found = self._comparison(at) if self._upper(at - 1) in _BEFORE else None
            if found is None:
                at += 1
                continue
            changed, following = found
            parts += [self._text[copied : self._tokens[at].start], changed]
            copied, at = self._tokens[following - 1].end, following
        return "".join([*parts, self._text[copied:]])

    def _token(self, at: int) -> _Token:
        return self._tokens[at] if 0 <= at < len(self._tokens) else _END

    def _upper(self, at: int) -> str:
        return self._token(at).upper

    def _comparison(self, at: int) -> tuple[str, int] | None:
        """Return the replacement of the comparison that begins at a token, and where that one ends."""
        column = self._column(at)
        if column is None:
            return self._mirrored(at)
        at = column.following
        negated = self._upper(at) == "NOT"
        word = self._upper(at + negated)
        if word == "BETWEEN":
            return self._between(column, at + negated + 1, negated=negated)
        if word == "IN":
            return self._in_list(column, at + negated + 1, negated=negated)
        if negated or word not in _MIRRORED:
            return None
        literal = self._literal(at + 1)
        if literal is None or self._upper(literal.following) not in _AFTER:
            return None
        changed = _compared(column, word, literal)
        return None if changed is None else (changed, literal.following)

    def _mirrored(self, at: int) -> tuple[str, int] | None:
        literal = self._literal(at)
        if literal is None or self._upper(literal.following) not in _MIRRORED:
            return None
        column = self._column(literal.following + 1)
        if column is None or self._upper(column.following) not in _AFTER:
            return None
        changed = _compared(column, _MIRRORED[self._upper(literal.following)], literal)
        return None if changed is None else (changed, column.following)

    def _between(self, column: _Column, at: int, *, negated: bool) -> tuple[str, int] | None:
        least = self._literal(at)
        if least is None or self._upper(least.following) != "AND":
            return None
        most = self._literal(least.following + 1)
        if most is None or self._upper(most.following) not in _AFTER:
            return None
        bounds = _compared(column, ">=", least), _compared(column, "<=", most)
        if bounds == (None, None):
            return None
        lower = bounds[0] or f"{column.text} >= {least.value}"
        upper = bounds[1] or f"{column.text} <= {most.value}"
        return f"{'NOT ' if negated else ''}({lower} AND {upper})", most.following

    def _in_list(self, column: _Column, at: int, *, negated: bool) -> tuple[str, int] | None:
        if self._upper(at) != "(":
            return None
        literals: list[_Literal] = []
        nulls: list[str] = []
        while True:
            literal = self._literal(at + 1)
            if literal is not None:
                literals.append(literal)
                at = literal.following
            elif self._upper(at + 1) == "NULL":
                nulls = ["NULL"]
                at += 2
            else:
                return None
            if self._upper(at) == ")":
                break
            if self._upper(at) != ",":
                return None
        if not literals:
            return None
        if _is_binary(column.kind) and all(one.is_text for one in literals):
            listed = ", ".join([*map(_binary_sql, literals), *nulls])
            return f"{column.text} {'NOT ' if negated else ''}IN ({listed})", at + 1
        fits = _fits_of(column)
        if fits is None or not any(fits.changes(one) for one in literals):
            return None
        values = [fits.exact(one) for one in literals]
        known = [value for value in values if value is not None]
        if not known and not nulls:
            return (_always(column) if negated else _never(column)), at + 1
        return f"{column.text} {'NOT ' if negated else ''}IN ({', '.join([*known, *nulls])})", at + 1

    def _column(self, at: int) -> _Column | None:
        name = self._name(at)
        kind = None if name is None else self._columns.get(name)
        if kind is None or self._upper(at + 1) == "(":
            return None
        first = at
        while self._upper(at + 1) == ".":
            name = self._name(at + 2)
            if name is None or not pa.types.is_struct(kind) or kind.get_field_index(name) < 0:
                return None
            kind = kind.field(name).type
            at += 2
        return _Column(kind, self._text[self._tokens[first].start : self._tokens[at].end], at + 1)

    def _name(self, at: int) -> str | None:
        token = self._token(at)
        if token.kind == "word":
            return token.text
        return token.text[1:-1].replace("``", "`") if token.kind == "quoted" else None

    def _literal(self, at: int) -> _Literal | None:
        token = self._token(at)
        if token.kind == "text":
            return _Literal(token.text[1:-1].replace("''", "'"), True, at + 1)
        sign = token.text if token.kind == "sign" and token.text in ("-", "+") else ""
        number = self._token(at + 1) if sign else token
        if number.kind != "number":
            return None
        return _Literal(sign.replace("+", "") + number.text, False, at + 1 + bool(sign))


@dataclass(frozen=True, slots=True)
class _Grid:
    """The values of a type, as whole numbers of its smallest step.

    Parameters
    ----------
    least, most : int
        The bounds.
    read : callable
        Returns a literal in steps of the type, possibly fractional; raises ValueError if it is not one.
    write : callable
        Returns the SQL of a number of steps.
    takes_numbers : bool
        Whether Lance takes a whole number for a value of the type.
    """

    least: int
    most: int
    read: Callable[[_Literal], Decimal]
    write: Callable[[int], str]
    takes_numbers: bool
    what: str


@dataclass(frozen=True, slots=True)
class _Fits:
    column: _Column
    grid: _Grid

    def changes(self, literal: _Literal) -> bool:
        """Whether Lance would not take the literal as it is."""
        if literal.is_text or not self.grid.takes_numbers:
            return True
        return not literal.value.lstrip("-").isdigit() or self.exact(literal) != literal.value

    def steps(self, literal: _Literal) -> Decimal:
        try:
            return self.grid.read(literal)
        except (ValueError, ArithmeticError, pa.ArrowException) as error:
            written = repr(literal.value) if literal.is_text else literal.value
            detail = f": {error}" if type(error) is ValueError else ""
            raise FilterError(
                f"{written} is not a {self.grid.what}, but is compared with the column "
                f"{self.column.text}, of type {self.column.kind}{detail}",
                where="filter",
            ) from error

    def exact(self, literal: _Literal) -> str | None:
        """Return the value of a literal; None if it does not have the type."""
        steps = self.steps(literal)
        if steps != steps.to_integral_value() or not self.grid.least <= steps <= self.grid.most:
            return None
        return self.grid.write(int(steps))


def _fits_of(column: _Column) -> _Fits | None:
    grid = _grid_of(column.kind)
    return None if grid is None else _Fits(column, grid)


def _compared(column: _Column, operator: str, literal: _Literal) -> str | None:
    """Return a comparison with a literal of the column's type; None if it is fine as it is."""
    if pa.types.is_floating(column.kind) and literal.is_text:
        try:
            number = float(literal.value)
        except ValueError:
            return None
        return f"{column.text} {operator} {number!r}" if math.isfinite(number) else None
    if _is_binary(column.kind) and literal.is_text:
        return f"{column.text} {operator} {_binary_sql(literal)}"
    fits = _fits_of(column)
    if fits is None or not fits.changes(literal):
        return None
    value = fits.exact(literal)
    if value is not None:
        return f"{column.text} {operator} {value}"
    steps = fits.steps(literal)
    if operator in ("=", "=="):
        return _never(column)
    if operator in ("<>", "!="):
        return _always(column)
    is_greater = operator in (">", ">=")
    if steps > fits.grid.most:
        return _never(column) if is_greater else _always(column)
    if steps < fits.grid.least:
        return _always(column) if is_greater else _never(column)
    below = fits.grid.write(int(steps.to_integral_value("ROUND_FLOOR")))
    return f"{column.text} {'>' if is_greater else '<='} {below}"


def _never(column: _Column) -> str:
    """Return a condition that is true for no row, and null where the column is."""
    return f"{column.text} <> {column.text}"


def _always(column: _Column) -> str:
    return f"{column.text} = {column.text}"


def _grid_of(kind: pa.DataType) -> _Grid | None:
    if pa.types.is_integer(kind):
        bits = kind.bit_width
        if pa.types.is_signed_integer(kind):
            return _Grid(-(1 << bits - 1), (1 << bits - 1) - 1, _number, _integer_sql, True, "number")
        # To Lance a number is one of 64 bits with a sign: of larger ones there are no literals.
        return None if bits == 64 else _Grid(0, (1 << bits) - 1, _number, str, True, "number")
    if pa.types.is_decimal128(kind) and 0 <= kind.scale <= kind.precision:
        return _decimals(kind)
    if pa.types.is_date(kind):
        return _Grid(-719_162, 2_932_896, _days, _date_sql, False, "date")
    if pa.types.is_timestamp(kind):
        return _instants(kind)
    if pa.types.is_time(kind):
        return _times_of_day(kind)
    kind = stored_type(kind)
    if pa.types.is_fixed_size_binary(kind) and kind.byte_width == _UUID_BYTES:
        return _Grid(0, (1 << 128) - 1, _uuid, _uuid_sql, False, "UUID")
    return None


def _number(literal: _Literal) -> Decimal:
    value = Decimal(literal.value)
    if not value.is_finite():
        raise InvalidOperation
    return value


def _integer_sql(value: int) -> str:
    # Lance reads the digits before the sign, and those of the least int64 are one too many.
    least = -(1 << 63)
    return str(value) if value != least else f"{least + 1} - 1"


def _decimals(kind: pa.DataType) -> _Grid:
    sort, scale = f"DECIMAL({kind.precision}, {kind.scale})", kind.scale
    most = 10**kind.precision - 1

    def read(literal: _Literal) -> Decimal:
        with localcontext(prec=200):
            return _number(literal).scaleb(scale)

    def write(steps: int) -> str:
        with localcontext(prec=200):
            return f"CAST('{Decimal(steps).scaleb(-scale):f}' AS {sort})"

    return _Grid(-most, most, read, write, False, "number")


def _binary_sql(literal: _Literal) -> str:
    return f"X'{literal.value.encode().hex()}'"


def _uuid(literal: _Literal) -> Decimal:
    if not literal.is_text or UUID_TEXT.fullmatch(literal.value) is None:
        raise ValueError("a UUID is written as '12345678-1234-5678-1234-567812345678'")
    return Decimal(UUID(literal.value).int)


def _uuid_sql(value: int) -> str:
    return f"X'{value:032x}'"


_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)


def _days(literal: _Literal) -> Decimal:
    if not literal.is_text or _DAY.fullmatch(literal.value) is None:
        raise ValueError("a date is written as '2026-01-31'")
    return Decimal(pa.scalar(literal.value).cast(pa.date32()).value)


def _date_sql(days: int) -> str:
    return f"date '{pa.scalar(days, pa.int32()).cast(pa.date32()).as_py()}'"


_TIME_OF_DAY = re.compile(r"([01][0-9]|2[0-3]):([0-5][0-9])(?::([0-5][0-9](?:\.[0-9]{1,9})?))?", re.ASCII)


def _times_of_day(kind: pa.DataType) -> _Grid:
    per_second = _PER_SECOND[kind.unit]
    steps_are = "INT" if kind.bit_width == 32 else "BIGINT"

    def read(literal: _Literal) -> Decimal:
        found = _TIME_OF_DAY.fullmatch(literal.value) if literal.is_text else None
        if found is None:
            raise ValueError("a time of day is written as '12:00:00'")
        hours, minutes, seconds = (Decimal(part or 0) for part in found.groups())
        return ((hours * 60 + minutes) * 60 + seconds) * per_second

    def write(steps: int) -> str:
        sort = f"Time{kind.bit_width}({_UNITS[kind.unit]})"
        return f"arrow_cast(CAST({steps} AS {steps_are}), '{sort}')"

    return _Grid(0, 24 * 60 * 60 * per_second - 1, read, write, False, "time of day")


def _instants(kind: pa.DataType) -> _Grid:
    per_second = _PER_SECOND[kind.unit]

    def read(literal: _Literal) -> Decimal:
        if not literal.is_text:
            raise ValueError("a time is written as '2026-01-31 12:00:00'")
        has_zone = len(literal.value) > 10 and _ZONE.search(literal.value[10:]) is not None
        if has_zone and kind.tz is None:
            raise ValueError("it has a time zone, but the column has none")
        # Nanoseconds end in the year 2262.
        unit = "ns" if _NANOSECONDS.search(literal.value) else "us"
        if has_zone:
            value = pa.scalar(literal.value).cast(pa.timestamp(unit, "UTC"))
        else:
            value = pa.scalar(literal.value).cast(pa.timestamp(unit))
            if kind.tz is not None:
                # As everywhere in SQL: the clock on the wall, where the column is.
                value = instants_shown(pa.array([value]), kind.tz)[0]
        with localcontext(prec=200):
            return Decimal(value.value) * per_second / _PER_SECOND[unit]

    def write(steps: int) -> str:
        if kind.tz is None and kind.unit != "ns":
            text = pa.scalar(steps, pa.int64()).cast(pa.timestamp(kind.unit)).cast(pa.string()).as_py()
            return f"timestamp '{text}'"
        # Of a text Lance keeps microseconds.
        zone = "None" if kind.tz is None else 'Some("UTC")'
        return f"arrow_cast({steps}, 'Timestamp({_UNITS[kind.unit]}, {zone})')"

    bound = (1 << 63) - 1
    return _Grid(-bound, bound, read, write, False, "time")
