"""Phrases that the text of several results has."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from rich.console import Console

__all__ = ["counted", "print_pairs", "short_id"]


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun.

    Examples
    --------
    >>> counted(1, "row"), counted(2000, "row")
    ('1 row', '2,000 rows')
    """
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def short_id(shard_id: UUID | None) -> str:
    """Return the beginning of an id, enough for people to tell shards apart."""
    return "" if shard_id is None else str(shard_id)[:8]


def print_pairs(console: Console, pairs: Mapping[str, str]) -> None:
    """Print names and values, one pair per line; a pair without a value is left out."""
    width = max(len(name) for name in pairs)
    for name, value in pairs.items():
        if value:
            console.print(f"  {name:<{width}}  {value}", soft_wrap=True)
