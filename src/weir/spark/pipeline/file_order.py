"""Streams files so that rows come in the order of their files.

Spark takes files in the order of their times, but guarantees nothing about the order of rows in a micro-batch
with several files: it reads the longest file first. One file per micro-batch, with the option
``maxFilesPerTrigger``, is no solution: the first micro-batch after a crash may hold two, if the source had
recorded a file and the query had not. An older change of a key could then win.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, functions

__all__ = ["in_order_of_files"]

_PLACE = "__weir_place"
_OF_FILE = ("file_modification_time", "file_path", "file_block_start")


def in_order_of_files(stream: DataFrame) -> DataFrame:
    """Return a stream of files whose micro-batches are one partition each, in order.

    Rows are ordered by the modification time of their file, then by its path, then by their position in it.
    One task holds the rows of a micro-batch in memory.

    Parameters
    ----------
    stream : DataFrame
        The stream, for which Spark still knows the files.
    """
    place = [
        functions.col(f"_metadata.{name}").alias(f"{_PLACE}_{number}") for number, name in enumerate(_OF_FILE)
    ]
    return stream.select("*", *place).coalesce(1).mapInArrow(_sorted, stream.schema)


def _sorted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    held = list(batches)
    if not held:
        return
    rows = pa.Table.from_batches(held)
    place = [f"{_PLACE}_{number}" for number in range(len(_OF_FILE))]
    order = pc.sort_indices(rows.select(place), [(name, "ascending") for name in place])
    yield from rows.drop_columns(place).take(order).to_batches()
