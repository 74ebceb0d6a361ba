"""Columns of a source under another schema: by field id, at every level, and by name for old files."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
import pytest

from weir.errors import CorruptionError
from weir.format.field_ids import (
    FieldId,
    field_id,
    has_field_ids,
    new_field_ids,
    with_field_ids,
    without_field_ids,
)
from weir.format.resolution import NO_CASTS, Casts, resolve


def marked(columns: list[tuple[str, pa.DataType]], *ids: FieldId | int) -> pa.Schema:
    return with_field_ids(
        pa.schema(columns), [one if isinstance(one, FieldId) else FieldId(one) for one in ids]
    )


Rows = list[dict[str, Any]]


def moved(source: pa.Schema, target: pa.Schema, rows: Rows, casts: Casts = NO_CASTS) -> Rows:
    batch = pa.RecordBatch.from_pylist(rows, schema=source)
    plan = resolve(source, target, casts)
    made = plan.apply(batch, where="here")
    made.validate(full=True)
    assert made.schema.equals(target, check_metadata=True)
    # A slice of a batch has its own offsets in every nested column.
    part = plan.apply(batch.slice(1), where="here")
    part.validate(full=True)
    assert part.to_pylist() == made.to_pylist()[1:]
    assert pickle.loads(pickle.dumps(plan)).apply(batch, where="here").equals(made)
    return list(made.to_pylist())


A, B = ("a", pa.int32()), ("b", pa.int32())


def test_a_column_is_found_by_its_id_whatever_it_is_called() -> None:
    before = marked([A, B], 3, 7)
    rows: Rows = [{"a": 1, "b": 2}, {"a": None, "b": 4}]
    assert moved(before, marked([("c", pa.int32()), B], 3, 7), rows) == [
        {"c": 1, "b": 2},
        {"c": None, "b": 4},
    ]
    assert moved(before, marked([A, B], 7, 3), rows) == [{"a": 2, "b": 1}, {"a": 4, "b": None}]
    assert moved(before, marked([B, A], 7, 3), rows) == [{"b": 2, "a": 1}, {"b": 4, "a": None}]


def test_one_that_was_dropped_and_added_again_has_none_of_its_old_values() -> None:
    found = moved(marked([A, B], 0, 1), marked([B, ("a", pa.string())], 1, 2), [{"a": 1, "b": 2}])
    assert found == [{"b": 2, "a": None}]


def test_children_are_resolved_like_columns() -> None:
    def place(*names: str) -> pa.DataType:
        return pa.struct([(name, pa.int32()) for name in names])

    def ids(*numbers: int) -> tuple[FieldId, ...]:
        return tuple(FieldId(one) for one in numbers)

    types: dict[str, tuple[Any, Any, Any]] = {
        "struct": (lambda inner: inner, lambda ids: FieldId(1, ids), lambda value: value),
        "list": (pa.list_, lambda ids: FieldId(1, (FieldId(2, ids),)), lambda value: [value, None, value]),
        "large list": (pa.large_list, lambda ids: FieldId(1, (FieldId(2, ids),)), lambda value: [value]),
        "fixed-size list": (
            lambda inner: pa.list_(inner, 2),
            lambda ids: FieldId(1, (FieldId(2, ids),)),
            lambda value: [None, value],
        ),
        "map": (
            lambda inner: pa.map_(pa.string(), inner),
            lambda ids: FieldId(1, (FieldId(2, (FieldId(3), FieldId(4, ids))),)),
            lambda value: [("k", value), ("l", None)],
        ),
    }
    for made, numbered, shaped in types.values():
        before = marked([("s", made(place("x", "y")))], numbered(ids(5, 6)))
        rows = [{"s": shaped({"x": 1, "y": 2})}, {"s": None}, {"s": shaped({"x": None, "y": 4})}]
        for after, wanted in (
            ((("y", "z"), (6, 5)), ({"y": 2, "z": 1}, {"y": 4, "z": None})),
            ((("x", "y"), (6, 5)), ({"x": 2, "y": 1}, {"x": 4, "y": None})),
            ((("y", "x"), (6, 9)), ({"y": 2, "x": None}, {"y": 4, "x": None})),
            ((("x", "y", "n"), (5, 6, 9)), ({"x": 1, "y": 2, "n": None}, {"x": None, "y": 4, "n": None})),
        ):
            target = marked([("s", made(place(*after[0])))], numbered(ids(*after[1])))
            expected = [{"s": shaped(wanted[0])}, {"s": None}, {"s": shaped(wanted[1])}]
            assert moved(before, target, rows) == expected


def test_a_recorded_cast_leads_from_the_old_id_to_the_new() -> None:
    before = marked([A, B], 0, 1)
    rows: Rows = [{"a": 1, "b": 2}, {"a": None, "b": 3}]
    now = marked([("a", pa.int64()), B], 4, 1)
    assert moved(before, now, rows, casts={0: 4}) == rows
    assert moved(before, now, rows, casts={0: 3, 3: 4}) == rows
    assert moved(before, now, rows) == [{"a": None, "b": 2}, {"a": None, "b": 3}]
    nested = marked([("s", pa.struct([("x", pa.int32())]))], FieldId(0, (FieldId(1),)))
    wider = marked([("s", pa.struct([("x", pa.int64())]))], FieldId(0, (FieldId(9),)))
    assert moved(nested, wider, [{"s": {"x": 1}}], casts={1: 9}) == [{"s": {"x": 1}}]


def test_files_without_ids_go_by_name() -> None:
    old = pa.schema([A, ("s", pa.struct([("x", pa.int32())]))])
    now = marked(
        [("s", pa.struct([("n", pa.int8()), ("x", pa.int64())])), ("a", pa.int64()), B],
        FieldId(9, (FieldId(10), FieldId(11))),
        12,
        0,
    )
    assert moved(old, now, [{"a": 1, "s": {"x": 2}}]) == [{"s": {"n": None, "x": 2}, "a": 1, "b": None}]
    with pytest.raises(CorruptionError, match="column 'a' is stored as int32 where the table has list"):
        moved(old, pa.schema([("a", pa.list_(pa.int32()))]), [{"a": 1, "s": None}])


def test_tombstones_go_by_their_name() -> None:
    schema = marked([A], 0).append(pa.field("_tombstone", pa.bool_(), nullable=False))
    # The library numbers the flag like a column, and the table may have a column of that number later.
    target = marked([A, ("flag", pa.bool_())], 0, 1).append(schema.field("_tombstone"))
    found = moved(schema, target, [{"a": 1, "_tombstone": True}])
    assert found == [{"a": 1, "flag": None, "_tombstone": True}]


def test_a_plan_tells_what_of_a_source_is_needed() -> None:
    plan = resolve(marked([A, B, ("c", pa.int8())], 0, 1, 2), marked([A, ("d", pa.int32()), B], 0, 1, 9))
    assert plan.source_names == ["a", "b"]
    assert (plan.source_name("d"), plan.source_name("b")) == ("b", None)
    assert (plan.is_same(["a"]), plan.is_same(["d"]), plan.is_same(["b"]), plan.is_identity) == (
        True,
        False,
        False,
        False,
    )
    part = plan.select(["d"])
    assert (part.source_names, part.schema.names) == (["b"], ["d"])
    batch = pa.RecordBatch.from_pylist([{"b": 5}], schema=pa.schema([B]))
    assert part.apply(batch, where="here").to_pylist() == [{"d": 5}]
    assert resolve(marked([A], 0), marked([A], 0)).is_identity


def test_ids_are_marked_and_taken_off_at_every_level() -> None:
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False, metadata={"kept": "yes"}),
            ("m", pa.map_(pa.string(), pa.struct([("q", pa.int8())]))),
            ("v", pa.list_(pa.float32(), 4)),
            ("l", pa.large_list(pa.list_(pa.string()))),
        ],
        metadata={"table": "kept"},
    )
    ids = new_field_ids(schema)
    carried = with_field_ids(schema, ids)
    assert [field_id(field) for field in carried] == [0, 1, 6, 7]
    assert field_id(carried.field("m").type.item_field.type.field("q")) == 5
    assert has_field_ids(carried)
    assert not has_field_ids(schema)
    assert without_field_ids(carried).equals(schema, check_metadata=True)
    broken = pa.field("a", pa.int8(), metadata={"lance:field_id": "one"})
    with pytest.raises(CorruptionError, match="which is not a number"):
        field_id(broken)
