"""The parser: from text to syntax tree, by the grammar in ``grammar.lark``.

No word is reserved. A word is read as a keyword wherever the grammar allows one; if the command does not
parse that way, words are read as names instead, starting with the last one.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any

from lark import Lark, Token, Tree, UnexpectedInput
from lark.lexer import Lexer

from weir.errors import QueryError
from weir.events.language.building import build
from weir.events.language.scanner import Place, Scanned, place_error, scan
from weir.events.language.tree import Command

__all__ = ["grammar", "keywords", "parse"]

_ATTEMPTS = 32
"""Most readings of one command that are tried."""

_REMEMBERED = 1_000
"""Longest text, in characters, whose tree is cached."""

_KINDS = {
    "WORD": "a name",
    "NUMBER": "a number",
    "TEXT": "a text",
    "JSON": "a JSON object",
    "EQUAL": "=",
    "NOT_EQUAL": "!=",
    "LESS": "<",
    "LESS_EQUAL": "<=",
    "GREATER": ">",
    "GREATER_EQUAL": ">=",
    "LPAR": "(",
    "RPAR": ")",
    "COMMA": ",",
    "SEMICOLON": ";",
    "DOT": ".",
    "LSQB": "[",
    "RSQB": "]",
    "$END": "the end",
}


def grammar() -> str:
    """Return the grammar, in Lark's syntax."""
    return files("weir.events.language").joinpath("grammar.lark").read_text(encoding="utf-8")


def keywords() -> tuple[str, ...]:
    """Return the keywords of the grammar, in capitals, in order."""
    return tuple(sorted({one.name for one in _parser().terminals} - set(_KINDS) | {"ASC", "DESC"}))


def parse(text: str) -> Command:
    """Return the syntax tree of one command.

    Raises
    ------
    QueryError
        If it does not parse; the message has line, column and what was expected there.

    Examples
    --------
    >>> query = parse('QUERY signup WHERE plan != "free" COUNT PER day BY country')
    >>> query.type.text, query.per, [str(field) for field in query.by]
    ('signup', 'day', ['country'])
    """
    # Who asks, asks the same again and again.
    return _parsed(text) if isinstance(text, str) and len(text) <= _REMEMBERED else _parse(text)


def _parse(text: str) -> Command:
    pieces = scan(text)
    if not pieces:
        raise place_error("there is no command", Place(1, 1), "Expected one, such as QUERY")
    try:
        return _read(pieces, _end(text))
    except RecursionError:
        raise place_error("the command is nested too deep", pieces[0].place) from None


_parsed = lru_cache(256)(_parse)


def _end(text: str) -> Place:
    lines = text.split("\n")
    return Place(len(lines), len(lines[-1]) + 1)


def _read(pieces: list[Scanned], end: Place) -> Command:
    names: set[int] = set()
    worst: tuple[int, QueryError] | None = None
    for _ in range(_ATTEMPTS):
        choices: list[int] = []
        reached, result = _attempt(pieces, end, names, choices)
        if isinstance(result, Tree):
            try:
                return build(result)
            except QueryError as error:
                # COUNT count, where there is such a field, reads as two aggregates at first.
                reached, result = len(pieces), error
        if worst is None or reached > worst[0]:
            worst = reached, result
        # The last word that could be a name, too; those after it are open again.
        open_ones = [at for at in choices if at not in names]
        if not open_ones:
            break
        names = {at for at in names if at < open_ones[-1]} | {open_ones[-1]}
    assert worst is not None
    raise worst[1]


def _attempt(
    pieces: list[Scanned], end: Place, names: set[int], choices: list[int]
) -> tuple[int, Tree[Any] | QueryError]:
    parser: Any = _parser().parse_interactive("")
    for at, piece in enumerate(pieces):
        kind = piece.kind
        wanted = parser.choices()
        if kind == "WORD" and piece.text.upper() in wanted and piece.text.upper() not in _KINDS:
            if "WORD" in wanted:
                choices.append(at)
            if at not in names or "WORD" not in wanted:
                kind = piece.text.upper()
        token = Token(kind, piece)
        token.line, token.column = piece.place.line, piece.place.column
        before = parser.copy() if kind not in wanted else None
        try:
            parser.feed_token(token)
        except UnexpectedInput:
            return at, _unexpected(before or parser, piece.text, piece.place)
    try:
        return len(pieces), parser.feed_eof()
    except UnexpectedInput:
        return len(pieces), _unexpected(parser, "", end)


def _unexpected(parser: Any, text: str, place: Place) -> QueryError:
    found = repr(text[:60]) if text else "the end"
    expected = sorted({_KINDS.get(name, name) for name in parser.accepts()})
    return place_error(f"unexpected {found}", place, f"Expected {' or '.join(expected)}")


class _NoLexer(Lexer):
    """Feeds tokens to the parser one by one."""

    def __init__(self, configuration: object) -> None:
        pass

    def lex(self, lexer_state: object, parser_state: Any = None) -> Iterator[Token]:
        return iter(())


@cache
def _parser() -> Lark:
    return Lark(grammar(), parser="lalr", lexer=_NoLexer, start="command", maybe_placeholders=True)
