"""Quarantine of records that do not fit the table: detected with SQL, and kept in a separate table.

A second query reads the source again, only for the bad records: both have checkpoints, and both write exactly
once, so that every record ends up in one of the two tables, even after a crash.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import Column, DataFrame, functions
from pyspark.sql.types import ArrayType, StructType

from weir.spark.pipeline.decoding import CORRUPT
from weir.spark.pipeline.micro_batch import UNFIT
from weir.spark.pipeline.settings import FILE_FORMATS, CallableSource, FormatSource, TargetEvents, TargetTable

__all__ = [
    "BAD_RECORD_SCHEMA",
    "PLACE",
    "bad_records",
    "good_rows",
    "misfit",
    "quarantine_of",
    "readable",
    "with_place",
]

PLACE = "__weir_source_place"
"""Column of the stream with the origin of a record, as JSON."""

BAD_RECORD_SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("pipeline", pa.string()),
        pa.field("at", pa.timestamp("us", "UTC")),
        pa.field("reason", pa.string()),
        pa.field("place", pa.string()),
        pa.field("record", pa.string()),
    ]
)
"""The columns of a quarantine: when a record was rejected, why, its origin as JSON, and the record."""

_KAFKA_PLACE = ("topic", "partition", "offset")
_OPERATIONS = ("upsert", "delete")
_OPERATION = "_op"


def quarantine_of(target: TargetTable | TargetEvents, uri: str | None) -> TargetTable:
    """Return the table for the bad records of a pipeline, by default beside its target."""
    beside = f"{target.uri.rstrip('/')}-quarantine"
    return TargetTable(uri or beside, target.storage_options, BAD_RECORD_SCHEMA, ("id",), fsync=target.fsync)


def with_place(stream: DataFrame, source: FormatSource | CallableSource) -> DataFrame:
    """Return a stream whose records carry their origin, as far as the source knows it."""
    names: list[Column] = []
    if isinstance(source, FormatSource) and source.format in FILE_FORMATS:
        names = [
            functions.col("_metadata.file_path").alias("file"),
            functions.col("_metadata.file_modification_time").alias("modified"),
        ]
    elif set(_KAFKA_PLACE) <= set(stream.columns):
        names = [functions.col(name) for name in _KAFKA_PLACE]
    place = functions.to_json(functions.struct(*names)) if names else functions.lit(None).cast("string")
    return stream.withColumn(PLACE, place)


def readable(stream: DataFrame) -> DataFrame:
    """Return the readable records of a stream."""
    return (
        stream.where(functions.col(CORRUPT).isNull()).drop(CORRUPT) if CORRUPT in stream.columns else stream
    )


def good_rows(rows: DataFrame, reason: Column) -> DataFrame:
    """Return the rows of a stream that fit the target; its micro-batches count those that do not.

    ``reason`` says why a row does not fit, as from :func:`misfit`.
    """
    counted = rows.observe(UNFIT, functions.count(reason).alias("rows"))
    return counted.where(reason.isNull()).drop(PLACE)


def bad_records(source: DataFrame, rows: DataFrame, reason: Column, pipeline: str) -> DataFrame:
    """Return the bad records of a stream as rows of a quarantine.

    Parameters
    ----------
    source : DataFrame
        The records with :data:`PLACE`, and with :data:`CORRUPT` if they are parsed from text.
    rows : DataFrame
        The transformed rows of the readable records.
    reason : Column
        Why a row does not fit, as from :func:`misfit`.
    pipeline : str
        The name of the pipeline.
    """
    held = [name for name in rows.columns if name != PLACE]
    place = functions.col(PLACE) if PLACE in rows.columns else functions.lit(None).cast("string")
    refused = rows.where(reason.isNotNull()).select(
        reason.alias("reason"),
        place.alias("place"),
        functions.to_json(functions.struct(*(functions.col(f"`{name}`") for name in held))).alias("record"),
    )
    if CORRUPT in source.columns:
        # Spark refuses to read nothing but what it could not read.
        columns = [functions.col(f"`{name}`") for name in source.columns if name not in (PLACE, CORRUPT)]
        corrupt = functions.col(CORRUPT)
        unreadable = source.where(corrupt.isNotNull()).select(
            functions.lit("the record cannot be read with the schema of the source").alias("reason"),
            functions.col(PLACE).alias("place"),
            functions.when(corrupt.isNotNull(), corrupt)
            .otherwise(functions.to_json(functions.struct(*columns)))
            .alias("record"),
        )
        refused = unreadable.union(refused)
    return refused.select(
        functions.expr("uuid()").alias("id"),
        functions.lit(pipeline).alias("pipeline"),
        functions.current_timestamp().alias("at"),
        "reason",
        "place",
        "record",
    )


def misfit(rows: StructType, table: pa.Schema, primary_key: Sequence[str]) -> Column:
    """Return an expression for why a row does not fit a table; null if it does."""
    checks: list[tuple[Column, str]] = []
    names = set(rows.fieldNames())
    is_delete = functions.lit(False)
    if _OPERATION in names and _OPERATION not in table.names:
        operation = functions.col(_OPERATION)
        checks.append(
            (operation.isNotNull() & ~operation.isin(*_OPERATIONS), "_op is neither 'upsert' nor 'delete'")
        )
        is_delete = functions.coalesce(operation == "delete", functions.lit(False))
    checks += [
        (functions.col(f"`{name}`").isNull(), f"primary-key column '{name}' is null")
        for name in primary_key
        if name in names
    ]
    for field in table:
        if field.name not in names or field.name in primary_key:
            continue
        column = functions.col(f"`{field.name}`")
        if not field.nullable:
            checks.append(
                (column.isNull() & ~is_delete, f"column '{field.name}' is null, and cannot be null")
            )
        if pa.types.is_fixed_size_list(field.type) and isinstance(rows[field.name].dataType, ArrayType):
            size = field.type.list_size
            wrong = functions.coalesce(functions.size(column) != size, functions.lit(False))
            checks.append(
                (wrong & column.isNotNull() & ~is_delete, f"column '{field.name}' has not {size} values")
            )
    reason = functions.lit(None).cast("string")
    for fails, said in reversed(checks):
        reason = functions.when(fails, functions.lit(said)).otherwise(reason)
    return reason
