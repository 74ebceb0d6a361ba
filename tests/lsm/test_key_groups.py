"""Lookups over many generations: they are asked in few groups, and the newest row of a key is found."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

import weir
from weir.engine.context import default_context
from weir.lsm.generation import Generation
from weir.lsm.key_groups import key_groups
from weir.snapshots.snapshot import STRONG
from weir.storage.counting import CountingStore

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("value", pa.int64())])
GENERATIONS = 13


def test_many_generations_are_asked_in_few_groups(tmp_path: Path) -> None:
    table = weir.create(tmp_path / "t", SCHEMA, primary_key="id", fsync=False)
    model: dict[int, int] = {}
    with table.writer(flush_on_close=False) as writer:
        for number in range(GENERATIONS + 1):
            written = dict.fromkeys(range(number, number + 6), number)
            writer.upsert([{"id": key, "value": value} for key, value in written.items()])
            writer.delete([number + 2])
            model |= written
            del model[number + 2]
            if number < GENERATIONS:
                writer.flush()
    reader = weir.open(table.uri, fsync=False)
    snapshot = reader.internals.reader.snapshots.take(STRONG)
    (view,) = snapshot.shards
    sources = snapshot.shard_levels(view).sources
    assert sum(isinstance(source, Generation) for source in sources) == GENERATIONS
    groups = key_groups(default_context().cache, "t", sources)
    # 8 + 4 + 1, and the log, newest first.
    assert [len(group.sources) for group in groups] == [1, 1, 4, 8]
    assert [source for group in reversed(groups) for source in group.sources] == list(sources)
    keys = [*range(GENERATIONS + 8), 1000]
    expected = [{"id": key, "value": model[key]} for key in keys if key in model]
    # By bloom filters at first, by shared indexes after some lookups, and one by one.
    for _ in range(20):
        assert reader.get(keys).to_pylist() == expected
    for key in keys:
        assert reader.get([key]).to_pylist() == [row for row in expected if row["id"] == key]


def test_a_log_without_a_tail_is_probed_under_one_name(tmp_path: Path) -> None:
    made = weir.create(tmp_path / "t", SCHEMA, primary_key="id", fsync=False)
    with made.writer() as writer:
        writer.upsert([{"id": 1, "value": 1}])
    default_context().cache.clear()
    store = CountingStore(made.internals.store)
    table = weir.Table(store, made.internals.base)
    assert table.get([1]).num_rows == 1
    store.reset()
    assert table.get([1]).num_rows == 1
    assert dict(store.counts) == {"list_directories": 1, "get": 1}
