"""Files of indexes stay open, but no more than some: a process that merges all day goes on."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lance
import pyarrow as pa
import pytest

import weir
from weir.base import open_files

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("text", pa.string())])


@pytest.fixture
def most(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.setattr(open_files, "_MOST", 3)
    open_files._recent.clear()
    yield 3
    open_files._recent.clear()


def test_what_indexes_need_is_read_however_many_tables_there_are(tmp_path: Path, most: int) -> None:
    tables = []
    for number in range(4):
        table = weir.create(tmp_path / str(number), SCHEMA, primary_key="id", fsync=False, maintenance="off")
        table.upsert([{"id": id, "text": f"word{id} in table{number}"} for id in range(50)])
        table.writer().close()
        table.maintenance.merge()
        lance.dataset(table.uri).create_scalar_index("text", "INVERTED", stem=False)
        tables.append(table)

    def ask(at: int) -> None:
        table, id = tables[at % 4], at % 50
        assert table.get([id]).to_pylist() == [{"id": id, "text": f"word{id} in table{at % 4}"}]
        found = table.search_text(f"word{id}", columns=["id"]).to_table()
        assert found["id"].to_pylist() == [id]

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(ask, range(100)))
    opened = [one for one in open_files._recent if one._reader is not None]
    assert 0 < len(opened) <= most


def test_a_local_file_that_nobody_reads_is_closed(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    now = 1000.0
    # For this module alone: other threads of the process wait by the clock.
    monkeypatch.setattr("weir.base.open_files.time", SimpleNamespace(monotonic=lambda: now))
    opened: list[str] = []

    def file(name: str, *, is_local: bool) -> Any:
        def again() -> Any:
            opened.append(name)
            return name

        reader: Any = name
        return open_files.OpenFile(again, reader, is_local=is_local)

    one, far = file("one", is_local=True), file("far", is_local=False)
    now += 16
    two = file("two", is_local=True)
    with one.reader(), far.reader(), two.reader():
        pass
    # Of an object store it would cost requests to open it again.
    assert opened == ["one"]
    now += 14
    with one.reader():
        pass
    assert opened == ["one"]


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts what Linux tells of processes")
def test_indexes_that_are_no_more_are_let_go_of(tmp_path: Path) -> None:
    table = weir.create(tmp_path / "table", SCHEMA, primary_key="id", fsync=False, maintenance="off")
    table.indexes.create("text", "INVERTED")
    table.upsert([{"id": id, "text": f"word{id}"} for id in range(200)])

    def merge() -> None:
        table.writer().flush()
        table.maintenance.merge()
        table.maintenance.catch_up_indexes()

    merge()
    held = []
    for round in range(10):
        table.upsert([{"id": round, "text": f"word{round} again"}])
        merge()
        # Puts the parts of indexes together too, for which the library opens them.
        table.maintenance.compact()
        gc.collect()
        held.append(_index_files_of(tmp_path))
    table.writer().close()
    assert max(held) <= 12, held


def _index_files_of(directory: Path) -> int:
    """How many files of indexes below a directory this process has open."""
    count = 0
    for number in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            at = os.readlink(f"/proc/self/fd/{number}")
            count += at.startswith(str(directory)) and "_indices" in at
    return count
