"""Hints of errors in terms of the command line: the library's hints are written for Python."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection

from weir.errors import OptionError, WeirError

__all__ = ["advice_for_shell", "error_for_shell"]

_Replacement = str | Callable[[re.Match[str]], str]


def _index_create(found: re.Match[str]) -> str:
    column, kind, more = found.groups()
    parameters = "".join(f" --param {one.strip().lower()}" for one in (more or "").split(",") if one.strip())
    return f"weir index create URI {column} --kind {kind}{parameters}"


# In this order: longer texts come before ones they contain.
_RULES: tuple[tuple[re.Pattern[str], _Replacement], ...] = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r'table\.indexes\.create\("([^"]*)", "(\w+)"(?:, ([^)]*))?\)', _index_create),
        (r'table\.indexes\.drop\("([^"]*)"\)', r"weir index drop URI \1"),
        (r",? or table\.maintenance\.repair\(\)", ""),
        (r",? or table\.alter\(shard_by=\)", ""),
        (r",? or repair\(as_clone=True\)", ""),
        (r"table\.maintenance\.(\w+)\(\)", lambda found: f"weir {found[1].replace('_', '-')}"),
        (r"table\.writer\((takeover|immutable)=True\)", r"weir ingest --\1"),
        (r"Open a new (one|writer) with table\.writer\(\)", "Run the command again"),
        (r"Pass (\w+)= to table\.writer\(\)", r"Write from Python, and give the writer \1 there"),
        (r"\bcount\(\)", "weir scan --count"),
        (r"Open it with weir\.open", "Every other command takes it as it is"),
        (r"table\.tags\.create\(name\)", "weir snapshot --tag NAME"),
        (r"table\.tags\.list\(\)", "weir snapshot --list"),
        (r"table\.tags\.drop\(([^)]*)\)", r"weir snapshot --drop-tag \1"),
        (r"table\.snapshot\(retain=\.\.\.\)", "weir snapshot --retain"),
        (r"table\.snapshot\(\)", "weir snapshot"),
        (r"changes\(since='?(\w+)'?\)", lambda found: f"weir changes --since {_placeholder(found[1])}"),
        (r"Pass consumer='name' to changes\(\), or keep feed\.token yourself", "Give --consumer NAME"),
        (r"of a feed that began at one", "of weir changes that began at one"),
        (r"table\.get\(\)", "weir get"),
        (r"scan\(filter=\.\.\.\)", "weir scan --filter"),
        (r"table\.alter\(rename=\.\.\.\)", "weir alter --rename"),
        (r"weir\.events\.create\(\)", "weir events create"),
        (r"weir\.(adopt|create|clone|drop)\b(?:\(\))?", r"weir \1"),
        (r"Pass follow=True", "Give --follow"),
        (r"pass name= to", "give --name to"),
        (r"\b(takeover|immutable|replace|follow|set_aside|as_clone)=True", lambda found: _option(found[1])),
    )
)


def advice_for_shell(advice: str) -> str:
    """Return an advice of the library with commands and options in place of calls and arguments.

    Examples
    --------
    >>> advice_for_shell("Run table.maintenance.merge(), in this or any other process, and write again")
    'Run weir merge, in this or any other process, and write again'
    """
    for pattern, replacement in _RULES:
        advice = pattern.sub(replacement, advice)
    return advice


def error_for_shell(error: WeirError, options: Collection[str]) -> str:
    """Return an error as a line for a shell.

    Parameters
    ----------
    error : WeirError
        The error.
    options : collection of str
        The options of the command that failed, without their dashes.
    """
    message, where = error.message, error.where
    hint = None if error.hint is None else advice_for_shell(error.hint)
    if isinstance(error, OptionError):
        names = {name.replace("-", "_"): f"--{name}" for name in options}
        message = re.sub(r"\b[a-z]+(?:_[a-z]+)+\b", lambda found: names.get(found[0], found[0]), message)
        if where is not None:
            if where in names and message.startswith(f"{where} "):
                message = f"{names[where]}{message.removeprefix(where)}"
            where = ", ".join(names.get(one.replace("-", "_"), one) for one in where.split(", "))
    return str(WeirError(message, where=where, hint=hint))


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _placeholder(name: str) -> str:
    return "TOKEN" if name == "token" else name
