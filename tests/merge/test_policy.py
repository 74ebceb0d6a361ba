"""When a merge is worth what it costs: a share of the base table, many generations of a shard, or an age."""

from __future__ import annotations

import os
import time
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

import weir
from weir import MergePolicy
from weir.base.table import BaseTable
from weir.errors import OptionError
from weir.format import layout
from weir.format.shard_manifest import FlushedGeneration
from weir.merge.plan import MergeTask
from weir.merge.policy import ALWAYS
from weir.storage.counting import CountingStore

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])


def tasks_of(*shards: list[list[int]]) -> list[MergeTask]:
    """Return the tasks of some shards: for each task the rows of its generations."""
    found = []
    for shard, runs in enumerate(shards):
        after = 0
        for rows in runs:
            run = tuple(
                FlushedGeneration(after + number, f"g{after + number}", physical_rows=count)
                for number, count in enumerate(rows, start=1)
            )
            found.append(MergeTask(None, UUID(int=shard), run, after))  # type: ignore[arg-type]
            after += len(run)
    return found


@pytest.mark.parametrize(
    ("policy", "shards", "base_rows", "is_due"),
    [
        (ALWAYS, [[[1]]], 10**9, True),
        (ALWAYS, [], 10**9, False),
        (ALWAYS, [], 0, False),
        (MergePolicy(min_share=0.1), [[[49], [20]], [[30]]], 1_000, False),
        (MergePolicy(min_share=0.1), [[[50], [20]], [[30]]], 1_000, True),
        (MergePolicy(min_share=2), [[[1_999]]], 1_000, False),
        (MergePolicy(min_share=0.5), [[[1]]], 0, True),
        (MergePolicy(min_share=0.5, max_generations=3), [[[1], [1]], [[1, 1]]], 1_000, False),
        (MergePolicy(min_share=0.5, max_generations=3), [[[1], [1, 1]], [[1]]], 1_000, True),
    ],
)
def test_enough_is_a_share_of_the_base_table_or_many_generations(
    policy: MergePolicy, shards: list[list[list[int]]], base_rows: int, is_due: bool
) -> None:
    assert policy.is_due(tasks_of(*shards), base_rows=base_rows) is is_due


def test_what_waits_is_read_and_merged_when_there_is_enough(tmp_path: Path) -> None:
    table = weir.create(tmp_path / "t", SCHEMA, primary_key="id", shard_by=weir.bucket("id", 2), fsync=False)
    policy = MergePolicy(min_share=0.1)

    def write(first: int, count: int, name: str) -> None:
        with table.writer() as writer:
            writer.upsert([{"id": number, "name": name} for number in range(first, first + count)])

    write(0, 200, "old")
    assert table.maintenance.merge(policy=policy).rows_upserted == 200
    write(0, 12, "new")
    waiting = table.maintenance.merge(policy=policy)
    assert (waiting.shards, waiting.generations, waiting.rows_upserted, waiting.rows_left) == (0, 0, 0, 12)
    assert table.maintenance.run(merge_policy=policy).merge.rows_left == 12
    assert table.status().unmerged_rows == 12
    assert table.scan(filter="name = 'new'").count() == 12
    write(6, 8, "newer")
    merged = table.maintenance.merge(policy=policy)
    # Each key is merged once, and what waited together counted as stored: 12 rows and 8.
    assert (merged.shards, merged.rows_upserted, merged.rows_left) == (2, 14, 0)
    assert table.scan(filter="name = 'new'").count() == 6
    assert table.scan(filter="name = 'newer'").count() == 8
    assert table.status().unmerged_rows == 0


def test_many_generations_do_not_wait(tmp_path: Path) -> None:
    table = weir.create(tmp_path / "t", SCHEMA, primary_key="id", fsync=False)
    policy = MergePolicy(min_share=0.5, max_generations=3)
    with table.writer() as writer:
        writer.upsert([{"id": number, "name": "old"} for number in range(100)])
    table.maintenance.merge()
    merged = []
    for number in range(6):
        with table.writer() as writer:
            writer.upsert([{"id": number, "name": "new"}])
        merged.append(table.maintenance.merge(policy=policy).generations)
    assert merged == [0, 0, 3, 0, 0, 3]


def test_rows_do_not_wait_longer_than_their_age(tmp_path: Path) -> None:
    made = weir.create(tmp_path / "t", SCHEMA, primary_key="id", shard_by=weir.bucket("id", 2), fsync=False)
    store = CountingStore(made.internals.store)
    table = weir.Table(store, BaseTable.open(store))
    with table.writer() as writer:
        writer.upsert([{"id": number, "name": "old"} for number in range(100)])
    table.maintenance.merge()
    with table.writer() as writer:
        writer.upsert([{"id": number, "name": "new"} for number in range(10)])
    (first, second) = (one.shard_id for one in table.status().shards)
    age_files(table, second, timedelta(hours=2))
    assert 7_190 < table.status().lag_seconds < 7_300
    store.reset()
    assert table.maintenance.merge(policy=MergePolicy(min_share=0.5)).rows_left == 10
    heads = store.counts["head"]
    store.reset()
    assert (
        table.maintenance.merge(policy=MergePolicy(min_share=0.5, max_age=timedelta(hours=3))).rows_left == 10
    )
    # Of each shard how old its oldest generation is, and only where that decides.
    assert store.counts["head"] == heads + 2
    merged = table.maintenance.merge(policy=MergePolicy(min_share=0.5, max_age=timedelta(hours=2)))
    # All that waits, whichever of it is old.
    assert (merged.shards, merged.rows_upserted, merged.rows_left) == (2, 10, 0)
    # Rows of the log that are older are nothing that could be merged.
    with table.writer(flush_on_close=False) as writer:
        writer.upsert([{"id": 1, "name": "newer"}])
    age_files(table, first, timedelta(hours=5))
    age_files(table, second, timedelta(hours=5))
    assert table.maintenance.merge(policy=MergePolicy(min_share=0.5, max_age=timedelta(0))).generations == 0


def age_files(table: weir.Table, shard_id: UUID, age: timedelta) -> None:
    """Have all files of a shard look as if they had been written earlier."""
    then = time.time() - age.total_seconds()
    for path in (Path(table.uri) / layout.shard_directory(shard_id)).rglob("*"):
        os.utime(path, (then, then))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"min_share": -0.1}, "at least 0, got -0.1"),
        ({"min_share": float("nan")}, "at least 0, got nan"),
        ({"min_share": float("inf")}, "at least 0, got inf"),
        ({"min_share": True}, "at least 0, got True"),
        ({"min_share": "1%"}, "at least 0, got '1%'"),
        ({"max_generations": 0}, "at least 1, got 0"),
        ({"max_generations": 2.5}, "at least 1, got 2.5"),
        ({"max_age": timedelta(seconds=-1)}, "at least 0, or None"),
        ({"max_age": 3600}, "at least 0, or None for no limit, got 3600"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(OptionError, match=says) as refused:
        MergePolicy(**options)
    assert refused.value.where in options
