"""Tables that fit the terminal: the least important columns are dropped first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table as TextTable
from rich.text import Text

__all__ = ["Column", "print_fitted"]

_BETWEEN = 2
"""Characters between two columns."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Parameters
    ----------
    name : str
        Its heading.
    cells : sequence of str
        What is in it.
    weight : int, default 0
        What has the least is left out first where the terminal is narrow; 0 is never left out.
    is_number : bool, default False
        Whether it is written to the right.
    """

    name: str
    cells: Sequence[str]
    weight: int = 0
    is_number: bool = False


def print_fitted(console: Console, columns: Sequence[Column]) -> list[str]:
    """Print as many columns as fit, in their order.

    Returns
    -------
    list of str
        The columns that were left out.
    """
    shown = list(columns)
    while _width(shown) > console.width:
        least = min((one for one in shown if one.weight), key=lambda one: one.weight, default=None)
        if least is None:
            break
        shown.remove(least)
    console.print(_table(shown))
    return [one.name for one in columns if one not in shown]


def _width(columns: Sequence[Column]) -> int:
    widths = [max(map(cell_len, (one.name, *one.cells))) for one in columns]
    return sum(widths) + _BETWEEN * (len(widths) - 1)


def _table(columns: Sequence[Column]) -> TextTable:
    table = TextTable(box=None, pad_edge=False, header_style="bold")
    for one in columns:
        justify: Literal["left", "right"] = "right" if one.is_number else "left"
        table.add_column(one.name, justify=justify, overflow="ellipsis", no_wrap=True)
    for cells in zip(*(one.cells for one in columns), strict=True):
        table.add_row(*map(Text, cells))
    return table
