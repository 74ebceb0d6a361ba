"""Types of columns, each in both directions: rows of Weir's log that the library takes over, and back."""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from tests.conformance import library

import weir
from weir.errors import SchemaError

STRUCT = pa.struct([("a", pa.int64()), ("b", pa.string())])
DICTIONARY = pa.dictionary(pa.int32(), pa.string())
LONG = "a text that is too long to be inline"

WORKING: dict[str, tuple[pa.DataType, list[Any]]] = {
    "bool": (pa.bool_(), [True, None, False]),
    "float16": (pa.float16(), [1.0, None, 2.0]),
    "decimal128": (pa.decimal128(20, 3), [Decimal("1.5"), None, Decimal("-2")]),
    "decimal256": (pa.decimal256(50, 3), [Decimal("1.5"), None, Decimal("-2")]),
    "date64": (pa.date64(), [0, None, 86_400_000]),
    "time64": (pa.time64("ns"), [1, None, 2]),
    "timestamp with a zone": (pa.timestamp("ns", "Europe/Berlin"), [1, None, 2]),
    "duration": (pa.duration("us"), [1, None, 2]),
    "null": (pa.null(), [None, None, None]),
    "large_string": (pa.large_string(), ["a", None, ""]),
    "large_binary": (pa.large_binary(), [b"a", None, b""]),
    "fixed-size binary": (pa.binary(4), [b"abcd", None, b"efgh"]),
    "string_view": (pa.string_view(), ["a", None, LONG]),
    "binary_view": (pa.binary_view(), [b"a", None, LONG.encode()]),
    "dictionary": (DICTIONARY, ["a", None, "b"]),
    "list": (pa.list_(pa.int64()), [[1, None], None, []]),
    "large_list": (pa.large_list(pa.int64()), [[1], None, []]),
    "fixed-size list": (pa.list_(pa.float32(), 2), [[1, 2], None, [3, 4]]),
    "struct": (STRUCT, [{"a": 1, "b": "x"}, None, {"a": None, "b": None}]),
    "map": (pa.map_(pa.string(), pa.int64()), [[("a", 1)], None, []]),
    "list of struct": (pa.list_(STRUCT), [[{"a": 1, "b": "x"}, None], None, []]),
    "list of fixed-size list": (pa.list_(pa.list_(pa.float32(), 2)), [[[1, 2]], None, []]),
    "list of dictionary": (pa.list_(DICTIONARY), [["a", None], None, ["b"]]),
    "list of decimal256": (pa.list_(pa.decimal256(50, 3)), [[Decimal("1.5"), None], None, []]),
    "list of string_view": (pa.list_(pa.string_view()), [["a", None], None, [LONG]]),
    "struct of fixed-size list": (
        pa.struct([("v", pa.list_(pa.float32(), 2))]),
        [{"v": [1, 2]}, None, {"v": None}],
    ),
    "struct of dictionary": (pa.struct([("d", DICTIONARY)]), [{"d": "a"}, None, {"d": None}]),
    "uuid": (pa.uuid(), [b"0" * 16, None, b"1" * 16]),
}
JSON_FIELD = pa.field("v", pa.json_(pa.string()))
JSON = (pa.json_(pa.string()), ['{"a":1}', None, "{}"])
REFUSED: dict[str, pa.Field] = {
    "list_view": pa.field("v", pa.list_view(pa.int64())),
    "month-day-nano interval": pa.field("v", pa.month_day_nano_interval()),
    "run-end encoded": pa.field("v", pa.run_end_encoded(pa.int32(), pa.int64())),
    "dictionary of 16-bit indices": pa.field("v", pa.dictionary(pa.int16(), pa.string())),
    "fixed-size list of text": pa.field("v", pa.list_(pa.string(), 2)),
    "blob": pa.field("v", pa.large_binary(), metadata={"lance-encoding:blob": "true"}),
    "fixed-size binary of no bytes": pa.field("v", pa.binary(0)),
}
NOT_IN_OLD_FILES = {
    "struct",
    "map",
    "dictionary",
    "list of struct",
    "list of dictionary",
    "struct of fixed-size list",
    "struct of dictionary",
}
NO_JSON = {
    "nothing": " ",
    "a text": "not json",
    "half an object": '{"a":',
    "a name twice": '{"a": 1, "a": 2}',
    "two values": "1,2",
    "nested deeply": "[" * 129 + "]" * 129,
    "nested so deeply that it would end the process": "[" * 100_000 + "]" * 100_000,
    "nested deeply where no text is": "['\"', " + "[" * 5000 + "]" * 5000 + ", '\"']",
}


def rows_of(kind: pa.DataType, values: list[Any]) -> pa.Table:
    if isinstance(kind, pa.BaseExtensionType):
        column = pa.ExtensionArray.from_storage(kind, pa.array(values, kind.storage_type))
    else:
        column = pa.array(values, kind)
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", kind)])
    return pa.table([pa.array([1, 2, 3], pa.int64()), column], schema=schema)


def check_reads(table: weir.Table, expected: list[dict[str, Any]]) -> None:
    assert table.scan().to_table().sort_by("id").to_pylist() == expected
    found = {row["id"]: row for row in table.get([1, 2, 3]).to_pylist()}
    assert found == {row["id"]: row for row in expected}
    for row in expected:
        assert table.get([row["id"]]).to_pylist() == [row]


@pytest.fixture
def _writers_closed() -> Iterator[None]:
    yield
    library.close_writers()


@pytest.mark.one_in(5)
@pytest.mark.usefixtures("_writers_closed")
@pytest.mark.parametrize("name", WORKING)
def test_log_generation_merge_and_library(tmp_path: Path, name: str) -> None:
    rows = rows_of(*WORKING[name])
    path = tmp_path / "table"
    table = weir.create(path, rows.schema, primary_key="id", fsync=False)
    writer = table.writer()
    writer.upsert(rows)
    writer.delete([3])
    expected = rows.to_pylist()[:2]
    check_reads(table, expected)
    # Replayed from the log and flushed by the library, with a row of its own, which is in its log at first.
    (shard,) = library.shards_of(path)
    taken_over = library.open_writer(path, shard)
    taken_over.put(rows.slice(1, 1).cast(table.schema).to_batches()[0])
    check_reads(weir.open(path), expected)
    taken_over.close()
    found = library.scan(path).select(["id", "v"]).sort_by("id")
    assert found.to_pylist() == expected
    with pytest.raises(weir.errors.FencedError):
        writer.upsert(rows)
    opened = weir.open(path)
    check_reads(opened, expected)
    with opened.writer() as second:
        second.upsert(rows.slice(2))
    opened.maintenance.merge()
    check_reads(opened, rows.to_pylist())
    assert lance.dataset(str(path)).to_table().sort_by("id").to_pylist() == rows.to_pylist()
    assert opened.status().library_writable


def test_json_works_and_is_not_for_the_library(tmp_path: Path) -> None:
    rows = rows_of(*JSON)
    table = weir.create(tmp_path / "table", rows.schema, primary_key="id", fsync=False)
    for _ in range(2):
        with table.writer() as writer:
            writer.upsert(rows)
            check_reads(table, rows.to_pylist())
        table.maintenance.merge()
        check_reads(table, rows.to_pylist())
    status = table.status()
    assert not status.library_writable
    assert "cannot read the JSON column 'v' back" in status.library_note


def test_json_is_from_the_first_what_a_flush_makes_of_it(tmp_path: Path) -> None:
    texts = [' {"b": 1.0,\n "a": null}', '"\\u00e9"', "{'a': 1}", "1E2", None, "[" * 128 + "]" * 128]
    objects = "[" + ",".join(['{"a": "[{["}'] * 300) + "]"
    kept = ['{"a":null,"b":1.0}', '"é"', '{"a":1}', "100.0", None, texts[-1], objects.replace(": ", ":")]
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), JSON_FIELD])
    table = weir.create(tmp_path / "table", schema, primary_key="id", fsync=False)
    stored_large = pa.ExtensionArray.from_storage(
        pa.json_(pa.large_string()), pa.array([*texts, objects], pa.large_string())
    )
    with table.writer() as writer:
        for given in (pa.array([*texts, objects]), stored_large):
            writer.upsert(pa.table({"id": range(7), "v": given}))
            assert table.scan().to_table().sort_by("id")["v"].to_pylist() == kept
    table.maintenance.merge()
    assert table.scan().to_table().sort_by("id")["v"].to_pylist() == kept


@pytest.mark.parametrize("text", NO_JSON.values(), ids=NO_JSON)
def test_what_is_no_json_is_refused_before_it_is_in_the_log(tmp_path: Path, text: str) -> None:
    """No flush of the shard would ever be done again."""
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), JSON_FIELD])
    table = weir.create(tmp_path / "table", schema, primary_key="id", fsync=False)
    with table.writer() as writer:
        with pytest.raises(SchemaError, match=r"column 'v' holds a text in row 3 that Lance cannot read"):
            writer.upsert([*({"id": n, "v": "{}"} for n in range(3)), {"id": 3, "v": text}, {"id": 4}])
        writer.upsert([{"id": 5, "v": "[1]"}])
        with pytest.raises(SchemaError, match="in row 0 "):
            writer.patch([{"id": 5, "v": text}])
        with pytest.raises(SchemaError, match="column 'v' holds a text"):
            table.update(where="id = 5", set={"v": f"'{text.replace(chr(39), chr(39) * 2)}'"})
    assert table.scan().to_table().to_pylist() == [{"id": 5, "v": "[1]"}]


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_kept_is_refused_at_creation(tmp_path: Path, name: str) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), REFUSED[name]])
    with pytest.raises(SchemaError) as caught:
        weir.create(tmp_path / "table", schema, primary_key="id")
    assert caught.value.where == "v"
    assert not (tmp_path / "table").exists()


def test_blobs_are_not_adopted(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), REFUSED["blob"]])
    lance.write_dataset(
        pa.table({"id": [1], "v": [b"x"]}, schema), tmp_path / "t", data_storage_version="2.0"
    )
    with pytest.raises(SchemaError, match="'v' is a blob column"):
        weir.adopt(tmp_path / "t", primary_key="id")


UNREADABLE = {
    "small dictionary": pa.dictionary(pa.int8(), pa.string()),
    "fixed-size list of structs": pa.list_(pa.struct([("a", pa.int32())]), 2),
    "fixed-size list in a struct": pa.struct([("a", pa.list_(pa.string(), 2))]),
}


@pytest.mark.parametrize("type", UNREADABLE.values(), ids=UNREADABLE)
def test_a_column_that_lance_cannot_read_back_stops_writers(tmp_path: Path, type: pa.DataType) -> None:
    """Plain Lance adds it; rows would be acknowledged, and no flush could write them or read them back."""
    ids = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    table = weir.create(tmp_path / "t", ids, primary_key="id", fsync=False)
    with table.writer() as writer:
        writer.upsert([{"id": 1}])
        lance.dataset(table.uri).add_columns(pa.field("v", type))
        row = pa.table({"id": pa.array([2]), "v": pa.nulls(1, type)}, pa.schema([*ids, pa.field("v", type)]))
        with pytest.raises(SchemaError, match=r"'v|fixed-size list"):
            writer.upsert(row)
    assert weir.open(table.uri).scan().to_table().to_pylist() == [{"id": 1, "v": None}]
    with pytest.raises(SchemaError, match=r"'v|fixed-size list"):
        weir.open(table.uri).writer()
    table.alter(drop=["v"])
    table.maintenance.merge()
    with table.writer() as writer:
        writer.upsert([{"id": 2}])
    assert sorted(row["id"] for row in table.scan().to_table().to_pylist()) == [1, 2]
    lance.write_dataset(row.slice(0, 0), tmp_path / "plain")
    with pytest.raises(SchemaError, match=r"'v|fixed-size list"):
        weir.adopt(tmp_path / "plain", primary_key="id")


@pytest.mark.one_in(5)
@pytest.mark.parametrize("name", WORKING)
def test_base_tables_of_old_files(tmp_path: Path, name: str) -> None:
    """What their files cannot hold is refused before a row of it is in the log."""
    rows = rows_of(*WORKING[name])
    path = tmp_path / "table"
    lance.write_dataset(rows.slice(0, 0), path, schema=rows.schema, data_storage_version="2.0")
    if name in NOT_IN_OLD_FILES:
        with pytest.raises(SchemaError, match=r"files of Lance's format 2\.0 hold no"):
            weir.adopt(path, primary_key="id")
        return
    table = weir.adopt(path, primary_key="id")
    for _ in range(2):
        with table.writer() as writer:
            writer.upsert(rows)
        check_reads(table, rows.to_pylist())
        table.maintenance.merge()
        check_reads(table, rows.to_pylist())


NEW_KINDS = {"2.0": ("map", "struct", "dictionary", "list of struct"), "2.1": ("map",)}


@pytest.mark.parametrize(
    ("version", "name"), [(version, name) for version, names in NEW_KINDS.items() for name in names]
)
def test_what_its_files_cannot_hold_is_not_added_to_a_table(tmp_path: Path, version: str, name: str) -> None:
    ids = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    path, kind = tmp_path / "table", WORKING[name][0]
    lance.write_dataset(ids.empty_table(), path, data_storage_version=version)  # type: ignore[arg-type]
    table = weir.adopt(path, primary_key="id")
    with table.writer() as writer:
        with pytest.raises(SchemaError, match=rf"column 'v.*files of Lance's format {version} hold no"):
            table.alter(add=[pa.field("v", kind)])
        assert lance.dataset(str(path)).schema.names == ["id"]
        table.alter(add=[pa.field("v", pa.int32())])
        writer.upsert([{"id": 1, "v": 2}])
    table.maintenance.merge()
    assert table.scan().to_table().to_pylist() == [{"id": 1, "v": 2}]


def test_maps_are_not_taken_where_only_newer_files_hold_them(tmp_path: Path) -> None:
    """Files of format 2.1 can be made for it as long as they have no rows."""
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", WORKING["map"][0])])
    lance.write_dataset(schema.empty_table(), tmp_path / "t", data_storage_version="2.1")
    with pytest.raises(SchemaError, match=r"'v' is map.*format 2\.1 hold none.*data_storage_version='2\.2'"):
        weir.adopt(tmp_path / "t", primary_key="id")


def test_a_table_of_old_files_that_the_library_has_set_up_is_not_written(tmp_path: Path) -> None:
    rows = rows_of(*WORKING["struct"])
    key = rows.schema.field("id").with_metadata({"lance-schema:unenforced-primary-key": "true"})
    schema = rows.schema.set(0, key)
    dataset = lance.write_dataset(
        rows.slice(0, 1).cast(schema), str(tmp_path / "table"), data_storage_version="2.0"
    )
    dataset.initialize_mem_wal(unsharded=True)
    table = weir.open(tmp_path / "table")
    assert table.scan().to_table().to_pylist() == rows.to_pylist()[:1]
    with pytest.raises(SchemaError, match=r"'v' is struct.* hold no nulls.*data_storage_version='2\.1'"):
        table.writer()


def test_the_page_has_a_row_for_every_type() -> None:
    page = (Path(__file__).parents[2] / "docs" / "types.md").read_text()
    listed = re.findall(r"^\| ([a-z][^|]*?) \|", page, re.MULTILINE)
    assert [name for name in listed if name != "type"] == [*WORKING, "JSON".lower(), *REFUSED]
