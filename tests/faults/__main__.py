"""Kill processes, have disk and object store fail: ``make faults``; cut the power: ``make power-cuts``."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.faults.failing_io import FailingDisk
from tests.faults.failing_store import FailingStore
from tests.faults.killing import CAST, Killing, killing_on_s3
from tests.faults.power import Cuts, can_cut, disk
from tests.storage.s3 import serve_s3


def main() -> int:
    """Play rounds; return 1, and leave the table, if one of them broke a promise."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--rounds", type=int, default=200, help="how many rounds to play")
    parser.add_argument("--seed", type=int, default=1, help="chooses what the processes do")
    parser.add_argument("--s3", action="store_true", help="on an S3 endpoint that stumbles, not on files")
    parser.add_argument("--disk", action="store_true", help="only have the disk fail, and kill nobody")
    parser.add_argument(
        "--store", action="store_true", help="only have an object store fail, and kill nobody"
    )
    parser.add_argument("--cuts", type=int, help="cut the power so often, and kill nobody before")
    options = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="weir-faults-"))
    if options.cuts is not None:
        return _cut(directory, options)
    everything = not (options.s3 or options.disk or options.store)
    failed = 0
    if everything:
        failed = _play(Killing(_below(directory, "killing"), options.seed), options, directory)
    if options.s3:
        with killing_on_s3(_below(directory, "killing-on-s3"), options.seed) as killing:
            failed = _play(killing, options, directory)
    if not failed and (everything or options.disk):
        failed = _play(FailingDisk(_below(directory, "disk"), options.seed), options, directory)
    if not failed and (everything or options.store):
        with serve_s3() as endpoint:
            failed = _play(FailingStore(endpoint, options.seed), options, directory)
    if not failed:
        shutil.rmtree(directory)
    return failed


def _below(directory: Path, name: str) -> Path:
    made = directory / name
    made.mkdir()
    return made


def _play(playing: Killing | FailingDisk | FailingStore, options: argparse.Namespace, directory: Path) -> int:
    began = time.monotonic()
    what = type(playing).__name__
    try:
        for done in range(1, options.rounds + 1):
            playing.play()
            if sys.stdout.isatty() or done % 20 == 0:
                print(
                    f"\r{what}: {done} of {options.rounds} rounds, {time.monotonic() - began:.0f} s",
                    flush=True,
                )
    except AssertionError as broken:
        print(f"round {playing.counts['rounds'] + 1}: {broken}\nWhat is left is in {directory}")
        return 1
    finally:
        at_once = len(CAST) if isinstance(playing, Killing) else 1
        print(f"{what}: seed {options.seed}, {at_once} processes at once")
        for name, number in sorted(playing.counts.items()):
            print(f"  {name:<40} {number:>9,}")
    print(f"no promise was broken in {options.rounds} rounds, {time.monotonic() - began:.0f} s", flush=True)
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
