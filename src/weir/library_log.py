"""What the Lance library writes to standard error, on its own, unless ``LANCE_LOG`` says otherwise.

It reads the variable when it is imported, so this comes before every import of it. Left away are its
warnings about what is meant so: the MemWAL index has no fields, and a generation has no rows for some
partitions of a vector index.
"""

from __future__ import annotations

import os

__all__ = ["DEFAULT"]

DEFAULT = "warn,lance::index=error"

os.environ.setdefault("LANCE_LOG", DEFAULT)
