"""The SQL shell of a table: statements with history and completion."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from weir.cli.advice import error_for_shell
from weir.cli.line_editor import line_editor
from weir.cli.printable_text import printable
from weir.cli.sql_statements import split_statements
from weir.errors import WeirError
from weir.schema.text import format_type

if TYPE_CHECKING:
    from weir.table.table import Table

__all__ = ["run_sql_shell"]

_HISTORY = ".weir_sql_history"
_ENDS = ("exit", "quit", ".exit", ".quit", "\\q")
_HELP = """A statement ends with a semicolon and may take several lines. It sees all that was written before.
.schema   the columns of the table
.help     this text
.exit     ends the shell, as Ctrl-D does"""
_KEYWORDS = (
    *(
        "SELECT",
        "DISTINCT",
        "FROM",
        "WHERE",
        "GROUP",
        "BY",
        "HAVING",
        "ORDER",
        "ASC",
        "DESC",
        "LIMIT",
        "OFFSET",
    ),
    *("AS", "AND", "OR", "NOT", "IN", "IS", "NULL", "LIKE", "BETWEEN", "CASE", "WHEN", "THEN", "ELSE", "END"),
    *("COUNT", "SUM", "AVG", "MIN", "MAX", "CAST", "WITH", "UNION", "ALL", "JOIN", "ON"),
)

Run = Callable[[str], None]
"""Runs a statement and shows its result."""


def run_sql_shell(table: Table, name: str, run: Run) -> None:
    """Run statements of standard input until it ends.

    In a terminal an error is shown and the next statement awaited; otherwise it ends the shell.

    Parameters
    ----------
    table : Table
        The table.
    name : str
        What statements call it.
    run : callable
        Runs one.
    """
    words = [name, *table.schema.names, *_KEYWORDS]
    if not sys.stdin.isatty():
        statements, rest = split_statements(sys.stdin.read())
        for statement in [*statements, *([rest.strip()] if _says_something(rest) else [])]:
            run(statement)
        return
    print(f"{table.uri} is {name}. A statement ends with a semicolon; .help says more.")
    with line_editor(_HISTORY, lambda text: _completions(words, text)) as read_line:
        waiting = ""
        while True:
            try:
                line = read_line("  ... " if waiting else f"{name}> ")
            except EOFError:
                print()
                return
            except KeyboardInterrupt:
                waiting = ""
                print()
                continue
            command = line.strip().rstrip(";").lower()
            if not waiting and command in _ENDS:
                return
            if not waiting and command.startswith("."):
                _run_command(table, command)
                continue
            statements, rest = split_statements(f"{waiting}{line}\n")
            waiting = rest if _says_something(rest) else ""
            for statement in statements:
                _run_in_terminal(statement, run)


def _run_in_terminal(statement: str, run: Run) -> None:
    began = time.monotonic()
    try:
        run(statement)
    except WeirError as error:
        print(f"error: {printable(' '.join(error_for_shell(error, ()).split()))}", file=sys.stderr)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
    else:
        print(f"{time.monotonic() - began:.2f} s")


def _run_command(table: Table, command: str) -> None:
    if command == ".schema":
        width = max((len(field.name) for field in table.schema), default=0)
        for field in table.schema:
            needed = "" if field.nullable else "!"
            print(printable(f"{field.name:<{width}}  {format_type(field.type)}{needed}"))
        return
    print(_HELP if command == ".help" else f"there is no command {printable(command)}; .help lists them")


def _says_something(text: str) -> bool:
    """Whether text has more than blanks and comments."""
    lines = [line.strip() for line in text.splitlines()]
    return any(line and not line.startswith("--") for line in lines)


def _completions(words: list[str], text: str) -> list[str]:
    return [word for word in words if text and word.lower().startswith(text.lower())]
