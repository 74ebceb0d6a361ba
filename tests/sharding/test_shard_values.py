from __future__ import annotations

from decimal import Decimal
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest

from weir.errors import CorruptionError
from weir.format import arrow_scalar, shard_manifest
from weir.format.index_details import ShardFieldSpec, ShardSpec
from weir.format.shard_manifest import ShardFieldValue, ShardManifest
from weir.sharding.shard_values import ShardValue, ShardValues
from weir.sharding.type_names import type_name

COLUMNS = [
    pa.array([True, False, None]),
    *(pa.array([0, 1, None, 100], kind) for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64())),
    *(pa.array([0, 1, None, 100], kind) for kind in (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())),
    *(pa.array([0, -1.5, None, np.inf], kind) for kind in (pa.float32(), pa.float64())),
    pa.array(np.array([1.5, 0], np.float16)),
    *(pa.array(["", "é", None, "EU"], kind) for kind in (pa.string(), pa.large_string())),
    *(pa.array([b"", b"\xff", None], kind) for kind in (pa.binary(), pa.large_binary())),
    pa.array([b"abc", None], pa.binary(3)),
    pa.array([0, None, -1], pa.date32()),
    pa.array([0, None], pa.date64()),
    pa.array([0, None, 5], pa.time32("s")),
    pa.array([0, None, 5], pa.time64("ns")),
    pa.array([0, None, -1], pa.timestamp("ns")),
    pa.array([0, None, -1], pa.timestamp("us", "Europe/Berlin")),
    pa.array([0, None, -1], pa.duration("us")),
    pa.array([Decimal("1.50"), None, Decimal("-99.99")], pa.decimal128(10, 2)),
    pa.array([Decimal("1.50"), None], pa.decimal256(50, 2)),
]


def spec_of(*types: pa.DataType) -> ShardSpec:
    return ShardSpec(
        1,
        tuple(
            ShardFieldSpec(f"f{number}", (number,), "identity", None, type_name(kind))
            for number, kind in enumerate(types)
        ),
    )


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: str(column.type))
def test_values_of_every_type_are_read_back_from_a_manifest(column: pa.Array) -> None:
    for part in (column, column.slice(1)):
        for scalar, data in zip(part, arrow_scalar.encode(part), strict=True):
            values = ShardValues((ShardValue("f0", data, column.type),))
            manifest = ShardManifest(UUID(int=1), 1, shard_fields=values.to_manifest())
            stored = shard_manifest.decode(shard_manifest.encode(manifest), where="test")
            found = ShardValues.from_manifest(stored.shard_fields, spec_of(column.type))
            assert values.values[0].scalar.equals(scalar)
            if scalar.is_valid:
                assert found == values
                assert found.values[0].scalar.equals(scalar)
                assert found.to_text() == values.to_text()
            else:
                assert stored.shard_fields == ()
                assert found is None, "a null is not recorded, and not guessed"


@pytest.mark.parametrize(
    ("column", "data"),
    [
        (pa.array([3], pa.int32()), b"\x03\x00\x00\x00"),
        (pa.array([-2], pa.int16()), b"\xfe\xff"),
        (pa.array(["é"]), "é".encode()),
        (pa.array([True]), b"\x01"),
    ],
    ids=["int32", "int16", "utf8", "boolean"],
)
def test_values_are_little_endian_arrow_scalars(column: pa.Array, data: bytes) -> None:
    assert arrow_scalar.encode(column) == [data]


@pytest.mark.parametrize(("transform", "parameters"), [("unsharded", {}), ("bucket", {"num_buckets": "1"})])
def test_a_missing_value_is_known_where_there_is_only_one(transform: str, parameters: dict[str, str]) -> None:
    spec = ShardSpec(1, (ShardFieldSpec("bucket", (), transform, None, "int32", parameters),))
    found = ShardValues.from_manifest((), spec)
    assert found is not None
    assert found.to_text() == {"bucket": "0"}


def test_a_missing_value_is_not_guessed() -> None:
    bucketed = ShardSpec(1, (ShardFieldSpec("bucket", (0,), "bucket", None, "int32", {"num_buckets": "8"}),))
    assert ShardValues.from_manifest((), bucketed) is None
    two = spec_of(pa.int32(), pa.string())
    assert ShardValues.from_manifest((ShardFieldValue("f1", b"EU"),), two) is None
    assert ShardValues.from_manifest((ShardFieldValue("other", b"EU"),), two) is None


def test_a_spec_without_fields_has_values_without_fields() -> None:
    assert ShardValues.from_manifest((), ShardSpec(0, ())) == ShardValues(())


def test_a_type_from_the_future_is_not_guessed() -> None:
    spec = ShardSpec(1, (ShardFieldSpec("f0", (0,), "identity", None, "int9000"),))
    assert ShardValues.from_manifest((ShardFieldValue("f0", b"123"),), spec) is None


@pytest.mark.parametrize(
    ("data_type", "data"), [(pa.int32(), b"123"), (pa.bool_(), b""), (pa.string(), b"\xff")], ids=str
)
def test_broken_values_are_corruption(data_type: pa.DataType, data: bytes) -> None:
    with pytest.raises(CorruptionError, match="a shard value"):
        ShardValues.from_manifest((ShardFieldValue("f0", data),), spec_of(data_type))


def test_values_are_told_to_people() -> None:
    values = ShardValues(
        (
            ShardValue("region", b"EU", pa.string()),
            ShardValue("day", (19_723).to_bytes(4, "little"), pa.date32()),
            ShardValue("ts", (1).to_bytes(8, "little"), pa.timestamp("ns")),
            ShardValue("hash", b"\x01\xff", pa.binary()),
            ShardValue("missing", None, pa.int32()),
        )
    )
    text = "region=EU, day=2024-01-01, ts=1970-01-01 00:00:00.000000001, hash=01ff, missing=null"
    assert str(values) == text
