"""The format ``"weir"`` as Spark sees it: which class reads and which writes, in batches and streams.

Spark makes the data source anew in a process of its own for nearly every call, so it holds nothing but
its options, and everything it hands out can be pickled.
"""

from __future__ import annotations

from pyspark.sql.datasource import DataSource

__all__ = ["WeirDataSource"]


class WeirDataSource(DataSource):
    """A Weir table as a source and a sink of Spark."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return "weir"
