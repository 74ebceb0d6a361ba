"""Tables that look after themselves."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

import weir
from tests.write.conftest import wait_until
from weir.engine.context import EngineContext
from weir.errors import LeaseHeldError, OptionError
from weir.maintenance.upkeep_lease import held_upkeep, read_upkeep_lease
from weir.storage.metered import MeteredStore
from weir.storage.open import open_store
from weir.table.maintenance import TableMaintenance
from weir.table.upkeep import Upkeep

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("value", pa.int64())])

EAGER = weir.UpkeepPolicy(
    merge=weir.MergePolicy(max_generations=2, min_share=100.0),
    compact_every=timedelta(milliseconds=1),
    collect_every=timedelta(milliseconds=1),
    horizon=timedelta(milliseconds=1),
    look_every=timedelta(seconds=0.5),
    max_share=1.0,
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


def tended_for(
    seconds: float, upkeep: Upkeep, now: list[float], monkeypatch: pytest.MonkeyPatch
) -> list[str]:
    """Let a clock go on that only waiting moves; return at which tables is looked in that time."""
    end, seen = now[0] + seconds, []

    def wait(remaining: float) -> None:
        now[0] = min(now[0] + remaining, end)
        if now[0] == end:
            raise TimeoutError

    monkeypatch.setattr(upkeep._changed, "wait", wait)
    with suppress(TimeoutError):
        while (tended := upkeep._next()) is not None:
            upkeep._tend(tended)
            seen.append(Path(tended.store.uri).name)
    return seen


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


def test_former_versions_go_if_the_policy_says_for_how_long(tmp_path: Path, make_engine: MakeEngine) -> None:
    engine = make_engine(replace(EAGER, merge=weir.MergePolicy(), version_retention=timedelta(seconds=0.2)))
    table = engine.create(tmp_path / "t", SCHEMA, primary_key="id", fsync=False)
    with table.writer() as writer:
        for turn in range(4):
            writer.upsert(rows(turn))
            writer.flush()
        wait_until(lambda: table.status().base_rows == 4)
        wait_until(lambda: len(lance.dataset(table.uri).versions()) == 1)
        assert table.scan().count() == 4


def test_former_versions_go_in_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that only waiting moves: every hour a merge, of which a collection five minutes later."""
    now, hour = [0.0], 3600.0
    context = EngineContext()
    policy = weir.UpkeepPolicy(
        merge=weir.MergePolicy(), version_retention=timedelta(hours=24), look_every=timedelta(days=30)
    )
    upkeep = Upkeep(context, policy, uptime=lambda: now[0])
    monkeypatch.setattr(upkeep, "_wake", lambda: None)
    made = weir.create(tmp_path / "t", rows(1), primary_key="id", fsync=False)
    store = MeteredStore(made.internals.store, context)
    retentions: list[tuple[float, timedelta | None]] = []
    report = made.maintenance.collect_garbage(dry_run=True)

    def collect(*_: object, version_retention: timedelta | None, **__: object) -> weir.GarbageReport:
        retentions.append((now[0] / hour, version_retention))
        return report

    monkeypatch.setattr(TableMaintenance, "collect_garbage", collect)

    upkeep.opened(store)
    for turn in range(12):
        made.upsert(rows(turn))
        made._kept.let_go()
        upkeep.changed(store)
        tended_for(hour, upkeep, now, monkeypatch)
    assert len(retentions) >= 12
    pruned = [at for at, retention in retentions if retention is not None]
    assert len(pruned) == 4
    # Of the last merge too, once it is a day old.
    tended_for(28 * hour, upkeep, now, monkeypatch)
    last, retention = retentions[-1]
    assert retention is not None
    assert last > 11 + 24
    assert context.metrics.upkeep_failures.value() == 0
    upkeep.stop()


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


# What happens in a process that writes, where nobody has said anything about upkeep.
WRITES = """
import sys, threading, time, weir, weir.engine.context
engine = weir.engine.context.default_context()
table = weir.open(sys.argv[1], fsync=False, **eval(sys.argv[2]))
table.upsert([{"id": 1, "value": 1}])
with table.writer() as writer:
    writer.upsert([{"id": 2, "value": 2}])
    writer.flush()
    give_up = time.monotonic() + 60
    while sys.argv[3] == "merged" and not engine.metrics.merges.value() and time.monotonic() < give_up:
        time.sleep(0.02)
threads = {one.name for one in threading.enumerate()}
print(engine.metrics.tended_tables.value(), "weir-upkeep" in threads)
"""


def run(
    python: list[str], program: str, *arguments: str, maintenance: str | None
) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "WEIR_MAINTENANCE"}
    if maintenance is not None:
        environment["WEIR_MAINTENANCE"] = maintenance
    command = [*python, program, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.one_in(2)
@pytest.mark.parametrize(
    ("maintenance", "options", "is_tended"),
    [
        (None, "{}", True),
        ("auto", "dict(maintenance='auto')", True),
        (None, "dict(maintenance='off')", False),
        ("off", "{}", False),
        (None, "dict(engine=weir.Engine(maintenance='off'))", False),
    ],
)
def test_tables_look_after_themselves_unless_told_otherwise(
    tmp_path: Path, weir_python: list[str], maintenance: str | None, options: str, is_tended: bool
) -> None:
    table = weir.create(tmp_path / "t", SCHEMA, primary_key="id", fsync=False)
    wanted = "merged" if is_tended else "nothing"
    ended = run(weir_python, WRITES, table.uri, options, wanted, maintenance=maintenance)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.strip() == ("1.0 True" if is_tended else "0.0 False")
    assert (table.status().base_rows > 0) is is_tended
    assert table.scan().count() == 2


def test_an_unknown_word_in_the_environment_is_refused(tmp_path: Path, weir_python: list[str]) -> None:
    table = weir.create(tmp_path / "t", SCHEMA, primary_key="id", fsync=False)
    ended = run(weir_python, WRITES, table.uri, "{}", "nothing", maintenance="always")
    assert ended.returncode == 1
    assert "WEIR_MAINTENANCE" in ended.stderr


ENDS_DURING_UPKEEP = """
import sys, threading, time, weir
from weir.storage.metered import MeteredStore
from weir.storage.open import open_store
from weir.table.maintenance import TableMaintenance
from weir.table.upkeep import Upkeep
steps, begun = [], threading.Event()
def step(number):
    begun.set()
    time.sleep(0.02)
    steps.append(number)
def merge(self, *, policy, runner):
    try:
        for _ in runner.run(step, range(100_000)):
            pass
    finally:
        print(len(steps) < 1_000, flush=True)
TableMaintenance.merge = merge
table = weir.open(sys.argv[1], fsync=False)
writer = table.writer()
writer.upsert([{"id": 1, "value": 1}])
writer.flush()
begun.wait(60)
sys.exit(3)
"""


def test_a_process_ends_though_its_tables_are_looked_after(tmp_path: Path) -> None:
    table = weir.create(tmp_path / "t", SCHEMA, primary_key="id", fsync=False)
    ended = run([sys.executable, "-c"], ENDS_DURING_UPKEEP, table.uri, maintenance="auto")
    assert (ended.returncode, ended.stdout, ended.stderr) == (3, "True\n", "")
    # Whoever comes next does not have to wait for it.
    with held_upkeep(table._table.store):
        pass
    assert table.scan().count() == 1


def test_upkeep_keeps_to_its_share_of_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that only work moves: after 8 s of it there are 24 of rest."""
    now = [0.0]
    context = EngineContext()
    upkeep = Upkeep(context, weir.UpkeepPolicy(max_share=0.25), uptime=lambda: now[0])
    monkeypatch.setattr(upkeep, "_wake", lambda: None)  # which would start its thread

    def work(tended: object, *_: object) -> float:
        now[0] += 8
        return now[0]

    monkeypatch.setattr(upkeep, "_round", work)
    monkeypatch.setattr(upkeep, "_is_at_rest", lambda *_: False)
    stores = [
        MeteredStore(
            weir.create(tmp_path / name, SCHEMA, primary_key="id", fsync=False).internals.store, context
        )
        for name in "ab"
    ]
    for store in stores:
        upkeep.opened(store)
    now[0] = 1.0
    begun: list[tuple[float, str]] = []
    monkeypatch.setattr(upkeep._changed, "wait", lambda seconds: now.__setitem__(0, now[0] + seconds))
    for _ in range(4):
        tended = upkeep._next()
        assert tended is not None
        begun.append((now[0], tended.store.uri[-1]))
        upkeep._tend(tended)
    assert begun == [(1, "a"), (33, "b"), (65, "a"), (97, "b")]
    upkeep.stop()


def test_looks_at_a_table_at_rest_get_rarer_and_write_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    context = EngineContext()
    policy = weir.UpkeepPolicy(look_every=timedelta(seconds=100))
    upkeep = Upkeep(context, policy, uptime=lambda: now[0])
    monkeypatch.setattr(upkeep, "_wake", lambda: None)
    monkeypatch.setattr(upkeep._changed, "wait", lambda seconds: now.__setitem__(0, now[0] + seconds))
    made = weir.create(tmp_path / "t", rows(1), primary_key="id", fsync=False)
    made.maintenance.merge()
    store = MeteredStore(made.internals.store, context)

    def look() -> float:
        tended = upkeep._next()
        assert tended is not None
        upkeep._tend(tended)
        return now[0]

    def writes() -> float:
        requests = context.metrics.storage_requests
        reads = ("get", "head", "list", "size")
        names = {dict(one.labels)["operation"] for one in requests.samples()}
        return sum(requests.value(name) for name in names if not name.startswith(reads))

    upkeep.opened(store)
    first = look()
    assert writes() > 0  # the lease
    before = writes()
    assert [look() - first for _ in range(6)] == [100, 300, 700, 1500, 2700, 3900]
    assert writes() == before
    # Something is flushed: it is looked at at once, and then as often as at the beginning.
    made.upsert(rows(2))
    made._kept.let_go()
    upkeep.changed(store)
    soon = look()
    assert soon - first == 3900.5
    assert made.status().base_rows == 2
    assert look() - soon == 100
    assert context.metrics.upkeep_failures.value() == 0
    upkeep.stop()


def test_of_many_tables_at_rest_only_one_that_is_written_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock that only waiting moves. Of 12 looks at each of the others 1 is left, after some hours."""
    now = [0.0]
    context = EngineContext()
    upkeep = Upkeep(context, weir.UpkeepPolicy(look_every=timedelta(seconds=100)), uptime=lambda: now[0])
    monkeypatch.setattr(upkeep, "_wake", lambda: None)
    made = weir.create(tmp_path / "0", rows(1), primary_key="id", fsync=False)
    made.maintenance.merge()
    places = [tmp_path / str(number) for number in range(20)]
    for place in places[1:]:
        shutil.copytree(places[0], place)
    stores = [MeteredStore(open_store(place, fsync=False), context) for place in places]
    for store in stores:
        upkeep.opened(store)

    def requests() -> float:
        samples = context.metrics.storage_requests.samples()
        return sum(sample.value for sample in samples if isinstance(sample.value, float))

    def looks_for(seconds: float) -> list[str]:
        return tended_for(seconds, upkeep, now, monkeypatch)

    assert len(looks_for(10_000)) > 5 * len(places)
    before = requests()
    assert sorted(looks_for(1200)) == sorted(place.name for place in places)
    # The shards, the newest manifest of one, whether another has followed, and the end of its log.
    assert requests() - before <= 4 * len(places)

    writer = weir.open(places[7], fsync=False)
    writer.upsert(rows(2))
    writer._kept.let_go()
    upkeep.changed(stores[7])
    assert looks_for(99) == ["7"]
    assert writer.status().base_rows == 2
    assert context.metrics.upkeep_failures.value() == 0
    upkeep.stop()


def test_off_is_off(tmp_path: Path, make_engine: MakeEngine) -> None:
    engine = make_engine("off")
    table = engine.create(tmp_path / "t", SCHEMA, primary_key="id", fsync=False)
    with table.writer() as writer:
        for _ in range(3):
            writer.upsert(rows(1))
            writer.flush()
    assert not [one for one in threading.enumerate() if one.name == "weir-upkeep"]
    assert read_upkeep_lease(table._table.store) is None


@pytest.mark.parametrize("maintenance", ["on", True, 0, 5])
def test_bad_options_are_refused(tmp_path: Path, maintenance: object) -> None:
    with pytest.raises(OptionError, match="maintenance"):
        weir.Engine(maintenance=maintenance)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="compact_every"):
        weir.UpkeepPolicy(compact_every=timedelta(0))
    with pytest.raises(OptionError, match="merge"):
        weir.UpkeepPolicy(merge=maintenance)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="version_retention is at least the horizon"):
        weir.UpkeepPolicy(version_retention=timedelta(minutes=1))
    for share in (0, -1, 1.5, True, "half"):
        with pytest.raises(OptionError, match="max_share"):
            weir.UpkeepPolicy(max_share=share)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="maintenance"):
        weir.open(tmp_path / "t", maintenance=maintenance)  # type: ignore[arg-type]


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


def test_what_a_dead_writer_left_is_merged(
    tmp_path: Path, make_engine: MakeEngine, weir_python: list[str]
) -> None:
    engine = make_engine(weir.UpkeepPolicy(merge=weir.MergePolicy(), look_every=timedelta(seconds=0.2)))
    table = engine.create(tmp_path / "t", SCHEMA, primary_key="id", shard_by=weir.identity("id"), fsync=False)
    died = subprocess.run([*weir_python, WRITES_AND_DIES, table.uri, "1", "2"], check=False)
    assert died.returncode == 1
    with table.writer() as writer:
        # Into another shard.
        writer.upsert(rows(3))
        wait_until(lambda: table.status().base_rows == 2)
    wait_until(lambda: table.status().base_rows == 3)


def test_a_backup_that_is_opened_in_the_place_of_the_table_is_looked_after(
    tmp_path: Path, make_engine: MakeEngine
) -> None:
    engine = make_engine(weir.UpkeepPolicy(merge=weir.MergePolicy()))
    table = engine.create(tmp_path / "t", SCHEMA, primary_key="id", fsync=False)
    table.upsert(rows(1))
    with table.writer() as writer:
        writer.flush()
    wait_until(lambda: table.status().base_rows == 1)
    backup = shutil.copytree(tmp_path / "t", tmp_path / "backup")
    (tmp_path / "t").rename(tmp_path / "former")
    backup.rename(tmp_path / "t")
    again = engine.open(tmp_path / "t", fsync=False)
    with again.writer(takeover=True) as writer:
        writer.upsert(rows(2))
        writer.flush()
        wait_until(lambda: again.status().base_rows == 2)


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
