"""Altering the columns of a live table: what open writers, readers, tokens and merges make of it."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from lance.mem_wal import LsmScanner, ShardSnapshot

import weir
from tests.base.alter_histories import History
from weir.base import newest
from weir.base.table import BaseTable
from weir.errors import SchemaError
from weir.indexing.build_plan import BuildPlan, GenerationIndex
from weir.indexing.definition import IndexDefinition
from weir.indexing.kinds import IndexKind
from weir.table.table import Table
from weir.write import columns as writer_columns

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("a", pa.int32()), ("b", pa.int32())])


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return weir.create(tmp_path / "t", SCHEMA, primary_key="id", fsync=False)


def _rows(table: Table, **asked: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table.scan(**asked).to_table().sort_by("id").to_pylist()
    return rows


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "seed", [*range(3), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(3, 8))]
)
def test_histories(tmp_path: Path, seed: int) -> None:
    """Seeded histories of alterations between writes, deletes, flushes, merges and compactions."""
    History(str(tmp_path / "t"), seed).run(20)


def test_an_open_writer_goes_on_without_a_new_claim(table: Table) -> None:
    reader = weir.open(table.uri)
    with table.writer(flush_on_close=False) as writer:
        writer.upsert([{"id": 1, "a": 1, "b": -1}])
        epochs = writer.epochs
        table.alter(rename={"a": "b", "b": "a"}, add=[pa.field("c", pa.string())])
        writer.upsert([{"id": 2, "a": -2, "b": 2, "c": "x"}])
        # Rows of before that still fit.
        writer.upsert(pa.table({"id": [3], "a": pa.array([-3], pa.int32())}))
        table.alter(drop=["c"], widen={"a": pa.int64()})
        writer.upsert([{"id": 4, "a": -(2**40)}])
        writer.delete([1])
        assert writer.epochs == epochs
        expected = [
            {"id": 2, "b": 2, "a": -2},
            {"id": 3, "b": None, "a": -3},
            {"id": 4, "b": None, "a": -(2**40)},
        ]
        assert _rows(reader) == expected
    # As a take-over of the log shows it, and a merge.
    with table.writer() as writer:
        writer.upsert([{"id": 5}])
        writer.delete([5])
    table.maintenance.merge()
    assert _rows(reader, consistency="snapshot") == expected


def test_rows_that_no_longer_fit_are_refused_by_their_column(table: Table) -> None:
    with table.writer() as writer:
        writer.upsert([{"id": 1, "a": 1}])
        table.alter(drop=["a"], rename={"b": "c"})
        before = _rows(table)
        for name in ("a", "b"):
            with pytest.raises(SchemaError, match=f"no column '{name}'") as caught:
                writer.upsert([{"id": 2, name: 2}, {"id": 3}])
            assert caught.value.where == name
        assert _rows(table) == before
        writer.upsert([{"id": 2, "c": 2}])
    assert _rows(table) == [{"id": 1, "c": None}, {"id": 2, "c": 2}]


def test_writes_of_before_and_after_do_not_share_an_entry(table: Table) -> None:
    """Queued before the columns changed, written after: each row is what it was meant as."""
    with table.writer(max_wal_delay=0.2) as writer:
        first = writer.upsert([{"id": 1, "a": 1, "b": -1}], wait=False)
        table.alter(rename={"a": "b", "b": "a"})
        second = writer.upsert([{"id": 2, "a": -2, "b": 2}], wait=False)
        first.result()
        second.result()
        assert _rows(table) == [{"id": 1, "b": 1, "a": -1}, {"id": 2, "b": 2, "a": -2}]


def test_a_stream_of_batches_goes_on_while_columns_change(table: Table) -> None:
    def batches() -> Any:
        for number in range(3):
            yield pa.record_batch({"id": [number], "a": pa.array([number], pa.int32())})
            if number == 0:
                table.alter(add=[pa.field("c", pa.string())], widen={"a": pa.int64()})

    schema = pa.schema([("id", pa.int64()), ("a", pa.int32())])
    with table.writer() as writer:
        writer.upsert(pa.RecordBatchReader.from_batches(schema, batches()))
    assert _rows(table) == [{"id": number, "a": number, "b": None, "c": None} for number in range(3)]


def test_another_process_alters(
    table: Table, weir_python: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer finds out beside its writes, and at once where rows do not fit."""
    monkeypatch.setattr(writer_columns, "_LOOK_SECONDS", 0.0)
    program = (
        "import weir, pyarrow as pa\n"
        f"table = weir.open({table.uri!r})\n"
        "table.alter(add=[pa.field('c', pa.string())], drop=['b'])\n"
    )
    reader = weir.open(table.uri)
    with table.writer() as writer:
        writer.upsert([{"id": 1, "a": 1, "b": 1}])
        subprocess.run([*weir_python, program], check=True, timeout=60)
        writer.upsert([{"id": 2, "c": "x"}])
        assert _rows(reader) == [{"id": 1, "a": 1, "c": None}, {"id": 2, "a": None, "c": "x"}]
        for known in newest._seen.values():
            known.version = 0
        subprocess.run(
            [*weir_python, program.replace("'c'", "'d'").replace("['b']", "['c']")], check=True, timeout=60
        )
        refused = None
        deadline = time.monotonic() + 30
        while refused is None and time.monotonic() < deadline:
            try:
                writer.upsert([{"id": 3, "c": "y"}])
                time.sleep(0.01)
            except SchemaError as error:
                refused = error
        assert refused is not None
        assert "no column 'c'" in str(refused)
    assert _rows(reader)[2] == {"id": 3, "a": None, "d": None}


def test_a_killed_alter_is_before_or_after(table: Table, weir_python: list[str]) -> None:
    with table.writer() as writer:
        writer.upsert([{"id": 1, "a": 1, "b": 2}])
    table.maintenance.merge()
    with table.writer(flush_on_close=False) as writer:
        writer.upsert([{"id": 2, "a": 3, "b": 4}])
    program = (
        "import weir, pyarrow as pa\n"
        f"weir.open({table.uri!r}).alter(widen={{'a': pa.int64()}}, rename={{'b': 'c'}},"
        " add=[pa.field('d', pa.int8())])\n"
    )
    before = _rows(table)
    after = [{"id": 1, "a": 1, "c": 2, "d": None}, {"id": 2, "a": 3, "c": 4, "d": None}]
    for place, expected in (("alter.before_publish", before), ("alter.after_publish", after)):
        killed = subprocess.run(
            [
                *weir_python,
                f"import os; from weir.engine import failpoint; failpoint.arm({place!r}, 'kill')\n{program}",
            ],
            check=False,
            timeout=60,
            capture_output=True,
        )
        assert killed.returncode not in (0, 1), killed.stderr
        assert _rows(table) == expected
        assert _rows(weir.open(table.uri)) == expected


def test_tokens_are_read_with_the_columns_of_their_time(table: Table) -> None:
    with table.writer() as writer:
        writer.upsert([{"id": 1, "a": 1, "b": 2}])
        token = table.snapshot()
        table.alter(rename={"a": "b", "b": "a"}, add=[pa.field("c", pa.int8())])
        writer.upsert([{"id": 1, "a": 7, "c": 8}])
    table.maintenance.merge()
    assert _rows(table, at=token) == [{"id": 1, "a": 1, "b": 2}]
    assert table.get([1], at=token).to_pylist() == [{"id": 1, "a": 1, "b": 2}]
    assert _rows(table, at=token, columns=["id", "b"], filter="a = 1") == [{"id": 1, "b": 2}]
    with pytest.raises(SchemaError, match="no column 'c'"):
        _rows(table, at=token, columns=["id", "c"])


def test_a_reader_that_was_open_before_follows(table: Table) -> None:
    reader = weir.open(table.uri)
    with table.writer() as writer:
        writer.upsert([{"id": 1, "a": 1, "b": 2}])
        table.alter(add=[pa.field("c", pa.string())], rename={"a": "z"})
        writer.upsert([{"id": 2, "z": 5, "c": "x"}])
    assert reader.scan(["c", "z"], filter="z > 3").to_table().to_pylist() == [{"c": "x", "z": 5}]
    assert reader.get([2], ["c"]).to_pylist() == [{"c": "x"}]
    assert reader.schema.names == ["id", "z", "b", "c"]
    table.alter(drop=["c"])
    assert reader.sql("select * from t order by id", name="t").to_table().column_names == ["id", "z", "b"]
    with pytest.raises(SchemaError, match="no column 'c'"):
        _rows(reader, columns=["c"])


def test_the_library_stops_at_values_that_are_narrower(table: Table) -> None:
    """It says so, where it would show nulls if the column had another id; and goes on after a merge."""
    with table.writer() as writer:
        writer.upsert([{"id": 1, "a": 1}])
    (shard,) = (Path(table.uri) / "_mem_wal").iterdir()
    (generation,) = (one.name for one in shard.iterdir() if "_gen_" in one.name)
    table.alter(widen={"a": pa.int64()})
    dataset = lance.dataset(table.uri)
    snapshot = ShardSnapshot(shard.name).with_sstable(1, generation)
    with pytest.raises(OSError, match="`a` is stored as Int32 and the schema declares Int64"):
        LsmScanner.from_snapshots(dataset, [snapshot]).to_table()
    # Plain reads of the base table go on.
    assert dataset.to_table().num_rows == 0
    assert _rows(table) == [{"id": 1, "a": 1, "b": None}]
    table.maintenance.merge()
    dataset = lance.dataset(table.uri)
    assert LsmScanner.from_snapshots(dataset, [ShardSnapshot(shard.name)]).to_table().num_rows == 1
    with dataset.mem_wal_writer(shard.name) as writer:
        writer.put(pa.table({"id": [2], "a": [2**40], "b": pa.array([1], pa.int32())}, dataset.schema))
    assert _rows(table)[1] == {"id": 2, "a": 2**40, "b": 1}


def test_a_generation_is_not_indexed_by_another_column_of_that_name(table: Table) -> None:
    """A MemTable may be flushed with the columns of before when there is an index on one of now."""
    before = BaseTable.open(table.internals.store)
    table.alter(rename={"a": "b", "b": "a"}, add=[pa.field("c", pa.int8())])
    now = BaseTable.open(table.internals.store)

    def index(column: str) -> GenerationIndex:
        definition = IndexDefinition(f"{column}_idx", column, IndexKind.BTREE)
        return GenerationIndex(definition, field_id=now.field_ids[column])

    def planned(rows: pa.Schema) -> list[str]:
        plan = BuildPlan.of([index(name) for name in ("a", "b", "c", "id")], rows, num_rows=1_000_000)
        return [one.definition.column for one in plan.indexes]

    assert planned(now.row_schema) == ["a", "b", "c", "id"]
    assert planned(before.row_schema) == ["id"]


@pytest.mark.parametrize("make", [pa.list_, pa.large_list])
def test_fields_of_structs_in_lists(tmp_path: Path, make: Callable[[pa.DataType], pa.DataType]) -> None:
    """Of large lists Lance would read no row of the base table any more that lacks a new one."""
    kind = make(pa.struct([("x", pa.int32()), ("y", pa.int32())]))
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("l", kind)])
    table = weir.create(tmp_path / "t", schema, primary_key="id", fsync=False)
    with table.writer() as writer:
        writer.upsert([{"id": 1, "l": [{"x": 1, "y": 2}, None]}])
    table.maintenance.merge()
    table.alter(rename={"l.item.x": "y", "l.item.y": "x"})
    table.alter(drop=["l.item.x"], widen={"l.item.y": pa.int64()})
    kept: dict[str, int | None] = {"y": 1}
    added = [pa.field("l.item.x", pa.int32())]
    if make is pa.list_:
        table.alter(add=added)
        kept["x"] = None
    else:
        with pytest.raises(SchemaError, match=r"'l\.item\.x' cannot be added: .* in the large list 'l'"):
            table.alter(add=added)
    assert table.scan().to_table().to_pylist() == [{"id": 1, "l": [kept, None]}]
    with pytest.raises(SchemaError, match=r"'l\.item' would (have no field left|be a struct without fields)"):
        table.alter(drop=["l.item.y"])
    assert table.maintenance.verify().errors == ()


@pytest.mark.parametrize("depth", [1, 2])
def test_a_struct_keeps_a_field_that_its_rows_were_written_with(tmp_path: Path, depth: int) -> None:
    """Lance goes by them when it tells a struct of nulls from a null."""
    inner, path = pa.struct([("x", pa.int32()), ("y", pa.int32())]), "s"
    value: dict[str, object] = {"x": 1, "y": 2}
    if depth == 2:
        inner, path, value = pa.struct([("t", inner), ("u", pa.int32())]), "s.t", {"t": value, "u": 3}
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("s", inner)])
    table = weir.create(tmp_path / "t", schema, primary_key="id", fsync=False)
    with table.writer() as writer:
        writer.upsert([{"id": 1, "s": value}, {"id": 2, "s": None}])
    table.maintenance.merge()
    table.alter(add=[pa.field(f"{path}.z", pa.int32())])
    before = table.scan().to_table()
    with pytest.raises(SchemaError, match=rf"column '{path}' would have no field left"):
        table.alter(drop=[f"{path}.x", f"{path}.y"])
    assert table.scan().to_table() == before
    table.alter(drop=[f"{path}.x"])
    kept = {"y": 2, "z": None}
    expected = kept if depth == 1 else {"t": kept, "u": 3}
    assert table.scan(filter="id = 1").to_table().to_pylist() == [{"id": 1, "s": expected}]
    table.alter(drop=["s"])
