"""The ids that log entries and generations carry are those of the base table, as the library's are."""

from __future__ import annotations

import uuid
from pathlib import Path

import lance
import pyarrow as pa

import weir
from weir.base.dataset_fields import generation_schema, row_schema
from weir.base.schema import key_metadata
from weir.base.table import BaseTable
from weir.format.field_ids import FIELD_ID, interned, new_field_ids, with_field_ids
from weir.storage.open import open_store

_TYPES = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False, metadata=key_metadata(0, 1)),
        ("gone", pa.struct([("x", pa.int8())])),
        ("s", pa.struct([("x", pa.int32()), ("y", pa.list_(pa.string()))])),
        ("m", pa.map_(pa.string(), pa.struct([("q", pa.int8())]))),
        ("v", pa.list_(pa.float32(), 4)),
        ("vs", pa.list_(pa.list_(pa.float32(), 2))),
        ("l", pa.large_list(pa.struct([("z", pa.decimal128(10, 2))]))),
        ("d", pa.dictionary(pa.int32(), pa.string())),
    ]
)


def test_a_new_dataset_is_numbered_as_expected() -> None:
    dataset = lance.write_dataset(_TYPES.empty_table(), "memory://")
    assert (
        row_schema(dataset)
        .remove(len(_TYPES))
        .equals(with_field_ids(dataset.schema, new_field_ids(_TYPES)), check_metadata=True)
    )


def test_ids_are_those_of_the_librarys_own_files(tmp_path: Path) -> None:
    dataset = lance.write_dataset(_TYPES.empty_table(), str(tmp_path))
    dataset.drop_columns(["gone", "s.x"])
    dataset.add_columns(pa.field("late", pa.float64()))
    dataset.initialize_mem_wal(unsharded=True)
    writer = dataset.mem_wal_writer(str(uuid.uuid4()))
    writer.put(pa.Table.from_pylist([{"id": 1}], schema=dataset.schema))
    writer.close()

    (entry,) = tmp_path.glob("_mem_wal/*/wal/*.arrow")
    theirs = pa.ipc.open_stream(entry.read_bytes()).schema
    assert row_schema(dataset).equals(theirs.remove_metadata(), check_metadata=True)

    (generation,) = tmp_path.glob("_mem_wal/*/*_gen_1")
    found = generation_schema(lance.dataset(str(generation)))
    assert [(field.metadata or {}).get(FIELD_ID) for field in found] == [
        (field.metadata or {}).get(FIELD_ID) for field in theirs
    ]
    assert [field.type for field in found] == [field.type for field in theirs]


def test_the_order_of_metadata_tells_no_schemas_apart(tmp_path: Path) -> None:
    """The library returns it in another order each time, and a writer flushes where columns change."""
    both = {
        b"lance-schema:unenforced-primary-key": b"true",
        b"lance-schema:unenforced-primary-key:position": b"1",
    }
    turned = dict(reversed(both.items()))
    one, other = (
        pa.schema(
            [
                pa.field("id", pa.int64(), metadata=metadata),
                pa.field("in", pa.struct([pa.field("x", pa.int8(), metadata=metadata)])),
            ],
            metadata=metadata,
        )
        for metadata in (both, turned)
    )
    assert one.serialize() != other.serialize()
    assert interned(one) is interned(other)
    assert interned(one) is not interned(one.remove_metadata())

    uri = str(tmp_path / "t")
    keys = pa.schema([pa.field(name, pa.int64(), nullable=False) for name in "ab"])
    weir.create(uri, keys, primary_key=["a", "b"])
    found = [BaseTable.open(open_store(uri)).row_schema for _ in range(16)]
    assert all(one is found[0] for one in found)
