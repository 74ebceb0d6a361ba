"""Kill processes for long: ``make faults ROUNDS=200``."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.faults.killing import CAST, Killing, killing_on_s3


def main() -> int:
    """Play rounds; return 1, and leave the table, if one of them broke a promise."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--rounds", type=int, default=200, help="how many rounds to play")
    parser.add_argument("--seed", type=int, default=1, help="chooses what the processes do")
    parser.add_argument("--s3", action="store_true", help="on an S3 endpoint that stumbles, not on files")
    options = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="weir-faults-"))
    if options.s3:
        with killing_on_s3(directory, options.seed) as killing:
            return _play(killing, options)
    return _play(Killing(directory, options.seed), options)


def _play(killing: Killing, options: argparse.Namespace) -> int:
    began = time.monotonic()
    try:
        for done in range(1, options.rounds + 1):
            killing.play()
            if sys.stdout.isatty() or done % 20 == 0:
                print(f"\r{done} of {options.rounds} rounds, {time.monotonic() - began:.0f} s", flush=True)
    except AssertionError as broken:
        print(f"round {killing.counts['rounds'] + 1}: {broken}\nThe table is left in {killing.directory}")
        return 1
    finally:
        print(f"seed {options.seed}, {len(CAST)} processes at once")
        for name, number in sorted(killing.counts.items()):
            print(f"  {name:<40} {number:>9,}")
    shutil.rmtree(killing.directory)
    print(f"no promise was broken in {options.rounds} rounds, {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
