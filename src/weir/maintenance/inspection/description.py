"""What an object of a table says, as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

__all__ = ["Description"]


@dataclass(frozen=True, slots=True)
class Description:
    """What an object says.

    Parameters
    ----------
    kind : str
        What it is: ``"shard manifest"``, ``"WAL entry"``, ``"generation"``, ...
    where : str
        Its location.
    facts : mapping of str to value
        What it says, as far as it can be read: text, numbers, booleans, None, and lists and mappings of
        them.
    problems : tuple of str, default ()
        What is wrong with it, each with its place; empty if it is whole.
    rows : Table, optional
        Its rows, if they were asked for.
    """

    kind: str
    where: str
    facts: Mapping[str, Any]
    problems: tuple[str, ...] = ()
    rows: pa.Table | None = field(default=None, compare=False)
