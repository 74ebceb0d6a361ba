"""Recovery: what dead writers have left is flushed, and whoever lives is left alone."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import weir
from tests.crashes import kill_at
from weir.errors import CorruptionError, FencedError
from weir.format import layout
from weir.maintenance.recover import RecoverReport

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("value", pa.string())])


class PicklingRunner:
    """Runs tasks as a cluster would: everything goes there and back as bytes."""

    def run(self, function: Callable[[Any], Any], tasks: Sequence[Any]) -> Iterator[Any]:
        for task in tasks:
            there, sent = pickle.loads(pickle.dumps((function, task)))
            yield pickle.loads(pickle.dumps(there(sent)))


@pytest.fixture
def table(tmp_path: Path) -> weir.Table:
    return weir.create(
        tmp_path / "table", SCHEMA, primary_key="id", shard_by=weir.bucket("id", 2), fsync=False
    )


def write_and_close(uri: str, first: int, end: int) -> None:
    with weir.open(uri, fsync=False).writer() as writer:
        writer.upsert([{"id": key, "value": "killed"} for key in range(first, end)])
        writer.delete([0])


def killed_writer(table: weir.Table, first: int, end: int) -> None:
    kill_at("flush.after_data", write_and_close, table.uri, first, end)


def rows_of(table: weir.Table, consistency: str = "strong") -> dict[int, str]:
    return {row["id"]: row["value"] for row in table.scan(consistency=consistency).to_table().to_pylist()}


def skipped(report: RecoverReport) -> list[str]:
    return [one.skipped for one in report.shards if one.skipped]


def test_what_a_killed_process_has_left_is_flushed_and_merged(table: weir.Table) -> None:
    killed_writer(table, 0, 50)
    assert table.maintenance.merge().generations == 0
    seen: list[tuple[int, int]] = []
    report = table.maintenance.recover(runner=PicklingRunner(), on_progress=lambda *at: seen.append(at))
    # The key that was deleted counts as a row: its tombstone is flushed.
    assert (report.recovered, report.rows, skipped(report)) == (2, 51, [])
    assert seen == [(1, 2), (2, 2)]
    status = table.status()
    assert [(shard.lease, shard.unflushed_rows) for shard in status.shards] == [("released", 0)] * 2
    table.maintenance.merge()
    assert rows_of(table, "snapshot") == rows_of(table) == dict.fromkeys(range(1, 50), "killed")
    assert table.maintenance.recover() == RecoverReport(())


def test_a_live_writer_is_left_alone(table: weir.Table) -> None:
    with table.writer() as writer:
        writer.upsert([{"id": key, "value": "alive"} for key in range(50)])
        epochs = writer.epochs
        report = weir.open(table.uri, fsync=False).maintenance.recover()
        assert (report.recovered, report.rows) == (0, 0)
        assert len(skipped(report)) == 2
        assert all("its lease is held since" in reason for reason in skipped(report))
        writer.upsert([{"id": 1, "value": "still alive"}])
        assert {shard.shard_id: shard.epoch for shard in table.status().shards} == epochs
    assert rows_of(table)[1] == "still alive"


def test_one_shard_is_dead_and_the_other_alive(table: weir.Table) -> None:
    killed_writer(table, 0, 50)
    with table.writer() as writer:
        writer.upsert([{"id": 1, "value": "alive"}])
        report = table.maintenance.recover()
        assert (report.recovered, len(skipped(report))) == (1, 1)
        writer.upsert([{"id": 1, "value": "still alive"}])
    assert rows_of(table) == {**dict.fromkeys(range(1, 50), "killed"), 1: "still alive"}


def test_a_writer_that_closed_without_a_flush(table: weir.Table) -> None:
    with table.writer(flush_on_close=False) as writer:
        writer.upsert([{"id": key, "value": "x"} for key in range(10)])
    assert table.status().unflushed_rows == 10
    assert table.maintenance.recover().rows == 10
    assert table.status().unflushed_rows == 0


def test_a_shard_without_a_lease_is_claimed_only_if_asked(table: weir.Table) -> None:
    writer = table.writer()
    writer.upsert([{"id": key, "value": "x"} for key in range(10)])
    for shard in table.status().shards:
        table.internals.store.delete([layout.lease_path(shard.shard_id)])
    report = table.maintenance.recover()
    assert (report.recovered, len(skipped(report))) == (0, 2)
    assert all("without a lease" in reason for reason in skipped(report))
    assert table.maintenance.recover(unleased=True).rows == 10
    with pytest.raises(FencedError):
        writer.upsert([{"id": key, "value": "late"} for key in range(10)])
    writer.close()
    assert rows_of(table) == dict.fromkeys(range(10), "x")


def test_a_shard_that_cannot_be_recovered_does_not_stop_the_others(table: weir.Table) -> None:
    killed_writer(table, 0, 50)
    damaged, sound = (shard.shard_id for shard in table.status().shards)
    before = rows_of(table)
    table.internals.store.put(layout.lease_path(damaged), b"{}")
    with pytest.raises(CorruptionError, match=str(damaged)):
        table.maintenance.recover()
    waiting = {shard.shard_id: shard.unflushed_rows for shard in table.status().shards}
    assert waiting[damaged] > 0
    assert waiting[sound] == 0
    assert rows_of(table) == before
