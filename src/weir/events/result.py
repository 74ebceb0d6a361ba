"""The answer to a query: run when it is first read, then kept."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Result"]


class Result:
    """The answer to a query. It is found when it is first asked for, and stays as it is.

    Parameters
    ----------
    run : callable
        Finds it.
    explain : callable
        Says how.
    warnings : sequence of str
        What was passed over in the query.
    """

    def __init__(
        self,
        run: Callable[[], pa.Table],
        explain: Callable[[], str],
        warnings: Sequence[str] = (),
    ) -> None:
        self._run = run
        self._explain = explain
        self._lock = threading.Lock()
        self._table: pa.Table | None = None
        self.warnings = tuple(warnings)

    def to_table(self) -> pa.Table:
        """Return the answer as an Arrow table."""
        with self._lock:
            if self._table is None:
                self._table = self._run()
            return self._table

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the answer as record batches."""
        yield from self.to_table().to_batches()

    def to_pandas(self) -> pd.DataFrame:
        """Return the answer as a pandas data frame."""
        return self.to_table().to_pandas()

    def explain(self) -> str:
        """Return how the answer is found, as a text."""
        return self._explain()

    def __repr__(self) -> str:
        table = self._table
        return f"<{type(self).__name__}: {'not read yet' if table is None else f'{len(table)} rows'}>"
