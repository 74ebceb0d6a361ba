"""The frame of Arrow streams, against pyarrow's own reader of messages."""

from __future__ import annotations

import io
import struct

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import ipc

from weir.errors import CorruptionError
from weir.format.ipc_framing import (
    END_OF_STREAM,
    Frame,
    FrameKind,
    StreamSize,
    measure,
    read_frames,
    read_key_values,
)

WHERE = "_mem_wal/x/wal/y.arrow"
KINDS = {
    "schema": FrameKind.SCHEMA,
    "dictionary": FrameKind.DICTIONARY_BATCH,
    "record batch": FrameKind.RECORD_BATCH,
}
PAIRS = st.dictionaries(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
    max_size=4,
)


def stream(metadata: dict[str, str], *, compression: str | None = None) -> bytes:
    """A stream with a schema, a dictionary and two batches."""
    schema = pa.schema(
        [pa.field("a", pa.int32(), metadata={"of": "field"}), ("d", pa.dictionary(pa.int8(), pa.string()))],
        metadata=metadata,
    )
    words = pa.array(["x", "y"], schema.field("d").type)
    batch = pa.record_batch([pa.array([1, 2], pa.int32()), words], schema=schema)
    sink = io.BytesIO()
    with ipc.new_stream(sink, schema, options=ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_batch(batch)
        writer.write_batch(batch)
    return sink.getvalue()


@given(PAIRS)
def test_frames_and_pairs_are_those_arrow_reads(metadata: dict[str, str]) -> None:
    data = stream(metadata)
    frames = read_frames(memoryview(data), where=WHERE)
    messages = list(ipc.MessageReader.open_stream(data))
    assert [frame.kind for frame in frames] == [KINDS[message.type] for message in messages]
    assert [bytes(frame.metadata) for frame in frames] == [bytes(message.metadata) for message in messages]
    for frame, message in zip(frames, messages, strict=True):
        body = data[frame.metadata_start + len(frame.metadata) : frame.end]
        assert body == bytes(message.body)
        assert not frame.compressed
    assert data[frames[-1].end :] == END_OF_STREAM

    pairs = read_key_values(frames[0], where=WHERE)
    assert {pair.key.decode(): pair.value.decode() for pair in pairs} == metadata
    for pair in pairs:
        assert data[pair.value_start : pair.value_start + len(pair.value)] == pair.value


def test_a_limit_stops_before_the_end() -> None:
    data = stream({})
    (frame,) = read_frames(memoryview(data[:400]), where=WHERE, limit=1)
    assert frame.kind is FrameKind.SCHEMA


def test_compressed_bodies_are_told() -> None:
    frames = read_frames(memoryview(stream({}, compression="zstd")), where=WHERE)
    assert [frame.compressed for frame in frames] == [False, True, True, True]


def test_only_a_schema_has_pairs() -> None:
    frames = read_frames(memoryview(stream({})), where=WHERE)
    with pytest.raises(CorruptionError):
        read_key_values(frames[-1], where=WHERE)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"ARROW1\x00\x00",
        b"\xff\xff\xff\xff",
        b"\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\xff\xff\xff\xff\x10\x00\x00\x00" + bytes(8),
        b"\xff\xff\xff\xff\xff\xff\xff\x7f" + bytes(64),
    ],
)
def test_what_is_not_a_stream_is_corruption(data: bytes) -> None:
    with pytest.raises(CorruptionError):
        read_frames(memoryview(data), where=WHERE)


def test_a_stream_cut_short_is_corruption() -> None:
    data = stream({"a": "b"})
    for length in range(len(data)):
        with pytest.raises(CorruptionError):
            read_frames(memoryview(data[:length]), where=WHERE)


def test_pairs_that_share_bytes_cannot_add_up_to_more_than_the_message() -> None:
    """A schema of many pairs that all point to one long value would need quadratic memory."""
    pairs, length = 1000, 4000
    # Each table is its vtable (its size, the table's size, the offset of each field or 0) and then the
    # distance back to the vtable and one offset; fields 0 and 1 of message and schema are left out.
    one_field = struct.pack("<HHHHH2x", 10, 8, 0, 0, 4)
    message = struct.pack("<I", 4 + 12) + one_field + struct.pack("<iI", 12, 4 + 12)
    schema = one_field + struct.pack("<iI", 12, 4)
    value_field = struct.pack("<HHHH", 8, 8, 0, 4)
    pair = value_field + struct.pack("<iI", 8, 4) + struct.pack("<I", length) + b"x" * length
    distances = [4 * (pairs - slot) + len(value_field) for slot in range(pairs)]
    metadata = message + schema + struct.pack(f"<I{pairs}I", pairs, *distances) + pair
    forged = Frame(FrameKind.SCHEMA, memoryview(metadata), 8, 8 + len(metadata), False)
    with pytest.raises(CorruptionError) as caught:
        read_key_values(forged, where=WHERE)
    assert "longer than the message" in str(caught.value.__cause__)


@given(st.data())
def test_damage_is_corruption_or_another_stream(data: st.DataObject) -> None:
    damaged = bytearray(stream({"key": "value"}))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(damaged) - 1))
        replacement = data.draw(st.binary(min_size=1, max_size=8))
        damaged[at : at + len(replacement)] = replacement
    try:
        frames = read_frames(memoryview(damaged), where=WHERE)
        if frames:
            read_key_values(frames[0], where=WHERE)
    except CorruptionError as error:
        assert error.where == WHERE
    else:
        assert all(frame.end <= len(damaged) for frame in frames)


@given(st.lists(st.integers(0, 9_000), max_size=5))
def test_a_stream_is_measured_without_reading_its_rows(sizes: list[int]) -> None:
    schema = pa.schema([("a", pa.int64())])
    sink = io.BytesIO()
    with ipc.new_stream(sink, schema) as writer:
        for size in sizes:
            writer.write_batch(pa.record_batch([pa.array(range(size), pa.int64())], schema=schema))
    data, read = sink.getvalue(), []

    def some(start: int, length: int) -> bytes:
        read.append(length)
        return data[start : start + length]

    assert measure(some, where=WHERE) == StreamSize(sum(sizes), len(data))
    assert len(read) <= (1 if len(data) <= 16 * 1024 else 1 + len(sizes))
    assert all(length <= 16 * 1024 for length in read)
    whole = data
    for end in range(0, len(whole) - 1, max(len(whole) // 7, 1)):
        data = whole[:end]
        with pytest.raises(CorruptionError) as caught:
            measure(some, where=WHERE)
        assert caught.value.where == WHERE
