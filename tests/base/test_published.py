"""Publishing shard snapshots: inline or in a file, never backwards, and readable for the library."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import lance
import pyarrow as pa
import pytest
from lance.file import LanceFileReader
from tests.base.table_kit import new_table

import weir.base.published
from weir.base.details_commit import commit_details, update_details
from weir.base.published import is_left_behind, publish_shards, published_shards
from weir.base.table import BaseTable
from weir.engine.context import default_context
from weir.errors import ConflictError, CorruptionError, StorageError
from weir.format.shard_manifest import FlushedGeneration, ShardFieldValue, ShardManifest
from weir.format.shard_snapshot import INLINE_SHARDS, recorded
from weir.storage.counting import CountingStore


def shards(count: int, version: int = 1) -> list[ShardManifest]:
    return [
        ShardManifest(
            UUID(int=number, version=4),
            version,
            writer_epoch=1,
            current_generation=2,
            flushed_generations=(FlushedGeneration(1, "0a1b2c3d_gen_1"),),
            shard_spec_id=1,
            shard_fields=(ShardFieldValue("bucket", number.to_bytes(4, "little")),),
        )
        for number in range(1, count + 1)
    ]


def files(base: BaseTable) -> dict[str, bytes]:
    """Return every file of a shard snapshot there is."""
    found = [one.path for one in base.store.list("_indices") if one.path.endswith("/index.lance")]
    return {path: bytes(base.store.get(path)) for path in found}


def test_up_to_100_shards_are_inline_and_more_are_in_the_file_of_the_index(tmp_path: Path) -> None:
    base = new_table(tmp_path)
    few = publish_shards(base, shards(INLINE_SHARDS), {"bucket": pa.int32()})
    assert few.details.num_shards == INLINE_SHARDS == 100
    assert few.details.inline_snapshots
    assert few.details.snapshot_ts_millis > 0
    assert files(few) == {}
    assert list(published_shards(few)) == shards(INLINE_SHARDS)

    many = publish_shards(few, shards(INLINE_SHARDS + 1), {"bucket": pa.int32()})
    assert many.details.num_shards == INLINE_SHARDS + 1
    assert many.details.inline_snapshots is None
    assert list(files(many)) == [f"_indices/{many.index_id}/index.lance"]
    assert list(published_shards(many)) == shards(INLINE_SHARDS + 1)
    (path,) = files(many)
    stored = LanceFileReader(f"{many.uri}/{path}").read_all().to_table()
    assert stored.schema.field("region_field_bucket").type == pa.int32()
    assert stored.num_rows == INLINE_SHARDS + 1


def test_a_file_is_read_once_per_version(tmp_path: Path) -> None:
    made = publish_shards(new_table(tmp_path), shards(INLINE_SHARDS + 1))
    store = CountingStore(made.store)
    base = BaseTable.open(store)
    default_context().cache.clear()
    store.reset()
    for _ in range(3):
        assert len(published_shards(base)) == INLINE_SHARDS + 1
    assert store.counts == {"get": 1}


def test_a_table_that_publishes_nothing_costs_nothing(tmp_path: Path) -> None:
    base = new_table(tmp_path)
    store = CountingStore(base.store)
    assert published_shards(BaseTable.open(store)) == ()
    assert "list" not in store.counts


def test_what_is_published_of_a_shard_never_goes_back(tmp_path: Path) -> None:
    """Two merges publish; the one that looked first comes last."""
    base = publish_shards(new_table(tmp_path), shards(3, version=5))
    late = publish_shards(base, [*shards(2, version=4), shards(4, version=1)[3]])
    assert [one.version for one in published_shards(late)] == [5, 5, 5, 1]


def test_a_broken_snapshot_is_named_and_replaced(tmp_path: Path) -> None:
    base = publish_shards(new_table(tmp_path), shards(2))
    broken = update_details(base, lambda details: replace(details, inline_snapshots=b"no Lance file"))
    with pytest.raises(CorruptionError, match=f"version {broken.version}, inline_snapshots"):
        published_shards(broken)
    assert list(published_shards(publish_shards(broken, shards(1)))) == shards(1)


@pytest.mark.parametrize("count", [3, INLINE_SHARDS + 1], ids=["inline", "file"])
def test_every_flipped_bit_is_noticed(tmp_path: Path, count: int) -> None:
    """By the checksum, before the library sees the bytes: it ends the process over some of them."""
    base = publish_shards(new_table(tmp_path), shards(count))
    data = base.details.inline_snapshots or next(iter(files(base).values()))
    for at in range(0, len(data), max(len(data) // 50, 1)):
        damaged = bytearray(data)
        damaged[at] ^= 1 << at % 8
        default_context().cache.clear()
        if count > INLINE_SHARDS:
            base.store.put(next(iter(files(base))), bytes(damaged))
            broken = base
        else:
            details = replace(base.details, inline_snapshots=bytes(damaged))
            broken = BaseTable(base.store, base.dataset, details, base.primary_key, base.index_id, b"")
        with pytest.raises(CorruptionError, match="checksum"):
            published_shards(broken)


def test_a_lost_race_leaves_no_file_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = new_table(tmp_path)
    monkeypatch.setattr(weir.base.details_commit, "publish_details", lambda *_, **__: None)
    monkeypatch.setattr(weir.base.details_commit, "wait_for_turn", lambda _: None)
    with pytest.raises(ConflictError):
        publish_shards(base, shards(INLINE_SHARDS + 1))
    assert files(base) == {}


def test_a_version_of_which_the_answer_was_lost_has_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = new_table(tmp_path)

    def unanswered(*arguments: Any, **named: Any) -> None:
        commit_details(*arguments, **named)
        raise StorageError("the store does not answer")

    monkeypatch.setattr(weir.base.published, "commit_details", unanswered)
    with pytest.raises(StorageError, match="does not answer"):
        publish_shards(base, shards(INLINE_SHARDS + 1))
    assert len(published_shards(base.latest())) == INLINE_SHARDS + 1


def test_the_file_is_found_after_commits_of_the_library_until_it_is_cleaned_up(tmp_path: Path) -> None:
    """Each gives the index a new id; the details say where the file has stayed."""
    base = publish_shards(new_table(tmp_path, rows=[(1, "a")]), shards(INLINE_SHARDS + 1))
    published_with = base.index_id
    dataset = lance.dataset(base.uri)
    dataset.create_scalar_index("value", "BTREE")
    merge = dataset.merge_insert(["id"]).when_matched_update_all().when_not_matched_insert_all()
    merge = merge.mark_sstables_as_compacted([lance.CompactedSsTable(str(UUID(int=1, version=4)), 1)])
    merge.execute(pa.table({"id": [2], "value": ["b"]}))
    dataset.optimize.compact_files()
    base = base.latest()
    assert base.index_id != published_with
    record = recorded(base.details, where="here")
    assert record is not None
    assert record.directory == published_with
    assert len(published_shards(base)) == INLINE_SHARDS + 1
    assert is_left_behind(base)

    lance.dataset(base.uri).cleanup_old_versions(older_than=timedelta(0), delete_unverified=True)
    default_context().cache.clear()
    assert published_shards(base) == ()
    again = publish_shards(base, shards(INLINE_SHARDS + 1, version=2))
    assert len(published_shards(again)) == INLINE_SHARDS + 1
    assert not is_left_behind(again)


def test_another_implementations_file_is_found_by_the_id_of_the_index(tmp_path: Path) -> None:
    base = publish_shards(new_table(tmp_path), shards(INLINE_SHARDS + 1))
    (data,) = files(base).values()
    plain = update_details(base, lambda details: replace(details, writer_config_defaults={}))
    assert published_shards(plain) == ()
    plain.store.put(f"_indices/{plain.index_id}/index.lance", data)
    default_context().cache.clear()
    assert len(published_shards(plain)) == INLINE_SHARDS + 1
