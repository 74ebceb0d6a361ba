"""Processes that write a region and merge it, telling what has been acknowledged, until they are killed."""

from __future__ import annotations

from tests.crashes import say

from weir.errors import FencedError
from weir.first_index.writer import RegionWriter
from weir.storage.local import LocalStore


def write_and_merge(uri: str, name: str, start: int, count: int) -> None:
    """Claim the region by a name, and write keys from ``start`` on; flush and merge in between."""
    with RegionWriter.claim(LocalStore(uri, fsync=False), name) as writer:
        for n in range(start, start + count):
            for key, value in [(n, f"first {n}"), (n - 1, f"second {n}"), (n - 2, None)]:
                say(trying=[key, value])
                if value is None:
                    writer.delete([key])
                else:
                    writer.upsert([{"id": key, "value": value}])
                say(acknowledged=[key, value])
            if n % 2:
                writer.seal()
                writer.flush()
            if n % 4 == 1:
                writer.merge()
                writer.clean_up()


def race(uri: str, name: str, count: int) -> None:
    """Claim the region again and again, whoever has it, and write keys of its own and one that all write."""
    store, n = LocalStore(uri, fsync=False), 0
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
