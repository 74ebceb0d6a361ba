"""Nested facts as text: one per line, indented, with lists of similar ones as tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table as TextTable
from rich.text import Text

from weir.cli.printable_text import printable

__all__ = ["print_facts"]


def print_facts(console: Console, facts: Mapping[str, Any], depth: int = 1) -> None:
    """Print facts, below each other and deeper where they are nested.

    Parameters
    ----------
    console : Console
        Where to.
    facts : mapping of str to value
        Text, numbers, booleans, None, and lists and mappings of them.
    depth : int, default 1
        How far to indent.
    """
    indent = "  " * depth
    width = max((len(name) for name in facts), default=0)
    for name, value in facts.items():
        if isinstance(value, Mapping) and value:
            console.print(Text(f"{indent}{printable(name)}"), soft_wrap=True)
            print_facts(console, value, depth + 1)
        elif _is_table(value):
            console.print(Text(f"{indent}{printable(name)}"), soft_wrap=True)
            for line in value if not _is_flat(value) else ():
                print_facts(console, line, depth + 1)
            if _is_flat(value):
                _print_table(console, value, depth + 1)
        else:
            console.print(Text(f"{indent}{printable(name):<{width}}  {_text(value)}"), soft_wrap=True)


def _is_table(value: object) -> bool:
    return isinstance(value, Sequence) and bool(value) and all(isinstance(one, Mapping) for one in value)


def _is_flat(rows: Sequence[Mapping[str, Any]]) -> bool:
    return not any(isinstance(value, (Mapping, list)) and value for row in rows for value in row.values())


def _print_table(console: Console, rows: Sequence[Mapping[str, Any]], depth: int) -> None:
    table = TextTable(box=None, pad_edge=False, header_style="bold")
    names = list(dict.fromkeys(name for row in rows for name in row))
    for number, name in enumerate(names):
        # The indentation is that of the first column.
        table.add_column(Text(("  " * depth if not number else "") + printable(name)))
    for row in rows:
        cells = [_text(row.get(name)) for name in names]
        cells[0] = "  " * depth + cells[0]
        table.add_row(*map(Text, cells))
    console.print(table)


def _text(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return "none" if not value else ", ".join(f"{printable(k)}={_text(v)}" for k, v in value.items())
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ", ".join(map(_text, value)) or "none"
    return printable(str(value))
