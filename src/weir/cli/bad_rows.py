"""Rows that do not fit the table: an error, or skipped, counted and quarantined."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import TextIO

from weir.cli.bad_row_policy import BadRowPolicy
from weir.cli.input.rows import BadRow, OnBadRow
from weir.errors import StorageError

__all__ = ["BadRows"]

_SHOWN = 10


class BadRows:
    """The rows that were left out, to be used as a context manager.

    Parameters
    ----------
    policy : BadRowPolicy
        What to do with them.
    quarantine : Path, optional
        The file to which they are added, a line of JSON each: ``file``, ``row``, ``reason`` and ``record``.
        It is made when the first one comes, and durable when the context ends.

    Examples
    --------
    >>> with BadRows(BadRowPolicy.SKIP, None) as bad_rows:
    ...     bad_rows.leave_out(BadRow("people.csv", 3, "the row has 2 values, and the header 3", "4,Ada"))
    >>> bad_rows.count
    1
    """

    def __init__(self, policy: BadRowPolicy, quarantine: Path | None) -> None:
        self._policy = policy
        self._path = quarantine
        self._stream: TextIO | None = None
        self.count = 0
        self.first: list[BadRow] = []

    @property
    def leave_out(self) -> OnBadRow | None:
        """Called with a row to skip it; None if a bad row is an error."""
        return None if self._policy is BadRowPolicy.FAIL else self._leave_out

    @property
    def written_to(self) -> str | None:
        """The file that has them, if there is one."""
        return str(self._path) if self.count and self._path is not None else None

    def __enter__(self) -> BadRows:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._stream is not None:
            with self._stream as stream:
                stream.flush()
                os.fsync(stream.fileno())

    def _leave_out(self, row: BadRow) -> None:
        self.count += 1
        if len(self.first) < _SHOWN:
            self.first.append(row)
        if self._path is None:
            return
        try:
            if self._stream is None:
                self._stream = self._path.open("a", encoding="utf-8")
            self._stream.write(json.dumps(asdict(row), ensure_ascii=False) + "\n")
        except OSError as error:
            raise StorageError(
                f"the bad rows cannot be written: {error.strerror or error}", where=str(self._path)
            ) from error
