"""SQLite as a contender: every transaction is durable when it returns."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

__all__ = ["insert", "open_durable"]


def open_durable(path: Path, *statements: str) -> sqlite3.Connection:
    """Open a database with a write-ahead log that is fsynced at every commit.

    Parameters
    ----------
    path : Path
        Its file.
    statements : str
        What makes its tables.
    """
    connection = sqlite3.connect(path, check_same_thread=False, timeout=60, isolation_level=None)
    for statement in ("PRAGMA journal_mode = WAL", "PRAGMA synchronous = FULL", *statements):
        connection.execute(statement)
    return connection


def insert(connection: sqlite3.Connection, statement: str, rows: Sequence[Any]) -> None:
    """Insert rows in one transaction."""
    connection.execute("BEGIN IMMEDIATE")
    connection.executemany(statement, rows)
    connection.execute("COMMIT")
