"""Splitting text into SQL statements."""

from __future__ import annotations

import re

__all__ = ["split_statements"]

# What may have a semicolon inside: quoted text and names, comments, each also where it is not closed yet.
_TOKEN = re.compile(
    r"""
    '(?:[^']|'')*(?:'|\Z) | "(?:[^"]|"")*(?:"|\Z)  # quoted
    | --[^\n]*(?:\n|\Z) | /\*.*?(?:\*/|\Z)        # a comment
    | ; | [^'";/-]+ | .
    """,
    re.VERBOSE | re.DOTALL,
)


def split_statements(text: str) -> tuple[list[str], str]:
    """Return the statements that a semicolon ends, without it, and what stands after the last one.

    Examples
    --------
    >>> split_statements("SELECT ';' AS a; SELECT 2; SELECT")
    (["SELECT ';' AS a", 'SELECT 2'], ' SELECT')
    """
    statements = []
    begun: list[str] = []
    for found in _TOKEN.finditer(text):
        if found[0] != ";":
            begun.append(found[0])
            continue
        statement = "".join(begun).strip()
        if statement:
            statements.append(statement)
        begun = []
    return statements, "".join(begun)
