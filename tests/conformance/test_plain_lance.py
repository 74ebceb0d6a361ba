"""What plain Lance does to the base table of a live Weir table, and what Weir shows then.

What is shown is compared with a dict after each step, in every state that a row can be in: merged, flushed,
in a log alone, of Weir or of the library.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from tests.conformance.differential.history import History, Step, run

import weir

CHANGES = (
    "lance_merge_inserts",
    "lance_deletes",
    "lance_updates",
    "lance_alters",
    "lance_compacts",
    "lance_indexes",
    "lance_optimizes_indexes",
    "lance_cleans_up",
    "lance_restores",
)
BEFORE = (
    "weir_upserts",
    "weir_flushes",
    "merge",
    "library_puts",
    "library_closes",
    "weir_deletes",
    "library_puts",
)
AFTER = ("weir_upserts", "library_deletes", "weir_flushes", "merge", "lance_merge_inserts", "merge")


@pytest.mark.one_in(5)
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("merged", [True, False])
def test_it_shows_what_a_dict_does(change: str, merged: bool) -> None:
    """On a table whose rows are all merged, and on one with rows that are flushed, or in a log alone."""
    names = [*BEFORE, *(("library_closes", "recover", "merge") if merged else ()), change, change, *AFTER]
    seed = CHANGES.index(change)
    failure = run(History(seed, tuple(Step(name, number) for number, name in enumerate(names))))
    assert failure is None, f"step {failure.at}, {failure.error}"


SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("value", pa.int64())])


def rows(first: int, last: int, value: int) -> pa.Table:
    return pa.table({"id": range(first, last), "value": [value] * (last - first)}, schema=SCHEMA)


@pytest.mark.parametrize("collected", [False, True])
def test_a_restore_undoes_what_was_merged_and_collected_since(tmp_path: Path, collected: bool) -> None:
    table = weir.create(tmp_path / "t", SCHEMA, primary_key="id", fsync=False)
    with table.writer() as writer:
        writer.upsert(rows(0, 5, 1))
    table.maintenance.merge()
    version = lance.dataset(table.uri).version
    with table.writer() as writer:
        writer.upsert(rows(3, 8, 2))
    table.maintenance.merge()
    with table.writer(flush_on_close=False) as writer:
        writer.upsert(rows(7, 9, 3))
    if collected:
        for _ in range(3):
            table.maintenance.collect_garbage(horizon=timedelta(0))
    lance.dataset(table.uri, version=version).restore()  # type: ignore[no-untyped-call]

    expected = dict.fromkeys(range(5), 1)
    if not collected:
        expected |= dict.fromkeys(range(3, 8), 2)
    expected |= dict.fromkeys(range(7, 9), 3)
    for _ in range(2):
        for handle in (table, weir.open(table.uri, fsync=False)):
            shown = handle.scan().to_table().to_pydict()
            assert dict(zip(shown["id"], shown["value"], strict=True)) == expected
        with table.writer() as writer:
            writer.upsert(rows(20, 21, 4))
        expected[20] = 4
        table.maintenance.merge()


def test_what_the_library_refuses_to_change(tmp_path: Path) -> None:
    """Each would leave rows in a log or a generation that nobody could make sense of."""
    table = weir.create(tmp_path / "t", SCHEMA, primary_key="id", fsync=False)
    with table.writer() as writer:
        writer.upsert(rows(0, 3, 1))
    refused: dict[str, Any] = {
        "primary key column": {"path": "id", "name": "key"},
        "must not be nullable": {"path": "id", "nullable": True},
        "cannot make a column non-nullable": {"path": "value", "nullable": False},
        "cannot change a column's type": {"path": "value", "data_type": pa.float64()},
    }
    for says, change in refused.items():
        with pytest.raises(OSError, match=says):
            lance.dataset(table.uri).alter_columns(change)
    with pytest.raises(OSError, match="cannot add a computed column"):
        lance.dataset(table.uri).add_columns({"twice": "value * 2"})
    assert lance.dataset(table.uri).version == table.internals.base.version
    assert table.scan().to_table().sort_by("id") == rows(0, 3, 1)


def test_columns_that_come_with_values_have_none_in_rows_that_are_not_merged(tmp_path: Path) -> None:
    table = weir.create(tmp_path / "t", SCHEMA, primary_key="id", fsync=False)
    with table.writer(flush_on_close=False) as writer:
        writer.upsert(rows(0, 4, 1))
        writer.flush()
        table.maintenance.merge()
        writer.upsert(rows(2, 3, 2))
        writer.flush()
        writer.upsert(rows(3, 5, 3))
        joined = pa.table({"id": range(4), "more": [10, 11, 12, 13]})
        lance.dataset(table.uri).merge(joined, "id")
        expected = {0: 10, 1: 11, 2: None, 3: None, 4: None}
        for _ in range(2):
            for handle in (table, weir.open(table.uri, fsync=False)):
                shown = handle.scan().to_table().to_pydict()
                assert dict(zip(shown["id"], shown["more"], strict=True)) == expected
            writer.flush()
            table.maintenance.merge()


def test_an_open_writer_goes_by_the_names_that_a_reader_of_its_process_has_seen(tmp_path: Path) -> None:
    schema = SCHEMA.append(pa.field("other", pa.int64()))
    table = weir.create(tmp_path / "t", schema, primary_key="id", fsync=False)
    with table.writer() as writer:
        writer.upsert([{"id": 1, "value": 10, "other": 20}])
        for old, new in (("value", "third"), ("other", "value"), ("third", "other")):
            change: Any = {"path": old, "name": new}
            lance.dataset(table.uri).alter_columns(change)
        assert table.get([1]).to_pylist() == [{"id": 1, "other": 10, "value": 20}]
        writer.upsert([{"id": 2, "value": 30, "other": 40}])
        assert table.get([2]).to_pylist() == [{"id": 2, "other": 40, "value": 30}]
