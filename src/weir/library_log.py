"""What the Lance library writes to standard error, less what would mislead.

Lance complains in every text search of a table with a MemWAL index that this index has no fields, as an
error, though it is as it should be. The library takes what it logs from the environment, once, when it is
imported; so this module is imported before it. Whoever sets ``LANCE_LOG`` decides alone.
"""

from __future__ import annotations

import os

__all__ = ["LANCE_LOG"]

LANCE_LOG = "warn,lance::index=off"
"""The level that Lance has by default, and nothing of the module that complains."""

os.environ.setdefault("LANCE_LOG", LANCE_LOG)
