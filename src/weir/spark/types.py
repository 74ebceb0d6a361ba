"""Conversion of a table's columns to Spark's types, and of Arrow data between them.

Every value is exact or an error: a column without a matching Spark type, or a value that does not fit the
type, is refused with the name of the column.

=====================================  ==================================================================
a table's column                       in Spark
=====================================  ==================================================================
``bool``                               ``boolean``
``int8``, ``int16``, ``int32``,        ``tinyint``, ``smallint``, ``int``, ``bigint``
``int64``
``uint8``, ``uint16``, ``uint32``      the next larger of these
``uint64``                             ``decimal(20,0)``
``halffloat``, ``float``, ``double``   ``float``, ``float``, ``double``
``decimal(p, s)``                      ``decimal(p,s)`` up to 38 digits; with a negative scale
                                       ``decimal(p-s,0)``
``string``, ``large_string``           ``string``
``binary``, ``large_binary``,          ``binary``
``fixed_size_binary``
``date32``, ``date64``                 ``date``
``timestamp`` with a zone              ``timestamp``, the same instant in every session time zone
``timestamp`` without a zone           ``timestamp_ntz``
``time32``, ``time64``                 ``time(0)``, ``time(3)``, ``time(6)`` or ``time(9)``
``duration``                           ``interval day to second``
``null``                               ``void``
``dictionary``                         the type of its values
lists, also of fixed size (vectors)    ``array``
``struct``, ``map``                    ``struct``, ``map``
``extension``                          the type it is stored as
=====================================  ==================================================================

Timestamps and durations have microseconds in Spark. Nanosecond values are read if they are whole
microseconds; otherwise they are an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import types as spark
from pyspark.sql.pandas.types import to_arrow_schema

from weir.errors import SchemaError
from weir.read.checks import check_columns

__all__ = ["SparkBatches", "arrow_schema", "check_schema", "selected", "spark_schema"]

_LARGEST_PRECISION = 38
_TIME_DIGITS = {"s": 0, "ms": 3, "us": 6, "ns": 9}
_HINT = "Leave it out with the option columns"

_NO_COLUMN: Mapping[str, str] = {
    "VariantType": "Write it as text, with to_json(...)",
    "GeometryType": "Write it as bytes, with ST_AsBinary(...)",
    "GeographyType": "Write it as bytes, with ST_AsBinary(...)",
    "YearMonthIntervalType": "Write it as a number of months",
    "CalendarIntervalType": "Write it as numbers, or as an INTERVAL DAY TO SECOND",
    "CharType": "Write STRING",
    "VarcharType": "Write STRING",
}
"""Spark's types that no column has, by the names of their classes, and what to do about each.

Spark hands some of them over as structs of their parts, and lengths of texts are Spark's own affair.
"""

_SIMPLE: tuple[tuple[pa.DataType, spark.DataType], ...] = (
    (pa.bool_(), spark.BooleanType()),
    (pa.int8(), spark.ByteType()),
    (pa.int16(), spark.ShortType()),
    (pa.int32(), spark.IntegerType()),
    (pa.int64(), spark.LongType()),
    (pa.uint8(), spark.ShortType()),
    (pa.uint16(), spark.IntegerType()),
    (pa.uint32(), spark.LongType()),
    (pa.uint64(), spark.DecimalType(20, 0)),
    (pa.float16(), spark.FloatType()),
    (pa.float32(), spark.FloatType()),
    (pa.float64(), spark.DoubleType()),
    (pa.string(), spark.StringType()),
    (pa.large_string(), spark.StringType()),
    (pa.string_view(), spark.StringType()),
    (pa.binary(), spark.BinaryType()),
    (pa.large_binary(), spark.BinaryType()),
    (pa.binary_view(), spark.BinaryType()),
    (pa.date32(), spark.DateType()),
    (pa.date64(), spark.DateType()),
    (pa.null(), spark.NullType()),
)
_BY_ARROW_TYPE = dict(_SIMPLE)


def spark_schema(schema: pa.Schema) -> spark.StructType:
    """Return the columns of a table as Spark's types.

    Raises
    ------
    SchemaError
        Naming a column without a matching Spark type.

    Examples
    --------
    >>> vector = pa.list_(pa.float32(), 2)
    >>> columns = pa.schema([("id", pa.uint64()), ("at", pa.timestamp("ms")), ("v", vector)])
    >>> spark_schema(columns).simpleString()
    'struct<id:decimal(20,0),at:timestamp_ntz,v:array<float>>'
    """
    return spark.StructType(
        [spark.StructField(one.name, _spark_type(one.type, one.name), one.nullable) for one in schema]
    )


def _spark_type(kind: pa.DataType, path: str) -> spark.DataType:
    """Return the Spark type that holds every value of an Arrow type."""
    types = pa.types
    simple: spark.DataType | None = _BY_ARROW_TYPE.get(kind)
    if simple is not None:
        return simple
    if isinstance(kind, pa.BaseExtensionType):
        return _spark_type(kind.storage_type, path)
    if types.is_dictionary(kind):
        return _spark_type(kind.value_type, path)
    if types.is_decimal(kind):
        precision, scale = kind.precision - min(kind.scale, 0), max(kind.scale, 0)
        if precision > _LARGEST_PRECISION or scale > precision:
            raise _refused(path, kind, f"its decimals have at most {_LARGEST_PRECISION} digits")
        return spark.DecimalType(precision, scale)
    if types.is_fixed_size_binary(kind):
        return spark.BinaryType()
    if types.is_timestamp(kind):
        return spark.TimestampNTZType() if kind.tz is None else spark.TimestampType()
    if types.is_time(kind):
        return spark.TimeType(_TIME_DIGITS[kind.unit])
    if types.is_duration(kind):
        return spark.DayTimeIntervalType()
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return spark.ArrayType(_spark_type(kind.value_type, f"{path}[]"), kind.value_field.nullable)
    if types.is_map(kind):
        return spark.MapType(
            _spark_type(kind.key_type, f"{path}.key"),
            _spark_type(kind.item_type, f"{path}.value"),
            kind.item_field.nullable,
        )
    if types.is_struct(kind):
        return spark.StructType(
            [
                spark.StructField(one.name, _spark_type(one.type, f"{path}.{one.name}"), one.nullable)
                for one in kind
            ]
        )
    raise _refused(path, kind, "it has no such type")


def arrow_schema(schema: spark.StructType) -> pa.Schema:
    """Return columns as Spark hands them over: instants in UTC, no unsigned numbers.

    Raises
    ------
    SchemaError
        Naming a column of a type that no table has.
    """
    for field in schema:
        for part in _parts(field.dataType):
            hint = _NO_COLUMN.get(type(part).__name__)
            if hint is not None:
                raise SchemaError(
                    f"column {field.name!r} is {field.dataType.simpleString()}, and a table has no such type",
                    where=field.name,
                    hint=hint,
                )
    try:
        return to_arrow_schema(schema, timezone="UTC")
    except PySparkException as error:
        raise SchemaError(f"Spark cannot hand over these columns: {error}", where="schema") from error


def _parts(kind: spark.DataType) -> Iterator[spark.DataType]:
    """Yield a type and the types inside it."""
    yield kind
    inside: list[spark.DataType] = []
    if isinstance(kind, spark.ArrayType):
        inside = [kind.elementType]
    elif isinstance(kind, spark.MapType):
        inside = [kind.keyType, kind.valueType]
    elif isinstance(kind, spark.StructType):
        inside = [field.dataType for field in kind]
    for one in inside:
        yield from _parts(one)


def _refused(path: str, kind: pa.DataType, reason: str) -> SchemaError:
    return SchemaError(f"Spark cannot read column {path!r} of type {kind}: {reason}", where=path, hint=_HINT)


def selected(schema: pa.Schema, names: Sequence[str]) -> pa.Schema:
    """Return some columns of a table, in the requested order.

    Raises
    ------
    SchemaError
        If there is no such column, or one is named twice.
    """
    return pa.schema([schema.field(name) for name in check_columns(schema, names)])


def check_schema(schema: spark.StructType, columns: pa.Schema) -> None:
    """Refuse columns that the table lacks or has with another type.

    Parameters
    ----------
    schema : StructType
        The columns Spark expects: those of the table when the query was written, or those passed to
        ``schema()``.
    columns : Schema
        The table's columns.

    Raises
    ------
    SchemaError
        Naming the column.
    """
    of_table = spark_schema(selected(columns, schema.names))
    for expected, found in zip(schema, of_table, strict=True):
        if expected.dataType != found.dataType or (found.nullable and not expected.nullable):
            raise SchemaError(
                f"column {found.name!r} is {_text(found)} in the table, and {_text(expected)} was expected",
                where=found.name,
                hint="Leave schema() out: the table knows its columns, and the option columns selects some",
            )


def _text(field: spark.StructField) -> str:
    return field.dataType.simpleString() + ("" if field.nullable else " not null")


class SparkBatches:
    """Converts record batches of a table to the form Spark expects for a schema.

    Columns with the same representation in Spark are passed through.

    Parameters
    ----------
    schema : StructType
        The columns that Spark expects, in order.

    Examples
    --------
    >>> batches = SparkBatches(spark_schema(pa.schema([("vector", pa.list_(pa.float16(), 2))])))
    >>> rows = pa.table({"vector": pa.array([[1, 2]], pa.list_(pa.float16(), 2))})
    >>> batches.convert(rows.to_batches()[0]).schema.field("vector").type
    ListType(list<element: float>)
    """

    def __init__(self, schema: spark.StructType) -> None:
        self._schema: pa.Schema = to_arrow_schema(schema, timezone="UTC")

    def convert(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return a batch with the columns that Spark expects, by name.

        Raises
        ------
        SchemaError
            If a value does not fit its type in Spark, naming the column.
        """
        columns = []
        for field in self._schema:
            column = batch.column(field.name)
            if column.type != field.type:
                try:
                    column = column.cast(field.type)
                except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                    raise SchemaError(
                        f"a value of column {field.name!r} does not fit into Spark's type: {error}",
                        where=field.name,
                        hint=_HINT,
                    ) from error
            columns.append(column)
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)
