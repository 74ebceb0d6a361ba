"""What is deleted outright is missed by name: the lease, the hint, tokens and consumers remember it."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest

import weir
from weir.engine.context import default_context
from weir.errors import CorruptionError, WeirError
from weir.format import layout
from weir.storage.local import LocalStore

SCHEMA = pa.schema([("id", pa.int64()), ("n", pa.int64())])


def _table(tmp_path: Path, writes: int = 3, **options: object) -> weir.Table:
    table = weir.create(tmp_path / "t", SCHEMA, primary_key="id")
    with table.writer(flush_on_close=False, **options) as writer:
        for number in range(writes):
            writer.upsert([{"id": number, "n": number}])
    return table


def _entries(tmp_path: Path) -> list[Path]:
    found = (tmp_path / "t").glob("_mem_wal/*/wal/*.arrow")
    return sorted(found, key=lambda path: layout.parse_wal_name(path.name))


def _write(table: weir.Table) -> None:
    with table.writer(flush_on_close=False) as writer:
        writer.upsert([{"id": 100, "n": 100}])


def _reopened(tmp_path: Path) -> weir.Table:
    """Return the table as a process sees it that has never looked at it."""
    default_context().cache.clear()
    return weir.open(tmp_path / "t")


@pytest.mark.one_in(2)
@pytest.mark.parametrize("from_the_end", [1, 2, 3])
def test_an_entry_of_the_tail_that_is_gone_is_named(tmp_path: Path, from_the_end: int) -> None:
    _table(tmp_path)
    lost = _entries(tmp_path)[-from_the_end]
    lost.unlink()
    position = layout.parse_wal_name(lost.name)
    table = _reopened(tmp_path)
    named = rf"entry (at position )?{position}.*{lost.name}"
    with pytest.raises(CorruptionError, match=named):
        table.scan().to_table()
    with pytest.raises(CorruptionError, match=named):
        table.get([1])
    with pytest.raises(WeirError, match=named):
        table.scan(at=table.snapshot()).to_table()
    with pytest.raises(CorruptionError, match=named):
        table.changes(since="earliest")
    with pytest.raises(CorruptionError, match=named):
        _write(table)
    assert any(finding.check.startswith("wal.") for finding in table.maintenance.verify().errors)


def test_it_can_be_given_up(tmp_path: Path) -> None:
    _table(tmp_path)
    _entries(tmp_path)[-1].unlink()
    with _reopened(tmp_path).writer(takeover=True, flush_on_close=False) as writer:
        writer.upsert([{"id": 7, "n": 7}])
    assert sorted(_reopened(tmp_path).scan().to_table()["id"].to_pylist()) == [0, 1, 7]


def _wait_for_a_lease_with(tmp_path: Path, entry: Path) -> None:
    """Wait until the lease of the only shard says that the log has come as far as an entry."""
    lease = next((tmp_path / "t").glob("_mem_wal/*/lease.json")).relative_to(tmp_path)
    store = LocalStore(tmp_path)
    wanted = f'"last_position": {layout.parse_wal_name(entry.name)}'
    deadline = time.monotonic() + 30
    while wanted not in bytes(store.get(str(lease))).decode():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_what_is_deleted_under_a_living_writer_is_missed_until_it_flushes(tmp_path: Path) -> None:
    """It goes on above the gap: readers are told from its next renewal on, and its flush has every row."""
    table = weir.create(tmp_path / "t", SCHEMA, primary_key="id")
    with table.writer(flush_on_close=False, lease_ttl=0.6) as writer:
        writer.upsert([{"id": 1, "n": 1}])
        lost = _entries(tmp_path)[-1]
        lost.unlink()
        writer.upsert([{"id": 2, "n": 2}])
        _wait_for_a_lease_with(tmp_path, _entries(tmp_path)[-1])
        with pytest.raises(CorruptionError, match=lost.name):
            _reopened(tmp_path).scan().to_table()
        writer.flush()
        assert sorted(_reopened(tmp_path).scan().to_table()["id"].to_pylist()) == [1, 2]


def test_a_lease_that_is_renewed_says_how_far_the_log_has_come(tmp_path: Path) -> None:
    table = weir.create(tmp_path / "t", SCHEMA, primary_key="id")
    with table.writer(flush_on_close=False, lease_ttl=0.6) as writer:
        writer.upsert([{"id": 1, "n": 1}])
        lost = _entries(tmp_path)[-1]
        _wait_for_a_lease_with(tmp_path, lost)
        moved = lost.rename(lost.with_suffix(".away"))
        with pytest.raises(CorruptionError, match="no entry at position"):
            _reopened(tmp_path).scan().to_table()
        moved.rename(lost)
        assert _reopened(tmp_path).scan().count() == 1


def test_what_was_flushed_merged_and_collected_is_not_missed(tmp_path: Path) -> None:
    table = _table(tmp_path)
    with table.writer() as writer:
        writer.upsert([{"id": 9, "n": 9}])
    table.maintenance.merge()
    for entry in _entries(tmp_path)[:-1]:
        entry.unlink()
    assert _reopened(tmp_path).scan().count() == 4
    with table.writer(flush_on_close=False) as writer:
        writer.upsert([{"id": 10, "n": 10}])
    assert _reopened(tmp_path).scan().count() == 5


def test_a_flushed_entry_that_is_gone_is_missed_by_the_feed(tmp_path: Path) -> None:
    table = _table(tmp_path, writes=2)
    with table.writer() as writer:
        writer.upsert([{"id": 5, "n": 5}])
    entries = _entries(tmp_path)
    for lost in (entries[-1], entries[-2]):
        moved = lost.rename(lost.with_suffix(".away"))
        again = _reopened(tmp_path)
        with pytest.raises(CorruptionError, match=lost.name):
            list(again.changes(since="earliest"))
        with pytest.raises(WeirError, match=lost.name):
            list(again.changes())
        assert again.scan().count() == 3
        moved.rename(lost)
    assert sum(len(batch.rows) for batch in _reopened(tmp_path).changes(since="earliest")) == 3


def test_a_consumer_and_a_token_remember_how_far_they_have_come(tmp_path: Path) -> None:
    table = _table(tmp_path)
    feed = table.changes(since="earliest", consumer="billing")
    for _ in feed:
        pass
    feed.commit()
    token = table.snapshot()
    _entries(tmp_path)[-1].unlink()
    # Without the lease nothing else remembers.
    for lease in (tmp_path / "t").glob("_mem_wal/*/lease.json*"):
        lease.unlink()
    again = _reopened(tmp_path)
    with pytest.raises(CorruptionError, match="the place to go on from says"):
        again.changes(consumer="billing")
    with pytest.raises(CorruptionError, match="the place to go on from says"):
        again.changes(since=token)
    with pytest.raises(WeirError, match="is gone"):
        again.scan(at=token).to_table()


def test_a_manifest_that_is_gone_is_missed_by_its_hint(tmp_path: Path) -> None:
    table = _table(tmp_path)
    with table.writer() as writer:
        writer.upsert([{"id": 5, "n": 5}])
    manifests = (tmp_path / "t").glob("_mem_wal/*/manifest/*.binpb")
    newest = max(manifests, key=lambda path: layout.parse_manifest_name(path.name))
    newest.unlink()
    for read in (lambda t: t.scan().count(), _write, lambda t: t.snapshot()):
        with pytest.raises(CorruptionError, match=newest.name):
            read(_reopened(tmp_path))
    # A hint that is not what was written proves nothing.
    hint = newest.parent / "version_hint.json"
    hint.write_text(hint.read_text().replace('"version":', '"version":1'))
    assert _reopened(tmp_path).scan().count() >= 3


def test_readers_beside_a_writer_and_collections_miss_nothing(tmp_path: Path) -> None:
    table = weir.create(tmp_path / "t", SCHEMA, primary_key="id")
    errors: list[Exception] = []
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            try:
                weir.open(tmp_path / "t").scan().count()
                weir.open(tmp_path / "t").snapshot()
            except Exception as error:
                errors.append(error)
                return

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(8):
        with table.writer(flush_on_close=number % 2 == 0) as writer:
            writer.upsert([{"id": number, "n": number}])
        if number % 3 == 2:
            table.maintenance.merge()
            table.maintenance.collect_garbage()
    done.set()
    reader.join()
    assert not errors
