"""An index whose files are damaged: an error with a name, and writes that go on."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import weir
from weir.engine.context import default_context
from weir.errors import CorruptionError, WeirError

SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string()), ("vector", pa.list_(pa.float32(), 4))])


def rows(*ids: int) -> pa.Table:
    return pa.table(
        {
            "id": ids,
            "text": [f"word {number}" for number in ids],
            "vector": pa.array([[number, 1.0, 2.0, 3.0] for number in ids], SCHEMA.field("vector").type),
        },
        schema=SCHEMA,
    )


@pytest.fixture
def table(tmp_path: Path) -> weir.Table:
    made = weir.create(tmp_path / "t", SCHEMA, primary_key="id", fsync=False)
    with made.writer() as writer:
        writer.upsert(rows(*range(300)))
    made.maintenance.merge()
    return made


def damaged(table: weir.Table, pattern: str, *, keep: int) -> weir.Table:
    """Cut the files off, and return the table as a process sees it that has read nothing yet."""
    files = list(Path(table.uri).glob(f"_indices/*/{pattern}"))
    assert files
    for path in files:
        path.write_bytes(path.read_bytes()[:keep])
    default_context().cache.clear()
    return weir.open(table.uri, fsync=False)


@pytest.mark.parametrize("kind", ["IVF_FLAT", "IVF_PQ"])
def test_writes_go_on_without_a_vector_index(
    table: weir.Table, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    parameters: dict[str, Any] = {"num_sub_vectors": 2} if kind == "IVF_PQ" else {}
    table.indexes.create("vector", kind, num_partitions=2, **parameters)
    reader = damaged(table, "*.idx", keep=80)
    with pytest.raises(CorruptionError, match="vector_idx"):
        reader.search([1.0, 1.0, 2.0, 3.0], k=3, column="vector").to_table()
    with caplog.at_level(logging.WARNING, "weir"), reader.writer() as writer:
        writer.upsert(rows(1000))
    told = [getattr(record, "event_fields", {}).get("event") for record in caplog.records]
    assert "index.damaged" in told
    assert reader.get([1000]).num_rows == 1
    reader.indexes.drop("vector_idx")
    found = reader.search([1000.0, 1.0, 2.0, 3.0], k=1, column="vector").to_table()
    assert found.column("id").to_pylist() == [1000]


@pytest.mark.covering
@pytest.mark.parametrize("pattern", ["part_*_tokens.lance", "part_*_invert.lance", "metadata.lance"])
@pytest.mark.parametrize("keep", [0, 90, 400])
def test_a_full_text_index_is_named(table: weir.Table, pattern: str, keep: int) -> None:
    table.indexes.create("text", "INVERTED")
    reader = damaged(table, pattern, keep=keep)
    with pytest.raises(WeirError):
        reader.search_text("word", k=3, column="text").to_table()


@pytest.mark.parametrize("pattern", ["part_*_tokens.lance", "part_*_invert.lance", "metadata.lance"])
def test_an_index_whose_file_is_gone_from_the_newest_version(
    table: weir.Table, tmp_path: Path, pattern: str
) -> None:
    """The version is taken for a torn one, and the one before has no index: that is not all to be said."""
    table.indexes.create("text", "INVERTED")
    (path,) = Path(table.uri).glob(f"_indices/*/{pattern}")
    path.unlink()
    # Where this process has not seen it whole.
    reader = weir.open(shutil.copytree(table.uri, tmp_path / "copy"), fsync=False)
    with pytest.raises(CorruptionError, match=f"{path.parent.name}/{path.name} is gone"):
        reader.search_text("word", k=3, column="text").to_table()


def test_a_zone_map_is_named(tmp_path: Path) -> None:
    """It is the only place that says how it was built."""
    made = weir.create(tmp_path / "t", SCHEMA, primary_key="id")
    with made.writer() as writer:
        writer.upsert(rows(*range(300)))
    made.maintenance.merge()
    made.indexes.create("id", "ZONEMAP", name="zones")
    (path,) = Path(made.uri).glob("_indices/*/zonemap.lance")
    whole = path.read_bytes()
    named = 0
    for at in range(0, len(whole), 16):
        damaged = bytearray(whole)
        damaged[at] ^= 16
        path.write_bytes(damaged)
        default_context().cache.clear()
        try:
            weir.open(made.uri).indexes.list()
        except CorruptionError as error:
            assert error.where == str(path)
            named += 1
    assert named


def test_a_generation_without_its_columns_is_corruption(table: weir.Table) -> None:
    """Lance takes a manifest of zeros for a dataset without columns."""
    with table.writer() as writer:
        writer.upsert(rows(5))
    (manifest,) = Path(table.uri).glob("_mem_wal/*/*_gen_2/_versions/*.manifest")
    manifest.write_bytes(bytes(manifest.stat().st_size))
    default_context().cache.clear()
    reader = weir.open(table.uri, fsync=False)
    with pytest.raises(CorruptionError):
        reader.scan().to_table()
    with pytest.raises(CorruptionError):
        reader.get([5])
