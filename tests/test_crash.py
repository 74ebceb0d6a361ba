"""SIGKILL of a real process at every step of append, flush and merge (invariants I1, I3, I5, I6, I7)."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import weir
from tests.crashes import Acknowledged, kill_at, run, say
from weir.engine.context import default_context

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("value", pa.string())])

POINTS = [
    "wal.before_append",
    "wal.after_append",
    "claim.between_lease_and_epoch",
    "claim.between_epoch_and_fence",
    "flush.after_data",
    "flush.after_data@2",
    "flush.after_indexes",
    "flush.after_key_index",
    "flush.before_manifest",
    "flush.after_manifest",
    "flush.after_manifest@2",
    "merge.before_deletes",
    "merge.between_passes",
    "merge.before_commit",
    "merge.after_commit",
]


def write_and_merge(uri: str, start: int, count: int) -> None:
    """Upsert, overwrite and delete keys from ``start`` on; flush and merge in between."""
    table = weir.open(uri)
    with table.writer(max_memtable_rows=7) as writer:

        def write(key: int, value: str | None) -> None:
            say(trying=[key, value])
            if value is None:
                writer.delete([key])
            else:
                writer.upsert([{"id": key, "value": value}])
            say(acknowledged=[key, value])

        for n in range(start, start + count):
            write(n, f"first {n}")
            if n % 3 == 0:
                write(n, f"second {n}")
            if n % 5 == 0:
                write(n, None)
            if n % 10 == 9:
                writer.flush()
                table.maintenance.merge()


def check(table: weir.Table, expected: Acknowledged) -> None:
    """Compare what a strong reader without memory sees, in a scan and by key."""
    default_context().cache.clear()
    found = table.scan().to_table()
    seen = dict(zip(found.column("id").to_pylist(), found.column("value").to_pylist(), strict=True))
    assert len(seen) == found.num_rows, "a row is doubled"
    expected.check(seen)
    keys = list(range(40))
    got = table.get(keys)
    present = [key for key in keys if key in expected.rows]
    assert got.column("id").to_pylist() == present
    assert got.column("value").to_pylist() == [expected.rows[key] for key in present]


@pytest.mark.one_in(4)
@pytest.mark.parametrize("point", POINTS)
def test_killed_at(point: str, tmp_path: Path) -> None:
    uri = str(tmp_path / "table")
    table = weir.create(uri, SCHEMA, primary_key="id", fsync=False)
    expected = Acknowledged()
    expected.follow(kill_at(point, write_and_merge, uri, 0, 20).told)
    check(table, expected)
    # A second process recovers and is killed in the same place, if it gets there; a third finishes the work.
    expected.follow(run(write_and_merge, uri, 10, 10, kill_at=point).told)
    check(table, expected)
    expected.follow(run(write_and_merge, uri, 0, 20).told)
    check(table, expected)
    table.maintenance.merge()
    check(table, expected)
    status = table.status()
    assert (status.unflushed_rows, status.unmerged_rows) == (0, 0)
    # Everything is in the base table now, and only there.
    base = table.scan(consistency="snapshot").to_table()
    assert sorted(base.column("id").to_pylist()) == sorted(expected.rows)
