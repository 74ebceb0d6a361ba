"""Base tables of a size, made once, and copies of them for those who change them.

A copy is of links: files of a table are never written again, so copies of ten million rows cost nothing and
every contender begins with the same files.
"""

from __future__ import annotations

import os
import shutil
from enum import Enum
from functools import cache
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa

import weir
from benchmarks.spark.events import KEY, SCHEMA, events

__all__ = ["BASE_SERIES", "Kind", "base_table", "copy_of"]

BASE_SERIES = -1
"""The series of the rows of a base table."""

_CHUNK_ROWS = 500_000


class Kind(Enum):
    """What a base table is."""

    PLAIN = "plain"
    """A Lance dataset."""

    INDEXED = "indexed"
    """A Lance dataset with a BTREE on its key."""

    WEIR = "weir"
    """A Weir table, which has a BTREE on its key too."""


@cache
def base_table(directory: Path, kind: Kind, rows: int, shards: int) -> Path:
    """Make a table whose keys are the even numbers below ``2 * rows``, once per run.

    Parameters
    ----------
    directory : Path
        Where to make it.
    kind : Kind
        What it is.
    rows : int
        Its rows.
    shards : int
        The shards of a Weir table.
    """
    place = directory / f"base-{kind.value}-{rows}-{shards}"
    if kind is not Kind.PLAIN:
        shutil.copytree(base_table(directory, Kind.PLAIN, rows, shards), place, copy_function=os.link)
        if kind is Kind.INDEXED:
            lance.dataset(str(place)).create_scalar_index(KEY, "BTREE")
        else:
            weir.adopt(place, primary_key=KEY, shard_by=weir.bucket(KEY, shards), fsync=False)
        return place
    chunks = (
        events(2 * np.arange(start, min(start + _CHUNK_ROWS, rows)), BASE_SERIES)
        .combine_chunks()
        .to_batches()[0]
        for start in range(0, rows, _CHUNK_ROWS)
    )
    lance.write_dataset(pa.RecordBatchReader.from_batches(SCHEMA, chunks), str(place))
    return place


def copy_of(table: Path, place: Path) -> Path:
    """Return a copy that can be changed without changing the table."""
    shutil.copytree(table, place, copy_function=os.link)
    return place
