"""Marked writes that are made in one go leave what they leave one by one, and each is done once."""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import weir
from weir import Source
from weir.errors import BackpressureError, InputError, StorageError
from weir.storage.local import LocalStore
from weir.write.group_commit import GroupCommit, PendingWrite
from weir.write.memtable.backpressure import UnflushedBytes

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("v", pa.int64())])


def rows(table: weir.Table) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = table.scan().to_table().sort_by("id").to_pylist()
    return found


@pytest.mark.parametrize("buckets", [0, 1, 3])
def test_each_is_done_as_it_is_alone(tmp_path: Path, buckets: int) -> None:
    draw = random.Random(7)
    shard_by = weir.bucket("id", buckets) if buckets else None
    alone, together = (
        weir.create(tmp_path / name, SCHEMA, primary_key="id", shard_by=shard_by, fsync=False)
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
            results = [one for one in found if isinstance(one, weir.WriteResult)]
            assert [len(one.deduplicated) for one in results] == [len(one.deduplicated) for one in expected]
            assert [one.rows for one in results] == [one.rows for one in expected]
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


def numbered(numbers: Sequence[int]) -> tuple[pa.Table, list[tuple[int, Source]]]:
    """Return writes of one row each, whose marks and rows follow from their numbers."""
    changes = pa.table({"id": [number % 7 for number in numbers], "v": [*numbers]}, SCHEMA)
    return changes, [(1, Source.once(f"{number}")) for number in numbers]


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many pending writes shared each log entry so far."""
    sizes: list[int] = []
    init = GroupCommit.__init__

    def recording(self: GroupCommit, write: Any, **options: Any) -> None:
        def recorded(group: Sequence[PendingWrite]) -> Any:
            sizes.append(len(group))
            return write(group)

        init(self, recorded, **options)

    monkeypatch.setattr(GroupCommit, "__init__", recording)
    return sizes


def test_to_one_shard_they_are_one_write(tmp_path: Path, groups: list[int]) -> None:
    table = weir.create(tmp_path / "t", SCHEMA, primary_key="id", fsync=False)
    with table.writer() as writer:
        found = writer.apply_each(*numbered(range(40)))
        assert groups == [1]
        assert [one.rows for one in found if isinstance(one, weir.WriteResult)] == [1] * 40
        assert len({repr(one.positions) for one in found if isinstance(one, weir.WriteResult)}) == 1
        # One that is repeated has the others made one by one, in one entry still.
        again = writer.apply_each(*numbered([50, 3, 51]))
        assert groups == [1, 1, 3]
        assert [len(one.deduplicated) for one in again if isinstance(one, weir.WriteResult)] == [0, 1, 0]
        assert [writer.single_write(None, f"once:{number}") for number in (3, 50, 51, 52)] == [0, 0, 0, None]
        assert rows(table) == [{"id": id, "v": v} for id, v in enumerate([35, 50, 51, 38, 39, 33, 34])]


def test_many_threads_with_the_same_marks_do_each_write_once(tmp_path: Path) -> None:
    engine = weir.Engine(maintenance="off")
    table = engine.create(tmp_path / "t", SCHEMA, primary_key="id", fsync=False)
    begin = threading.Barrier(8)
    with table.writer(flush_on_close=False) as writer:

        def work(seed: int) -> int:
            draw, done = random.Random(seed), 0
            begin.wait()
            for _ in range(30):
                numbers = draw.sample(range(300), draw.randint(1, 12))
                for one in writer.apply_each(*numbered(numbers)):
                    assert isinstance(one, weir.WriteResult)
                    done += not one.deduplicated
            return done

        with ThreadPoolExecutor(8) as threads:
            done = sum(threads.map(work, range(8)))
        known = [number for number in range(300) if writer.single_write(None, f"once:{number}") is not None]
        assert done == len(known) == engine.metrics.log_rows.value()


def test_what_failed_or_seems_to_have_is_done_once_when_it_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = weir.create(tmp_path / "t", SCHEMA, primary_key="id", fsync=False)
    put = LocalStore.put_if_absent
    with table.writer() as writer:
        writer.apply_each(*numbered([0, 1]))
        for number, takes_effect in enumerate((False, True), start=1):
            numbers = [10 * number, 10 * number + 1]

            def fails(self: LocalStore, path: str, data: Any, takes_effect: bool = takes_effect) -> None:
                if takes_effect:
                    put(self, path, data)
                raise StorageError("the answer is lost", where=path)

            with monkeypatch.context() as patched:
                patched.setattr(LocalStore, "put_if_absent", fails)
                outcomes = writer.apply_each(*numbered(numbers))
            assert [type(one) for one in outcomes] == [StorageError] * 2
            again = writer.apply_each(*numbered(numbers))
            assert [bool(one.deduplicated) for one in again if isinstance(one, weir.WriteResult)] == [
                takes_effect
            ] * 2
        assert {row["v"] for row in rows(table)} >= {10, 11, 20, 21}


def test_a_table_that_is_sharded_meanwhile_has_each_once(tmp_path: Path) -> None:
    table = weir.create(tmp_path / "t", SCHEMA, primary_key="id", fsync=False)
    with table.writer() as writer:
        writer.apply_each(*numbered(range(5)))
        table.alter(shard_by=weir.bucket("id", 3))
        found = writer.apply_each(*numbered(range(10)))
        assert [bool(one.deduplicated) for one in found if isinstance(one, weir.WriteResult)] == [
            True
        ] * 5 + [False] * 5
        assert [row["v"] for row in rows(table)] == [7, 8, 9, 3, 4, 5, 6]
