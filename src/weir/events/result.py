"""The result of a query: computed when first read, then kept."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Result"]


class Result:
    """The result of a query. It is computed when first read, and then stays the same.

    Parameters
    ----------
    run : callable
        Computes it.
    explain : callable
        Explains it.
    warnings : sequence of str
        What the query ignored.
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
        """Return the result as an Arrow table."""
        with self._lock:
            if self._table is None:
                self._table = self._run()
            return self._table

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the result as record batches."""
        yield from self.to_table().to_batches()

    def to_pandas(self) -> pd.DataFrame:
        """Return the result as a pandas data frame."""
        return self.to_table().to_pandas()

    def explain(self) -> str:
        """Return the query plan as a text."""
        return self._explain()

    def __repr__(self) -> str:
        table = self._table
        return f"<{type(self).__name__}: {'not read yet' if table is None else f'{len(table)} rows'}>"
