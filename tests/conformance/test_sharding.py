"""Shard values equal those of ``lance.evaluate_sharding_spec``, over values of every type it takes.

``CONFORMANCE_VALUES=2000000`` (``make conformance``) draws so many values of each type; without it, some
thousands. Every draw has the extremes of its type, nulls, and for floats NaN, infinities and both zeros.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.sharding.oracles import library_values

import weir
from weir.format.index_details import ShardSpec
from weir.sharding.bound import bind
from weir.sharding.murmur3 import murmur3_multi
from weir.sharding.router import Router
from weir.sharding.shard_by import ShardBy, bucket, identity, unsharded
from weir.sharding.spec import build_spec
from weir.sharding.transforms import Bucket, MultiBucket

VALUES = int(os.environ.get("CONFORMANCE_VALUES", "20000"))
# What is drawn and hashed at once.
BATCH = 500_000

INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()]
FLOATS = [pa.float32(), pa.float64()]
TIMES = [
    *(pa.date32(), pa.time32("s"), pa.time32("ms"), pa.time64("us"), pa.time64("ns")),
    *(pa.timestamp(unit) for unit in ("s", "ms", "us", "ns")),
    *(pa.timestamp("us", zone) for zone in ("UTC", "Europe/Berlin")),
]
TEXTS = [pa.string(), pa.large_string()]
BUCKETED = [pa.bool_(), *INTEGERS, *FLOATS, *TIMES, *TEXTS]
IDENTITIES = [pa.bool_(), *INTEGERS, *TEXTS]


def draw(type: pa.DataType, count: int, random: np.random.Generator) -> pa.Array:
    """Return random values of a type, every seventh null, the awkward ones first."""
    if pa.types.is_boolean(type):
        values = pa.array(random.integers(0, 2, count).astype(bool))
    elif type in TEXTS:
        values = texts(count, random).cast(type)
    elif type in FLOATS:
        values = pa.array(floats(np.dtype(type.to_pandas_dtype()), count, random))
    elif pa.types.is_integer(type):
        values = pa.array(integers(np.dtype(type.to_pandas_dtype()), count, random))
    elif pa.types.is_time(type):
        per_day = 86_400 * {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[type.unit]
        stored = np.dtype(np.int32 if type.bit_width == 32 else np.int64)
        drawn = random.integers(0, per_day, count).astype(stored)
        drawn[:2] = [0, per_day - 1]
        values = pa.array(drawn).view(type)
    else:
        stored = np.dtype(np.int32 if type.bit_width == 32 else np.int64)
        values = pa.array(integers(stored, count, random)).view(type)
    nulls = np.arange(count) % 7 == 6
    return pc.if_else(pa.array(nulls), pa.scalar(None, type), values)


def integers(dtype: np.dtype[Any], count: int, random: np.random.Generator) -> npt.NDArray[Any]:
    limits = np.iinfo(dtype)
    drawn = random.integers(limits.min, limits.max, count, dtype, endpoint=True)
    # Half of them small, as keys are.
    drawn[::2] = random.integers(max(limits.min, -100), 101, len(drawn[::2]))
    edges = [limits.min, limits.min + 1, limits.max, limits.max - 1, limits.max // 2, 0]
    drawn[: len(edges)] = edges
    return drawn


def floats(dtype: np.dtype[Any], count: int, random: np.random.Generator) -> npt.NDArray[Any]:
    """Any bits at all: subnormal numbers and NaN of every payload and sign are among them."""
    drawn = random.integers(0, 256, count * dtype.itemsize, np.uint8).view(dtype).copy()
    limits = np.finfo(dtype)
    edges = [0.0, -0.0, np.nan, -np.nan, np.inf, -np.inf, limits.tiny, -limits.tiny, limits.max, limits.min]
    edges += [limits.smallest_subnormal, 1.0, -1.0, 0.1]
    drawn[: len(edges)] = np.array(edges, dtype)
    return drawn


def texts(count: int, random: np.random.Generator) -> pa.Array:
    """Texts of 0 to 40 bytes in one to four bytes per character."""
    alphabet = np.array(["\x00", "a", "Z", " ", "é", "ÿ", "日", "\U0001f30a"])
    lengths = random.integers(0, 12, count)
    ends = np.cumsum(lengths)
    characters = pa.array(alphabet)
    letters = characters.take(pa.array(random.integers(0, len(alphabet), int(ends[-1]))))
    lists = pa.ListArray.from_arrays(pa.array(np.concatenate([[0], ends]).astype(np.int32)), letters)
    return pc.binary_join(lists, "")


def agree(spec: ShardSpec, column: pa.Array) -> None:
    """Compare the values of a spec with one field over the column ``c``."""
    batch = pa.record_batch({"c": column})
    ours = bind(spec, batch.schema, {"c": 0})[0].evaluate([column], len(column))
    theirs = library_values(batch, spec).column(0)
    if not ours.equals(theirs):
        wrong = pc.index(pc.fill_null(pc.not_equal(ours, theirs), True), True).as_py()
        pytest.fail(f"{column.type} {column[wrong]!r}: {ours[wrong]!r} and {theirs[wrong]!r}")


def check(type: pa.DataType, rule: Callable[[], ShardBy]) -> None:
    spec = build_spec(rule(), pa.schema([("c", type)]), ["c"], {"c": 0})
    random = np.random.default_rng(BUCKETED.index(type))
    for start in range(0, VALUES, BATCH):
        agree(spec, draw(type, min(BATCH, VALUES - start), random))


@pytest.mark.covering
@pytest.mark.parametrize("buckets", [1, 7, 1024])
@pytest.mark.parametrize("type", BUCKETED, ids=str)
def test_buckets(type: pa.DataType, buckets: int) -> None:
    check(type, lambda: bucket("c", buckets))


@pytest.mark.parametrize("type", IDENTITIES, ids=str)
def test_identity(type: pa.DataType) -> None:
    check(type, lambda: identity("c"))


@pytest.mark.parametrize("type", [pa.int32(), pa.string()], ids=str)
def test_unsharded(type: pa.DataType) -> None:
    schema = pa.schema([("c", type)])
    spec = build_spec(unsharded(), schema, ["c"], {"c": 0})
    batch = pa.record_batch({"c": draw(type, min(BATCH, VALUES), np.random.default_rng(0))})
    (values,) = Router(spec, schema, {"c": 0}).partition(batch).values
    assert pc.unique(library_values(batch, spec).column(0)).to_pylist() == [0]
    assert values.to_text() == {"bucket": "0"}


@pytest.mark.parametrize(
    ("source", "promoted"),
    [
        *((pa.int8(), wide) for wide in (pa.int16(), pa.int32(), pa.int64())),
        *((pa.int16(), wide) for wide in (pa.int32(), pa.int64())),
        *((pa.int32(), wide) for wide in (pa.int64(),)),
        *((pa.uint8(), wide) for wide in (pa.uint16(), pa.uint32(), pa.uint64(), pa.int16(), pa.int64())),
        *((pa.uint16(), wide) for wide in (pa.uint32(), pa.uint64(), pa.int32())),
        *((pa.uint32(), wide) for wide in (pa.uint64(), pa.int64())),
        (pa.float32(), pa.float64()),
        (pa.string(), pa.large_string()),
        (pa.timestamp("s"), pa.timestamp("us")),
    ],
    ids=str,
)
def test_promoted_values_stay_where_the_library_put_them(source: pa.DataType, promoted: pa.DataType) -> None:
    """The library itself moves them: for it, values of another type are other values."""
    spec = build_spec(bucket("c", 64), pa.schema([("c", source)]), ["c"], {"c": 0})
    random = np.random.default_rng(1)
    for start in range(0, VALUES, BATCH):
        before = draw(source, min(BATCH, VALUES - start), random)
        if pa.types.is_timestamp(source):
            # Seconds of which microseconds fit in 64 bits.
            before = pc.divide(before.cast(pa.int64()), 10**7).view(source)
        after = before.cast(promoted)
        theirs = library_values(pa.record_batch({"c": before}), spec).column(0)
        ours = bind(spec, pa.schema([("c", promoted)]), {"c": 0})[0].evaluate([after], len(after))
        assert ours.equals(theirs)
    if pa.types.is_integer(source) and source.bit_width < promoted.bit_width == 64:
        moved = library_values(pa.record_batch({"c": after}), spec).column(0)
        assert not moved.equals(theirs)


REJECTED = {
    "truncate": (weir.truncate("name", 2), "truncate"),
    "year": (weir.year("at", immutable=True), "year"),
    "multi_bucket": (weir.multi_bucket(["id", "name"], 4), "multi_bucket"),
    "expression": (weir.expression("col0 % 7", ["id"], result_type="int64"), "expression"),
    "identity of binary": (weir.identity("data", immutable=True), "identity"),
    "bucket of decimal": (weir.bucket("price", 4, immutable=True), "hash"),
}


@pytest.mark.parametrize(("rule", "named"), REJECTED.values(), ids=REJECTED.keys())
def test_what_the_library_cannot_route_is_said_at_creation_and_in_the_status(
    rule: ShardBy, named: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field("name", pa.string(), nullable=False),
            *(("at", pa.date32()), ("data", pa.binary()), ("price", pa.decimal128(9, 2))),
        ]
    )
    with caplog.at_level(logging.WARNING, "weir"):
        table = weir.create(tmp_path / "t", schema, primary_key=["id", "name"], shard_by=rule)
    (said,) = caplog.records
    fields = said.event_fields  # type: ignore[attr-defined]
    assert (fields["event"], fields["where"]) == ("table.library_cannot_route", table.uri)
    status = table.status()
    assert status.library_writable is status.to_dict()["library_writable"] is False
    assert named in status.library_note == fields["reason"]
    # The oracle: the library does not evaluate such a rule, or makes no table with it.
    with pytest.raises((OSError, ValueError)):
        ask_the_library(rule, schema, table.internals.base.details.shard_specs[0])


def ask_the_library(rule: ShardBy, schema: pa.Schema, spec: ShardSpec) -> None:
    dataset = lance.write_dataset(schema.empty_table(), "memory://")
    if rule.transform.name == "identity":
        dataset.initialize_mem_wal(identity_column=rule.columns[0])
    elif rule.transform.name == "bucket":
        dataset.initialize_mem_wal(bucket_column=rule.columns[0], num_buckets=4)
    else:
        library_values(pa.record_batch([pa.nulls(1, one.type) for one in schema], names=schema.names), spec)


def test_what_the_library_can_route_needs_no_word(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "weir"):
        for number, rule in enumerate([None, weir.bucket("id", 4), weir.identity("id"), weir.unsharded()]):
            schema = pa.schema([("id", pa.int64())])
            table = weir.create(tmp_path / str(number), schema, primary_key="id", shard_by=rule)
            assert table.status().library_writable
            assert table.status().library_note == ""
    assert caplog.records == []


def test_multi_bucket_masks_the_sign_as_bucket_does() -> None:
    """The written spec takes the absolute value, which is another one for every negative hash."""
    one, two = pa.array([1], pa.int64()), pa.array([2], pa.int32())
    hashed, _ = murmur3_multi([one, two])
    assert int(hashed.view(np.int32)[0]) < 0
    evaluated = MultiBucket(1024).evaluate([one, two], [one.type, two.type])
    assert evaluated.to_pylist() == [212]
    assert abs(int(hashed.view(np.int32)[0])) % 1024 == 812
    for column in (one, two):
        alone = MultiBucket(1024).evaluate([column], [column.type])
        assert alone.equals(Bucket(1024).evaluate([column], [column.type]))
