"""Tables that look after themselves."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import weir
from tests.write.conftest import wait_until
from weir.errors import LeaseHeldError, OptionError
from weir.maintenance.upkeep_lease import held_upkeep, read_upkeep_lease
from weir.table.maintenance import TableMaintenance

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("value", pa.int64())])

EAGER = weir.UpkeepPolicy(
    merge=weir.MergePolicy(max_generations=2, min_share=100.0),
    compact_every=timedelta(milliseconds=1),
    collect_every=timedelta(milliseconds=1),
    horizon=timedelta(milliseconds=1),
    look_every=timedelta(seconds=0.5),
)

MakeEngine = Callable[..., weir.Engine]


@pytest.fixture
def make_engine() -> Iterator[MakeEngine]:
    made: list[weir.Engine] = []

    def make(maintenance: weir.UpkeepPolicy | str = EAGER) -> weir.Engine:
        made.append(weir.Engine(maintenance=maintenance))
        return made[-1]

    yield make
    for engine in made:
        engine.close()


def rows(*ids: int, value: int = 0) -> list[dict[str, int]]:
    return [{"id": one, "value": value} for one in ids]


def test_what_is_written_is_merged_compacted_and_collected(tmp_path: Path, make_engine: MakeEngine) -> None:
    engine = make_engine()
    table = engine.create(tmp_path / "t", SCHEMA, primary_key="id", fsync=False)
    model: dict[int, int] = {}
    with table.writer() as writer:
        for turn in range(4):
            changed = dict.fromkeys(range(turn * 5, turn * 5 + 8), turn)
            writer.upsert(rows(*changed, value=turn))
            model |= changed
            writer.flush()
            assert table.scan(columns=["id"]).count() == len(model)
        wait_until(lambda: sum(one.unmerged_generations for one in table.status().shards) == 0)
        wait_until(lambda: not list((tmp_path / "t" / "_mem_wal").glob("*/*_gen_*")))
    found = {row["id"]: row["value"] for row in table.scan().to_table().to_pylist()}
    assert found == model
    assert engine.metrics.upkeep_rounds.value() > 0
    assert engine.metrics.upkeep_failures.value() == 0
    assert table.maintenance.verify().findings == ()


def test_few_generations_wait_for_more(tmp_path: Path, make_engine: MakeEngine) -> None:
    engine = make_engine()
    table = engine.create(tmp_path / "t", SCHEMA, primary_key="id", fsync=False)
    with weir.open(table.uri, fsync=False).writer() as elsewhere:
        elsewhere.upsert(rows(*range(10)))
    table.maintenance.merge()
    with table.writer() as writer:
        writer.upsert(rows(1))
        writer.flush()
        seen = engine.metrics.upkeep_rounds.value()
        wait_until(lambda: engine.metrics.upkeep_rounds.value() >= seen + 2)
        assert [one.unmerged_generations for one in table.status().shards] == [1]


def test_off_is_off(tmp_path: Path, make_engine: MakeEngine) -> None:
    engine = make_engine("off")
    table = engine.create(tmp_path / "t", SCHEMA, primary_key="id", fsync=False)
    with table.writer() as writer:
        for _ in range(3):
            writer.upsert(rows(1))
            writer.flush()
    assert not [one for one in threading.enumerate() if one.name == "weir-upkeep"]
    assert read_upkeep_lease(table._table.store) is None


@pytest.mark.parametrize("maintenance", ["on", True, None, 5])
def test_bad_options_are_refused(maintenance: object) -> None:
    with pytest.raises(OptionError, match="maintenance"):
        weir.Engine(maintenance=maintenance)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="compact_every"):
        weir.UpkeepPolicy(compact_every=timedelta(0))
    with pytest.raises(OptionError, match="merge"):
        weir.UpkeepPolicy(merge=maintenance)  # type: ignore[arg-type]


def test_one_engine_at_a_time_looks_after_a_table(tmp_path: Path, make_engine: MakeEngine) -> None:
    engine = make_engine()
    table = engine.create(tmp_path / "t", SCHEMA, primary_key="id", fsync=False)
    with held_upkeep(table._table.store):
        with pytest.raises(LeaseHeldError), held_upkeep(table._table.store):
            pass
        with table.writer() as writer:
            for _ in range(3):
                writer.upsert(rows(1))
                writer.flush()
            lease = read_upkeep_lease(table._table.store)
            assert lease is not None
            assert not lease.released
            # It comes by, finds the lease taken, and goes again.
            wait_until(lambda: engine._upkeep is not None and engine._upkeep.turned_away > 0)
            assert sum(one.unmerged_generations for one in table.status().shards) == 3
    wait_until(lambda: sum(one.unmerged_generations for one in table.status().shards) == 0)


WRITES_AND_DIES = """
import os, sys, weir
writer = weir.open(sys.argv[1], fsync=False).writer()
writer.upsert([{"id": int(key), "value": 9} for key in sys.argv[2:]])
os._exit(1)
"""


def test_what_a_dead_writer_left_is_merged(tmp_path: Path, make_engine: MakeEngine) -> None:
    engine = make_engine(weir.UpkeepPolicy(merge=weir.MergePolicy(), look_every=timedelta(seconds=0.2)))
    table = engine.create(tmp_path / "t", SCHEMA, primary_key="id", shard_by=weir.identity("id"), fsync=False)
    died = subprocess.run([sys.executable, "-c", WRITES_AND_DIES, table.uri, "1", "2"], check=False)
    assert died.returncode == 1
    with table.writer() as writer:
        # Into another shard.
        writer.upsert(rows(3))
        wait_until(lambda: table.status().base_rows == 2)
    wait_until(lambda: table.status().base_rows == 3)


def test_a_failure_is_logged_and_tried_again(
    tmp_path: Path, make_engine: MakeEngine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    engine = make_engine(weir.UpkeepPolicy(merge=weir.MergePolicy()))
    table = engine.create(tmp_path / "t", SCHEMA, primary_key="id", fsync=False)
    failures = iter([weir.errors.StorageError("no route to the store")])

    def fails_once(self: TableMaintenance, **options: Any) -> object:
        for failure in failures:
            raise failure
        return merge(self, **options)

    merge = TableMaintenance.merge
    monkeypatch.setattr(TableMaintenance, "merge", fails_once)
    with caplog.at_level(logging.WARNING), table.writer() as writer:
        writer.upsert(rows(1))
        writer.flush()
        wait_until(lambda: table.status().base_rows == 1)
    assert engine.metrics.upkeep_failures.value() == 1
    assert "upkeep.failed" in caplog.text


def test_idle_tables_ask_nothing_of_the_store(tmp_path: Path, make_engine: MakeEngine) -> None:
    engine = make_engine(weir.UpkeepPolicy())
    tables = [engine.create(tmp_path / str(one), SCHEMA, primary_key="id", fsync=False) for one in range(5)]
    writers = [table.writer() for table in tables]
    wait_until(lambda: engine.metrics.upkeep_rounds.value() == 5)

    def requests() -> float:
        metrics = engine.metrics.storage_requests
        return sum(sample.value for sample in metrics.samples() if isinstance(sample.value, float))

    before = requests()
    threading.Event().wait(1.5)
    assert requests() == before
    assert engine.metrics.tended_tables.value() == 5
    for writer in writers:
        writer.close()


def test_a_dropped_table_is_let_go(tmp_path: Path, make_engine: MakeEngine) -> None:
    engine = make_engine()
    table = engine.create(tmp_path / "t", SCHEMA, primary_key="id", fsync=False)
    with table.writer() as writer:
        writer.upsert(rows(1))
    assert engine.metrics.tended_tables.value() == 1
    weir.drop(table.uri)
    wait_until(lambda: engine.metrics.tended_tables.value() == 0)
    assert not (tmp_path / "t" / "_weir").exists()


def test_closing_an_engine_ends_its_upkeep(tmp_path: Path, make_engine: MakeEngine) -> None:
    engine = make_engine()
    table = engine.create(tmp_path / "t", SCHEMA, primary_key="id", fsync=False)
    with table.writer() as writer:
        writer.upsert(rows(1))
        engine.close()
        assert not [one for one in threading.enumerate() if one.name == "weir-upkeep"]
        writer.upsert(rows(2))
    assert table.scan().count() == 2
