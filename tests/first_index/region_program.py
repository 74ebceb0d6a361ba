"""A process that writes a region and merges it, telling what has been acknowledged, until it is killed.

Run by ``test_writer.py``. A step is a line of JSON on standard output, written after the call returned.
"""

from __future__ import annotations

import json
import os
import sys

from weir.errors import FencedError
from weir.first_index.writer import RegionWriter
from weir.storage.local import LocalStore


def say(**step: object) -> None:
    os.write(1, (json.dumps(step) + "\n").encode())


def steps(writer: RegionWriter, start: int, count: int) -> None:
    for n in range(start, start + count):
        for key, value in [(n, f"first {n}"), (n - 1, f"second {n}"), (n - 2, None)]:
            say(trying=[key, value])
            write = writer.delete([key]) if value is None else writer.upsert([{"id": key, "value": value}])
            say(acknowledged=[key, value], version=write.version)
        if n % 2:
            writer.seal()
            writer.flush()
        if n % 4 == 1:
            writer.merge()
            writer.clean_up()


def race(store: LocalStore, name: str, count: int) -> None:
    """Claim the region again and again, whoever has it, and write keys of its own and one that all write."""
    n = 0
    while n < count:
        try:
            with RegionWriter.claim(store, "eu", seal_rows=5) as writer:
                while n < count:
                    rows = [
                        {"id": 1000 * int(name) + n, "value": f"{name} {n}"},
                        {"id": 7, "value": f"{name} {n}"},
                    ]
                    write = writer.upsert(rows)
                    n += 1
                    say(rows=[[row["id"], row["value"]] for row in rows], version=write.version)
                    if n % 3 == 0:
                        writer.flush()
                        writer.merge()
        except FencedError:
            say(fenced=True)


if __name__ == "__main__":
    place = LocalStore(sys.argv[1], fsync=False)
    if sys.argv[2] == "race":
        race(place, sys.argv[3], int(sys.argv[4]))
    else:
        with RegionWriter.claim(place, sys.argv[2]) as claimed:
            steps(claimed, int(sys.argv[3]), int(sys.argv[4]))
        say(finished=True)
