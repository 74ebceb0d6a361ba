"""Snapshot tokens: what they show, what keeps them readable, and what is said when they are not."""

from __future__ import annotations

import gc
import pickle
import secrets
import shutil
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import lance
import pyarrow as pa
import pytest
from tests.forked_program import weir_python
from tests.snapshots.stores import LossyStore
from tests.storage.s3 import S3Endpoint, s3_endpoint

import weir
from weir.base.manifest import manifest_path
from weir.base.table import BaseTable
from weir.engine.context import default_context
from weir.errors import (
    ConflictError,
    CorruptionError,
    InputError,
    ObjectExistsError,
    OptionError,
    SchemaError,
    SnapshotExpiredError,
    StorageError,
)
from weir.format import layout, shard_manifest
from weir.format.snapshot_pin import SNAPSHOTS, pin_path
from weir.format.snapshot_token import SnapshotToken
from weir.snapshots.snapshot import ReadSnapshot
from weir.snapshots.tokens import expired_pins, live_roots
from weir.storage.counting import CountingStore
from weir.storage.interface import ObjectStore
from weir.storage.open import open_store
from weir.table.table import Table

__all__ = ["s3_endpoint"]

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("name", pa.string())])
HOUR = timedelta(hours=1)


def rows(*ids: int, name: str) -> list[dict[str, Any]]:
    return [{"id": one, "name": name} for one in ids]


def names(found: pa.Table) -> dict[int, str]:
    assert len(set(found.column("id").to_pylist())) == found.num_rows
    return dict(zip(found.column("id").to_pylist(), found.column("name").to_pylist(), strict=True))


def opened(uri: str, wrap: Callable[[ObjectStore], ObjectStore]) -> tuple[Table, Any]:
    """Open a table on a store that does something of its own."""
    store = wrap(open_store(uri, fsync=False))
    return Table(store, BaseTable.open(store)), store


@pytest.fixture
def table(tmp_path: Path) -> weir.Table:
    """A table with rows in the base table, in a generation, and in the log alone."""
    made = weir.create(tmp_path / "t", SCHEMA, primary_key="id", fsync=False)
    with made.writer(flush_on_close=False) as writer:
        writer.upsert(rows(1, 2, 3, name="base"))
        writer.flush()
        made.maintenance.merge()
        writer.upsert(rows(2, 4, name="generation"))
        writer.flush()
        writer.upsert(rows(4, 5, name="log"))
        writer.delete([3])
    return made


THEN = {1: "base", 2: "generation", 4: "log", 5: "log"}


def change_everything(table: weir.Table) -> None:
    with table.writer() as writer:
        writer.upsert(rows(1, 2, 3, 4, 5, 6, name="later"))
        writer.flush()
        table.maintenance.merge()
        writer.upsert(rows(7, name="later still"))
    table.maintenance.merge()
    lance.dataset(table.uri).optimize.compact_files()


# --- What a token shows ------------------------------------------------------------------------


def test_a_token_shows_what_was_there(table: weir.Table) -> None:
    token = table.snapshot()
    later = dict.fromkeys(range(1, 7), "later") | {7: "later still"}
    for _ in range(2):
        assert names(table.scan(at=token).to_table()) == THEN
        change_everything(table)
        assert names(table.scan().to_table()) == later
        for cold in (False, True):
            if cold:
                default_context().cache.clear()
                table = weir.open(table.uri, fsync=False)
            for at in (token, str(token), token.unpinned(), pickle.loads(pickle.dumps(token))):
                assert names(table.scan(at=at).to_table()) == THEN
                assert table.scan(at=at, filter="name = 'log'").count() == 2
                assert table.scan(["name"], at=at, limit=2).to_table().num_rows == 2
                assert names(table.get([5, 3, 1, 7], at=at)) == {5: "log", 1: "base"}
                assert sum(batch.num_rows for batch in table.scan(at=at).to_batches()) == 4
        assert names(table.get([1, 7])) == {1: "later", 7: "later still"}


def test_tokens_of_different_moments_share_a_log(table: weir.Table) -> None:
    """Runs of the same log that end at different positions are never taken for each other."""
    shown = {}
    with table.writer(flush_on_close=False) as writer:
        for number in range(12):
            writer.upsert(rows(number % 5, name=f"write {number}"))
            shown[table.snapshot(retain=None)] = names(table.scan().to_table())
    for token in [*shown, *reversed(shown)]:
        assert names(table.scan(at=token).to_table()) == shown[token]
        assert names(table.get(list(range(6)), at=token)) == shown[token]


def test_another_process_reads_the_text(table: weir.Table) -> None:
    token = table.snapshot()
    change_everything(table)
    code = "import sys, weir; print(weir.open(sys.argv[1]).scan(at=sys.argv[2]).count())"
    done = subprocess.run(
        [*weir_python(), code, table.uri, str(token)],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stdout == "4\n"


def test_a_token_of_an_empty_table_and_of_shards_that_come_later(tmp_path: Path) -> None:
    table = weir.create(tmp_path / "t", SCHEMA, primary_key="id", shard_by=weir.bucket("id", 4), fsync=False)
    empty = table.snapshot()
    assert empty.shards == ()
    with table.writer() as writer:
        writer.upsert(rows(1, name="one"))
        one = table.snapshot()
        writer.upsert(rows(*range(20), name="many"))
    table.maintenance.merge()
    assert table.scan(at=empty).count() == 0
    assert table.get([1], at=empty).num_rows == 0
    assert names(table.scan(at=one).to_table()) == {1: "one"}
    assert len(one.shards) == 1
    assert len(table.snapshot().shards) == 4


def test_columns_are_those_of_then(table: weir.Table) -> None:
    token = table.snapshot()
    # Columns of nulls are all that the library adds to a table with a log.
    lance.dataset(table.uri).add_columns(pa.field("size", pa.int32()))
    table = weir.open(table.uri, fsync=False)
    assert table.schema.names == ["id", "name", "size"]
    assert names(table.scan(at=token).to_table()) == THEN
    assert table.scan(at=token).to_table().schema.names == ["id", "name"]
    assert table.get([1], at=token).to_pylist() == [{"id": 1, "name": "base"}]
    with pytest.raises(SchemaError, match="no column 'size'"):
        table.scan(["size"], at=token).to_table()
    with pytest.raises(SchemaError, match="no column 'size'"):
        table.get([1], ["size"], at=token)
    assert table.get([1], ["size"]).num_rows == 1


# --- What cannot be asked ----------------------------------------------------------------------


def test_a_token_of_another_table_names_both(table: weir.Table, tmp_path: Path) -> None:
    other = weir.create(tmp_path / "other", SCHEMA, primary_key="id", fsync=False)
    token = other.snapshot()
    mine = table.snapshot()
    for ask in (
        lambda: table.scan(at=token),
        lambda: table.get([1], at=str(token)),
        lambda: table.release(token),
        lambda: table.changes(token),
        lambda: table.changes(until=token),
    ):
        with pytest.raises(InputError) as caught:
            ask()
        assert token.table in str(caught.value)
        assert mine.table in str(caught.value)


@pytest.mark.parametrize("consistency", ["strong", "snapshot", weir.bounded(5)])
def test_a_token_and_a_consistency_contradict_each_other(table: weir.Table, consistency: Any) -> None:
    token = table.snapshot()
    with pytest.raises(OptionError, match="contradicts"):
        table.scan(at=token, consistency=consistency)
    with pytest.raises(OptionError, match="contradicts"):
        table.get([1], at=token, consistency=consistency)


@pytest.mark.parametrize("at", [5, "", "w1.", b"w1.", {"token": 1}])
def test_what_is_no_token_is_refused(table: weir.Table, at: Any) -> None:
    with pytest.raises(InputError):
        table.scan(at=at)


@pytest.mark.parametrize("retain", [timedelta(seconds=-1), True, "1h"])
def test_retain_is_a_length_of_time(table: weir.Table, retain: Any) -> None:
    with pytest.raises(OptionError, match="retain must be"):
        table.snapshot(retain=retain)


# --- What keeps a token readable ---------------------------------------------------------------


def test_pins_hold_collection_back_until_they_are_released(table: weir.Table) -> None:
    pinned, other, loose = table.snapshot(), table.snapshot(), table.snapshot(retain=None)
    assert pinned.unpinned() == other.unpinned() == loose
    change_everything(table)
    for holders in (2, 1, 0):
        for _ in range(3):
            table.maintenance.collect_garbage(horizon=timedelta(0), version_retention=timedelta(0))
        default_context().cache.clear()
        table = weir.open(table.uri, fsync=False)
        if holders:
            for token in (pinned, other, loose):
                assert names(table.scan(at=token).to_table()) == THEN
        table.release(pinned if holders == 2 else str(other))
    for token in (pinned, other, loose):
        with pytest.raises(SnapshotExpiredError, match="is gone"):
            table.scan(at=token).to_table()
    assert table.scan().count() == 7


def test_a_pin_lasts_as_long_as_was_said(table: weir.Table) -> None:
    """The hint says what to do when it has not lasted long enough."""
    token = table.snapshot(retain=timedelta(milliseconds=300))
    expires = time.monotonic() + 0.3
    change_everything(table)
    table.maintenance.collect_garbage(horizon=timedelta(0), version_retention=timedelta(0))
    if time.monotonic() < expires:
        assert names(table.scan(at=token).to_table()) == THEN
    time.sleep(max(expires - time.monotonic(), 0) + 0.01)
    for _ in range(2):
        table.maintenance.collect_garbage(horizon=timedelta(0), version_retention=timedelta(0))
    default_context().cache.clear()
    with pytest.raises(SnapshotExpiredError, match="is gone") as caught:
        weir.open(table.uri, fsync=False).scan(at=token).to_table()
    assert "retain=" in str(caught.value.hint)
    assert list(open_store(table.uri, fsync=False).list(SNAPSHOTS)) == []


@pytest.mark.one_in(3)
@pytest.mark.parametrize("pin", ["../../secret", "/etc/passwd", "..", "0" * 31 + "/", "%2e%2e", "A" * 32])
def test_no_token_names_another_file_than_a_pin(table: weir.Table, pin: str) -> None:
    token = table.snapshot()
    with pytest.raises(InputError, match="id of a pin"):
        replace(token, pin=pin)
    assert Path(table.uri, pin_path(str(token.pin))).exists()


def test_roots_are_what_is_pinned_and_has_not_expired(table: weir.Table) -> None:
    store = open_store(table.uri, fsync=False)
    now = datetime.now(UTC)
    assert live_roots(store, now) == ()
    hour, day = table.snapshot(retain=HOUR), table.snapshot(retain=timedelta(days=1))
    table.snapshot(retain=None)
    table.snapshot(retain=timedelta(0))
    forever = table.snapshot(retain=timedelta.max)
    assert {root.holder for root in live_roots(store, now)} == {
        f"snapshot {token.pin}" for token in (hour, day, forever)
    }
    (root,) = (root for root in live_roots(store, now) if root.holder == f"snapshot {hour.pin}")
    (cut,) = hour.shards
    (shard,) = root.shards
    assert root.base_version == hour.base_version == table.status().base_version
    assert (shard.shard_id, shard.manifest_version) == (cut.shard_id, cut.manifest_version)
    assert shard.first_position == cut.first_position == root.first_position(cut.shard_id)
    assert root.first_position(UUID(int=1)) is None
    assert abs(root.expires_at - now - HOUR) < timedelta(minutes=1)
    later = now + timedelta(hours=2)
    assert {root.holder for root in live_roots(store, later)} == {
        f"snapshot {day.pin}",
        f"snapshot {forever.pin}",
    }
    assert expired_pins(store, now) == ()
    assert expired_pins(store, later) == (pin_path(str(hour.pin)),)
    for token in (day, day, forever, hour):
        table.release(token)
    assert live_roots(store, now) == ()
    assert list(store.list(SNAPSHOTS)) == []


def test_a_damaged_pin_stops_collection_rather_than_being_passed_over(table: weir.Table) -> None:
    token = table.snapshot()
    path = Path(table.uri) / pin_path(str(token.pin))
    path.write_text(path.read_text().replace("created_at", "creeated_at"))
    store = open_store(table.uri, fsync=False)
    with pytest.raises(CorruptionError, match="checksum") as caught:
        live_roots(store, datetime.now(UTC))
    assert str(token.pin) in str(caught.value.where)


def test_a_lost_answer_does_not_lose_a_pin(table: weir.Table) -> None:
    table, store = opened(table.uri, LossyStore)
    store.lose = [ObjectExistsError]
    token = table.snapshot()
    assert len(live_roots(store, datetime.now(UTC))) == 1
    table.release(token)
    store.lose = [StorageError]
    with pytest.raises(StorageError, match="the answer was lost"):
        table.snapshot()


# --- What is said when it is not ---------------------------------------------------------------


def gone(table: weir.Table, token: SnapshotToken) -> str:
    """Return what an expired token says, in this process and in one that remembers nothing."""
    default_context().cache.clear()
    table = weir.open(table.uri, fsync=False)
    messages = set()
    for read in (
        lambda: table.scan(at=token).to_table(),
        lambda: list(table.scan(at=token).to_batches()),
        lambda: table.scan(at=token).to_reader().read_all(),
        lambda: table.scan(["id"], at=token, filter="name = 'generation'").to_table(),
        lambda: table.get([1, 2, 3, 4, 5], at=token),
    ):
        with pytest.raises(SnapshotExpiredError) as caught:
            read()
        messages.add(caught.value.message)
    (message,) = messages
    return message


def test_a_base_version_that_is_gone_is_named(table: weir.Table) -> None:
    token = table.snapshot()
    change_everything(table)
    lance.dataset(table.uri).cleanup_old_versions(older_than=timedelta(0), delete_unverified=True)
    assert f"version {token.base_version} of the base table is gone" in gone(table, token)


def test_files_of_a_base_version_that_vanish_while_it_is_open_are_named(table: weir.Table) -> None:
    token = table.snapshot()
    assert table.scan(at=token).count() == 4
    change_everything(table)
    assert names(table.scan(at=token).to_table()) == THEN
    lance.dataset(table.uri).cleanup_old_versions(older_than=timedelta(0), delete_unverified=True)
    with pytest.raises(SnapshotExpiredError, match=f"version {token.base_version} of the base table"):
        table.scan(at=token).to_table()


def test_a_manifest_that_is_gone_is_named(table: weir.Table) -> None:
    token = table.snapshot()
    (cut,) = token.shards
    change_everything(table)
    (Path(table.uri) / layout.manifest_path(cut.shard_id, cut.manifest_version)).unlink()
    message = gone(table, token)
    assert f"version {cut.manifest_version} of the manifest of shard {cut.shard_id} is gone" in message


def test_another_manifest_in_its_place_is_not_taken_for_it(table: weir.Table) -> None:
    """As a writer may put it there that slept until the one it competed with was collected."""
    token = table.snapshot()
    (cut,) = token.shards
    path = Path(table.uri) / layout.manifest_path(cut.shard_id, cut.manifest_version)
    manifest = shard_manifest.decode(path.read_bytes(), where="here")
    changes: dict[str, Any]
    for changes in (
        {"writer_epoch": 9},
        {"replay_after_wal_entry_position": 1},
        # The same but for what it lists, as of two writers that flush after the same claim.
        {"write_id": secrets.token_bytes(16), "flushed_generations": ()},
    ):
        path.write_bytes(shard_manifest.encode(replace(manifest, **changes)))
        assert f"version {cut.manifest_version} of the manifest" in gone(table, token)
    assert any("another is in its place" in str(one) for one in table.maintenance.verify().findings)


def test_a_token_of_an_older_weir_is_read(table: weir.Table) -> None:
    """It does not say which commit made the manifests that it names."""
    token = table.snapshot()
    old = replace(token, base_stamp=b"")
    oldest = replace(old, shards=tuple(replace(cut, stamp=b"") for cut in token.shards))
    change_everything(table)
    default_context().cache.clear()
    expected = names(weir.open(table.uri).scan(at=str(token)).to_table())
    for older in (old, oldest):
        assert names(weir.open(table.uri).scan(at=str(older)).to_table()) == expected


def test_a_pin_that_came_too_late_does_not_take_another_manifest_for_its_own(
    table: weir.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    (cut,) = table.snapshot(retain=None).shards
    table, store = opened(table.uri, CountingStore)
    put = store.put_if_absent

    def replaced_meanwhile(path: str, data: Any) -> None:
        put(path, data)
        there = layout.manifest_path(cut.shard_id, cut.manifest_version)
        manifest = shard_manifest.decode(store.get(there), where="here")
        store.put(there, shard_manifest.encode(replace(manifest, write_id=secrets.token_bytes(16))))

    monkeypatch.setattr(store, "put_if_absent", replaced_meanwhile)
    with pytest.raises(SnapshotExpiredError, match="of the manifest"):
        table.snapshot()


@pytest.mark.parametrize("part", ["all", "data", "_versions"])
def test_a_generation_that_is_gone_is_named(table: weir.Table, part: str) -> None:
    token = table.snapshot()
    (cut,) = token.shards
    change_everything(table)
    (directory,) = (Path(table.uri) / layout.shard_directory(cut.shard_id)).glob("*_gen_2")
    shutil.rmtree(directory if part == "all" else directory / part)
    assert f"generation 2 of shard {cut.shard_id} is gone" in gone(table, token)


@pytest.mark.parametrize("which", ["first", "last"])
def test_a_log_entry_that_is_gone_is_named(table: weir.Table, which: str) -> None:
    token = table.snapshot()
    (cut,) = token.shards
    assert cut.first_position < cut.position
    position = cut.first_position if which == "first" else cut.position
    change_everything(table)
    (Path(table.uri) / layout.wal_path(cut.shard_id, position)).unlink()
    assert f"WAL entry {position} of shard {cut.shard_id} is gone" in gone(table, token)


def test_damage_is_no_expiry(table: weir.Table) -> None:
    token = table.snapshot()
    (cut,) = token.shards
    path = Path(table.uri) / layout.wal_path(cut.shard_id, cut.position)
    data = bytearray(path.read_bytes())
    data[-30] ^= 1
    path.write_bytes(data)
    default_context().cache.clear()
    with pytest.raises(CorruptionError, match="trailer"):
        weir.open(table.uri).scan(at=token).to_table()
    (directory,) = (Path(table.uri) / layout.shard_directory(cut.shard_id)).glob("*_gen_2/data/*")
    directory.write_bytes(b"no data file")
    path.write_bytes(bytes(data[:-30]) + bytes([data[-30] ^ 1]) + bytes(data[-29:]))
    default_context().cache.clear()
    with pytest.raises(CorruptionError):
        weir.open(table.uri).scan(at=token).to_table()


def test_a_pin_that_came_too_late_is_no_token(table: weir.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the token needs goes between the look at the table and the pin."""
    table, store = opened(table.uri, CountingStore)
    put = store.put_if_absent

    def collected_meanwhile(path: str, data: Any) -> None:
        put(path, data)
        version = table.status().base_version
        store.delete([manifest_path(version, counts_down=True)])

    monkeypatch.setattr(store, "put_if_absent", collected_meanwhile)
    with pytest.raises(SnapshotExpiredError, match="of the base table is gone"):
        table.snapshot()


# --- Across shards -----------------------------------------------------------------------------


def test_tokens_taken_while_others_write_are_consistent_across_shards(tmp_path: Path) -> None:
    """Each client writes a number in one shard and, when that is acknowledged, in the next one."""
    table = weir.create(tmp_path / "t", SCHEMA, primary_key="id", shard_by=weir.bucket("id", 4), fsync=False)
    clients = 3
    acknowledged = [0] * clients
    stop = threading.Event()
    failures: list[BaseException] = []
    tokens: list[tuple[SnapshotToken, list[int], list[int]]] = []

    with table.writer(max_memtable_rows=200) as writer:

        def client(number: int) -> None:
            count = 0
            try:
                while not stop.is_set():
                    count += 1
                    for shard_key in (0, 1, 2, 3, 5, 8):
                        writer.upsert([{"id": 1000 * number + shard_key, "name": str(count)}])
                    acknowledged[number] = count
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=client, args=(number,)) for number in range(clients)]
        for thread in threads:
            thread.start()
        other = weir.open(table.uri, fsync=False)
        try:
            for number in range(25):
                least = list(acknowledged)
                token = (table if number % 2 else other).snapshot()
                tokens.append((token, least, list(acknowledged)))
                if number % 8 == 5:
                    table.maintenance.merge()
        finally:
            stop.set()
            for thread in threads:
                thread.join()
    assert not failures
    assert {len(token.shards) for token, _, _ in tokens} <= {0, 1, 2, 3, 4}
    for token, least, most in tokens:
        shown = names(table.scan(at=token).to_table())
        for number in range(clients):
            counts = [int(shown.get(1000 * number + key, 0)) for key in (0, 1, 2, 3, 5, 8)]
            assert counts == sorted(counts, reverse=True)
            assert counts[0] - counts[-1] <= 1
            assert least[number] <= counts[-1]
            assert counts[0] <= most[number] + 1


# --- On an object store ------------------------------------------------------------------------


def test_on_an_object_store(s3_endpoint: S3Endpoint) -> None:
    uri, options = s3_endpoint.new_uri(), s3_endpoint.options
    table = weir.create(uri, SCHEMA, primary_key="id", shard_by=weir.bucket("id", 3), storage_options=options)
    with table.writer() as writer:
        writer.upsert(rows(*range(9), name="first"))
        token = table.snapshot()
        writer.upsert(rows(*range(5), name="second"))
        writer.delete([8])
    table.maintenance.merge()
    elsewhere = weir.open(uri, storage_options=options)
    default_context().cache.clear()
    assert names(elsewhere.scan(at=str(token)).to_table()) == dict.fromkeys(range(9), "first")
    changed = {
        row["id"]: (row["name"], row["_op"], row["_before"]["name"])
        for change in elsewhere.changes(token, consumer="one", before=True)
        for row in change.rows.to_pylist()
    }
    assert changed == {
        **dict.fromkeys(range(5), ("second", "upsert", "first")),
        8: (None, "delete", "first"),
    }
    plan = elsewhere.changes(token, max_rows=2).plan()
    assert plan.rows is not None
    assert 0 < plan.rows == sum(one.to_table().num_rows for one in plan.ranges) <= 3
    rest = elsewhere.changes(plan.until, follow=True, timeout=timedelta(0))
    assert sum(change.rows.num_rows for change in rest) == 6 - plan.rows
    feed = elsewhere.changes(consumer="one", before=True)
    assert sum(change.rows.num_rows for change in feed) == 6
    feed.commit()
    again = table.changes(consumer="one", before=True)
    assert list(again) == []
    again.commit()
    with pytest.raises(ConflictError, match="moved on by another feed"):
        feed.commit()
    table.release(token)


@pytest.mark.parametrize("has_tail", [True, False])
def test_what_a_snapshot_costs(tmp_path: Path, has_tail: bool) -> None:
    """On an object store each of these is a round trip; those of different shards are made at once."""
    weir.create(tmp_path / "t", SCHEMA, primary_key="id", shard_by=weir.bucket("id", 4), fsync=False)
    table, store = opened(str(tmp_path / "t"), CountingStore)
    with table.writer(flush_on_close=not has_tail) as writer:
        writer.upsert(rows(*range(100), name="some"))
    weir.open(table.uri).snapshot(retain=None)
    table.snapshot(retain=None)
    store.reset()
    table.snapshot(retain=None)
    shards = 4
    # Per shard: the next manifest, that this one is still there, the next log entry twice, and both of the
    # manifest once more, for what was collected or published meanwhile.
    assert dict(store.counts) == {"list_directories": 2, "get": shards * 4, "get_range": shards * 2}
    store.reset()
    table.snapshot()
    assert store.counts["put_if_absent"] == 1
    assert store.counts["head"] <= shards * 6 + 2


def test_few_of_the_states_that_reads_were_of_are_held(tmp_path: Path) -> None:
    """Each holds on to a version of the base table, and so to open files of its indexes."""
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    table = weir.create(tmp_path / "t", schema, primary_key="id")
    reader, tokens = table.internals.reader, []
    with table.writer() as writer:
        for number in range(40):
            writer.upsert([{"id": number}])
            tokens.append(str(reader.token_of_seen()))
            assert table.scan(at=tokens[-1]).count() == number + 1
    gc.collect()
    held = [one for one in gc.get_objects() if isinstance(one, ReadSnapshot) and one.base.uri == table.uri]
    assert len(held) <= 20
    assert [table.scan(at=token).count() for token in tokens] == list(range(1, 41))
