"""Marked writes that are made in one go leave what they leave one by one, and each is done once."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import weir
from weir import Source
from weir.errors import BackpressureError, InputError
from weir.write.memtable.backpressure import UnflushedBytes

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", pa.int64())])


def rows(table: weir.Table) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = table.scan().to_table().sort_by("id").to_pylist()
    return found


@pytest.mark.parametrize("buckets", [1, 3])
def test_each_is_done_as_it_is_alone(tmp_path: Path, buckets: int) -> None:
    draw = random.Random(7)
    alone, together = (
        weir.create(
            tmp_path / name, SCHEMA, primary_key="id", shard_by=weir.bucket("id", buckets), fsync=False
        )
        for name in ("alone", "together")
    )
    with alone.writer() as one_by_one, together.writer() as at_once:
        for _ in range(8):
            writes = []
            for _ in range(draw.randint(1, 9)):
                number, count = draw.randint(0, 30), draw.randint(1, 4)
                # What a mark stands for follows from it.
                ids = random.Random(number).sample(range(12), count)
                kind = "delete" if number % 4 == 0 else "upsert"
                changes = pa.table({"id": ids, "v": [number] * count, "_op": [kind] * count})
                writes.append((changes, Source.once(f"{number} {count}")))
            expected = [one_by_one.apply(changes, source=source) for changes, source in writes]
            found = at_once.apply_each(
                pa.concat_tables([changes for changes, _ in writes]),
                [(changes.num_rows, source) for changes, source in writes],
            )
            assert [len(one.deduplicated) for one in found if isinstance(one, weir.WriteResult)] == [
                len(one.deduplicated) for one in expected
            ]
            assert rows(together) == rows(alone)


def test_what_depends_on_rows_or_belongs_to_no_write_is_refused(tmp_path: Path) -> None:
    table = weir.create(tmp_path / "t", SCHEMA, primary_key="id", fsync=False)
    change = pa.table({"id": [1], "v": [1]})
    with table.writer() as writer:
        with pytest.raises(InputError):
            writer.apply_each(change.append_column("_op", pa.array(["patch"])), [(1, Source.once("one"))])
        with pytest.raises(InputError):
            writer.apply_each(change, [])
        assert rows(table) == []


def test_one_write_waits_for_room_and_those_after_it_do_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = weir.Engine(unflushed_bytes=1 << 20, maintenance="off")
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", pa.binary())])
    table = engine.create(tmp_path / "t", schema, primary_key="id", fsync=False)
    # Nothing is flushed.
    monkeypatch.setattr(engine.executors.at("").flushes, "submit", lambda *_: None)
    refused: list[int] = []
    admit = UnflushedBytes.admit

    def counted(self: UnflushedBytes, nbytes: int, timeout: float | None = None) -> None:
        try:
            admit(self, nbytes, timeout)
        except BackpressureError:
            refused.append(nbytes)
            raise

    monkeypatch.setattr(UnflushedBytes, "admit", counted)
    changes = pa.table({"id": range(20), "v": [b"x" * (1 << 17)] * 20}, schema)
    writer = table.writer(backpressure_timeout=0.1, flush_on_close=False)
    outcomes = writer.apply_each(changes, [(1, Source.once(f"{number}")) for number in range(20)])
    done = [not isinstance(one, BackpressureError) for one in outcomes]
    assert done == sorted(done, reverse=True)
    assert 0 < sum(done) < 19
    # Of one write, by the limit of the engine within that of the writer.
    assert len(refused) == 2
    assert table.scan().count() == sum(done)
