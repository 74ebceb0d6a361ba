"""What a process tells about itself, in a file of its own that outlives it.

One JSON object per line, written with one ``write``: the kernel has it when the call returns, and a
SIGKILL right after changes nothing. A line that a kill has cut short is one that was never told.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["Journal", "lines_told", "read_journal"]


class Journal:
    """Appends to the journal of this process."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)

    def tell(self, event: str, **members: Any) -> None:
        """Write one line; it carries the time of a clock that all processes of a machine share."""
        line = json.dumps({"event": event, "at": time.monotonic(), **members})
        os.write(self._descriptor, line.encode() + b"\n")


def read_journal(path: Path) -> Iterator[dict[str, Any]]:
    """Yield what was told, in order."""
    if not path.exists():
        return
    for line in path.read_bytes().split(b"\n")[:-1]:
        yield json.loads(line)


def lines_told(path: Path) -> int:
    """Return how many lines a journal has."""
    return path.read_bytes().count(b"\n") if path.exists() else 0
