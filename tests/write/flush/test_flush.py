"""Flushing in the background, its failures, and what a crash at each step leaves behind."""

from __future__ import annotations

import threading

import lance
import pyarrow as pa
import pytest
from tests.write.conftest import SHARD, OpenWriter, rows, wait_until

from weir.engine import failpoint
from weir.engine.failpoint import FailpointError
from weir.errors import BackpressureError, CorruptionError, FencedError, StorageError
from weir.format import layout
from weir.format.bloom_filter import BloomFilter
from weir.format.key_hash import hash_keys
from weir.log.manifest_store import read_latest_manifest
from weir.storage.counting import CountingStore
from weir.storage.interface import Bytes
from weir.storage.local import LocalStore
from weir.write.shard_writer import ShardWriter


def listed(store: LocalStore) -> list[tuple[int, pa.Table]]:
    latest = read_latest_manifest(store, SHARD)
    assert latest is not None
    return [
        (one.generation, lance.dataset(f"{store.uri}/{layout.generation_path(SHARD, one.path)}").to_table())
        for one in latest.flushed_generations
    ]


def test_generation_holds_the_newest_row_of_every_key(store: LocalStore, open_writer: OpenWriter) -> None:
    writer = open_writer(store)
    writer.submit(rows((1, "old"), (2, "kept"))).result()
    writer.submit(rows((1, "new"), (3, None), (3, "again"), (4, "x"))).result()
    writer.submit(rows((4, None))).result()
    writer.flush()
    ((generation, table),) = listed(store)
    assert generation == 1
    assert sorted(tuple(row.values()) for row in table.to_pylist()) == [
        (1, "new", False),
        (2, "kept", False),
        (3, "again", False),
        (4, None, True),
    ]


def test_bloom_filter_and_key_index_describe_the_rows(store: LocalStore, open_writer: OpenWriter) -> None:
    writer = open_writer(store)
    writer.submit(rows(*((key, "x") for key in range(0, 20000, 2)))).result()
    writer.flush()
    latest = read_latest_manifest(store, SHARD)
    assert latest is not None
    (flushed,) = latest.flushed_generations
    path = layout.bloom_filter_path(SHARD, flushed.path)
    bloom_filter = BloomFilter.from_bytes(store.get(path), where=path)
    assert bloom_filter.contains(hash_keys([pa.array(range(0, 20000, 2))])).all()
    assert bloom_filter.contains(hash_keys([pa.array(range(1, 20000, 2))])).mean() < 0.05
    keys = (
        lance.file.LanceFileReader(f"{store.uri}/{layout.page_data_path(SHARD, flushed.path)}")
        .read_all()
        .to_table()
    )
    assert keys.column("values").to_pylist() == list(range(0, 20000, 2))
    assert keys.column("ids").to_pylist() == list(range(10000))


def test_writes_go_on_while_a_flush_runs(
    store: LocalStore, open_writer: OpenWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered, release = threading.Event(), threading.Event()
    reach = failpoint.reach

    def hold(name: str) -> None:
        if name == "flush.after_data":
            entered.set()
            assert release.wait(20)
        reach(name)

    monkeypatch.setattr(failpoint, "reach", hold)
    writer = open_writer(store, max_memtable_rows=2)
    writer.submit(rows((1, "a"), (2, "b"))).result()
    assert entered.wait(20)
    # The flush of generation 1 stands still; generation 2 takes rows.
    writer.submit(rows((3, "c"))).result()
    assert listed(store) == []
    release.set()
    writer.flush()
    assert [generation for generation, _ in listed(store)] == [1, 2]


def has_to_wait(writer: ShardWriter) -> bool:
    try:
        writer._memtables.wait_for_room()
    except BackpressureError:
        return True
    return False


def test_too_many_waiting_memtables_push_back(store: LocalStore, open_writer: OpenWriter) -> None:
    writer = open_writer(store, max_memtable_rows=1, max_frozen_memtables=1, backpressure_timeout=0.3)
    before = writer.submit(rows((1, "a"))).result()
    writer.flush()
    with failpoint.armed("flush.before_manifest", "raise@every"):
        writer.submit(rows((2, "b"))).result()
        wait_until(lambda: writer._memtables.flush_error is not None)
        with pytest.raises(BackpressureError, match="waited to be flushed") as caught:
            writer.submit(rows((3, "c"))).result()
        assert isinstance(caught.value.__cause__, FailpointError)
    # Once flushes succeed again the writer goes on, and nothing acknowledged is missing.
    wait_until(lambda: not has_to_wait(writer))
    after = writer.submit(rows((1000, "d"))).result()
    assert after > before
    writer.flush()
    keys = [key for _, table in listed(store) for key in table.column("id").to_pylist()]
    assert sorted(keys) == [1, 2, 1000]


@pytest.mark.parametrize("point", ["flush.after_data", "flush.after_key_index", "flush.before_manifest"])
def test_failed_flush_leaves_an_orphan_and_can_be_repeated(
    store: LocalStore, open_writer: OpenWriter, point: str
) -> None:
    writer = open_writer(store)
    writer.submit(rows((1, "a"), (2, "b"))).result()
    with failpoint.armed(point, "raise"), pytest.raises(FailpointError):
        writer.flush()
    assert listed(store) == []
    assert writer.unflushed_rows == 2
    writer.submit(rows((2, "c"))).result()
    writer.flush()
    assert [(generation, table.num_rows) for generation, table in listed(store)] == [(1, 2), (2, 1)]


def test_a_writer_whose_unfinished_generation_was_collected_is_fenced(
    store: LocalStore, open_writer: OpenWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It slept while another writer took the shard over, and a collection removed what it had begun."""
    get = LocalStore.get

    def collected(here: LocalStore, path: str) -> Bytes:
        if "_gen_1/_versions/" in path:
            monkeypatch.setattr(LocalStore, "get", get)
            open_writer(store, namespace="elsewhere", takeover=True)
            store.delete([meta.path for meta in store.list("_mem_wal") if "_gen_1/" in meta.path])
        return get(here, path)

    writer = open_writer(store)
    writer.submit(rows((1, "a"))).result()
    monkeypatch.setattr(LocalStore, "get", collected)
    with pytest.raises(FencedError):
        writer.flush()
    assert listed(store) == []


class PanicException(BaseException):
    """What the library raises when it stops at a defect of its own: no Exception, and of this name."""


def test_a_panic_of_the_library_ends_the_flush_with_a_name(
    store: LocalStore, open_writer: OpenWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Taken for a flush that went well, it would be started again and again without end."""

    def panic(*_: object, **__: object) -> None:
        raise PanicException("assertion failed: end <= self.len()")

    writer = open_writer(store)
    writer.submit(rows((1, "a"))).result()
    with monkeypatch.context() as broken:
        broken.setattr("weir.write.flush.generation_writer.lance.write_dataset", panic)
        with pytest.raises(StorageError, match="end <= self"):
            writer.flush()
    assert writer.unflushed_rows == 1
    writer.flush()
    assert [(generation, table.num_rows) for generation, table in listed(store)] == [(1, 1)]


def test_replay_restores_the_memtable(store: LocalStore, open_writer: OpenWriter) -> None:
    first = open_writer(store)
    first.submit(rows((1, "a"))).result()
    first.flush()
    first.submit(rows((2, "b"))).result()
    first.submit(rows((1, None))).result()
    first.abandon()
    second = open_writer(store, namespace="another process")
    assert second.unflushed_rows == 2
    second.submit(rows((3, "c"))).result()
    second.flush()
    assert [(generation, sorted(table.column("id").to_pylist())) for generation, table in listed(store)] == [
        (1, [1]),
        (2, [1, 2, 3]),
    ]
    third = open_writer(store, namespace="third process", takeover=True)
    assert third.unflushed_rows == 0


def test_corrupt_entry_stops_the_claim(store: LocalStore, open_writer: OpenWriter) -> None:
    writer = open_writer(store)
    position = writer.submit(rows((1, "a"))).result()
    writer.submit(rows((2, "b"))).result()
    writer.abandon()
    path = layout.wal_path(SHARD, position)
    data = bytearray(store.get(path))
    data[-20] ^= 1
    store.put(path, bytes(data))
    with pytest.raises(CorruptionError, match=rf"position {position}"):
        open_writer(store, namespace="another process")


def test_round_trips(store: LocalStore, open_writer: OpenWriter) -> None:
    counting = CountingStore(store)
    writer = open_writer(counting)
    counting.reset()
    writer.submit(rows((1, "a"))).result()
    assert dict(counting.counts) == {"put_if_absent": 1}
    counting.reset()
    writer.submit(rows(*((key, "x") for key in range(1000)))).result()
    assert dict(counting.counts) == {"put_if_absent": 1}
    counting.reset()
    writer.flush()
    # Catalog; bloom filter; publish; whether the manifest before is there still, since collection may have
    # passed us; hint; make Lance's files durable.
    # On a local disk, and nowhere else: two looks more, whether the table is there still, and is the one that
    # it was; and for checksums, the files that the library has written, a list of them, and their manifest.
    round_trips = {"get": 1, "head": 1, "put": 3, "put_if_absent": 1, "sync": 1}
    assert dict(counting.counts) == round_trips | {"get": 3, "list": 1, "get_range": 6}


def test_a_flush_that_fails_says_what_and_nothing_of_the_library_source(
    store: LocalStore, open_writer: OpenWriter, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = open_writer(store)
    writer.submit(rows((1, "x"))).result()
    monkeypatch.setattr("weir.write.flush.generation_writer.secrets.token_hex", lambda _: "deadbeef")
    place = layout.generation_path(SHARD, layout.generation_name("deadbeef", 1))
    store.put(place, b"a file in the place of the generation")
    with pytest.raises(StorageError, match="a generation could not be written") as failed:
        writer.flush()
    assert "os error" in str(failed.value)
    assert ".rs:" not in str(failed.value)
    store.delete([place])
    writer.flush()
    assert [generation for generation, _ in listed(store)] == [1]


def test_a_flush_costs_as_much_as_the_one_before(store: LocalStore, open_writer: OpenWriter) -> None:
    """However often a writer has flushed, it does not look at all the manifests since its claim."""
    counting = CountingStore(store)
    writer = open_writer(counting)
    asked = []
    for number in range(12):
        writer.submit(rows((number, "x"))).result()
        counting.reset()
        writer.flush()
        asked.append(counting.counts)
    assert asked[-1] == asked[1]
    assert asked[-1]["get"] <= 5
