"""The formats of files of rows."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["FileFormat"]


class FileFormat(StrEnum):
    """The formats that are read."""

    PARQUET = "parquet"
    CSV = "csv"
    JSONL = "jsonl"
    ARROW = "arrow"
