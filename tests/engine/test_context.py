"""What tables of one process share: limits, threads, metrics."""

from __future__ import annotations

import pickle
import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest

import weir
from weir.engine.concurrent_map import concurrent_map
from weir.engine.context import EngineContext, default_context
from weir.engine.executors import Executors
from weir.engine.registry import HistogramValue, Registry

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("value", pa.int64())])


def test_numbers_add_up_from_many_threads() -> None:
    registry = Registry()
    counter = registry.counter("done_total", "Done.", ["what"])
    histogram = registry.histogram("size", "Sizes.", bounds=[2, 4])

    def work() -> None:
        for number in range(1_000):
            counter.add(1, "a" if number % 2 else "b")
            histogram.record(number % 6)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {sample.labels: sample.value for sample in registry.read() if sample.name == "done_total"} == {
        (("what", "a"),): 2_000,
        (("what", "b"),): 2_000,
    }
    value = histogram.value()
    assert isinstance(value, HistogramValue)
    sizes = [number % 6 for number in range(1_000)] * 4
    assert (value.count, value.sum) == (len(sizes), sum(sizes))
    assert value.buckets == (
        (2, sum(one <= 2 for one in sizes)),
        (4, sum(one <= 4 for one in sizes)),
        (float("inf"), len(sizes)),
    )


def test_tables_count_against_the_engine_they_were_opened_with(tmp_path: Path) -> None:
    mine, other = weir.Engine(read_cache_bytes=1 << 20), weir.Engine()
    table = mine.create(tmp_path / "t", SCHEMA, primary_key="id", fsync=False)
    with table.writer() as writer:
        writer.upsert([{"id": 1, "value": 1}])
    held_by_all = default_context().cache.nbytes
    assert table.get([1]).num_rows == table.scan().count() == 1
    assert mine.cache.nbytes > 0
    assert mine.metrics.cache_bytes.value() == mine.cache.nbytes
    assert mine.metrics.storage_requests.value("put_if_absent") > 0
    assert other.metrics.storage_requests.value("put_if_absent") == 0
    assert default_context().cache.nbytes == held_by_all
    assert other.open(tmp_path / "t", fsync=False).get([1]).num_rows == 1
    assert other.cache.nbytes > 0
    mine.close()
    assert mine.cache.nbytes == 0
    assert table.get([1]).num_rows == 1


def test_flushes_and_merges_are_counted(tmp_path: Path) -> None:
    engine = weir.Engine()
    table = engine.create(tmp_path / "t", SCHEMA, primary_key="id", fsync=False)
    for number in range(2):
        with table.writer() as writer:
            writer.upsert([{"id": at, "value": number} for at in range(5)])
    table.maintenance.merge()
    table.maintenance.merge()
    metrics = engine.metrics
    assert (metrics.flushes.value(), metrics.flushed_rows.value(), metrics.merges.value()) == (2, 10, 1)
    assert metrics.merged_generations.value() == 2
    assert metrics.flush_seconds.value().count == 2


def test_appends_are_counted(tmp_path: Path) -> None:
    engine = weir.Engine()
    table = engine.create(tmp_path / "t", SCHEMA, primary_key="id", fsync=False)
    metrics = engine.metrics
    with table.writer() as writer:
        writer.upsert([{"id": at, "value": 0} for at in range(5)])
        writer.delete([1, 2])
        writer.insert([{"id": 3, "value": 7}])  # which is there: nothing is appended
        queued = [writer.upsert([{"id": at, "value": 1}], wait=False) for at in range(4)]
        for one in queued:
            one.result()
    assert metrics.log_rows.value() == 5 + 2 + 4
    group_size = metrics.group_size.value()
    assert (group_size.count, group_size.sum) == (metrics.log_appends.value(), 1 + 1 + 4)


def test_a_pickled_table_is_of_the_engine_of_its_process(tmp_path: Path) -> None:
    engine = weir.Engine()
    table = engine.create(tmp_path / "t", SCHEMA, primary_key="id", fsync=False)
    assert table.engine is engine
    assert pickle.loads(pickle.dumps(table)).engine is default_context()


@pytest.mark.parametrize("option", ["memory", "read_cache_bytes", "unflushed_bytes", "threads"])
@pytest.mark.parametrize("value", [0, -1, True, "many", 1.5])
def test_limits_are_whole_numbers(option: str, value: object) -> None:
    with pytest.raises(weir.errors.OptionError, match=option):
        weir.Engine(**{option: value})  # type: ignore[arg-type]


def test_one_limit_is_shared_by_the_read_cache_and_unflushed_rows() -> None:
    halves = weir.Engine(memory=1 << 20)
    assert (halves.cache.budget, halves.unflushed_bytes) == (1 << 19, 1 << 19)
    named = weir.Engine(memory=1 << 20, read_cache_bytes=1 << 10)
    assert (named.cache.budget, named.unflushed_bytes) == (1 << 10, 1 << 19)


def test_questions_that_ask_several_things_never_wait_for_each_other() -> None:
    """With fewer threads than there are questions at any level."""
    engine = EngineContext(executors=Executors(1))

    def total(depth: int) -> int:
        if not depth:
            return 1
        return sum(concurrent_map(total, [depth - 1] * 3, is_local=False, engine=engine))

    answers: list[int] = []
    asking = [threading.Thread(target=lambda: answers.append(total(4)), daemon=True) for _ in range(8)]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join(60)
    assert answers == [3**4] * 8


@pytest.mark.parametrize("at_once", [1, 2, 5])
def test_no_more_questions_at_once_than_asked_for(at_once: int) -> None:
    asking, most, lock = 0, 0, threading.Lock()

    def ask(item: int) -> int:
        nonlocal asking, most
        with lock:
            asking += 1
            most = max(most, asking)
        time.sleep(0.005)
        with lock:
            asking -= 1
        return 2 * item

    answers = concurrent_map(ask, range(40), is_local=False, engine=default_context(), at_once=at_once)
    assert list(answers) == list(range(0, 80, 2))
    assert 0 < most <= at_once


def test_the_first_error_in_order_is_raised() -> None:
    def ask(number: int) -> int:
        if number in (3, 7):
            raise ValueError(number)
        return number

    answered = concurrent_map(ask, range(10), is_local=False, engine=default_context())
    assert [next(answered) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ValueError, match="3"):
        next(answered)
