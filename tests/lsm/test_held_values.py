"""A source that is left out holds no row that matches, whatever the filter."""

from __future__ import annotations

import datetime
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import weir
from weir.format.generation_catalog import decode, encode
from weir.format.resolution import resolve
from weir.format.wal_entry import TOMBSTONE
from weir.indexing.definition import IndexDefinition
from weir.indexing.kinds import IndexKind
from weir.lsm.filters import matching_rows
from weir.lsm.held_values import can_match, held_in_generation, held_in_rows
from weir.lsm.strategy import choose_strategies
from weir.sharding.predicate import read_filter
from weir.write.flush.generation_rows import GenerationRows
from weir.write.flush.generation_summary import summarize

SCHEMA = pa.schema(
    [
        ("number", pa.int32()),
        ("ratio", pa.float64()),
        ("name", pa.string()),
        ("at", pa.timestamp("ms")),
        ("flag", pa.bool_()),
    ]
)
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "number": st.none() | st.integers(-20, 20),
            "ratio": st.none() | st.sampled_from([-math.inf, -1.5, -0.0, 0.0, 2.5, math.inf, math.nan]),
            "name": st.none() | st.sampled_from(["", "a", "ab", "b", "é", "z" * 300]),
            "at": st.none() | st.integers(0, 4).map(lambda day: datetime.datetime(2024, 1, 1 + day)),
            "flag": st.none() | st.booleans(),
        }
    ),
    max_size=6,
)
NUMBER = st.integers(-25, 25)
OPERATOR = st.sampled_from(["=", "!=", "<", "<=", ">", ">="])
TERM = st.one_of(
    st.builds(lambda o, n: f"number {o} {n}", OPERATOR, NUMBER),
    st.builds(lambda low, high: f"number BETWEEN {low} AND {high}", NUMBER, NUMBER),
    st.builds(
        lambda o, n: f"ratio {o} {n}", OPERATOR, st.sampled_from(["-1.5", "0.0", "-0.0", "2.5", "1e300"])
    ),
    st.builds(lambda o, n: f"name {o} '{n}'", OPERATOR, st.sampled_from(["", "a", "aa", "b", "é", "zz"])),
    st.builds(lambda o, d: f"at {o} timestamp '2024-01-0{d}'", OPERATOR, st.integers(1, 7)),
    st.builds(
        lambda numbers: f"number IN ({', '.join(map(str, numbers))})",
        st.lists(NUMBER, min_size=1, max_size=4),
    ),
    st.sampled_from(
        ["flag", "flag = false", "number IS NULL", "name IS NOT NULL", "name LIKE 'a%'", "number % 3 = 1"]
    ),
)
FILTER = st.recursive(
    TERM,
    lambda inner: st.one_of(
        st.builds("({} AND {})".format, inner, inner),
        st.builds("({} OR {})".format, inner, inner),
        st.builds("NOT ({})".format, inner),
    ),
    max_leaves=4,
)


@settings(max_examples=5 * settings().max_examples, deadline=None)
@given(ROWS, FILTER)
def test_no_matching_row_is_left_out(values: list[dict[str, Any]], condition: str) -> None:
    rows = pa.Table.from_pylist(values, schema=SCHEMA)
    written = rows.append_column(
        pa.field(TOMBSTONE, pa.bool_(), nullable=False), pa.array([False] * len(values), pa.bool_())
    )
    catalog = summarize(GenerationRows(written, np.arange(len(values))), ())
    catalog = decode(encode(catalog), where="memory")
    asked = read_filter(condition, SCHEMA)
    for held in (held_in_generation(catalog, resolve(SCHEMA, SCHEMA)), held_in_rows(rows)):
        if not can_match(asked, held):
            assert len(matching_rows(rows, condition)) == 0


def strategies(condition: str, kinds: dict[str, list[str]]) -> list[str]:
    return [str(one) for one in choose_strategies(read_filter(condition, SCHEMA), SCHEMA, kinds)]


@pytest.mark.parametrize(
    ("condition", "kinds", "expected"),
    [
        ("number = 3", {}, ["FullScan(number)"]),
        ("number = 3", {"number": ["ZONEMAP"]}, ["ZoneSuRF(number)"]),
        ("number = 3", {"number": ["BLOOMFILTER", "ZONEMAP"]}, ["ZoneXorIndex(number)"]),
        ("number > 3", {"number": ["BLOOMFILTER", "ZONEMAP"]}, ["ZoneSuRF(number)"]),
        ("number > 3", {"number": ["BLOOMFILTER"]}, ["FullScan(number)"]),
        ("number IN (1, 5)", {"number": ["BTREE"]}, ["BTree(number)"]),
        ("name = 'a'", {"name": ["BITMAP"]}, ["EnumBitmap(name)"]),
        ("name != 'a'", {"name": ["BITMAP"]}, ["EnumBitmap(name)"]),
        ("name != 'a'", {"name": ["ZONEMAP", "BLOOMFILTER"]}, ["FullScan(name)"]),
        ("NOT (name IN ('a', 'b'))", {"name": ["BITMAP"]}, ["EnumBitmap(name)"]),
        ("at = timestamp '2024-01-01'", {"at": ["BTREE"]}, ["TemporalEq(at)"]),
        ("at >= timestamp '2024-01-01'", {"at": ["ZONEMAP"]}, ["TemporalRange(at)"]),
        ("number = 3 OR name = 'a'", {"name": ["BITMAP"]}, ["FullScan(number)", "EnumBitmap(name)"]),
        ("number % 3 = 1", {"number": ["BTREE"]}, ["FullScan"]),
    ],
)
def test_one_strategy_for_each_term(condition: str, kinds: dict[str, list[str]], expected: list[str]) -> None:
    assert strategies(condition, kinds) == expected


TABLE = pa.schema(
    [pa.field("id", pa.int64(), nullable=False), ("number", pa.int32()), ("at", pa.timestamp("ms"))]
)


def write(table: weir.Table, keys: range) -> None:
    rows = {"id": list(keys), "number": list(keys), "at": [datetime.datetime(2024, 1, 1)] * len(keys)}
    with table.writer() as writer:
        writer.upsert(pa.table(rows, schema=TABLE))


def test_a_plan_says_what_is_left_out_and_why(tmp_path: Path) -> None:
    table = weir.create(tmp_path / "table", TABLE, primary_key="id", fsync=False)
    table.indexes.create("number", "BTREE")
    for start in (0, 100, 200):
        write(table, range(start, start + 50))
    found = table.scan(filter="number >= 120 AND number < 200")
    plan = found.plan()
    assert [task.label.rsplit(", ")[-1].split(" version")[0] for task in plan.tasks] == [
        "base table",
        "generation 2",
    ]
    assert [(one.rows, one.reason) for one in plan.pruned] == [
        (50, "its catalog shows no row that matches")
    ] * 2
    text = found.explain()
    assert "by BTree(number), 0 rows superseded" in text
    assert "by FullScan(number), 0 rows superseded" in text
    assert text.count("its catalog shows no row that matches, 50 rows skipped") == 2
    assert found.count() == 30


def test_a_generation_that_is_left_out_still_supersedes(tmp_path: Path) -> None:
    table = weir.create(tmp_path / "table", TABLE, primary_key="id", fsync=False)
    write(table, range(10))
    with table.writer() as writer:
        writer.upsert([{"id": key, "number": 1000, "at": None} for key in range(5)])
    found = table.scan(filter="number < 100")
    assert len(found.plan().pruned) == 1
    assert sorted(found.to_table()["id"].to_pylist()) == [5, 6, 7, 8, 9]


def test_a_library_generation_without_a_catalog_is_read(tmp_path: Path) -> None:
    table = weir.create(tmp_path / "table", TABLE, primary_key="id", fsync=False)
    write(table, range(10))
    (catalog,) = Path(table.uri).glob("_mem_wal/*/*_gen_1/catalog.json")
    catalog.unlink()
    assert table.scan(filter="number = 3").count() == 1
    assert table.scan(filter="number = 300").plan().pruned == ()


def test_kinds_are_in_the_catalog(tmp_path: Path) -> None:
    rows = pa.table({"id": [1, 2], TOMBSTONE: [False, True]})
    built = [IndexDefinition("a", "id", IndexKind.BTREE), IndexDefinition("b", "id", IndexKind.BITMAP)]
    catalog = summarize(GenerationRows(rows, np.arange(2)), built)
    assert (catalog.rows, catalog.tombstones) == (2, 1)
    assert catalog.columns["id"].kinds == ("BTREE", "BITMAP")


# --- The base table --------------------------------------------------------------------------------

NUMBERED = pa.schema([pa.field("id", pa.int64(), nullable=False), ("number", pa.int64())])


def numbered(table: weir.Table, numbers: dict[int, int | None], *, flush: bool = False) -> None:
    with table.writer(flush_on_close=flush) as writer:
        writer.upsert(pa.table({"id": list(numbers), "number": list(numbers.values())}, schema=NUMBERED))


def merged_table(path: Path, numbers: dict[int, int | None], *, zones: bool = True) -> weir.Table:
    table = weir.create(path, NUMBERED, primary_key="id", fsync=False, maintenance="off")
    numbered(table, numbers, flush=True)
    table.maintenance.merge()
    if zones:
        table.indexes.create("number", "ZONEMAP")
    table.maintenance.catch_up_indexes()
    return table


def leaves_out_base(table: weir.Table, condition: str) -> bool:
    plan = table.scan(filter=condition).plan()
    assert plan.tasks[0].label.startswith("base table")
    return any(one.label.startswith("base table") for one in plan.pruned)


def test_the_base_table_is_left_out_where_its_indexes_show_no_row(tmp_path: Path) -> None:
    table = merged_table(tmp_path / "table", {key: 7 if key == 3 else None for key in range(10)})
    assert leaves_out_base(table, "id > 9 OR number > 7"), "with nothing above it too"
    numbered(table, {20: None})
    assert leaves_out_base(table, "id > 9 OR number > 7")
    assert leaves_out_base(table, "id > 9")
    assert not leaves_out_base(table, "id > 8 OR number > 7")
    assert not leaves_out_base(table, "id > 9 OR number > 6")
    assert not leaves_out_base(table, "id > 9 OR number IS NULL")
    assert not leaves_out_base(table, "number > 7")
    found = table.scan(filter="id > 9 OR number > 7")
    assert (found.to_table()["id"].to_pylist(), found.count()) == ([20], 1)
    assert table.scan(["id"], filter="id > 90 OR number > 7").to_table().num_rows == 0
    assert "its indexes show no row that matches, 10 rows skipped" in found.explain()


def test_the_base_table_is_read_where_its_indexes_do_not_tell(tmp_path: Path) -> None:
    without = merged_table(tmp_path / "without", {1: 5}, zones=False)
    numbered(without, {20: None})
    assert not leaves_out_base(without, "id > 9 OR number > 7")
    table = merged_table(tmp_path / "table", {1: 5})
    numbered(table, {30: 9}, flush=True)
    table.maintenance.merge()
    numbered(table, {20: None})
    # What was merged last is in no index yet.
    assert sorted(table.scan(filter="id > 9 OR number > 7").to_table()["id"].to_pylist()) == [20, 30]
    table.maintenance.catch_up_indexes()
    assert not leaves_out_base(table, "id > 29")
    assert leaves_out_base(table, "id > 30 OR number > 9")


@settings(deadline=None)
@given(
    st.dictionaries(st.integers(0, 9), st.none() | st.integers(0, 9), min_size=1),
    st.dictionaries(st.integers(5, 14), st.none() | st.integers(0, 9), min_size=1),
    st.integers(0, 15),
    st.integers(0, 10),
)
def test_nothing_is_missing_for_what_is_left_out(
    tmp_path_factory: pytest.TempPathFactory,
    merged: dict[int, int | None],
    newer: dict[int, int | None],
    key: int,
    number: int,
) -> None:
    table = merged_table(tmp_path_factory.mktemp("pruned") / "table", merged)
    numbered(table, newer)
    numbered(table, {100: 0})
    expected = {
        one for one, held in {**merged, **newer, 100: 0}.items() if one > key or (held or -1) > number
    }
    found = table.scan(["id"], filter=f"id > {key} OR number > {number}").to_table()
    assert sorted(found["id"].to_pylist()) == sorted(expected)


@settings(deadline=None, max_examples=30)
@given(
    st.lists(
        st.tuples(
            st.dictionaries(st.integers(3, 12), st.none() | st.integers(0, 9), min_size=1), st.booleans()
        ),
        min_size=1,
        max_size=4,
    ),
    st.integers(3, 13),
)
def test_rows_are_the_newest_where_older_sources_are_left_out(
    tmp_path_factory: pytest.TempPathFactory,
    written: list[tuple[dict[int, int | None], bool]],
    key: int,
) -> None:
    table = merged_table(tmp_path_factory.mktemp("newest") / "table", {1: 1, 3: 3})
    expected: dict[int, int | None] = {1: 1, 3: 3}
    for numbers, flush in written:
        with table.writer(flush_on_close=flush) as writer:
            # An entry each, and what is read at once becomes a run of its own.
            for one, number in numbers.items():
                if number is None:
                    writer.delete([one])
                    expected.pop(one, None)
                else:
                    writer.upsert([{"id": one, "number": number}])
                    expected[one] = number
        for above in (key, key + 2):
            found = table.scan(filter=f"id > {above}").to_table().to_pydict()
            rows = dict(zip(found["id"], found["number"], strict=True))
            assert rows == {one: number for one, number in expected.items() if one > above}
