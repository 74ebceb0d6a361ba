"""The session of DataFusion that a query runs in."""

from __future__ import annotations

from datafusion import SessionConfig, SessionContext

__all__ = ["session"]


def session() -> SessionContext:
    """Return a session for one query."""
    return SessionContext(SessionConfig().set("datafusion.sql_parser.enable_ident_normalization", "false"))
