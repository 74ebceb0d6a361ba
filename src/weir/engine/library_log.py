"""Filtering of the Lance library's output on standard error, without misleading lines.

It warns in every merge and every text search that the MemWAL index has no fields, and for every small
generation that partitions of its vector index are empty. Both are normal. The library reads its log settings
from the environment once, when it is imported; so this module is imported before it. A user-defined
``LANCE_LOG`` takes precedence.
"""

from __future__ import annotations

import os

__all__ = ["LANCE_LOG"]

LANCE_LOG = "warn,lance::index=off"
"""The level that Lance has by default, and nothing of the modules that complain."""

os.environ.setdefault("LANCE_LOG", LANCE_LOG)
