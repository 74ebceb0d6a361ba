"""Run histories: ``python -m tests.conformance.differential --seeds 5000 --workers 2``."""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context

from tests.conformance.differential import worker
from tests.conformance.differential.history import find


def main() -> int:
    """Run the seeds that were asked for; 1 if one of them shows a difference."""
    parser = argparse.ArgumentParser(prog="tests.conformance.differential", description=__doc__)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=500)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--length", type=int, default=25)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--no-cut", action="store_true")
    options = parser.parse_args()
    if options.seed is not None:
        found = find(options.seed, options.length, cut=not options.no_cut)
        print(found or f"seed {options.seed}: no difference")
        return int(found is not None)
    began, done, failed = time.monotonic(), 0, 0
    seeds = range(options.first, options.first + options.seeds)
    # A process of the library's writers is not to be forked.
    with ProcessPoolExecutor(
        options.workers, mp_context=get_context("spawn"), initializer=worker.begin
    ) as pool:
        how = {"cut": not options.no_cut}
        for future in as_completed(
            [pool.submit(worker.find_and_collect, seed, options.length, **how) for seed in seeds]
        ):
            done += 1
            found = future.result()
            if found is not None:
                failed += 1
                print(found, flush=True)
            if done % 50 == 0:
                print(f"{done} histories, {failed} differ, {time.monotonic() - began:.0f} s", flush=True)
    print(f"{done} histories of {options.length} steps from seed {options.first}, {failed} differ")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
