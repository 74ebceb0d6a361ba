"""The DataFusion sessions that queries run in."""

from __future__ import annotations

from functools import cache

import pyarrow as pa
from datafusion import DataFrame, SessionConfig, SessionContext

__all__ = ["FEW_ROWS", "frame_of", "session"]

FEW_ROWS = 65_536
"""Number of rows that one thread processes faster than several can divide them."""


def _config() -> SessionConfig:
    return SessionConfig().set("datafusion.sql_parser.enable_ident_normalization", "false")


def session() -> SessionContext:
    """Return a session for one query."""
    return SessionContext(_config())


def frame_of(rows: pa.Table) -> DataFrame:
    """Return rows as a frame; a few rows are one batch for one thread."""
    if rows.num_rows > FEW_ROWS:
        return SessionContext(_config()).from_arrow(rows)
    # Without a name: under one, the session would keep them for as long as the process lives.
    batches = rows.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], schema=rows.schema)]
    return _of_few_rows().read_batches(batches)


@cache
def _of_few_rows() -> SessionContext:
    """Return the session for few rows; one per process, since creating one takes longer than using it."""
    return SessionContext(_config().with_target_partitions(1).with_batch_size(FEW_ROWS))
