"""Writes that may be repeated: each shard takes rows and mark together, once, whatever comes in between."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import lance
import pyarrow as pa
import pytest

import weir
from tests.conformance import library
from tests.crashes import kill_at, run
from tests.maintenance.garbage.garbage_kit import Clock, collect_fully, rows
from weir.engine import failpoint
from weir.engine.context import default_context
from weir.errors import CorruptionError, InputError, SchemaError
from weir.format import layout, wal_entry
from weir.format.source import MAX_SOURCES
from weir.log.manifest_store import read_latest_manifest
from weir.storage.local import LocalStore
from weir.write.table_writer import TableWriter

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("value", pa.string())])


@pytest.fixture
def table(tmp_path: Path) -> weir.Table:
    return weir.create(
        tmp_path / "table", SCHEMA, primary_key="id", shard_by=weir.bucket("id", 3), fsync=False
    )


def upsert(
    table: weir.Table, sequence: int, *ids: int, value: str, name: str = "orders", flush: bool = False
) -> int:
    """Write with a writer of its own; return how many shards passed the rows over."""
    with table.writer(takeover=True, flush_on_close=flush) as writer:
        receipt = writer.upsert(
            [{"id": one, "value": value} for one in ids], source=weir.Source(name, sequence)
        )
    return len(receipt.deduplicated)


def entries(table: weir.Table) -> Iterator[wal_entry.WalEntry]:
    """Every log entry of the table."""
    for path in sorted(Path(table.uri, layout.MEM_WAL).glob("*/wal/*.arrow")):
        yield wal_entry.decode(path.read_bytes(), where=str(path))


def test_a_repeated_write_is_passed_over_by_each_shard_that_has_it(table: weir.Table) -> None:
    with table.writer() as writer:
        first = writer.upsert([{"id": n, "value": "a"} for n in range(30)], source=weir.Source("orders", 7))
        again = writer.upsert([{"id": n, "value": "b"} for n in range(30)], source=weir.Source("orders", 7))
        older = writer.delete(range(30), source=weir.Source("orders", 6))
        other = writer.upsert([{"id": 1, "value": "other"}], source=weir.Source("returns", 6))
        later = writer.upsert([{"id": 2, "value": "later"}], wait=False, source=weir.Source("orders", 8))
        assert later.result().rows == 1
    assert (first.rows, len(first.positions), first.deduplicated) == (30, 3, ())
    assert (again.rows, again.positions, len(again.deduplicated)) == (0, {}, 3)
    assert (older.rows, len(older.deduplicated)) == (0, 3)
    assert other.deduplicated == ()
    expected = dict.fromkeys(range(30), "a") | {1: "other", 2: "later"}
    assert rows(table) == expected


def test_a_mark_and_its_rows_are_one_entry_also_beside_other_writes(table: weir.Table) -> None:
    with table.writer(max_wal_delay=0.05, flush_on_close=False) as writer:
        futures = [
            writer.upsert(
                pa.table({"id": [n, n + 100], "value": [str(n)] * 2}),
                wait=False,
                source=weir.Source(f"source {n}", 0) if n % 3 == 0 else None,
            )
            for n in range(30)
        ]
        for future in futures:
            future.result()
    marked: dict[str, int] = {}
    for entry in entries(table):
        numbers = [row % 100 for batch in entry.batches for row in batch.column("id").to_pylist()]
        named = {f"source {number}" for number in numbers if number % 3 == 0}
        assert {source.name for source in entry.header.sources} == named
        for number in numbers:
            if number % 3 == 0:
                marked[f"source {number}"] = marked.get(f"source {number}", 0) + 1
    assert marked == {f"source {n}": 2 for n in range(0, 30, 3)}


def test_marks_outlive_flush_merge_and_collection(table: weir.Table) -> None:
    clock = Clock()
    upsert(table, 1, *range(20), value="first")
    assert upsert(table, 1, *range(20), value="wrong") == 3
    upsert(table, 2, *range(10), value="second", flush=True)
    assert upsert(table, 2, *range(20), value="wrong", flush=True) == 3
    table.maintenance.merge()
    collect_fully(table, clock, fence_horizon=timedelta(hours=1))
    clock.advance(timedelta(hours=2))
    collect_fully(table, clock, fence_horizon=timedelta(hours=1))
    default_context().cache.clear()
    assert upsert(table, 2, *range(20), value="wrong") == 3
    assert upsert(table, 3, 0, value="third") == 0
    assert rows(table) == dict.fromkeys(range(10, 20), "first") | dict.fromkeys(range(10), "second") | {
        0: "third"
    }


@pytest.mark.one_in(2)
@pytest.mark.parametrize("flushed_by_weir", [False, True])
def test_marks_outlive_a_writer_of_the_library_and_collection(tmp_path: Path, flushed_by_weir: bool) -> None:
    table = weir.create(
        tmp_path / "table", SCHEMA, primary_key="id", shard_by=weir.bucket("id", 1), fsync=False
    )
    upsert(table, 1, 1, 2, value="first", flush=True)
    upsert(table, 2, 2, value="second", flush=flushed_by_weir)
    upsert(table, 9, 9, value="returned", name="returns", flush=flushed_by_weir)
    (shard,) = library.shards_of(Path(table.uri))
    clock = Clock()
    for step in range(3):
        # Takes over what the log holds, and flushes it, in manifests without the record.
        writer = library.open_writer(Path(table.uri), shard)
        writer.put(pa.table({"id": [50 + step], "value": ["of the library"]}, SCHEMA))
        writer.close()
        assert library.manifest_of(Path(table.uri), shard).sources is None
        table.maintenance.merge()
        collect_fully(table, clock, fence_horizon=timedelta(hours=1))
        clock.advance(timedelta(hours=2))
    default_context().cache.clear()
    assert upsert(table, 2, 1, 2, value="wrong") == 1
    assert upsert(table, 9, 1, 2, value="wrong", name="returns") == 1
    assert library.manifest_of(Path(table.uri), shard).sources is not None
    assert upsert(table, 3, 1, value="third") == 0
    expected = {1: "third", 2: "second", 9: "returned"} | dict.fromkeys((50, 51, 52), "of the library")
    assert rows(table) == expected
    # Recorded anew, what told it before is garbage again.
    before = len(list(Path(table.uri, layout.manifest_directory(shard)).glob("*.binpb")))
    table.maintenance.merge()
    collect_fully(table, clock, fence_horizon=timedelta(hours=1))
    assert len(list(Path(table.uri, layout.manifest_directory(shard)).glob("*.binpb"))) < before
    assert not table.maintenance.verify().findings


def test_a_table_that_the_library_made_has_no_marks_and_gets_some(tmp_path: Path) -> None:
    path = tmp_path / "table"
    weir.create(path, SCHEMA, primary_key="id", shard_by=weir.bucket("id", 1), fsync=False)
    shard = "11111111-2222-4333-8444-555555555555"
    with lance.dataset(str(path)).mem_wal_writer(shard, max_wal_flush_interval_ms=1) as writer:
        writer.put(pa.table({"id": [1], "value": ["of the library"]}, SCHEMA))
    table = weir.open(path)
    assert upsert(table, 0, 2, value="a") == 0
    assert upsert(table, 0, 2, value="b") == 1
    assert rows(table) == {1: "of the library", 2: "a"}


def test_a_lost_answer_is_not_a_second_write(table: weir.Table) -> None:
    with table.writer(flush_on_close=False) as writer:
        writer.upsert([{"id": 1, "value": "before"}])
        with failpoint.armed("wal.after_append", "raise"), pytest.raises(failpoint.FailpointError):
            writer.upsert([{"id": 1, "value": "once"}], source=weir.Source("orders", 1))
        receipt = writer.upsert([{"id": 1, "value": "twice"}], source=weir.Source("orders", 1))
    assert len(receipt.deduplicated) == 1
    assert [one.header.source for one in entries(table) if one.header.source] == [weir.Source("orders", 1)]
    assert rows(table) == {1: "once"}


def write_orders(uri: str) -> None:
    table = weir.open(uri, fsync=False)
    with table.writer(max_memtable_rows=25, holder="orders") as writer:
        for sequence in range(12):
            rows = [{"id": n % 20, "value": f"{sequence}"} for n in range(sequence, sequence + 10)]
            writer.upsert(rows, source=weir.Source("orders", sequence))
            if sequence % 4 == 3:
                writer.flush()
                table.maintenance.merge()


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    "point",
    [
        "wal.before_append@2",
        "wal.after_append@8",
        "wal.after_append@20",
        "flush.before_manifest@2",
        "flush.after_manifest@3",
        "claim.between_epoch_and_fence@2",
        "merge.after_commit",
    ],
)
def test_a_killed_process_repeats_its_writes_and_each_shard_has_each_once(
    table: weir.Table, point: str
) -> None:
    kill_at(point, write_orders, table.uri)
    run(write_orders, table.uri, kill_at=point)
    assert not run(write_orders, table.uri).was_killed
    model: dict[int, str] = {}
    for sequence in range(12):
        model.update({n % 20: f"{sequence}" for n in range(sequence, sequence + 10)})
    assert rows(table) == model
    # Of every shard and number there is one entry at most; the log is whole, since nothing was collected.
    marks = [
        (path.parent, wal_entry.decode(path.read_bytes(), where="").header.source)
        for path in Path(table.uri, layout.MEM_WAL).glob("*/wal/*.arrow")
    ]
    seen = [one for one in marks if one[1] is not None]
    assert len(seen) == len(set(seen)) > 12


def test_upserts_and_deletes_in_one_go_count_in_their_order(table: weir.Table) -> None:
    with table.writer() as writer:
        writer.apply([{"id": n, "value": "old"} for n in range(4)])
        receipt = writer.apply(
            pa.table(
                {
                    "id": [0, 1, 1, 2, 2, 9],
                    "_op": ["delete", "delete", None, "upsert", "delete", "delete"],
                    "value": ["ignored", None, "again", "x", None, None],
                }
            ),
            source=weir.Source("orders", 1),
        )
    assert receipt.rows == 6
    assert rows(table) == {1: "again", 3: "old"}


def test_bad_changes_change_nothing(table: weir.Table, tmp_path: Path) -> None:
    with table.writer() as writer:
        with pytest.raises(InputError, match="operation 'merge' in row 1 is unknown"):
            writer.apply([{"id": 1, "_op": "delete"}, {"id": 2, "_op": "merge"}])
        with pytest.raises(SchemaError, match="'_op' is of type int64"):
            writer.apply(pa.table({"id": [1], "_op": [1]}))
        with pytest.raises(InputError, match="sequence of a source"):
            writer.upsert([{"id": 1}], source=weir.Source("orders", -1))
        with pytest.raises(InputError, match="name of a source"):
            writer.upsert([{"id": 1}], source=weir.Source("", 1))
    assert table.scan().count() == 0
    strict = pa.schema([SCHEMA.field("id"), pa.field("value", pa.string(), nullable=False)])
    undeletable = weir.create(tmp_path / "strict", strict, primary_key="id", fsync=False)
    with undeletable.writer() as writer, pytest.raises(SchemaError, match="value cannot be null"):
        writer.apply([{"id": 1, "value": "", "_op": "delete"}])
    assert undeletable.scan().count() == 0


def test_a_column_of_the_table_named_like_the_operation_is_a_column(tmp_path: Path) -> None:
    schema = SCHEMA.append(pa.field("_op", pa.string()))
    lance.write_dataset(schema.empty_table(), str(tmp_path / "table"))
    table = weir.adopt(tmp_path / "table", primary_key="id", fsync=False)
    with table.writer() as writer:
        writer.apply([{"id": 1, "value": "a", "_op": "delete"}])
    assert table.scan().to_table().to_pylist() == [{"id": 1, "value": "a", "_op": "delete"}]


def test_a_shard_remembers_only_so_many_sources(table: weir.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weir.format.source.MAX_SOURCES", 3)
    assert MAX_SOURCES > 1000
    for n in range(3):
        upsert(table, 0, *range(10), value="a", name=f"job {n}")
    with pytest.raises(InputError, match="remembers 3 sources"):
        upsert(table, 0, 1, value="b", name="job 3")
    assert upsert(table, 1, 1, value="c", name="job 2") == 0
    assert rows(table)[1] == "c"


def test_of_single_writes_a_shard_remembers_the_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weir.format.source.MAX_SOURCES", 1)
    monkeypatch.setattr("weir.format.write_window.MAX_WRITE_IDS", 4)
    monkeypatch.setattr("weir.format.write_window.SEGMENT_IDS", 2)
    table = weir.create(tmp_path / "table", SCHEMA, primary_key="id", fsync=False)
    upsert(table, 7, *range(10), value="job", name="job")
    for n in range(10):
        # Each by a writer of its own, which learns what there was from manifest and log.
        assert upsert(table, 1, n, value=f"v{n}", name=f"once:{n}", flush=n % 3 == 0) == 0
    assert upsert(table, 1, 9, value="again", name="once:9") == 1
    assert upsert(table, 1, 8, value="again", name="once:8") == 1
    assert upsert(table, 7, 8, value="again", name="job") == 1
    assert upsert(table, 1, 0, value="again", name="once:0") == 0
    assert [rows(table)[n] for n in (0, 8, 9)] == ["again", "v8", "v9"]


def test_what_is_missing_to_tell_the_marks_is_loud(tmp_path: Path) -> None:
    table = weir.create(
        tmp_path / "table", SCHEMA, primary_key="id", shard_by=weir.bucket("id", 1), fsync=False
    )
    upsert(table, 1, 1, value="a")
    (shard,) = library.shards_of(tmp_path / "table")
    writer = library.open_writer(tmp_path / "table", shard)
    writer.put(pa.table({"id": [2], "value": ["of the library"]}, SCHEMA))
    writer.close()
    store = LocalStore(tmp_path / "table", fsync=False)
    latest = read_latest_manifest(store, shard)
    assert latest is not None
    assert latest.replay_after_wal_entry_position > 2
    store.delete([layout.wal_path(shard, 2)])
    default_context().cache.clear()
    with pytest.raises(CorruptionError, match="log entries that record"):
        upsert(table, 2, 1, value="b")


# Marked writes that share an entry


def test_marked_writes_of_many_threads_share_entries(tmp_path: Path) -> None:
    """And are passed over by whoever takes the log over, and once it is flushed."""
    table = weir.create(tmp_path / "t", SCHEMA, primary_key="id", fsync=False)
    threads, each = 8, 12
    names = [
        f"once:{thread}-{number}" if thread % 2 else f"job {thread}"
        for thread in range(threads)
        for number in range(each)
    ]

    def write(writer: TableWriter, at: int, value: str) -> bool:
        row = {"id": at, "value": value}
        return bool(writer.upsert([row], source=weir.Source(names[at], at)).deduplicated)

    with (
        table.writer(flush_on_close=False, max_wal_delay=0.05) as writer,
        ThreadPoolExecutor(threads) as pool,
    ):
        for number in range(each):
            work = [pool.submit(write, writer, thread * each + number, "first") for thread in range(threads)]
            assert not any(one.result() for one in work)
    marked = [one.header for one in entries(table) if one.header.sources]
    assert len(marked) < threads * each
    assert sorted(source.sequence for one in marked for source in one.sources) == list(range(threads * each))
    for _ in range(2):  # from the log, and from the manifest
        with table.writer() as writer:
            assert all(write(writer, at, "again") for at in range(threads * each))
            writer.upsert([{"id": -1, "value": ""}])
    assert {row["value"] for row in table.scan(filter="id >= 0").to_pylist()} == {"first"}


def counted(tmp_path: Path) -> weir.Table:
    return weir.create(
        tmp_path / "counted",
        pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("n", pa.int64())]),
        primary_key="id",
        merge_engine=weir.MergeEngine.aggregation(n="sum"),
        fsync=False,
    )


def test_repeats_at_the_same_time_count_once(tmp_path: Path) -> None:
    table = counted(tmp_path)
    with table.writer(max_wal_delay=0.05) as writer, ThreadPoolExecutor(8) as pool:

        def write(number: int) -> bool:
            source = weir.Source(f"once:{number // 4}", 0)
            return bool(writer.upsert([{"id": 0, "n": 1}], source=source).deduplicated)

        repeated = sum(pool.map(write, range(40)))
    assert (repeated, table.scan().to_pylist()) == (30, [{"id": 0, "n": 10}])


@pytest.mark.parametrize("failpoint_name", ["wal.before_append", "wal.after_append"])
def test_a_group_that_failed_is_repeated_without_counting_twice(tmp_path: Path, failpoint_name: str) -> None:
    """Nobody knows whether it stands in the log: the repeats find out, some of them beside others."""
    table = counted(tmp_path)
    with table.writer(max_wal_delay=0.05) as writer, ThreadPoolExecutor(8) as pool:

        def write(number: int) -> None:
            writer.upsert([{"id": 0, "n": 1}], source=weir.Source(f"once:{number}", 0))

        write(-1)
        with failpoint.armed(failpoint_name, "raise"):
            failed = [pool.submit(write, number) for number in range(6)]
            errors = [one.exception() for one in failed]
        assert any(errors)
        for one in [pool.submit(write, number) for number in range(-1, 12)]:
            one.result()
        assert table.scan().to_pylist() == [{"id": 0, "n": 13}]
    assert table.scan().to_pylist() == [{"id": 0, "n": 13}]


def test_a_marked_write_that_cannot_be_decided_may_be_repeated(table: weir.Table) -> None:
    with table.writer() as writer:
        writer.upsert([{"id": 1, "value": "x"}])
        for _ in range(2):
            with pytest.raises(InputError):
                writer.upsert(
                    [{"id": 1, "value": "y"}], condition="cast(value as int) < 1", source=weir.Source("s", 1)
                )
    assert rows(table) == {1: "x"}


# Single writes and their answers


def numbered(tmp_path: Path) -> weir.Table:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("n", pa.int64())])
    return weir.create(
        tmp_path / "numbered", schema, primary_key="id", shard_by=weir.bucket("id", 3), fsync=False
    )


def told(result: weir.WriteResult) -> tuple[object, ...]:
    assert result.done is not None
    assert result.skipped is not None
    done, skipped = (sorted(one.column("id").to_pylist()) for one in (result.done, result.skipped))
    return result.rows, dict(result.positions), done, skipped


Ask = Callable[[TableWriter], weir.WriteResult]
ASKED: dict[str, Ask] = {
    "conditional upsert": lambda writer: writer.upsert(
        [{"id": n, "n": 5} for n in range(20)], condition="n < 5", source=weir.Source.once("u")
    ),
    "insert": lambda writer: writer.insert(
        [{"id": n, "n": 0} for n in range(5, 25)], source=weir.Source.once("i")
    ),
    "patch": lambda writer: writer.patch(
        [{"id": n, "n": 9} for n in range(5, 30, 2)], source=weir.Source.once("p")
    ),
    "conditional delete": lambda writer: writer.delete(
        [3, 4, 99], condition="n = 4", source=weir.Source.once("d")
    ),
    "nothing is done": lambda writer: writer.insert([{"id": 1, "n": 0}], source=weir.Source.once("none")),
    "several": lambda writer: writer.apply(
        [weir.Insert([{"id": 7, "n": 1}, {"id": 50, "n": 1}]), weir.Patch([{"id": 50, "n": 2}])],
        source=weir.Source.once("a"),
    ),
}


@pytest.mark.parametrize("asked", ASKED)
def test_a_repeat_gives_the_answer_of_the_first_time(tmp_path: Path, asked: str) -> None:
    """From memory, from the log, from the manifest, after a merge and a collection."""
    ask, table, clock = ASKED[asked], numbered(tmp_path), Clock()
    with table.writer(flush_on_close=False) as writer:
        writer.upsert([{"id": n, "n": n} for n in range(10)])
        answer = told(ask(writer))
        state = sorted(table.scan().to_pylist(), key=lambda row: row["id"])
        assert told(ask(writer)) == answer
        # What was there by then does not matter.
        writer.upsert([{"id": n, "n": 1} for n in range(60)])
        assert told(ask(writer)) == answer
        writer.delete(range(60))
        writer.upsert(state)
    with table.writer(flush_on_close=False) as writer:
        assert told(ask(writer)) == answer
        writer.flush()
    with table.writer() as writer:
        assert told(ask(writer)) == answer
    table.maintenance.merge()
    for _ in range(2):
        collect_fully(table, clock, fence_horizon=timedelta(hours=1))
        clock.advance(timedelta(hours=2))
    default_context().cache.clear()
    with table.writer() as writer:
        again = ask(writer)
        assert told(again) == answer
        assert set(again.deduplicated) >= set(again.positions)
    assert sorted(table.scan().to_pylist(), key=lambda row: row["id"]) == state


def test_a_repeat_beside_the_first_is_given_its_answer(tmp_path: Path) -> None:
    table = numbered(tmp_path)
    with table.writer(max_wal_delay=0.05) as writer, ThreadPoolExecutor(8) as pool:
        writer.upsert([{"id": n, "n": n} for n in range(10)])
        answers = list(pool.map(lambda _: told(ASKED["insert"](writer)), range(24)))
    assert all(one == answers[0] for one in answers)
    assert answers[0][2:] == (list(range(10, 25)), list(range(5, 10)))


def test_a_plain_write_is_answered_as_the_first_time(tmp_path: Path) -> None:
    table = numbered(tmp_path)
    with table.writer() as writer:
        first = writer.upsert([{"id": n, "n": 1} for n in range(9)], source=weir.Source.once("x"))
        again = writer.upsert([{"id": n, "n": 1} for n in range(9)], source=weir.Source.once("x"))
    assert (again.rows, again.positions) == (first.rows, first.positions)
    assert (first.deduplicated, set(again.deduplicated)) == ((), set(first.positions))


def test_an_id_that_other_rows_came_with_is_refused(tmp_path: Path) -> None:
    table = numbered(tmp_path)
    with table.writer() as writer:
        writer.upsert([{"id": 1, "n": 1}])
        writer.insert([{"id": 1, "n": 2}], source=weir.Source.once("x"))
        with pytest.raises(InputError, match="other rows"):
            writer.insert([{"id": 1, "n": 2}] * 2, source=weir.Source.once("x"))


@pytest.mark.parametrize("write_id", ["", "x" * 252, "\ud800", 7])
def test_a_write_id_that_cannot_be_is_refused(write_id: str) -> None:
    with pytest.raises(InputError, match="write id"):
        weir.Source.once(write_id)


def count_to(uri: str, end: int) -> None:
    table = weir.open(uri, fsync=False)
    writer = table.writer(max_wal_delay=0.01, max_memtable_rows=12)

    def count(number: int) -> None:
        writer.upsert([{"id": number % 3, "n": 1}], source=weir.Source(f"once:{number}", 0))

    with ThreadPoolExecutor(6) as pool:
        for start in range(0, end, 12):
            list(pool.map(count, range(start, start + 12)))
    table.maintenance.merge()
    writer.close()
    table.maintenance.merge()


KILLS = [
    "wal.after_append@3",
    "wal.before_append@9",
    "flush.after_data",
    "flush.after_manifest@2",
    "wal.after_append@2",
    "merge.before_commit",
    "merge.after_commit",
]


@pytest.mark.long
def test_a_count_is_exact_though_its_process_is_killed_and_does_everything_again(
    tmp_path: Path,
) -> None:
    """Each round begins with the first write: what log, manifests or base table have is passed over."""
    table = counted(tmp_path)
    for round_number, place in enumerate([*KILLS, ""], 1):
        number = 36 * round_number
        assert run(count_to, table.uri, number, kill_at=place).was_killed == bool(place)
        found = sum(row["n"] for row in weir.open(table.uri, fsync=False).scan().to_pylist())
        assert found <= number
    assert {row["id"]: row["n"] for row in table.scan().to_pylist()} == dict.fromkeys(range(3), number // 3)
