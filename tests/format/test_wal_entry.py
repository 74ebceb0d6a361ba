"""WAL entries: round trips, the library reading Weir's and Weir the library's, and damage (invariant I11)."""

from __future__ import annotations

import dataclasses
import struct
import uuid
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
import xxhash
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import ipc

from weir.errors import CorruptionError, InputError, SchemaError
from weir.format import layout, shard_manifest, wal_entry, wal_opening
from weir.format.batch_memory import batch_bytes
from weir.format.ipc_framing import KeyValue
from weir.format.log_place import LogPlace
from weir.format.source import Source
from weir.format.wal_entry import TOMBSTONE, WalEntry, wal_schema
from weir.format.wal_header import WalEntryHeader, read_header
from weir.format.wal_trailer import WalTrailer, read_trailer
from weir.format.wal_without_trailer import old_append

WHERE = "_mem_wal/x/wal/y.arrow"
UINT64 = st.integers(0, (1 << 64) - 1)
WRITE_IDS = st.none() | st.from_regex("[1-9a-f][0-9a-f]{31}", fullmatch=True)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
SOURCES = st.builds(Source, TEXT.filter(bool) | TEXT.map("once:{}".format), st.integers(0, (1 << 63) - 1))
PLACES = st.builds(LogPlace, st.uuids(), UINT64)
HEADERS = (
    st.builds(
        WalEntryHeader,
        UINT64,
        st.none() | UINT64,
        WRITE_IDS,
        st.just(False),
        st.none() | SOURCES,
        st.lists(st.from_regex(r"staged_[0-9a-f]{32}", fullmatch=True), max_size=2).map(tuple),
    )
    .flatmap(
        lambda header: st.builds(
            dataclasses.replace,
            st.just(header),
            published_rows=st.just(7 if header.published else 0),
            published_from=st.just(3 if header.published else 0),
            place=st.none() | PLACES,
            further_sources=st.lists(SOURCES, max_size=3 if header.source else 0).map(tuple),
        )
    )
    .flatmap(
        lambda header: st.builds(
            dataclasses.replace,
            st.just(header),
            answers=st.just(())
            if header.has_lone_source or not header.sources
            else st.just(()) | st.tuples(*[st.binary(min_size=1, max_size=9)] * len(header.sources)),
        )
    )
)

COLUMNS: dict[str, tuple[pa.DataType, st.SearchStrategy[object]]] = {
    "number": (pa.int64(), st.integers(-(1 << 63), (1 << 63) - 1)),
    "flag": (pa.bool_(), st.booleans()),
    "text": (pa.string(), TEXT),
    "large": (pa.large_binary(), st.binary(max_size=8)),
    "vector": (
        pa.list_(pa.float32(), 3),
        st.lists(st.floats(width=32, allow_nan=False), min_size=3, max_size=3),
    ),
    "list": (pa.list_(pa.int16()), st.lists(st.integers(-9, 9), max_size=3)),
    "struct": (pa.struct([("x", pa.string())]), st.fixed_dictionaries({"x": st.none() | TEXT})),
    "word": (pa.dictionary(pa.int8(), pa.string()), st.sampled_from(["a", "b"])),
    "nested_word": (
        pa.list_(pa.dictionary(pa.int8(), pa.string())),
        st.lists(st.sampled_from(["a", "b"]), max_size=2),
    ),
    "nothing": (pa.null(), st.none()),
}


@st.composite
def batches(draw: st.DrawFn) -> tuple[pa.Schema, list[pa.RecordBatch]]:
    """A table schema with WAL columns, and up to three batches of it, as slices with an offset."""
    names = draw(st.lists(st.sampled_from(sorted(COLUMNS)), min_size=1, max_size=4, unique=True))
    metadata = draw(st.none() | st.dictionaries(TEXT, TEXT, min_size=1, max_size=2))
    schema = wal_schema(pa.schema([pa.field(name, COLUMNS[name][0]) for name in names], metadata=metadata))
    made = []
    for _ in range(draw(st.integers(0, 3))):
        rows = draw(st.integers(0, 5))
        columns = [
            pa.array(draw(st.lists(st.none() | values, min_size=rows + 3, max_size=rows + 3)), type)
            for type, values in (COLUMNS[name] for name in names)
        ]
        columns.append(pa.array(draw(st.lists(st.booleans(), min_size=rows + 3, max_size=rows + 3))))
        made.append(pa.record_batch(columns, schema=schema).slice(2, rows))
    return schema, made


def stored(header: WalEntryHeader, schema: pa.Schema, rows: list[pa.RecordBatch]) -> bytes:
    """The entry as one object."""
    return b"".join(wal_entry.encode(header, schema, rows))


def sample(header: WalEntryHeader | None = None, rows: int = 3) -> tuple[bytes, pa.RecordBatch]:
    """A small entry and the batch it holds."""
    schema = wal_schema(
        pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("text", pa.string())])
    )
    columns = [
        pa.array(range(rows)),
        pa.array([f"row {row}" for row in range(rows)]),
        pa.array([False] * rows),
    ]
    batch = pa.record_batch(columns, schema=schema)
    return stored(header or WalEntryHeader(5, 2, "ab" * 16), schema, [batch]), batch


@given(HEADERS, batches())
def test_round_trip(header: WalEntryHeader, rows: tuple[pa.Schema, list[pa.RecordBatch]]) -> None:
    schema, made = rows
    entry = wal_entry.decode(stored(header, schema, made), where=WHERE)
    assert entry.header == header
    assert entry.schema.equals(schema, check_metadata=True)
    assert [batch.to_pylist() for batch in entry.batches] == [batch.to_pylist() for batch in made]
    assert all(batch.schema.equals(schema, check_metadata=True) for batch in entry.batches)
    assert entry.num_rows == sum(batch.num_rows for batch in made)
    assert entry.nbytes == sum(map(batch_bytes, entry.batches))


@pytest.mark.parametrize("dictionary", [False, True])
def test_large_batches_are_neither_copied_nor_changed(dictionary: bool) -> None:
    count = 200_000
    schema = wal_schema(pa.schema([("number", pa.int64()), ("text", pa.string())]))
    text = pa.array([f"text {row % 7}" for row in range(count)])
    if dictionary:
        text = text.dictionary_encode()
        schema = wal_schema(pa.schema([("number", pa.int64()), ("text", text.type)]))
    numbers = pa.array(range(count))
    batch = pa.record_batch([numbers, text, pa.array([False] * count)], schema=schema)
    parts = wal_entry.encode(WalEntryHeader(1, 1), schema, [batch, batch.slice(5, 10)])
    data_address = numbers.buffers()[1].address
    assert [part.address for part in parts if isinstance(part, pa.Buffer)].count(data_address) == 1
    assert b"".join(parts).startswith(wal_entry.encode(WalEntryHeader(1, 1), schema)[0])
    entry = wal_entry.decode(b"".join(parts), where=WHERE)
    assert entry.batches[0].equals(batch)
    assert entry.batches[1].equals(batch.slice(5, 10))


def test_decoding_does_not_copy() -> None:
    data, _ = sample()
    buffer = pa.py_buffer(data)
    (batch,) = wal_entry.decode(buffer, where=WHERE).batches
    values = batch.column("id").buffers()[1]
    assert buffer.address <= values.address < buffer.address + buffer.size


def test_the_trailer_proves_the_stream_and_itself() -> None:
    place = LogPlace(UUID(int=5), 20)
    header = WalEntryHeader(5, 2, "ab" * 16, source=Source("job", 9), place=place)
    data, _ = sample(header)
    stream, facts, own = data[:-96], data[-96:-16], data[-16:-8]
    numbers = [20, 5, 9, 3, len(stream), xxhash.xxh64_intdigest(stream)]
    assert facts == bytes.fromhex("ab" * 16) + place.shard_id.bytes + struct.pack("<6Q", *numbers)
    assert struct.unpack("<Q", own)[0] == xxhash.xxh64_intdigest(facts)
    assert data.endswith(b"weirwal1")
    found = read_trailer(data, where=WHERE)
    assert found == read_trailer(data[-96:], where=WHERE)
    assert found == WalTrailer(5, 3, len(stream), numbers[-1], "ab" * 16, place, 9)


def test_the_entry_is_a_plain_arrow_stream() -> None:
    data, batch = sample(WalEntryHeader(5, 2, "ab" * 16))
    with ipc.open_stream(data) as reader:
        metadata = reader.schema.metadata
        assert reader.read_all().to_pylist() == batch.to_pylist()
    assert metadata == {b"writer_epoch": b"5", b"generation": b"2", b"weir:trailer": b"96"}


def test_headers_of_one_schema_do_not_mix() -> None:
    schema = wal_schema(pa.schema([("id", pa.int64())]))
    headers = [
        WalEntryHeader(epoch, generation, write_id)
        for epoch in (1, 2)
        for generation in (None, 1, 2)
        for write_id in (None, "a" * 32, "b" * 32)
    ]
    for header in [*headers, *headers]:
        assert wal_entry.decode(stored(header, schema, []), where=WHERE).header == header


def test_many_schemas_in_turn() -> None:
    for number in range(200):
        schema = wal_schema(pa.schema([(f"column {number}", pa.int64())]))
        assert wal_entry.decode(stored(WalEntryHeader(number), schema, []), where=WHERE).schema.equals(schema)


def test_metadata_of_the_table_cannot_pass_for_that_of_the_entry() -> None:
    metadata = {
        "writer_epoch": "99",
        "generation": "99",
        "fence_sentinel": "true",
        "weir:write_id": "forged",
        "weir:trailer": "96",
        "weir:xxh64": "0" * 16,
        "kept": "yes",
    }
    schema = wal_schema(pa.schema([pa.field("weir:xxh64", pa.int64(), metadata=metadata)], metadata=metadata))
    entry = wal_entry.decode(stored(WalEntryHeader(1), schema, []), where=WHERE)
    assert entry.header == WalEntryHeader(1)
    assert entry.schema.metadata == {b"kept": b"yes"}
    assert entry.schema.equals(schema)


def test_a_fence_entry_is_empty() -> None:
    header = WalEntryHeader(7, write_id="cd" * 16, fence=True)
    entry = wal_entry.decode(stored(header, pa.schema([]), []), where=WHERE)
    assert entry == WalEntry(header, pa.schema([]), ())
    _, batch = sample()
    with pytest.raises(InputError, match="fence"):
        wal_entry.encode(header, batch.schema, [batch])


def test_write_ids_differ() -> None:
    assert len({wal_entry.new_write_id() for _ in range(100)}) == 100


def test_the_tombstone_column_is_reserved() -> None:
    schema = pa.schema([pa.field("id", pa.int64())], metadata={"kept": "yes"})
    assert wal_schema(schema).field(TOMBSTONE) == pa.field("_tombstone", pa.bool_(), nullable=False)
    assert wal_schema(schema).metadata == {b"kept": b"yes"}
    with pytest.raises(SchemaError, match="_tombstone"):
        wal_schema(wal_schema(schema))


@pytest.mark.parametrize(
    "header",
    [
        WalEntryHeader(-1),
        WalEntryHeader(1 << 64),
        WalEntryHeader(1, -1),
        WalEntryHeader(1, write_id="é"),
        WalEntryHeader(1, write_id="short"),
        WalEntryHeader(1, write_id="0" * 32),
        WalEntryHeader(1, place=LogPlace(UUID(int=1), 1 << 64)),
    ],
)
def test_a_header_that_cannot_be_stored_is_refused(header: WalEntryHeader) -> None:
    with pytest.raises(InputError):
        wal_entry.encode(header, pa.schema([]))


def test_a_batch_of_another_schema_is_refused() -> None:
    _, batch = sample()
    with pytest.raises(SchemaError, match="id"):
        wal_entry.encode(WalEntryHeader(1, 1), batch.schema.remove(0), [batch])


# --- the library ------------------------------------------------------------------------------


def library_schema() -> pa.Schema:
    return pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field("text", pa.string()),
            pa.field("vector", pa.list_(pa.float32(), 2)),
            pa.field("word", pa.dictionary(pa.int32(), pa.string())),
        ],
        metadata={"kept": "yes"},
    )


def library_rows(table: Any, *ids: int) -> pa.Table:
    count = len(ids)
    columns = {
        "id": list(ids),
        "text": [f"row {row}" for row in ids],
        "vector": [[row, 0.5] for row in ids],
        "word": pa.array(["a"] * count).dictionary_encode(),
    }
    return pa.table(columns, schema=table.dataset.schema)


def test_entries_of_the_library_are_understood(library_table: Callable[..., Any]) -> None:
    table = library_table(library_schema(), ["id"])
    table.put(library_rows(table, 1, 2), delete=pa.table({"id": [1]}))
    table.put(library_rows(table, 3))
    entries = {
        position: wal_entry.decode(data, where=WHERE) for position, data in table.wal_entries().items()
    }
    assert sorted(entries) == [1, 2, 3, 4]
    assert [entries[position].header for position in sorted(entries)] == [
        WalEntryHeader(1, generation=1),
        WalEntryHeader(1, generation=1),
        WalEntryHeader(2, fence=True),
        WalEntryHeader(2, generation=2),
    ]
    data = entries[1]
    assert data.schema.equals(wal_schema(library_schema()))
    assert data.schema.metadata == {b"kept": b"yes"}
    assert [row for batch in data.batches for row in batch.to_pylist()] == [
        {"id": 1, "text": "row 1", "vector": [1.0, 0.5], "word": "a", TOMBSTONE: False},
        {"id": 2, "text": "row 2", "vector": [2.0, 0.5], "word": "a", TOMBSTONE: False},
    ]
    tombstone = {"id": 1, "text": None, "vector": None, "word": None, TOMBSTONE: True}
    assert [row for batch in entries[2].batches for row in batch.to_pylist()] == [tombstone]
    assert entries[3].num_rows == 0


def test_the_library_replays_entries_of_weir(library_table: Callable[..., Any]) -> None:
    table = library_table(library_schema(), ["id"])
    schema = wal_schema(table.dataset.schema)
    rows = library_rows(table, 1, 2, 3)
    kept = [rows.combine_chunks().to_batches()[0].append_column(TOMBSTONE, pa.array([False] * 3))]
    nulls = [pa.nulls(1, field.type) for field in table.dataset.schema][1:]
    deleted = [pa.record_batch([pa.array([2]), *nulls, pa.array([True])], schema=schema)]
    (table.path / layout.wal_directory(table.shard_id)).mkdir(parents=True)
    (table.path / layout.manifest_directory(table.shard_id)).mkdir(parents=True)
    objects = {
        layout.wal_path(table.shard_id, 1): stored(
            WalEntryHeader(1, 1, "ab" * 16), schema, [kept[0].cast(schema)]
        ),
        layout.wal_path(table.shard_id, 2): stored(
            WalEntryHeader(2, None, "cd" * 16, True), pa.schema([]), []
        ),
        layout.wal_path(table.shard_id, 3): stored(WalEntryHeader(2, 1, "ef" * 16), schema, deleted),
        layout.manifest_path(table.shard_id, 1): shard_manifest.encode(
            shard_manifest.ShardManifest(table.shard_id, 1, writer_epoch=2)
        ),
    }
    for path, data in objects.items():
        (table.path / path).write_bytes(data)
    with table.dataset.mem_wal_writer(str(table.shard_id)) as writer:
        found = writer.lsm_scanner().to_table()
    assert sorted(found["id"].to_pylist()) == [1, 3]
    assert found.sort_by("id")["text"].to_pylist() == ["row 1", "row 3"]


# --- damage -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "header",
    [
        None,
        WalEntryHeader(3, 2, "ab" * 16, place=LogPlace(UUID(int=5), 20)),
        WalEntryHeader(3, 2, "ab" * 16, source=Source("job", 5), place=LogPlace(UUID(int=5), 20)),
    ],
    ids=["sample", "with its place", "with a mark"],
)
def test_every_flipped_bit_is_noticed(header: WalEntryHeader | None) -> None:
    data, _ = sample(header)
    for bit in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptionError) as caught:
            wal_entry.decode(damaged, where=WHERE)
        assert caught.value.where == WHERE


def test_an_entry_cut_short_is_noticed() -> None:
    data, _ = sample()
    for length in range(len(data)):
        with pytest.raises(CorruptionError):
            wal_entry.decode(data[:length], where=WHERE)


def test_blocks_that_never_reached_the_disk_are_noticed() -> None:
    """Zeros where a power cut left nothing, in one place or to the end; and halves of two entries."""
    data, _ = sample()
    for start in range(0, len(data), 32):
        for end in (start + 32, len(data)):
            torn = data[:start] + bytes(min(end, len(data)) - start) + data[end:]
            if torn == data:
                continue
            with pytest.raises(CorruptionError):
                wal_entry.decode(torn, where=WHERE)
    other, _ = sample(WalEntryHeader(5, 2, "cd" * 16), rows=4)
    for torn in (data[:-96] + other[-96:], other[:-96] + data[-96:], data + other):
        with pytest.raises(CorruptionError, match="checksum"):
            wal_entry.decode(torn, where=WHERE)


@given(st.binary(min_size=1, max_size=20))
def test_bytes_after_the_end_are_noticed(trailing: bytes) -> None:
    with pytest.raises(CorruptionError, match="lost its trailer"):
        wal_entry.decode(sample()[0] + trailing, where=WHERE)


@given(st.data())
def test_every_damage_is_noticed(data: st.DataObject) -> None:
    whole, _ = sample()
    damaged = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(damaged) - 1))
        replacement = data.draw(st.binary(min_size=1, max_size=16))
        damaged[at : at + len(replacement)] = replacement
    if damaged != whole:
        with pytest.raises(CorruptionError):
            wal_entry.decode(damaged, where=WHERE)


@given(st.binary(max_size=200) | st.binary(max_size=100).map(lambda tail: sample()[0][:300] + tail))
def test_random_bytes_are_no_entry(data: bytes) -> None:
    with pytest.raises(CorruptionError):
        wal_entry.decode(data, where=WHERE)


def test_an_entry_in_the_place_of_another_is_noticed() -> None:
    """Whole, of the right epoch, and still not what was written there."""
    here, elsewhere = LogPlace(uuid.UUID(int=1), 7), LogPlace(uuid.UUID(int=2), 7)
    header = WalEntryHeader(5, 2, "ab" * 16, place=here)
    data, _ = sample(header)
    # Once as the first of its kind to be read, once as one that is known.
    for _ in range(2):
        assert wal_entry.decode(data, where=WHERE, place=here).header == header
        for place in (dataclasses.replace(here, position=8), elsewhere):
            with pytest.raises(CorruptionError, match=f"stands at position .* appended at {here}") as caught:
                wal_entry.decode(data, where=WHERE, place=place)
            assert caught.value.where == WHERE
    assert wal_entry.decode(data, where=WHERE).header.place == here
    assert wal_entry.decode_header(data, where=WHERE).place == here
    # The library's entries, and Weir's of before, name none.
    assert wal_entry.decode(sample()[0], where=WHERE, place=here).header.place is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("write_id", b"\xff"),
        *(("place", text) for text in (b"x", b"0" * 57, b"%036d/x" % 1, str(uuid.UUID(int=1)).encode())),
        *(("sequence", text) for text in (b"", b"-1", b"%d" % (1 << 63), b"1.5")),
    ],
)
def test_what_no_writer_put_into_metadata_is_corruption(key: str, value: bytes) -> None:
    with pytest.raises(CorruptionError, match="unreadable") as caught:
        old_append([KeyValue(f"weir:{key}".encode(), value, 0)], WHERE)
    assert caught.value.where == WHERE


def test_an_entry_that_lost_its_trailer_is_not_taken_for_one_of_the_library() -> None:
    data, batch = sample()
    stream = data[:-96]
    assert ipc.open_stream(stream).read_all().to_pylist() == batch.to_pylist()
    # Also where damage to the count of pairs, or to the key, hides the marker.
    for damaged in (stream, stream.replace(b"weir:trailer", b"weir:trail_r")):
        with pytest.raises(CorruptionError, match="lost its trailer"):
            wal_entry.decode(damaged, where=WHERE)
    for replaced in (b"Weir:trailer", b"weir:xxh64\0\0"):
        damaged = data.replace(b"weir:trailer", replaced)
        with pytest.raises(CorruptionError, match="checksum"):
            wal_entry.decode(damaged, where=WHERE)
    # Of a trailer of which nobody knows that it is one, not a byte is passed over.
    for strange in (data[:-1] + b"?", data[:-1], stream + bytes(96)):
        with pytest.raises(CorruptionError, match="continues after the end"):
            wal_entry.decode(strange.replace(b"weir:trailer", b"Weir:trailer"), where=WHERE)


def arrow_stream(batch: pa.RecordBatch, metadata: dict[str, str], **options: Any) -> bytes:
    """An entry without checksum, as another writer would make it."""
    sink = pa.BufferOutputStream()
    schema = batch.schema.with_metadata(metadata)
    with ipc.new_stream(sink, schema, options=ipc.IpcWriteOptions(**options)) as writer:
        writer.write_batch(batch.replace_schema_metadata(metadata))
    return bytes(sink.getvalue())


@given(st.data())
def test_damage_to_an_entry_without_checksum_is_corruption_or_another_entry(data: st.DataObject) -> None:
    schema = wal_schema(library_schema())
    rows = {"id": [1], "text": ["a"], "vector": [[1, 2]], "word": pa.array(["a"]).dictionary_encode()}
    batch = pa.record_batch({**rows, TOMBSTONE: [False]}, schema=schema)
    damaged = bytearray(arrow_stream(batch, {"writer_epoch": "1", "generation": "1"}))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(damaged) - 1))
        replacement = data.draw(
            st.binary(min_size=1, max_size=8)
            | st.sampled_from([b"\xff\xff\xff\x7f", b"\xff" * 7 + b"\x7f", bytes(8)])
        )
        damaged[at : at + len(replacement)] = replacement
    try:
        entry = wal_entry.decode(bytes(damaged), where=WHERE)
    except CorruptionError as error:
        assert error.where == WHERE
    else:
        assert entry.num_rows >= 0
        assert entry.nbytes < 10 * len(damaged)
        assert isinstance(entry.schema.names, list)
        for found in entry.batches:
            found.validate(full=True)


@pytest.mark.parametrize(
    ("metadata", "problem"),
    [
        ({}, "no writer epoch"),
        ({"generation": "1"}, "no writer epoch"),
        ({"writer_epoch": ""}, "writer_epoch"),
        ({"writer_epoch": "-1"}, "writer_epoch"),
        ({"writer_epoch": str(1 << 64)}, "writer_epoch"),
        ({"writer_epoch": "9" * 5000}, "writer_epoch"),
        ({"writer_epoch": "1", "generation": "one"}, "generation"),
        ({"writer_epoch": "1", "fence_sentinel": "maybe"}, "fence"),
        ({"writer_epoch": "1", "fence_sentinel": "true"}, "fence and has rows"),
        ({"writer_epoch": "1", "weir:write_id": "x"}, "lost its trailer"),
        ({"writer_epoch": "1", "weir:trailer": "96"}, "lost its trailer"),
        ({"writer_epoch": "1", "weir:xxh64": "short"}, "no valid checksum"),
        ({"writer_epoch": "1", "weir:xxh64": "g" * 16}, "no valid checksum"),
        ({"writer_epoch": "1", "weir:xxh64": "0" * 16}, "was written"),
    ],
)
def test_metadata_that_no_entry_has_is_corruption(metadata: dict[str, str], problem: str) -> None:
    _, batch = sample()
    with pytest.raises(CorruptionError, match=problem):
        wal_entry.decode(arrow_stream(batch, metadata), where=WHERE)


def test_a_compressed_body_without_checksum_is_not_unpacked() -> None:
    _, batch = sample()
    data = arrow_stream(batch, {"writer_epoch": "1"}, compression="zstd")
    with pytest.raises(CorruptionError, match="compressed"):
        wal_entry.decode(data, where=WHERE)


def test_a_schema_in_the_middle_is_corruption() -> None:
    _, batch = sample()
    data = arrow_stream(batch, {"writer_epoch": "1"})
    schema = bytes(batch.schema.serialize())
    with pytest.raises(CorruptionError, match="one schema"):
        wal_entry.decode(data[:-8] + schema + data[-8:], where=WHERE)


@pytest.mark.parametrize("data", [b"", b"\xff\xff\xff\xff\x00\x00\x00\x00"])
def test_an_empty_stream_is_corruption(data: bytes) -> None:
    with pytest.raises(CorruptionError):
        wal_entry.decode(data, where=WHERE)


def test_headers_can_be_changed_like_any_dataclass() -> None:
    header = WalEntryHeader(1, 2, wal_entry.new_write_id())
    assert dataclasses.replace(header, generation=3).generation == 3
    assert uuid.UUID(hex=header.write_id or "").hex == header.write_id


@given(st.data())
def test_what_was_read_from_one_opening_is_not_taken_for_anothers(data: st.DataObject) -> None:
    """Entries of many writers and schemas in any order, each as it is when it is the first to be read."""
    entries = []
    for number in range(data.draw(st.integers(1, 12))):
        schema = wal_schema(pa.schema([(f"c{number % 10}", pa.int64())], metadata={"m": str(number % 3)}))
        batch = pa.record_batch([pa.array([number]), pa.array([False])], schema=schema)
        header = data.draw(HEADERS)
        entries.append(b"".join(wal_entry.encode(header, schema, [batch] * data.draw(st.integers(0, 2)))))
        again = dataclasses.replace(
            header,
            write_id=None if header.write_id is None else "f" * 32,
            place=None if header.place is None else data.draw(PLACES),
        )
        entries.append(b"".join(wal_entry.encode(again, schema, [batch])))
    first = []
    for entry in entries:
        wal_opening._openings = ()
        first.append(wal_entry.decode(entry, where=WHERE))
    for at in data.draw(st.lists(st.integers(0, len(entries) - 1), max_size=30)):
        found = wal_entry.decode(entries[at], where=WHERE)
        assert found == first[at]
        assert found.schema.equals(first[at].schema, check_metadata=True)
        assert all(batch.schema.equals(found.schema, check_metadata=True) for batch in found.batches)


def test_decimals_are_aligned_wherever_the_bytes_are() -> None:
    schema = wal_schema(pa.schema([("id", pa.int64()), ("number", pa.decimal128(20, 2))]))
    columns = [pa.array([1, 2]), pa.array([1, None], pa.decimal128(20, 2)), pa.array([False, False])]
    data = stored(WalEntryHeader(1, 1, "ab" * 16), schema, [pa.record_batch(columns, schema=schema)])
    for offset in range(0, 32, 8):
        whole = pa.allocate_buffer(len(data) + 64)
        memoryview(whole).cast("B")[offset : offset + len(data)] = data
        for _ in range(2):
            (batch,) = wal_entry.decode(whole.slice(offset, len(data)), where=WHERE).batches
            assert batch.column("number").buffers()[1].address % 16 == 0
            assert batch.to_pylist()[1]["number"] is None


@pytest.mark.parametrize(
    ("further", "with_first"),
    [
        (b"0" * 20 + b"001a", False),
        (b"0" * 19, True),
        (b"0" * 20 + b"005four", True),
        (b"0" * 20 + b"0x1a", True),
        (b"-" + b"0" * 19 + b"001a", True),
        (b"0" * 20 + b"000", True),
        (b"0" * 20 + b"001a" + b"0", True),
    ],
)
def test_marks_that_no_writer_makes_are_refused(further: bytes, with_first: bool) -> None:
    first = [KeyValue(b"weir:source", b"a", 0)] if with_first else []
    with pytest.raises(CorruptionError, match="source mark"):
        read_header(
            [KeyValue(b"writer_epoch", b"1", 0), *first, KeyValue(b"weir:sources", further, 0)], WHERE
        )
