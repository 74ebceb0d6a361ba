"""The sessions of DataFusion that queries run in."""

from __future__ import annotations

import pyarrow as pa
from datafusion import DataFrame, SessionConfig, SessionContext

__all__ = ["frame_of", "session"]

_FEW_ROWS = 65_536
"""Rows that one thread is done with before several have shared them out."""


def _config() -> SessionConfig:
    return SessionConfig().set("datafusion.sql_parser.enable_ident_normalization", "false")


def session() -> SessionContext:
    """Return a session for one query."""
    return SessionContext(_config())


def frame_of(rows: pa.Table) -> DataFrame:
    """Return rows as a frame of a session of their own; few of them are one batch for one thread."""
    config = _config()
    if rows.num_rows <= _FEW_ROWS:
        config = config.with_target_partitions(1).with_batch_size(_FEW_ROWS)
    return SessionContext(config).from_arrow(rows)
