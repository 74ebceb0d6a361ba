"""Phrases shared by the text of several results."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from rich.console import Console

__all__ = ["counted", "elapsed", "print_pairs", "short_id"]


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun.

    Examples
    --------
    >>> counted(1, "row"), counted(2000, "row")
    ('1 row', '2,000 rows')
    """
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def elapsed(seconds: float) -> str:
    """Return a length of time as people say it.

    Examples
    --------
    >>> elapsed(4.25), elapsed(75), elapsed(7300), elapsed(200_000)
    ('4.2 s', '75 s', '2.0 h', '2.3 d')
    """
    if seconds < 10:
        return f"{seconds:.1f} s"
    for size, unit in ((86_400.0, "d"), (3600.0, "h"), (600.0, "min")):
        if seconds >= 2 * size or (unit == "min" and seconds >= size):
            return f"{seconds / (60.0 if unit == 'min' else size):.{0 if unit == 'min' else 1}f} {unit}"
    return f"{seconds:.0f} s"


def short_id(shard_id: UUID | None) -> str:
    """Return the beginning of an id, enough for people to tell shards apart."""
    return "" if shard_id is None else str(shard_id)[:8]


def print_pairs(console: Console, pairs: Mapping[str, str]) -> None:
    """Print names and values, one pair per line; a pair without a value is left out."""
    width = max(len(name) for name in pairs)
    for name, value in pairs.items():
        if value:
            console.print(f"  {name:<{width}}  {value}", soft_wrap=True)
