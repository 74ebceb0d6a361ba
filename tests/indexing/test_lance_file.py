from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from lance.file import LanceFileReader, LanceFileWriter

from weir.errors import CorruptionError
from weir.indexing.lance_file import LanceFile
from weir.storage.open import open_store


@pytest.fixture
def place(tmp_path: Path) -> Path:
    path = tmp_path / "some.lance"
    schema = pa.schema([("id", pa.int64())])
    with LanceFileWriter(str(path), schema) as writer:
        writer.write_batch(pa.record_batch({"id": list(range(100))}, schema=schema))
        writer.add_schema_metadata("told", "something")
        for length in (0, 1, 5_000):
            writer.add_global_buffer(bytes(range(256)) * 20 if length == 5_000 else b"x" * length)
    return path


def test_buffers_and_metadata_are_those_that_the_library_reads(place: Path) -> None:
    file, reader = LanceFile(open_store(place.parent), place.name), LanceFileReader(str(place))
    theirs = reader.metadata().schema.metadata
    assert {name.encode(): value for name, value in file.metadata().items()} == theirs
    assert [bytes(file.buffer(n)) for n in range(4)] == [
        bytes(reader.read_global_buffer(n)) for n in range(4)
    ]
    with pytest.raises(CorruptionError, match="none with the number 4"):
        file.buffer(4)


def test_a_file_that_is_cut_or_is_none_is_named(place: Path) -> None:
    whole, store = place.read_bytes(), open_store(place.parent)
    for data in (b"", b"LANC", whole[:-1], whole[-100:], bytes(100)):
        place.write_bytes(data)
        with pytest.raises(CorruptionError, match=r"Lance file|global buffer|description") as caught:
            LanceFile(store, place.name).metadata()
        assert caught.value.where == str(place)
