"""Text made safe to print: without control sequences for the terminal."""

from __future__ import annotations

import json

__all__ = ["printable"]


def printable(text: str) -> str:
    r"""Return text with its control characters, which could drive a terminal, spelled out.

    Examples
    --------
    >>> print(printable("red: \x1b[31m"))
    red: \u001b[31m
    """
    if text.isprintable():
        return text
    escaped = json.dumps(text, ensure_ascii=False)[1:-1]
    return "".join(one if one.isprintable() else f"\\u{ord(one):04x}" for one in escaped)
