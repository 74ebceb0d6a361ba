"""The progress of a query, from its checkpoint on a local disk.

Spark records, in this order: in the log of a source what it has found, in ``offsets`` what the next
micro-batch takes, and in ``commits`` that the micro-batch is complete. A process may die between any two of
these.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["CheckpointState", "read_checkpoint"]


@dataclass(frozen=True, slots=True)
class CheckpointState:
    """The progress of a query.

    Parameters
    ----------
    planned, committed : int
        The newest micro-batch that is planned, and the newest that is complete; -1 if there is none.
    found : int
        The newest entry in the log of the first source; -1 if there is none, or the source has no log.
    ends : tuple
        For each source, the position up to which the newest complete micro-batch read it.
    """

    planned: int
    committed: int
    found: int
    ends: tuple[Any, ...] = ()

    @property
    def is_under_way(self) -> bool:
        """Whether a micro-batch has begun but is not complete."""
        return self.planned > self.committed or self.found > self.planned

    def describe(self) -> str:
        """Return it as readable text.

        Examples
        --------
        >>> CheckpointState(10, 9, 11).describe()
        'micro-batch 9 is over, 10 is planned, the log of the source is at 11'
        >>> CheckpointState(-1, -1, -1).describe()
        'no micro-batch has begun yet'
        """
        if self.planned < 0:
            return "no micro-batch has begun yet"
        if self.committed < 0:
            return f"no micro-batch is over yet, {self.planned} is planned"
        found = f", the log of the source is at {self.found}" if self.found >= 0 else ""
        return f"micro-batch {self.committed} is over, {self.planned} is planned{found}"


def read_checkpoint(directory: str | Path) -> CheckpointState:
    """Return the progress of the query of a checkpoint."""
    checkpoint = Path(directory)
    committed = _newest(checkpoint / "commits")
    return CheckpointState(
        planned=_newest(checkpoint / "offsets"),
        committed=committed,
        found=_newest(checkpoint / "sources" / "0"),
        ends=_ends(checkpoint / "offsets" / str(committed)),
    )


def _newest(directory: Path) -> int:
    """Return the highest number among file names; every tenth entry of a source's log has a suffix."""
    names = (path.name.removesuffix(".compact") for path in directory.glob("[0-9]*") if path.is_file())
    return max((int(name) for name in names if name.isdigit()), default=-1)


def _ends(entry: Path) -> tuple[Any, ...]:
    try:
        # The version of the format, then what belongs to the micro-batch, then a line for each source.
        lines = entry.read_text(encoding="utf-8").splitlines()[2:]
        return tuple(None if line == "-" else json.loads(line) for line in lines)
    except (OSError, ValueError):
        return ()
