"""Run simulations: ``make simulate SEEDS=50000``, or one seed and its trace: ``make simulate SEED=17``."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from tests.simulation.many_seeds import run_seeds
from tests.simulation.planted_bugs import PLANTED_BUGS
from tests.simulation.simulation import simulate
from tests.simulation.substitution import substituted
from tests.simulation.time_limit import SEED_SECONDS

_PROGRESS_SECONDS = 60.0


def main() -> int:
    """Run what the command line asks for; return 1 if an invariant did not hold."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=2000, help="how many seeds to run")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--workers", type=int, default=2, help="processes to run them in")
    parser.add_argument("--seed", type=int, help="run this seed alone, and show what happens")
    parser.add_argument("--bug", help="plant a bug whose name begins like this")
    parser.add_argument("--kind", help="run this kind of scenario, and not the one a seed chooses")
    parser.add_argument(
        "--long", action="store_true", help="with --seed: a long history, whatever it chooses"
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=SEED_SECONDS,
        help="after which a seed counts as hanging: more where others have the processors",
    )
    options = parser.parse_args()
    if options.seed is not None:
        return _show(options.seed, options.bug, options.kind, options.long or None)
    return _run(range(options.first, options.first + options.seeds), options)


def _show(seed: int, bug: str | None, kind: str | None, is_long: bool | None) -> int:
    with substituted():
        if bug is None:
            report = simulate(seed, kind=kind, is_long=is_long)
        else:
            planted = next(one for one in PLANTED_BUGS if one.name.startswith(bug))
            with planted.planted():
                report = simulate(seed, kind=kind, is_long=is_long)
    print("\n".join(report.trace))
    for violation in report.violations:
        print(violation)
    print(f"seed {seed}: {len(report.violations)} violations, trace {report.trace_hash}")
    return 1 if report.violations else 0


def _run(chosen: range, options: argparse.Namespace) -> int:
    seeds = len(chosen)
    began = told = time.monotonic()
    counts: Counter[str] = Counter()
    failed: list[int] = []
    done = 0
    for reports in run_seeds(chosen, options.workers, options.kind, options.seconds):
        for report in reports:
            done += 1
            counts.update(report.counts)
            if report.violations:
                failed.append(report.seed)
                print(f"\nseed {report.seed}: {report.violations[0]}", flush=True)
        now = time.monotonic()
        if sys.stdout.isatty() or now - told > _PROGRESS_SECONDS or done == seeds:
            told = now
            begin, end = ("\r", "") if sys.stdout.isatty() else ("", "\n")
            speed = done / (now - began)
            print(
                f"{begin}{done} of {seeds} seeds, {len(failed)} failed, {speed:.1f} per second",
                end=end,
                flush=True,
            )
    print()
    width = max(map(len, counts), default=0)
    for name, number in sorted(counts.items()):
        print(f"  {name:<{width}} {number:>12,}")
    print(f"{len(failed)} of {seeds} seeds broke an invariant")
    if failed:
        print(f"replay one with: make simulate SEED={failed[0]}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
