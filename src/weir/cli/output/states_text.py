"""The saved states of a table, as text."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from rich.console import Console
from rich.table import Table as TextTable

from weir.format.snapshot_pin import SnapshotPin
from weir.format.tag import Tag

__all__ = ["print_kept_states"]


def print_kept_states(console: Console, tags: Sequence[Tag], pins: Sequence[SnapshotPin]) -> None:
    """Print tags and pinned tokens, a line for each; the text of a token comes last and may be long."""
    if not tags and not pins:
        console.print("nothing is kept")
        return
    if tags:
        shown = TextTable(box=None, pad_edge=False, header_style="bold")
        for column in ("tag", "base version", "made"):
            shown.add_column(column, overflow="fold")
        for tag in tags:
            shown.add_row(tag.name, str(tag.token.base_version), _text(tag.created_at))
        console.print(shown)
    for pin in pins:
        console.print(
            f"kept until {_text(pin.expires_at)}, made {_text(pin.created_at)}: {pin.token}", soft_wrap=True
        )


def _text(instant: datetime) -> str:
    return f"{instant:%Y-%m-%d %H:%M:%S} UTC"
