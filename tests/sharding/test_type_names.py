from __future__ import annotations

import lance
import pyarrow as pa
import pytest

from weir.errors import ShardingError
from weir.sharding.type_names import parse_type, type_name

TYPES = [
    *(pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64()),
    *(pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(), pa.float16(), pa.float32(), pa.float64()),
    *(pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.binary(16)),
    *(pa.date32(), pa.date64(), pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")),
    *(pa.timestamp("s"), pa.timestamp("ms", "UTC"), pa.timestamp("ns", "Europe/Berlin")),
    *(pa.timestamp("us", "+05:30"), pa.duration("us")),
    *(pa.decimal128(10, 2), pa.decimal128(38, -3), pa.decimal256(60, 5)),
]


@pytest.mark.parametrize("data_type", TYPES, ids=str)
def test_names_are_read_back(data_type: pa.DataType) -> None:
    assert parse_type(type_name(data_type)) == data_type


@pytest.mark.parametrize("data_type", [kind for kind in TYPES if not pa.types.is_floating(kind)], ids=str)
def test_names_are_those_the_library_gives_identity_fields(data_type: pa.DataType) -> None:
    dataset = lance.write_dataset(pa.schema([("c", data_type)]).empty_table(), "memory://")
    try:
        dataset.initialize_mem_wal(identity_column="c")
    except OSError:
        return
    details = dataset.mem_wal_index_details()
    assert details is not None
    assert details["sharding_specs"][0]["fields"][0]["result_type"] == type_name(data_type)


@pytest.mark.parametrize(("alias", "data_type"), [("string", pa.string()), ("double", pa.float64())])
def test_names_that_pyarrow_prints_are_understood(alias: str, data_type: pa.DataType) -> None:
    assert parse_type(alias) == data_type


def test_views_have_the_name_of_what_lance_stores() -> None:
    assert type_name(pa.string_view()) == "utf8"
    assert type_name(pa.binary_view()) == "binary"


@pytest.mark.parametrize(
    "data_type",
    [pa.list_(pa.int8()), pa.struct([("a", pa.int8())]), pa.dictionary(pa.int8(), pa.string()), pa.null()],
    ids=str,
)
def test_types_with_children_are_refused(data_type: pa.DataType) -> None:
    with pytest.raises(ShardingError, match="cannot take part in sharding"):
        type_name(data_type)


@pytest.mark.parametrize(
    "name",
    [
        *("", "integer", "timestamp", "timestamp:us", "timestamp:fortnight:-", "time32:us", "duration:"),
        *("decimal:128:10", "decimal:64:10:2", "decimal:128:99:2", "fixed_size_binary:x", "int32:3"),
    ],
)
def test_unknown_names_are_refused(name: str) -> None:
    with pytest.raises(ShardingError, match="name"):
        parse_type(name)
