"""The scanner: words, numbers, texts, JSON and signs of a command, each with its position.

Keywords are not decided here: no word is reserved, so that depends on the position.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NoReturn

from weir.errors import QueryError

__all__ = ["MAX_LENGTH", "Place", "Scanned", "place_error", "scan"]

MAX_LENGTH = 1 << 20
"""Most characters of a command."""

_MAX_DEPTH = 200
_SPACE = re.compile(r"(?:\s|--[^\n]*)+")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?![\w-])", re.ASCII)
_WORD = re.compile(r"\w(?:\w|-(?!-))*")
_SIGN = re.compile(r"!=|<=|>=|<>|[=<>(),;.\[\]]")
_SIGNS = {
    "=": "EQUAL",
    "!=": "NOT_EQUAL",
    "<>": "NOT_EQUAL",
    "<": "LESS",
    "<=": "LESS_EQUAL",
    ">": "GREATER",
    ">=": "GREATER_EQUAL",
    "(": "LPAR",
    ")": "RPAR",
    ",": "COMMA",
    ";": "SEMICOLON",
    ".": "DOT",
    "[": "LSQB",
    "]": "RSQB",
}


@dataclass(frozen=True, slots=True)
class Place:
    """A position in a command.

    Parameters
    ----------
    line, column : int
        Both from 1.
    """

    line: int
    column: int

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}"


@dataclass(frozen=True, slots=True)
class Scanned:
    """One token of a command.

    Parameters
    ----------
    kind : str
        ``"WORD"``, ``"NUMBER"``, ``"TEXT"``, ``"JSON"`` or the name of a sign.
    text : str
        As written.
    value : object
        Its value: the text of a word or text, the number, the object.
    place : Place
        Where it begins.
    """

    kind: str
    text: str
    value: Any
    place: Place


def place_error(message: str, place: Place, hint: str | None = None) -> QueryError:
    """Return the error for a position in a command."""
    return QueryError(message, where=str(place), hint=hint)


def scan(text: str) -> list[Scanned]:
    """Return the tokens of a command.

    Raises
    ------
    QueryError
        If something is not a token, or the command is too long or nested too deeply.

    Examples
    --------
    >>> [(piece.kind, piece.value) for piece in scan('WHERE amount >= 9.90 -- dear')]
    [('WORD', 'WHERE'), ('WORD', 'amount'), ('GREATER_EQUAL', '>='), ('NUMBER', Decimal('9.90'))]
    """
    if not isinstance(text, str):
        raise QueryError(f"a command is a text, got {text!r:.60}", where="line 1, column 1")
    if len(text) > MAX_LENGTH:
        raise QueryError(
            f"a command has at most {MAX_LENGTH:,} characters, this one {len(text):,}",
            where="line 1, column 1",
        )
    return list(_Scan(text).pieces())


class _Scan:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._line = 1

    def pieces(self) -> list[Scanned]:
        found: list[Scanned] = []
        depth = negations = 0
        while True:
            space = _SPACE.match(self._text, self._at)
            if space:
                self._advance(space.end())
            if self._at >= len(self._text):
                return found
            piece = self._next()
            found.append(piece)
            depth += (piece.kind == "LPAR") - (piece.kind == "RPAR")
            negations = (
                negations + 1 if piece.kind in ("WORD", "LPAR") and piece.text.upper() in ("NOT", "(") else 0
            )
            if depth > _MAX_DEPTH or negations > _MAX_DEPTH:
                raise place_error(
                    f"conditions nest at most {_MAX_DEPTH} deep: this one is deeper", piece.place
                )

    def _next(self) -> Scanned:
        text, at = self._text, self._at
        place = self._place(at)
        if text[at] == '"':
            value, end = self._text_value()
            return self._piece("TEXT", end, value, place)
        if text[at] == "{":
            payload, end = self._json()
            return self._piece("JSON", end, payload, place)
        number = _NUMBER.match(text, at)
        if number:
            return self._piece("NUMBER", number.end(), self._number(number.group(), place), place)
        word = _WORD.match(text, at)
        if word:
            return self._piece("WORD", word.end(), word.group(), place)
        sign = _SIGN.match(text, at)
        if sign:
            return self._piece(_SIGNS[sign.group()], sign.end(), sign.group(), place)
        raise place_error(
            f"{text[at]!r} begins nothing",
            place,
            'Texts stand in double quotes; bare words have letters, digits, "_" and "-"',
        )

    def _piece(self, kind: str, end: int, value: Any, place: Place) -> Scanned:
        text = self._text[self._at : end]
        self._advance(end)
        return Scanned(kind, text, value, place)

    def _number(self, text: str, place: Place) -> int | Decimal:
        if len(text) > 80:
            raise place_error("a number has at most 80 characters", place)
        value = Decimal(text)
        if abs(value.adjusted()) > 400:
            raise place_error(f"the number {text} is out of range", place)
        return int(text) if text.lstrip("-").isdigit() else value

    def _text_value(self) -> tuple[str, int]:
        start = self._at
        try:
            value, end = json.decoder.scanstring(self._text, start + 1, True)  # type: ignore[attr-defined]
        except json.JSONDecodeError as error:
            raise place_error(f"a text is not well-formed: {error.msg}", self._place(error.pos)) from None
        try:
            value.encode()
        except UnicodeEncodeError:
            raise place_error("a text holds half of a surrogate pair", self._place(start)) from None
        return value, end

    def _json(self) -> tuple[dict[str, Any], int]:
        start = self._at
        doubled: list[str] = []

        def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
            found = dict(items)
            if len(found) < len(items):
                doubled.append(
                    next(name for name, _ in items if sum(name == other for other, _ in items) > 1)
                )
            return found

        def refused(name: str) -> NoReturn:
            raise place_error(f"{name} is no JSON", self._place(start))

        def whole(digits: str) -> int:
            if len(digits) > 400:
                raise place_error("a number in JSON has more than 400 digits", self._place(start))
            return int(digits)

        decoder = json.JSONDecoder(
            parse_float=Decimal, parse_int=whole, parse_constant=refused, object_pairs_hook=pairs
        )
        try:
            value, end = decoder.raw_decode(self._text, start)
        except json.JSONDecodeError as error:
            raise place_error(f"the JSON is not well-formed: {error.msg}", self._place(error.pos)) from None
        except RecursionError:
            raise place_error("the JSON is nested too deep", self._place(start)) from None
        if doubled:
            raise place_error(f"the JSON has {doubled[0]!r:.80} twice", self._place(start))
        return value, end

    def _place(self, at: int) -> Place:
        # A place inside a piece, whose lines have not been counted yet.
        line = self._line + self._text.count("\n", self._at, at)
        start = max(self._text.rfind("\n", 0, at) + 1, 0)
        return Place(line, at - start + 1)

    def _advance(self, end: int) -> None:
        self._line += self._text.count("\n", self._at, end)
        self._at = end
