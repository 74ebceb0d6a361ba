"""The ids of shards: Weir's own, and those that LanceDB derives from the values."""

from __future__ import annotations

import os
import subprocess
import sys
from uuid import UUID

import pyarrow as pa
import pytest

from weir.format.index_details import IndexDetails, ShardSpec
from weir.sharding.router import Router
from weir.sharding.shard_by import ShardBy, bucket, identity, truncate, unsharded
from weir.sharding.shard_ids import RULE, VALUES, ShardIds, own_shard_id
from weir.sharding.shard_values import ShardValue, ShardValues
from weir.sharding.spec import build_spec


def values_of(*data: bytes | None) -> ShardValues:
    return ShardValues(tuple(ShardValue(f"f{at}", one, pa.binary()) for at, one in enumerate(data)))


def test_shard_ids_differ_wherever_the_shards_do() -> None:
    ids = {
        own_shard_id("t", 1, values_of()),
        own_shard_id("t", 1, values_of(b"")),
        own_shard_id("t", 1, values_of(None)),
        own_shard_id("t", 1, values_of(b"null")),
        own_shard_id("t", 1, values_of(b"a", b"b")),
        own_shard_id("t", 1, values_of(b"ab", b"")),
        own_shard_id("t", 1, values_of(b"", b"ab")),
        own_shard_id("t", 2, values_of(b"")),
        own_shard_id("u", 1, values_of(b"")),
        own_shard_id("t1", 1, values_of()),
        own_shard_id("t", 11, values_of()),
    }
    assert len(ids) == 11
    for one in ids:
        assert one.version == 4
        assert one.variant == "specified in RFC 4122"


def test_shard_ids_do_not_change_from_release_to_release() -> None:
    assert own_shard_id("t", 1, values_of(b"EU")) == UUID("870de0aa-343d-4160-9fb7-a2c6678c58fc")


def test_shard_ids_are_the_same_in_every_process() -> None:
    program = (
        "import pyarrow as pa\n"
        "from weir.sharding.shard_ids import own_shard_id\n"
        "from weir.sharding.shard_values import ShardValue, ShardValues\n"
        "print(own_shard_id('t', 1, ShardValues((ShardValue('f0', b'EU', pa.binary()),))))"
    )
    for seed in ("1", "2"):
        run = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        assert UUID(run.stdout.strip()) == own_shard_id("t", 1, values_of(b"EU"))


def first_shard(
    shard_by: ShardBy, kind: pa.DataType, value: object, *, recorded: bool = True, spec_id: int = 1
) -> UUID:
    """Return the id of the shard of one value in a table of Weir's."""
    schema = pa.schema([("id", kind)])
    spec = build_spec(shard_by, schema, ["id"], {"id": 0}, spec_id=spec_id)
    router = Router(spec, schema, {"id": 0})
    (values,) = router.partition(pa.table([pa.array([value], kind)], ["id"])).values
    return ids_of(spec, recorded=recorded).of_values(values)


def ids_of(spec: ShardSpec, *, recorded: bool) -> ShardIds:
    details = IndexDetails(writer_config_defaults={RULE: VALUES} if recorded else {})
    return ShardIds.of(details, spec, "t", made_by_weir=True)


# Written by LanceDB 0.40, one table for each.
MADE_BY_LANCEDB = [
    (unsharded(), pa.int64(), 1, "aa48498d-ac91-59e2-8452-69f46010ace2"),
    (bucket("id", 8), pa.int64(), 1, "cf03bea8-d856-5262-8086-6db02af640c1"),
    (bucket("id", 4), pa.int64(), None, "4a388480-a25b-59a8-b058-24217f980256"),
    (identity("id"), pa.int64(), 5, "67754d1c-50df-52e2-adfd-f6a3788969b0"),
    (identity("id"), pa.int64(), -5, "e219bdf3-0e08-5bf2-8706-57fddaf1bb95"),
    (identity("id"), pa.int32(), 5, "aa69e104-0e71-55b1-b002-98e17d9cb14e"),
    (identity("id"), pa.int8(), 5, "9cb11f13-77df-5203-abf8-37000254fd0f"),
    (identity("id"), pa.uint16(), 5, "afeef800-c87b-52de-9336-df1639759760"),
    (identity("id"), pa.uint64(), 5, "67754d1c-50df-52e2-adfd-f6a3788969b0"),
    (identity("id"), pa.string(), "ä", "10759821-dc82-51b7-9db9-a7e603503442"),
    (identity("id"), pa.large_string(), "ab", "539fc639-3509-5ac5-8e7e-e97906d101ee"),
    (identity("id"), pa.string(), "", "3faaecb2-2ed3-5f84-b276-f84487228724"),
    (identity("id"), pa.bool_(), True, "a2c19f99-f09f-59d2-8990-f72d42b1e6c4"),
    (identity("id"), pa.bool_(), False, "4a0dc4f0-c058-53f9-a779-198482dda67a"),
]


@pytest.mark.parametrize(("shard_by", "kind", "value", "expected"), MADE_BY_LANCEDB, ids=str)
def test_shards_of_a_new_table_have_the_ids_that_lancedb_gives_them(
    shard_by: ShardBy, kind: pa.DataType, value: object, expected: str
) -> None:
    assert first_shard(shard_by, kind, value) == UUID(expected)


@pytest.mark.parametrize(
    ("shard_by", "kind", "value", "options"),
    [
        pytest.param(bucket("id", 8), pa.int64(), 1, {"recorded": False}, id="a table that was there before"),
        pytest.param(bucket("id", 8), pa.int64(), 1, {"spec_id": 2}, id="a later spec"),
        pytest.param(truncate("id", 8), pa.int64(), 1, {}, id="a rule LanceDB does not have"),
        pytest.param(identity("id"), pa.date32(), 1, {}, id="a type LanceDB does not take"),
        pytest.param(identity("id"), pa.int64(), None, {}, id="a value LanceDB refuses"),
    ],
)
def test_other_shards_have_ids_of_the_table(
    shard_by: ShardBy, kind: pa.DataType, value: object, options: dict[str, object]
) -> None:
    assert first_shard(shard_by, kind, value, **options).version == 4  # type: ignore[arg-type]


def test_a_table_that_the_library_has_set_up_has_the_ids_of_lancedb() -> None:
    spec = build_spec(bucket("id", 8), pa.schema([("id", pa.int64())]), ["id"], {"id": 0})
    values = ShardValues((ShardValue("bucket", bytes([4, 0, 0, 0]), pa.int32()),))
    ids = ShardIds.of(IndexDetails(), spec, "/somewhere", made_by_weir=False)
    assert ids.of_values(values) == UUID("cf03bea8-d856-5262-8086-6db02af640c1")
