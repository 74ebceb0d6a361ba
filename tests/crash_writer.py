"""A process that writes, flushes and merges, telling what has been acknowledged, until it is killed.

Run by ``test_crash.py`` with a failpoint armed in its environment. Every acknowledged step is one line
of JSON on standard output, written after the call returned.
"""

from __future__ import annotations

import json
import os
import sys

import weir


def say(**step: object) -> None:
    """Tell the parent; what it has read, it may rely on."""
    os.write(1, (json.dumps(step) + "\n").encode())


def main(uri: str, start: int, count: int) -> None:
    """Upsert, overwrite and delete keys from ``start`` on; flush and merge in between."""
    table = weir.open(uri)
    with table.writer(max_memtable_rows=7) as writer:
        for n in range(start, start + count):
            say(trying={"id": n, "value": f"first {n}"})
            writer.upsert([{"id": n, "value": f"first {n}"}])
            say(acknowledged={"id": n, "value": f"first {n}"})
            if n % 3 == 0:
                say(trying={"id": n, "value": f"second {n}"})
                writer.upsert([{"id": n, "value": f"second {n}"}])
                say(acknowledged={"id": n, "value": f"second {n}"})
            if n % 5 == 0:
                say(trying={"id": n, "value": None})
                writer.delete([n])
                say(acknowledged={"id": n, "value": None})
            if n % 10 == 9:
                writer.flush()
                table.maintenance.merge()
    say(finished=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
