"""Every invariant, over thousands of simulated histories of one table."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.simulation.many_seeds import run_seeds
from tests.simulation.planted_bugs import PLANTED_BUGS
from tests.simulation.simulation import simulate
from tests.simulation.substitution import substituted
from tests.simulation.world import World

from weir.engine.context import default_context
from weir.write.memtable.aging import FlushByAge

_SEEDS = 2000
_STAGING_SEEDS = 100
_DECIDING_SEEDS = 60
_WAVES_SEEDS = 40
_COMPACTING_SEEDS = 40
_POWER_SEEDS = 40
_ENGINE_SEEDS = 40
_CHUNK = 50
_ALWAYS = 300
"""Seeds that are run with the tests that do not take long."""
_SHARE = 5
"""One in so many of the seeds is run with the tests that do not take long."""
_ROOT = Path(__file__).resolve().parents[2]


def _firsts(seeds: int, chunk: int) -> list[Any]:
    """Return where the chunks of some seeds begin, marked as long but for a share of them."""
    return [
        first if first < seeds // _SHARE else pytest.param(first, marks=pytest.mark.long)
        for first in range(0, seeds, chunk)
    ]


@pytest.mark.long
@pytest.mark.parametrize("first", range(_ALWAYS, _SEEDS, _CHUNK))
def test_invariants_hold(first: int) -> None:
    with substituted():
        for seed in range(first, first + _CHUNK):
            report = simulate(seed)
            assert not report.violations, f"make simulate SEED={seed}\n{report.violations[0]}"


@pytest.mark.parametrize("first", _firsts(_STAGING_SEEDS, _STAGING_SEEDS // _SHARE))
def test_invariants_hold_where_generations_are_staged(first: int) -> None:
    with substituted():
        for seed in range(first, first + _STAGING_SEEDS // _SHARE):
            report = simulate(seed, kind="staging")
            assert not report.violations, f"--kind staging --seed {seed}\n{report.violations[0]}"


@pytest.mark.parametrize("first", _firsts(_WAVES_SEEDS, _WAVES_SEEDS // _SHARE))
def test_invariants_hold_where_merges_are_done_in_waves(first: int) -> None:
    merged = 0
    with substituted():
        for seed in range(first, first + _WAVES_SEEDS // _SHARE):
            report = simulate(seed, kind="merging in waves")
            assert not report.violations, f"--kind 'merging in waves' --seed {seed}\n{report.violations[0]}"
            merged += report.counts.get("merges in waves", 0)
    assert merged > _WAVES_SEEDS // _SHARE // 4


@pytest.mark.parametrize("first", _firsts(_DECIDING_SEEDS, _DECIDING_SEEDS // _SHARE))
def test_invariants_hold_where_writes_depend_on_the_rows_there_are(first: int) -> None:
    left_out = 0
    with substituted():
        for seed in range(first, first + _DECIDING_SEEDS // _SHARE):
            report = simulate(seed, kind="deciding")
            assert not report.violations, f"--kind deciding --seed {seed}\n{report.violations[0]}"
            left_out += report.counts["rows left out"]
    assert left_out > 5


@pytest.mark.parametrize("first", _firsts(_COMPACTING_SEEDS, _COMPACTING_SEEDS // _SHARE))
def test_invariants_hold_where_the_base_table_is_compacted(first: int) -> None:
    # One in five compacts anything at all: that some do is asked of the hundred seeds of all kinds.
    with substituted():
        for seed in range(first, first + _COMPACTING_SEEDS // _SHARE):
            report = simulate(seed, kind="compacting")
            assert not report.violations, f"--kind compacting --seed {seed}\n{report.violations[0]}"


@pytest.mark.parametrize("first", _firsts(_ENGINE_SEEDS, _ENGINE_SEEDS // _SHARE))
def test_invariants_hold_where_versions_come_to_something(first: int) -> None:
    merged = 0
    with substituted():
        for seed in range(first, first + _ENGINE_SEEDS // _SHARE):
            report = simulate(seed, kind="with a merge engine")
            assert not report.violations, (
                f"--kind 'with a merge engine' --seed {seed}\n{report.violations[0]}"
            )
            merged += report.counts.get("generations merged", 0)
    assert merged


@pytest.mark.parametrize("first", _firsts(_POWER_SEEDS, _POWER_SEEDS // _SHARE))
def test_invariants_hold_where_the_power_is_cut(first: int) -> None:
    lost = 0
    with substituted():
        for seed in range(first, first + _POWER_SEEDS // _SHARE):
            report = simulate(seed, kind="losing power")
            assert not report.violations, f"--kind 'losing power' --seed {seed}\n{report.violations[0]}"
            lost += report.counts.get("objects lost with the power", 0)
    assert lost


def test_other_threads_of_the_process_go_on_as_they_are() -> None:
    """What earlier tests have left to be flushed by age is no part of a simulation, and not held up by it."""
    flushed = threading.Event()

    class Writer:
        def flush_aged(self, position: int) -> bool:
            flushed.set()
            return True

    writer = Writer()
    with ThreadPoolExecutor(1) as other, substituted():
        aging = other.submit(FlushByAge).result()
        other.submit(aging.watch, writer, 1, seconds=0.2).result()
        for seed in range(300):
            simulate(seed)
            if flushed.is_set():
                break
    assert flushed.is_set()


def test_invariants_hold_while_everything_happens() -> None:
    """No part of the simulation has gone to sleep: three hundred seeds do all that there is to do."""
    counts: Counter[str] = Counter()
    with substituted():
        for seed in range(_ALWAYS):
            report = simulate(seed)
            assert not report.violations, f"make simulate SEED={seed}\n{report.violations[0]}"
            counts.update(report.counts)
    assert [name for name in _HAPPENS if not counts[name]] == []


_HAPPENS = (
    "batches of changes",
    "bounded read",
    "claims failed",
    "claims refused because of a lease",
    "collections",
    "damaged entries refused",
    "flushes failed",
    "fragments compacted",
    "generations merged",
    "invalid writes refused",
    "log entries collected",
    "looks back",
    "manifests without a record of marks",
    "marked writes acknowledged",
    "marked writes passed over",
    "merges in waves",
    "objects lost with the power",
    "places of consumers committed",
    "power cuts",
    "read at a token",
    "rows left out",
    "shard manifests collected",
    "snapshot read",
    "snapshot tokens",
    "staged generations published",
    "strong read",
    "times that hours went by",
    "updates by hand",
    "wall clocks set wrong",
    "writes acknowledged",
    "writes in doubt",
    "writes refused",
)


def test_a_seed_replays_exactly() -> None:
    with substituted():
        first = [simulate(seed).trace for seed in range(10)]
        again = [simulate(seed).trace for seed in range(10)]
    assert first == again
    assert len(set(first)) == 10


def test_nothing_of_the_real_process_gets_in() -> None:
    """What Weir keeps once per process is of the simulated process, whatever has used it before."""
    with substituted():
        before = [simulate(seed).trace_hash for seed in range(10)]
    real = default_context()
    list(real.executors.at("").scans.map(abs, range(8)))
    real.throttle.last_foreground = time.monotonic()
    real.cache.clear()
    with substituted():
        assert [simulate(seed).trace_hash for seed in range(10)] == before
    assert default_context() is real
    assert real.cache.nbytes == 0


def test_a_seed_that_fails_replays_exactly() -> None:
    bug = next(one for one in PLANTED_BUGS if one.name == "tombstones are shown")
    with substituted(), bug.planted():
        failed = next(report for seed in range(100) if (report := simulate(seed)).violations)
        again = simulate(failed.seed)
    assert again.trace == failed.trace
    assert list(map(str, again.violations)) == list(map(str, failed.violations))


def test_a_seed_that_hangs_says_where(monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(world: World) -> None:
        while True:
            world.hurried = 0

    monkeypatch.setattr(World, "set_up", endless)
    with substituted():
        violations = simulate(0, seconds=0.5).violations
    assert "TookTooLongError" in str(violations[0])
    assert "in endless" in str(violations[0])


def test_a_report_gets_to_another_process() -> None:
    bug = next(one for one in PLANTED_BUGS if one.name == "tombstones are shown")
    with substituted(), bug.planted():
        report = next(report for seed in range(100) if (report := simulate(seed)).violations)
    passed_on = pickle.loads(pickle.dumps(report))
    assert list(map(str, passed_on.violations)) == list(map(str, report.violations))


def test_a_seed_replays_exactly_in_another_process() -> None:
    code = """
from tests.simulation.simulation import simulate
from tests.simulation.substitution import substituted
with substituted():
    print(*[simulate(seed).trace_hash for seed in range(4)])
"""
    # Sets of text are iterated in another order with every hash seed.
    hashes = {
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=_ROOT,
            env={"PYTHONPATH": f"{_ROOT}:{_ROOT / 'src'}", "PYTHONHASHSEED": hash_seed},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(hashes) == 1


@pytest.mark.long
def test_other_processes_report_the_same() -> None:
    with substituted():
        here = {seed: simulate(seed).trace_hash for seed in range(4)}
    there = {report.seed: report.trace_hash for reports in run_seeds(range(4), 2) for report in reports}
    assert there == here
