"""Running many seeds in several processes."""

from __future__ import annotations

import faulthandler
import multiprocessing
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed

from tests.simulation.simulation import Report, simulate
from tests.simulation.substitution import substituted
from tests.simulation.time_limit import SEED_SECONDS

__all__ = ["run_seeds"]

_CHUNK = 50


def run_seeds(
    seeds: range, workers: int, kind: str | None = None, seconds: float = SEED_SECONDS
) -> Iterator[list[Report]]:
    """Yield the reports of some seeds, without their traces, in chunks as they are done.

    One that takes longer than ``seconds`` of real time is ended, and reported with where it stood.

    What runs in the other processes is in a module of its own: they cannot import the main module of a
    package.
    """
    chunks = [seeds[start : start + _CHUNK] for start in range(0, len(seeds), _CHUNK)]
    if workers < 2:
        yield from (_run_chunk(chunk, kind, seconds) for chunk in chunks)
        return
    # Unlike a pool of multiprocessing, it tells when a process has died, or cannot pass on what it found.
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        for chunk in as_completed([pool.submit(_run_chunk, chunk, kind, seconds) for chunk in chunks]):
            yield chunk.result()


def _run_chunk(seeds: range, kind: str | None, seconds: float) -> list[Report]:
    reports = []
    with substituted(alone=True):
        for seed in seeds:
            # Should it hang where no signal gets through, this says where, and ends the process.
            faulthandler.dump_traceback_later(2 * seconds, exit=True)
            reports.append(_without_trace(simulate(seed, kind=kind, seconds=seconds)))
    faulthandler.cancel_dump_traceback_later()
    return reports


def _without_trace(report: Report) -> Report:
    return Report(report.seed, report.violations, report.trace_hash, report.counts)
