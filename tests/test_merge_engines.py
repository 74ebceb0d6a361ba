"""Tables with a merge engine: every read tells what a loop over the writes comes to (I5)."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.mem_wal import LsmScanner, ShardSnapshot

import weir
from tests.crashes import kill_at, say
from tests.lsm.test_fold import ENGINES, one_by_one
from weir.errors import OptionError, SchemaError, WeirError
from weir.format.merge_engine import EngineKind, MergeEngine

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("a", pa.string()),
        pa.field("n", pa.int64()),
        pa.field("s", pa.int64()),
        pa.field("list", pa.list_(pa.int64())),
    ]
)
KEYS = 6


def made(path: Path, engine: MergeEngine, **options: Any) -> weir.Table:
    """Return a new table."""
    if engine.kind is EngineKind.LAST_ROW:
        return weir.create(
            path, SCHEMA, primary_key="id", sequence_by=engine.sequence_by, fsync=False, **options
        )
    return weir.create(path, SCHEMA, primary_key="id", merge_engine=engine, fsync=False, **options)


def by_id(rows: pa.Table) -> dict[int, dict[str, Any]]:
    """Return rows by key, each there once."""
    listed = rows.select(SCHEMA.names).to_pylist()
    assert len({row["id"] for row in listed}) == len(listed)
    return {row["id"]: row for row in listed}


class History:
    """Writes to a table, and what a loop over them comes to."""

    def __init__(self, table: weir.Table, draw: random.Random) -> None:
        self.table = table
        self.draw = draw
        self.versions: list[dict[str, Any]] = []

    @property
    def expected(self) -> dict[int, dict[str, Any]]:
        rows = one_by_one(self.table.merge_engine, self.versions)  # type: ignore[arg-type]
        return {key: {name: row[name] for name in SCHEMA.names} for key, row in rows.items()}

    def row(self, key: int) -> dict[str, Any]:
        draw = self.draw
        return {
            "id": key,
            "a": draw.choice([None, "x", "y", "z"]),
            "n": draw.choice([None, *range(-2, 5)]),
            "s": draw.choice([None, len(self.versions) // 8, len(self.versions) // 8 + 1]),
            "list": draw.choice([None, [], [1], [2, None, 1]]),
        }

    def write(self, writer: Any) -> None:
        keys = [self.draw.randrange(KEYS) for _ in range(self.draw.randrange(1, 5))]
        if self.draw.random() < 0.2:
            writer.delete(sorted(set(keys)))
            self.versions += [
                dict.fromkeys(SCHEMA.names) | {"id": key, "_tombstone": True} for key in sorted(set(keys))
            ]
            return
        rows = [self.row(key) for key in keys]
        writer.upsert(rows)
        self.versions += [{**row, "_tombstone": False} for row in rows]

    def check(self) -> None:
        expected, table = self.expected, self.table
        assert by_id(table.scan().to_table()) == expected
        assert table.scan().count() == len(expected)
        assert by_id(table.get(list(range(KEYS)))) == expected
        chosen = {key: row for key, row in expected.items() if (row["n"] or 0) > 1}
        assert by_id(table.scan(filter="n > 1").to_table()) == chosen
        assert table.scan(["a"], filter="n > 1").count() == len(chosen)


@pytest.mark.one_in(3)
@pytest.mark.parametrize("engine", ENGINES, ids=str)
@pytest.mark.parametrize("sessions", [3, pytest.param(8, marks=pytest.mark.long)])
def test_every_read_at_every_moment(tmp_path: Path, engine: MergeEngine, sessions: int) -> None:
    draw = random.Random(str(engine))
    table = made(tmp_path / "t", engine, shard_by=weir.bucket("id", 2))
    history = History(table, draw)
    begin = table.snapshot()
    tokens: list[tuple[Any, dict[int, dict[str, Any]]]] = []
    told: dict[int, dict[str, Any]] = {}
    feed = table.changes(begin, batch_rows=3, before=True)
    for _ in range(sessions):
        with table.writer(flush_on_close=draw.random() < 0.5) as writer:
            for _ in range(5):
                history.write(writer)
                step = draw.random()
                if step < 0.3:
                    writer.flush()
                history.check()
        tokens.append((table.snapshot(), history.expected))
        if draw.random() < 0.6:
            table.maintenance.merge()
        if draw.random() < 0.3:
            table.maintenance.compact()
        history.check()
        for change in feed:
            for row in change.rows.to_pylist():
                assert row["_before"] == told.get(row["id"])
                if row["_op"] == "delete":
                    del told[row["id"]]
                else:
                    told[row["id"]] = {name: row[name] for name in SCHEMA.names}
        assert told == history.expected
    for token, rows in tokens:
        assert by_id(table.scan(at=token).to_table()) == rows
    with table.writer() as writer:
        last = [history.row(key) for key in range(KEYS)]
        writer.upsert(last)
        history.versions += [{**row, "_tombstone": False} for row in last]
    table.maintenance.merge()
    assert by_id(lance.dataset(table.uri).to_table()) == history.expected
    assert by_id(weir.open(table.uri).scan().to_table()) == history.expected
    assert table.maintenance.verify().findings == ()


def test_late_rows_and_deletes_count_by_their_sequence(tmp_path: Path) -> None:
    table = weir.create(tmp_path / "t", SCHEMA, primary_key="id", sequence_by="s", fsync=False)

    def there() -> Any:
        rows = table.get([1]).to_pylist()
        return rows[0]["a"] if rows else None

    with table.writer(flush_on_close=False) as writer:
        writer.upsert([{"id": 1, "a": "five", "s": 5}])
        writer.upsert([{"id": 1, "a": "three", "s": 3}])
        assert there() == "five"
        writer.flush()
        table.maintenance.merge()
        writer.upsert([{"id": 1, "a": "four", "s": 4}])
        writer.flush()
        assert there() == "five"
        writer.delete([{"id": 1, "s": 4}])
        assert there() == "five"
        writer.apply([{"id": 1, "s": 7, "_op": "delete"}])
        writer.upsert([{"id": 1, "a": "six", "s": 6}])
        assert there() is None
        writer.flush()
        writer.upsert([{"id": 1, "a": "seven", "s": 7}])
        assert there() == "seven"
        # Without a sequence it removes what was written before it.
        writer.delete([1])
        writer.upsert([{"id": 1, "a": "one", "s": 1}])
        assert there() == "one"
        writer.flush()
    table.maintenance.merge()
    assert there() == "one"


def test_searches_see_the_rows_that_versions_come_to(tmp_path: Path) -> None:
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field("text", pa.string()),
            pa.field("vector", pa.list_(pa.float32(), 4)),
        ]
    )
    table = weir.create(tmp_path / "t", schema, primary_key="id", merge_engine="partial_update", fsync=False)
    vectors = np.eye(4, dtype=np.float32).tolist()
    with table.writer(flush_on_close=False) as writer:
        writer.upsert([{"id": key, "text": f"word{key}", "vector": vectors[key]} for key in range(4)])
        writer.flush()
        table.maintenance.merge()
        table.indexes.create("text", "INVERTED")
        writer.upsert([{"id": 0, "text": "changed"}])
        writer.flush()
        writer.upsert([{"id": 1, "vector": vectors[0]}])
        near = table.search(vectors[0], k=2, column="vector").to_table()
        assert sorted(zip(near["id"].to_pylist(), near["text"].to_pylist(), strict=True)) == [
            (0, "changed"),
            (1, "word1"),
        ]
        found = table.search_text("changed", column="text").to_table()
        assert found.select(["id", "vector"]).to_pylist() == [{"id": 0, "vector": vectors[0]}]
        assert table.search_text("word0", column="text").to_table().num_rows == 0


def test_the_library_reads_the_base_table_and_stops_at_the_rest(tmp_path: Path) -> None:
    table = made(tmp_path / "t", MergeEngine.aggregation(n="sum"))
    with table.writer() as writer:
        writer.upsert([{"id": 1, "n": 1}])
        writer.upsert([{"id": 1, "n": 2}])
    table.maintenance.merge()
    with table.writer() as writer:
        writer.upsert([{"id": 1, "n": 4}])
    dataset = lance.dataset(table.uri)
    assert dataset.to_table(columns=["id", "n"]).to_pylist() == [{"id": 1, "n": 3}]
    (view,) = table.internals.reader.take_newest().shards
    with pytest.raises(OSError, match="at most one sharding spec"):
        dataset.mem_wal_writer(str(view.shard_id))
    shard = ShardSnapshot(str(view.shard_id)).with_current_generation(view.manifest.current_generation)
    newest = view.manifest.flushed_generations[-1]
    scanner = LsmScanner.from_snapshots(dataset, [shard.with_sstable(newest.generation, newest.path)])
    with pytest.raises(OSError, match="_pk_index"):
        scanner.to_table()
    assert table.get([1]).column("n").to_pylist() == [7]


def count_to_24(uri: str) -> None:
    table = weir.open(uri)
    with table.writer(max_memtable_rows=4) as writer:
        for number in range(24):
            writer.upsert([{"id": number % 3, "n": 1}])
            say(counted=number)
            if number % 8 == 7:
                writer.flush()
                table.maintenance.merge()


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    "failpoint",
    [
        "wal.after_append",
        "flush.after_data",
        "flush.after_manifest@2",
        "merge.before_commit",
        "merge.after_commit",
    ],
)
def test_a_sum_is_exact_after_sigkill(tmp_path: Path, failpoint: str) -> None:
    table = weir.create(
        tmp_path / "t", SCHEMA, primary_key="id", merge_engine=MergeEngine.aggregation(n="sum", s="count")
    )
    acknowledged = len(kill_at(failpoint, count_to_24, table.uri).told)
    table.maintenance.recover()
    for _ in range(2):
        rows = weir.open(table.uri).scan().to_table()
        total = sum(rows.column("n").to_pylist())
        assert total == sum(rows.column("s").to_pylist())
        assert acknowledged <= total <= acknowledged + 1
        table.maintenance.merge()


def test_a_merge_that_is_repeated_adds_nothing(tmp_path: Path) -> None:
    table = made(tmp_path / "t", MergeEngine.aggregation(n="sum"))
    with table.writer() as writer:
        writer.upsert([{"id": 1, "n": 1}, {"id": 1, "n": 1}])
    planned = weir.open(table.uri)
    table.maintenance.merge()
    planned.maintenance.merge()
    assert table.scan(["n"]).to_table().to_pylist() == [{"n": 2}]


def test_a_clone_has_the_engine_and_the_rows(tmp_path: Path) -> None:
    table = made(tmp_path / "t", MergeEngine.aggregation(n="sum"))
    with table.writer(flush_on_close=False) as writer:
        writer.upsert([{"id": 1, "n": 1}])
        writer.flush()
        table.maintenance.merge()
        writer.upsert([{"id": 1, "n": 2}])
        writer.flush()
        writer.upsert([{"id": 1, "n": 4}])
    weir.clone(table.uri, tmp_path / "copy")
    copy = weir.open(tmp_path / "copy")
    assert copy.merge_engine == table.merge_engine
    assert copy.get([1]).column("n").to_pylist() == [7]
    with copy.writer() as writer:
        writer.upsert([{"id": 1, "n": 8}])
    copy.maintenance.merge()
    assert copy.get([1]).column("n").to_pylist() == [15]
    assert table.get([1]).column("n").to_pylist() == [7]


def test_the_columns_of_the_engine_stay_and_others_change(tmp_path: Path) -> None:
    table = made(tmp_path / "t", MergeEngine.aggregation(n="sum"))
    with table.writer(flush_on_close=False) as writer:
        writer.upsert([{"id": 1, "n": 1, "a": "x"}])
        writer.flush()
        writer.upsert([{"id": 1, "n": 2}])
    with pytest.raises(SchemaError, match="the merge engine of the table goes by it"):
        table.alter(drop=["n"])
    table.alter(drop=["list"], rename={"a": "name"})
    table.alter(add=[pa.field("more", pa.int64())])
    with table.writer() as writer:
        writer.upsert([{"id": 1, "n": 4, "more": 5}])
    expected = [{"name": "x", "n": 7, "more": 5}]
    assert table.get([1], columns=["name", "n", "more"]).to_pylist() == expected
    table.maintenance.merge()
    assert table.get([1], columns=["name", "n", "more"]).to_pylist() == expected


@pytest.mark.parametrize(
    ("engine", "sequence_by", "error", "match"),
    [
        ("newest", None, OptionError, "no merge engine 'newest'"),
        (7, None, OptionError, "a merge engine is expected"),
        ("first_row", "s", OptionError, "sequence groups"),
        (None, "missing", SchemaError, "column 'missing'"),
        (None, "id", SchemaError, "part of the key"),
        (None, "list", SchemaError, "cannot serve as a sequence"),
        (MergeEngine.aggregation(a="sum"), None, SchemaError, "int64, uint64 or float64"),
        (MergeEngine.aggregation(a="count"), None, SchemaError, "int64 or uint64"),
        (MergeEngine.aggregation(list="max"), None, SchemaError, "cannot serve as max"),
        (MergeEngine.aggregation(n="list_append"), None, SchemaError, "must be a list"),
        (MergeEngine.aggregation(id="sum"), None, SchemaError, "part of the key"),
        (MergeEngine.partial_update({"s": ["n"], "a": ["n"]}), None, SchemaError, "'n' twice"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_written(
    tmp_path: Path, engine: Any, sequence_by: str | None, error: type[WeirError], match: str
) -> None:
    with pytest.raises(error, match=match):
        weir.create(tmp_path / "t", SCHEMA, primary_key="id", merge_engine=engine, sequence_by=sequence_by)
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize("function", ["median", 7, None, ["sum"]])
def test_functions_that_there_are_not_are_refused_by_name(function: Any) -> None:
    with pytest.raises(OptionError, match=r"there is no function .*\[n\].*sum, count"):
        MergeEngine.aggregation(n=function)


def test_writes_that_depend_on_the_row_are_refused(tmp_path: Path) -> None:
    table = made(tmp_path / "t", MergeEngine.aggregation(n="sum"))
    with table.writer() as writer:
        writer.upsert([{"id": 1, "n": 1}])
        refused: list[Callable[[], object]] = [
            lambda: writer.patch([{"id": 1, "n": 2}]),
            lambda: writer.insert([{"id": 1, "n": 2}]),
            lambda: writer.delete([1], condition="n = 1"),
            lambda: writer.delete(where="n = 1"),
            lambda: writer.update("n = 1", {"n": "n + 1"}),
        ]
        for one in refused:
            with pytest.raises(OptionError, match="computes only when it is read"):
                one()
    assert table.get([1]).column("n").to_pylist() == [1]
