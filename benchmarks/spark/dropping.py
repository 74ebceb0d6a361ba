"""A sink written in Python that drops its rows: what any such sink costs beside those of Java."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

__all__ = ["DROPPING", "DroppingSink"]

DROPPING = "dropping"
"""The name of the format."""


class DroppingSink(DataSource):
    """Takes rows and keeps none."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return DROPPING

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Return what drops the rows of a batch write."""
        return _BatchDropper()

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802
        """Return what drops the rows of a query."""
        return _StreamDropper()


class _BatchDropper(DataSourceArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _dropped(iterator)


class _StreamDropper(DataSourceStreamArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return _dropped(iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Nothing is left to do."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Nothing was done."""


def _dropped(batches: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
    for _ in batches:
        pass
    return WriterCommitMessage()
