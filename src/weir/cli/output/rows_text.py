"""Rows as text. Long values are truncated; markup in them has no effect."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from rich.console import Console
from rich.table import Table as TextTable
from rich.text import Text

from weir.cli.json_text import json_column
from weir.cli.output.phrases import counted
from weir.cli.printable_text import printable

__all__ = ["print_rows"]

_WIDEST_CELL = 60


def print_rows(console: Console, batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> None:
    """Print rows as a table, and how many they are."""
    shown = TextTable(box=None, pad_edge=False, header_style="bold")
    for field in schema:
        shown.add_column(Text(field.name), justify=_justification(field.type), overflow="ellipsis")
    for batch in batches:
        cells = [[_cell(value) for value in _texts(column)] for column in batch.columns]
        for row in zip(*cells, strict=True):
            shown.add_row(*row)
    if schema.names:
        console.print(shown)
    console.print(counted(shown.row_count, "row"))


def _justification(kind: pa.DataType) -> Any:
    types = pa.types
    is_number = types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind)
    return "right" if is_number else "left"


def _texts(column: pa.Array) -> list[str | None]:
    types = pa.types
    if types.is_string(column.type) or types.is_large_string(column.type):
        return list(column.to_pylist())
    texts: list[str] = json_column(column).to_pylist()
    if not types.is_nested(column.type):
        texts = [text.strip('"') for text in texts]
    return [text if valid else None for text, valid in zip(texts, column.is_valid().to_pylist(), strict=True)]


def _cell(text: str | None) -> Text:
    if text is None:
        return Text("null", style="dim")
    text = printable(text)
    return Text(text if len(text) <= _WIDEST_CELL else f"{text[: _WIDEST_CELL - 1]}…")
