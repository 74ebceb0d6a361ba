from __future__ import annotations

import datetime

import pyarrow as pa
import pytest

from weir.errors import CorruptionError
from weir.format import checked_json
from weir.format.generation_catalog import ColumnSummary, GenerationCatalog, decode, encode

CATALOG = GenerationCatalog(
    rows=12,
    tombstones=2,
    columns={
        "id": ColumnSummary(minimum=pa.scalar(-5, pa.int16()), maximum=pa.scalar(9, pa.int16())),
        "name": ColumnSummary(("BITMAP",), 3, pa.scalar("Ada"), pa.scalar("Żółw")),
        "at": ColumnSummary(
            ("BTREE", "ZONEMAP"),
            0,
            pa.scalar(1_234_567_890_123_456_789, pa.timestamp("ns", "UTC")),
            pa.scalar(1_234_567_890_123_456_790, pa.timestamp("ns", "UTC")),
        ),
        "day": ColumnSummary(
            (), 1, pa.scalar(datetime.date(1, 1, 1)), pa.scalar(datetime.date(9999, 12, 31))
        ),
        "vector": ColumnSummary(("IVF_PQ",)),
    },
    directory="_mem_wal/11111111-2222-4333-8444-555555555555/a1b2c3d4_gen_7",
    checksums={"data/1.lance": 0, "bloom_filter.bin": (1 << 64) - 1, "_pk_index/page_data.lance": 77},
)


@pytest.mark.parametrize("catalog", [CATALOG, GenerationCatalog(0, 0)], ids=["full", "empty"])
def test_what_was_written_is_read(catalog: GenerationCatalog) -> None:
    assert decode(encode(catalog), where="there") == catalog


def test_every_flipped_bit_is_found() -> None:
    data = encode(CATALOG)
    for at in range(0, len(data), 7):
        broken = bytearray(data)
        broken[at] ^= 4
        try:
            read = decode(broken, where="there")
        except CorruptionError as error:
            assert error.where == "there"
        else:
            # White space of the layout.
            assert read == CATALOG


@pytest.mark.parametrize(
    "change",
    [
        {"format": "another"},
        {"rows": -1},
        {"columns": []},
        {"columns": {"id": 3}},
        {"columns": {"id": {"kinds": "BTREE", "nulls": 0}}},
        {"columns": {"id": {"kinds": [3], "nulls": 0}}},
        {"bounds": "no base64!"},
        {"bounds": "AAAA"},
        {"bounds": None},
        {"xxh64": []},
        {"xxh64": {"data/1.lance": 3}},
        {"xxh64": {"data/1.lance": "three"}},
    ],
    ids=repr,
)
def test_what_was_never_written(change: dict[str, object]) -> None:
    members = checked_json.decode(encode(CATALOG), where="there")
    with pytest.raises(CorruptionError):
        decode(checked_json.encode(members | change), where="there")


def test_a_catalog_without_checksums() -> None:
    members = checked_json.decode(encode(CATALOG), where="there")
    del members["xxh64"]
    assert decode(checked_json.encode(members), where="there").checksums == {}
