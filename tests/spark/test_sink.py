"""What a commit does, called as Spark calls it, and how often it asks the storage."""

from __future__ import annotations

import pickle
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from tests.spark.sink_kit import SCHEMA, contents, create, marks

import weir
from weir.engine import failpoint
from weir.errors import FencedError, InputError, LeaseHeldError
from weir.format import layout
from weir.spark import sink
from weir.spark.batch_writer import BatchWriter
from weir.spark.kept_writers import KeptWriters
from weir.spark.options import TableLocation
from weir.spark.sink import abort, commit_batch_of_stream
from weir.spark.staging import InlineRows, TaskResult, TaskRows
from weir.spark.write_options import WriteOptions
from weir.storage.counting import CountingStore
from weir.write.lease import lease
from weir.write.table_writer import TableWriter

OBJECTS = (
    ["_pk_index"] * 2 + ["_transactions"] + ["_versions"] * 2 + ["bloom_filter.bin", "catalog.json", "data"]
)
"""Of a generation: the library's rows, manifest, hint and transaction; key index, filter, catalog."""

QUERY = "8f1e7f60-93a0-4c3b-9b56-0f1f6a3f2a11"


def batch(*ids: int, value: str) -> pa.RecordBatch:
    return pa.record_batch({"id": pa.array(ids, pa.int64()), "value": [value] * len(ids)})


def task(table: weir.Table, *batches: pa.RecordBatch) -> TaskResult:
    """The result of a task, after its way to the driver."""
    rows = TaskRows.of(TableLocation(table.uri), table, fsync=False)
    there = pickle.loads(pickle.dumps(rows))
    result = TaskResult(there.pieces(iter(batches)), QUERY)
    sent: TaskResult = pickle.loads(pickle.dumps(result))
    return sent


def commit(
    table: weir.Table, batch_id: int, *results: TaskResult, kept: KeptWriters | None = None, **options: str
) -> None:
    parsed = WriteOptions.parse({"path": table.uri, **options})
    commit_batch_of_stream(table, results, batch_id, parsed, kept=kept)


def test_staged_rows_are_what_they_were_read_as_when_columns_change_before_the_commit(tmp_path: Path) -> None:
    schema = SCHEMA.append(pa.field("other", pa.string()))
    table = create(tmp_path, shards=1, schema=schema)
    rows = TaskRows.of(TableLocation(table.uri), table, fsync=False)
    given = pa.RecordBatch.from_pylist([{"id": 1, "value": "v", "other": "o"}], schema=schema)
    dataset = lance.dataset(table.uri)
    for old, new in (("value", "t"), ("other", "value"), ("t", "other")):
        dataset.alter_columns({"path": old, "name": new})  # type: ignore[dict-item]
    # A task that has not seen the new names opens the table with them.
    result = TaskResult(pickle.loads(pickle.dumps(rows)).pieces([given], inline_bytes=0), QUERY)
    assert result.staged
    commit(weir.open(table.uri), 0, result)
    assert weir.open(table.uri).scan().to_table().to_pylist() == [{"id": 1, "other": "v", "value": "o"}]


def test_a_micro_batch_costs_so_many_round_trips(tmp_path: Path) -> None:
    made = create(tmp_path, shards=1)
    store = CountingStore(made.internals.store)
    table = weir.Table(store, made.internals.base)
    commit(table, 0, task(made, batch(1, 2, value="first")))
    commit(table, 1, task(made, batch(1, value="second")))
    store.reset()
    commit(table, 2, task(made, batch(2, value="third")))
    if store.counts["get"] == 12:
        # It was claimed slowly, so that it is looked twice whether the manifest is the newest still.
        store.counts["get"] = 10
    assert dict(store.counts) == {
        # the version of the query's record before and after it is read, as this store does it; the lease,
        # whether the one log entry before is there
        "head": 4,
        # which shards there are
        "list_directories": 1,
        # the query's record, hint, manifest and the next, lease, whether the entry that is remembered is
        # there, where the log begins and ends, under two names
        "get": 10,
        # manifest, fence, rows
        "put_if_absent": 3,
        # the hint of the manifest
        "put": 1,
        # lease taken and released, the query's record
        "compare_and_swap": 3,
    }
    store.reset()
    commit(table, 2, task(made, batch(2, value="repeated")))
    assert store.counts["put_if_absent"] == 2
    assert contents(made) == {1: "second", 2: "third"}


def test_shares_of_many_tasks_are_one_generation_for_each_shard_and_batch(tmp_path: Path) -> None:
    made = create(tmp_path, shards=4)
    options = WriteOptions.parse({"path": made.uri})
    rows = TaskRows.of(options.location, made, fsync=False)
    model: dict[int, str | None] = {}
    for number in range(2):
        writer = BatchWriter(options, rows)
        # Each of eight partitions has rows of every shard, of 2 MiB in all.
        parts = [range(part * 1000, part * 1000 + 1500) for part in range(8)]
        value = f"{number}" + 1400 * "x"
        writer.commit([writer.write(iter([batch(*part, value=value)])) for part in parts])
        model |= dict.fromkeys(range(8500), value)
        assert contents(made) == model
        for shard in Path(made.uri, "_mem_wal").iterdir():
            generations = [one for one in shard.iterdir() if "_gen_" in one.name]
            assert len(generations) == number + 1, "one for a batch"
            for one in generations:
                files = [str(file.relative_to(one)) for file in one.rglob("*") if file.is_file()]
                places = sorted(name.partition("/")[0] for name in files)
                assert places == OBJECTS
            assert not [one for one in shard.iterdir() if one.name.startswith("staged")]


def test_the_tail_that_a_claim_reads_is_bounded(tmp_path: Path) -> None:
    table = create(tmp_path, shards=1)
    for number in range(40):
        commit(table, number, task(table, batch(number % 7, value=str(number))), max_memtable_entries="9")
        (shard,) = table.status().shards
        assert shard.unflushed_entries <= 10
    assert contents(table) == {n % 7: str(n) for n in range(33, 40)}
    assert set(marks(table).values()) == {1}


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"id": pa.array([9, None], pa.int64())}, "'id' is null in row 6"),
        ({"id": pa.array([8, 9], pa.int64()), "_op": ["delete", "drop"]}, "operation 'drop' in row 6"),
    ],
)
def test_an_error_counts_rows_from_the_first_of_the_partition(
    tmp_path: Path, wrong: dict[str, object], says: str
) -> None:
    """Spark hands them over in batches, of 10,000 rows unless it is told otherwise."""
    table = create(tmp_path)
    good = batch(1, 2, 3, value="good"), batch(value="none"), batch(4, 5, value="good")
    with pytest.raises(InputError, match=says) as refused:
        task(table, *good, pa.record_batch({**wrong, "value": ["bad", "bad"]}))
    assert str(refused.value.where).endswith("row 6")


def test_the_checks_of_columns_are_prepared_once_for_all_batches_of_a_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = create(tmp_path)
    prepared: dict[object, object] = {}
    monkeypatch.setattr("weir.rows.conforming._checks", prepared)
    task(table, *(batch(number, value="one") for number in range(5)))
    assert len(prepared) == 1


def test_many_rows_are_staged_and_few_travel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weir.spark.staging._MAX_INLINE_BYTES", 4_000)
    monkeypatch.setattr("weir.write.flush.rows_to_stage._MAX_HELD_BYTES", 40_000)
    table = create(tmp_path, shards=2)
    few = task(table, batch(1, 2, 3, value="few"))
    assert not few.staged
    many = task(table, *(batch(*range(n, n + 500), value=f"many {n}") for n in range(0, 5000, 500)))
    assert len(many.staged) >= 4
    assert not any(isinstance(piece.held, InlineRows) for piece in many.pieces)
    last = task(table, batch(4, 5, value="last"))
    assert contents(table) == {}
    commit(table, 0, few, many, last)
    expected = {n: f"many {n // 500 * 500}" for n in range(5000)} | {4: "last", 5: "last"}
    assert contents(table) == expected
    commit(table, 0, few, task(table, batch(*range(900), value="repeated")), last)
    assert contents(table) == expected
    commit(table, 1, last, few)
    assert contents(table) == expected | dict.fromkeys((1, 2, 3), "few")
    assert not table.maintenance.verify().findings
    table.maintenance.merge()
    assert contents(table) == expected | dict.fromkeys((1, 2, 3), "few")


def test_what_is_too_much_for_one_log_entry_becomes_a_generation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weir.spark.sink._MAX_LOG_BYTES", 2_000)
    table = create(tmp_path, shards=1)
    commit(table, 0, *(task(table, batch(*range(n, n + 30), value=str(n))) for n in range(0, 100, 10)))
    assert contents(table) == {n: str(min(n // 10 * 10, 90)) for n in range(120)}
    (shard,) = table.status().shards
    assert shard.unmerged_generations == 1
    assert not marks(table)
    with pytest.raises(InputError, match="checkpoint belongs to another table"):
        commit(create(tmp_path / "other"), 1, task(table, batch(1, value="x")))


def test_aborting_deletes_what_was_staged_only_if_nothing_can_have_been_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weir.spark.staging._MAX_INLINE_BYTES", 0)
    table = create(tmp_path, shards=2)

    def directories() -> int:
        return len(list(Path(table.uri, layout.MEM_WAL).glob("*/staged_*/catalog.json")))

    one, other = (task(table, batch(*range(20), value=value)) for value in "ab")
    assert directories() == 4
    abort(table, [one, None])
    assert directories() == 2
    commit(table, 0, other)
    # As Spark does when the answer to a commit is lost.
    abort(table, [other])
    assert contents(table) == dict.fromkeys(range(20), "b")


def test_a_query_takes_its_own_lease_over_and_respects_others(tmp_path: Path) -> None:
    table = create(tmp_path, shards=1)
    rows = [{"id": 1, "value": "of the one before"}]
    with table.writer(holder=f"spark/{QUERY}", flush_on_close=False) as before:
        before.upsert(rows)
        commit(table, 0, task(table, batch(2, value="restarted")))
        with pytest.raises(weir.errors.FencedError):
            before.upsert(rows)
    with table.writer() as foreign:
        foreign.upsert([{"id": 3, "value": "foreign"}])
        with pytest.raises(LeaseHeldError):
            commit(table, 1, task(table, batch(2, value="too early")), lease_wait="0")
        foreign.upsert([{"id": 4, "value": "foreign"}])
    commit(table, 1, task(table, batch(2, value="in turn")))
    assert contents(table) == {1: "of the one before", 2: "in turn", 3: "foreign", 4: "foreign"}


@pytest.mark.parametrize("mark", ["micro-batch", "batch"])
def test_a_commit_waits_for_its_turn(tmp_path: Path, mark: str) -> None:
    table = create(tmp_path, shards=2)
    result = task(table, batch(*range(20), value="second"))
    options = WriteOptions.parse({"path": table.uri})
    with ThreadPoolExecutor(1) as pool:
        with weir.Engine().open(table.uri).writer() as foreign:
            foreign.upsert([{"id": n, "value": "first"} for n in range(30)])
            if mark == "batch":
                waiting = pool.submit(sink.commit, table, [result], None, options, holder=None, flush=True)
            else:
                waiting = pool.submit(commit, table, 0, result)
            # Long enough for some attempts that find the shards taken.
            with pytest.raises(TimeoutError):
                waiting.result(timeout=1.5)
            foreign.upsert([{"id": 1, "value": "still ours"}])
        waiting.result(timeout=60)
    assert contents(table) == dict.fromkeys(range(20), "second") | dict.fromkeys(range(20, 30), "first")
    assert not table.maintenance.verify().findings


def test_a_commit_without_a_mark_is_not_repeated_once_it_has_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = create(tmp_path, shards=2)
    attempts: list[int] = []

    def held(*_: object, **__: object) -> None:
        attempts.append(1)
        raise LeaseHeldError("another writer has a shard that is only staged for")

    monkeypatch.setattr(TableWriter, "publish_routed", held)
    options = WriteOptions.parse({"path": table.uri, "lease_wait": "30"})
    with pytest.raises(LeaseHeldError):
        sink.commit(table, [task(table, batch(1, 2, value="a"))], None, options, holder=None, flush=False)
    assert attempts == [1]
    assert contents(table) == {1: "a", 2: "a"}


def test_the_schema_is_checked_without_rows(tmp_path: Path) -> None:
    table = create(tmp_path)
    rows = TaskRows.of(TableLocation(table.uri), table, fsync=False)
    rows.check_schema(SCHEMA)
    with pytest.raises(InputError, match="no column 'colour'"):
        rows.check_schema(SCHEMA.append(pa.field("colour", pa.string())))


def test_a_batch_that_was_routed_by_a_former_rule_is_routed_anew(tmp_path: Path) -> None:
    table = create(tmp_path, shards=2)
    rows = TaskRows.of(TableLocation(table.uri), table, fsync=False)
    sent = rows.result(iter([batch(1, 2, 3, 4, value="sent")]), query_id=QUERY)
    staged = rows.result(iter([batch(4, 5, 6, value="staged")]), query_id=QUERY, inline_bytes=0)
    done = rows.result(iter([batch(1, 2, value="done")]), query_id=QUERY, inline_bytes=0)
    weir.open(table.uri).alter(shard_by=weir.bucket("id", 3))
    commit(table, 0, sent)
    commit(table, 0, sent)
    commit(table, 1, staged)
    commit(table, 1, staged)
    before = TaskRows.of(TableLocation(table.uri), weir.open(table.uri), fsync=False)
    commit(table, 2, before.result(iter([batch(1, 2, value="done")]), query_id=QUERY, inline_bytes=0))
    weir.open(table.uri).alter(shard_by=weir.bucket("id", 2))
    weir.open(table.uri).upsert([{"id": 1, "value": "newer"}])
    # Spark has not heard of it, and commits it again.
    after = TaskRows.of(TableLocation(table.uri), weir.open(table.uri), fsync=False)
    commit(table, 2, after.result(iter([batch(1, 2, value="done")]), query_id=QUERY, inline_bytes=0))
    commit(table, 2, done)
    expected = {1: "newer", 2: "done", 3: "sent", 4: "staged", 5: "staged", 6: "staged"}
    assert {row["id"]: row["value"] for row in table.scan().to_pylist()} == expected


def test_a_query_does_not_go_on_in_a_backup_that_lacks_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark never commits them again: they would be missing without a word."""
    # Leases have been written since the backup, as after a second.
    monkeypatch.setattr(lease, "_RECORDED_EVERY_SECONDS", 0.0)
    table = create(tmp_path / "t", shards=2)
    place, backup = Path(table.uri), tmp_path / "backup"
    kept = KeptWriters()
    for number in range(2):
        commit(table, number, task(table, batch(number, value="kept")), kept=kept)
    shutil.copytree(place, backup)
    for number in range(2, 4):
        commit(table, number, task(table, batch(number, value="lost")), kept=kept)
    for below in place.iterdir():
        shutil.rmtree(below)
    shutil.copytree(backup, place, dirs_exist_ok=True)
    for _ in range(2):
        with pytest.raises(FencedError, match="at batch 4, and the table has only its first 2: a backup"):
            commit(table, 4, task(table, batch(4, value="not to be")), kept=kept)
    table = weir.open(place)
    assert contents(table) == {0: "kept", 1: "kept"}
    # The query as its checkpoint was at the time of the backup; the last batch is repeated, as after a crash.
    for number in range(1, 5):
        commit(table, number, task(table, batch(number, value="again")), kept=kept)
    assert contents(table) == {0: "kept", 1: "kept", 2: "again", 3: "again", 4: "again"}
    # The driver that was given up, late.
    commit(table, 3, task(table, batch(3, value="again")))
    commit(table, 5, task(table, batch(5, value="again")))
    assert len(contents(table)) == 6


def test_a_backup_that_is_put_back_while_a_batch_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = create(tmp_path / "t", shards=1)
    place, backup = Path(table.uri), tmp_path / "backup"
    commit(table, 0, task(table, batch(0, value="kept")))
    shutil.copytree(place, backup)
    commit(table, 1, task(table, batch(1, value="lost")))

    def restored(at: str) -> None:
        if at == "sink.after_commit":
            for below in place.iterdir():
                shutil.rmtree(below)
            shutil.copytree(backup, place, dirs_exist_ok=True)

    monkeypatch.setattr(failpoint, "reach", restored)
    with pytest.raises(FencedError, match="has only its first 1: a backup was put"):
        commit(table, 2, task(table, batch(2, value="lost")))
