"""Kill processes and have their disk fail, for long: ``make faults``; cut the power: ``make power-cuts``."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.faults.failing_io import FailingDisk
from tests.faults.killing import CAST, Killing, killing_on_s3
from tests.faults.power import Cuts, can_cut, disk


def main() -> int:
    """Play rounds; return 1, and leave the table, if one of them broke a promise."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--rounds", type=int, default=200, help="how many rounds to play")
    parser.add_argument("--seed", type=int, default=1, help="chooses what the processes do")
    parser.add_argument("--s3", action="store_true", help="on an S3 endpoint that stumbles, not on files")
    parser.add_argument("--disk", action="store_true", help="only have the disk fail, and kill nobody")
    parser.add_argument("--cuts", type=int, help="cut the power so often, and kill nobody before")
    options = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="weir-faults-"))
    if options.cuts is not None:
        return _cut(directory, options)
    if options.s3:
        with killing_on_s3(directory, options.seed) as killing:
            return _play(killing, options)
    failing = FailingDisk(Path(tempfile.mkdtemp(prefix="weir-faults-")), options.seed)
    if options.disk:
        return _play(failing, options)
    return _play(Killing(directory, options.seed), options) or _play(failing, options)


def _play(killing: Killing | FailingDisk, options: argparse.Namespace) -> int:
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
        at_once = len(CAST) if isinstance(killing, Killing) else 1
        print(f"seed {options.seed}, {at_once} processes at once")
        for name, number in sorted(killing.counts.items()):
            print(f"  {name:<40} {number:>9,}")
    shutil.rmtree(killing.directory)
    print(f"no promise was broken in {options.rounds} rounds, {time.monotonic() - began:.0f} s")
    return 0


def _cut(directory: Path, options: argparse.Namespace) -> int:
    if not can_cut(directory / "probe"):
        print("needs the right to mount a file system of the kind ext4")
        return 1
    began = time.monotonic()
    counts: Counter[str] = Counter()
    try:
        with disk(directory) as power:
            cuts = Cuts(directory, power, options.seed)
            counts = cuts.counts
            for done in range(1, options.cuts + 1):
                cuts.play()
                if sys.stdout.isatty() or done % 10 == 0:
                    print(f"\r{done} of {options.cuts} cuts, {time.monotonic() - began:.0f} s", flush=True)
    except AssertionError as broken:
        print(f"cut {counts['cuts']}: {broken}\nThe disk is left in {directory}")
        return 1
    finally:
        print(f"seed {options.seed}")
        for name, number in sorted(counts.items()):
            print(f"  {name:<40} {number:>9,}")
    shutil.rmtree(directory)
    print(f"no promise was broken in {options.cuts} cuts, {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
