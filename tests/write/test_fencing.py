"""One writer per shard (I2), no gaps (I3), lost responses (I4): Lance MemWAL spec, "Writer Fencing"."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.write.conftest import SHARD, WAL_SCHEMA, OpenWriter, rows
from weir.engine.concurrent_map import Wave
from weir.errors import FencedError, ShardSealedError, StorageError, WriterClosedError
from weir.format import layout, shard_manifest, wal_entry
from weir.format.shard_manifest import ShardManifest, ShardStatus
from weir.format.wal_header import WalEntryHeader
from weir.log.manifest_store import commit_manifest, read_latest_manifest
from weir.log.wal import Wal
from weir.storage.counting import CountingStore
from weir.storage.interface import Bytes
from weir.storage.local import LocalStore
from weir.write.claim import claim_shard


def stored_rows(store: LocalStore) -> list[tuple[int, list[int], int]]:
    """Return (position, keys, epoch) of every entry in the WAL, read past every cache."""
    found = []
    position = 1
    while store.head(layout.wal_path(SHARD, position)) is not None:
        path = layout.wal_path(SHARD, position)
        entry = wal_entry.decode(store.get(path), where=path)
        keys = [key for batch in entry.batches for key in batch.column("id").to_pylist()]
        found.append((position, keys, entry.header.writer_epoch))
        position += 1
    return found


def test_a_fenced_writer_holds_on_to_nothing_that_it_refuses(
    store: LocalStore, open_writer: OpenWriter
) -> None:
    writer = open_writer(store)
    open_writer(store, namespace="elsewhere", takeover=True)
    refused = []
    for number in range(3):
        batch = rows((number, "late"))
        with pytest.raises(FencedError):
            writer.submit(batch).result()
        refused.append(weakref.ref(batch))
        del batch
    gc.collect()
    assert [one() for one in refused] == [None] * 3


def test_appendix_1_step_by_step(store: LocalStore, open_writer: OpenWriter) -> None:
    # Initial state: epoch 5, entries up to 12 exist, those up to 10 are flushed.
    wal = Wal(store, SHARD, namespace=f"{store.uri} appendix")
    for position in range(1, 13):
        header = WalEntryHeader(5, 1 if position <= 10 else 2, wal_entry.new_write_id())
        wal.append(position, wal_entry.encode(header, WAL_SCHEMA, [rows((position, "before"))]))
    manifest = ShardManifest(
        SHARD,
        version=1,
        writer_epoch=5,
        replay_after_wal_entry_position=10,
        wal_entry_position_last_seen=12,
        current_generation=2,
    )
    assert commit_manifest(store, manifest, after=None) is not None

    # Steps 1 to 3: A claims epoch 6 and writes.
    a = open_writer(store)
    assert a.epoch == 6
    assert read_latest_manifest(store, SHARD).version == 2  # type: ignore[union-attr]
    written_by_a = [a.submit(rows((100 + n, "a"))).result() for n in range(3)]

    # Steps 4 to 6: B claims epoch 7 and writes.
    b = open_writer(store, namespace="elsewhere", takeover=True)
    assert b.epoch == 7
    assert read_latest_manifest(store, SHARD).version == 3  # type: ignore[union-attr]
    written_by_b = [b.submit(rows((200 + n, "b"))).result() for n in range(2)]

    # Steps 7 to 9: A tries to flush and is fenced; its next append is refused as well.
    with pytest.raises(FencedError, match="epoch 7"):
        a.flush()
    with pytest.raises(FencedError):
        a.submit(rows((999, "late"))).result()

    # Step 10: B goes on. Its recovery had found what A wrote: positions are dense, nothing is lost.
    b.submit(rows((202, "b"))).result()
    entries = stored_rows(store)
    assert [position for position, _, _ in entries] == list(range(1, entries[-1][0] + 1))
    epochs = [epoch for _, _, epoch in entries]
    assert epochs == sorted(epochs)
    assert all(position < min(written_by_b) for position in written_by_a)
    b.flush()
    latest = read_latest_manifest(store, SHARD)
    assert latest is not None
    assert latest.replay_after_wal_entry_position == entries[-1][0]
    assert [flushed.generation for flushed in latest.flushed_generations] == [2]
    # Entries 11 and 12, A's three and B's three.
    assert latest.flushed_generations[0].physical_rows == 8


def test_former_writer_is_refused_at_its_next_append(store: LocalStore, open_writer: OpenWriter) -> None:
    first = open_writer(store)
    first.submit(rows((1, "kept"))).result()
    second = open_writer(store, takeover=True)
    with pytest.raises(FencedError, match=r"epoch 2.*position 3"):
        first.submit(rows((2, "refused"))).result()
    assert second.unflushed_rows == 1
    assert 2 not in [key for _, keys, _ in stored_rows(store) for key in keys]


def test_append_between_epoch_and_fence_is_replayed(store: LocalStore, open_writer: OpenWriter) -> None:
    """A former writer that gets in after the new epoch and before the fence is acknowledged: keep it."""
    first = open_writer(store)
    late = rows((7, "in between"))

    class WritesBeforeFence(Wal):
        def append_or_read(self, position: int, data: Sequence[Bytes]) -> wal_entry.WalEntry | None:
            if not first.unflushed_rows:
                first.submit(late).result()
            return super().append_or_read(position, data)

    claim = claim_shard(store, WritesBeforeFence(store, SHARD, namespace=f"{store.uri} b"), SHARD, WAL_SCHEMA)
    assert [item.entry.num_rows for item in claim.tail] == [0, 1]
    assert claim.next_position == claim.tail[-1].position + 2
    with pytest.raises(FencedError):
        first.submit(rows((8, "too late"))).result()


def test_slower_claim_notices_that_it_was_overtaken(store: LocalStore, open_writer: OpenWriter) -> None:
    class OvertakenBeforeReading(Wal):
        def is_empty(self) -> bool:
            open_writer(store)
            return super().is_empty()

    with pytest.raises(FencedError, match="epoch 2 while we were claiming it with epoch 1"):
        claim_shard(
            store, OvertakenBeforeReading(store, SHARD, namespace=f"{store.uri} slow"), SHARD, WAL_SCHEMA
        )


class LosesAnswers(LocalStore):
    """Performs conditional puts and then reports a failure, as a broken connection does."""

    lose = 0

    def put_if_absent(self, path: str, data: Bytes | Sequence[Bytes]) -> None:
        super().put_if_absent(path, data)
        if self.lose and "/wal/" in path:
            self.lose -= 1
            raise StorageError("the connection was reset", where=path)


def test_lost_answer_is_recognised_as_our_own_write(store: LocalStore, open_writer: OpenWriter) -> None:
    flaky = LosesAnswers(store.uri, fsync=False)
    writer = open_writer(flaky)
    writer.submit(rows((1, "a"))).result()
    flaky.lose = 1
    with pytest.raises(StorageError, match="reset"):
        writer.submit(rows((2, "in doubt"))).result()
    # The caller tries again: the entry that did land is found to be ours, not another writer's.
    position = writer.submit(rows((2, "again"))).result()
    assert [keys for _, keys, _ in stored_rows(store)] == [[], [1], [2], [2]]
    assert position == 4
    assert writer.unflushed_rows == 3
    writer.flush()
    latest = read_latest_manifest(store, SHARD)
    assert latest is not None
    assert latest.replay_after_wal_entry_position == 4


def test_foreign_entry_with_our_epoch_fences(store: LocalStore, open_writer: OpenWriter) -> None:
    writer = open_writer(store)
    header = WalEntryHeader(writer_epoch=writer.epoch, generation=1, write_id=wal_entry.new_write_id())
    Wal(store, SHARD, namespace=f"{store.uri} x").append(
        2, wal_entry.encode(header, WAL_SCHEMA, [rows((5, "x"))])
    )
    with pytest.raises(FencedError):
        writer.submit(rows((6, "y"))).result()


def test_sealed_shard_refuses_claims(store: LocalStore, open_writer: OpenWriter) -> None:
    open_writer(store).close()
    latest = read_latest_manifest(store, SHARD)
    assert latest is not None
    sealed = replace(latest, version=latest.version + 1, status=ShardStatus.SEALED)
    assert commit_manifest(store, sealed, after=latest) is not None
    with pytest.raises(ShardSealedError):
        open_writer(store)
    after = read_latest_manifest(store, SHARD)
    assert after is not None
    assert after.writer_epoch == latest.writer_epoch


def test_who_holds_a_shard_that_is_sealed_hears_of_it_with_its_next_flush(
    store: LocalStore, open_writer: OpenWriter
) -> None:
    """What it has written until then is flushed: nobody could claim the shard to do so."""
    writer = open_writer(store)
    writer.submit(rows((1, "a"))).result()
    latest = read_latest_manifest(store, SHARD)
    assert latest is not None
    sealed = replace(latest, version=latest.version + 1, status=ShardStatus.SEALED)
    assert commit_manifest(store, sealed, after=latest) is not None
    position = writer.submit(rows((2, "b"))).result()
    writer.flush()
    with pytest.raises(ShardSealedError):
        writer.submit(rows((3, "c"))).result()
    writer.close()
    after = read_latest_manifest(store, SHARD)
    assert after is not None
    assert (after.status, after.writer_epoch) == (ShardStatus.SEALED, latest.writer_epoch)
    assert [one.physical_rows for one in after.flushed_generations] == [2]
    assert after.replay_after_wal_entry_position == position


def test_lost_race_for_a_manifest_version_is_not_ours(store: LocalStore) -> None:
    one = ShardManifest(SHARD, version=1, writer_epoch=1)
    assert commit_manifest(store, one, after=None) is not None
    assert commit_manifest(store, one, after=None) is None


def test_closed_writer_says_so(store: LocalStore, open_writer: OpenWriter) -> None:
    writer = open_writer(store)
    writer.close()
    writer.close()
    with pytest.raises(WriterClosedError):
        writer.submit(rows((1, "a"))).result()


def test_version_hint_is_only_a_hint(store: LocalStore, open_writer: OpenWriter) -> None:
    for _ in range(3):
        open_writer(store).abandon()
    expected = read_latest_manifest(store, SHARD)
    for hint in (b'{"version":1}', b'{"version":99}', b"not json", b'{"version":-4}'):
        store.put(layout.version_hint_path(SHARD), hint)
        assert read_latest_manifest(store, SHARD) == expected
    store.delete([layout.version_hint_path(SHARD), layout.manifest_path(SHARD, 1)])
    assert read_latest_manifest(store, SHARD) == expected
    assert shard_manifest.encode(expected)  # type: ignore[arg-type]


class Slow(Wave):
    """A wave in which a process slept."""

    def was_short(self) -> bool:
        return False


def test_a_shard_that_was_not_there_is_made_without_looking_for_it_again(store: LocalStore) -> None:
    counting = CountingStore(store)
    claim = claim_shard(
        counting, Wal(counting, SHARD, namespace=f"{store.uri} a"), SHARD, WAL_SCHEMA, absent=Wave()
    )
    assert (claim.epoch, claim.next_position, claim.tail) == (1, 2, ())
    # Manifest, fence; hint.
    assert dict(counting.counts) == {"put_if_absent": 2, "put": 1}


@pytest.mark.parametrize("wave", [Wave, Slow])
def test_a_shard_that_was_made_since_it_was_not_there_is_claimed_from_who_made_it(
    store: LocalStore, open_writer: OpenWriter, wave: type[Wave]
) -> None:
    first = open_writer(store)
    first.submit(rows((1, "kept"))).result()
    claim = claim_shard(
        store, Wal(store, SHARD, namespace=f"{store.uri} b"), SHARD, WAL_SCHEMA, absent=wave()
    )
    assert claim.epoch == 2
    assert [item.entry.num_rows for item in claim.tail] == [0, 1]
    with pytest.raises(FencedError):
        first.submit(rows((2, "refused"))).result()


def test_who_slept_since_a_shard_was_not_there_makes_none_where_nobody_looks(store: LocalStore) -> None:
    """Others have made it, and collected what was made first: its name is free again."""
    latest = None
    for version in (1, 2, 3):
        latest = commit_manifest(store, ShardManifest(SHARD, version, writer_epoch=version), after=latest)
    store.delete([layout.manifest_path(SHARD, version) for version in (1, 2)])
    asleep = Slow()
    assert commit_manifest(store, ShardManifest(SHARD, 1, writer_epoch=1), after=None, absent=asleep) is None
    assert store.head(layout.manifest_path(SHARD, 1)) is None
    claim = claim_shard(
        store, Wal(store, SHARD, namespace=f"{store.uri} c"), SHARD, WAL_SCHEMA, absent=asleep
    )
    assert (claim.epoch, claim.manifest.version) == (4, 4)
