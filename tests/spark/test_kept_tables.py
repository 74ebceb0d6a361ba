"""Tables that are kept open between micro-batches, called as Spark calls them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType
from tests.spark.sink_kit import create

import weir
from weir.errors import StorageError, TableNotFoundError
from weir.spark.data_source import WeirDataSource
from weir.spark.kept_tables import KeptTables
from weir.spark.kept_writers import KeptWriters
from weir.spark.options import TableLocation
from weir.spark.write_options import WriteOptions
from weir.write.table_writer import TableWriter


def newest(kept: KeptTables, table: weir.Table, *, fsync: bool = True) -> weir.Table:
    return kept.newest(TableLocation(table.uri), fsync=fsync)


def test_the_micro_batches_of_a_query_open_the_table_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = create(tmp_path)
    opened: list[bool] = []
    opens = TableLocation.open

    def counted(location: TableLocation, *, fsync: bool = True) -> weir.Table:
        opened.append(fsync)
        return opens(location, fsync=fsync)

    monkeypatch.setattr(TableLocation, "open", counted)
    rows = StructType([StructField("id", LongType(), False), StructField("value", StringType())])
    for _ in range(3):
        WeirDataSource({"path": table.uri, "fsync": "false"}).streamWriter(rows, False)
    assert opened == [False]


def test_a_kept_table_is_at_its_newest_version(tmp_path: Path) -> None:
    table = create(tmp_path)
    kept = KeptTables()
    first = newest(kept, table)
    assert newest(kept, table) is first
    shutil.copytree(table.uri, tmp_path / "backup")
    weir.open(table.uri).alter(add=[pa.field("more", pa.int64())])
    assert newest(kept, table).schema.names == ["id", "value", "more"]
    shutil.rmtree(table.uri)
    shutil.copytree(tmp_path / "backup", table.uri)
    assert newest(kept, table).schema.names == ["id", "value"]


def test_another_table_at_the_place_of_a_kept_one_is_opened(tmp_path: Path) -> None:
    table = create(tmp_path)
    kept = KeptTables()
    assert newest(kept, table).identity == table.identity
    weir.drop(table.uri)
    with pytest.raises(TableNotFoundError):
        newest(kept, table)
    again = create(tmp_path)
    assert newest(kept, table).identity == again.identity != table.identity
    weir.drop(table.uri)
    last = create(tmp_path)
    last.alter(add=[pa.field("more", pa.int64())])
    found = newest(kept, table)
    assert found.identity == last.identity
    assert found.schema == last.schema


def test_tables_opened_otherwise_are_kept_apart_and_the_oldest_goes_first(tmp_path: Path) -> None:
    table = create(tmp_path)
    kept = KeptTables(most=2)
    durable, fast = newest(kept, table), newest(kept, table, fsync=False)
    assert durable is not fast
    assert newest(kept, table) is durable
    newest(kept, create(tmp_path / "other"))
    assert newest(kept, table) is durable
    assert newest(kept, table, fsync=False) is not fast


def test_a_table_whose_use_failed_is_opened_anew(tmp_path: Path) -> None:
    table = create(tmp_path)
    kept = KeptTables()
    first = newest(kept, table)
    with kept.in_use(first):
        pass
    assert newest(kept, table) is first
    with pytest.raises(StorageError), kept.in_use(first):
        raise StorageError("the directory was removed")
    assert newest(kept, table) is not first


def test_a_writer_kept_for_a_former_table_does_not_serve_the_one_at_its_place(tmp_path: Path) -> None:
    table = create(tmp_path)
    options = WriteOptions.parse({"path": table.uri})
    kept = KeptWriters()
    with_it: list[TableWriter] = []

    def write(writer: TableWriter) -> None:
        with_it.append(writer)

    kept.run("query", table, options, write, flush=False)
    kept.run("query", table, options, write, flush=False)
    weir.drop(table.uri)
    again = create(tmp_path)
    table.internals.follow()  # as a kept table does
    kept.run("query", again, options, write, flush=False)
    assert with_it[0] is with_it[1] is not with_it[2]
