"""Field types as values: their text, their Arrow type, permitted widenings, and which values fit."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from math import isinf, isnan
from typing import Any

import pyarrow as pa

from weir.errors import InputError, SchemaError
from weir.events.instants import parse_date, parse_instant

__all__ = ["INSTANT", "FieldType", "parse_field_type"]

INSTANT = pa.timestamp("us", "UTC")
_PLAIN = {
    "string": pa.string(),
    "int": pa.int64(),
    "float": pa.float64(),
    "bool": pa.bool_(),
    "date": pa.date32(),
    "datetime": INSTANT,
}
_DECIMAL = re.compile(r"decimal\(\s*(\d{1,2})\s*,\s*(\d{1,2})\s*\)", re.ASCII)
# Decimal takes spaces, underscores and digits of other scripts as well.
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_LIST = re.compile(r"list<(.*)>", re.DOTALL)
_MAX_LIST_DEPTH = 8


@dataclass(frozen=True, slots=True)
class FieldType:
    """The type of a field.

    Parameters
    ----------
    kind : str
        ``string``, ``int``, ``float``, ``bool``, ``date``, ``datetime``, ``decimal``, ``enum`` or ``list``.
    optional : bool
        Whether it may be null.
    precision, scale : int
        Of a decimal.
    values : tuple of str
        Of an enum.
    item : FieldType or None
        Of a list.

    Examples
    --------
    >>> parse_field_type("decimal(12,2) | null", "signup", "amount").arrow
    Decimal128Type(decimal128(12, 2))
    """

    kind: str
    optional: bool = False
    precision: int = 0
    scale: int = 0
    values: tuple[str, ...] = ()
    item: FieldType | None = None

    @property
    def arrow(self) -> pa.DataType:
        """The type of the column."""
        if self.kind == "enum":
            return pa.string()
        if self.kind == "decimal":
            return pa.decimal128(self.precision, self.scale)
        if self.item is not None:
            return pa.list_(self.item.arrow)
        return _PLAIN[self.kind]

    @property
    def is_number(self) -> bool:
        """Whether it can be summed."""
        return self.kind in ("int", "float", "decimal")

    @property
    def is_time(self) -> bool:
        """Whether it is a point in time."""
        return self.kind in ("date", "datetime")

    def to_json(self) -> Any:
        """Return it in the form used to define an event, except for nullable enums."""
        if self.kind == "enum":
            return [*self.values, None] if self.optional else list(self.values)
        return str(self)

    def __str__(self) -> str:
        if self.kind == "enum":
            text = "enum(" + ", ".join(self.values) + ")"
        elif self.kind == "decimal":
            text = f"decimal({self.precision},{self.scale})"
        elif self.item is not None:
            text = f"list<{self.item}>"
        else:
            text = self.kind
        return f"{text} | null" if self.optional else text

    def widens_to(self, other: FieldType) -> bool:
        """Whether every value of this type is also a value of the other."""
        if self.optional and not other.optional:
            return False
        if self.kind == other.kind:
            if self.kind == "decimal":
                whole = self.precision - self.scale
                return other.scale >= self.scale and other.precision - other.scale >= whole
            if self.kind == "enum":
                return set(self.values) <= set(other.values)
            if self.item is not None and other.item is not None:
                return self.item.widens_to(other.item)
            return True
        return (self.kind, other.kind) in (("int", "float"), ("enum", "string"))

    def checked(self, value: object) -> Any:
        """Return a value in the form Arrow needs for the column.

        Raises
        ------
        InputError
            If it is not of this type.
        """
        if value is None:
            if self.optional:
                return None
            raise InputError("null is not allowed")
        kind = self.kind
        if kind == "string" and isinstance(value, str):
            return _text(value)
        if kind == "int" and isinstance(value, int) and not isinstance(value, bool):
            if -(1 << 63) <= value < 1 << 63:
                return value
            raise InputError(f"{_said(value)} has more than 64 bits")
        if kind == "float" and isinstance(value, (int, float, Decimal)) and not isinstance(value, bool):
            return _float(value)
        if kind == "bool" and isinstance(value, bool):
            return value
        if kind == "date":
            return parse_date(value)
        if kind == "datetime":
            return parse_instant(value)
        if kind == "decimal":
            return self._decimal(value)
        if kind == "enum" and isinstance(value, str):
            if value in self.values:
                return value
            raise InputError(f"{_said(value)} is none of {', '.join(self.values)}")
        if self.item is not None and isinstance(value, (list, tuple)):
            return [self.item.checked(one) for one in value]
        raise InputError(f"{_said(value)} is no {self}")

    def _decimal(self, value: object) -> Decimal:
        if isinstance(value, bool) or not isinstance(value, (str, int, float, Decimal)):
            raise InputError(f"{_said(value)} is no {self}")
        if isinstance(value, str) and _NUMBER.fullmatch(value) is None:
            raise InputError(f"{_said(value)} is no number")
        try:
            number = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
        except (InvalidOperation, ValueError):
            raise InputError(f"{_said(value)} is no number") from None
        if not number.is_finite():
            raise InputError(f"{_said(value)} is no number")
        if number == 0:
            return Decimal(0)
        _, digits, exponent = number.as_tuple()
        assert isinstance(exponent, int)
        stripped = len(str("".join(map(str, digits))).rstrip("0")) - len(digits)
        if -(exponent - stripped) > self.scale or number.adjusted() >= self.precision - self.scale:
            raise InputError(f"{_said(value)} does not fit {self} exactly")
        return number


def _said(value: object) -> str:
    # The numbers of a command are decimals, which nobody wrote.
    return (str(value) if isinstance(value, Decimal) else repr(value))[:80]


def _text(value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise InputError(f"{_said(value)} holds half of a surrogate pair") from None
    return value


def _float(value: int | float | Decimal) -> float:
    try:
        number = float(value)
    except (OverflowError, ValueError):
        number = float("inf")
    if isinf(number) and not (isinstance(value, float) and isinf(value)):
        raise InputError(f"{_said(value)} is out of range")
    if isnan(number):
        raise InputError("NaN is no number", hint="Leave an optional field out instead")
    # There is one zero.
    return number + 0.0


def parse_field_type(given: object, event: str, field: str) -> FieldType:
    """Parse the type of a field: a text, a list of the values of an enum, or a field type.

    Raises
    ------
    SchemaError
        If it is not valid.
    """
    try:
        if isinstance(given, FieldType):
            return _storable(given)
        if isinstance(given, (list, tuple)):
            return _enum(given)
        if isinstance(given, str):
            return _from_text(given, 0)
    except InputError as error:
        raise SchemaError(
            f"event {event!r}, field {field!r}: {error.message}", where=f"{event}.{field}"
        ) from None
    raise SchemaError(
        f"event {event!r}, field {field!r}: {given!r:.80} is no type",
        where=f"{event}.{field}",
        hint='Types are "string", "int", "float", "bool", "date", "datetime", "decimal(p,s)", "list<...>", '
        'each with " | null" if it may be missing, and a list of texts for an enum',
    )


def _storable(given: FieldType) -> FieldType:
    """Return a field type unchanged; refuse one whose stored form could not be read again."""
    read = _enum(given.to_json()) if given.kind == "enum" else _from_text(str(given), 0)
    if read != given:
        raise InputError(f"{str(given)!r:.80} is no type")
    return given


def _enum(given: list[object] | tuple[object, ...]) -> FieldType:
    values = [value for value in given if value is not None]
    texts = [_text(value) for value in values if isinstance(value, str) and value]
    if not texts or len(texts) < len(values) or len(given) - len(values) > 1:
        raise InputError(f"an enum is a list of texts that are not empty, got {given!r:.80}")
    if len(set(texts)) < len(texts):
        raise InputError(f"an enum has each value once, got {given!r:.80}")
    return FieldType("enum", len(values) < len(given), values=tuple(texts))


def _from_text(text: str, depth: int) -> FieldType:
    plain, optional = text.strip(), False
    before, bar, after = plain.rpartition("|")
    if bar and after.strip() == "null":
        plain, optional = before.strip(), True
    if plain in _PLAIN:
        return FieldType(plain, optional)
    decimal = _DECIMAL.fullmatch(plain)
    if decimal:
        precision, scale = int(decimal[1]), int(decimal[2])
        if not 1 <= precision <= 38 or scale > precision:
            raise InputError(f"a decimal has from 1 to 38 digits, and no more behind the point: {text!r:.80}")
        return FieldType("decimal", optional, precision, scale)
    items = _LIST.fullmatch(plain)
    if items and depth < _MAX_LIST_DEPTH:
        return FieldType("list", optional, item=_from_text(items[1], depth + 1))
    raise InputError(
        f"{text!r:.80} is no type",
        hint='Types are "string", "int", "float", "bool", "date", "datetime", "decimal(p,s)" and "list<...>"',
    )
