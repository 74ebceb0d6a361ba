from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.write.conftest import SHARD, OpenWriter, rows

from weir.format import generation_catalog, layout
from weir.format.generation_catalog import GenerationCatalog
from weir.log.manifest_store import read_latest_manifest
from weir.lsm.generation_files import check_generation_files, checksum_files
from weir.storage import checksum
from weir.storage.checksum import FileDamage
from weir.storage.interface import ObjectStore
from weir.storage.local import LocalStore
from weir.storage.open import open_store


@pytest.fixture
def generation(store: LocalStore, open_writer: OpenWriter) -> tuple[str, GenerationCatalog]:
    """Return the directory of a generation, and its catalog."""
    writer = open_writer(store)
    writer.submit(rows((1, "a"), (2, None), (3, "c"))).result()
    writer.flush()
    latest = read_latest_manifest(store, SHARD)
    assert latest is not None
    (flushed,) = latest.flushed_generations
    path = layout.generation_path(SHARD, flushed.path)
    catalog = generation_catalog.decode(store.get(f"{path}/{layout.CATALOG}"), where=path)
    assert catalog.checksums[layout.BLOOM_FILTER] == flushed.bloom_filter_checksum
    return path, catalog


def test_every_flipped_bit_of_every_file_is_found(
    store: LocalStore, generation: tuple[str, GenerationCatalog]
) -> None:
    path, catalog = generation
    files = {meta.path for meta in store.list(path)} - {f"{path}/{layout.CATALOG}"}
    assert {f"{path}/{name}" for name in catalog.checksums} == files
    assert check_generation_files(store, path, catalog) == ()
    for file in sorted(files):
        on_disk = Path(store.uri, file)
        whole = on_disk.read_bytes()
        for at in {0, len(whole) // 2, len(whole) - 1}:
            broken = bytearray(whole)
            broken[at] ^= 16
            on_disk.write_bytes(broken)
            (found,) = check_generation_files(store, path, catalog)
            assert found.path == file
            assert "was written" in found.problem
        on_disk.write_bytes(whole[:-1])
        assert [found.path for found in check_generation_files(store, path, catalog)] == [file]
        on_disk.unlink()
        assert check_generation_files(store, path, catalog) == (FileDamage(file, "the file is missing"),)
        on_disk.write_bytes(whole)
    assert check_generation_files(store, path, catalog) == ()


def test_nothing_is_said_of_files_without_a_checksum(
    store: LocalStore, generation: tuple[str, GenerationCatalog]
) -> None:
    path, catalog = generation
    store.put(f"{path}/added", b"by somebody else")
    assert check_generation_files(store, path, catalog) == ()
    store.put(f"{path}/{layout.BLOOM_FILTER}", b"damaged")
    assert check_generation_files(store, path, replace(catalog, checksums={})) == ()


@pytest.mark.parametrize("size", [0, 1, 63, 64, 65, 200])
def test_files_are_read_in_pieces(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    store: ObjectStore = open_store("memory://pieces")
    store.put("directory/file", bytes(range(size)))
    whole = checksum_files(store, "directory")
    monkeypatch.setattr(checksum, "_PIECE_BYTES", 64)
    assert checksum_files(store, "directory") == whole
    assert check_generation_files(store, "directory", GenerationCatalog(0, 0, {}, whole)) == ()
    assert checksum_files(store, "directory", leave_out=("file",)) == {}
