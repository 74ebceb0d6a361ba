"""What is replayed of a log, by Weir and by the library, where each takes over what the other has left.

The library's manifests may cover less of the log than its generations hold; and it refuses a log in which
generations go back, or one with more in a generation than its MemTable takes.
"""

from __future__ import annotations

import os
import subprocess
import textwrap
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import lance
import pyarrow as pa
from tests.conformance import library
from tests.conformance.differential.stored import log_of
from tests.conformance.tables import KINDS, Model
from tests.forked_program import weir_python

import weir
from weir.config import WriterOptions
from weir.engine.context import default_context

KIND = KINDS["int64"]
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False, metadata={"lance-schema:unenforced-primary-key": "true"}),
        pa.field("value", pa.int64()),
    ]
)


def lagging(place: Path, model: Model, begin: Callable[[], None] = lambda: None) -> uuid.UUID:
    """Make a table of which the library has flushed more than its manifest says, with a writer that died.

    ``begin`` is called before each change of the table.
    """
    library.make_table(place, KIND, unsharded=True)
    shard = uuid.uuid4()
    writer = lance.dataset(str(place)).mem_wal_writer(
        str(shard), max_wal_flush_interval_ms=1, max_memtable_batches=2
    )
    for number in range(40):
        begin()
        writer.put(model.upsert([KIND.keys[number % 6]]))
        begin()
        writer.delete(model.delete([KIND.keys[(number + 3) % 6]]))
        if number % 4 == 3:
            deadline = time.monotonic() + 20
            while writer.memtable_stats()["frozen_count"] and time.monotonic() < deadline:
                time.sleep(0.005)
            manifest = library.manifest_of(place, shard)
            if any(
                position > manifest.replay_after_wal_entry_position
                and generation is not None
                and generation < manifest.current_generation
                for position, generation, _ in log_of(place, shard)
            ):
                library._opened.append(writer)
                return shard
    raise AssertionError("the library's manifests cover all that it has flushed")


def check(place: Path, model: Model, table: weir.Table) -> None:
    model.check(table.scan().to_table())
    asked = KIND.key_table(KIND.keys)
    assert table.get(asked).to_pylist() == [row for key in KIND.keys for row in model.at(key)]
    default_context().cache.clear()
    model.check(weir.open(place, fsync=False).scan().to_table())


def test_what_the_library_has_flushed_is_not_replayed(tmp_path: Path) -> None:
    model, place = Model(KIND), tmp_path / "t"
    lagging(place, model)
    table = weir.open(place, fsync=False)
    check(place, model, table)
    (status,) = weir.open(place, fsync=False).status().shards
    assert status.unflushed_rows == 0
    token = table.snapshot()
    table.maintenance.merge()
    check(place, model, table)

    # A change of the base table is newer than all that is merged.
    changed = KIND.keys[:8]
    base = lance.dataset(str(place))
    upsert = base.merge_insert(list(KIND.key_columns))
    upsert.when_matched_update_all().when_not_matched_insert_all().execute(model.upsert(changed))
    check(place, model, table)
    with table.writer() as writer:
        writer.upsert(model.upsert(KIND.keys[9:10]))
        check(place, model, table)
    table.maintenance.merge()
    check(place, model, table)
    model.check(lance.dataset(str(place)).to_table())
    assert table.scan(at=token).count() <= 6


def test_a_reader_that_follows_the_log_does_not_take_what_was_flushed_for_a_tail(tmp_path: Path) -> None:
    model, place = Model(KIND), tmp_path / "t"
    readers: list[weir.Table] = []

    def begin() -> None:
        if library.shards_of(place):
            readers.append(weir.open(place, fsync=False))
            readers[-1].scan().count()

    lagging(place, model, begin)
    weir.open(place, fsync=False).maintenance.merge()
    # Plain Lance writes every key: nothing that was in the log is newer, whatever a reader knew of it before.
    base = lance.dataset(str(place))
    upsert = base.merge_insert(list(KIND.key_columns)).when_matched_update_all()
    upsert.when_not_matched_insert_all().execute(model.upsert(KIND.keys[:6]))
    assert readers
    for reader in readers:
        # This looks at the newest manifest before the log.
        reader.internals.reader.take_newest()
        model.check(reader.scan().to_table())


def test_the_feed_has_every_entry_once_and_the_rows_before(tmp_path: Path) -> None:
    model, place = Model(KIND), tmp_path / "t"
    lagging(place, model)
    table = weir.open(place, fsync=False)
    rows = [row for batch in table.changes(before=True) for row in batch.rows.to_pylist()]
    state: dict[object, object] = {}
    for row in rows:
        key = row["key0"]
        before = row["_before"]
        assert (before and {name: before[name] for name in KIND.schema.names}) == state.get(key), row
        if row["_op"] == "delete":
            state.pop(key, None)
        else:
            state[key] = {name: row[name] for name in KIND.schema.names}
    assert state == {key[0]: row for key, row in model.rows.items()}


PROGRAM = """
import os, sys
import pyarrow as pa
import weir
from weir.write.memtable.memtable_set import MemTables

if sys.argv[2] == "no flush":
    MemTables._start_flush = lambda self: None
table = weir.open(sys.argv[1], fsync=False)
writer = table.writer(takeover=True, max_frozen_memtables=99)
for count in map(int, sys.argv[3:]):
    start = getattr(table, "started", 0)
    writer.upsert(pa.table({"id": range(start, start + count), "value": [count] * count}))
    table.started = start + count
os._exit(0)
"""


def dies(place: Path, *counts: int, flush: bool = False) -> None:
    """Have a process upsert so many rows in each call, and die."""
    arguments = [str(place), "flush" if flush else "no flush", *map(str, counts)]
    program = [*weir_python(), textwrap.dedent(PROGRAM), *arguments]
    subprocess.run(program, check=True, env=dict(os.environ))


def taken_over(place: Path, rows: int) -> None:
    """Have the library take the shard over, write, flush; and compare."""
    (shard,) = library.shards_of(place)
    theirs = library.open_writer(place, shard)
    theirs.put(pa.table({"id": [-1], "value": [-1]}, schema=SCHEMA))
    theirs.close()
    assert library.scan(place).num_rows == rows + 1
    assert weir.open(place, fsync=False).scan().count() == rows + 1


def make(place: Path, **options: object) -> None:
    dataset = lance.write_dataset(SCHEMA.empty_table(), str(place))
    dataset.initialize_mem_wal(unsharded=True, **options)  # type: ignore[arg-type]


def test_the_library_takes_over_what_a_dead_writer_and_its_successor_left(tmp_path: Path) -> None:
    place = tmp_path / "t"
    make(place, max_memtable_rows=10)
    dies(place, 4, 4, 4)
    dies(place, 4, 4, 4, 4)
    taken_over(place, 16)


def test_a_call_with_more_rows_than_a_memtable_takes_has_one_to_itself(tmp_path: Path) -> None:
    place = tmp_path / "t"
    make(place, max_memtable_rows=100, max_memtable_batches=10)
    dies(place, 60, 350, 60, *[1] * 25, 99, 1, 2)
    taken_over(place, 60 + 350 + 60 + 25 + 99 + 1 + 2)


def test_a_log_written_with_defaults_is_taken_over_with_defaults(tmp_path: Path) -> None:
    assert WriterOptions().max_memtable_rows == 100_000
    assert WriterOptions().max_memtable_entries == 8_000
    place = tmp_path / "t"
    weir.create(place, SCHEMA, primary_key="id", fsync=False)
    dies(place, 10, 99_999, 100_001, 5, flush=True)
    taken_over(place, 10 + 99_999 + 100_001 + 5)
