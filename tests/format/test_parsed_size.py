"""Messages that would take many times their size in memory are refused before they are parsed."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from uuid import UUID, uuid4

import pytest
from google.protobuf.message import DecodeError, Message
from hypothesis import given
from hypothesis import strategies as st

from weir.errors import CorruptionError
from weir.format import index_details, messages, shard_manifest
from weir.format.index_details import IndexCatchup, IndexDetails, MergedGeneration, ShardFieldSpec, ShardSpec
from weir.format.parsed_size import MalformedError, parsed_size
from weir.format.proto import lance_file_pb2, memwal_pb2, vector_index_pb2
from weir.format.shard_manifest import FlushedGeneration, ShardFieldValue, ShardManifest
from weir.format.source import SourceMarks

WHERE = "some/object"
SIZE = 100_000

# A few bytes that are much more in memory, and what they are repeated in.
CRAFTED: dict[str, tuple[type[Message], bytes, bytes]] = {
    "generations": (memwal_pb2.ShardManifest, b"", b"\x42\x00"),
    "shard values": (memwal_pb2.ShardManifest, b"", b"\x72\x00"),
    "marks": (memwal_pb2.ShardManifest, b"\xd2\x3e", b"\x0a\x00"),
    "merged generations": (memwal_pb2.MemWalIndexDetails, b"", b"\x4a\x00"),
    "merged generations with ids": (memwal_pb2.MemWalIndexDetails, b"", b"\x4a\x02\x0a\x00"),
    "names": (memwal_pb2.MemWalIndexDetails, b"", b"\x42\x00"),
    "specs": (memwal_pb2.MemWalIndexDetails, b"", b"\x3a\x00"),
    "parameters": (memwal_pb2.MemWalIndexDetails, b"\x3a", b"\x12\x02\x32\x00"),
    "unknown fields between known ones": (memwal_pb2.MemWalIndexDetails, b"", b"\x78\x01\x4a\x00"),
    "unknown fields in known ones": (memwal_pb2.MemWalIndexDetails, b"", b"\x4a\x02\x78\x01"),
    "known fields of another type": (memwal_pb2.MemWalIndexDetails, b"", b"\x48\x01\x4a\x00"),
    "after a group": (memwal_pb2.MemWalIndexDetails, b"", b"\x7b\x7c\x4a\x00"),
    "indexes": (memwal_pb2.IndexSection, b"", b"\x0a\x00"),
}


def varint(number: int) -> bytes:
    return bytes([number]) if number < 128 else bytes([number & 127 | 128]) + varint(number >> 7)


def crafted(name: str, size: int = SIZE) -> tuple[Message, bytes]:
    kind, outside, unit = CRAFTED[name]
    data = unit * (size // len(unit))
    return kind(), outside + varint(len(data)) + data if outside else data


@pytest.mark.one_in(3)
@pytest.mark.parametrize("name", CRAFTED)
def test_what_would_take_many_times_its_size_is_refused(name: str) -> None:
    message, data = crafted(name)
    peaks = []
    # What other threads of the process allocate meanwhile counts too, so that the least says most.
    for _ in range(10):
        tracemalloc.start()
        try:
            with pytest.raises(CorruptionError, match="in memory") as caught:
                messages.parse(message, data, what="thing", where=WHERE)
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
        if peaks[-1] < 8 * SIZE:
            break
    assert caught.value.where == WHERE
    assert min(peaks) < 8 * SIZE
    assert message.ByteSize() == 0


def test_a_large_message_is_walked_through_once(monkeypatch: pytest.MonkeyPatch) -> None:
    walked: list[int] = []

    def watched(data: memoryview, message: Message) -> int:
        walked.append(len(data))
        return parsed_size(data, message)

    monkeypatch.setattr(messages, "parsed_size", watched)
    marks = tuple(MergedGeneration(uuid4(), number) for number in range(3_000))
    data = index_details.encode(IndexDetails(merged_generations=marks))
    for _ in range(3):
        assert index_details.decode(data, where=WHERE).merged_generations == marks
    assert walked == [len(data)]
    message, bad = crafted("generations")
    for _ in range(2):
        with pytest.raises(CorruptionError):
            messages.parse(message, bad, what="thing", where=WHERE)
    assert len(walked) == 3, "what is refused is refused again"


# The protobuf runtime's own allocations are no Python objects, so that only the process shows them: as it is
# now, since the most that it ever took counts what its parent took when it was started.
_MEASURE = """
import resource, sys
from pathlib import Path
from tests.format.test_parsed_size import crafted, parsed_size
def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
kept = []
for name in sys.argv[1:]:
    message, data = crafted(name, 4_000_000)
    said = parsed_size(memoryview(data), message)
    before = resident()
    message.ParseFromString(data)
    print(said, resident() - before, len(data))
    kept.append(message)  # The next one takes memory of its own.
"""


@pytest.mark.long
def test_what_is_said_is_about_what_is_taken() -> None:
    names = ["generations", "parameters", "unknown fields in known ones"]
    ran = subprocess.run([sys.executable, "-c", _MEASURE, *names], capture_output=True, text=True, check=True)
    for name, line in zip(names, ran.stdout.splitlines(), strict=True):
        said, taken, size = map(int, line.split())
        assert taken > 16 * size, name
        assert taken / 2 < said < 3 * taken, name


def test_large_messages_that_writers_make_are_read() -> None:
    shard = UUID(int=1)
    manifest = ShardManifest(
        shard,
        9,
        flushed_generations=tuple(FlushedGeneration(n, f"{n:08x}_gen_{n}") for n in range(1, 5_000)),
        shard_fields=tuple(ShardFieldValue(f"f{n}", b"\x05\x00\x00\x00") for n in range(5_000)),
        sources=SourceMarks({f"source {n}": n for n in range(4_096)}),
    )
    decoded = shard_manifest.decode(shard_manifest.encode(manifest), where=WHERE)
    assert decoded.shard_fields == manifest.shard_fields
    merged = tuple(MergedGeneration(uuid4(), n) for n in range(5_000))
    field = ShardFieldSpec("bucket", (0,), "bucket", None, "int32", {"num_buckets": "8"})
    details = IndexDetails(
        shard_specs=tuple(ShardSpec(n, (field,)) for n in range(1, 2_000)),
        maintained_indexes=tuple(f"i{n}" for n in range(5_000)),
        merged_generations=merged,
        index_catchup=tuple(IndexCatchup(f"index {n}", merged[:100]) for n in range(100)),
        writer_config_defaults={f"option {n}": "1" for n in range(2_000)},
    )
    assert index_details.decode(index_details.encode(details), where=WHERE) == details


KINDS: list[type[Message]] = [
    memwal_pb2.ShardManifest,
    memwal_pb2.MemWalIndexDetails,
    memwal_pb2.IndexSection,
    lance_file_pb2.FileDescriptor,
    vector_index_pb2.Tensor,
    vector_index_pb2.Partitions,
]
PIECES = st.sampled_from(
    [
        *(b"\x42\x00", b"\x42\x02\x0a\x00", b"\x4a\x02\x0a\x00", b"\x78\x01", b"\x7b", b"\x7c"),
        *(b"\x0a\x02", b"\x32\x00", b"\x80\x01", b"\xff" * 9 + b"\x01", b"\x7e", b"\x00"),
        *(b"\x79" + bytes(8), b"\x7d" + bytes(4)),
    ]
)


@given(st.sampled_from(KINDS), st.lists(PIECES | st.binary(max_size=6), max_size=30).map(b"".join))
def test_what_can_be_parsed_can_be_counted(kind: type[Message], data: bytes) -> None:
    """Nothing that the runtime takes is refused for its form, and nothing else than that is raised."""
    message = kind()
    try:
        size = parsed_size(memoryview(data), message)
        assert size >= len(data)
    except MalformedError:
        with pytest.raises(DecodeError):
            message.ParseFromString(data)
