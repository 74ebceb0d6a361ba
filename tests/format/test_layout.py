"""Names and paths, and that names from storage cannot lead out of their directory."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weir.errors import InputError
from weir.format import layout

SHARD = uuid.UUID("11111111-2222-4333-8444-555555555555")
NUMBERS = st.integers(0, (1 << 64) - 1)


def test_paths_follow_the_spec() -> None:
    five = "101" + "0" * 61
    root = f"_mem_wal/{SHARD}"
    assert layout.shard_directory(SHARD) == root
    assert layout.wal_directory(SHARD) == f"{root}/wal"
    assert layout.wal_path(SHARD, 5) == f"{root}/wal/{five}.arrow"
    assert layout.wal_path(SHARD, 5, ".lance") == f"{root}/wal/{five}.lance"
    assert layout.manifest_directory(SHARD) == f"{root}/manifest"
    assert layout.manifest_path(SHARD, 5) == f"{root}/manifest/{five}.binpb"
    assert layout.version_hint_path(SHARD) == f"{root}/manifest/version_hint.json"
    name = layout.generation_name("a1b2c3d4", 7)
    assert layout.generation_path(SHARD, name) == f"{root}/a1b2c3d4_gen_7"
    assert layout.bloom_filter_path(SHARD, name) == f"{root}/a1b2c3d4_gen_7/bloom_filter.bin"
    assert layout.page_data_path(SHARD, name) == f"{root}/a1b2c3d4_gen_7/_pk_index/page_data.lance"
    assert layout.page_lookup_path(SHARD, name) == f"{root}/a1b2c3d4_gen_7/_pk_index/page_lookup.lance"


@given(NUMBERS)
def test_names_of_numbers_round_trip(number: int) -> None:
    name = layout.reversed_name(number)
    assert len(name) == 64
    assert sum(1 << bit for bit, digit in enumerate(name) if digit == "1") == number
    assert layout.parse_reversed_name(name) == number
    assert layout.parse_wal_name(layout.wal_path(SHARD, number).rpartition("/")[2]) == number
    assert layout.parse_wal_name(layout.wal_path(SHARD, number, ".lance").rpartition("/")[2]) == number
    assert layout.parse_manifest_name(layout.manifest_path(SHARD, number).rpartition("/")[2]) == number


@given(st.integers(1, (1 << 64) - 1))
def test_names_of_generations_round_trip(generation: int) -> None:
    assert layout.parse_generation_name(layout.generation_name("0123abcd", generation)) == generation


@pytest.mark.parametrize("number", [-1, 1 << 64])
def test_a_number_beyond_64_bits_is_refused(number: int) -> None:
    with pytest.raises(InputError, match="64 unsigned bits"):
        layout.reversed_name(number)


@pytest.mark.parametrize(
    "text", ["", "1", "0" * 63, "0" * 65, "0" * 63 + "2", "0" * 63 + "\u0660", "0" * 64 + "\n"]
)
def test_what_is_not_a_reversed_number_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="bit-reversed"):
        layout.parse_reversed_name(text)


@pytest.mark.parametrize("name", ["0" * 64, "0" * 64 + ".parquet", ".arrow", "version_hint.json"])
def test_other_files_are_not_wal_entries_or_manifests(name: str) -> None:
    with pytest.raises(InputError):
        layout.parse_wal_name(name)
    with pytest.raises(InputError):
        layout.parse_manifest_name(name)


def test_an_unknown_wal_suffix_is_refused() -> None:
    with pytest.raises(InputError, match="parquet"):
        layout.wal_path(SHARD, 1, ".parquet")


@pytest.mark.parametrize("random_hex", ["", "a1b2c3d", "A1B2C3D4", "a1b2c3d4e", "../../.."])
def test_a_generation_name_needs_eight_hex_digits(random_hex: str) -> None:
    with pytest.raises(InputError, match="hex"):
        layout.generation_name(random_hex, 1)


@pytest.mark.parametrize("generation", [0, -1, 1 << 64])
def test_generations_count_from_one(generation: int) -> None:
    with pytest.raises(InputError, match="count from 1"):
        layout.generation_name("a1b2c3d4", generation)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "wal",
        "a1b2c3d4_gen_",
        "a1b2c3d4_gen_0",
        f"a1b2c3d4_gen_{1 << 64}",
        "a1b2c3d4_gen_-1",
        "a1b2c3d4_gen_1/x",
    ],
)
def test_what_is_not_a_generation_name_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="generation"):
        layout.parse_generation_name(name)


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "/etc", "a/b", "a\\b", "a\x00b", "a\nb", "x" * 256])
def test_names_that_lead_elsewhere_are_refused(name: str) -> None:
    with pytest.raises(InputError, match="plain file name"):
        layout.generation_path(SHARD, name)


@given(st.text())
def test_a_checked_name_stays_below_its_directory(name: str) -> None:
    try:
        path = layout.generation_path(SHARD, name)
    except InputError:
        return
    assert path.count("/") == 2
    assert path.rpartition("/")[2] not in ("", ".", "..")
