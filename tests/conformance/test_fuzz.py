"""Damaged and random bytes for every decoder: an error with a name, or a value; never more.

Never another exception, never a crash of the process, and never memory beyond a few times the input. What
carries a checksum is also damaged before the checksum is made, so that the code behind it is reached.
"""

from __future__ import annotations

import base64
import contextlib
import tempfile
import tracemalloc
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
import xxhash
from hypothesis import given, settings
from hypothesis import strategies as st
from lance.file import LanceFileReader

import weir
from weir.engine.context import default_context
from weir.errors import CorruptionError, InputError, WeirError
from weir.format import (
    checked_json,
    feed_consumer,
    garbage_marks,
    generation_catalog,
    index_details,
    layout,
    lease,
    shard_manifest,
    snapshot_pin,
    table_manifest,
    vector_index,
    version_hint,
    wal_entry,
)
from weir.format.bloom_filter import BloomFilter
from weir.format.feed_consumer import FeedConsumer
from weir.format.fst import Fst
from weir.format.garbage_marks import Marks, ShardMarks, Step
from weir.format.generation_catalog import ColumnSummary, GenerationCatalog
from weir.format.index_details import IndexCatchup, IndexDetails, MergedGeneration, ShardFieldSpec, ShardSpec
from weir.format.lease import Lease, LeaseOwner
from weir.format.proto import vector_index_pb2
from weir.format.resolution import resolve
from weir.format.shard_manifest import FlushedGeneration, ShardFieldValue, ShardManifest
from weir.format.snapshot_pin import SnapshotPin
from weir.format.snapshot_token import ShardCut, SnapshotToken
from weir.format.wal_entry import wal_schema
from weir.format.wal_header import WalEntryHeader

GOLDEN = Path(__file__).parents[1] / "format/golden"
WHERE = "some/object"
SHARD = uuid.UUID("11111111-2222-4333-8444-555555555555")
NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)

# What decoding may take besides a multiple of the input: modules' caches, the interpreter's own.
SLACK = 256 * 1024
TIMES = 16

Decode = Callable[[bytes], object]


@contextmanager
def little_memory(size: int) -> Iterator[None]:
    """Fail if more than a few times ``size`` was allocated at once, by Python or by Arrow."""
    pool = pa.default_memory_pool()
    peak, held = pool.max_memory(), pool.bytes_allocated()
    tracemalloc.start()
    try:
        yield
        _, python = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    limit = SLACK + TIMES * size
    assert python <= limit
    assert pool.max_memory() <= max(peak, held + limit)


def must_be_named(decode: Decode, data: bytes) -> None:
    """Decode; corruption has to name the object."""
    with little_memory(len(data)):
        try:
            decode(data)
        except CorruptionError as error:
            assert error.where == WHERE
        except WeirError as error:
            assert str(error)


# --- What is damaged --------------------------------------------------------------------------------


ROW_SCHEMA = wal_schema(
    pa.schema(
        [
            pa.field("id", pa.string(), nullable=False),
            *(("v", pa.list_(pa.float32(), 3)), ("tags", pa.list_(pa.string())), ("flag", pa.bool_())),
            ("at", pa.timestamp("us", "Europe/Berlin")),
            ("place", pa.struct([("x", pa.decimal128(9, 2)), ("marks", pa.large_list(pa.int16()))])),
            ("kind", pa.dictionary(pa.int32(), pa.string())),
        ]
    )
)


def library_entry() -> bytes:
    """An entry as the library writes them, without checksum, with columns of every layout."""
    values = {"v": [1, 2, 3], "tags": ["x", None], "flag": True, "at": NOW, "kind": "k"}
    rows = [
        {"id": "a", **values, "_tombstone": False},
        {"id": "b", "place": {"x": None, "marks": [1]}, "_tombstone": True},
    ]
    plain = ROW_SCHEMA.with_metadata({"writer_epoch": "3", "generation": "2"})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, plain) as writer:
        writer.write_batch(pa.RecordBatch.from_pylist(rows, plain))
    return bytes(sink.getvalue().to_pybytes())


def own_entry() -> bytes:
    schema = wal_schema(pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())]))
    rows = [{"id": number, "name": "n" * number, "_tombstone": False} for number in range(5)]
    header = WalEntryHeader(3, 2, wal_entry.new_write_id())
    return b"".join(wal_entry.encode(header, schema, [pa.RecordBatch.from_pylist(rows, schema)]))


def use_entry(data: bytes) -> None:
    """Decode an entry and look at every value, as whoever reads it does: as rows of the table."""
    entry = wal_entry.decode(data, where=WHERE)
    columns = resolve(entry.schema, ROW_SCHEMA)
    for batch in entry.batches:
        columns.apply(batch, where=WHERE).to_pylist()


def golden(name: str) -> bytes:
    return (GOLDEN / name).read_bytes()


MANIFEST = ShardManifest(
    SHARD,
    9,
    7,
    41,
    42,
    4,
    (FlushedGeneration(3, "a1b2c3d4_gen_3", 1234, 56, 78), FlushedGeneration(4, "00000000_gen_4")),
    2,
    (ShardFieldValue("bucket", b"\x05\x00\x00\x00"),),
    write_id=bytes(range(16)),
)
DETAILS = IndexDetails(
    snapshot_ts_millis=1,
    num_shards=2,
    inline_snapshots=b"snapshots",
    shard_specs=(
        ShardSpec(1, (ShardFieldSpec("b", (0, 1), "bucket", None, "int32", {"num_buckets": "8"}),)),
    ),
    maintained_indexes=("a", "b"),
    merged_generations=(MergedGeneration(SHARD, 3),),
    index_catchup=(IndexCatchup("a", (MergedGeneration(SHARD, 3),)),),
    writer_config_defaults={"a": "b"},
)
TOKEN = SnapshotToken("3f2a", 7, (ShardCut(SHARD, 2, 1, 4, 9, b"6789"),), "0" * 32)
LEASE = Lease(
    SHARD, 3, LeaseOwner("host", 1, 2, "system", "0" * 32), NOW, NOW, NOW, 1.5, 300.0, False, "0" * 32
)
MARKS = Marks({SHARD: ShardMarks((Step(7, NOW),), (Step(2, NOW),), {"a1b2c3d4_gen_3": NOW})}, "0" * 32)
CONSUMER = FeedConsumer("billing", TOKEN, True, timedelta(days=7), 10, NOW, NOW, "0" * 32)
PIN = SnapshotPin(TOKEN, NOW, NOW)
CATALOG = GenerationCatalog(
    5,
    1,
    {
        "id": ColumnSummary(("BTREE",), 0, pa.scalar(1), pa.scalar(9)),
        "name": ColumnSummary((), 1, pa.scalar("a"), pa.scalar("z")),
        "at": ColumnSummary((), 1, *(pa.scalar(n, pa.timestamp("us", "UTC")) for n in (5, 6))),
    },
    {"data/1.lance": 7},
    "_mem_wal/11111111-2222-4333-8444-555555555555/a1b2c3d4_gen_3",
)


def as_text(parse: Callable[[str], object]) -> Decode:
    return lambda data: parse(data.decode("latin-1"))


JSON_DECODERS: dict[str, tuple[Decode, bytes]] = {
    "lease": (lambda data: lease.decode(data, where=WHERE), lease.encode(LEASE)),
    "garbage marks": (lambda data: garbage_marks.decode(data, where=WHERE), garbage_marks.encode(MARKS)),
    "consumer": (lambda data: feed_consumer.decode(data, where=WHERE), feed_consumer.encode(CONSUMER)),
    "pin": (lambda data: snapshot_pin.decode(data, where=WHERE), snapshot_pin.encode(PIN)),
    "catalog": (
        lambda data: generation_catalog.decode(data, where=WHERE),
        generation_catalog.encode(CATALOG),
    ),
}


def look_words_up(data: bytes) -> None:
    with contextlib.suppress(ValueError):  # of another version, which is no error
        found = Fst(data, where=WHERE)
        for word in (b"", b"a", b"ab", b"abc", b"zebra", b"\xff"):
            found.get(word)


def transducer() -> bytes:
    """Return the words ``a``, ``ab`` and ``zebra`` as Lance stores them."""
    with tempfile.TemporaryDirectory() as directory:
        dataset = lance.write_dataset(pa.table({"text": ["a ab zebra"]}), directory)
        dataset.create_scalar_index("text", "INVERTED", stem=False, remove_stop_words=False)
        (path,) = Path(directory).glob("_indices/*/part_0_tokens.lance")
        stored: bytes = LanceFileReader(str(path)).read_all().to_table().column("_token_fst_bytes")[0].as_py()
    return stored


TENSOR = vector_index_pb2.Tensor(
    data_type=vector_index_pb2.Tensor.FLOAT32, shape=[2, 3], data=bytes(24)
).SerializeToString()
PARTITIONS = vector_index_pb2.Partitions(lengths=[1, 2, 2**31]).SerializeToString()

DECODERS: dict[str, tuple[Decode, bytes]] = {
    **JSON_DECODERS,
    "log entry of the library": (use_entry, library_entry()),
    "small log entry of the library": (use_entry, golden("library/wal_entry.arrow")),
    "fence of the library": (use_entry, golden("library/wal_fence.arrow")),
    "log entry of Weir": (use_entry, own_entry()),
    "header of a log entry": (lambda data: wal_entry.decode_header(data, where=WHERE), library_entry()),
    "manifest of the library": (
        lambda data: shard_manifest.decode(data, where=WHERE),
        golden("library/shard_manifest.binpb"),
    ),
    "manifest of Weir": (
        lambda data: shard_manifest.decode(data, where=WHERE),
        shard_manifest.encode(MANIFEST),
    ),
    "index details": (lambda data: index_details.decode(data, where=WHERE), index_details.encode(DETAILS)),
    "table manifest": (
        lambda data: table_manifest.decode_index_section(data, where=WHERE),
        golden("library/table.manifest"),
    ),
    "bloom filter": (
        lambda data: BloomFilter.from_bytes(data, where=WHERE).contains(np.arange(5, dtype=np.uint64)),
        bytes(range(256)),
    ),
    "words of a full-text index": (look_words_up, transducer()),
    "tensor": (lambda data: vector_index.decode_tensor(data, where=WHERE), TENSOR),
    "partitions": (lambda data: vector_index.decode_partition_sizes(data, where=WHERE), PARTITIONS),
    "version hint": (version_hint.decode, version_hint.encode(version_hint.VersionHint(5, bytes(16)))),
    "token": (as_text(SnapshotToken.parse), str(TOKEN).encode()),
    "name of a log entry": (
        lambda data: layout.parse_wal_name(data.decode("latin-1")),
        b"1" * 64 + b".arrow",
    ),
    "name of a manifest": (
        lambda data: layout.parse_manifest_name(data.decode("latin-1")),
        b"0" * 64 + b".binpb",
    ),
    "name of a generation": (
        lambda data: layout.parse_generation_name(data.decode("latin-1")),
        b"a1b2c3d4_gen_7",
    ),
}

# Lengths and offsets that go beyond anything, where a number of four or of eight bytes may stand.
HUGE = [
    *(value.to_bytes(4, "little") for value in (0, 1, 0x7F, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x40000000)),
    *(value.to_bytes(8, "little") for value in (0, 2**31, 2**40, 2**62, 2**63 - 1, 2**63, 2**64 - 1)),
    b"\xff" * 9 + b"\x01",
]


@st.composite
def damaged(draw: st.DrawFn, valid: bytes) -> bytes:
    """Valid bytes with some damage: bits flipped, numbers replaced, pieces cut out, doubled or added."""
    data = bytearray(valid)
    for _ in range(draw(st.integers(1, 3))):
        if not data:
            break
        at = draw(st.integers(0, len(data) - 1))
        match draw(st.sampled_from(["flip", "number", "cut", "remove", "repeat", "insert"])):
            case "flip":
                data[at] ^= 1 << draw(st.integers(0, 7))
            case "number":
                number = draw(st.sampled_from(HUGE))
                at = at // 4 * 4 if draw(st.booleans()) else at
                data[at : at + len(number)] = number
            case "cut":
                del data[at:]
            case "remove":
                del data[at : at + draw(st.integers(1, 40))]
            case "repeat":
                data[at:at] = data[at : at + draw(st.integers(1, 40))]
            case "insert":
                data[at:at] = draw(st.binary(min_size=1, max_size=8))
    return bytes(data)


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", DECODERS)
def test_damaged_bytes(name: str) -> None:
    decode, valid = DECODERS[name]
    must_be_named(decode, valid)

    @settings(max_examples=settings.default.max_examples)  # type: ignore[union-attr]
    @given(damaged(valid))
    def check(data: bytes) -> None:
        must_be_named(decode, data)

    check()


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", DECODERS)
def test_every_cut_and_every_huge_number(name: str) -> None:
    decode, valid = DECODERS[name]
    step = max(1, len(valid) // 150)
    for end in range(0, len(valid), step):
        must_be_named(decode, valid[:end])
    for at in range(0, len(valid), 4 * max(1, step // 2)):
        for number in HUGE[3:6] + HUGE[10:12]:
            must_be_named(decode, valid[:at] + number + valid[at + len(number) :])


@pytest.mark.one_in(2)
@pytest.mark.parametrize("name", DECODERS)
@given(data=st.binary(max_size=200) | st.binary(max_size=100).map(lambda tail: b"\xff\xff\xff\xff" + tail))
def test_random_bytes(name: str, data: bytes) -> None:
    must_be_named(DECODERS[name][0], data)


# --- Behind the checksum ----------------------------------------------------------------------------


@given(damaged(shard_manifest.encode(MANIFEST)[:-10]))
def test_manifests_with_the_right_checksum(body: bytes) -> None:
    data = body + b"\xc9\x3e" + xxhash.xxh64_intdigest(body).to_bytes(8, "little")
    must_be_named(lambda data: shard_manifest.decode(data, where=WHERE), data)


@given(damaged(base64.urlsafe_b64decode(str(TOKEN)[3:] + "==")[:-4]), st.sampled_from(["w5.", "w2."]))
def test_tokens_with_the_right_checksum(body: bytes, prefix: str) -> None:
    encoded = base64.urlsafe_b64encode(body + xxhash.xxh32_digest(body)).rstrip(b"=").decode()
    with little_memory(len(body)):
        try:
            token = SnapshotToken.parse(prefix + encoded)
            assert SnapshotToken.parse(str(token)) == token
            assert prefix != "w5." or str(token) == prefix + encoded
        except InputError as error:
            assert "snapshot token" in str(error)


def bounds_of_catalog() -> bytes:
    return base64.b64decode(checked_json.decode(generation_catalog.encode(CATALOG), where=WHERE)["bounds"])


@given(damaged(bounds_of_catalog()))
def test_bounds_with_the_right_checksum(bounds: bytes) -> None:
    members = checked_json.decode(generation_catalog.encode(CATALOG), where=WHERE)
    members["bounds"] = base64.b64encode(bounds).decode()
    must_be_named(lambda data: generation_catalog.decode(data, where=WHERE), checked_json.encode(members))


def test_compressed_bounds_are_not_unpacked() -> None:
    """A few bytes that say that they are very many."""
    sink = pa.BufferOutputStream()
    rows = pa.table({"name": ["a" * 1_000_000, "b" * 1_000_000]})
    with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(rows)
    members = checked_json.decode(generation_catalog.encode(CATALOG), where=WHERE)
    members["bounds"] = base64.b64encode(sink.getvalue()).decode()
    with pytest.raises(CorruptionError), little_memory(0):
        generation_catalog.decode(checked_json.encode(members), where=WHERE)


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([2**64, -1, 10**400, 1e308, -0.0, 0.5])
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20)
    | st.sampled_from(["../elsewhere", "2026-01-02T03:04:05", "9999-12-31T23:59:59-23:59", "\ud800", "w1."]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def places_in(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    children: Any = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    return [path, *(place for name, child in children for place in places_in(child, (*path, name)))]


@pytest.mark.parametrize("name", JSON_DECODERS)
@settings(max_examples=settings.default.max_examples)  # type: ignore[union-attr]
@given(data=st.data())
def test_json_with_the_right_checksum(name: str, data: st.DataObject) -> None:
    decode, valid = JSON_DECODERS[name]
    members = checked_json.decode(valid, where=WHERE)
    place = data.draw(st.sampled_from(places_in(members)[1:]))
    holder = members
    for part in place[:-1]:
        holder = holder[part]
    if data.draw(st.integers(0, 4)):
        holder[place[-1]] = data.draw(JSON_VALUES)
    else:
        del holder[place[-1]]
    try:
        stored = checked_json.encode(members)
    except (ValueError, UnicodeEncodeError):
        return
    must_be_named(decode, stored)


@pytest.mark.parametrize("name", ["lease", "consumer"])
def test_a_number_beyond_all_numbers(name: str) -> None:
    decode, valid = JSON_DECODERS[name]
    members = checked_json.decode(valid, where=WHERE)
    members["ttl" if name == "lease" else "max_age_seconds"] = 10**400
    with pytest.raises(CorruptionError):
        decode(checked_json.encode(members))


@pytest.mark.parametrize("name", [*JSON_DECODERS, "version hint"])
@pytest.mark.parametrize(
    "text",
    ["[" * 100_000, '{"a":' * 100_000, "9" * 10_000, '{"version":' + "9" * 5_000 + "}", '{"checksum": {}}'],
)
def test_json_that_is_deep_or_long(name: str, text: str) -> None:
    must_be_named(DECODERS[name][0], text.encode())


# --- Files that the library reads -------------------------------------------------------------------


@pytest.fixture(scope="module")
def indexed(tmp_path_factory: pytest.TempPathFactory) -> tuple[weir.Table, list[Path]]:
    """Return a merged table, and the files of its key index."""
    place = tmp_path_factory.mktemp("indexed") / "t"
    table = weir.create(place, pa.schema([("id", pa.int64())]), primary_key="id", fsync=False)
    with table.writer() as writer:
        writer.upsert(pa.table({"id": range(20_000)}))
    table.maintenance.merge()
    files = [path for path in place.glob("_indices/*/page_*.lance") if path.stat().st_size]
    assert {path.name for path in files} >= {"page_data.lance", "page_lookup.lance"}
    return table, files


@settings(max_examples=60)
@given(data=st.data())
def test_damaged_key_pages(indexed: tuple[weir.Table, list[Path]], data: st.DataObject) -> None:
    """A lookup that finds its index damaged answers, or says so; what a page holds has no checksum."""
    table, files = indexed
    path = data.draw(st.sampled_from(sorted(files)))
    valid = path.read_bytes()
    head, tail = valid[:-700], valid[-700:]
    # Where things are is at the end of the file; most of the damage goes there.
    broken = data.draw(damaged(tail).map(lambda end: head + end) | damaged(valid))
    try:
        path.write_bytes(broken)
        default_context().cache.clear()
        with contextlib.suppress(WeirError):
            found = weir.open(table.uri, fsync=False).get([5, 19_999, 20_001])
            assert found.num_rows <= 2
    finally:
        path.write_bytes(valid)
        default_context().cache.clear()
