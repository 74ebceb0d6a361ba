"""The shard spec of a table as text: the constructors of :mod:`weir`, without Python.

One call or several, with commas between them: ``bucket(id, 8)``, ``identity(site), bucket(id, 4)``,
``multi_bucket(site, id, 16)``, ``truncate(name, 3)``, ``identity(region, immutable=true)``,
``expression('col0 % 7', id, int64)`` (the SQL, its columns, the type of the result), ``unsharded()``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from weir.errors import ShardingError
from weir.sharding import shard_by
from weir.sharding.shard_by import ShardBy

__all__ = ["parse_shard_by"]

_TOKEN = re.compile(
    r"""\s*(?:(?P<word>[^\s(),='"]+)|'(?P<single>(?:[^']|'')*)'|"(?P<double>[^"]*)"|(?P<mark>[(),=]))"""
)
_KEYWORDS = ("immutable", "field_id")
_TRUTHS = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class _Token:
    text: str
    is_mark: bool


@dataclass(frozen=True, slots=True)
class _Call:
    """One call as it was typed: the arguments are texts, the keywords checked."""

    name: str
    arguments: tuple[str, ...]
    immutable: bool
    field_id: str | None

    def fail(self, message: str, hint: str | None = None) -> NoReturn:
        usage, _ = _TRANSFORMS[self.name]
        raise ShardingError(
            f"{self.name}({', '.join(self.arguments)}): {message}",
            where="shard-by",
            hint=hint or f"Write it as {usage}",
        )

    def column(self) -> str:
        if len(self.arguments) != 1:
            self.fail("it takes one column")
        return self.arguments[0]

    def columns_and_number(self, most: int | None = None) -> tuple[list[str], int]:
        *columns, number = self.arguments or ("",)
        if not columns or (most is not None and len(columns) > most):
            self.fail("it takes a column and a number" if most == 1 else "it takes columns and a number")
        if not number.isdecimal():
            self.fail(f"{number!r} is not a whole number")
        return columns, int(number)


def _bucket(call: _Call) -> ShardBy:
    columns, buckets = call.columns_and_number(most=1)
    return shard_by.bucket(columns[0], buckets, immutable=call.immutable, field_id=call.field_id)


def _multi_bucket(call: _Call) -> ShardBy:
    columns, buckets = call.columns_and_number()
    return shard_by.multi_bucket(columns, buckets, immutable=call.immutable, field_id=call.field_id)


def _truncate(call: _Call) -> ShardBy:
    columns, width = call.columns_and_number(most=1)
    return shard_by.truncate(columns[0], width, immutable=call.immutable, field_id=call.field_id)


def _expression(call: _Call) -> ShardBy:
    if len(call.arguments) < 3:
        call.fail("it takes the SQL, its columns and the type of its result")
    sql, *columns, result_type = call.arguments
    return shard_by.expression(
        sql, columns, result_type=result_type, immutable=call.immutable, field_id=call.field_id
    )


def _unsharded(call: _Call) -> ShardBy:
    if call.arguments:
        call.fail("it takes nothing")
    return shard_by.unsharded()


def _of_one_column(make: Callable[..., ShardBy]) -> Callable[[_Call], ShardBy]:
    def build(call: _Call) -> ShardBy:
        return make(call.column(), immutable=call.immutable, field_id=call.field_id)

    return build


_TRANSFORMS: dict[str, tuple[str, Callable[[_Call], ShardBy]]] = {
    "bucket": ("bucket(COLUMN, NUMBER)", _bucket),
    "day": ("day(COLUMN)", _of_one_column(shard_by.day)),
    "expression": ("expression('SQL over col0, col1, ...', COLUMN, ..., TYPE)", _expression),
    "hour": ("hour(COLUMN)", _of_one_column(shard_by.hour)),
    "identity": ("identity(COLUMN)", _of_one_column(shard_by.identity)),
    "month": ("month(COLUMN)", _of_one_column(shard_by.month)),
    "multi_bucket": ("multi_bucket(COLUMN, ..., NUMBER)", _multi_bucket),
    "truncate": ("truncate(COLUMN, WIDTH)", _truncate),
    "unsharded": ("unsharded()", _unsharded),
    "year": ("year(COLUMN)", _of_one_column(shard_by.year)),
}


def parse_shard_by(text: str) -> tuple[ShardBy, ...]:
    """Read a shard spec.

    Parameters
    ----------
    text : str
        One or more calls, with commas between them.

    Raises
    ------
    ShardingError
        If the text cannot be read, or a transform is unknown or has the wrong arguments.

    Examples
    --------
    >>> [str(one) for one in parse_shard_by("identity(region), bucket(id, 8)")]
    ['identity(region)', 'bucket(id, 8)']
    """
    return tuple(_TRANSFORMS[call.name][1](call) for call in _calls(text))


def _calls(text: str) -> list[_Call]:
    tokens = _tokens(text)
    calls = []
    while True:
        name = _word(tokens, text, "a transform")
        if name not in _TRANSFORMS:
            raise ShardingError(
                f"unknown shard transform {name!r}",
                where="shard-by",
                hint=f"The transforms are {', '.join(_TRANSFORMS)}",
            )
        calls.append(_call(name, tokens, text))
        if not tokens:
            return calls
        _mark(tokens, text, ",")


def _call(name: str, tokens: list[_Token], text: str) -> _Call:
    _mark(tokens, text, "(")
    arguments: list[str] = []
    keywords: dict[str, str] = {}
    while not _next_is(tokens, ")"):
        if arguments or keywords:
            _mark(tokens, text, ",")
        argument = _word(tokens, text, "an argument")
        if _next_is(tokens, "="):
            tokens.pop(0)
            if argument not in _KEYWORDS:
                raise ShardingError(
                    f"unknown shard option {argument!r}",
                    where="shard-by",
                    hint=f"The options are {', '.join(_KEYWORDS)}",
                )
            keywords[argument] = _word(tokens, text, f"a value for {argument}")
        else:
            arguments.append(argument)
    tokens.pop(0)
    immutable = keywords.get("immutable", "false").lower()
    if immutable not in _TRUTHS:
        raise ShardingError(f"immutable is true or false, not {immutable!r}", where="shard-by")
    return _Call(name, tuple(arguments), _TRUTHS[immutable], keywords.get("field_id"))


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    at, end = 0, len(text.rstrip())
    while at < end:
        found = _TOKEN.match(text, at)
        if found is None:
            raise _unreadable(text, f"a quotation that does not end at {text[at:].strip()!r}")
        kind = found.lastgroup or ""
        value = found[kind].replace("''", "'") if kind == "single" else found[kind]
        tokens.append(_Token(value, kind == "mark"))
        at = found.end()
    return tokens


def _next_is(tokens: list[_Token], mark: str) -> bool:
    return bool(tokens) and tokens[0].is_mark and tokens[0].text == mark


def _word(tokens: list[_Token], text: str, what: str) -> str:
    if not tokens or tokens[0].is_mark:
        raise _unreadable(text, f"expected {what}, found {_found(tokens)}")
    return tokens.pop(0).text


def _mark(tokens: list[_Token], text: str, mark: str) -> None:
    if not _next_is(tokens, mark):
        raise _unreadable(text, f"expected {mark!r}, found {_found(tokens)}")
    tokens.pop(0)


def _found(tokens: list[_Token]) -> str:
    return repr(tokens[0].text) if tokens else "the end"


def _unreadable(text: str, reason: str) -> ShardingError:
    return ShardingError(
        f"the shard spec {text!r} cannot be read: {reason}",
        where="shard-by",
        hint='Write it as "bucket(id, 8)" or "identity(site), bucket(id, 4)"',
    )
