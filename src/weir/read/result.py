"""The rows of a read, convertible to the forms of Python's data libraries."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from importlib import import_module
from reprlib import Repr
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from weir.errors import MissingDependencyError
from weir.notebook import facts_html

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl

__all__ = ["RowResult"]

# A vector is shown by its first numbers, a filter with many keys by its two ends.
_SHORT = Repr()
_SHORT.maxstring = _SHORT.maxother = 100


class RowResult(ABC):
    """Rows that have not been read yet; each method that returns rows reads them again.

    It has ``__arrow_c_stream__``, so that ``pl.DataFrame(rows)``, ``pa.table(rows)``,
    ``duckdb.sql("FROM rows")`` and everything else that speaks Arrow accept it directly.
    """

    __slots__ = ()

    # The request by argument name, without omitted arguments.
    _asked: Mapping[str, object] = MappingProxyType({})

    def __repr__(self) -> str:
        """Return the request. Reads nothing."""
        asked = ", ".join(f"{name}={_SHORT.repr(value)}" for name, value in self._asked.items())
        return f"{type(self).__name__}({asked})"

    def _repr_html_(self) -> str:
        """Return the request, and how to run it, for a notebook. Reads nothing."""
        facts = {name: _SHORT.repr(value) for name, value in self._asked.items()}
        facts["rows"] = "not read yet: to_table(), to_pandas(), to_polars(), to_pylist(), explain()"
        return facts_html(type(self).__name__, facts.items())

    @abstractmethod
    def to_table(self) -> pa.Table:
        """Return the rows as a table."""

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows as record batches."""
        yield from self.to_table().to_batches()

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the rows as a stream of record batches."""
        table = self.to_table()
        return pa.RecordBatchReader.from_batches(table.schema, table.to_batches())

    def to_pandas(self, **options: Any) -> pd.DataFrame:
        """Return the rows as a pandas DataFrame.

        Parameters
        ----------
        **options
            Those of :meth:`pyarrow.Table.to_pandas`, such as ``types_mapper``.

        Raises
        ------
        MissingDependencyError
            If pandas is not installed.
        """
        _library("pandas")
        return self.to_table().to_pandas(**options)

    def to_polars(self) -> pl.DataFrame:
        """Return the rows as a Polars DataFrame.

        Raises
        ------
        MissingDependencyError
            If Polars is not installed.
        """
        frame: pl.DataFrame = _library("polars").DataFrame(self.to_table())
        return frame

    def to_pylist(self) -> list[dict[str, Any]]:
        """Return the rows as dicts."""
        rows: list[dict[str, Any]] = self.to_table().to_pylist()
        return rows

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Hand the rows on as an Arrow stream."""
        return self.to_reader().__arrow_c_stream__(requested_schema)


def _library(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise MissingDependencyError(
            f"this needs {name}", hint=f"Install it with: pip install {name}"
        ) from error
