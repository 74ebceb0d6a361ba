"""Bad input changes nothing, and the error says what, where and what to do (invariant I10)."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import weir
from weir.errors import (
    CorruptionError,
    FilterError,
    InputError,
    KeyValueError,
    OptionError,
    SchemaError,
    ShardingError,
    TableExistsError,
    TableNotFoundError,
    UriError,
    WeirError,
)
from weir.format import layout

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("name", pa.string()),
        pa.field("vector", pa.list_(pa.float32(), 2)),
    ]
)
GOOD = {"id": 1, "name": "a", "vector": [1.0, 2.0]}


@pytest.fixture
def table(tmp_path: Path) -> weir.Table:
    return weir.create(tmp_path / "t", SCHEMA, primary_key="id", shard_by=weir.bucket("id", 2), fsync=False)


def files(table: weir.Table) -> set[str]:
    return {str(path) for path in Path(table.uri).rglob("*") if path.is_file()}


BAD_ROWS: dict[str, tuple[Any, type[WeirError], str]] = {
    "wrong type": ([{**GOOD, "name": 7}], SchemaError, "'name'"),
    "wrong type in an Arrow column": (
        pa.table({"id": [1], "name": [7]}),
        SchemaError,
        "'name' is of type int64 where the table has string",
    ),
    "text where a number belongs": (pa.table({"id": ["1"]}), SchemaError, "'id'"),
    "number out of range": ([{**GOOD, "id": 2**63}], SchemaError, "'id'"),
    "missing key": ([{"name": "a"}], KeyValueError, "'id' is missing"),
    "null key": ([GOOD, {**GOOD, "id": None}], KeyValueError, "'id' is null in row 1"),
    "unknown column": ([{**GOOD, "colour": "red"}], SchemaError, "no column 'colour'.*id, name, vector"),
    "duplicate column": (
        pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["id", "id"]),
        SchemaError,
        "'id' occurs twice",
    ),
    "vector of another length": ([{**GOOD, "vector": [1.0]}], SchemaError, "'vector'"),
    "columns of different lengths": (
        {"id": [1, 2], "name": ["a"]},
        SchemaError,
        "cannot be converted to a table",
    ),
    "not rows at all": (42, InputError, "int"),
    "text": ("rows", InputError, "str"),
    "a list of numbers": ([1, 2], InputError, "list"),
}


@pytest.mark.covering
@pytest.mark.parametrize("case", BAD_ROWS)
@pytest.mark.parametrize("wait", [True, False])
def test_bad_rows(table: weir.Table, case: str, wait: bool) -> None:
    data, kind, message = BAD_ROWS[case]
    before = files(table)
    with table.writer(flush_on_close=False) as writer:
        with pytest.raises(kind, match=message):
            writer.upsert(data, wait=wait)
        assert files(table) == before
        assert writer.epochs == {}
        writer.upsert([GOOD])
    assert table.scan().count() == 1


def test_a_bad_row_among_good_ones_writes_none(table: weir.Table) -> None:
    with table.writer() as writer, pytest.raises(KeyValueError):
        writer.upsert([*({**GOOD, "id": n} for n in range(100)), {**GOOD, "id": None}])
    assert table.scan().count() == 0


BAD_KEYS: dict[str, tuple[Any, type[WeirError], str]] = {
    "null": ([1, None], KeyValueError, "null in row 1"),
    "text": ("1", InputError, "list"),
    "one value": (1, InputError, r"pass a list of one: \[1\]"),
    "wrong type": (["one"], SchemaError, "'id'"),
    "key column missing": (pa.table({"name": ["a"]}), KeyValueError, "'id' is missing"),
}


@pytest.mark.parametrize("case", BAD_KEYS)
def test_bad_keys(table: weir.Table, case: str) -> None:
    keys, kind, message = BAD_KEYS[case]
    before = files(table)
    with table.writer() as writer, pytest.raises(kind, match=message):
        writer.delete(keys)
    assert files(table) == before
    with pytest.raises(kind, match=message):
        table.get(keys)


def test_composite_keys_must_be_whole(tmp_path: Path) -> None:
    schema = pa.schema(
        [pa.field("a", pa.string(), nullable=False), pa.field("b", pa.int32(), nullable=False)]
    )
    table = weir.create(tmp_path / "t", schema, primary_key=["a", "b"], fsync=False)
    for keys in ([("x",)], ["x"], pa.array(["x"])):
        with pytest.raises(KeyValueError, match="a, b"):
            table.get(keys)
    with pytest.raises(KeyValueError, match="'b' is missing"):
        table.get([{"a": "x"}])
    with table.writer() as writer:
        writer.upsert([{"a": "x", "b": 1}])
        assert table.get([("x", 1), ("x", 2)]).num_rows == 1


def test_delete_needs_nullable_columns(tmp_path: Path) -> None:
    schema = pa.schema(
        [pa.field("id", pa.int64(), nullable=False), pa.field("n", pa.int64(), nullable=False)]
    )
    table = weir.create(tmp_path / "t", schema, primary_key="id", fsync=False)
    before = files(table)
    with table.writer() as writer:
        with pytest.raises(SchemaError, match=r"cannot be deleted: n .*nullable"):
            writer.delete([1])
        with pytest.raises(SchemaError, match="'n' is missing"):
            writer.upsert([{"id": 1}])
        with pytest.raises(SchemaError, match="'n' cannot be null, but is null in row 1"):
            writer.upsert([{"id": 1, "n": 1}, {"id": 2, "n": None}])
    assert files(table) == before


@pytest.mark.parametrize(
    "text",
    [
        "id >",
        "nope = 1",
        "id = 'x' AND",
        "",
        "id + 1",
        "SELECT 1",
        "id = 1; DROP TABLE t",
        "id = 1) OR (true",
        "id = 1) nonsense",
        7,
    ],
)
def test_bad_filters(table: weir.Table, text: Any) -> None:
    with pytest.raises(FilterError):
        table.scan(filter=text)


@pytest.mark.parametrize(
    "text",
    ["(id = 1)", "name = ')' OR id = 1", "id = 1 -- )", "id = 1 /* ) */", "name = 'it''s )' OR id = 1"],
)
def test_parentheses_that_close_nothing_are_no_matter(table: weir.Table, text: str) -> None:
    with table.writer() as writer:
        writer.upsert([GOOD])
    assert table.scan(filter=text).to_table().column("id").to_pylist() == [1]


def test_filter_error_has_the_filter_as_it_was_given(table: weir.Table) -> None:
    with pytest.raises(FilterError, match="the filter 'id = 1; DROP TABLE t' cannot be used"):
        table.scan(filter="id = 1; DROP TABLE t")


def test_filter_error_names_the_columns(table: weir.Table) -> None:
    with pytest.raises(FilterError, match="id, name, vector"):
        table.scan(filter="nope = 1")


@pytest.mark.parametrize(
    ("scan", "kind"),
    [
        ({"columns": ["nope"]}, SchemaError),
        ({"columns": ["id", "id"]}, SchemaError),
        ({"columns": "id"}, SchemaError),
        ({"limit": -1}, OptionError),
        ({"limit": True}, OptionError),
        ({"consistency": "eventual"}, OptionError),
        ({"consistency": "bounded(-1)"}, OptionError),
        ({"consistency": 3}, OptionError),
    ],
)
def test_bad_scan_options(table: weir.Table, scan: dict[str, Any], kind: type[WeirError]) -> None:
    with pytest.raises(kind):
        table.scan(**scan)


def test_a_limit_may_be_a_number_of_numpy(table: weir.Table) -> None:
    with table.writer() as writer:
        writer.upsert([GOOD, {**GOOD, "id": 2}])
        one: Any = np.int64(1)
        assert table.scan(limit=one).to_table().num_rows == 1
    refused: list[Any] = [np.int64(-1), np.float64(1.0), np.bool_(True)]
    for limit in refused:
        with pytest.raises(OptionError, match="whole number"):
            table.scan(limit=limit)


@pytest.mark.parametrize(
    "options",
    [
        {"max_memtable_row": 1},
        {"max_memtable_rows": 0},
        {"max_memtable_bytes": 1.5},
        {"max_wal_delay": -1},
        {"max_wal_delay": float("nan")},
        {"backpressure_timeout": "1s"},
        {"flush_on_close": "no"},
    ],
)
def test_bad_writer_options(table: weir.Table, options: dict[str, Any]) -> None:
    with pytest.raises(OptionError):
        table.writer(**options)


NULLABLE_KEY = pa.schema([("id", pa.int64()), ("name", pa.string())])
BAD_TABLES: dict[str, tuple[dict[str, Any], type[WeirError]]] = {
    "no such key column": ({"primary_key": "nope"}, SchemaError),
    "key column twice": ({"primary_key": ["id", "id"]}, SchemaError),
    "no key": ({"primary_key": []}, SchemaError),
    "float key": ({"schema": pa.schema([pa.field("id", pa.float64(), nullable=False)])}, SchemaError),
    "reserved column": ({"schema": SCHEMA.append(pa.field("_tombstone", pa.bool_()))}, SchemaError),
    "duplicate column": ({"schema": SCHEMA.append(pa.field("name", pa.string()))}, SchemaError),
    "shard by a missing column": ({"shard_by": weir.bucket("nope", 2)}, SchemaError),
    "shard by a column outside the key": ({"shard_by": weir.bucket("name", 2)}, ShardingError),
    "year of a number": ({"shard_by": weir.year("id")}, ShardingError),
    "expression that does not parse": (
        {"shard_by": weir.expression("col0 +", ["id"], result_type="int64")},
        ShardingError,
    ),
    "expression that is not deterministic": (
        {"shard_by": weir.expression("random()", ["id"], result_type="float64")},
        ShardingError,
    ),
}


@pytest.mark.parametrize("case", BAD_TABLES)
def test_bad_tables(tmp_path: Path, case: str) -> None:
    options, kind = BAD_TABLES[case]
    with pytest.raises(kind):
        weir.create(tmp_path / "t", **{"schema": SCHEMA, "primary_key": "id", "fsync": False, **options})
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    # The same place is still free for a good table.
    weir.create(tmp_path / "t", SCHEMA, primary_key="id", fsync=False)


@pytest.mark.parametrize("make", [lambda: weir.bucket("id", 0), lambda: weir.truncate("id", 0)])
def test_bad_transform_parameters(make: Callable[[], object]) -> None:
    with pytest.raises(ShardingError):
        make()


def test_no_table_and_a_table_already(tmp_path: Path, table: weir.Table) -> None:
    with pytest.raises(TableNotFoundError, match="nothing"):
        weir.open(tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()
    before = files(table)
    with pytest.raises(TableExistsError):
        weir.create(table.uri, SCHEMA, primary_key="id")
    assert files(table) == before
    with pytest.raises(UriError):
        weir.open("ftp://example/t")
    with pytest.raises(OptionError):
        weir.open("s3://bucket/t", storage_options={"aws_acess_key_id": "x"})


def test_an_error_over_a_long_text_is_short(table: weir.Table) -> None:
    with pytest.raises(FilterError) as raised:
        table.scan(filter=f"{'a' * 200_000} = 1").to_table()
    error = raised.value
    assert len(str(error)) < 9_000
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), str(error.again())) == (FilterError, str(error), str(error))
    assert str(WeirError("a" * 4_000, where="b" * 4_000)) == f"{'a' * 4_000} [{'b' * 4_000}]"


def test_corrupt_wal_entry_names_path_and_position(table: weir.Table) -> None:
    with table.writer(flush_on_close=False) as writer:
        receipt = writer.upsert([GOOD])
    ((shard, position),) = receipt.positions.items()
    path = Path(table.uri) / layout.wal_path(shard, position)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(bytes(data))
    weir.engine.context.default_context().cache.clear()
    fresh = weir.open(table.uri, fsync=False)
    for read in (lambda: fresh.scan().to_table(), lambda: fresh.get([1]), lambda: fresh.status()):
        with pytest.raises(CorruptionError, match=rf"{path.name}.*position {position}"):
            read()
    with fresh.writer() as writer, pytest.raises(CorruptionError):
        writer.upsert([GOOD])


def test_corrupt_manifest_names_its_path(table: weir.Table) -> None:
    with table.writer() as writer:
        writer.upsert([GOOD])
        (shard,) = writer.epochs
    directory = Path(table.uri) / layout.manifest_directory(shard)
    newest = max(directory.glob("*.binpb"), key=lambda path: layout.parse_manifest_name(path.name))
    newest.write_bytes(newest.read_bytes()[:-3] + b"\xff\xff\xff")
    fresh = weir.open(table.uri, fsync=False)
    with pytest.raises(CorruptionError, match=newest.name):
        fresh.scan().to_table()


@pytest.mark.parametrize("merged", [True, False])
def test_filter_that_fails_on_a_row(table: weir.Table, merged: bool) -> None:
    with table.writer(flush_on_close=merged) as writer:
        writer.upsert([GOOD, {**GOOD, "id": 0}])
    if merged:
        table.maintenance.merge()
    with pytest.raises(FilterError, match=r"(?i)divide by zero"):
        table.scan(filter="1 / id = 1").to_table()


@pytest.mark.parametrize("merged", [True, False])
@pytest.mark.parametrize("text", ["count(*) > 1", "row_number() OVER () = 1", "sum(id) > 1 OR id = 1"])
def test_a_filter_over_all_rows_is_no_damage(table: weir.Table, text: str, merged: bool) -> None:
    with table.writer(flush_on_close=merged) as writer:
        writer.upsert([GOOD, {**GOOD, "id": 2}])
    if merged:
        table.maintenance.merge()
    with pytest.raises(FilterError, match="no value for a single row"):
        table.scan(filter=text).to_table()


@pytest.mark.parametrize("part", ["base", "generation"])
def test_damaged_data_file_is_corruption(table: weir.Table, part: str) -> None:
    with table.writer() as writer:
        writer.upsert([{**GOOD, "id": n} for n in range(100)])
    if part == "base":
        table.maintenance.merge()
    pattern = "data/*.lance" if part == "base" else "_mem_wal/*/*_gen_*/data/*.lance"
    for path in Path(table.uri).glob(pattern):
        path.write_bytes(b"\x00" * path.stat().st_size)
    weir.engine.context.default_context().cache.clear()
    fresh = weir.open(table.uri, fsync=False)
    with pytest.raises(CorruptionError, match=table.uri):
        fresh.scan().to_table()
    with pytest.raises(CorruptionError, match=table.uri):
        fresh.get([1])


def test_rows_and_keys_of_every_kind(table: weir.Table) -> None:
    pd, pl = pytest.importorskip("pandas"), pytest.importorskip("polars")
    batch = pa.RecordBatch.from_pylist([{**GOOD, "id": 5}], SCHEMA)
    with table.writer() as writer:
        writer.upsert(pa.table({"id": [1], "name": ["a"]}))
        writer.upsert(pd.DataFrame({"id": [2], "name": ["b"]}))
        writer.upsert(pl.DataFrame({"id": [3], "name": ["c"]}))
        writer.upsert({"id": [4], "name": ["d"]})
        writer.upsert({"id": pa.array([4]), "name": pd.Series(["d"])})
        writer.upsert(batch)
        writer.upsert(pa.RecordBatchReader.from_batches(SCHEMA, [batch.slice(0, 0), batch]))
        writer.upsert([pa.RecordBatch.from_pylist([{**GOOD, "id": 6}], SCHEMA)])
        writer.upsert([])
        for keys in (
            [1, 2],
            pa.array([1, 2], pa.int32()),
            pa.chunked_array([[1], [2]]),
            pd.Series([1, 2]),
            pl.Series([1, 2]),
            pd.Series([1, 2]).to_numpy(),
            pa.table({"id": [1, 2], "other": ["x", "y"]}),
            [{"id": 1, "name": "ignored"}, {"id": 2}],
            {"id": [1, 2]},
            [(1,), (2,)],
        ):
            assert table.get(keys).column("name").to_pylist() == ["a", "b"]
        writer.delete([{"id": 6, "name": "ignored"}])
        writer.delete([])
    assert sorted(table.scan(["id"]).to_table().column("id").to_pylist()) == [1, 2, 3, 4, 5]


def test_columns_of_numpy(table: weir.Table) -> None:
    vectors = np.arange(6, dtype=np.float32).reshape(3, 2)
    with table.writer() as writer:
        writer.upsert({"id": np.arange(3, dtype=np.int32), "name": np.array(list("abc")), "vector": vectors})
        assert table.scan().to_table().sort_by("id").to_pylist() == [
            {"id": number, "name": "abc"[number], "vector": vectors[number].tolist()} for number in range(3)
        ]
        with pytest.raises(SchemaError, match="'vector'"):
            writer.upsert({"id": np.arange(3), "vector": np.zeros((3, 3), np.float32)})
        with pytest.raises(SchemaError, match="'id'"):
            writer.upsert({"id": np.array([0.5, 1.5])})
        with pytest.raises(SchemaError, match="cannot be converted to a table"):
            writer.upsert({"id": np.arange(3), "name": np.array(["a"])})
        with pytest.raises(InputError, match="list of one dict"):
            writer.upsert({"id": np.int64(1)})
        writer.delete({"id": np.arange(2)})
    assert table.get(np.arange(3))["id"].to_pylist() == [2]


def test_shard_column_outside_the_key(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("at", pa.date32()), ("n", pa.int64())])
    table = weir.create(
        tmp_path / "t", schema, primary_key="id", shard_by=weir.year("at", immutable=True), fsync=False
    )
    rows = [{"id": n, "at": f"20{10 + n}-01-01"} for n in range(3)]
    typed = pa.table({"id": [0, 1, 2], "at": pa.array([row["at"] for row in rows]).cast(pa.date32())})
    with table.writer() as writer:
        writer.upsert(typed)
        with pytest.raises(KeyValueError, match="'at' decides the shard"):
            writer.delete([1])
        writer.delete(typed.slice(1, 1))
        writer.delete([{"id": 2, "at": typed.column("at")[2].as_py()}])
        assert table.get([0, 1, 2]).column("id").to_pylist() == [0]
    assert table.scan().count() == 1
    assert table.status().library_note


@pytest.mark.parametrize(
    "row",
    [
        {"id": 2.9},
        {"id": 1, "s": "\ud800"},
        {"id": 1, "st": {"a": 1, "typo": 2}},
        {"id": 1, "st": {}},
        {"id": 1, "small": 1e300},
        {"id": 1, "ts": datetime(2024, 1, 1, 0, 0, 0, 999_999)},
        {"id": 1, "numbers": [1.5]},
    ],
    ids=str,
)
def test_values_that_would_be_cut_are_refused(tmp_path: Path, row: dict[str, Any]) -> None:
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            ("s", pa.string()),
            ("st", pa.struct([pa.field("a", pa.int32(), nullable=False)])),
            ("small", pa.float32()),
            ("ts", pa.timestamp("s")),
            ("numbers", pa.list_(pa.int32())),
        ]
    )
    table = weir.create(tmp_path / "t", schema, primary_key="id", fsync=False)
    with table.writer() as writer:
        with pytest.raises(SchemaError):
            writer.upsert([row])
        writer.upsert([{"id": 1, "st": {"a": 1}, "small": 1.5, "ts": datetime(2024, 1, 1), "numbers": [1]}])
        with pytest.raises(SchemaError):
            writer.delete([1.9])
        with pytest.raises(InputError):
            writer.delete(bytearray(b"\x01"))
    assert table.scan(limit=2**70).to_table().num_rows == 1


def test_text_that_is_not_text_is_refused(table: weir.Table) -> None:
    offsets, data = pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"\xff\xfe")
    broken = pa.Array.from_buffers(pa.string(), 1, [None, offsets, data])
    with table.writer() as writer, pytest.raises(SchemaError, match="'name' holds invalid values"):
        writer.upsert(pa.table({"id": [1], "name": broken}))
    assert table.scan().count() == 0


def test_the_least_integer_is_a_key_like_any_other(table: weir.Table) -> None:
    least = -(2**63)
    with table.writer() as writer:
        writer.upsert([{**GOOD, "id": least}, {**GOOD, "id": 5}])
    assert table.scan().count() == 2
    table.maintenance.merge()
    assert table.get([5, least]).column("id").to_pylist() == [5, least]


@pytest.mark.parametrize(
    "field",
    [
        pa.field("d", pa.dictionary(pa.int8(), pa.string())),
        pa.field("v", pa.list_(pa.struct([("x", pa.int32())]), 2)),
        pa.field("s", pa.struct([("x", pa.int32()), ("x", pa.int32())])),
        pa.field("__action", pa.int32()),
    ],
    ids=str,
)
def test_columns_that_could_not_be_read_back(tmp_path: Path, field: pa.Field) -> None:
    with pytest.raises(SchemaError):
        weir.create(tmp_path / "t", pa.schema([("id", pa.int64()), field]), primary_key="id")
