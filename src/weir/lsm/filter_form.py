"""The form of a filter: one text for all filters that differ only in literals that are as good as each other.

The library takes milliseconds to say whether a filter can be used, longer than a small scan takes. Programs
ask for other values each time, and the answer for one is that for all.
"""

from __future__ import annotations

import re

import pyarrow as pa

from weir.sharding.sql import named_fields

__all__ = ["NO_CODE", "filter_form"]

_LONGEST = 4_000
"""Length of a filter in characters from which it is its own form."""

_KEYWORDS = frozenset({"AND", "OR", "NOT", "IN", "IS", "NULL", "BETWEEN", "LIKE", "TRUE", "FALSE"})
_TEXTS = frozenset({pa.string(), pa.large_string()})
_NUMBERS = frozenset({pa.int32(), pa.int64(), pa.float32(), pa.float64()})

_PART = re.compile(
    r"""(?P<space>\s+)
    |(?P<text>(?<![\w'])'[^'\\]*'(?!'))
    |(?P<number>-?(?<![\w.])(?:\d{1,18}|[1-8]\d{18})(?![\w.]))
    |(?P<word>[^\W\d]\w*)
    |`(?P<quoted>[^`]*)`
    |(?P<sign><=|>=|<>|!=|[=<>(),])""",
    re.VERBOSE,
)
_DIGITS_OF_INT32 = 9
_STARTS_AS_A_WORD = re.compile(r"'[A-Za-z]")
"""Texts that are no number, however they are read."""

NO_CODE = re.compile(r"""'[^']*'|"[^"]*"|`[^`]*`|--[^\n]*|/\*.*?\*/""", re.DOTALL)
"""Texts, quoted names and comments. A quotation mark that is doubled ends one and begins another."""
_IN_PARTS = re.compile(f"({NO_CODE.pattern})", re.DOTALL)
_LONG_NUMBER = re.compile(r"(?<![\w.])[1-8]\d{18}(?![\w.])")
"""Whole numbers of nineteen digits that are within 64 bits, as ids of events are."""
_ANY_LONG = "1" + "0" * 18


def filter_form(text: str, schema: pa.Schema) -> str:
    """Return a filter that can be used if all others of the same form can.

    Parameters
    ----------
    text : str
        The filter.
    schema : Schema
        The columns it may name.

    Examples
    --------
    >>> schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
    >>> filter_form("id IN (3, -40) AND name = 'Ada'", schema)
    "id IN (1, 1) AND name = 'a'"
    >>> filter_form("name = '7' AND id = '7'", schema)
    "name = '7' AND id = '7'"
    >>> filter_form("length(name) > 5", schema)
    'length(name) > 5'
    """
    form = _plain_form(text, schema) if len(text) <= _LONGEST else None
    if form is not None:
        return form
    if _LONG_NUMBER.search(text) is None:
        return text
    parts = _IN_PARTS.split(text)
    return "".join(part if at % 2 else _LONG_NUMBER.sub(_ANY_LONG, part) for at, part in enumerate(parts))


def _plain_form(text: str, schema: pa.Schema) -> str | None:
    """Return the form of a filter of comparisons of columns with literals; None if there is more to it."""
    columns = dict(named_fields(text, schema))
    parts: list[tuple[str, str]] = []
    types: set[pa.DataType] = set()
    at, follows_operand = 0, False
    while at < len(text):
        found = _PART.match(text, at)
        if found is None:
            return None
        at = found.end()
        kind, part = str(found.lastgroup), found.group()
        parts.append((kind, part))
        if kind == "space":
            continue
        is_operand = kind != "sign" and part.upper() not in _KEYWORDS
        # Two in a row are a difference, or a literal of some type; before a parenthesis it is a function.
        if follows_operand and (is_operand or part == "("):
            return None
        if is_operand and kind in ("word", "quoted"):
            if found.group(kind) not in columns:
                return None
            types.add(columns[found.group(kind)])
        follows_operand = is_operand or part == ")"
    has_numbers = any(kind == "number" for kind, _ in parts)
    if not types <= _TEXTS | _NUMBERS | (set() if has_numbers else {pa.bool_()}):
        return None
    return "".join(_literal(kind, part, only_texts=types <= _TEXTS) for kind, part in parts)


def _literal(kind: str, part: str, *, only_texts: bool) -> str:
    if kind == "number":
        return "1" if len(part.removeprefix("-")) <= _DIGITS_OF_INT32 else _ANY_LONG
    # A text that is compared with a number has to be one.
    return "'a'" if kind == "text" and (only_texts or _STARTS_AS_A_WORD.match(part)) else part
