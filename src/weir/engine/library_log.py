"""Filtering of the Lance library's output on standard error, without misleading lines.

It complains, in every merge and every text search, that the MemWAL index has no fields, and for every
small generation that partitions of its vector index are empty. Both are as they should be. The library
takes what it logs from the environment, once, when it is imported; so this module is imported before it.
Whoever sets ``LANCE_LOG`` decides alone.
"""

from __future__ import annotations

import os

__all__ = ["LANCE_LOG"]

LANCE_LOG = "warn,lance::index=off"
"""The level that Lance has by default, and nothing of the modules that complain."""

os.environ.setdefault("LANCE_LOG", LANCE_LOG)
