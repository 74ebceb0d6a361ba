"""Display of tables and reports in notebooks: plain HTML tables without their own style."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields, is_dataclass
from html import escape
from typing import Any

__all__ = ["ShownAsTable", "facts_html", "rows_html"]

# Of a long tuple in a report, how much of its text is shown.
_LONGEST = 300


def facts_html(title: str, facts: Iterable[tuple[str, object]]) -> str:
    """Return a table of names and values.

    Examples
    --------
    >>> facts_html("Table", [("rows", 3)])
    '<p><b>Table</b></p><table><tr><th>rows</th><td>3</td></tr></table>'
    """
    lines = "".join(f"<tr><th>{escape(name)}</th><td>{_cell(value)}</td></tr>" for name, value in facts)
    return f"<p><b>{escape(title)}</b></p><table>{lines}</table>"


def rows_html(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table with a header."""
    head = "".join(f"<th>{escape(name)}</th>" for name in header)
    lines = "".join(f"<tr>{''.join(f'<td>{_cell(value)}</td>' for value in row)}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>"


def _cell(value: object) -> str:
    if isinstance(value, tuple | list) and value and all(is_dataclass(one) for one in value):
        return rows_html(
            _names(value[0]), [[getattr(one, name, "") for name in _names(value[0])] for one in value]
        )
    if is_dataclass(value) and not isinstance(value, type):
        return facts_html(type(value).__name__, [(name, getattr(value, name)) for name in _names(value)])
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    text = "" if value is None else str(value)
    return escape(text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}...")


def _names(value: Any) -> list[str]:
    return [field.name for field in fields(value) if not field.name.startswith("_")]


class ShownAsTable:
    """A dataclass that a notebook shows as a table of its fields."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        return facts_html(type(self).__name__, [(name, getattr(self, name)) for name in _names(self)])
