"""The buffer types that codecs accept as stored bytes."""

from __future__ import annotations

from typing import TypeAlias

import pyarrow as pa

__all__ = ["Bytes"]

Bytes: TypeAlias = bytes | bytearray | memoryview | pa.Buffer
"""Anything that holds contiguous bytes."""
