"""The description of an object of a table, as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

__all__ = ["Description"]


@dataclass(frozen=True, slots=True)
class Description:
    """The content of a stored object.

    Parameters
    ----------
    kind : str
        What it is: ``"shard manifest"``, ``"WAL entry"``, ``"generation"``, ...
    where : str
        Its location.
    facts : mapping of str to value
        Its content, as far as it can be read: text, numbers, booleans, None, and lists and mappings of these.
    problems : tuple of str, default ()
        Its problems, each with its location; empty if it is intact.
    rows : Table, optional
        Its rows, if requested.
    """

    kind: str
    where: str
    facts: Mapping[str, Any]
    problems: tuple[str, ...] = ()
    rows: pa.Table | None = field(default=None, compare=False)
