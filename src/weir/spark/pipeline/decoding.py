"""Decoding of messages: parses the column ``value`` of a source into a struct by a schema."""

from __future__ import annotations

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, functions
from pyspark.sql.types import BinaryType, StringType

from weir.errors import OptionError, SchemaError
from weir.spark.pipeline.settings import ValueFormat

__all__ = ["CORRUPT", "decoded"]

CORRUPT = "__weir_unreadable"
"""Column with the text of an unreadable record, if such records are quarantined."""

_VALUE = "value"
_ABOUT_UNREADABLE = ("mode", "columnnameofcorruptrecord")


def decoded(source: DataFrame, value: ValueFormat, *, keep_unreadable: bool = False) -> DataFrame:
    """Return a stream with the column ``value`` parsed.

    Parameters
    ----------
    source : DataFrame
        The stream: ``value`` is text or UTF-8 bytes.
    value : ValueFormat
        How to parse it.
    keep_unreadable : bool, default False
        Whether to put unreadable text into the column :data:`CORRUPT`.

    Returns
    -------
    DataFrame
        The same columns, with ``value`` as a struct, null if it was null.

    Raises
    ------
    SchemaError
        If the column is missing or has another type.
    OptionError
        If the schema or an option cannot be parsed.
    """
    if _VALUE not in source.columns:
        raise SchemaError(
            "the source has no column 'value' that could be read",
            where="source.value",
            hint=f"Its columns are {', '.join(source.columns)}",
        )
    kind = source.schema[_VALUE].dataType
    if not isinstance(kind, BinaryType | StringType):
        raise SchemaError(
            f"the column 'value' of the source is {kind.simpleString()}, and neither text nor bytes",
            where="source.value",
        )
    try:
        read = _read_all if keep_unreadable else _read
        stream = source.withColumn(_VALUE, read(functions.col(_VALUE).cast("string"), value))
        if keep_unreadable:
            unreadable = functions.col(f"{_VALUE}.{CORRUPT}")
            stream = stream.withColumn(CORRUPT, unreadable).withColumn(
                _VALUE, functions.col(_VALUE).dropFields(CORRUPT)
            )
        stream.schema  # noqa: B018
    except PySparkException as error:
        reason = str(error).strip().partition("\n")[0]
        raise OptionError(f"the values cannot be read like this: {reason}", where="source.value") from error
    return stream


def _read(text: Column, value: ValueFormat) -> Column:
    # Spark's own default makes nulls of what it cannot read, which nobody notices.
    options = {**value.options, "mode": value.mode}
    if value.format == "csv":
        return functions.from_csv(text, value.schema, options)
    return functions.from_json(text, value.schema, options)


def _read_all(text: Column, value: ValueFormat) -> Column:
    options = {name: given for name, given in value.options.items() if name.lower() not in _ABOUT_UNREADABLE}
    kept = {**options, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
    schema = f"{value.schema.rstrip().rstrip(',')}, {CORRUPT} STRING"
    if value.format == "csv":
        return functions.from_csv(text, schema, kept)
    return functions.from_json(text, schema, kept)
