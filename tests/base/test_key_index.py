from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from uuid import UUID

import lance
import pyarrow as pa
import pytest
from tests.base.table_kit import SCHEMA, new_table, write_generation

from weir.base import key_index, library_commit
from weir.base.details_commit import update_details
from weir.base.key_index import extend_key_index, key_index_names
from weir.base.table import BaseTable
from weir.errors import ConflictError
from weir.format.index_details import IndexDetails
from weir.merge.commit import merge_run
from weir.merge.plan import MergeTask

SHARD = UUID("8f3b0d9e-7f2c-4b5e-9c51-2a6de1c0a005")


def merge(base: BaseTable, number: int, keys: range) -> BaseTable:
    flushed = write_generation(base, SHARD, number, [(key, f"{number}") for key in keys])
    merge_run(MergeTask(base.store, SHARD, (flushed,), number - 1))
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
    monkeypatch.setattr(key_index, "_MAX_SEGMENTS", 3)
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
    merge_run(MergeTask(base.store, SHARD, (flushed,), 0))
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
