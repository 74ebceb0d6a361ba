"""The streaming source without Spark around it: a model of its engine asks, writes down, and dies."""

from __future__ import annotations

import json
import pickle
import random
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows
from tests.spark.tables import SCHEMA, build

import weir
from weir.errors import InputError, OptionError, SchemaError, SnapshotExpiredError, TableNotFoundError
from weir.spark.data_source import WeirDataSource
from weir.spark.stream_reader import StreamReader

COLUMNS = pa.schema([("id", pa.int64()), ("note", pa.string())])
Row = dict[str, Any]


@pytest.fixture
def table(tmp_path: Path) -> weir.Table:
    return weir.create(tmp_path / "t", COLUMNS, primary_key="id", shard_by=weir.bucket("id", 3), fsync=False)


def reader_of(table: weir.Table, **options: str) -> StreamReader:
    source = WeirDataSource({"path": table.uri, "readChangeFeed": "true", **options})
    reader = source.streamReader(source.schema())
    assert isinstance(reader, StreamReader)
    return reader


@dataclass
class Engine:
    """What Spark does with a source, and what it keeps in a checkpoint: offsets, and which batch is done.

    Parameters
    ----------
    table : Table
        The table.
    options : dict
        The options of the source.
    offsets : list of str
        Where each batch ends.
    done : int
        How many batches are done.
    """

    table: weir.Table
    options: dict[str, str]
    offsets: list[str] = field(default_factory=list)
    done: int = 0
    reader: StreamReader | None = None

    def start(self, *, available_now: bool = False) -> None:
        self.reader = reader_of(self.table, **self.options)
        if available_now:
            self.reader.prepareForTriggerAvailableNow()

    def crash(self) -> None:
        self.reader = None

    def begin(self) -> bool:
        """Plan and write down the next batch; return False if there is nothing to read."""
        assert self.reader is not None
        start = self._offset(self.done - 1)
        limit = self.reader.getDefaultReadLimit()
        if self.done:
            self.reader.commit(json.loads(self.offsets[self.done - 1]))
        end = json.dumps(self.reader.latestOffset(json.loads(start), limit))
        if end == start:
            return False
        self.offsets.append(end)
        return True

    def run(self) -> list[Row]:
        """Read the batch that was written down last, as executors do."""
        assert self.reader is not None
        start, end = self._offset(self.done - 1), self.offsets[self.done]
        text = pickle.dumps(self.reader)
        found: list[Row] = []
        for part in self.reader.partitions(json.loads(start), json.loads(end)):
            for batch in pickle.loads(text).read(pickle.loads(pickle.dumps(part))):
                assert batch.schema.equals(to_arrow_schema(self.reader._schema, timezone="UTC"))
                found += batch.to_pylist()
        return found

    def batches(self) -> list[list[Row]]:
        """Run batches until there is nothing more."""
        found = []
        while self.begin():
            found.append(self.run())
            self.done += 1
        return found

    def _offset(self, number: int) -> str:
        assert self.reader is not None
        return self.offsets[number] if number >= 0 else json.dumps(self.reader.initialOffset())


def written(table: weir.Table) -> dict[str, list[Row]]:
    return by_shard([row for change in table.changes("earliest") for row in change.rows.to_pylist()])


def by_shard(rows: list[Row]) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        found[row["_shard"]].append(row)
    return dict(found)


def upsert(table: weir.Table, *ids: int, note: str = "x") -> None:
    with table.writer(flush_on_close=False) as writer:
        writer.upsert([{"id": one, "note": note} for one in ids])


def test_every_change_comes_once_and_in_order(table: weir.Table) -> None:
    engine = Engine(table, {"startingFrom": "earliest"})
    upsert(table, *range(20))
    engine.start()
    found = [row for batch in engine.batches() for row in batch]
    for number in range(6):
        upsert(table, *range(number, 40, 3), note=str(number))
        with table.writer() as writer:
            writer.delete([number])
        if number % 2:
            table.maintenance.merge()
        found += [row for batch in engine.batches() for row in batch]
        assert engine.batches() == []
    assert by_shard(found) == written(table)
    assert {row["_op"] for row in found} == {"upsert", "delete"}


def test_a_merge_or_a_flush_alone_makes_no_batch(table: weir.Table) -> None:
    engine = Engine(table, {"startingFrom": "earliest"})
    upsert(table, *range(20))
    engine.start()
    assert len(engine.batches()) == 1
    table.maintenance.recover()
    engine.batches()  # the claim's fence entries
    table.maintenance.merge()
    table.maintenance.compact()
    assert engine.batches() == []


@pytest.mark.parametrize("start", ["earliest", "latest", "snapshot", "token", "tag"])
def test_a_first_batch_that_was_not_finished_is_read_again(table: weir.Table, start: str) -> None:
    upsert(table, *range(10), note="before")
    token = str(table.snapshot())
    table.tags.create("tag")
    upsert(table, *range(5, 15), note="between")
    engine = Engine(table, {"startingFrom": token if start == "token" else start})
    engine.start()
    assert engine.begin()
    first = engine.run()
    assert {row["note"] for row in first} == {
        "earliest": {"before", "between"},
        "latest": set(),
        "snapshot": {"before", "between"},
        "token": {"between"},
        "tag": {"between"},
    }[start]
    assert len(first) == {"earliest": 20, "latest": 0, "snapshot": 15, "token": 10, "tag": 10}[start]
    for _ in range(2):
        engine.crash()
        upsert(table, *range(20), note="after")
        table.maintenance.run()
        engine.start()
        assert sorted(map(str, engine.run())) == sorted(map(str, first))
    engine.done += 1
    rest = [row for batch in engine.batches() for row in batch]
    assert [row["note"] for row in rest] == ["after"] * 40


def test_the_content_comes_first_and_then_every_change(tmp_path: Path) -> None:
    table = build(tmp_path / "t", weir.bucket("id", 3), fsync=False)
    expected = table.scan().to_table().sort_by("id").to_pylist()
    engine = Engine(table, {"rowsPerPartition": "200"})
    engine.start()
    (content,) = engine.batches()
    assert sorted((row[0:5] for row in map(list, map(dict.values, content))), key=lambda row: row[0]) == [
        list(row.values()) for row in expected
    ]
    added = {(row["_op"], row["_shard"], row["_position"], row["_epoch"]) for row in content}
    assert added == {("upsert", None, None, None)}
    with table.writer(takeover=True) as writer:
        writer.delete([1])
    (changes,) = engine.batches()
    assert [(row["id"], row["_op"]) for row in changes] == [(1, "delete")]
    assert not list((tmp_path / "t" / "_weir" / "snapshots").glob("*.json"))  # released


@pytest.mark.parametrize("options", [{}, {"maxRowsPerTrigger": "4"}, {"startingFrom": "earliest"}])
def test_rows_before_the_changes_are_rows_too(table: weir.Table, options: dict[str, str]) -> None:
    dice = random.Random(7)
    model: dict[int, Row] = {}
    downstream: dict[int, Row] = {}
    upsert(table, *range(6), note="first")
    model.update({key: {"id": key, "note": "first"} for key in range(6)})
    engine = Engine(table, {"beforeImage": "true", "consumer": "c", **options})
    engine.start()
    seen: set[str] = set()
    for turn in range(12):
        for batch in engine.batches():
            waiting: Row | None = None
            for row in batch:
                change, values = row["_op"], {"id": row["id"], "note": row["note"]}
                seen.add(change)
                assert (change == "update_postimage") == (waiting is not None)
                if change in ("update_preimage", "delete"):
                    assert downstream.pop(row["id"]) == values
                else:
                    assert row["id"] not in downstream
                    downstream[row["id"]] = values
                waiting = values if change == "update_preimage" else None
            assert waiting is None
        assert downstream == model
        for _ in range(5):
            key = dice.randrange(12)
            if dice.random() < 0.3:
                with table.writer(flush_on_close=False) as writer:
                    writer.delete([key])
                model.pop(key, None)
            else:
                upsert(table, key, note=str(turn))
                model[key] = {"id": key, "note": str(turn)}
        if turn % 3 == 1:
            table.maintenance.run()
        if turn % 4 == 2:
            # A batch that was written down is read again after a crash, and is the same.
            assert engine.begin()
            first = engine.run()
            engine.crash()
            engine.start()
            assert engine.run() == first
            engine.offsets.pop()
    assert seen == {"insert", "update_preimage", "update_postimage", "delete"}


def test_a_limit_of_rows(table: weir.Table) -> None:
    for number in range(10):
        upsert(table, *range(number * 6, number * 6 + 6))
    engine = Engine(table, {"startingFrom": "earliest", "maxRowsPerTrigger": "7"})
    engine.start()
    batches = engine.batches()
    assert all(len(batch) <= 7 for batch in batches)
    assert by_shard([row for batch in batches for row in batch]) == written(table)
    reader = reader_of(table, startingFrom="earliest", maxRowsPerTrigger="7")
    assert reader.getDefaultReadLimit() == ReadMaxRows(7)
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert reader.latestOffset(end, ReadAllAvailable()) == end


def test_a_limit_of_bytes(table: weir.Table) -> None:
    for number in range(10):
        upsert(table, *range(number * 6, number * 6 + 6), note="x" * 5_000)
    engine = Engine(table, {"startingFrom": "earliest", "maxBytesPerTrigger": "50000"})
    engine.start()
    batches = engine.batches()
    assert 6 < len(batches) < 12
    assert all(sum(len(row["note"]) for row in batch) <= 50_000 for batch in batches)
    assert by_shard([row for batch in batches for row in batch]) == written(table)
    reader = reader_of(table, startingFrom="earliest", maxBytesPerTrigger="50000")
    assert reader.getDefaultReadLimit() == ReadMaxBytes(50_000)
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert reader.latestOffset(end, ReadAllAvailable()) == end


def test_of_two_limits_the_narrower_counts(table: weir.Table) -> None:
    for number in range(6):
        upsert(table, *range(number * 6, number * 6 + 6), note="x" * 3_000)
    for most_rows, most_bytes in ((4, 1_000_000), (1_000, 15_000)):
        options = {"maxRowsPerTrigger": str(most_rows), "maxBytesPerTrigger": str(most_bytes)}
        engine = Engine(table, {"startingFrom": "earliest", **options})
        engine.start()
        batches = [batch for batch in engine.batches() if batch]
        for batch in batches:
            within = len(batch) <= most_rows and len(batch) * 3_000 <= most_bytes
            # A log entry is never split.
            assert within or len({(row["_shard"], row["_position"]) for row in batch}) == 1
        assert by_shard([row for batch in batches for row in batch]) == written(table)


def test_available_now_stops_at_what_was_there(table: weir.Table) -> None:
    for number in range(4):
        upsert(table, *range(number * 6, number * 6 + 6), note="before")
    engine = Engine(table, {"startingFrom": "earliest", "maxRowsPerTrigger": "5"})
    engine.start(available_now=True)
    upsert(table, *range(6), note="after")
    found = [row["note"] for batch in engine.batches() for row in batch]
    assert found == ["before"] * 24
    engine.start(available_now=True)
    assert [row["note"] for batch in engine.batches() for row in batch] == ["after"] * 6
    content = Engine(table, {})
    content.start(available_now=True)
    assert [len(batch) for batch in content.batches()] == [24]


def test_a_consumer_goes_on_where_it_was_and_holds_back_collection(table: weir.Table) -> None:
    upsert(table, *range(10), note="content")
    engine = Engine(table, {"consumer": "copy"})
    engine.start()
    assert [len(batch) for batch in engine.batches()] == [10]
    for number in range(3):
        upsert(table, *range(10), note=str(number))
        table.maintenance.recover()
        table.maintenance.merge()
        for _ in range(2):
            table.maintenance.collect_garbage(horizon=timedelta(0))
    # Another checkpoint, the same consumer: its place counts, not what startingFrom says.
    moved = Engine(table, {"consumer": "copy", "startingFrom": "earliest"})
    moved.start()
    notes = [row["note"] for batch in moved.batches() for row in batch]
    assert notes.count("0") == notes.count("1") == notes.count("2") == 10
    assert moved.batches() == []
    # What was acknowledged is not kept any more, and the first checkpoint would need it.
    table.maintenance.recover()
    table.maintenance.merge()
    for _ in range(2):
        table.maintenance.collect_garbage(horizon=timedelta(0))
    with pytest.raises((SnapshotExpiredError, InputError, weir.errors.ConflictError)):
        engine.batches()


def test_collection_that_passed_the_place_is_named(table: weir.Table) -> None:
    upsert(table, *range(10))
    engine = Engine(table, {"startingFrom": "earliest"})
    engine.start()
    engine.batches()
    for _ in range(2):
        upsert(table, *range(10))
        table.maintenance.recover()
    table.maintenance.merge()
    for _ in range(2):
        table.maintenance.collect_garbage(horizon=timedelta(0))
    engine.start()
    with pytest.raises(SnapshotExpiredError, match=r"WAL entry .* is gone"):
        engine.batches()


def test_columns_are_those_of_the_table_that_are_asked_for(table: weir.Table) -> None:
    upsert(table, 1, note="x")
    engine = Engine(table, {"startingFrom": "earliest", "columns": "note"})
    engine.start()
    ((row,),) = engine.batches()
    assert list(row) == ["note", "_op", "_shard", "_position", "_epoch"]


def test_a_checkpoint_of_another_table_or_source_is_refused(table: weir.Table, tmp_path: Path) -> None:
    other = weir.create(tmp_path / "other", COLUMNS, primary_key="id", fsync=False)
    upsert(other, 1)
    theirs = Engine(other, {"startingFrom": "earliest"})
    theirs.start()
    theirs.batches()
    engine = Engine(table, {}, offsets=theirs.offsets, done=theirs.done)
    engine.start()
    with pytest.raises(InputError, match="the token belongs to table"):
        engine.batches()
    strange = Engine(table, {}, offsets=['{"index": 5}'], done=1)
    strange.start()
    with pytest.raises(InputError, match="checkpoint is not one of a stream of this source"):
        strange.batches()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"readChangeFeed": "false"}, OptionError, "readChangeFeed"),
        ({"readChangeFeed": "perhaps"}, OptionError, "true or false"),
        ({"filter": "id > 1"}, OptionError, "a streaming read has no option 'filter'"),
        ({"maxRowsPerTrigger": "0"}, OptionError, "at least 1"),
        ({"maxBytesPerTrigger": "1 MB"}, OptionError, "a whole number"),
        ({"consumer": "a/b"}, OptionError, "not the name of a consumer"),
        ({"startingfrm": "latest"}, OptionError, "Did you mean 'startingFrom'"),
        ({"columns": "nothing"}, SchemaError, "no column 'nothing'"),
        ({"path": "/nowhere"}, TableNotFoundError, "nowhere"),
    ],
    ids=str,
)
def test_bad_options(
    table: weir.Table, options: dict[str, str], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        reader_of(table, **options)


def test_a_beginning_that_there_is_not_is_refused(table: weir.Table) -> None:
    """When the stream begins: one that has a checkpoint does not ask for it."""
    engine = Engine(table, {"startingFrom": "yesterday"})
    engine.start()
    with pytest.raises(InputError, match="the table has no tag of that name"):
        engine.batches()


def test_a_table_with_a_column_of_the_feed_is_refused(tmp_path: Path) -> None:
    columns = pa.schema([("id", pa.int64()), ("_op", pa.string())])
    lance.write_dataset(columns.empty_table(), str(tmp_path / "t"))
    table = weir.adopt(tmp_path / "t", primary_key="id", fsync=False)
    with pytest.raises(SchemaError, match="_op"):
        reader_of(table)


def test_the_columns_of_a_stream_are_those_of_the_feed(tmp_path: Path) -> None:
    table = build(tmp_path / "t", None, fsync=False)
    names = reader_of(table)._schema.names
    assert names == [*SCHEMA.names, "_op", "_shard", "_position", "_epoch"]


# --- Columns that are altered ------------------------------------------------------------------


NUMBERS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("a", pa.int32()), ("b", pa.int64())])
ALTERATIONS: dict[str, tuple[list[dict[str, Any]], Row]] = {
    "swapped": ([{"rename": {"a": "b", "b": "a"}}], {"a": 20, "b": 10}),
    "made anew": ([{"drop": ["a"]}, {"add": [pa.field("a", pa.int64())]}], {"a": None, "b": 20}),
    "added": ([{"add": [pa.field("c", pa.int64())]}], {"a": 10, "b": 20, "c": None}),
    "widened": ([{"widen": {"a": pa.int64()}}], {"a": 10, "b": 20}),
    "renamed": ([{"rename": {"a": "c"}}], {"c": 10, "b": 20}),
}


@pytest.mark.parametrize("merged", [False, True])
@pytest.mark.parametrize("altered", ALTERATIONS)
def test_content_that_is_read_again_has_the_columns_of_the_changes(
    tmp_path: Path, altered: str, merged: bool
) -> None:
    """It is that of a token, at which columns of the same names may have been others."""
    table = weir.create(tmp_path / "t", NUMBERS, primary_key="id", fsync=False)
    with table.writer(flush_on_close=merged) as writer:
        writer.upsert([{"id": 1, "a": 10, "b": 20}])
    if merged:
        table.maintenance.merge()
    engine = Engine(table, {})
    engine.start()
    assert engine.begin()
    engine.crash()
    steps, expected = ALTERATIONS[altered]
    for step in steps:
        weir.open(table.uri, fsync=False).alter(**step)
    engine.table = weir.open(table.uri, fsync=False)
    engine.start()
    (row,) = engine.run()
    assert {name: row[name] for name in row if not name.startswith("_")} == {"id": 1, **expected}
    engine.done += 1
    (values,) = engine.table.scan().to_table().to_pylist()
    with engine.table.writer() as writer:
        writer.upsert([{**values, "id": 2}])
    ((row,),) = engine.batches()
    assert {name: row[name] for name in row if not name.startswith("_")} == {"id": 2, **expected}


@pytest.mark.parametrize("options", [{"schemaChange": "keep"}, {"columns": "id, value"}])
def test_rows_expire_by_their_column_whatever_it_is_called_by_now(
    tmp_path: Path, options: dict[str, str]
) -> None:
    day = timedelta(days=1)
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            ("at", pa.timestamp("us")),
            ("other", pa.timestamp("us")),
            ("value", pa.int64()),
        ]
    )
    table = weir.create(
        tmp_path / "t", schema, primary_key="id", fsync=False, expire_by="at", expire_after=day
    )
    engine = Engine(table, options)
    engine.start()
    assert engine.batches() == [[]]
    for old, new in (("at", "_"), ("other", "at"), ("_", "other")):
        change: Any = {"path": old, "name": new}
        lance.dataset(table.uri).alter_columns(change)
    now = datetime.now(UTC).replace(tzinfo=None)
    with weir.open(table.uri, fsync=False).writer() as writer:
        writer.upsert([{"id": 1, "other": now, "at": now - 99 * day}])
        writer.upsert([{"id": 2, "other": now - 99 * day, "at": now}])
    assert weir.open(table.uri, fsync=False).scan().to_table()["id"].to_pylist() == [1]
    assert [row["id"] for rows in engine.batches() for row in rows] == [1]
