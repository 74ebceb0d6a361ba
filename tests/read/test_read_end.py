"""Reads that go on from where an earlier one ended, by the logs alone, against a dict with times."""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path
from random import Random

import lance
import pyarrow as pa
import pytest

import weir
from weir.read.read_end import ReadEnd

_COLUMNS = ["id", "n"]


class _Written:
    """The rows of a table, each with the number of the write that it is from."""

    def __init__(self) -> None:
        self.rows: dict[int, tuple[int, int]] = {}
        self.writes = 0

    def upsert(self, rows: dict[int, int]) -> None:
        self.writes += 1
        self.rows.update({key: (value, self.writes) for key, value in rows.items()})

    def delete(self, keys: list[int]) -> None:
        self.writes += 1
        for key in keys:
            self.rows.pop(key, None)

    def after(self, write: int, least: int) -> set[tuple[int, int]]:
        return {(key, value) for key, (value, at) in self.rows.items() if at > write and value >= least}


class _Following:
    """A handle that goes on reading, and how far it came."""

    def __init__(self, table: weir.Table) -> None:
        self.table = table
        self.end: ReadEnd | None = None
        self.write = 0
        self.has_moved = True

    def check(self, written: _Written, least: int) -> bool:
        """Read what has come since; return whether the logs alone had it."""
        rows, end = self.table.internals.reader.rows_after(self.end, _COLUMNS, f"n >= {least}")
        assert rows is not None or self.has_moved
        if rows is not None:
            assert rows.column_names == _COLUMNS
            found = [(row["id"], row["n"]) for row in rows.to_pylist()]
            assert len(found) == len(set(found))
            assert set(found) == written.after(self.write, least)
        self.end, self.write, self.has_moved = end, written.writes, False
        return rows is not None


@pytest.mark.parametrize(
    "seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(4, 24))]
)
def test_what_was_written_since_is_read_from_the_logs_while_they_have_it(tmp_path: Path, seed: int) -> None:
    random, written = Random(seed), _Written()
    uri = str(tmp_path / "table")
    is_keyed = seed % 4 != 3
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("n", pa.int64())])
    table = weir.create(
        uri,
        schema,
        primary_key="id",
        dedup=is_keyed,
        shard_by=weir.bucket("id", 3) if seed % 2 else None,
    )
    readers = [_Following(table), _Following(weir.open(uri))]
    by_logs = 0

    def moved() -> None:
        for one in readers:
            one.has_moved = True

    with table.writer() as writer:
        for step in range(60):
            what = random.random()
            if what < 0.5:
                # Without a look at keys they have to be new.
                first = random.randrange(50) if is_keyed else 1000 * step
                rows = {first + at: random.randrange(100) for at in range(random.randrange(1, 6))}
                writer.upsert([{"id": key, "n": value} for key, value in rows.items()])
                written.upsert(rows)
            elif what < 0.6 and is_keyed:
                keys = random.sample(range(55), 3)
                writer.delete(keys)
                written.delete(keys)
            elif what < 0.68:
                writer.flush()
                moved()
            elif what < 0.72:
                writer.flush()
                table.maintenance.merge()
                moved()
            elif what < 0.75:
                table.alter(add=[pa.field(f"c{step}", pa.string())])
                moved()
            else:
                by_logs += random.choice(readers).check(written, random.choice([0, 30]))
    assert by_logs


def _table(path: Path) -> weir.Table:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("n", pa.int64())])
    table = weir.create(str(path), schema, primary_key="id")
    table.upsert([{"id": at, "n": at} for at in range(5)])
    return table


def test_nothing_is_read_by_the_logs_that_begins_with_no_read(tmp_path: Path) -> None:
    reader = _table(tmp_path / "table").internals.reader
    rows, end = reader.rows_after(None, _COLUMNS)
    assert rows is None
    rows, _ = reader.rows_after(end, _COLUMNS)
    assert rows is not None
    assert rows.num_rows == 0
    assert rows.schema.names == _COLUMNS


def test_generations_published_beside_the_log_are_not_missed(tmp_path: Path) -> None:
    table = _table(tmp_path / "table")
    reader = table.internals.reader
    _, end = reader.rows_after(None, _COLUMNS)
    with table.writer() as writer:
        rows = pa.table({"id": [7], "n": [7], "_tombstone": [False]}, schema=table.internals.row_schema)
        (shard,) = table.internals.router.partition(rows).values
        staged = table.internals.stage(shard, rows, spec_id=table.internals.sharding.spec.spec_id)
        writer.publish_routed([(shard, [staged])])
        found, _ = reader.rows_after(end, _COLUMNS)
        assert found is None


def test_rows_loaded_into_the_base_table_are_not_missed(tmp_path: Path) -> None:
    schema = pa.schema([("n", pa.int64())])
    table = weir.create(str(tmp_path / "table"), schema, primary_key=None)
    table.upsert([{"n": 1}])
    _, end = table.internals.reader.rows_after(None, ["n"])
    table.load(pa.table({"n": [2, 3]}))
    found, _ = table.internals.reader.rows_after(end, ["n"])
    assert found is None


def test_rows_that_the_library_appends_are_not_missed(tmp_path: Path) -> None:
    table = _table(tmp_path / "table")
    _, end = table.internals.reader.rows_after(None, _COLUMNS)
    lance.write_dataset(pa.table({"id": [9], "n": [9]}, table.schema), str(tmp_path / "table"), mode="append")
    assert table.internals.reader.rows_after(end, _COLUMNS)[0] is None


def test_folded_rows_are_not_told_from_the_logs_alone(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("n", pa.int64())])
    table = weir.create(
        str(tmp_path / "table"), schema, primary_key="id", merge_engine=weir.MergeEngine.aggregation(n="sum")
    )
    table.upsert([{"id": 1, "n": 1}])
    _, end = table.internals.reader.rows_after(None, _COLUMNS)
    table.upsert([{"id": 1, "n": 1}])
    assert table.internals.reader.rows_after(end, _COLUMNS)[0] is None


def test_another_table_in_the_place_is_read_anew(tmp_path: Path) -> None:
    place, copy = tmp_path / "table", tmp_path / "copy"
    table = _table(place)
    shutil.copytree(place, copy)
    for n in range(10):
        table.upsert([{"id": 8, "n": n}])
    _, end = table.internals.reader.rows_after(None, _COLUMNS)
    shutil.rmtree(place)
    shutil.copytree(copy, place)
    with weir.open(str(place)).writer(takeover=True) as writer:
        writer.upsert([{"id": 9, "n": 9}])
    # Its log is shorter, and has other entries at the same positions.
    assert table.internals.reader.rows_after(end, _COLUMNS)[0] is None


def test_expired_rows_are_left_out(tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), ("at", pa.timestamp("us", "UTC"))])
    table = weir.create(
        str(tmp_path / "table"), schema, primary_key="id", expire_after=timedelta(days=1), expire_by="at"
    )
    table.upsert([{"id": 1, "at": None}])
    reader = table.internals.reader
    _, end = reader.rows_after(None, ["id"])
    old = pa.scalar(0, pa.timestamp("us", "UTC")).as_py()
    table.upsert([{"id": 2, "at": old}, {"id": 3, "at": None}])
    rows, _ = reader.rows_after(end, ["id"], "id > 0")
    assert rows is not None
    assert rows.column("id").to_pylist() == [3]
