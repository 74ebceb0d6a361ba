"""Pages of the key index that are not what was written: no lookup lacks a row, no merge leaves one behind."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

import weir
from weir.base import key_index_files
from weir.engine.context import default_context
from weir.errors import CorruptionError

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("n", pa.int64())])
KEYS = 30_000


def made(uri: Path) -> weir.Table:
    rows = pa.table({"id": range(1, KEYS + 1), "n": range(KEYS)}, schema=SCHEMA)
    table = weir.create(uri, SCHEMA, primary_key="id")
    # The newest version is not the one that the index came with: that would be taken for a torn one.
    for some in (rows, rows.slice(0, 1)):
        with table.writer() as writer:
            writer.upsert(some)
        table.maintenance.merge()
    return table


def opened(uri: Path) -> weir.Table:
    default_context().cache.clear()
    return weir.open(uri)


def zeros(data: bytes) -> bytes:
    """As of a write that was lost: a block in the middle."""
    start = len(data) // 4
    return data[:start] + bytes(8192) + data[start + 8192 :]


def a_bit(data: bytes) -> bytes:
    damaged = bytearray(data)
    damaged[len(data) // 4 + 5] ^= 4
    return bytes(damaged)


def a_bit_of_an_address(data: bytes) -> bytes:
    """So that another row is found: addresses follow the keys."""
    damaged = bytearray(data)
    damaged[3 * len(data) // 4] ^= 1
    return bytes(damaged)


def newest(uri: Path, name: str) -> Path:
    return max(uri.glob(f"_indices/*/{name}"), key=lambda one: (one.stat().st_size, one.stat().st_mtime_ns))


def looked_up(uri: Path, keys: list[int]) -> None:
    """Look keys up one by one: those that are found are right."""
    for key in keys:
        assert opened(uri).get([key]).num_rows == 1


@pytest.mark.parametrize(
    ("name", "damage"), [("page_data.lance", zeros), ("page_lookup.lance", a_bit), ("page_data.lance", len)]
)
def test_a_lookup_that_meets_it_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, damage: Callable[[bytes], bytes | int]
) -> None:
    monkeypatch.setattr("weir.base.key_pages._COMPARED_WHOLE_BYTES", 0)
    made(tmp_path / "t")
    path = newest(tmp_path / "t", name)
    original = path.read_bytes()
    changed = damage(original)
    path.write_bytes(changed if isinstance(changed, bytes) else original[: changed // 2])
    keys = list(range(1, KEYS, 1000))
    with pytest.raises(CorruptionError) as raised:
        looked_up(tmp_path / "t", keys)
    assert raised.value.where == str(path)
    path.write_bytes(original)
    assert opened(tmp_path / "t").get(keys).num_rows == len(keys)


@pytest.mark.parametrize("damage", [zeros, a_bit, a_bit_of_an_address])
def test_a_small_index_is_compared_before_the_first_lookup(
    tmp_path: Path, damage: Callable[[bytes], bytes]
) -> None:
    made(tmp_path / "t")
    path = newest(tmp_path / "t", "page_data.lance")
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(CorruptionError) as raised:
        opened(tmp_path / "t").get([1])
    assert raised.value.where == str(path)


@pytest.mark.parametrize("damage", [zeros, a_bit])
@pytest.mark.parametrize("divided", [False, True])
def test_a_merge_leaves_no_row_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, divided: bool, damage: Callable[[bytes], bytes]
) -> None:
    monkeypatch.setattr("weir.merge.merge_insert._LOOKUP_BELOW", 1)
    made(tmp_path / "t")
    path = newest(tmp_path / "t", "page_data.lance")
    original = path.read_bytes()
    table = opened(tmp_path / "t")
    with table.writer() as writer:
        writer.upsert([{"id": key, "n": -key} for key in range(1, KEYS, 997)])
    path.write_bytes(damage(original))
    with pytest.raises(CorruptionError) as raised:
        opened(tmp_path / "t").maintenance.merge(divided=divided)
    assert raised.value.where == str(path)
    path.write_bytes(original)
    opened(tmp_path / "t").maintenance.merge(divided=divided)
    found = opened(tmp_path / "t").scan().to_table()
    assert found.num_rows == len(set(found.column("id").to_pylist())) == KEYS


def test_what_is_whole_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(tmp_path / "t")
    assert opened(tmp_path / "t").get([1]).num_rows == 1
    monkeypatch.setattr("weir.storage.checksum.checksum_of", lambda *_: pytest.fail("it is read again"))
    table = opened(tmp_path / "t")
    assert table.get([2]).num_rows == 1
    monkeypatch.setattr(
        "weir.base.key_pages.refuse_damaged_key_index", lambda *_, **__: pytest.fail("asked again")
    )
    assert table.get([3]).num_rows == 1
    assert key_index_files.PAGE_FILES
