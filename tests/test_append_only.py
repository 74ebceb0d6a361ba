"""Tables whose rows are only added: every read has every row as often as it was written."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from lance.mem_wal import LsmScanner, ShardSnapshot

import weir
from weir.base.table import BaseTable
from weir.errors import FilterError, LeaseHeldError, OptionError, SchemaError, WeirError
from weir.maintenance import sorted_compaction
from weir.merge.commit import merge_runs
from weir.merge.plan import plan_merge

SCHEMA = pa.schema(
    [
        pa.field("at", pa.int64()),
        pa.field("text", pa.string()),
        pa.field("vector", pa.list_(pa.float32(), 2)),
    ]
)


def made(path: Path, **options: Any) -> weir.Table:
    """Return a new table."""
    return weir.create(path, SCHEMA, primary_key=None, fsync=False, **options)


def row(at: int | None, text: str = "x") -> dict[str, Any]:
    """Return a row."""
    return {"at": at, "text": text, "vector": [float(at or 0), 0.0]}


def counted(rows: pa.Table) -> Counter[tuple[int | None, str]]:
    """Return how often every row is there."""
    return Counter((one["at"], one["text"]) for one in rows.select(["at", "text"]).to_pylist())


def fragments(table: weir.Table) -> list[list[int]]:
    """Return the column ``at`` of every fragment of the base table, in the order of its rows."""
    return [one.to_table(["at"])["at"].to_pylist() for one in lance.dataset(table.uri).get_fragments()]


@pytest.mark.covering
@pytest.mark.parametrize("steps", [12, pytest.param(60, marks=pytest.mark.long)])
@pytest.mark.parametrize(("seed", "sort_by"), [(1, ()), (2, ("at",))])
def test_every_row_is_there_as_often_as_it_was_written(
    tmp_path: Path, seed: int, sort_by: tuple[str, ...], steps: int
) -> None:
    """A model that is a counter of rows, through flush, merge, compaction, deletes and other processes."""
    chance = random.Random(seed)
    table = made(tmp_path / "t", sort_by=sort_by, shard_by=weir.bucket("at", 2))
    model: Counter[tuple[int | None, str]] = Counter()
    writer = table.writer(max_memtable_rows=7)
    for _ in range(steps):
        match chance.choice(["write"] * 4 + ["flush", "merge", "compact", "delete", "some", "again"]):
            case "write":
                rows = [row(chance.randrange(6), chance.choice("ab")) for _ in range(chance.randrange(1, 6))]
                writer.upsert(rows)
                model.update((one["at"], one["text"]) for one in rows)
            case "flush":
                writer.flush()
            case "merge":
                table.maintenance.merge()
            case "compact":
                table.maintenance.compact(rows_per_fragment=10)
            case "delete":
                at = chance.randrange(6)
                gone = sum(count for key, count in model.items() if key[0] == at)
                assert writer.delete(where=f"at = {at}").rows == gone
                model = Counter({key: count for key, count in model.items() if key[0] != at})
            case "some":
                there = sum(count for key, count in model.items() if key[1] == "a")
                result = writer.delete(where="text = 'a'", limit=2)
                assert (result.rows, result.remaining) == (min(2, there), max(there - 2, 0))
                model = counted(table.scan().to_table())
                assert sum(count for key, count in model.items() if key[1] == "a") == max(there - 2, 0)
            case "again":
                writer.close()
                table = weir.open(tmp_path / "t", fsync=False)
                writer = table.writer(max_memtable_rows=7)
        assert counted(table.scan().to_table()) == model
        assert counted(table.scan(filter="at < 3").to_table()) == Counter(
            {key: count for key, count in model.items() if key[0] is not None and key[0] < 3}
        )
        counts = table.sql("SELECT count(*) AS n FROM t", name="t").to_table()
        assert counts["n"].to_pylist() == [model.total()]
        if sort_by:
            assert all(one == sorted(one) for one in fragments(table))
    writer.close()
    report = table.maintenance.verify()
    assert report.passed, report.findings


def test_generations_and_fragments_are_sorted(tmp_path: Path) -> None:
    """Each for itself after a flush, together after a compaction, nulls last; ranges leave fragments out."""
    table = made(tmp_path / "t", sort_by=["at", "text"])
    with table.writer() as writer:
        for number in range(4):
            writer.upsert([row(20 - number), row(None), row(number, "b"), row(number, "a")])
            writer.flush()
            (generation,) = (tmp_path / "t").glob(f"_mem_wal/*/*_gen_{number + 1}")
            stored = lance.dataset(str(generation)).to_table(["at", "text"]).to_pylist()
            assert [(one["at"], one["text"]) for one in stored] == [
                (number, "a"),
                (number, "b"),
                (20 - number, "x"),
                (None, "x"),
            ]
            assert not (generation / "_pk_index").exists()
            assert not (generation / "bloom_filter.bin").exists()
            if number % 2:
                table.maintenance.merge()
    assert fragments(table) == [
        [0, 0, 1, 1, 19, 20, None, None],
        [2, 2, 3, 3, 17, 18, None, None],
    ]
    report = table.maintenance.compact()
    assert (report.fragments_removed, report.fragments_added) == (2, 1)
    assert fragments(table) == [[0, 0, 1, 1, 2, 2, 3, 3, 17, 18, 19, 20, None, None, None, None]]
    assert table.scan(filter="at BETWEEN 1 AND 2").count() == 4


@pytest.mark.parametrize("is_committed", [True, False])
def test_a_conflict_with_its_own_commit_takes_no_files_from_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_committed: bool
) -> None:
    """The library calls it a conflict where it does not learn what became of a commit."""
    table = made(tmp_path / "t", sort_by="at")
    for number in range(3):
        with table.writer() as writer:
            writer.upsert([row(10 - number), row(number)])
        table.maintenance.merge()
    replacing = sorted_compaction._replacing

    def unanswered(result: sorted_compaction.SortedFragments) -> Callable[[BaseTable, Any], None]:
        commit = replacing(result)

        def attempt(base: BaseTable, dataset: Any) -> None:
            if is_committed:
                commit(base, dataset)
            raise OSError("Unable to determine the commit result for version 9")

        return attempt

    monkeypatch.setattr(sorted_compaction, "_replacing", unanswered)
    files = set((tmp_path / "t" / "data").iterdir())
    report = table.maintenance.compact()
    assert (report.fragments_added, report.tasks_lost) == ((1, 0) if is_committed else (0, 1))
    assert len(set((tmp_path / "t" / "data").iterdir()) - files) == int(is_committed)
    found = weir.open(tmp_path / "t", fsync=False).scan(["at"]).to_table()
    assert sorted(found["at"].to_pylist()) == [0, 1, 2, 8, 9, 10]


def test_an_index_finds_rows_after_a_sorted_compaction(tmp_path: Path) -> None:
    """Rows have moved, and the index knows nothing of the new places until it has caught up."""
    table = made(tmp_path / "t", sort_by="at")
    with table.writer() as writer:
        for number in range(3):
            writer.upsert([row(10 - number), row(number)])
            writer.flush()
            table.maintenance.merge()
            if not number:
                table.indexes.create("at", "BTREE")
    table.maintenance.compact()
    for _ in range(2):
        assert [table.scan(filter=f"at = {at}").count() for at in (0, 1, 2, 8, 9, 10)] == [1] * 6
        table.maintenance.catch_up_indexes()


def test_searches_and_changes(tmp_path: Path) -> None:
    """Rows that are equal are all found, whichever level they are in; the feed tells each once."""
    table = made(tmp_path / "t")
    token = table.snapshot()
    with table.writer() as writer:
        writer.upsert([row(1, "one fish"), row(1, "one fish")])
        writer.flush()
        table.maintenance.merge()
        table.indexes.create("text", "INVERTED")
        writer.upsert([row(1, "one fish")])
        writer.flush()
        writer.upsert([row(1, "one fish"), row(5, "two")])
        assert table.search([1.0, 0.0], 4).to_table()["at"].to_pylist() == [1] * 4
        assert table.search_text("fish").to_table().num_rows == 4
        told = [one for batch in table.changes(since=token) for one in batch.rows["text"].to_pylist()]
        assert Counter(told) == {"one fish": 4, "two": 1}
        best = table.sql("SELECT at, text FROM t ORDER BY at DESC LIMIT 2", name="t").to_table()
        assert best["at"].to_pylist() == [5, 1]
        with pytest.raises(weir.errors.QueryError):
            table.search_hybrid([1.0, 0.0], "fish").to_table()


def test_what_goes_by_keys_is_refused(tmp_path: Path) -> None:
    """By name, and nothing is written."""
    table = made(tmp_path / "t")
    with table.writer() as writer:
        writer.upsert([row(1)])
        attempts: list[Callable[[], object]] = [
            lambda: table.get([1]),
            lambda: writer.patch([{"at": 1, "text": "y"}]),
            lambda: writer.insert([row(2)]),
            lambda: writer.upsert([row(2)], condition="at = 1"),
            lambda: writer.delete([1]),
            lambda: writer.delete([{"at": 1}]),
            lambda: writer.update("at = 1", {"text": "'y'"}),
            lambda: table.changes(before=True),
        ]
        for attempt in attempts:
            with pytest.raises(OptionError, match="append-only"):
                attempt()
        with pytest.raises(FilterError):
            writer.delete(where="no_such = 1")
        assert counted(table.scan().to_table()) == {(1, "x"): 1}


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"primary_key": []}, SchemaError),
        ({"primary_key": None, "sort_by": "missing"}, SchemaError),
        ({"primary_key": None, "sort_by": ["at", "at"]}, SchemaError),
        ({"primary_key": None, "sort_by": "vector"}, SchemaError),
        ({"primary_key": None, "merge_engine": "first_row"}, OptionError),
        ({"primary_key": None, "sequence_by": "at"}, OptionError),
        ({"primary_key": "at", "sort_by": "text"}, OptionError),
        ({"primary_key": None, "sort_by": None}, OptionError),
        ({"primary_key": None, "sort_by": [3]}, OptionError),
        ({"primary_key": "missing", "dedup": False}, SchemaError),
        ({"primary_key": "at", "dedup": "no"}, OptionError),
    ],
)
def test_bad_options(tmp_path: Path, options: dict[str, Any], kind: type[WeirError]) -> None:
    """Refused before anything is written."""
    with pytest.raises(kind):
        weir.create(tmp_path / "t", SCHEMA, **options)
    assert not (tmp_path / "t").exists()
    with pytest.raises(TypeError):
        weir.create(tmp_path / "t", SCHEMA)  # type: ignore[call-arg]


@pytest.mark.parametrize("kind", [pa.float16(), pa.json_(), pa.dictionary(pa.int32(), pa.string())])
def test_what_has_no_order_is_nothing_to_sort_by(tmp_path: Path, kind: pa.DataType) -> None:
    """Nothing could be flushed that was written to such a table, or by such a writer."""
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("kind", kind)])
    with pytest.raises(SchemaError, match="sorted by"):
        weir.create(tmp_path / "t", schema, primary_key=None, sort_by="kind")
    with pytest.raises(OptionError, match="cluster_by"):
        weir.create(tmp_path / "t", schema, primary_key="id").writer(cluster_by=("kind",))


def test_keys_that_are_unique_by_construction(tmp_path: Path) -> None:
    """``dedup=False``: the key is never null, and nobody looks whether it comes twice."""
    table = weir.create(tmp_path / "t", SCHEMA, primary_key="at", dedup=False, fsync=False)
    assert table.is_append_only
    assert table.primary_key == ()
    with table.writer() as writer:
        writer.upsert([row(1), row(1), row(2)])
        with pytest.raises(SchemaError):
            writer.upsert([row(None)])
    table.maintenance.merge()
    assert table.scan().count() == 3


def test_the_library_reads_the_base_table_and_stops_at_the_rest(tmp_path: Path) -> None:
    """Its writers stop at the marker, its LSM readers at a generation without a key index."""
    table = made(tmp_path / "t")
    with table.writer() as writer:
        writer.upsert([row(1), row(1)])
        writer.flush()
        table.maintenance.merge()
        writer.upsert([row(2)])
    dataset = lance.dataset(table.uri)
    assert dataset.to_table()["at"].to_pylist() == [1, 1]
    (view,) = table.internals.reader.take_newest().shards
    with pytest.raises(OSError, match="at most one sharding spec"):
        dataset.mem_wal_writer(str(view.shard_id))
    shard = ShardSnapshot(str(view.shard_id)).with_current_generation(view.manifest.current_generation)
    newest = view.manifest.flushed_generations[-1]
    with pytest.raises((OSError, ValueError), match=r"_pk_index|primary key"):
        LsmScanner.from_snapshots(dataset, [shard.with_sstable(newest.generation, newest.path)]).to_table()


def test_a_table_that_an_older_weir_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused by the name of its feature."""
    table = made(tmp_path / "t")
    monkeypatch.setattr("weir.base.table.KNOWN_FEATURES", frozenset())
    with pytest.raises(weir.errors.UnknownFeatureError, match="append_only"):
        weir.open(table.uri)


def test_merges_at_the_same_time_append_once(tmp_path: Path) -> None:
    """Of several that begin from one state one commits, and the others find it done."""
    table = made(tmp_path / "t")
    with table.writer() as writer:
        for at in range(6):
            writer.upsert([row(at), row(at)])
            writer.flush()
    base = BaseTable.open(table.internals.store)
    manifests = [view.manifest for view in table.internals.reader.take_newest().shards]
    tasks = plan_merge(base.store, base.details, manifests)
    parts = [tasks, plan_merge(base.store, base.details, manifests)]
    barrier = threading.Barrier(2)
    failures: list[BaseException] = []

    def merge(part: Any) -> None:
        try:
            barrier.wait()
            merge_runs(part, base=base)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=merge, args=(part,)) for part in parts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert sorted(lance.dataset(table.uri).to_table()["at"].to_pylist()) == sorted([*range(6)] * 2)
    assert table.scan().count() == 12


@pytest.mark.parametrize("place", ["merge.before_commit", "merge.after_commit"])
def test_a_merge_that_dies_appends_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    """Before its commit nothing has happened, after it all; whoever goes on does not append twice."""
    table = made(tmp_path / "t")
    with table.writer() as writer:
        writer.upsert([row(1), row(1)])

    class DiedError(Exception):
        pass

    def reach(name: str) -> None:
        if name == place:
            raise DiedError

    with monkeypatch.context() as patched:
        patched.setattr("weir.engine.failpoint.reach", reach)
        with pytest.raises(DiedError):
            table.maintenance.merge()
    assert weir.open(table.uri).scan().count() == 2
    table.maintenance.merge()
    assert weir.open(table.uri).scan().count() == 2
    assert lance.dataset(table.uri).count_rows() == 2


def test_rows_that_another_writer_holds_are_not_missed(tmp_path: Path) -> None:
    """A delete by filter that could not reach every row is refused, and deletes none."""
    table = made(tmp_path / "t", shard_by=weir.bucket("at", 2))
    other = weir.Engine().open(table.uri, fsync=False).writer()
    other.upsert([row(1), row(2), row(3), row(4)])
    with table.writer() as writer:
        with pytest.raises(LeaseHeldError):
            writer.delete(where="at > 0")
        assert table.scan().count() == 4
        assert writer.delete(where="at > 100").rows == 0
        other.close()
        assert writer.delete(where="at > 0").rows == 4
    assert table.scan().count() == 0


def test_rows_of_other_writers_of_the_process_are_deleted(tmp_path: Path) -> None:
    """They share the shards: what they have written is flushed first, whichever of them has claimed it."""
    table = made(tmp_path / "t", shard_by=weir.bucket("at", 2))
    other = table.writer()
    other.upsert([row(1), row(2), row(3), row(4)])
    table.upsert([row(5)])
    with table.writer() as writer:
        assert writer.delete(where="at > 1", limit=1).remaining == 3
        assert writer.delete(where="at > 1").rows == 3
        assert [one["at"] for one in table.scan().to_pylist()] == [1]
        other.upsert([row(6)])
    assert table.delete(where="at = 6").rows == 1
    other.upsert([row(7)])
    other.close()
    assert sorted(one["at"] for one in table.scan().to_pylist()) == [1, 7]


def test_a_delete_with_a_limit_finds_what_a_compaction_has_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that are counted as deleted and are still there would stay for good."""
    table = made(tmp_path / "t")
    with table.writer() as writer:
        for at in range(6):
            writer.upsert([row(at)])
            writer.flush()
            table.maintenance.merge()
        delete = lance.LanceDataset.delete

        def delayed(dataset: lance.LanceDataset, predicate: str, **options: Any) -> Any:
            monkeypatch.undo()
            lance.dataset(table.uri).optimize.compact_files()
            return delete(dataset, predicate, **options)

        monkeypatch.setattr(lance.LanceDataset, "delete", delayed)
        result = writer.delete(where="at > 1", limit=3)
    assert (result.rows, result.remaining) == (3, 1)
    assert table.scan().count() == 3


def test_rows_that_a_dead_writer_left_are_deleted(tmp_path: Path) -> None:
    """They are recovered first."""
    table = made(tmp_path / "t")
    left = weir.open(table.uri, fsync=False).writer(flush_on_close=False)
    left.upsert([row(1), row(2)])
    left.close()
    with table.writer() as writer:
        assert writer.delete(where="at = 1").rows == 1
    assert counted(table.scan().to_table()) == {(2, "x"): 1}


def test_clones_and_columns(tmp_path: Path) -> None:
    """A clone only takes rows too; a column that rows are sorted by cannot be dropped."""
    table = made(tmp_path / "t", sort_by="at")
    with table.writer() as writer:
        writer.upsert([row(2), row(1), row(1)])
        copy = weir.clone(table.uri, tmp_path / "copy", fsync=False)
    assert copy.is_append_only
    assert copy.sort_by == ("at",)
    assert counted(copy.scan().to_table()) == counted(table.scan().to_table())
    copy.maintenance.merge()
    assert copy.scan().count() == 3
    with pytest.raises(SchemaError, match="sorted"):
        table.alter(drop=["at"])
    table.alter(drop=["text"])
    table.maintenance.merge()
    assert weir.open(table.uri).scan().to_table()["at"].to_pylist() == [1, 1, 2]
