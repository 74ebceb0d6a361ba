"""Every type that a table may have, as Spark sees it: what Spark compares with, without a session."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import types as spark
from pyspark.sql.pandas.types import to_arrow_schema

from weir.errors import SchemaError
from weir.spark.types import SparkBatches, arrow_schema, spark_schema

SECOND = dt.datetime(2020, 3, 29, 2, 30)
INSTANT = dt.datetime(2020, 3, 29, 2, 30, 0, 123456)
CASES: list[tuple[pa.DataType, spark.DataType, list[Any], list[Any]]] = [
    (pa.bool_(), spark.BooleanType(), [True, None], [True, None]),
    (pa.int8(), spark.ByteType(), [-128, None], [-128, None]),
    (pa.int16(), spark.ShortType(), [-(2**15)], [-(2**15)]),
    (pa.int32(), spark.IntegerType(), [-(2**31)], [-(2**31)]),
    (pa.int64(), spark.LongType(), [-(2**63)], [-(2**63)]),
    (pa.uint8(), spark.ShortType(), [255], [255]),
    (pa.uint16(), spark.IntegerType(), [2**16 - 1], [2**16 - 1]),
    (pa.uint32(), spark.LongType(), [2**32 - 1], [2**32 - 1]),
    (pa.uint64(), spark.DecimalType(20, 0), [2**64 - 1, None], [Decimal(2**64 - 1), None]),
    (pa.float16(), spark.FloatType(), [np.float16(0.1)], [float(np.float16(0.1))]),
    (pa.float32(), spark.FloatType(), [1.5], [1.5]),
    (pa.float64(), spark.DoubleType(), [0.1, float("inf")], [0.1, float("inf")]),
    (pa.decimal128(38, 4), spark.DecimalType(38, 4), [Decimal("1.5")], [Decimal("1.5000")]),
    (pa.decimal128(5, -2), spark.DecimalType(7, 0), [Decimal("1E2")], [Decimal(100)]),
    (pa.decimal256(30, 2), spark.DecimalType(30, 2), [Decimal("2.25")], [Decimal("2.25")]),
    (pa.string(), spark.StringType(), ["ä", None], ["ä", None]),
    (pa.large_string(), spark.StringType(), ["ä", None], ["ä", None]),
    (pa.binary(), spark.BinaryType(), [b"\0"], [b"\0"]),
    (pa.large_binary(), spark.BinaryType(), [b"\0"], [b"\0"]),
    (pa.binary(2), spark.BinaryType(), [b"ab", None], [b"ab", None]),
    (pa.date32(), spark.DateType(), [dt.date(1, 1, 1)], [dt.date(1, 1, 1)]),
    (pa.date64(), spark.DateType(), [dt.date(2020, 1, 1)], [dt.date(2020, 1, 1)]),
    (pa.timestamp("s"), spark.TimestampNTZType(), [SECOND], [SECOND]),
    (pa.timestamp("us"), spark.TimestampNTZType(), [INSTANT], [INSTANT]),
    (pa.timestamp("ns"), spark.TimestampNTZType(), [INSTANT], [INSTANT]),
    (
        pa.timestamp("ms", "Europe/Berlin"),
        spark.TimestampType(),
        [dt.datetime(2020, 1, 1, tzinfo=dt.UTC)],
        [dt.datetime(2020, 1, 1, tzinfo=dt.UTC)],
    ),
    (pa.time32("s"), spark.TimeType(0), [dt.time(1, 2, 3)], [dt.time(1, 2, 3)]),
    (pa.time64("us"), spark.TimeType(6), [dt.time(1, 2, 3, 4)], [dt.time(1, 2, 3, 4)]),
    (pa.duration("ms"), spark.DayTimeIntervalType(), [dt.timedelta(days=2)], [dt.timedelta(days=2)]),
    (pa.null(), spark.NullType(), [None], [None]),
    (pa.dictionary(pa.int32(), pa.large_string()), spark.StringType(), ["a", None], ["a", None]),
    (
        pa.list_(pa.float32(), 2),
        spark.ArrayType(spark.FloatType()),
        [[1.0, 2.0], None, [None, 3.0]],
        [[1.0, 2.0], None, [None, 3.0]],
    ),
    (
        pa.large_list(pa.dictionary(pa.int32(), pa.string())),
        spark.ArrayType(spark.StringType()),
        [["a"], []],
        [["a"], []],
    ),
    (
        pa.list_(pa.field("item", pa.uint64(), nullable=False)),
        spark.ArrayType(spark.DecimalType(20, 0), containsNull=False),
        [[2**63], None],
        [[Decimal(2**63)], None],
    ),
    (
        pa.map_(pa.large_string(), pa.uint8()),
        spark.MapType(spark.StringType(), spark.ShortType()),
        [[("a", 1)], None],
        [[("a", 1)], None],
    ),
    (
        pa.struct([pa.field("a", pa.uint8(), nullable=False), ("b", pa.list_(pa.float16(), 1))]),
        spark.StructType(
            [
                spark.StructField("a", spark.ShortType(), nullable=False),
                spark.StructField("b", spark.ArrayType(spark.FloatType())),
            ]
        ),
        [{"a": 1, "b": [0.5]}, None],
        [{"a": 1, "b": [0.5]}, None],
    ),
    (pa.uuid(), spark.BinaryType(), [b"0123456789abcdef"], [b"0123456789abcdef"]),
]


@pytest.mark.parametrize(("kind", "expected", "values", "read"), CASES, ids=[str(case[0]) for case in CASES])
def test_type_and_values(
    kind: pa.DataType, expected: spark.DataType, values: list[Any], read: list[Any]
) -> None:
    storage = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
    array = pa.array(values, storage)
    if storage is not kind:
        array = pa.ExtensionArray.from_storage(kind, array)
    schema = pa.schema([("x", kind), pa.field("id", pa.int64(), nullable=False)])
    batch = pa.record_batch([array, pa.array(range(len(values)))], schema=schema)
    wanted = spark_schema(schema)
    assert wanted["x"].dataType == expected
    assert not wanted["id"].nullable
    # Sliced, as batches often are, and with the columns in another order.
    whole = SparkBatches(wanted).convert(batch.select(["id", "x"]))
    assert whole.schema.equals(to_arrow_schema(wanted, timezone="UTC"))
    assert whole.column("x").to_pylist() == read
    assert SparkBatches(wanted).convert(batch.slice(1)).column("x").to_pylist() == read[1:]


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        (pa.decimal256(40, 2), "x"),
        (pa.decimal128(2, 5), "x"),
        (pa.month_day_nano_interval(), "x"),
        (pa.list_(pa.struct([("deep", pa.decimal128(38, -2))])), "x[].deep"),
    ],
)
def test_what_spark_cannot_express_names_the_column(kind: pa.DataType, path: str) -> None:
    with pytest.raises(SchemaError, match="Leave it out with the option columns") as raised:
        spark_schema(pa.schema([("id", pa.int64()), ("x", kind)]))
    assert raised.value.where == path


@pytest.mark.parametrize(
    ("kind", "hint"),
    [
        (spark.VariantType(), "to_json"),
        (spark.ArrayType(spark.MapType(spark.StringType(), spark.VariantType())), "to_json"),
        (spark.StructType([spark.StructField("deep", spark.YearMonthIntervalType())]), "number of months"),
        (spark.CalendarIntervalType(), "DAY TO SECOND"),
        (spark.VarcharType(10), "STRING"),
    ],
)
def test_what_no_table_can_hold_names_the_column(kind: spark.DataType, hint: str) -> None:
    given = spark.StructType([spark.StructField("id", spark.LongType()), spark.StructField("x", kind)])
    with pytest.raises(SchemaError, match=f"column 'x' is .*{hint}") as raised:
        arrow_schema(given)
    assert raised.value.where == "x"


@pytest.mark.parametrize("kind", [pa.timestamp("ns"), pa.timestamp("ns", "UTC"), pa.duration("ns")])
def test_a_value_that_spark_cannot_hold_is_an_error(kind: pa.DataType) -> None:
    schema = pa.schema([("x", kind)])
    convert = SparkBatches(spark_schema(schema)).convert
    assert convert(pa.record_batch([pa.array([1000], kind)], schema=schema)).num_rows == 1
    with pytest.raises(SchemaError, match="column 'x'"):
        convert(pa.record_batch([pa.array([1000, 1001], kind)], schema=schema))


def test_a_vector_is_not_copied() -> None:
    kind = pa.list_(pa.float32(), 4)
    schema = pa.schema([("v", kind)])
    batch = pa.record_batch([pa.array(np.zeros((1000, 4), "f4").tolist(), kind)], schema=schema)
    converted = SparkBatches(spark_schema(schema)).convert(batch)
    assert converted.column(0).values.buffers()[1].address == batch.column(0).values.buffers()[1].address
