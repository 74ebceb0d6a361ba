"""The schema of a table as one line of text, the way a person types it.

Grammar, with blanks allowed between any two parts::

    schema  =  column , { "," , column }
    column  =  name , ":" , type , [ "!" ]          "!" means: cannot be null
    name    =  letters, digits, "_", "-", "+", "/"  |  '"' , any characters but '"' , '"'
    type    =  word , [ "(" , argument , { "," , argument } , ")" ]

======================================  ==================================================
type                                    Arrow type
======================================  ==================================================
bool, int8 ... int64, uint8 ... uint64  the same
float16, float32, float64               the same; ``float`` is float32, ``double`` float64
string, large_string                    the same; ``text`` and ``utf8`` are string
binary, large_binary, binary(16)        the last of fixed size
uuid                                    the same
date, date64                            ``date`` is date32
time(us), duration(us)                  unit s, ms, us or ns; default us
timestamp(us), timestamp(us, UTC)       unit s, ms, us or ns, then a time zone (a name, or
                                        an offset in quotes: ``"+02:00"``); default us
decimal(10, 2)                          decimal128, or decimal256 from 39 digits on
vector(128), vector(128, float16)       fixed_size_list of float32, or of the type given
list(TYPE), large_list(TYPE)            ``list(int64!)`` for elements that cannot be null
struct(a: TYPE, b: TYPE!)               columns inside a column
======================================  ==================================================
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

import pyarrow as pa

from weir.errors import SchemaError
from weir.schema.plain import PLAIN_TYPES

__all__ = ["format_schema", "format_type", "parse_column", "parse_schema", "parse_type"]

_PLAIN: dict[str, pa.DataType] = {
    **PLAIN_TYPES,
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "float": pa.float32(),
    "double": pa.float64(),
    "text": pa.string(),
    "uuid": pa.uuid(),
    "utf8": pa.string(),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "timestamp": pa.timestamp("us"),
    "duration": pa.duration("us"),
}
_NAMES = {kind: name for name, kind in PLAIN_TYPES.items()} | {pa.date32(): "date", pa.uuid(): "uuid"}
_WITH_ARGUMENTS = (
    "binary",
    "decimal",
    "duration",
    "large_list",
    "list",
    "struct",
    "time",
    "timestamp",
    "vector",
)
_UNITS = ("s", "ms", "us", "ns")
_TIMES: dict[str, Callable[[str], pa.DataType]] = {
    "s": pa.time32,
    "ms": pa.time32,
    "us": pa.time64,
    "ns": pa.time64,
}
_MAX_DECIMAL128_DIGITS = 38
_TOKEN = re.compile(r'\s*(?:(?P<word>[\w+\-/]+)|"(?P<quoted>[^"]*)"|(?P<mark>[(),:!]))')
_COLUMN = re.compile(r'(?:"(?P<quoted>[^"]*)"|(?P<name>[^\s":]+))(?:\s*:\s*|\s+)(?P<type>.*\S)', re.DOTALL)
_BARE = re.compile(r"[\w+\-/]+")


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    is_mark: bool
    at: int


def parse_schema(text: str) -> pa.Schema:
    """Read a schema.

    Parameters
    ----------
    text : str
        As this module's grammar says.

    Raises
    ------
    SchemaError
        With the place in the text and what was expected there.

    Examples
    --------
    >>> parse_schema("id: int64!, vec: vector(128), at: timestamp(us, UTC)")
    id: int64 not null
    vec: fixed_size_list<item: float>[128]
      child 0, item: float
    at: timestamp[us, tz=UTC]
    """
    return pa.schema(_Parser(text).whole())


def parse_column(text: str) -> pa.Field:
    """Read one column, with a blank or a colon between its name and its type.

    A name with dots, which stands for a field of a struct, needs no quotes.

    Raises
    ------
    SchemaError
        If it is none.

    Examples
    --------
    >>> parse_column("gate string"), parse_column("arrival.terminal: int16")
    (pyarrow.Field<gate: string>, pyarrow.Field<arrival.terminal: int16>)
    """
    found = _COLUMN.fullmatch(text.strip())
    if found is None:
        raise SchemaError(
            f"a column is a name and a type, got {text!r}", where="schema", hint='For example "gate string"'
        )
    name = found["quoted"] if found["name"] is None else found["name"]
    parsed = parse_type(found["type"].removesuffix("!"))
    return pa.field(name, parsed, nullable=not found["type"].endswith("!"))


def parse_type(text: str) -> pa.DataType:
    """Read a type alone.

    Raises
    ------
    SchemaError
        If it is none.

    Examples
    --------
    >>> parse_type("decimal(10, 2)")
    Decimal128Type(decimal128(10, 2))
    """
    return _Parser(text).only_type()


def format_schema(schema: pa.Schema) -> str:
    """Return the text of a schema, as :func:`parse_schema` reads it.

    Types that the grammar does not have come out as Arrow prints them.

    Examples
    --------
    >>> format_schema(parse_schema("id:int64!,price:decimal(10,2)"))
    'id: int64!, price: decimal(10, 2)'
    """
    return ", ".join(_column_text(field) for field in schema)


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = self._split(text)
        self._next = 0

    def _split(self, text: str) -> list[_Token]:
        tokens = []
        at, end = 0, len(text.rstrip())
        while at < end:
            found = _TOKEN.match(text, at)
            if found is None:
                stray = at + len(text[at:]) - len(text[at:].lstrip())
                self._fail(f"cannot read {text[stray]!r}", stray)
            kind = found.lastgroup or ""
            tokens.append(_Token(found[kind], kind == "mark", found.start(kind)))
            at = found.end()
        return tokens

    def whole(self) -> list[pa.Field]:
        if not self._tokens:
            self._fail("there is no column", 0)
        columns = self._columns()
        if self._next < len(self._tokens):
            self._expected('"," or the end')
        return columns

    def only_type(self) -> pa.DataType:
        data_type = self._type()
        if self._next < len(self._tokens):
            self._expected("the end")
        return data_type

    def _columns(self) -> list[pa.Field]:
        columns = [self._column()]
        while self._take(","):
            columns.append(self._column())
        return columns

    def _column(self) -> pa.Field:
        name = self._word("a column name")
        if not self._take(":"):
            self._expected(f'":" and a type after column {name!r}')
        return self._typed(name)

    def _typed(self, name: str) -> pa.Field:
        data_type = self._type()
        return pa.field(name, data_type, nullable=not self._take("!"))

    def _type(self) -> pa.DataType:
        at = self._place()
        word = self._word("a type").lower()
        if self._take("("):
            if word not in _WITH_ARGUMENTS:
                self._unknown_type(word, at, has_arguments=True)
            data_type = self._with_arguments(word, at)
            if not self._take(")"):
                self._expected('")"')
            return data_type
        if word not in _PLAIN:
            self._unknown_type(word, at, has_arguments=False)
        return _PLAIN[word]

    def _with_arguments(self, word: str, at: int) -> pa.DataType:
        if word == "list":
            return pa.list_(self._typed("item"))
        if word == "large_list":
            return pa.large_list(self._typed("item"))
        if word == "struct":
            return pa.struct(self._columns())
        if word == "vector":
            size = self._number("the number of dimensions", least=1)
            return pa.list_(self._type() if self._take(",") else pa.float32(), size)
        if word == "binary":
            return pa.binary(self._number("the number of bytes", least=1))
        if word == "decimal":
            digits = self._number("the number of digits", least=1)
            scale = self._number("the digits after the point") if self._take(",") else 0
            make = pa.decimal128 if digits <= _MAX_DECIMAL128_DIGITS else pa.decimal256
            return self._made(lambda: make(digits, scale), at)
        unit = self._unit()
        if word == "time":
            return _TIMES[unit](unit)
        if word == "duration":
            return pa.duration(unit)
        return pa.timestamp(unit, self._word("a time zone") if self._take(",") else None)

    def _made(self, make: Callable[[], pa.DataType], at: int) -> pa.DataType:
        try:
            return make()
        except ValueError as error:
            self._fail(str(error), at)

    def _number(self, what: str, least: int = 0) -> int:
        at = self._place()
        word = self._word(what)
        if not word.isdecimal() or int(word) < least:
            self._fail(f"{what} must be a whole number of at least {least}, not {word!r}", at)
        return int(word)

    def _unit(self) -> str:
        at = self._place()
        word = self._word("a unit of time")
        if word not in _UNITS:
            self._fail(f"a unit of time is one of {', '.join(_UNITS)}, not {word!r}", at)
        return word

    def _take(self, mark: str) -> bool:
        if self._next < len(self._tokens):
            token = self._tokens[self._next]
            if token.is_mark and token.text == mark:
                self._next += 1
                return True
        return False

    def _word(self, what: str) -> str:
        if self._next >= len(self._tokens) or self._tokens[self._next].is_mark:
            self._expected(what)
        self._next += 1
        return self._tokens[self._next - 1].text

    def _place(self) -> int:
        return self._tokens[self._next].at if self._next < len(self._tokens) else len(self._text)

    def _unknown_type(self, word: str, at: int, *, has_arguments: bool) -> NoReturn:
        if has_arguments and word in _PLAIN:
            self._fail(f"type {word!r} takes no arguments", at)
        if word in _WITH_ARGUMENTS:
            self._fail(f"type {word!r} needs arguments", at, "For example list(string) or vector(128)")
        known = sorted({*_PLAIN, *_WITH_ARGUMENTS})
        close = difflib.get_close_matches(word, known, n=1)
        hint = f"Did you mean {close[0]}? " if close else ""
        self._fail(f"unknown type {word!r}", at, f"{hint}The types are {', '.join(known)}")

    def _expected(self, what: str) -> NoReturn:
        at = self._place()
        found = repr(self._tokens[self._next].text) if self._next < len(self._tokens) else "the end"
        self._fail(f"expected {what}, found {found}", at)

    def _fail(self, message: str, at: int, hint: str | None = None) -> NoReturn:
        raise SchemaError(
            f"the schema text cannot be read: {message}",
            where=f"schema, character {at + 1}",
            hint=hint or 'Write columns as "id: int64!, name: string, vec: vector(128)"',
        )


def _column_text(field: pa.Field) -> str:
    return f"{_word_text(field.name)}: {_element_text(field)}"


def _word_text(word: str) -> str:
    return word if _BARE.fullmatch(word) else f'"{word}"'


def _element_text(field: pa.Field) -> str:
    return format_type(field.type) + ("" if field.nullable else "!")


def format_type(kind: pa.DataType) -> str:
    """Return the text of a type, as the grammar of this module has it.

    Examples
    --------
    >>> format_type(pa.list_(pa.float32(), 128))
    'vector(128)'
    """
    types = pa.types
    if kind in _NAMES:
        return _NAMES[kind]
    if types.is_timestamp(kind):
        return f"timestamp({kind.unit}, {_word_text(kind.tz)})" if kind.tz else f"timestamp({kind.unit})"
    if types.is_time(kind):
        return f"time({kind.unit})"
    if types.is_duration(kind):
        return f"duration({kind.unit})"
    if types.is_decimal128(kind) or types.is_decimal256(kind):
        return f"decimal({kind.precision}, {kind.scale})"
    if types.is_fixed_size_binary(kind):
        return f"binary({kind.byte_width})"
    if types.is_fixed_size_list(kind):
        element = kind.value_type
        return f"vector({kind.list_size}{'' if element == pa.float32() else ', ' + format_type(element)})"
    if types.is_list(kind):
        return f"list({_element_text(kind.value_field)})"
    if types.is_large_list(kind):
        return f"large_list({_element_text(kind.value_field)})"
    if types.is_struct(kind):
        return f"struct({', '.join(_column_text(field) for field in kind)})"
    return str(kind)
