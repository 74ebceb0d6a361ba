from __future__ import annotations

from collections.abc import Callable

import lance
import pyarrow as pa
import pytest

from weir.base.schema import KEY_FIELD, KEY_POSITION, RESERVED_NAMES, all_field_ids, field_ids, table_schema
from weir.errors import SchemaError

ID = pa.field("id", pa.int64())


def nested(around: Callable[[pa.DataType], pa.DataType], levels: int) -> pa.DataType:
    kind = pa.int64()
    for _ in range(levels):
        kind = around(kind)
    return kind


def marks(schema: pa.Schema, name: str) -> dict[bytes, bytes]:
    return schema.field(name).metadata or {}


def test_a_single_key_is_marked_and_not_nullable() -> None:
    schema = table_schema(pa.schema([ID, ("v", pa.string())]), ("id",))
    assert marks(schema, "id") == {KEY_FIELD.encode(): b"true"}
    assert not schema.field("id").nullable
    assert schema.field("v").nullable
    assert marks(schema, "v") == {}


def test_a_composite_key_keeps_the_order_that_was_asked_for() -> None:
    schema = table_schema(pa.schema([("a", pa.string()), ("b", pa.int32()), ("v", pa.int8())]), ("b", "a"))
    assert marks(schema, "b")[KEY_POSITION.encode()] == b"1"
    assert marks(schema, "a")[KEY_POSITION.encode()] == b"2"
    stored = lance.write_dataset(schema.empty_table(), "memory://composite")
    assert [field.name() for field in stored.lance_schema.unenforced_primary_key()] == ["b", "a"]


def test_other_metadata_stays_and_marks_of_the_caller_are_replaced() -> None:
    asked = pa.schema(
        [
            ID.with_metadata({"unit": "none", KEY_FIELD: "true", KEY_POSITION: "3"}),
            pa.field("v", pa.string(), metadata={KEY_FIELD: "true"}),
        ],
        metadata={"made-by": "a test"},
    )
    schema = table_schema(asked, ("id",))
    assert marks(schema, "id") == {b"unit": b"none", KEY_FIELD.encode(): b"true"}
    assert marks(schema, "v") == {}
    assert schema.metadata == {b"made-by": b"a test"}


def test_view_types_become_what_lance_stores() -> None:
    schema = table_schema(
        pa.schema([("id", pa.string_view()), ("v", pa.binary_view()), ("l", pa.list_(pa.string_view()))]),
        ("id",),
    )
    assert [field.type for field in schema] == [pa.string(), pa.binary(), pa.list_(pa.string())]


@pytest.mark.parametrize("name", sorted(RESERVED_NAMES))
def test_reserved_names_are_refused(name: str) -> None:
    with pytest.raises(SchemaError, match="reserved") as caught:
        table_schema(pa.schema([ID, (name, pa.int64())]), ("id",))
    assert caught.value.where == name


@pytest.mark.parametrize(
    ("fields", "key", "message"),
    [
        ([], (), "at least one column"),
        ([ID], (), "primary key needs at least one column"),
        ([ID], ("other",), "'other' is not in the schema"),
        ([ID], ("id", "id"), "twice"),
        ([ID, ("v", pa.int8()), ("v", pa.int16())], ("id",), "'v' is in the schema more than once"),
        ([("price", pa.float64())], ("price",), "'price' of type double cannot be part of a primary key"),
        ([("tags", pa.list_(pa.int8()))], ("tags",), "cannot be part of a primary key"),
        ([("when", pa.time64("us"))], ("when",), "cannot be part of a primary key"),
        ([ID, ("a.b", pa.int8())], ("id",), "'a.b'"),
        ([ID, ("v", pa.list_(pa.string(), 2))], ("id",), "fixed-size list of string"),
        ([ID, ("v", pa.map_(pa.string(), pa.list_(pa.binary(), 2)))], ("id",), "fixed-size list of binary"),
        ([ID, ("v", pa.list_(pa.struct([])))], ("id",), "'v' is a struct without fields"),
        ([ID, ("a`b", pa.int8())], ("id",), "'a`b'"),
        ([ID, ("a\0b", pa.int8())], ("id",), "cannot store a column"),
        ([ID, ("", pa.int8())], ("id",), "''"),
        ([ID, ("i", pa.month_day_nano_interval())], ("id",), "cannot store this schema"),
        ([ID, ("u", pa.sparse_union([pa.field("x", pa.int8())]))], ("id",), "cannot store this schema"),
        ([ID, ("d", nested(pa.list_, 63))], ("id",), "more than 62 levels"),
        ([ID, ("d", nested(pa.list_, 5_000))], ("id",), "more than 62 levels"),
        ([ID, ("d", nested(lambda of: pa.struct([("a", of)]), 63))], ("id",), "more than 62 levels"),
        ([ID, ("d", nested(lambda of: pa.map_(pa.string(), of), 32))], ("id",), "more than 62 levels"),
        ([ID, ("r", pa.run_end_encoded(pa.int32(), pa.int8()))], ("id",), "cannot store this schema"),
    ],
)
def test_what_cannot_be_a_table_is_refused(
    fields: list[pa.Field], key: tuple[str, ...], message: str
) -> None:
    with pytest.raises(SchemaError, match=message):
        table_schema(pa.schema(fields), key)


@pytest.mark.parametrize(
    ("around", "levels"),
    [(pa.list_, 62), (lambda of: pa.struct([("a", of)]), 62), (lambda of: pa.map_(pa.string(), of), 31)],
)
def test_what_is_nested_as_deep_as_may_be_is_taken(
    around: Callable[[pa.DataType], pa.DataType], levels: int
) -> None:
    schema = pa.schema([ID, ("deep", nested(around, levels))])
    assert table_schema(schema, ("id",)).field("deep").type == schema.field("deep").type


def test_the_column_lance_cannot_store_is_named() -> None:
    with pytest.raises(SchemaError) as caught:
        table_schema(pa.schema([ID, ("v", pa.int8()), ("bad", pa.list_view(pa.int8()))]), ("id",))
    assert caught.value.where == "bad"


def test_a_key_given_as_text_and_a_schema_of_another_kind_are_refused() -> None:
    with pytest.raises(SchemaError, match="sequence of column names"):
        table_schema(pa.schema([ID]), "id")
    with pytest.raises(SchemaError, match=r"pyarrow\.Schema"):
        table_schema({"id": "int64"}, ("id",))


def test_field_ids_are_those_the_library_gives() -> None:
    schema = pa.schema(
        [
            ID,
            ("point", pa.struct([("x", pa.float32()), ("more", pa.list_(pa.int8()))])),
            ("names", pa.map_(pa.string(), pa.int64())),
            ("kind", pa.dictionary(pa.int32(), pa.string())),
            ("vector", pa.list_(pa.float32(), 4)),
            ("last", pa.bool_()),
        ]
    )
    stored = lance.write_dataset(schema.empty_table(), "memory://ids")
    expected = {field.name(): field.id() for field in stored.lance_schema.fields()}
    assert field_ids(schema) == expected
    assert all_field_ids(stored.lance_schema) == all_field_ids(schema)
    assert all_field_ids(schema)["point.more.item"] == expected["point"] + 3
