"""The batch source without Spark around it: what is planned on the driver is read anywhere, and later."""

from __future__ import annotations

import json
import pickle
import random
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, In, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from tests.spark.tables import SCHEMA, build, rows

import weir
from weir.engine.context import default_context
from weir.errors import InputError, OptionError, SchemaError, SnapshotExpiredError
from weir.read.scan import Scan
from weir.spark.batch_reader import BatchReader, PushdownBatchReader
from weir.spark.data_source import WeirDataSource
from weir.spark.scan_partition import ScanPartition


@pytest.fixture
def table(tmp_path: Path) -> weir.Table:
    return build(tmp_path / "t", weir.bucket("id", 3), fsync=False)


def planned(
    table: weir.Table, filters: Sequence[Filter] = (), **options: str
) -> tuple[BatchReader, list[InputPartition]]:
    source = WeirDataSource({"path": table.uri, **options})
    reader = source.reader(source.schema())
    assert isinstance(reader, BatchReader)
    if isinstance(reader, PushdownBatchReader):
        assert list(reader.pushFilters(list(filters))) == []
    return reader, list(reader.partitions())


def read(plan: tuple[BatchReader, list[InputPartition]]) -> pa.Table:
    """Read a plan as executors do: in any order, knowing nothing."""
    reader, partitions = plan
    text = pickle.dumps(reader)
    tasks = [pickle.dumps(partition) for partition in partitions]
    random.Random(len(tasks)).shuffle(tasks)
    default_context().cache.clear()
    batches = [batch for task in tasks for batch in pickle.loads(text).read(pickle.loads(task))]
    schema = to_arrow_schema(reader._schema, timezone="UTC")
    assert all(batch.schema.equals(schema) for batch in batches)
    return pa.Table.from_batches(batches, schema).sort_by("id")


def scanned(scan: Scan) -> list[dict[str, object]]:
    return list(scan.to_table().sort_by("id").to_pylist())


@pytest.mark.parametrize("rows_per_partition", [1, 300, 1_000_000])
def test_every_row_is_in_one_partition(table: weir.Table, rows_per_partition: int) -> None:
    plan = planned(table, rowsPerPartition=str(rows_per_partition))
    assert read(plan).to_pylist() == scanned(table.scan())
    assert len(plan[1]) == {1: 12, 300: 12, 1_000_000: 2}[rows_per_partition]


def test_columns_filter_and_pushed_filters(table: weir.Table) -> None:
    filters = [EqualTo(("carrier",), "two 3"), GreaterThan(("id",), 100)]
    plan = planned(
        table, filters, columns="`id`, carrier ,delay", filter="delay > 0 -- and so on", pushFilters="true"
    )
    expected = scanned(
        table.scan(["id", "carrier", "delay"], filter="delay > 0 AND carrier = 'two 3' AND id > 100")
    )
    assert expected
    assert read(plan).to_pylist() == expected


def test_keys_that_pushed_filters_name_are_looked_up(table: weir.Table) -> None:
    plan = planned(
        table,
        [In(("id",), (7, 8, 10_000)), GreaterThan(("id",), 7)],
        rowsPerPartition="1",
        pushFilters="true",
    )
    labels = [task.label for one in plan[1] if isinstance(one, ScanPartition) for task in one.tasks]
    assert labels == ["look-up of 2 keys"]
    assert read(plan).to_pylist() == scanned(table.scan(filter="id = 8"))
    assert read(planned(table, [EqualTo(("id",), 10_000)], pushFilters="true")).num_rows == 0


def test_an_empty_table_has_no_partitions(tmp_path: Path) -> None:
    empty = weir.create(tmp_path / "empty", SCHEMA, primary_key="id", fsync=False)
    reader, partitions = planned(empty)
    assert partitions == []
    # Spark makes one of its own then.
    assert list(reader.read(InputPartition(None))) == []


def test_what_is_planned_is_read_whatever_happens_meanwhile(table: weir.Table) -> None:
    expected = scanned(table.scan())
    token = table.snapshot()
    plan = planned(table, rowsPerPartition="200")
    with table.writer(takeover=True) as writer:
        writer.upsert(rows(range(900), "later"))
        writer.delete(list(range(0, 900, 3)))
    table.maintenance.run()
    assert read(plan).to_pylist() == expected
    assert read(planned(table, at=str(token))).to_pylist() == expected
    assert read(planned(table)).to_pylist() == scanned(table.scan()) != expected


def test_a_state_is_named_by_a_tag_or_an_instant(table: weir.Table) -> None:
    expected = scanned(table.scan())
    table.tags.create("before")
    with table.writer(takeover=True) as writer:
        writer.delete(list(range(0, 900, 3)))
    assert read(planned(table, at="before")).to_pylist() == expected
    later = read(planned(table, at=datetime.now(UTC).isoformat())).to_pylist()
    assert later == scanned(table.scan()) != expected


def test_collection_passes_a_plan_unless_it_is_retained(table: weir.Table) -> None:
    expected = scanned(table.scan())
    loose, kept = planned(table), planned(table, retainSeconds="600")
    table.maintenance.recover()
    with table.writer(takeover=True) as writer:
        writer.upsert(rows(range(900), "later"))
    table.maintenance.merge()
    for _ in range(2):
        table.maintenance.collect_garbage(horizon=timedelta(0), version_retention=timedelta(0))
    assert read(kept).to_pylist() == expected
    default_context().cache.clear()
    table.release(kept_token(table))
    for _ in range(2):
        table.maintenance.collect_garbage(horizon=timedelta(0), version_retention=timedelta(0))
    for plan in (loose, kept):
        with pytest.raises(SnapshotExpiredError, match="retainSeconds"):
            read(plan)


def kept_token(table: weir.Table) -> str:
    (pin,) = (Path(table.uri.removeprefix("file://")) / "_weir" / "snapshots").glob("*.json")
    return str(json.loads(pin.read_text())["token"])


def test_a_tail_is_read_by_tasks_of_a_size_that_spark_takes(tmp_path: Path) -> None:
    table = weir.create(tmp_path / "t", SCHEMA, primary_key="id", fsync=False)
    with table.writer(flush_on_close=False) as writer:
        for start in range(0, 800_000, 100_000):
            writer.upsert(rows(range(start, start + 100_000), "x"))
        plan = planned(table, columns="id,carrier,vector")
        sizes = [len(pickle.dumps(one)) for one in plan[1]]
        assert len(sizes) > 1
        assert max(sizes) < 10 * 1024 * 1024
        assert read(plan).num_rows == 800_000


def test_a_schema_may_be_given_and_has_to_fit(table: weir.Table) -> None:
    source = WeirDataSource({"path": table.uri})
    schema = source.schema()
    part = type(schema)([schema["carrier"], schema["id"]])
    reader = source.reader(part)
    assert isinstance(reader, BatchReader)
    found = read((reader, list(reader.partitions())))
    assert found.column_names == ["carrier", "id"]
    assert found.num_rows == table.scan().count()
    for wrong, message in [
        (
            type(schema)().add("id", "string"),
            "column 'id' is bigint not null in the table, and string was expected",
        ),
        (type(schema)().add("carrier", "string", nullable=False), "string not null was expected"),
        (type(schema)().add("other", "string"), "no column 'other'"),
    ]:
        with pytest.raises(SchemaError, match=message):
            source.reader(wrong).partitions()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"colums": "id"}, OptionError, "Did you mean 'columns'"),
        ({"columns": "id,,delay"}, OptionError, "columns are names with commas"),
        ({"columns": "id,"}, OptionError, "no name follows the last comma of 'id,'"),
        ({"columns": "`id` , "}, OptionError, "no name follows the last comma"),
        ({"columns": ","}, OptionError, "columns are names with commas"),
        ({"columns": ""}, OptionError, "columns are names with commas"),
        ({"columns": "id, nothing"}, SchemaError, "no column 'nothing'"),
        ({"columns": "id, id"}, SchemaError, "requested twice"),
        ({"filter": "nothing > 1"}, weir.errors.FilterError, "nothing"),
        ({"filter": ""}, weir.errors.FilterError, "a filter is SQL text"),
        ({"consistency": "weak"}, OptionError, "unknown consistency"),
        ({"at": "w5.x"}, InputError, "not the text of a snapshot token"),
        ({"at": "nobody"}, InputError, "the table has no tag of that name"),
        ({"at": "2026-01-31 12:00"}, InputError, "no time zone"),
        ({"at": "TOKEN", "consistency": "strong"}, OptionError, "contradict"),
        ({"at": "TOKEN", "retainSeconds": "5"}, OptionError, "contradict"),
        ({"consistency": "snapshot", "retainSeconds": "5"}, OptionError, "contradict"),
        ({"retainSeconds": "-1"}, OptionError, "whole number"),
        ({"retainSeconds": "9" * 18}, OptionError, "at most 86,399,999,999,999"),
        ({"rowsPerPartition": "0"}, OptionError, "whole number"),
        ({"startingFrom": "latest"}, OptionError, "a batch read has no option 'startingFrom'"),
        ({"at": "OTHER"}, InputError, "the token belongs to table"),
        ({"path": "/nowhere"}, weir.errors.TableNotFoundError, "nowhere"),
    ],
    ids=str,
)
def test_bad_options(
    table: weir.Table, tmp_path: Path, options: dict[str, str], error: type[Exception], message: str
) -> None:
    other = weir.create(tmp_path / "other", SCHEMA, primary_key="id", fsync=False)
    tokens = {"TOKEN": str(table.snapshot()), "OTHER": str(other.snapshot())}
    options = {name: tokens.get(value, value) for name, value in options.items()}
    with pytest.raises(error, match=message):
        planned(table, (), **options)


def test_a_column_that_spark_has_no_type_for_is_left_out_by_name(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("much", pa.decimal256(60, 2)), ("a, b", pa.string())])
    table = weir.create(tmp_path / "t", schema, primary_key="id", fsync=False)
    with table.writer() as writer:
        writer.upsert([{"id": 1, "much": None, "a, b": "x"}])
    with pytest.raises(SchemaError, match=r"'much'.*option columns"):
        planned(table)
    assert read(planned(table, columns="id, `a, b`")).to_pylist() == [{"id": 1, "a, b": "x"}]
