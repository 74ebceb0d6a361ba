"""Altering columns: one commit for all of it, by field id, or a named error and nothing changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from lance.dataset import LanceOperation
from lance.fragment import write_fragments
from tests.base.table_kit import new_store

from weir.base import alter
from weir.base.alter import LAST_FIELD_ID, alter_base_table
from weir.base.alteration import Alteration
from weir.base.create import adopt_base_table, create_base_table
from weir.base.details_commit import update_details
from weir.base.publish import publish_schema
from weir.base.schema import all_field_ids
from weir.base.table import BaseTable
from weir.engine import failpoint
from weir.errors import SchemaError, StorageError
from weir.format.index_details import ShardFieldSpec, ShardSpec
from weir.format.widening import widened

POINT = pa.struct([("x", pa.int32()), ("y", pa.string())])
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("a", pa.int32(), metadata={"unit": "min"}),
        ("b", pa.int32()),
        ("place", pa.string()),
        ("point", POINT),
        ("counts", pa.list_(pa.int16())),
        ("vec", pa.list_(pa.float32(), 2)),
        ("price", pa.decimal128(7, 2)),
        ("word", pa.dictionary(pa.int32(), pa.string())),
    ],
    metadata={"owner": "ops"},
)
SPEC = ShardSpec(1, (ShardFieldSpec("place", (3,), "identity", None, "utf8"),))


def _row(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "a": number,
        "b": -number,
        "place": "here",
        "point": None if number % 3 == 0 else {"x": number, "y": str(number)},
        "counts": [number, None],
        "vec": [number, 0.5],
        "price": None,
        "word": "w",
    }


def _new_table(directory: Path) -> BaseTable:
    """Make a table of two fragments, with rows deleted from the first."""
    rows = pa.Table.from_pylist([_row(number) for number in range(8)], SCHEMA)
    made = create_base_table(new_store(directory), SCHEMA, ("id",), shard_specs=[SPEC], initial_data=rows)
    later = pa.Table.from_pylist([_row(number) for number in range(8, 11)], made.schema)
    lance.write_dataset(later, made.uri, mode="append")
    lance.dataset(made.uri).delete("id in (0, 4, 7)")
    return made.latest()


@pytest.fixture
def base(tmp_path: Path) -> BaseTable:
    return _new_table(tmp_path)


@pytest.fixture(scope="module")
def indexed(tmp_path_factory: pytest.TempPathFactory) -> BaseTable:
    """For what changes nothing: one table is enough."""
    made = _new_table(tmp_path_factory.mktemp("indexed"))
    lance.dataset(made.uri).create_scalar_index("b", "BTREE")
    return made.latest()


LEFT = (1, 2, 3, 5, 6, 8, 9, 10)


def _alter(base: BaseTable, **asked: Any) -> BaseTable:
    return alter_base_table(base, Alteration.of(**asked))


def _rows(base: BaseTable) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = base.dataset.to_table().sort_by("id").to_pylist()
    return rows


def _ids(base: BaseTable) -> Mapping[str, int]:
    return all_field_ids(base.dataset.lance_schema)


def test_all_of_it_is_one_version(base: BaseTable) -> None:
    before = _ids(base)
    altered = _alter(
        base,
        add=[pa.field("gate", pa.string()), pa.field("point.z", pa.int8()), pa.field("m", POINT)],
        drop=["price", "point.y"],
        rename={"a": "b", "b": "a", "counts": "numbers"},
        widen={"vec": pa.list_(pa.float64(), 2), "point.x": pa.int64()},
    )
    assert altered.version == base.version + 1
    assert _rows(altered) == [
        {
            "id": number,
            "b": number,
            "a": -number,
            "place": "here",
            "point": None if number % 3 == 0 else {"x": number, "z": None},
            "numbers": [number, None],
            "vec": [number, 0.5],
            "word": "w",
            "gate": None,
            "m": None,
        }
        for number in LEFT
    ]
    assert altered.schema.field("vec").type == pa.list_(pa.float64(), 2)
    assert altered.schema.field("point").type.field("x").type == pa.int64()
    after = _ids(altered)
    kept = {"id": "id", "b": "a", "a": "b", "place": "place", "point": "point", "point.x": "point.x"}
    assert all(after[now] == before[then] for now, then in kept.items())
    assert after["vec"] == before["vec"]
    new = {after[name] for name in ("gate", "point.z", "m", "m.x", "m.y")}
    assert len(new) == 5
    assert min(new) > max(before.values())
    assert altered.primary_key == ("id",)
    assert altered.details.shard_specs == base.details.shard_specs
    assert altered.schema.metadata == {b"owner": b"ops"}
    assert altered.schema.field("b").metadata == {b"unit": b"min"}
    # The version before is what it was.
    assert base.dataset.checkout_version(base.version).to_table().schema.equals(base.schema)
    assert _rows(base.at_version(base.version)) == [_row(number) for number in LEFT]


def test_the_library_goes_on_with_the_table(base: BaseTable) -> None:
    altered = _alter(base, widen={"a": pa.int64(), "price": pa.decimal128(12, 3)}, rename={"b": "c"})
    dataset = lance.dataset(altered.uri)
    dataset.optimize.compact_files()
    row = pa.Table.from_pylist([{**_row(5), "a": 2**40, "c": 1}], dataset.schema)
    dataset.merge_insert("id").when_matched_update_all().execute(row)
    dataset = lance.dataset(altered.uri)
    assert dataset.to_table(filter="a = 1099511627776").num_rows == 1
    assert dataset.count_rows() == len(LEFT)
    dataset.validate()  # type: ignore[no-untyped-call]


def test_a_version_that_comes_about_after_its_answer_was_given_up_has_its_files(
    base: BaseTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    late: list[Callable[[], int | None]] = []

    def publish(*arguments: Any) -> int | None:
        late.append(partial(publish_schema, *arguments))
        raise StorageError("the store does not answer")

    monkeypatch.setattr(alter, "publish_schema", publish)
    with pytest.raises(StorageError, match="does not answer"):
        _alter(base, widen={"a": pa.int64()})
    (request,) = late
    assert request() is not None
    newest = base.latest()
    assert newest.schema.field("a").type == pa.int64()
    assert _rows(newest) == [_row(number) for number in LEFT]


@pytest.mark.covering
@pytest.mark.parametrize(
    ("given", "wanted", "value"),
    [
        (pa.int8(), pa.int64(), -3),
        (pa.uint8(), pa.int16(), 200),
        (pa.uint16(), pa.uint64(), 7),
        (pa.float16(), pa.float32(), 0.5),
        (pa.float32(), pa.float64(), 0.1),
        (pa.decimal128(5, 2), pa.decimal128(9, 4), None),
        (pa.decimal128(5, 2), pa.decimal256(50, 2), None),
        (pa.string(), pa.large_string(), "x"),
        (pa.binary(), pa.large_binary(), b"x"),
        (pa.time32("s"), pa.time64("us"), None),
        (pa.list_(pa.list_(pa.int32())), pa.list_(pa.list_(pa.int64())), [[1, None], None]),
        (pa.list_(pa.float16(), 3), pa.list_(pa.float32(), 3), [1.0, 0.5, 2.0]),
    ],
    ids=str,
)
@pytest.mark.parametrize("version", ["2.0", "2.1"])
def test_types_that_are_wider(
    tmp_path: Path, given: pa.DataType, wanted: pa.DataType, value: Any, version: str
) -> None:
    schema = pa.schema([pa.field("id", pa.int32(), nullable=False), ("n", given)])
    store = new_store(tmp_path)
    lance.write_dataset(schema.empty_table(), store.uri, data_storage_version=version)  # type: ignore[arg-type]
    base = adopt_base_table(store, ("id",))
    rows = pa.Table.from_pylist([{"id": 1, "n": value}, {"id": 2, "n": None}], base.schema)
    lance.write_dataset(rows, base.uri, mode="append")
    altered = _alter(base, widen={"n": wanted})
    found = altered.dataset.to_table()
    assert found.schema.field("n").type == wanted
    assert found["n"].to_pylist() == rows["n"].cast(wanted).to_pylist()
    assert _ids(altered) == _ids(base)


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (pa.timestamp("s", "UTC"), pa.timestamp("us", "UTC")),
        (pa.timestamp("us"), pa.timestamp("ns")),
        (pa.duration("ms"), pa.duration("ns")),
        (pa.list_(pa.timestamp("ms")), pa.list_(pa.timestamp("us"))),
    ],
    ids=str,
)
def test_finer_timestamps_and_durations_are_not_wider(given: pa.DataType, wanted: pa.DataType) -> None:
    with pytest.raises(SchemaError, match="do not reach as far"):
        widened(given, wanted, "at")


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ({}, "nothing to alter"),
        ({"drop": ["nope"]}, "no column 'nope'"),
        ({"drop": ["point.nope"]}, "no column 'point.nope'"),
        ({"drop": ["id"]}, "'id' cannot be altered: it is part of the primary key"),
        ({"rename": {"id": "key"}}, "primary key"),
        ({"widen": {"id": pa.decimal128(30, 0)}}, "primary key"),
        ({"drop": ["place"]}, "'place' cannot be altered: the rule by which rows are split"),
        ({"rename": {"place": "city"}}, "the rule by which rows are split"),
        ({"widen": {"place": pa.large_string()}}, "the rule by which rows are split"),
        ({"drop": ["b"]}, "the index 'b_idx' is on it"),
        ({"widen": {"b": pa.int64()}}, "the index 'b_idx' is on it"),
        ({"rename": {"b": "c"}}, "the index 'b_idx' is on it"),
        ({"add": [pa.field("a", pa.int8())]}, "a column 'a' already"),
        ({"add": [pa.field("point.x", pa.int8())]}, "a column 'point.x' already"),
        ({"rename": {"a": "vec"}}, "a column 'vec' already"),
        ({"rename": {"a": "x", "vec": "x"}}, "a column 'x' already"),
        ({"rename": {"a": "a"}}, "already has this name"),
        ({"rename": {"a": "_tombstone"}}, "is reserved"),
        ({"add": [pa.field("_rowid", pa.int8())]}, "is reserved"),
        ({"rename": {"a": "x.y"}}, "cannot store a column called"),
        ({"rename": {"a": ""}}, "cannot store a column called"),
        ({"add": [pa.field("x\0y", pa.int8())]}, "cannot store a column called"),
        ({"add": [pa.field("x" * 256, pa.int8())]}, "at most 255 characters, and 'xxx.* has 256"),
        ({"add": [pa.field("z", pa.list_(pa.struct([("x" * 256, pa.int8())])))]}, "at most 255 characters"),
        ({"rename": {"a": "x" * 70_000}}, "at most 255 characters, and 'xxx.* has 70,000"),
        ({"rename": {"point.x": "x" * 256}}, "at most 255 characters"),
        ({"widen": {"a": pa.int16()}}, "int32 cannot be widened to int16"),
        ({"widen": {"a": pa.float64()}}, "cannot be widened to double"),
        ({"widen": {"a": pa.int32()}}, "int32 already"),
        ({"widen": {"point": pa.struct([("x", pa.int64())])}}, "cannot be widened"),
        ({"widen": {"vec": pa.list_(pa.float64(), 3)}}, "cannot be widened"),
        ({"widen": {"price": pa.decimal128(8, 4)}}, "cannot be widened"),
        ({"add": [pa.field("z", pa.int8(), nullable=False)]}, "cannot be without nulls"),
        ({"add": [pa.field("nope.z", pa.int8())]}, "'nope' is not a struct"),
        ({"add": [pa.field("z", pa.list_(pa.string(), 2))]}, "fixed-size list of string"),
        ({"add": [pa.field("z", pa.struct([]))]}, "without fields"),
        ({"drop": ["point.x", "point.y"]}, "a struct without fields"),
        ({"drop": ["a", "a"]}, "dropped and dropped"),
        ({"drop": ["a"], "rename": {"a": "z"}}, "dropped and renamed"),
        ({"drop": ["a"], "add": [pa.field("a", pa.int8())]}, "dropped and added"),
        ({"rename": {"a": "z"}, "widen": {"a": pa.int64()}}, "renamed and widened"),
        ({"drop": ["point", "point.x"]}, "which it is a part of"),
        ({"drop": "a"}, "drop is a list"),
        ({"drop": [1]}, "not 1"),
        ({"add": pa.field("z", pa.int8())}, "add is a list"),
        ({"add": ["z"]}, "add takes"),
        ({"rename": ["a"]}, "rename is a dict"),
        ({"rename": {"a": 1}}, "rename takes"),
        ({"widen": {"a": "int64"}}, "widen takes"),
    ],
    ids=str,
)
def test_what_is_refused_changes_nothing(indexed: BaseTable, asked: dict[str, Any], says: str) -> None:
    base = indexed
    objects = {entry.path for entry in base.store.list("")}
    with pytest.raises(SchemaError, match=says) as caught:
        _alter(base, **asked)
    assert caught.value.where is not None
    assert base.latest() is base
    assert {entry.path for entry in base.store.list("")} == objects


def test_half_of_a_surrogate_pair_is_no_name() -> None:
    schema = pa.schema([("a", pa.int32()), ("point", pa.struct([("x", pa.int32())]))])
    for path in ("a", "point.x"):
        with pytest.raises(SchemaError, match="no half of a surrogate pair"):
            Alteration.of(rename={path: "a\udc80"}).applied(schema, {})


def test_a_value_that_does_not_fit_changes_nothing(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int32(), nullable=False), ("price", pa.decimal128(5, 2))])
    base = create_base_table(new_store(tmp_path), schema, ("id",))
    # Of more digits than the type has, which nobody keeps Lance from storing.
    digits = pa.py_buffer((10**9).to_bytes(16, "little"))
    price = pa.Array.from_buffers(schema.field("price").type, 1, [None, digits])
    rows = pa.table({"id": pa.array([1], pa.int32()), "price": price})
    lance.write_dataset(rows.cast(base.schema), base.uri, mode="append")
    base = base.latest()
    objects = {entry.path for entry in base.store.list("data")}
    with pytest.raises(SchemaError, match="does not fit") as caught:
        _alter(base, widen={"price": pa.decimal128(7, 3)})
    assert caught.value.where == "price"
    assert base.latest() is base
    assert {entry.path for entry in base.store.list("data")} == objects


def test_the_id_of_a_dropped_column_is_not_given_to_another(base: BaseTable) -> None:
    added = _alter(base, add=[pa.field("c", pa.int32())])
    dropped = _alter(added, drop=["c"])
    again = _alter(dropped, add=[pa.field("c", pa.int32())])
    assert _ids(again)["c"] > _ids(added)["c"]
    assert int(again.details.writer_config_defaults[LAST_FIELD_ID]) == _ids(again)["c"]
    # The library keeps what is noted beside the table over commits of its own.
    lance.dataset(again.uri).delete("id = 1")
    assert again.latest().details.writer_config_defaults == again.details.writer_config_defaults


def test_rows_made_for_the_version_before_are_refused_after_a_cast(base: BaseTable) -> None:
    old = lance.dataset(base.uri)
    row = pa.Table.from_pylist([_row(20)], old.schema)
    fragments = write_fragments(row, old, mode="append")
    altered = _alter(base, widen={"a": pa.int64()})
    with pytest.raises(OSError, match="conflict"):
        lance.LanceDataset.commit(old.uri, LanceOperation.Append(fragments), read_version=old.version)
    assert altered.latest() is altered


def test_rows_made_for_the_version_before_go_in_after_a_rename(base: BaseTable) -> None:
    old = lance.dataset(base.uri)
    fragments = write_fragments(pa.Table.from_pylist([_row(20)], old.schema), old, mode="append")
    altered = _alter(base, rename={"a": "b", "b": "a"}, add=[pa.field("c", pa.int8())])
    lance.LanceDataset.commit(old.uri, LanceOperation.Append(fragments), read_version=old.version)
    (row,) = altered.latest().dataset.to_table(filter="id = 20").to_pylist()
    assert (row["a"], row["b"], row["c"]) == (-20, 20, None)


def test_a_commit_in_between_is_not_lost(base: BaseTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody takes the version that was to be published: all of it is made anew from what they wrote."""
    raced: list[str] = []

    def race(name: str) -> None:
        if name == "alter.before_publish" and len(raced) < 2:
            raced.append(name)
            later = pa.Table.from_pylist([_row(30 + len(raced))], base.schema)
            lance.write_dataset(later, base.uri, mode="append")
            update_details(base, lambda details: details)

    monkeypatch.setattr(failpoint, "reach", race)
    altered = _alter(base, widen={"a": pa.int64()}, rename={"b": "c"})
    assert len(raced) == 2
    assert [row["a"] for row in _rows(altered)] == [*LEFT, 31, 32]
    assert altered.version == base.version + 3


def test_a_name_that_has_become_another_column_is_widened_anew(
    base: BaseTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was written of the column that had the name before would be read as that of this one."""
    base = _alter(base, add=[pa.field("other", pa.int32())], drop=["b"])
    raced: list[str] = []

    def race(name: str) -> None:
        if name == "alter.before_publish" and not raced:
            raced.append(name)
            _alter(base, rename={"a": "other", "other": "a"})

    monkeypatch.setattr(failpoint, "reach", race)
    altered = _alter(base, widen={"a": pa.int64()})
    assert (altered.schema.field("a").type, altered.schema.field("other").type) == (pa.int64(), pa.int32())
    assert [(row["a"], row["other"]) for row in _rows(altered)] == [(None, number) for number in LEFT]


@pytest.mark.parametrize("place", ["alter.before_publish", "alter.after_publish"])
def test_died_in_the_middle(base: BaseTable, place: str) -> None:
    with failpoint.armed(place, "raise"), pytest.raises(failpoint.FailpointError):
        _alter(base, widen={"a": pa.int64()}, drop=["b"], add=[pa.field("c", pa.string())])
    newest = base.latest()
    if place == "alter.before_publish":
        assert newest is base
    else:
        assert newest.schema.names == [name for name in base.schema.names if name != "b"] + ["c"]
        assert newest.schema.field("a").type == pa.int64()
    assert [row["a"] for row in _rows(newest)] == list(LEFT)
