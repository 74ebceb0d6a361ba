"""Strong reads while others write: what they cost, counted by requests, and what they show."""

from __future__ import annotations

import itertools
import random
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from tests.forked_program import weir_python

import weir
from weir.base.table import BaseTable
from weir.engine import failpoint
from weir.engine.failpoint import FailpointError
from weir.errors import ObjectNotFoundError
from weir.storage.counting import CountingStore
from weir.storage.interface import Bytes
from weir.storage.local import LocalStore

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("value", pa.string())])
SHARDS = 4

WRITER = """
import sys, weir
with weir.open(sys.argv[1]).writer(flush_on_close=False) as writer:
    writer.upsert([{"id": key, "value": "first"} for key in range(40)])
    print("written", flush=True)
    for line in sys.stdin:
        writer.upsert([{"id": int(line), "value": "later"}])
        print("written", flush=True)
"""


class OtherProcess:
    """A writer in another process that writes one row at a time, when told to."""

    def __init__(self, uri: str) -> None:
        self.process = subprocess.Popen(
            [*weir_python(), WRITER, uri], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._wait()

    def write(self, key: int) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{key}\n")
        self.process.stdin.flush()
        self._wait()

    def _wait(self) -> None:
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "written\n"


def table_in(directory: Path) -> weir.Table:
    made = weir.create(
        directory / "table", SCHEMA, primary_key="id", fsync=False, shard_by=weir.bucket("id", SHARDS)
    )
    return weir.Table(CountingStore(made.internals.store), made.internals.base)


@contextmanager
def other_process(table: weir.Table) -> Iterator[OtherProcess]:
    started = OtherProcess(table.uri)
    with started.process as process:
        yield started
        assert process.stdin is not None
        process.stdin.close()


@pytest.fixture
def table(tmp_path: Path) -> weir.Table:
    return table_in(tmp_path)


@pytest.fixture
def other(table: weir.Table) -> Iterator[OtherProcess]:
    with other_process(table) as started:
        yield started


def test_a_strong_read_adds_one_probe_per_shard(table: weir.Table, other: OtherProcess) -> None:
    store = table.internals.store
    assert isinstance(store, CountingStore)
    assert table.scan().count() == 40
    for key in range(100, 110):
        store.reset()
        # The listing finds shards that are new. No shard has a new entry: one probe each says so.
        assert table.get([1]).column("value").to_pylist() == ["first"]
        assert dict(store.counts) == {"list_directories": 1, "get": SHARDS}
        other.write(key)
        store.reset()
        # What was acknowledged elsewhere is there, for one request more: the entry itself.
        assert table.get([key]).column("value").to_pylist() == ["later"]
        assert dict(store.counts) == {"list_directories": 1, "get": SHARDS + 1}
    store.reset()
    table.get([1], consistency="bounded(600000)")
    assert not store.counts


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch, on_disk: Path) -> Path:
    """A directory whose status tells: what is in it was changed a minute ago, by the clocks of stamps."""
    for name in ("time_ns", "monotonic_ns"):
        clock = getattr(time, name)
        monkeypatch.setattr(time, name, lambda clock=clock: clock() + 60 * 10**9)
    return on_disk


def test_a_strong_read_asks_for_nothing_while_nothing_is_written(settled: Path) -> None:
    table = table_in(settled)
    store = table.internals.store
    assert isinstance(store, CountingStore)
    with other_process(table) as other:
        for key in range(100, 105):
            for _ in range(2):
                table.get([1])
            store.reset()
            assert table.get([1, key]).num_rows == 1
            assert not store.counts
            time.sleep(0.02)  # a step of the clock of the file system
            other.write(key)
            assert table.get([1, key]).num_rows == 2


def test_a_shard_whose_directory_was_there_before_it(settled: Path) -> None:
    """Whoever makes a directory may sleep before it puts anything there."""
    table = table_in(settled)
    like = weir.create(settled / "like", SCHEMA, primary_key="id", shard_by=weir.bucket("id", SHARDS))
    with like.writer() as writer:
        writer.upsert([{"id": key, "value": "first"} for key in range(40)])
    shutil.copytree(
        settled / "like/_mem_wal",
        settled / "table/_mem_wal",
        ignore=lambda at, names: [] if at.endswith("_mem_wal") else names,
    )
    reader = weir.open(table.uri)
    for _ in range(3):
        assert reader.scan().count() == 0
    time.sleep(0.02)
    with table.writer() as writer:
        for key in range(40):
            writer.upsert([{"id": key, "value": "first"}])
            assert reader.get([key]).num_rows == 1


def test_a_shard_that_is_claimed_and_has_no_manifest_yet(settled: Path) -> None:
    table = weir.create(settled / "table", SCHEMA, primary_key="id", fsync=False)
    reader = weir.open(table.uri)
    with failpoint.armed("claim.between_lease_and_epoch", "raise"), pytest.raises(FailpointError):
        table.upsert([{"id": 1, "value": "first"}])
    for _ in range(3):
        assert reader.get([1]).num_rows == 0
    time.sleep(0.02)
    with table.writer() as writer:
        writer.upsert([{"id": 1, "value": "first"}])
        assert reader.get([1]).num_rows == 1


@pytest.mark.parametrize("seed", range(4))
def test_handles_that_only_ask_the_file_system_see_what_a_new_one_sees(settled: Path, seed: int) -> None:
    chance, keys = random.Random(seed), itertools.count()
    shard_by = weir.bucket("id", SHARDS) if seed % 2 else None
    table = weir.create(settled / "table", SCHEMA, primary_key="id", fsync=False, shard_by=shard_by)
    backup = settled / "backup"

    def write(*, flush: bool) -> None:
        with weir.open(table.uri).writer(flush_on_close=flush) as writer:
            writer.upsert([{"id": next(keys) % 30, "value": str(chance.random())}])
            writer.delete([chance.randrange(30)])

    def append_with_library() -> None:
        rows = pa.table({"id": [100 + next(keys)], "value": ["appended"]}, schema=SCHEMA)
        lance.write_dataset(rows, table.uri, mode="append")

    def restore() -> None:
        shutil.rmtree(table.uri)
        shutil.copytree(backup, table.uri)

    steps: list[Callable[[], object]] = [
        lambda: write(flush=False),
        lambda: write(flush=True),
        lambda: weir.open(table.uri).maintenance.merge(),
        lambda: weir.open(table.uri).maintenance.collect_garbage(horizon=timedelta(0)),
        lambda: shutil.copytree(table.uri, backup, dirs_exist_ok=True),
        restore,
        append_with_library,
        lambda: None,
    ]
    steps[4]()
    handles = [weir.open(table.uri) for _ in range(3)]
    for _ in range(25):
        chance.choice(steps)()
        expected = weir.open(table.uri).scan().to_table().sort_by("id")
        for handle in handles:
            for _ in range(chance.randrange(4)):
                assert handle.scan().to_table().sort_by("id").equals(expected)
        time.sleep(0.02)


def test_a_shard_that_begins_and_merges_while_shards_are_listed(tmp_path: Path) -> None:
    """The merge has deleted and not yet written: without the shard, the base table shows half of it."""
    lance.write_dataset(pa.table({"id": [1, 2], "value": ["old", "old"]}), tmp_path / "table")
    table = weir.adopt(tmp_path / "table", primary_key="id", fsync=False)

    class ListsSlowly(LocalStore):
        began = False

        def list_directories(self, prefix: str) -> Sequence[str]:
            listed = super().list_directories(prefix)
            if not self.began:
                self.began = True
                with table.writer() as writer:
                    writer.upsert([{"id": 2, "value": "new"}])
                    writer.delete([1])
                with failpoint.armed("merge.between_passes", "raise"), pytest.raises(FailpointError):
                    table.maintenance.merge()
            return listed

    slow = ListsSlowly(table.uri, fsync=False)
    reader = weir.Table(slow, BaseTable.open(slow))
    assert reader.scan().to_table().to_pylist() == [{"id": 2, "value": "new"}]
    assert slow.began


def test_a_generation_whose_deletes_are_merged_after_the_log_was_read(tmp_path: Path) -> None:
    """Between the two commits of the merge the base table lacks what the reader did not see written anew."""
    table = weir.create(tmp_path / "table", SCHEMA, primary_key="id", fsync=False)
    with table.writer() as writer:
        writer.upsert([{"id": 1, "value": "old"}])
    table.maintenance.merge()
    with table.writer(flush_on_close=False) as writer:
        writer.upsert([{"id": 3, "value": "seen"}])

    class SleepsAtTheEndOfTheLog(LocalStore):
        slept = False

        def get(self, path: str) -> Bytes:
            try:
                return super().get(path)
            except ObjectNotFoundError:
                if path.endswith(".arrow") and not self.slept:
                    self.slept = True
                    with table.writer() as writer:
                        writer.upsert([{"id": 2, "value": "new"}])
                        writer.delete([1])
                    with failpoint.armed("merge.between_passes", "raise"), pytest.raises(FailpointError):
                        table.maintenance.merge()
                raise

    sleeper = SleepsAtTheEndOfTheLog(table.uri, fsync=False)
    reader = weir.Table(sleeper, BaseTable.open(sleeper))
    found = reader.scan().to_table().sort_by("id").to_pylist()
    assert sleeper.slept
    assert found == [{"id": 2, "value": "new"}, {"id": 3, "value": "seen"}]
