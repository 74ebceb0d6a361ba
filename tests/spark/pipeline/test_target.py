from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest

import weir
from weir.errors import OptionError, SchemaError, ShardingError, TableNotFoundError
from weir.schema.text import parse_schema
from weir.spark.pipeline import FormatSource, Pipeline, TargetTable
from weir.spark.pipeline.target import find_table, open_or_create

SCHEMA = parse_schema("id: int64!, name: string")


def target(path: Path, schema: str = "id: int64!, name: string", buckets: int = 4) -> TargetTable:
    return TargetTable(
        str(path), {}, parse_schema(schema), ("id",), (weir.bucket("id", buckets),), fsync=False
    )


def test_a_table_is_created_once(tmp_path: Path) -> None:
    described = target(tmp_path / "t")
    assert find_table(described) is None
    assert not (tmp_path / "t").exists()
    table = open_or_create(described)
    assert (table.schema.names, table.primary_key, table.sharded_by) == (
        ["id", "name"],
        ("id",),
        "bucket(id, 4)",
    )
    with table.writer() as writer:
        writer.upsert([{"id": 1, "name": "a"}])
    assert open_or_create(described).scan().count() == 1
    assert open_or_create(TargetTable(str(tmp_path / "t"))).scan().count() == 1


def test_a_table_that_nobody_describes_is_not_created(tmp_path: Path) -> None:
    with pytest.raises(TableNotFoundError, match="give the pipeline a schema and a primary key"):
        open_or_create(TargetTable(str(tmp_path / "t")))
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        ("id: int64!, name: string, more: string", "the table has no column 'more'"),
        ("id: int64!", "the pipeline has no column 'name'"),
        ("id: int64!, name: int32", "column 'name' of the table is string, and of the pipeline int32"),
    ],
)
def test_other_columns_are_refused(tmp_path: Path, schema: str, says: str) -> None:
    open_or_create(target(tmp_path / "t"))
    with pytest.raises(SchemaError, match=says):
        open_or_create(target(tmp_path / "t", schema))


def test_another_key_and_other_shards_are_refused(tmp_path: Path) -> None:
    open_or_create(target(tmp_path / "t"))
    with pytest.raises(
        ShardingError, match=r"sharded by bucket\(id, 4\), and the pipeline by bucket\(id, 8\)"
    ):
        open_or_create(target(tmp_path / "t", buckets=8))
    with pytest.raises(SchemaError, match="the primary key of the table is id, and of the pipeline name"):
        open_or_create(TargetTable(str(tmp_path / "t"), {}, SCHEMA, ("name",)))


def test_a_merge_engine_is_the_one_that_is_asked_for(tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    engine = weir.MergeEngine.aggregation(name="max")
    described = TargetTable(path, {}, SCHEMA, ("id",), merge_engine=engine)
    assert open_or_create(described).merge_engine == engine
    assert open_or_create(TargetTable(path)).merge_engine == engine
    with pytest.raises(OptionError, match=r"is aggregation \(name: max\), and of the pipeline first_row"):
        open_or_create(TargetTable(path, {}, SCHEMA, ("id",), merge_engine="first_row"))
    with pytest.raises(OptionError, match="and of the pipeline the last row"):
        open_or_create(TargetTable(path, {}, SCHEMA, ("id",), merge_engine="last_row"))
    with pytest.raises(OptionError, match="there is no merge engine 'aggregate'"):
        open_or_create(TargetTable(str(tmp_path / "u"), {}, SCHEMA, ("id",), merge_engine="aggregate"))
    with pytest.raises(OptionError, match="no schema"):
        TargetTable(path, merge_engine=engine)


def test_a_dataset_that_is_no_table_is_left_alone(tmp_path: Path) -> None:
    lance.write_dataset(pa.table({"id": [1], "name": ["a"]}), str(tmp_path / "t"))
    with pytest.raises(TableNotFoundError):
        open_or_create(target(tmp_path / "t"))
    assert lance.dataset(str(tmp_path / "t")).count_rows() == 1


def test_a_check_without_spark_looks_at_the_table_and_writes_nothing(tmp_path: Path) -> None:
    described = target(tmp_path / "t")
    pipeline = Pipeline(source=FormatSource("rate"), table=described, checkpoint="c")
    assert not pipeline.check().exists
    assert list(tmp_path.iterdir()) == []
    open_or_create(described)
    found = pipeline.check()
    assert (found.exists, found.uri, found.columns) == (True, str(tmp_path / "t"), {})
