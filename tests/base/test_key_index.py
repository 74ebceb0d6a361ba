from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from uuid import UUID

import lance
import pyarrow as pa
import pytest
from lance.optimize import Compaction
from tests.base.table_kit import SCHEMA, new_table, write_generation

from weir.base import key_index, library_commit
from weir.base.details_commit import update_details
from weir.base.key_index import build_missing_segments, extend_key_index, key_index_names
from weir.base.key_pages import indexed_pages
from weir.base.publish import SegmentChange
from weir.base.published import commit_shards
from weir.base.table import BaseTable
from weir.errors import ConflictError, StorageError
from weir.format.index_details import IndexDetails
from weir.merge.commit import merge_runs
from weir.merge.plan import MergeTask
from weir.storage.local import LocalStore

SHARD = UUID("8f3b0d9e-7f2c-4b5e-9c51-2a6de1c0a005")


def merge(base: BaseTable, number: int, keys: range) -> BaseTable:
    flushed = write_generation(base, SHARD, number, [(key, f"{number}") for key in keys])
    merge_runs([MergeTask(base.store, SHARD, (flushed,), number - 1)])
    return base.latest()


def covered(base: BaseTable, name: str = "id_idx") -> list[list[int]]:
    (index,) = [one for one in base.dataset.describe_indices() if one.name == name]
    return [sorted(segment.fragment_ids) for segment in index.segments]


def caught_up(details: IndexDetails, name: str = "id_idx") -> int:
    of_index = [one for one in details.index_catchup if one.index_name == name]
    return max(
        (one.generation for item in of_index for one in item.caught_up if one.shard_id == SHARD), default=0
    )


def fragments(base: BaseTable) -> list[int]:
    return sorted(fragment.fragment_id for fragment in base.dataset.get_fragments())


def test_merged_fragments_get_a_segment_of_their_own(tmp_path: Path) -> None:
    base = extend_key_index(new_table(tmp_path, rows=[(1, "base")]))
    merged = merge(base, 1, range(10, 20))
    assert covered(merged) == [[0]]
    extended = extend_key_index(merged)
    assert covered(extended) == [[0], [1]]
    assert extended.dataset.to_table(filter="id = 15").to_pylist() == [{"id": 15, "value": "1"}]
    assert "ScalarIndexQuery" in extended.dataset.scanner(filter="id = 15").explain_plan(True)


def test_nothing_is_committed_when_the_index_is_current(tmp_path: Path) -> None:
    base = extend_key_index(new_table(tmp_path, rows=[(1, "base")]))
    assert extend_key_index(base) is base


def test_many_segments_become_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_index, "MAX_SEGMENTS", 3)
    base = new_table(tmp_path, rows=[(1000, "base")])
    counts = []
    for number in range(1, 7):
        base = extend_key_index(merge(base, number, range(number * 10, number * 10 + 5)))
        counts.append(len(covered(base)))
    assert max(counts) == 4
    assert counts[-1] < 4
    assert sorted(set().union(*covered(base))) == fragments(base)
    assert base.dataset.to_table(filter="id in (12, 34, 64, 1000)").num_rows == 4


def test_the_library_credits_the_index_with_what_it_covers(tmp_path: Path) -> None:
    base = merge(new_table(tmp_path), 1, range(5))
    assert caught_up(base.details) == 0
    base = extend_key_index(base)
    assert caught_up(base.details) == 1
    base = merge(base, 2, range(3, 9))
    assert (base.details.merged_generation(SHARD), caught_up(base.details)) == (2, 1)
    # A change of the details that is not made by the library keeps the credit as it is.
    base = update_details(base, lambda old: replace(old, num_shards=1))
    assert caught_up(base.details) == 1
    base = extend_key_index(base)
    assert (base.details.merged_generation(SHARD), caught_up(base.details)) == (2, 2)
    lance.dataset(base.uri).optimize.compact_files()
    assert base.latest().details.merged_generation(SHARD) == 2


def test_every_column_of_a_composite_key_is_covered(tmp_path: Path) -> None:
    schema = pa.schema([("tenant", pa.string()), ("id", pa.int64()), ("value", pa.string())])
    base = new_table(tmp_path, schema, ("tenant", "id"), [("a", 1, "x")])
    flushed = write_generation(base, SHARD, 1, [("b", 2, "y")])
    merge_runs([MergeTask(base.store, SHARD, (flushed,), 0)])
    base = extend_key_index(base)
    assert key_index_names(base.dataset, base.primary_key) == {"tenant": "tenant_idx", "id": "id_idx"}
    assert covered(base, "tenant_idx") == covered(base, "id_idx") == [[0], [1]]


def test_an_index_of_another_name_or_kind_is_left_alone(tmp_path: Path) -> None:
    base = new_table(tmp_path, rows=[(1, "a"), (2, "b")])
    dataset = lance.dataset(base.uri)
    dataset.drop_index("id_idx")
    dataset.create_scalar_index("value", "BTREE", name="id_idx")
    base = extend_key_index(base)
    assert key_index_names(base.dataset, ("id",)) == {"id": "key_id_idx"}
    dataset = lance.dataset(base.uri)
    dataset.drop_index("key_id_idx")
    dataset.create_scalar_index("id", "BTREE", name="mine")
    base = extend_key_index(base)
    assert key_index_names(base.dataset, ("id",)) == {"id": "mine"}


def test_a_conflict_that_does_not_end_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = new_table(tmp_path, SCHEMA, rows=[(1, "a")])

    def conflict(*_: object) -> None:
        raise OSError("Retryable commit conflict for version 3: preempted")

    monkeypatch.setattr(key_index, "build_key_index", conflict)
    monkeypatch.setattr(library_commit, "_MAX_ATTEMPTS", 3)
    with pytest.raises(ConflictError, match="3 attempts"):
        extend_key_index(base)


def publish(base: BaseTable, segments: SegmentChange, *, is_newest: bool = True) -> BaseTable:
    before, version = commit_shards(base, (), segments=segments, is_newest=is_newest)
    assert (before.version, version) == (base.version, base.version + 1)
    return base.latest()


def test_missing_segments_are_published_with_the_shards_in_one_version(tmp_path: Path) -> None:
    """As good as an index that the library has extended: it covers all, and is credited with the merges."""
    base = extend_key_index(new_table(tmp_path, rows=[(1, "base")]))
    base = merge(base, 1, range(10, 20))
    segments = build_missing_segments(base)
    assert segments is not None
    after = publish(base, segments)
    assert covered(after) == [[fragments(base)[0]], fragments(base)[1:]]
    assert caught_up(after.details) == 1
    pages, lacking = indexed_pages(after)
    assert pages is not None
    assert not lacking
    assert [len(found) for found in pages.find(pa.array([1, 10, 19, 20]))] == [3, 3]
    assert build_missing_segments(after) is None
    assert extend_key_index(after) is after
    assert len(merge(after, 2, range(15, 25)).dataset.to_table()) == 16


def test_segments_whose_fragments_are_gone_go_with_the_next_ones(tmp_path: Path) -> None:
    base = new_table(tmp_path)
    assert covered(base) == [[]]
    base = merge(base, 1, range(5))
    segments = build_missing_segments(base)
    assert segments is not None
    assert covered(publish(base, segments)) == [fragments(base)]


def test_every_key_column_gets_its_segment(tmp_path: Path) -> None:
    schema = pa.schema([("a", pa.int64()), ("b", pa.string()), ("value", pa.string())])
    base = extend_key_index(new_table(tmp_path, schema, ("a", "b"), rows=[(1, "x", "base")]))
    lance.write_dataset(
        pa.table({"a": [2], "b": ["y"], "value": ["new"]}, base.schema), base.uri, mode="append"
    )
    base = base.latest()
    segments = build_missing_segments(base)
    assert segments is not None
    assert len(segments.new) == 2
    after = publish(base, segments)
    assert [covered(after, name) for name in ("a_idx", "b_idx")] == [[[0], [1]]] * 2


@pytest.mark.parametrize("is_newest", [True, False])
def test_segments_are_not_published_above_what_others_commit_meanwhile(
    tmp_path: Path, is_newest: bool
) -> None:
    base = merge(extend_key_index(new_table(tmp_path, rows=[(1, "base")])), 1, range(10, 20))
    segments = build_missing_segments(base)
    assert segments is not None
    newer = update_details(base, lambda old: replace(old, num_shards=old.num_shards + 1))
    with pytest.raises(ConflictError):
        commit_shards(base, (), segments=segments, is_newest=is_newest)
    assert base.latest().version == newer.version


def test_what_only_the_library_can_do_is_left_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = merge(extend_key_index(new_table(tmp_path, rows=[(1, "base")])), 1, range(10, 20))
    monkeypatch.setattr(key_index, "MAX_SEGMENTS", 0)
    assert build_missing_segments(base) is None
    monkeypatch.undo()
    dataset = lance.dataset(base.uri)
    dataset.drop_index("id_idx")
    assert build_missing_segments(base.latest()) is None


@pytest.mark.parametrize("done", [False, True])
@pytest.mark.parametrize("request_name", ["put", "put_if_absent"])
def test_a_publication_that_fails_is_made_up_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request_name: str, done: bool
) -> None:
    """The files stay whether or not the store has done what it did not answer: a version may have them."""
    base = merge(extend_key_index(new_table(tmp_path, rows=[(1, "base")])), 1, range(10, 20))
    segments = build_missing_segments(base)
    assert segments is not None
    real = getattr(LocalStore, request_name)

    def unanswered(*arguments: object) -> None:
        if done:
            real(*arguments)
        raise StorageError("the store does not answer")

    with monkeypatch.context() as patched:
        patched.setattr(LocalStore, request_name, unanswered)
        with pytest.raises(StorageError, match="does not answer"):
            commit_shards(base, (), segments=segments, is_newest=True)
    assert all(base.store.head(path) for path in segments.files)
    after = base.latest()
    assert after.version == base.version + (done and request_name == "put_if_absent")
    again = build_missing_segments(after)
    after = after if again is None else publish(after, again)
    assert covered(after) == [[fragments(base)[0]], fragments(base)[1:]]
    assert after.dataset.to_table(filter="id in (1, 10, 19, 20)").num_rows == 3


def with_fragments_to_compact(directory: Path) -> BaseTable:
    """Return a table with rows 1 and 10 to 29, of which the key index covers the first."""
    base = merge(extend_key_index(new_table(directory, rows=[(1, "base")])), 1, range(10, 20))
    return merge(base, 2, range(20, 30))


def check_index(base: BaseTable) -> None:
    assert sorted(set().union(*covered(base))) == fragments(base)
    for key in (1, 2, 10, 19, 20, 29, 30):
        is_there = key == 1 or 10 <= key < 30
        assert base.dataset.to_table(filter=f"id = {key}").num_rows == is_there, key
    pages, lacking = indexed_pages(base)
    assert pages is not None
    assert not lacking


def test_a_compaction_that_commits_later_finds_the_new_segments(tmp_path: Path) -> None:
    """Planned and done before they were published, it moves rows that they cover."""
    base = with_fragments_to_compact(tmp_path)
    dataset = lance.dataset(base.uri)
    done = [task.execute(dataset) for task in Compaction.plan(dataset, options={}).tasks]
    assert done
    segments = build_missing_segments(base)
    assert segments is not None
    published = publish(base, segments)
    with pytest.raises(OSError, match="conflict"):
        Compaction.commit(dataset, done)
    after = base.latest()
    assert fragments(after) == fragments(published)  # another version: the library has reserved numbers
    check_index(after)
    check_index(extend_key_index(after))


def test_segments_are_not_published_above_a_compaction(tmp_path: Path) -> None:
    base = with_fragments_to_compact(tmp_path)
    segments = build_missing_segments(base)
    assert segments is not None
    assert lance.dataset(base.uri).optimize.compact_files().fragments_removed == 2
    with pytest.raises(ConflictError):
        commit_shards(base, (), segments=segments, is_newest=True)
    check_index(extend_key_index(base))
