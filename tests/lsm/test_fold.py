"""What versions of a key come to, against a loop over them; and in parts the same as at once (I5)."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weir.errors import InputError
from weir.format.merge_engine import EngineKind, MergeEngine
from weir.lsm.fold import fold, settle

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("a", pa.string()),
        ("n", pa.int64()),
        ("s", pa.int64()),
        ("list", pa.list_(pa.int64())),
        pa.field("_tombstone", pa.bool_(), nullable=False),
    ]
)

ENGINES = [
    MergeEngine.first_row(),
    MergeEngine(EngineKind.LAST_ROW, sequence_by="s"),
    MergeEngine.partial_update(),
    MergeEngine.partial_update({"s": ["a", "n"]}),
    MergeEngine.aggregation(n="sum", s="count", list="list_append"),
    MergeEngine.aggregation(a="max", n="min", s="max", list="distinct_union"),
    MergeEngine.aggregation(a="last", n="last", s="sum"),
]

Version = dict[str, Any]

COMBINED: dict[str, Callable[[Any, Any], Any]] = {
    "sum": operator.add,
    "list_append": operator.add,
    "min": min,
    "max": max,
    "last_non_null": lambda _, new: new,
}

versions = st.lists(
    st.builds(
        lambda id, a, n, s, list, gone: (
            {"id": id, "a": None, "n": None, "s": s, "list": None, "_tombstone": True}
            if gone
            else {"id": id, "a": a, "n": n, "s": s, "list": list, "_tombstone": False}
        ),
        st.integers(0, 3),
        st.none() | st.sampled_from("xyz"),
        st.none() | st.integers(-2, 5),
        st.none() | st.integers(0, 4),
        st.none() | st.lists(st.none() | st.integers(0, 2), max_size=3),
        st.integers(0, 4).map(lambda drawn: drawn == 0),
    ),
    max_size=14,
)


def one_by_one(engine: MergeEngine, rows: Iterable[Version]) -> dict[int, Version]:
    """Return the row of every key: the model, version by version."""
    held: dict[int, Version | None] = {}
    tombstone: dict[int, int] = {}
    for row in rows:
        key, before = row["id"], held.get(row["id"])
        if engine.sequence_by:
            if row["_tombstone"] and row["s"] is None:
                held[key] = None
                tombstone.pop(key, None)
                continue
            known = tombstone.get(key, -1) if before is None else (-1 if before["s"] is None else before["s"])
            if (-1 if row["s"] is None else row["s"]) < known:
                continue
            if row["_tombstone"]:
                held[key] = None
                tombstone[key] = row["s"]
            else:
                held[key] = row
                tombstone.pop(key, None)
        elif row["_tombstone"]:
            held[key] = None
        else:
            held[key] = _after(engine, before, row)
    return {key: row for key, row in held.items() if row is not None}


def _after(engine: MergeEngine, before: Version | None, row: Version) -> Version:
    if engine.kind is EngineKind.FIRST_ROW:
        return before or row
    functions = {name: str(function) for name, function in engine.functions}
    grouped = {name: sequence for sequence, names in engine.groups for name in (sequence, *names)}
    after = dict(row)
    for name in ("a", "n", "s", "list"):
        old, new = (None if before is None else before[name]), row[name]
        function = functions.get(name, "last_non_null")
        if name in grouped:
            sequence = grouped[name]
            there = None if before is None else before[sequence]
            wins = row[sequence] is not None and (there is None or row[sequence] >= there)
            after[name] = new if wins else old
        elif function == "count":
            after[name] = (old or 0) + (1 if new is None else new)
        elif function == "last":
            after[name] = new
        elif function == "distinct_union":
            joined = None if old is None and new is None else list(dict.fromkeys((old or []) + (new or [])))
            after[name] = joined
        elif old is None or new is None:
            after[name] = old if new is None else new
        else:
            after[name] = COMBINED[function](old, new)
    return after


def _table(rows: list[Version]) -> pa.Table:
    return pa.Table.from_pylist(rows, SCHEMA)


def _live(rows: pa.Table) -> dict[int, Version]:
    assert rows.schema.equals(SCHEMA)
    listed = rows.to_pylist()
    assert len({row["id"] for row in listed}) == len(listed)
    return {row["id"]: row for row in listed if not row["_tombstone"]}


@pytest.mark.parametrize("engine", ENGINES, ids=str)
@given(rows=versions, cut=st.integers(0, 14), again=st.integers(0, 14))
def test_a_loop_over_the_versions_comes_to_the_same(
    engine: MergeEngine, rows: list[Version], cut: int, again: int
) -> None:
    expected = one_by_one(engine, rows)
    assert _live(settle(engine, _table(rows), ["id"]).rows) == expected
    first, second = sorted((cut, again))
    parts = [rows[:first], rows[first:second], rows[second:]]
    folded = [fold(engine, _table(part), ["id"]) for part in parts]
    older = fold(engine, pa.concat_tables(folded[:2]), ["id"])
    assert _live(settle(engine, pa.concat_tables([older, folded[2]]), ["id"]).rows) == expected
    newer = fold(engine, pa.concat_tables(folded[1:]), ["id"])
    assert _live(settle(engine, pa.concat_tables([folded[0], newer]), ["id"]).rows) == expected


@pytest.mark.parametrize("engine", ENGINES, ids=str)
@given(rows=versions)
def test_a_part_keeps_two_versions_of_a_key_at_most(engine: MergeEngine, rows: list[Version]) -> None:
    ids = fold(engine, _table(rows), ["id"]).column("id").to_pylist()
    assert all(ids.count(key) <= 2 for key in ids)


def test_what_has_not_changed_is_told() -> None:
    written = [(1, "x"), (2, "y"), (1, "z"), (3, "x")]
    versions = [{"id": key, "a": text, "_tombstone": False} for key, text in written]
    found = settle(MergeEngine.first_row(), _table(versions), ["id"], older=2)
    assert found.rows.column("a").to_pylist() == ["x", "y", "x"]
    assert found.known.tolist() == [True, True, False]
    assert found.unchanged.tolist() == [True, True, False]


SUMS = MergeEngine.aggregation(n="sum")


def _addends(kind: pa.DataType, addends: Sequence[float | None]) -> pa.Table:
    schema = pa.schema([("id", pa.int64()), ("n", kind), ("_tombstone", pa.bool_())])
    rows = [{"id": 1, "n": addend, "_tombstone": False} for addend in addends]
    return pa.Table.from_pylist([{"id": 2, "n": 7, "_tombstone": False}, *rows], schema)


@pytest.mark.parametrize(
    ("kind", "addends"),
    [
        (pa.int64(), [2**63 - 2]),
        (pa.int64(), [2**62, 2**62 - 2]),
        (pa.int64(), [-(2**62), -(2**62) + 1]),
        (pa.int64(), [2**63 - 2, -(2**63) + 2, 7]),
        (pa.int64(), [2**62, 2**62, -5]),
        (pa.uint64(), [2**63, 2**63 - 2]),
        (pa.uint64(), [0, None]),
    ],
)
def test_a_sum_that_its_type_has_room_for_is_exact(kind: pa.DataType, addends: list[int | None]) -> None:
    for versions in (_addends(kind, addends), fold(SUMS, _addends(kind, addends), ["id"], is_part=True)):
        found = settle(SUMS, versions, ["id"]).rows.to_pylist()
        assert {row["id"]: row["n"] for row in found} == {1: sum(filter(None, addends)), 2: 7}


def test_a_sum_of_floats_that_is_no_number_comes_without_a_warning() -> None:
    infinite = float("inf")
    for addends, total in (([1.7e308, 1.7e308], "inf"), ([infinite, -infinite], "nan")):
        rows = settle(SUMS, _addends(pa.float64(), [*addends]), ["id"]).rows.to_pylist()
        assert [str(row["n"]) for row in rows if row["id"] == 1] == [total]


@pytest.mark.parametrize(
    ("kind", "addends"),
    [
        (pa.int64(), [2**62, 2**62]),
        (pa.int64(), [-(2**62), -(2**62), -1]),
        (pa.uint64(), [2**63, 2**63]),
    ],
)
def test_a_sum_that_its_type_has_no_room_for_is_told(kind: pa.DataType, addends: list[int | None]) -> None:
    """Where nobody can be told it stays at the last number, from which nothing leads back but a delete."""
    versions = _addends(kind, addends)
    part = fold(SUMS, versions, ["id"], is_part=True)
    back = _addends(kind, [5 if kind == pa.uint64() else -5 * (addends[0] or 0) // abs(addends[0] or 1)])
    for known in (versions, part, pa.concat_tables([part, back])):
        with pytest.raises(InputError, match="id = 1 is out of range for its type") as raised:
            settle(SUMS, known, ["id"])
        assert raised.value.where == "n"
    gone = pa.Table.from_pylist([{"id": 1, "n": None, "_tombstone": True}], versions.schema)
    rows = settle(SUMS, pa.concat_tables([part, gone, back]), ["id"]).rows.to_pylist()
    assert [row["n"] for row in rows if row["id"] == 1] == [back.column("n")[1].as_py()]
