"""A read that fails over a damaged file of a local table names the file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import lance
import pyarrow as pa
import pytest

import weir
from weir.base.damaged_file import damaged_file
from weir.engine.context import default_context
from weir.errors import CorruptionError

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return where a table is with data files, and one deletion file."""
    uri = tmp_path_factory.mktemp("damaged") / "t"
    table = weir.create(uri, SCHEMA, primary_key="id", fsync=False)
    with table.writer() as writer:
        writer.upsert([{"id": key, "name": str(key)} for key in range(300)])
    table.maintenance.merge()
    with table.writer() as writer:
        writer.delete(list(range(50)))
    table.maintenance.merge()
    return uri


@pytest.mark.parametrize(
    "damage", [lambda _: b"", lambda data: data[: len(data) // 2], lambda data: bytes(len(data))]
)
@pytest.mark.parametrize("pattern", ["_deletions/*", "data/*"])
def test_it_is_named(place: Path, pattern: str, damage: Callable[[bytes], bytes]) -> None:
    path = next(place.glob(pattern))
    original = path.read_bytes()
    assert damaged_file(str(place)) == str(place)
    try:
        # Opened while all was well: opening looks for what a loss of power has torn.
        table = weir.open(place, fsync=False)
        path.write_bytes(damage(original))
        default_context().cache.clear()
        with pytest.raises(CorruptionError) as raised:
            table.get([1, 60])
        assert path.name in str(raised.value)
        with pytest.raises(CorruptionError) as raised:
            table.scan().to_table()
        assert path.name in str(raised.value)
    finally:
        path.write_bytes(original)
        default_context().cache.clear()


def test_the_file_of_an_index_is_named(place: Path) -> None:
    indexes = lance.dataset(place).describe_indices()
    (key_index,) = (one for one in indexes if one.field_names == ["id"])
    path = place / "_indices" / str(key_index.segments[0].uuid) / "page_data.lance"
    original = path.read_bytes()
    try:
        path.write_bytes(original[: len(original) // 2])
        assert damaged_file(str(place)) == str(path)
    finally:
        path.write_bytes(original)


@pytest.mark.parametrize(
    "pattern",
    [
        "data/*",
        "_indices/*/page_lookup.lance",
        "_mem_wal/*/*_gen_*/data/*",
        "_mem_wal/*/*_gen_*/_versions/*.manifest",
    ],
)
def test_a_file_that_is_whole_and_not_what_was_written_is_named(tmp_path: Path, pattern: str) -> None:
    """A bit that turned over in what describes its columns, say."""
    table = weir.create(tmp_path / "t", SCHEMA, primary_key="id")
    with table.writer() as writer:
        writer.upsert([{"id": key, "name": str(key)} for key in range(300)])
    table.maintenance.merge()
    with table.writer() as writer:
        writer.upsert([{"id": key, "name": "new"} for key in range(30)])
    path = max((tmp_path / "t").glob(pattern), key=lambda one: one.stat().st_mtime_ns)
    dataset = tmp_path / "t" if "_gen_" not in pattern else path.parent.parent
    assert damaged_file(str(dataset)) == str(dataset)
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 3] ^= 16
    path.write_bytes(damaged)
    assert damaged_file(str(dataset)) == str(path)


def test_where_there_is_no_dataset_it_is_the_place(tmp_path: Path) -> None:
    assert damaged_file(str(tmp_path)) == str(tmp_path)
    assert damaged_file("s3://bucket/table") == "s3://bucket/table"
