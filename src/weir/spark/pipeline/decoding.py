"""What the values of messages mean: the column ``value`` of a source, made a struct by a schema."""

from __future__ import annotations

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, functions
from pyspark.sql.types import BinaryType, StringType

from weir.errors import OptionError, SchemaError
from weir.spark.pipeline.settings import ValueFormat

__all__ = ["decoded"]

_VALUE = "value"


def decoded(source: DataFrame, value: ValueFormat) -> DataFrame:
    """Return a stream whose column ``value`` is read.

    Parameters
    ----------
    source : DataFrame
        The stream: ``value`` is text, or the UTF-8 of text.
    value : ValueFormat
        How to read it.

    Returns
    -------
    DataFrame
        The same columns, ``value`` as a struct: null where there was none.

    Raises
    ------
    SchemaError
        If there is no such column, or it is of another type.
    OptionError
        If the schema or an option cannot be understood.
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
        stream = source.withColumn(_VALUE, _read(functions.col(_VALUE).cast("string"), value))
        stream.schema  # noqa: B018
    except PySparkException as error:
        reason = str(error).strip().partition("\n")[0]
        raise OptionError(f"the values cannot be read so: {reason}", where="source.value") from error
    return stream


def _read(text: Column, value: ValueFormat) -> Column:
    # Spark's own default makes nulls of what it cannot read, which nobody notices.
    options = {**value.options, "mode": value.mode}
    if value.format == "csv":
        return functions.from_csv(text, value.schema, options)
    return functions.from_json(text, value.schema, options)
