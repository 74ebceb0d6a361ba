"""A field id that Lance gives out twice: what is unmerged of a dropped column is nothing of the next one.

Lance gives a column that is added the id of a dropped one, if nothing in the newest version has that id any
more. Each case here goes on from there with rows in the log, in a MemTable, in a generation.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import lance
import pyarrow as pa
import pytest

import weir
from tests.conformance import library
from tests.storage.s3 import S3Endpoint, s3_endpoint
from weir.base.table import BaseTable
from weir.engine.context import default_context
from weir.errors import SchemaError
from weir.storage.counting import CountingStore
from weir.storage.local import LocalStore

__all__ = ["s3_endpoint"]

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64())])
X = pa.field("x", pa.int64())
Y = pa.field("y", pa.int64())
ROW = {"id": 1, "v": 10, "x": 77}
_TICK_SECONDS = 0.02  # of the clock by which a file system says when a file was stored


def make(place: Path) -> weir.Table:
    weir.create(place, SCHEMA, primary_key="id", fsync=False)
    dataset(place).add_columns(X)
    return opened(place)


def opened(place: Path) -> weir.Table:
    return weir.open(place, fsync=False)


def dataset(place: Path) -> lance.LanceDataset:
    return lance.dataset(str(place))


def ids(place: Path) -> dict[str, int]:
    return {field.name(): field.id() for field in dataset(place).lance_schema.fields()}


def parts(place: Path) -> list[int]:
    struct = dataset(place).lance_schema.field("s")
    assert struct is not None
    return sorted(part.id() for part in struct.children())


def reuse(place: Path, field: pa.Field = Y) -> None:
    """Have plain Lance drop the newest column, and add one that gets its id."""
    before = ids(place)
    dataset(place).drop_columns(["x"])
    dataset(place).add_columns(field)
    assert ids(place)[field.name] == before["x"], "the case is none any more: Lance gives ids out once"


def rows(table: weir.Table) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = table.scan().to_table().sort_by("id").to_pylist()
    return found


def write_to_log(place: Path) -> None:
    table = opened(place)
    with table.writer() as writer:
        writer.upsert([ROW])


def write_generation(place: Path) -> None:
    table = opened(place)
    with table.writer() as writer:
        writer.upsert([ROW])
        writer.flush()


def write_with_library(place: Path) -> None:
    # The shard is Weir's; what the library writes to it has no birth but the one the table has.
    with opened(place).writer() as writer:
        writer.upsert([{**ROW, "id": 0, "x": None}])
    (shard,) = library.shards_of(place)
    theirs = library.open_writer(place, shard)
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("v", pa.int64()), ("x", pa.int64())])
    theirs.put(pa.Table.from_pylist([ROW], schema))
    library.close_quietly(theirs)


@pytest.mark.covering
@pytest.mark.parametrize("write", [write_to_log, write_generation, write_with_library])
@pytest.mark.parametrize("again", ["y", "x"])
def test_nothing_of_the_dropped_column_shows(
    tmp_path: Path, write: Callable[[Path], None], again: str
) -> None:
    place = tmp_path / "t"
    make(place)
    write(place)
    table = opened(place)
    assert [row["x"] for row in rows(table) if row["id"] == 1] == [77]
    reuse(place, pa.field(again, pa.int64()))
    shown = {"id": 1, "v": 10, again: None}
    for reader in (table, opened(place)):
        assert shown in rows(reader)
        assert reader.get([{"id": 1}]).to_pylist() == [shown]
        assert reader.scan(filter=f"{again} = 77").count() == 0
        assert reader.scan(filter=f"{again} IS NULL").to_table().num_rows == len(rows(reader))
        assert reader.sql(f"SELECT max({again}) AS m FROM t").to_table().to_pylist() == [{"m": None}]
    feed = [row for batch in table.changes() for row in batch.rows.to_pylist() if row["id"] == 1]
    assert [row[again] for row in feed] == [None]
    table.maintenance.recover()
    assert shown in rows(opened(place))
    table.maintenance.merge()
    assert shown in rows(opened(place))
    assert shown in dataset(place).to_table().to_pylist()


@pytest.mark.parametrize("kind", [pa.int64(), pa.string(), pa.list_(pa.int32())], ids=str)
def test_nothing_shows_of_what_data_files_hold_of_a_dropped_column(tmp_path: Path, kind: pa.DataType) -> None:
    """Plain Lance drops the column with the highest id, whose values its files keep; Weir adds the next."""
    place = tmp_path / "t"
    table = make(place)
    with table.writer() as writer:
        writer.upsert([ROW])
    table.maintenance.merge()
    dataset(place).drop_columns(["x"])
    table.alter(add=[pa.field("y", kind)])
    for reader in (table, opened(place)):
        assert rows(reader) == [{"id": 1, "v": 10, "y": None}]
        assert reader.scan(filter="y IS NULL").count() == 1
    assert dataset(place).to_table().to_pylist() == [{"id": 1, "v": 10, "y": None}]


def test_a_writer_that_is_open_takes_the_new_column_for_another(tmp_path: Path) -> None:
    place = tmp_path / "t"
    make(place)
    table = opened(place)
    with table.writer() as writer:
        writer.upsert([ROW])
        reuse(place)
        assert rows(table) == [{"id": 1, "v": 10, "y": None}]
        writer.upsert([{"id": 2, "v": 20, "y": 5}])
        assert rows(table) == [{"id": 1, "v": 10, "y": None}, {"id": 2, "v": 20, "y": 5}]
        writer.flush()
        assert rows(table) == [{"id": 1, "v": 10, "y": None}, {"id": 2, "v": 20, "y": 5}]
    table.maintenance.merge()
    assert dataset(place).to_table().sort_by("id").to_pylist() == [
        {"id": 1, "v": 10, "y": None},
        {"id": 2, "v": 20, "y": 5},
    ]


def test_a_writer_that_is_open_hears_of_a_column_that_somebody_has_seen(tmp_path: Path) -> None:
    """One of the same name and type, so that nothing but a look at the table tells it from the other."""
    place = tmp_path / "t"
    make(place)
    with opened(place).writer() as writer:
        writer.upsert([ROW])
        reuse(place, X)
        assert rows(opened(place)) == [{**ROW, "x": None}]
        writer.upsert([{**ROW, "id": 2}])
        assert rows(opened(place)) == [{**ROW, "x": None}, {**ROW, "id": 2}]


def test_a_snapshot_of_before_shows_what_it_did(tmp_path: Path) -> None:
    place = tmp_path / "t"
    make(place)
    write_generation(place)
    token = opened(place).snapshot()
    reuse(place)
    with opened(place).writer() as writer:
        writer.upsert([{"id": 2, "v": 20, "y": 5}])
    default_context().cache.clear()
    assert opened(place).scan(at=token).to_table().to_pylist() == [ROW]
    assert rows(opened(place)) == [{"id": 1, "v": 10, "y": None}, {"id": 2, "v": 20, "y": 5}]


def test_a_column_that_a_restore_brings_back_has_its_values(tmp_path: Path) -> None:
    place = tmp_path / "t"
    make(place)
    came_with = dataset(place).version
    write_to_log(place)
    reuse(place)
    with opened(place).writer() as writer:
        writer.upsert([{"id": 2, "v": 20, "y": 5}])
    # Of a version in which nobody had marked the column yet.
    lance.dataset(str(place), version=came_with).restore()  # type: ignore[no-untyped-call]
    for _ in range(2):
        default_context().cache.clear()
        assert rows(opened(place)) == [ROW, {"id": 2, "v": 20, "x": None}]
        with opened(place).writer() as writer:
            writer.upsert([ROW])


def test_a_clone_has_the_values_of_a_column_that_only_its_source_can_date(tmp_path: Path) -> None:
    place = tmp_path / "t"
    make(place)
    came_with = dataset(place).version
    write_to_log(place)
    # Of a version in which nobody had marked the column yet.
    lance.dataset(str(place), version=came_with).restore()  # type: ignore[no-untyped-call]
    clone = weir.clone(place, tmp_path / "clone", fsync=False)
    assert rows(clone) == rows(opened(tmp_path / "clone")) == rows(opened(place)) == [ROW]
    with clone.writer() as writer:
        writer.upsert([{**ROW, "id": 2}])
    clone.maintenance.merge()
    assert rows(clone) == [ROW, {**ROW, "id": 2}]


def test_a_table_of_the_library_is_marked_by_its_first_writer(tmp_path: Path) -> None:
    place = tmp_path / "t"
    key = {"lance-schema:unenforced-primary-key": "true"}
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False, metadata=key), ("v", pa.int64()), X])
    lance.write_dataset(schema.empty_table(), str(place)).initialize_mem_wal(unsharded=True)
    writer = dataset(place).mem_wal_writer(str(uuid4()), max_wal_flush_interval_ms=1)
    writer.put(pa.Table.from_pylist([ROW], schema.remove_metadata()))
    library.close_quietly(writer)
    version = dataset(place).version
    assert rows(opened(place)) == [ROW]
    assert dataset(place).version == version, "a reader changes nothing"
    with opened(place).writer() as weirs:
        weirs.upsert([{**ROW, "id": 2}])
    assert rows(opened(place)) == [ROW, {**ROW, "id": 2}]
    reuse(place)
    assert {"id": 2, "v": 10, "y": None} in rows(opened(place))


@pytest.mark.parametrize("flush", [False, True])
@pytest.mark.parametrize("renamed_first", [False, True])
def test_nothing_of_a_dropped_part_shows(tmp_path: Path, flush: bool, renamed_first: bool) -> None:
    place = tmp_path / "t"
    kinds = pa.struct([("a", pa.int32()), ("b", pa.int32())])
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("s", kinds)])
    weir.create(place, schema, primary_key="id", fsync=False)
    name = "b"
    if renamed_first:
        name = "was"
        dataset(place).alter_columns({"path": "s.b", "name": name})  # type: ignore[dict-item]
    with opened(place).writer() as writer:
        writer.upsert([{"id": 1, "s": {"a": 1, name: 77}}, {"id": 2, "s": None}])
        if flush:
            writer.flush()
    dataset(place).alter_columns({"path": "s.a", "name": "first"})  # type: ignore[dict-item]
    before = parts(place)
    dataset(place).drop_columns([f"s.{name}"])
    dataset(place).add_columns(pa.schema([("s", pa.struct([("c", pa.int32())]))]))
    assert before == parts(place), "the case is none any more: Lance gives ids out once"
    shown = [{"id": 1, "s": {"first": 1, "c": None}}, {"id": 2, "s": None}]
    assert rows(opened(place)) == shown
    with opened(place).writer() as writer:
        writer.upsert([{"id": 3, "s": {"first": 3, "c": 3}}])
    default_context().cache.clear()
    shown.append({"id": 3, "s": {"first": 3, "c": 3}})
    assert rows(opened(place)) == shown
    opened(place).maintenance.merge()
    assert rows(opened(place)) == shown
    base = BaseTable.open(LocalStore(place, fsync=False))
    assert None not in base.marks.values()
    assert base.marks == base.births


class TestRowsOfTheLibraryWithoutAMark:
    """Plain Lance adds a column, and the library writes to it, before a writer of Weir has marked it."""

    @pytest.fixture(autouse=True)
    def _close(self) -> Iterator[None]:
        yield
        library.close_writers()

    @staticmethod
    def rename(place: Path, old: str, new: str) -> None:
        dataset(place).alter_columns({"path": old, "name": new})  # type: ignore[dict-item]

    @staticmethod
    def make(place: Path, field: pa.Field = X) -> None:
        with weir.create(place, SCHEMA, primary_key="id", fsync=False).writer() as writer:
            writer.upsert([{"id": 0, "v": 0}])
        dataset(place).add_columns(field)

    @staticmethod
    def write(place: Path, field: pa.Field = X, *, flush: bool) -> None:
        (shard,) = library.shards_of(place)
        theirs = library.open_writer(place, shard)
        theirs.put(pa.Table.from_pylist([{"id": 1, "v": 10, field.name: 77}], pa.schema([*SCHEMA, field])))
        if flush:
            library.close_quietly(theirs)

    @staticmethod
    def check(place: Path, name: str, value: int | None) -> None:
        """Compare what is shown before and after a writer has marked the column, and what is merged."""
        expected = [{"id": 0, "v": 0, name: None}, {"id": 1, "v": 10, name: value}]
        for _ in range(2):
            default_context().cache.clear()
            assert rows(opened(place)) == expected
            assert opened(place).get([1]).to_pylist() == expected[1:]
            assert opened(place).scan(filter=f"{name} IS NULL").count() == (2 if value is None else 1)
            with opened(place).writer() as writer:
                writer.upsert(expected[:1])
        opened(place).maintenance.merge()
        assert dataset(place).to_table().sort_by("id").to_pylist() == expected == rows(opened(place))

    @pytest.mark.covering
    @pytest.mark.parametrize("flush", [False, True])
    @pytest.mark.parametrize(
        "field",
        [X, Y, pa.field("x", pa.string()), pa.field("x", pa.int32()), pa.field("x", pa.decimal128(20))],
        ids=str,
    )
    def test_nothing_of_it_shows_in_another_column(
        self, tmp_path: Path, flush: bool, field: pa.Field
    ) -> None:
        place = tmp_path / "t"
        self.make(place)
        self.write(place, flush=flush)
        reuse(place, field)
        self.check(place, field.name, None)

    def test_a_merge_marks_the_columns_while_there_are_versions_that_tell_when_they_came(
        self, tmp_path: Path
    ) -> None:
        place = tmp_path / "t"
        self.make(place)
        self.write(place, flush=True)
        opened(place).maintenance.merge()
        assert None not in BaseTable.open(LocalStore(place, fsync=False)).marks.values()
        dataset(place).cleanup_old_versions(timedelta(0), delete_unverified=True)
        self.write(place, flush=True)
        default_context().cache.clear()
        assert rows(opened(place))[1:] == [ROW]
        dataset(place).drop_columns(["x"])
        dataset(place).add_columns(X)
        default_context().cache.clear()
        assert rows(opened(place))[1:] == [{**ROW, "x": None}]

    def test_nothing_shows_of_what_the_library_flushes_after_one_of_the_same_name_came(
        self, tmp_path: Path
    ) -> None:
        place = tmp_path / "t"
        self.make(place)
        self.write(place, flush=False)
        time.sleep(_TICK_SECONDS)
        reuse(place, X)
        library.close_writers()
        self.check(place, "x", None)

    def test_what_the_library_flushes_of_two_columns_of_one_name_is_refused_by_name(
        self, tmp_path: Path
    ) -> None:
        place = tmp_path / "t"
        self.make(place)
        (shard,) = library.shards_of(place)
        theirs = library.open_writer(place, shard)
        schema = pa.schema([*SCHEMA, X])
        theirs.put(pa.Table.from_pylist([ROW], schema))
        time.sleep(_TICK_SECONDS)
        reuse(place, X)
        theirs.put(pa.Table.from_pylist([{**ROW, "id": 2, "x": 88}], schema))
        table = opened(place)
        assert rows(table)[1:] == [{**ROW, "x": None}, {**ROW, "id": 2, "x": 88}]
        library.close_writers()
        for read in (lambda: rows(opened(place)), lambda: opened(place).get([1]), table.maintenance.merge):
            with pytest.raises(SchemaError, match=r"generation 2 .* values of column 'x'.*dropped"):
                read()
        found = table.maintenance.verify().errors
        assert any(one.check == "generation.columns" and "column 'x'" in one.message for one in found), found
        table.alter(drop=["x"])
        table.alter(add=[X])
        default_context().cache.clear()
        shown = [{"id": 0, "v": 0, "x": None}, {**ROW, "x": None}, {**ROW, "id": 2, "x": None}]
        assert rows(opened(place)) == shown
        opened(place).maintenance.merge()
        assert dataset(place).to_table().sort_by("id").to_pylist() == shown

    def test_what_a_second_writer_of_the_library_takes_over_without_the_column_counts_for_nothing(
        self, tmp_path: Path
    ) -> None:
        """Its generation has the column, and rows from before it came, which had none of its id."""
        place = tmp_path / "t"
        with weir.create(place, SCHEMA, primary_key="id", fsync=False).writer() as writer:
            writer.upsert([{"id": 0, "v": 0}])
        (shard,) = library.shards_of(place)
        first = library.open_writer(place, shard)
        first.put(pa.Table.from_pylist([{"id": 2, "v": 20}], SCHEMA))
        time.sleep(_TICK_SECONDS)
        dataset(place).add_columns(X)
        second = library.open_writer(place, shard)
        second.put(pa.Table.from_pylist([ROW], pa.schema([*SCHEMA, X])))
        library.close_writers()
        shown = [{"id": 0, "v": 0, "x": None}, ROW, {"id": 2, "v": 20, "x": None}]
        assert rows(opened(place)) == shown
        opened(place).maintenance.merge()
        assert dataset(place).to_table().sort_by("id").to_pylist() == shown

    @pytest.mark.parametrize("flush", [False, True])
    def test_what_is_written_to_the_next_one_shows(self, tmp_path: Path, flush: bool) -> None:
        place = tmp_path / "t"
        self.make(place)
        reuse(place, X)
        self.write(place, flush=flush)
        self.check(place, "x", 77)

    @pytest.mark.parametrize("flush", [False, True])
    def test_nothing_shows_in_a_table_that_no_writer_of_weir_has_seen(
        self, tmp_path: Path, flush: bool
    ) -> None:
        place, shard = tmp_path / "t", str(uuid4())
        key = {"lance-schema:unenforced-primary-key": "true"}
        schema = pa.schema([pa.field("id", pa.int64(), nullable=False, metadata=key), ("v", pa.int64()), X])
        lance.write_dataset(schema.empty_table(), str(place)).initialize_mem_wal(unsharded=True)
        for number, value in enumerate((77, 78)):
            theirs = dataset(place).mem_wal_writer(shard, max_wal_flush_interval_ms=1)
            theirs.put(pa.Table.from_pylist([{**ROW, "id": number, "x": value}], schema.remove_metadata()))
            if flush:
                library.close_quietly(theirs)
            if not number:
                reuse(place, X)
        expected = [{"id": 0, "v": 10, "x": None}, {"id": 1, "v": 10, "x": 78}]
        for _ in range(2):
            default_context().cache.clear()
            assert rows(opened(place)) == expected
            assert opened(place).get([0, 1]).to_pylist() == expected
            assert opened(place).scan(filter="x = 77").count() == 0
            with opened(place).writer() as writer:
                writer.upsert([])
        opened(place).maintenance.recover(unleased=True)
        opened(place).maintenance.merge()
        assert dataset(place).to_table().sort_by("id").to_pylist() == expected == rows(opened(place))

    def test_nothing_shows_on_an_object_store(self, s3_endpoint: S3Endpoint) -> None:
        uri, options, shard = s3_endpoint.new_uri("t"), dict(s3_endpoint.options), str(uuid4())
        key = {"lance-schema:unenforced-primary-key": "true"}
        schema = pa.schema([pa.field("id", pa.int64(), nullable=False, metadata=key), ("v", pa.int64()), X])
        made = lance.write_dataset(schema.empty_table(), uri, storage_options=options)
        made.initialize_mem_wal(unsharded=True)
        for number, value in enumerate((77, 78)):
            found = lance.dataset(uri, storage_options=options)
            theirs = found.mem_wal_writer(shard, max_wal_flush_interval_ms=1)
            theirs.put(pa.Table.from_pylist([{**ROW, "id": number, "x": value}], schema.remove_metadata()))
            library.close_quietly(theirs)
            if not number:
                time.sleep(1)  # as exactly as the store tells when something was stored
                found.drop_columns(["x"])
                lance.dataset(uri, storage_options=options).add_columns(X)
        expected = [{"id": 0, "v": 10, "x": None}, {"id": 1, "v": 10, "x": 78}]
        table = weir.open(uri, storage_options=options)
        assert rows(table) == expected
        with table.writer() as writer:
            writer.upsert([])
        table.maintenance.merge()
        assert rows(weir.open(uri, storage_options=options)) == expected

    @pytest.mark.parametrize("flush", [False, True])
    def test_a_copy_of_the_table_whose_files_have_other_times_keeps_its_values(
        self, tmp_path: Path, flush: bool
    ) -> None:
        place, copy = tmp_path / "t", tmp_path / "copy"
        self.make(place)
        self.write(place, flush=flush)
        # The log first, and the versions last.
        shutil.copytree(place / "_mem_wal", copy / "_mem_wal", copy_function=shutil.copyfile)
        time.sleep(0.02)
        others = shutil.ignore_patterns("_mem_wal")
        shutil.copytree(place, copy, ignore=others, copy_function=shutil.copyfile, dirs_exist_ok=True)
        self.check(copy, "x", 77)

    @pytest.mark.parametrize("flush", [False, True])
    def test_a_column_that_is_renamed_keeps_its_values(self, tmp_path: Path, flush: bool) -> None:
        place = tmp_path / "t"
        self.make(place)
        self.write(place, flush=flush)
        self.rename(place, "x", "y")
        self.rename(place, "y", "z")
        rows(opened(place))
        self.check(place, "z", 77)

    def test_a_column_that_is_widened_keeps_its_values(self, tmp_path: Path) -> None:
        place = tmp_path / "t"
        narrow = pa.field("x", pa.int32())
        self.make(place, narrow)
        self.write(place, narrow, flush=True)
        opened(place).alter(rename={"x": "y"})
        opened(place).alter(widen={"y": pa.int64()})
        self.check(place, "y", 77)

    @pytest.mark.parametrize("flush", [False, True])
    def test_a_name_that_a_restore_took_back_is_its_own(self, tmp_path: Path, flush: bool) -> None:
        place = tmp_path / "t"
        self.make(place)
        added = dataset(place)
        self.rename(place, "x", "late")
        self.write(place, pa.field("late", pa.int64()), flush=flush)
        added.restore()  # type: ignore[no-untyped-call]
        self.check(place, "x", 77)

    def test_nothing_of_a_part_shows_in_another_one(self, tmp_path: Path) -> None:
        place = tmp_path / "t"
        schema = pa.schema(
            [pa.field("id", pa.int64(), nullable=False), ("s", pa.struct([("a", pa.int32())]))]
        )
        with weir.create(place, schema, primary_key="id", fsync=False).writer() as writer:
            writer.upsert([{"id": 0, "s": None}])
        (shard,) = library.shards_of(place)
        dataset(place).add_columns(pa.schema([("s", pa.struct([("b", pa.int32())]))]))
        before = parts(place)
        theirs = library.open_writer(place, shard)
        theirs.put(pa.Table.from_pylist([{"id": 1, "s": {"a": 1, "b": 77}}], dataset(place).schema))
        library.close_quietly(theirs)
        dataset(place).drop_columns(["s.b"])
        dataset(place).add_columns(pa.schema([("s", pa.struct([("c", pa.int32())]))]))
        assert before == parts(place), "the case is none any more: Lance gives ids out once"
        expected = [{"id": 0, "s": None}, {"id": 1, "s": {"a": 1, "c": None}}]
        for _ in range(2):
            default_context().cache.clear()
            assert rows(opened(place)) == expected
            with opened(place).writer() as writer:
                writer.upsert(expected[:1])
        opened(place).maintenance.merge()
        assert rows(opened(place)) == expected


def test_users_do_not_see_the_marks(tmp_path: Path) -> None:
    place = tmp_path / "t"
    make(place)
    write_generation(place)
    table = opened(place)
    table.maintenance.merge()
    write_to_log(place)
    found = [table.schema, table.scan().to_table().schema, table.get([{"id": 1}]).schema]
    found += [batch.rows.schema for batch in table.changes()]
    for schema in found:
        assert all(b"weir:birth" not in (field.metadata or {}) for field in schema), schema


def test_what_it_costs(tmp_path: Path) -> None:
    place = tmp_path / "t"
    make(place)
    write_to_log(place)
    store = CountingStore(LocalStore(place, fsync=False))

    def requests() -> int:
        store.reset()
        BaseTable.open(store)
        return sum(store.counts.values())

    default_context().cache.clear()
    assert requests() == 1, "all columns are marked: the manifest alone"
    dataset(place).add_columns(Y)
    assert requests() == 5, (
        "what made the version of, the version before, which lacks the column, when, and the one known"
    )
    assert requests() == 1, "remembered"
    dataset(place).delete("id = -1")
    assert requests() == 3, "what it is made of, and whether the version known is still what it was"
    default_context().cache.clear()
    assert requests() == 6
    write_to_log(place)
    default_context().cache.clear()
    assert requests() == 1, "the writer has marked it"
