"""A table to write to, and a look at what a write has left."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from uuid import UUID

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

import weir
from weir.format import layout, wal_entry
from weir.format.source import Source
from weir.spark.pipeline.file_order import in_order_of_files

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("value", pa.string())])


def create(path: Path, shards: int = 3, schema: pa.Schema = SCHEMA) -> weir.Table:
    """Return a new table."""
    return weir.create(path / "table", schema, primary_key="id", shard_by=weir.bucket("id", shards))


def contents(table: weir.Table) -> dict[int, str | None]:
    """Return what a strong read shows, every key once."""
    found = weir.open(table.uri).scan().to_table()
    ids = found.column("id").to_pylist()
    assert len(set(ids)) == len(ids)
    return dict(zip(ids, found.column("value").to_pylist(), strict=True))


def frame(spark: SparkSession, rows: list[tuple[object, ...]], columns: str) -> DataFrame:
    """Return a data frame of two partitions, in the order of the rows."""
    return spark.createDataFrame(rows, columns).coalesce(1)


def save(data: DataFrame, table: weir.Table, **options: object) -> None:
    """Write a data frame."""
    data.write.format("weir").mode("append").options(**options).save(table.uri)  # type: ignore[arg-type]


def marks(table: weir.Table) -> Counter[tuple[UUID, Source]]:
    """Return how many log entries of each shard have each mark."""
    found: Counter[tuple[UUID, Source]] = Counter()
    for path in Path(table.uri, layout.MEM_WAL).glob("*/wal/*.arrow"):
        source = wal_entry.decode_header(path.read_bytes(), where=str(path)).source
        if source is not None:
            found[UUID(path.parent.parent.name), source] += 1
    return found


def lines(path: Path, number: int, *rows: str) -> None:
    """Put a file of rows where a stream reads them; whole at once."""
    path.mkdir(exist_ok=True)
    hidden = path / f".{number}"
    hidden.write_text("\n".join(rows) + "\n")
    # Spark takes them by their age.
    os.utime(hidden, (1_600_000_000 + number, 1_600_000_000 + number))
    hidden.rename(path / f"{number:04d}.csv")


def stream(
    spark: SparkSession,
    inbox: Path,
    table: weir.Table,
    checkpoint: Path,
    *,
    format: str = "weir",
    in_order: bool = False,
    **options: object,
) -> StreamingQuery:
    """Start a query that writes the files of a directory, one each batch, and then ends."""
    source = (
        spark.readStream.schema("id long, value string, _op string")
        .option("maxFilesPerTrigger", 1)
        .csv(str(inbox))
    )
    if in_order:
        source = in_order_of_files(source)
    writer = source.writeStream.format(format).option("checkpointLocation", str(checkpoint))
    return writer.options(**options).trigger(availableNow=True).start(table.uri)  # type: ignore[arg-type]


def run(query: StreamingQuery) -> None:
    """Wait for a query to end by itself."""
    query.awaitTermination()
    assert not query.isActive
