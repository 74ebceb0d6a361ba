"""Commits that others get in the way of: with a mark they are made again, and nothing is written twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.spark.sink_kit import contents, create, marks
from tests.spark.test_kept_writers import commit as commit_kept
from tests.spark.test_sink import batch, commit, task

import weir
from weir.errors import FencedError
from weir.format.source import Source
from weir.log.wal import Wal
from weir.spark import sink
from weir.spark.kept_writers import KeptWriters
from weir.spark.write_options import WriteOptions
from weir.storage.interface import Bytes
from weir.write.table_writer import TableWriter

KEYS = range(20)


def written(table: weir.Table) -> Counter[tuple[int, str]]:
    """Return how often each row has been written, by what the log has."""
    feed = weir.open(table.uri).changes(since="earliest")
    return Counter((row["id"], row["value"]) for change in feed for row in change.rows.to_pylist())


@contextmanager
def at_append(number: int, do: Callable[[], object]) -> Iterator[None]:
    """Do something once, before the log entry with this number; those that come of it do not count."""
    original, reached = Wal.append, 0

    def append(wal: Wal, position: int, data: Sequence[Bytes]) -> None:
        nonlocal reached
        reached += 1
        if reached == number:
            do()
        original(wal, position, data)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Wal, "append", append)
        yield
    assert reached >= number


@pytest.fixture
def attempts(monkeypatch: pytest.MonkeyPatch) -> list[TableWriter]:
    """The writer of every attempt of a commit."""
    begun: list[TableWriter] = []
    original = TableWriter.apply_routed

    def apply_routed(writer: TableWriter, *arguments: object, **options: object) -> object:
        begun.append(writer)
        return original(writer, *arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(TableWriter, "apply_routed", apply_routed)
    return begun


FENCES = 2
"""A writer of two shards that is new appends so many entries before its rows."""


@pytest.mark.parametrize("kind", ["micro-batch", "batch"])
def test_two_drivers_of_one_source_fence_each_other(
    tmp_path: Path, attempts: list[TableWriter], kind: str
) -> None:
    """The second has the name of the first, and so takes its leases over while that one is about to write."""
    table = create(tmp_path, shards=2)
    source = Source("orders", 7)

    def drive(value: str) -> None:
        rows = task(table, batch(*KEYS, value=value))
        if kind == "micro-batch":
            commit(table, 0, rows)
            return
        options = WriteOptions.parse({"path": table.uri})
        sink.commit(table, [rows], source, options, holder="spark/orders", flush=True)

    with at_append(FENCES + 1, lambda: drive("second")):
        drive("first")
    # The first, the second, and the first once more, which finds what it would write.
    assert len(attempts) == 3
    assert set(contents(table)) == set(KEYS)
    assert set(written(table).values()) == {1}
    assert {key for key, _ in written(table)} == set(KEYS)
    assert len(written(table)) == len(KEYS)
    assert set(marks(table).values()) <= {1}
    assert not table.maintenance.verify().findings


def test_two_drivers_on_one_checkpoint_at_once(tmp_path: Path) -> None:
    table = create(tmp_path, shards=2)
    batches = 5

    def drive() -> None:
        kept = KeptWriters()
        for number in range(batches):
            commit_kept(kept, table, number, task(table, batch(*KEYS, value=str(number))))

    with ThreadPoolExecutor(2) as pool:
        for running in [pool.submit(drive), pool.submit(drive)]:
            running.result(timeout=120)
    assert contents(table) == dict.fromkeys(KEYS, str(batches - 1))
    # Whoever was first: no batch is in a shard twice, and none comes after a later one.
    assert set(written(table).values()) == {1}
    assert set(marks(table).values()) == {1}
    assert len(marks(table)) == batches * 2
    assert not table.maintenance.verify().findings


def test_a_commit_without_a_mark_that_is_fenced_is_not_made_again(
    tmp_path: Path, attempts: list[TableWriter]
) -> None:
    table = create(tmp_path, shards=2)
    options = WriteOptions.parse({"path": table.uri})

    def other() -> None:
        with weir.open(table.uri).writer(takeover=True) as writer:
            writer.upsert([{"id": key, "value": "other"} for key in KEYS])

    with at_append(FENCES + 1, other), pytest.raises(FencedError):
        sink.commit(table, [task(table, batch(*KEYS, value="ours"))], None, options, holder=None, flush=True)
    assert len(attempts) == 1
    assert set(written(table).values()) == {1}
    assert not table.maintenance.verify().findings


def test_a_commit_without_a_mark_writes_nothing_while_one_of_its_shards_is_held(
    tmp_path: Path, attempts: list[TableWriter]
) -> None:
    """It is made again, and may be: the shard that is free has none of its rows yet."""
    table = create(tmp_path, shards=2)
    options = WriteOptions.parse({"path": table.uri})
    rows = task(table, batch(*KEYS, value="ours"))
    assert len(rows.pieces) == 2
    with ThreadPoolExecutor(1) as pool:
        with weir.open(table.uri, engine=weir.Engine()).writer() as foreign:
            foreign.upsert([{"id": 1, "value": "theirs"}])
            waiting = pool.submit(sink.commit, table, [rows], None, options, holder=None, flush=True)
            with pytest.raises(TimeoutError):
                waiting.result(timeout=2)
            assert len(attempts) > 1
            foreign.upsert([{"id": 1, "value": "still theirs"}])
            assert set(written(table)) == {(1, "theirs"), (1, "still theirs")}
        waiting.result(timeout=60)
    ours = {(key, "ours") for key in KEYS}
    assert written(table) == dict.fromkeys(ours | {(1, "theirs"), (1, "still theirs")}, 1)
    assert contents(table) == dict.fromkeys(KEYS, "ours")
    assert not table.maintenance.verify().findings
