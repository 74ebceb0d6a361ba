"""The released library as the oracle of the format tests, and keys of every type to try."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lance
import lance.file
import pyarrow as pa
import pytest
from hypothesis import strategies as st

from weir.format import layout
from weir.format.keys import SUPPORTED_TYPES

PRIMARY_KEY = "lance-schema:unenforced-primary-key"
PRIMARY_KEY_POSITION = "lance-schema:unenforced-primary-key:position"


@dataclass(frozen=True)
class LibraryTable:
    """A Lance table with one shard written by the library."""

    path: Path
    shard_id: uuid.UUID
    key_columns: tuple[str, ...]

    @property
    def dataset(self) -> lance.LanceDataset:
        return lance.dataset(str(self.path))

    def put(self, *tables: pa.Table, delete: pa.Table | None = None) -> None:
        """Claim the shard, put the tables one by one, delete the keys and flush."""
        with self.dataset.mem_wal_writer(str(self.shard_id)) as writer:
            for table in tables:
                writer.put(table)
            if delete is not None:
                writer.delete(delete)

    def wal_entries(self) -> dict[int, bytes]:
        return {
            layout.parse_wal_name(file.name): file.read_bytes()
            for file in (self.path / layout.wal_directory(self.shard_id)).iterdir()
        }

    def manifests(self) -> dict[int, bytes]:
        return {
            layout.parse_manifest_name(file.name): file.read_bytes()
            for file in (self.path / layout.manifest_directory(self.shard_id)).glob("*.binpb")
        }

    def table_manifest(self) -> bytes:
        """The newest manifest of the base table; names count down from 2**64 - 1."""
        return min((self.path / "_versions").glob("*.manifest")).read_bytes()

    def generations(self) -> dict[int, Path]:
        return {
            layout.parse_generation_name(file.name): file
            for file in (self.path / layout.shard_directory(self.shard_id)).glob("*_gen_*")
        }

    def bloom_filter(self, generation: int) -> bytes:
        return (self.generations()[generation] / layout.BLOOM_FILTER).read_bytes()

    def pk_index(self, generation: int) -> tuple[pa.Table, pa.Table]:
        """``page_data`` and ``page_lookup``, the latter with the metadata of its schema."""
        directory = self.generations()[generation] / layout.PK_INDEX
        data, lookup = (
            lance.file.LanceFileReader(str(directory / name))
            for name in (layout.PAGE_DATA, layout.PAGE_LOOKUP)
        )
        metadata = lookup.metadata().schema.metadata
        return data.read_all().to_table(), lookup.read_all().to_table().replace_schema_metadata(metadata)


@pytest.fixture
def library_table(tmp_path: Path) -> Callable[..., LibraryTable]:
    """Make an empty table with MemWAL: ``library_table(schema, ["id"], num_buckets=2, ...)``."""

    def make(schema: pa.Schema, key_columns: Sequence[str], **options: Any) -> LibraryTable:
        for position, name in enumerate(key_columns, 1):
            index = schema.get_field_index(name)
            field = schema.field(index).with_nullable(False)
            metadata = {PRIMARY_KEY: "true", PRIMARY_KEY_POSITION: str(position)}
            schema = schema.set(index, field.with_metadata(metadata))
        path = tmp_path / uuid.uuid4().hex
        dataset = lance.write_dataset(schema.empty_table(), str(path))
        dataset.initialize_mem_wal(**options)
        return LibraryTable(path, uuid.uuid4(), tuple(key_columns))

    return make


@pytest.fixture
def library_generation(library_table: Callable[..., LibraryTable]) -> Callable[..., LibraryTable]:
    """Let the library flush generation 1 with these key columns: ``library_generation([array, ...])``."""

    def make(keys: Sequence[pa.Array]) -> LibraryTable:
        names = [f"key{number}" for number in range(len(keys))]
        schema = pa.schema(
            [pa.field(name, key.type, nullable=False) for name, key in zip(names, keys, strict=True)]
        )
        table = library_table(schema, names)
        table.put(pa.table(list(keys), schema=table.dataset.schema))
        return table

    return make


# Lengths around the 8-byte words that hashing works in, and zero bytes, which encoding escapes.
_TEXT = st.text(st.sampled_from("\x00aé\U0001f30a"), max_size=20) | st.just("long" * 150)
_BYTES = st.binary(max_size=20) | st.sampled_from([b"\x00", b"\x00\xff", b"\xff", b"long" * 150])


def key_values(type: pa.DataType) -> st.SearchStrategy[object]:
    """Values of one type that a primary key may have."""
    if pa.types.is_boolean(type):
        return st.booleans()
    if pa.types.is_signed_integer(type):
        return st.integers(-(1 << type.bit_width - 1), (1 << type.bit_width - 1) - 1) | st.integers(-2, 2)
    if pa.types.is_unsigned_integer(type):
        return st.integers(0, (1 << type.bit_width) - 1) | st.integers(0, 2)
    if pa.types.is_string(type) or pa.types.is_large_string(type):
        return _TEXT
    return _BYTES


@st.composite
def _key_columns(
    draw: st.DrawFn, *, min_columns: int = 1, max_rows: int = 40, nulls: bool = False
) -> list[pa.Array]:
    rows = draw(st.integers(0, max_rows))
    offset = draw(st.integers(0, 9))
    columns = []
    for type in draw(st.lists(st.sampled_from(SUPPORTED_TYPES), min_size=min_columns, max_size=3)):
        value = key_values(type) | st.none() if nulls else key_values(type)
        pool = draw(st.lists(value, min_size=1, max_size=8))
        picks = draw(st.lists(st.sampled_from(pool), min_size=rows, max_size=rows))
        columns.append(pa.array([pool[0]] * offset + picks + [pool[0]], type).slice(offset, rows))
    return columns


@pytest.fixture(scope="session")
def key_columns() -> Callable[..., st.SearchStrategy[list[pa.Array]]]:
    """Strategy of up to three key columns of one length, as slices with an offset."""
    return _key_columns


@pytest.fixture(scope="session")
def keys_of_every_type() -> list[pa.Array]:
    """One column of each supported type, 50 rows each, not in order, some doubled, with awkward values."""
    columns = []
    for type in SUPPORTED_TYPES:
        if pa.types.is_boolean(type):
            values: list[object] = [row % 3 == 0 for row in range(50)]
        elif pa.types.is_integer(type):
            low = -(1 << type.bit_width - 1) if pa.types.is_signed_integer(type) else 0
            values = [low, low + (1 << type.bit_width) - 1, *(row * 37 % 101 for row in range(48))]
        else:
            texts = ["", "\x00", "\x00\x00", "a\x00b", "é\U0001f30a", "x" * 700]
            texts += ["k" * (row * 13 % 29) for row in range(44)]
            values = list(texts) if "string" in str(type) else [text.encode() + b"\xff" for text in texts]
        columns.append(pa.array(values, type))
    return columns
