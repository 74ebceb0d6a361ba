"""Tables that are sharded by another rule while they are written, read and followed."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lance
import pyarrow as pa
import pytest

import weir
from tests.crashes import kill_at
from tests.storage.s3 import S3Endpoint, s3_endpoint
from weir.engine import failpoint
from weir.errors import (
    ConflictError,
    FencedError,
    OptionError,
    SchemaError,
    ShardingError,
    StorageError,
)
from weir.format.merge_engine import MergeEngine
from weir.format.resharding import is_resharding
from weir.format.shard_manifest import ShardStatus
from weir.log.manifest_store import list_shards, read_latest_manifest
from weir.maintenance import reshard
from weir.write.table_writer import TableWriter

__all__ = ["s3_endpoint"]

SCHEMA = pa.schema([("id", pa.int64()), ("n", pa.int64()), ("text", pa.string())])
Model = dict[int, int]


def made(path: Path, shards: int = 2, **options: Any) -> weir.Table:
    return weir.create(
        path, SCHEMA, primary_key="id", shard_by=weir.bucket("id", shards), fsync=False, **options
    )


def rows(ids: Iterator[int] | range | list[int], n: int) -> list[dict[str, Any]]:
    return [{"id": one, "n": n, "text": f"{one} of {n}"} for one in ids]


def shown(table: weir.Table, **options: Any) -> Model:
    found = {row["id"]: row["n"] for row in table.scan(**options).to_pylist()}
    assert table.scan(**options).count() == len(found)
    return found


def replayed(changes: Iterable[weir.ChangeBatch], model: Model | None = None) -> Model:
    """Return what a feed comes to, after checking the rows before its changes."""
    model = {} if model is None else model
    for change in changes:
        for row in change.rows.to_pylist():
            if "_before" in row:
                before = row["_before"]
                assert (None if before is None else before["n"]) == model.get(row["id"])
            if row["_op"] == "delete":
                model.pop(row["id"], None)
            else:
                model[row["id"]] = row["n"]
    return model


def active(table: weir.Table) -> int:
    store = table.internals.store
    manifests = [read_latest_manifest(store, shard_id) for shard_id in list_shards(store)]
    return sum(one is not None and one.status is ShardStatus.ACTIVE for one in manifests)


def test_rows_stay_what_they_are_and_new_ones_go_to_new_shards(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = made(tmp_path / "t", 3)
    feed = table.changes(consumer="follower")
    with table.writer(flush_on_close=False) as writer:
        writer.upsert(rows(range(40), 1))
        writer.flush()
        writer.upsert(rows(range(20, 60), 2))
        before = table.snapshot()
        model = shown(table)
        table.alter(shard_by=weir.bucket("id", 8))
        assert shown(table) == shown(weir.open(tmp_path / "t", fsync=False)) == model
        assert table.scan().to_table().num_rows == lance.dataset(table.uri).count_rows()
        # The writer was open all the while.
        writer.upsert(rows(range(10), 3))
        writer.delete([59])
    model.update(dict.fromkeys(range(10), 3))
    del model[59]
    assert 2 < active(table) <= 8
    assert table.status().sharded_by == "bucket(id, 8)"
    assert shown(table) == model
    with caplog.at_level(logging.WARNING):
        weir.open(tmp_path / "t", fsync=False).scan(at=before).to_table()
    assert "twin_shards" not in caplog.text
    assert shown(table, at=before) == {**dict.fromkeys(range(20), 1), **dict.fromkeys(range(20, 60), 2)}
    assert {row["id"]: row["n"] for row in table.get([3, 30, 59]).to_pylist()} == {3: 3, 30: 2}
    assert replayed(feed) == replayed(table.changes(before=True)) == model
    table.maintenance.merge()
    assert shown(table) == model
    assert not table.maintenance.verify().findings


@pytest.mark.parametrize(
    "shard_by", [None, weir.bucket("id", 1), weir.identity("id"), weir.truncate("id", 10)]
)
def test_any_rule_may_follow_any_other(tmp_path: Path, shard_by: weir.ShardBy | None) -> None:
    table = made(tmp_path / "t", 4)
    table.upsert(rows(range(30), 1))
    table.alter(shard_by=weir.unsharded() if shard_by is None else shard_by)
    table.upsert(rows(range(15), 2))
    table.alter(shard_by=[weir.bucket("id", 2)])
    table.delete([0])
    model = {**dict.fromkeys(range(30), 1), **dict.fromkeys(range(15), 2)}
    del model[0]
    assert shown(table) == replayed(table.changes(before=True)) == model


def test_the_rule_that_there_is_changes_nothing(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    table.upsert(rows(range(4), 1))
    version = table.status().base_version
    table.alter(shard_by=weir.bucket("id", 2))
    assert table.status().base_version == version
    assert active(table) == 2


def test_many_writers_and_followers_go_on(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    feed = table.changes(consumer="follower")
    model: Model = {}
    followed: Model = {}
    stopped = threading.Event()
    failed: list[BaseException] = []

    def write(number: int) -> None:
        chance = random.Random(number)
        own = weir.open(tmp_path / "t", fsync=False)
        try:
            with own.writer() as writer:
                step = 0
                while not stopped.is_set():
                    step += 1
                    ids = [chance.randrange(50) * 3 + number for _ in range(4)]
                    if chance.random() < 0.2:
                        writer.delete(ids)
                        for one in ids:
                            model.pop(one, None)
                    else:
                        writer.upsert(rows(ids, step))
                        model.update(dict.fromkeys(ids, step))
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    try:
        for count in (5, 3):
            weir.open(tmp_path / "t", fsync=False).alter(shard_by=weir.bucket("id", count))
            replayed(feed, followed)
    finally:
        stopped.set()
        for thread in threads:
            thread.join()
    assert not failed
    assert shown(table) == replayed(feed, followed) == replayed(table.changes(before=True)) == model


def test_a_write_that_is_under_way_goes_on_in_the_new_shards(tmp_path: Path) -> None:
    """The table is resharded between a write's routing and its entry."""
    table = made(tmp_path / "t", 3)
    with table.writer() as writer:
        writer.upsert(rows(range(12), 1))
        weir.open(tmp_path / "t", fsync=False).alter(shard_by=weir.bucket("id", 5))
        done = writer.upsert(rows(range(6, 12), 2), condition="n < new.n")
        assert done.done is not None
        assert sorted(done.done["id"].to_pylist()) == list(range(6, 12))
        assert writer.patch([{"id": 0, "text": "patched"}]).rows == 1
        assert writer.update(where="id < 3", set={"n": "n + 10"}).rows == 3
        assert writer.delete(where="id = 11").rows == 1
    expected = {**dict.fromkeys(range(12), 1), **dict.fromkeys(range(6, 11), 2), 0: 11, 1: 11, 2: 11}
    del expected[11]
    assert shown(table) == expected


def test_a_write_that_nobody_waits_for_fails_and_the_next_one_goes_on(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    with table.writer() as writer:
        writer.upsert(rows(range(4), 1))
        weir.open(tmp_path / "t", fsync=False).alter(shard_by=weir.bucket("id", 5))
        late = writer.upsert(rows(range(4), 2), wait=False)
        try:
            late.result()
            first = 2
        except FencedError:
            first = 1
        writer.upsert(rows([1], 3))
    assert shown(table) == {**dict.fromkeys(range(4), first), 1: 3}


def test_a_repeatable_write_is_done_once_also_when_it_was_done_in_part(tmp_path: Path) -> None:
    """Its writer died between two shards; other writers have written the same keys since."""
    table = made(tmp_path / "t", 4)
    batch, source = pa.Table.from_pylist(rows(range(16), 1), SCHEMA), weir.Source("orders", 7)
    router = table.internals.router
    with table.writer() as writer:
        part = batch.take(pa.array([0, *range(2, 9)]))
        first = [values for values, _ in router.route(part)][:2]
        done = pa.concat_tables([own for values, own in router.route(batch) if values in first])
        writer.upsert(done, source=source)
    table.upsert(rows(done["id"].to_pylist(), 5))
    table.alter(shard_by=weir.bucket("id", 3))
    with table.writer() as writer:
        writer.upsert(batch, source=source)
        writer.upsert(batch, source=source)
    assert shown(table) == {**dict.fromkeys(range(16), 1), **dict.fromkeys(done["id"].to_pylist(), 5)}


@pytest.mark.parametrize("wait", [True, False])
def test_a_single_write_is_answered_as_before_the_rule_changed(tmp_path: Path, wait: bool) -> None:
    table = made(tmp_path / "t", 4)
    table.upsert(rows(range(0, 30, 3), 5))

    def ask(writer: TableWriter) -> tuple[object, ...]:
        found = writer.insert(rows(range(25), 1), source=weir.Source.once("x"), wait=wait)
        result = found if isinstance(found, weir.WriteResult) else found.result()
        assert result.done is not None
        assert result.skipped is not None
        keys = (sorted(one["id"].to_pylist()) for one in (result.done, result.skipped))
        return result.rows, dict(result.positions), *keys

    with table.writer() as writer:
        answer = ask(writer)
        plain = writer.upsert(rows([60, 61, 62, 63], 1), source=weir.Source.once("y"))
    for shards in (3, 5):
        table.alter(shard_by=weir.bucket("id", shards))
        table.delete(range(100))
        with table.writer() as writer:
            assert ask(writer) == ask(writer) == answer
            again = writer.upsert(rows([60, 61, 62, 63], 1), source=weir.Source.once("y"))
            assert (again.rows, again.positions) == (plain.rows, plain.positions)
    assert shown(table) == {}


def test_sums_are_exact_over_resharding(tmp_path: Path) -> None:
    table = weir.create(
        tmp_path / "t",
        pa.schema([("id", pa.int64()), ("n", pa.int64())]),
        primary_key="id",
        shard_by=weir.bucket("id", 2),
        merge_engine=weir.MergeEngine.aggregation(n="sum"),
        fsync=False,
    )
    for count in (3, 5, 2):
        table.upsert([{"id": one, "n": 1} for one in range(10)])
        table.alter(shard_by=weir.bucket("id", count))
    table.upsert([{"id": one, "n": 1} for one in range(10)])
    assert shown(table) == dict.fromkeys(range(10), 4)


def test_rows_that_are_only_added_are_added_once(tmp_path: Path) -> None:
    table = weir.create(tmp_path / "t", SCHEMA, primary_key=None, shard_by=weir.bucket("id", 2), fsync=False)
    table.upsert(rows(range(10), 1))
    table.alter(shard_by=weir.bucket("id", 3))
    table.upsert(rows(range(10), 2))
    assert sorted(table.scan(["id", "n"]).to_table()["n"].to_pylist()) == [1] * 10 + [2] * 10


def test_generations_that_were_staged_for_former_shards_go_through_the_log(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    internals = table.internals
    batch = pa.Table.from_pylist(rows([1], 1), SCHEMA)
    ((values, own),) = internals.router.route(batch)
    spec_id = internals.router.spec.spec_id
    log_rows = own.append_column("_tombstone", pa.array([False])).cast(internals.row_schema)
    staged = internals.stage(values, log_rows, spec_id=spec_id)
    table.alter(shard_by=weir.bucket("id", 5))
    with table.writer() as writer:
        assert writer.publish_routed([(values, [staged])], spec_id=spec_id).rows == 1
    assert shown(table) == {1: 1}
    with pytest.raises(ConflictError, match="another rule"):
        internals.stage(values, log_rows, spec_id=spec_id)
    with table.writer() as writer:
        # Rows that were only routed are routed anew.
        assert writer.apply_routed([(values, log_rows)], spec_id=spec_id).rows == 1
    assert shown(table) == {1: 1}


def test_it_goes_on_an_object_store_too(s3_endpoint: S3Endpoint) -> None:
    uri, options = s3_endpoint.new_uri(), s3_endpoint.options
    table = weir.create(uri, SCHEMA, primary_key="id", shard_by=weir.bucket("id", 2), storage_options=options)
    with table.writer() as writer:
        writer.upsert(rows(range(20), 1))
        weir.open(uri, storage_options=options).alter(shard_by=weir.bucket("id", 3))
        writer.upsert(rows(range(10), 2))
    model = {**dict.fromkeys(range(20), 1), **dict.fromkeys(range(10), 2)}
    assert shown(table) == replayed(table.changes(before=True)) == model


POINTS = ["begun", "flushed", "flushed@2", "sealed", "merged"]


def into_five_shards(uri: str) -> None:
    weir.open(uri, fsync=False).alter(shard_by=weir.bucket("id", 5))


@pytest.mark.parametrize("point", POINTS)
def test_whoever_writes_next_finishes_what_has_died(
    tmp_path: Path, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reshard, "_WAIT_SECONDS", 0.2)
    table = made(tmp_path / "t")
    with table.writer(flush_on_close=False) as writer:
        writer.upsert(rows(range(20), 1))
        kill_at(f"reshard.{point}", into_five_shards, table.uri)
        assert is_resharding(table.internals.base.latest().details)
        assert shown(table) == dict.fromkeys(range(20), 1)
        # Until the former shards are sealed it writes there, and afterwards waits, and finishes it.
        writer.upsert(rows(range(10), 2))
    other = weir.open(tmp_path / "t", fsync=False)
    other.upsert(rows(range(5), 3))
    expected = {**dict.fromkeys(range(20), 1), **dict.fromkeys(range(10), 2), **dict.fromkeys(range(5), 3)}
    assert shown(table) == expected
    other.alter(shard_by=weir.bucket("id", 5))
    assert not is_resharding(other.internals.base.latest().details)
    assert shown(table) == shown(other) == replayed(other.changes(before=True)) == expected
    assert not other.maintenance.verify().findings


def test_a_shard_that_is_made_too_late_gets_no_rows(tmp_path: Path) -> None:
    """A writer that knows the former rule makes a shard after the others were listed."""
    table = made(tmp_path / "t", 64)
    stale = weir.open(tmp_path / "t", fsync=False)
    with stale.writer() as writer:
        writer.upsert(rows([1], 1))
        table.alter(shard_by=weir.bucket("id", 2))
        writer.upsert(rows(range(50), 2))
    store = table.internals.store
    manifests = [read_latest_manifest(store, shard_id) for shard_id in list_shards(store)]
    former = [one for one in manifests if one is not None and one.shard_spec_id == 1]
    assert sum(one.status is ShardStatus.ACTIVE for one in former) == sum(
        not one.flushed_generations and one.status is ShardStatus.ACTIVE for one in former
    )
    assert shown(table) == dict.fromkeys(range(50), 2)


def test_a_shard_gets_no_rows_before_the_table_was_asked(tmp_path: Path) -> None:
    """The store fails just when a writer asks whether the shard that it has made is late."""
    table = made(tmp_path / "t", 64)
    with weir.open(tmp_path / "t", fsync=False).writer() as writer:
        writer.upsert(rows([1], 1))
        table.alter(shard_by=weir.bucket("id", 2))
        table.upsert(rows([1, 7], 2))
        shards = writer._writes.parts.shards
        ask = shards._is_resharded

        def fail() -> bool:
            shards._is_resharded = ask
            raise StorageError("the store does not answer")

        shards._is_resharded = fail
        with pytest.raises(StorageError, match="does not answer"):
            writer.upsert(rows([7], 3))
        writer.upsert(rows([7], 4))
    assert shown(table) == {1: 2, 7: 4}


class Held:
    """Resharding into so many shards that goes on, when it has begun, as soon as it may."""

    def __init__(self, table: weir.Table, shards: int, monkeypatch: pytest.MonkeyPatch) -> None:
        begun, self._may_go_on = threading.Event(), threading.Event()

        def reach(name: str) -> None:
            if name == "reshard.begun":
                begun.set()
                assert self._may_go_on.wait(30)

        monkeypatch.setattr(reshard, "failpoint", SimpleNamespace(reach=reach))
        own = weir.open(table.uri, fsync=False)
        self._thread = threading.Thread(target=lambda: own.alter(shard_by=weir.bucket("id", shards)))
        self._thread.start()
        assert begun.wait(30)

    def go_on(self) -> None:
        self._may_go_on.set()

    def end(self) -> None:
        self.go_on()
        self._thread.join()


def test_who_begins_to_write_meanwhile_goes_on_when_it_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made(tmp_path / "t")
    table.upsert(rows(range(4), 1))
    resharding = Held(table, 5, monkeypatch)
    other = weir.open(tmp_path / "t", fsync=False)
    threading.Timer(0.2, resharding.go_on).start()
    with other.writer() as writer:
        writer.upsert(rows([1], 2))
    resharding.end()
    assert shown(table) == {0: 1, 1: 2, 2: 1, 3: 1}


@pytest.mark.parametrize("staged", [False, True])
def test_a_repeatable_write_is_done_once_where_another_writer_does_it_before_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, staged: bool
) -> None:
    """What former shards have of it counts as it is when they are sealed, not when somebody else looks."""
    table = weir.create(tmp_path / "t", SCHEMA, primary_key=None, shard_by=weir.bucket("id", 2), fsync=False)
    batch, source = pa.Table.from_pylist(rows(range(8), 1), SCHEMA), weir.Source.once("x")
    with table.writer() as former:
        former.upsert(rows(range(100, 108), 1))
        resharding = Held(table, 5, monkeypatch)
        other = weir.open(tmp_path / "t", fsync=False)
        internals = other.internals
        with other.writer() as writer:
            shards = writer._writes.parts.shards
            find = shards._find_shards

            def find_late(values: Any) -> Any:
                former.upsert(batch, source=source)
                resharding.end()
                return find(values)

            monkeypatch.setattr(shards, "_find_shards", find_late)
            if staged:
                log_rows = batch.append_column("_tombstone", pa.array([False] * 8)).cast(internals.row_schema)
                routed = internals.router.route(log_rows)
                spec_id = internals.router.spec.spec_id
                laid_down = [
                    (values, [internals.stage(values, own, spec_id=spec_id)]) for values, own in routed
                ]
                writer.publish_routed(laid_down, source=source)
            else:
                writer.upsert(batch, source=source)
    assert sorted(table.scan(["id"]).to_table()["id"].to_pylist()) == [*range(8), *range(100, 108)]


def test_the_library_writes_no_shard_of_such_a_table(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    table.upsert(rows(range(4), 1))
    table.alter(shard_by=weir.bucket("id", 4))
    table.upsert(rows(range(4), 2))
    assert not table.status().library_writable
    for shard_id in list_shards(table.internals.store):
        with pytest.raises(OSError, match=r"(?i)spec"):
            lance.dataset(table.uri).mem_wal_writer(str(shard_id))
    assert shown(table) == dict.fromkeys(range(4), 2)


@pytest.mark.parametrize(
    ("shard_by", "error"),
    [
        (weir.bucket("nothing", 2), SchemaError),
        (weir.bucket("text", 2), ShardingError),
        ("bucket(id, 3)", ShardingError),
        ([], ShardingError),
    ],
)
def test_a_rule_that_cannot_be_is_refused(
    tmp_path: Path, shard_by: Any, error: type[weir.errors.WeirError]
) -> None:
    table = made(tmp_path / "t")
    table.upsert(rows(range(4), 1))
    version = table.status().base_version
    with pytest.raises(error):
        table.alter(shard_by=shard_by)
    assert table.status().base_version == version


def test_it_stands_alone(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    with pytest.raises(OptionError, match="cannot be combined"):
        table.alter(shard_by=weir.bucket("id", 3), drop=["text"])
    assert table.schema.names == SCHEMA.names


def test_two_at_once_end_with_one_rule(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    table.upsert(rows(range(30), 1))
    errors: list[BaseException] = []

    def alter(count: int) -> None:
        try:
            weir.open(tmp_path / "t", fsync=False).alter(shard_by=weir.bucket("id", count))
        except ConflictError as error:
            errors.append(error)

    threads = [threading.Thread(target=alter, args=(count,)) for count in (3, 4, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(errors) < 3
    table.upsert(rows(range(10), 2))
    assert shown(table) == {**dict.fromkeys(range(30), 1), **dict.fromkeys(range(10), 2)}
    assert not is_resharding(table.internals.base.latest().details)


def test_an_index_and_searches_live_through_it(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    table.upsert(rows(range(50), 1))
    table.maintenance.run()
    table.indexes.create("text", "INVERTED")
    table.upsert(rows(range(10), 2))
    table.alter(shard_by=weir.bucket("id", 4))
    table.upsert(rows(range(5), 7))
    assert table.search_text("7", k=20, column="text").to_table().num_rows == 6
    assert table.sql("SELECT count(*) AS c FROM t WHERE n = 2").to_pylist() == [{"c": 5}]


def test_a_failpoint_raises_before_anything_is_said(tmp_path: Path) -> None:
    table = made(tmp_path / "t")
    table.upsert(rows(range(8), 1))
    with failpoint.armed("reshard.sealed", "raise"), pytest.raises(failpoint.FailpointError):
        table.alter(shard_by=weir.bucket("id", 3))
    assert shown(table) == dict.fromkeys(range(8), 1)
    table.alter(shard_by=weir.bucket("id", 3))
    table.upsert(rows(range(2), 2))
    assert shown(table) == {**dict.fromkeys(range(8), 1), 0: 2, 1: 2}


@pytest.mark.parametrize("max_rows", [None, 3])
@pytest.mark.parametrize(
    "engine", [None, MergeEngine.aggregation(n="sum", text="max")], ids=["newest", "sums"]
)
def test_a_feed_that_is_left_with_the_last_change_of_a_rule_goes_on_with_the_rows_of_before(
    tmp_path: Path, engine: MergeEngine | None, max_rows: int | None
) -> None:
    table = made(tmp_path / "t", 1, merge_engine=engine)
    table.upsert(rows(range(3), 1))
    first = table.changes(consumer="follower", before=True, max_rows=max_rows)
    table.alter(shard_by=weir.bucket("id", 2))
    table.upsert(rows(range(3), 2))
    model: Model = {}
    batches = iter(first)
    replayed([next(batches)], model)
    first.commit()
    assert model == dict.fromkeys(range(3), 1)
    again = table.changes(consumer="follower", before=True, max_rows=max_rows)
    for _ in range(3):
        replayed(again, model)
    assert model == shown(table) == dict.fromkeys(range(3), 2 if engine is None else 3)


def test_an_iteration_with_a_limit_is_not_empty_while_there_is_more(tmp_path: Path) -> None:
    table = made(tmp_path / "t", 1)
    table.upsert(rows(range(3), 1))
    table.upsert(rows(range(3), 2))
    # A fence follows, and no rows.
    table.alter(shard_by=weir.bucket("id", 2))
    table.upsert(rows(range(3), 3))
    feed = table.changes(max_rows=2)
    model: Model = {}
    while changes := list(feed):
        replayed(changes, model)
    assert model == shown(table) == dict.fromkeys(range(3), 3)
