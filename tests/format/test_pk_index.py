"""The primary-key index, value for value that of the library."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance.file
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lance.mem_wal import LsmPointLookupPlanner, LsmScanner, ShardSnapshot

from weir.errors import KeyValueError
from weir.format import layout, pk_index
from weir.format.bloom_filter import BloomFilter
from weir.format.key_hash import hash_keys
from weir.format.keys import SUPPORTED_TYPES, encode_keys


def assert_same(built: pk_index.PkIndex, stored: tuple[pa.Table, pa.Table]) -> None:
    for ours, theirs in zip((built.page_data, built.page_lookup), stored, strict=True):
        assert ours.schema.equals(theirs.schema, check_metadata=True)
        assert pa.table(ours).equals(theirs.combine_chunks())


@pytest.mark.one_in(3)
@pytest.mark.parametrize("number", range(len(SUPPORTED_TYPES)), ids=map(str, SUPPORTED_TYPES))
def test_the_library_makes_the_same_index(
    library_generation: Callable[..., Any], keys_of_every_type: list[pa.Array], number: int
) -> None:
    keys = keys_of_every_type[number]
    assert_same(pk_index.build(encode_keys([keys])), library_generation([keys]).pk_index(1))


@pytest.mark.one_in(3)
@pytest.mark.parametrize("first", range(len(SUPPORTED_TYPES)), ids=map(str, SUPPORTED_TYPES))
def test_the_library_makes_the_same_index_of_composite_keys(
    library_generation: Callable[..., Any], keys_of_every_type: list[pa.Array], first: int
) -> None:
    keys = [keys_of_every_type[number % len(SUPPORTED_TYPES)] for number in (first, first + 3, first + 10)]
    assert_same(pk_index.build(encode_keys(keys)), library_generation(keys).pk_index(1))


@pytest.mark.parametrize("rows", [8191, 8192, 8193, 20_000])
def test_the_library_makes_the_same_pages(library_generation: Callable[..., Any], rows: int) -> None:
    # A multiple of a number without common divisor visits every remainder: all distinct, in no order.
    keys = pa.array(np.arange(rows) * 7919 % rows)
    assert_same(pk_index.build(keys), library_generation([keys]).pk_index(1))


@given(data=st.data())
def test_keys_in_order_and_rows_of_equal_keys_too(
    key_columns: Callable[..., st.SearchStrategy[list[pa.Array]]], data: st.DataObject
) -> None:
    keys = encode_keys(data.draw(key_columns()))
    index = pk_index.build(keys)
    order = [value.encode() if isinstance(value, str) else value for value in keys.to_pylist()]
    rows = sorted(range(len(keys)), key=lambda row: (order[row], row))
    assert index.page_data["ids"].to_pylist() == rows
    assert index.page_data["values"].equals(keys.take(pa.array(rows, pa.int64())))
    assert index.page_lookup.num_rows == (len(keys) > 0)


def test_a_null_key_is_refused() -> None:
    with pytest.raises(KeyValueError, match="row 1 is null"):
        pk_index.build(pa.array([1, None, 3]))


def write_index(directory: Path, index: pk_index.PkIndex) -> None:
    directory.mkdir()
    for name, content in ((layout.PAGE_DATA, index.page_data), (layout.PAGE_LOOKUP, index.page_lookup)):
        with lance.file.LanceFileWriter(str(directory / name), content.schema, version="2.0") as writer:
            for start in range(0, content.num_rows, pk_index.PAGE_ROWS):
                writer.write_batch(content.slice(start, pk_index.PAGE_ROWS))


@pytest.mark.parametrize(
    "keys",
    [
        [pa.array(np.arange(9000) * 7919 % 9000)],
        [pa.array([f"key {row * 7919 % 9000}" for row in range(9000)])],
        [pa.array(["a\x00", "b", "a"] * 3000), pa.array(np.arange(9000) * 7919 % 9000 - 4500, pa.int32())],
    ],
    ids=["int64", "string", "composite"],
)
def test_the_library_finds_rows_by_an_index_and_filter_of_weir(
    library_table: Callable[..., Any], keys: list[pa.Array]
) -> None:
    names = [f"key{number}" for number in range(len(keys))]
    fields = [pa.field(name, key.type, nullable=False) for name, key in zip(names, keys, strict=True)]
    table = library_table(pa.schema([*fields, pa.field("row", pa.int64())]), names)
    schema = table.dataset.schema.append(pa.field("_tombstone", pa.bool_(), nullable=False))
    name = layout.generation_name("0123abcd", 1)
    generation = table.path / layout.generation_path(table.shard_id, name)
    rows = pa.table([*keys, pa.array(range(9000)), pa.array([False] * 9000)], schema=schema)
    lance.write_dataset(rows, str(generation))
    write_index(generation / layout.PK_INDEX, pk_index.build(encode_keys(keys)))
    (generation / layout.BLOOM_FILTER).write_bytes(BloomFilter.build(hash_keys(keys)).to_bytes())

    snapshot = ShardSnapshot(str(table.shard_id)).with_sstable(1, name)
    found = LsmScanner.from_snapshots(table.dataset, [snapshot]).to_table()
    assert sorted(found["row"].to_pylist()) == list(range(9000))
    planner = LsmPointLookupPlanner(table.dataset, [snapshot])
    for row in (0, 4321, 8999):
        key = [key.slice(row, 1) for key in keys]
        asked = key[0] if len(key) == 1 else pa.StructArray.from_arrays(key, names)
        assert planner.plan_lookup(asked).to_table()["row"].to_pylist() == [row]
