"""Compaction through the table: fewer fragments, the same rows, whatever happens beside it."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import weir
from weir.engine.runner import ThreadRunner
from weir.errors import OptionError

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("category", pa.int64())])


@pytest.fixture
def table(tmp_path: Path) -> weir.Table:
    return weir.create(tmp_path / "table", SCHEMA, primary_key="id", fsync=False)


def upsert(table: weir.Table, keys: range, category: int) -> None:
    with table.writer() as writer:
        writer.upsert(pa.table({"id": list(keys), "category": [category] * len(keys)}, schema=SCHEMA))


def content(table: weir.Table) -> dict[int, int]:
    rows = table.scan().to_table()
    return dict(zip(rows["id"].to_pylist(), rows["category"].to_pylist(), strict=True))


def fragments(table: weir.Table) -> int:
    return len(lance.dataset(table.uri).get_fragments())


def caught_up(table: weir.Table) -> dict[str, int]:
    details = table.internals.base.latest().details
    return {one.index_name: max(item.generation for item in one.caught_up) for one in details.index_catchup}


class Meanwhile(ThreadRunner):
    """Does something else before the results are committed."""

    def __init__(self, something: Callable[[], object]) -> None:
        super().__init__()
        self._something = something

    def run(self, function: Callable[[Any], Any], tasks: Sequence[Any]) -> Iterator[Any]:
        results = list(super().run(pickle.loads(pickle.dumps(function)), pickle.loads(pickle.dumps(tasks))))
        self._something()
        yield from pickle.loads(pickle.dumps(results))


def filled(table: weir.Table) -> dict[int, int]:
    for number in range(5):
        upsert(table, range(number * 50, number * 50 + 80), number)
        table.maintenance.merge()
    return {key: min(key // 50, 4) for key in range(280)}


def test_fewer_fragments_and_the_same_rows(table: weir.Table) -> None:
    expected = filled(table)
    assert fragments(table) == 5
    report = table.maintenance.compact()
    assert (report.fragments_removed, report.fragments_added, fragments(table)) == (5, 1, 1)
    assert report.version == table.internals.base.latest().version
    assert content(table) == expected
    assert table.get([0, 49, 50, 279]).num_rows == 4
    assert lance.dataset(table.uri).count_rows() == 280


def test_large_fragments_are_left_alone(table: weir.Table) -> None:
    table.indexes.create("category", "BITMAP")
    upsert(table, range(1000, 3000), 7)
    table.maintenance.merge()
    table.maintenance.catch_up_indexes()
    (large,) = lance.dataset(table.uri).get_fragments()
    expected = filled(table) | dict.fromkeys(range(1000, 3000), 7)
    table.maintenance.catch_up_indexes()
    report = table.maintenance.compact(rows_per_fragment=500)
    assert (report.fragments_removed, report.fragments_added) == (5, 1)
    assert large.fragment_id in {one.fragment_id for one in lance.dataset(table.uri).get_fragments()}
    assert content(table) == expected


def test_fragments_are_not_written_anew_to_be_a_little_larger(table: weir.Table) -> None:
    table.indexes.create("category", "BITMAP")
    for keys in (range(300), range(300, 600), range(600, 610), range(610, 620)):
        upsert(table, keys, 1)
        table.maintenance.merge()
        table.maintenance.catch_up_indexes()
    large = [one.fragment_id for one in lance.dataset(table.uri).get_fragments()][:2]
    report = table.maintenance.compact(rows_per_fragment=500)
    assert (report.fragments_removed, report.fragments_added) == (2, 1)
    assert [one.fragment_id for one in lance.dataset(table.uri).get_fragments()][:2] == large
    with table.writer() as writer:
        writer.delete(list(range(40)))
    table.maintenance.merge()
    assert table.maintenance.compact(rows_per_fragment=500).fragments_removed >= 1
    left = {one.fragment_id for one in lance.dataset(table.uri).get_fragments()}
    assert large[0] not in left, "it has lost more than a tenth of its rows"
    assert large[1] in left
    assert content(table) == dict.fromkeys(range(40, 620), 1)


def test_nothing_to_do(table: weir.Table) -> None:
    assert table.maintenance.compact().fragments_removed == 0
    upsert(table, range(10), 0)
    table.maintenance.merge()
    before = table.internals.base.latest().version
    report = table.maintenance.compact()
    assert (report.tasks, report.version) == (0, before)


def test_indexes_are_as_far_as_before(table: weir.Table) -> None:
    table.indexes.create("category", "BITMAP")
    expected = filled(table)
    table.maintenance.catch_up_indexes()
    assert caught_up(table) == {"category_idx": 5, "id_idx": 5}
    table.maintenance.compact()
    assert caught_up(table) == {"category_idx": 5, "id_idx": 5}
    assert lance.dataset(table.uri).count_rows(filter="category = 4") == list(expected.values()).count(4)
    upsert(table, range(1000, 1010), 9)
    table.maintenance.merge()
    assert caught_up(table) == {"category_idx": 5, "id_idx": 6}
    table.maintenance.compact()
    assert caught_up(table) == {"category_idx": 5, "id_idx": 6}
    table.maintenance.catch_up_indexes()
    assert caught_up(table) == {"category_idx": 6, "id_idx": 6}


def test_a_merge_meanwhile_that_adds(table: weir.Table) -> None:
    expected = filled(table)

    def add() -> None:
        upsert(table, range(1000, 1010), 9)
        table.maintenance.merge()

    report = table.maintenance.compact(runner=Meanwhile(add))
    assert report.tasks_lost == 0
    assert content(table) == expected | dict.fromkeys(range(1000, 1010), 9)
    assert fragments(table) == 2


def test_a_merge_meanwhile_that_replaces(table: weir.Table) -> None:
    """What the merge has changed is as the merge left it, and the rest is compacted or left for later."""
    expected = filled(table)

    def replace() -> None:
        upsert(table, range(120), 9)
        table.maintenance.merge()

    report = table.maintenance.compact(runner=Meanwhile(replace))
    expected |= dict.fromkeys(range(120), 9)
    assert content(table) == expected
    assert {row["id"]: row["category"] for row in lance.dataset(table.uri).to_table().to_pylist()} == expected
    if report.tasks_lost:
        assert table.maintenance.compact().tasks_lost == 0
        assert content(table) == expected


def test_two_compactions_at_once(table: weir.Table) -> None:
    expected = filled(table)
    table.maintenance.compact(runner=Meanwhile(table.maintenance.compact))
    assert content(table) == expected
    assert lance.dataset(table.uri).count_rows() == 280


def test_beside_writers_and_merges(table: weir.Table) -> None:
    done = threading.Event()
    failures: list[BaseException] = []

    def compact_forever() -> None:
        try:
            while not done.is_set():
                table.maintenance.compact()
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=compact_forever)
    thread.start()
    expected: dict[int, int] = {}
    try:
        for number in range(4):
            upsert(table, range(number * 30, number * 30 + 60), number)
            expected |= dict.fromkeys(range(number * 30, number * 30 + 60), number)
            table.maintenance.merge()
            assert content(table) == expected
    finally:
        done.set()
        thread.join()
    assert failures == []
    table.maintenance.compact()
    assert content(table) == expected


def test_one_round_of_maintenance(table: weir.Table) -> None:
    table.indexes.create("category", "BITMAP")
    expected: dict[int, int] = {}
    for number in range(3):
        upsert(table, range(number * 50, number * 50 + 80), number)
        expected |= dict.fromkeys(range(number * 50, number * 50 + 80), number)
        report = table.maintenance.run(horizon=timedelta(0))
        assert report.merge.generations == 1
        assert content(table) == expected
    again = table.maintenance.run(horizon=timedelta(0))
    assert again.merge.generations == 0
    assert {one.action for one in again.indexes.indexes} == {"nothing to do"}
    assert content(table) == expected
    assert lance.dataset(table.uri).count_rows(filter="category = 2") == 80


@pytest.mark.parametrize(
    ("options", "message"),
    [({"rows_per_fragment": 0}, "rows_per_fragment"), ({"max_deleted": 1.5}, "max_deleted")],
)
def test_bad_options(table: weir.Table, options: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        table.maintenance.compact(**options)
