"""Every single write of a flush, a merge, a compaction and an index build fails once, the library's too.

Run as ``python -m tests.faults.lost_writes SCENE DIRECTORY EVERY`` with ``failing_io.c`` preloaded: every
call fails once, or every third. The library loses some of what the system says to its writes. Whatever
becomes of the call, the table reads right after it, and the same call goes through when it is made once
more. An assertion that fails ends it with 1.
"""

from __future__ import annotations

import ctypes
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa

import weir
from weir.engine.context import default_context
from weir.errors import CorruptionError, StorageError

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("text", pa.string()),
        pa.field("vector", pa.list_(pa.float32(), 8)),
    ]
)
ROWS = 40
_MOST_CALLS = 400


class Kept:
    """A table, and the rows that were acknowledged."""

    def __init__(self, uri: Path, every: int) -> None:
        self.uri = uri
        self.table = weir.create(uri, SCHEMA, primary_key="id", shard_by=weir.bucket("id", 1))
        self.rows: dict[int, str] = {}
        self.number = 0
        self.every = every
        self.writer = self.table.writer(flush_on_close=False)

    def write(self) -> None:
        """Acknowledge some rows, of which some replace others, and a delete; all of them in the log."""
        self.number += 1
        first = self.number * 7 % 20
        rows = {one: f"row {one} of {self.number}" for one in range(first, first + ROWS)}
        self.writer.upsert([{"id": one, "text": text, "vector": [one] * 8} for one, text in rows.items()])
        self.writer.delete([first + 1])
        self.rows |= rows
        del self.rows[first + 1]

    def flush(self) -> None:
        self.writer.flush()

    def merge(self) -> None:
        self.table.maintenance.merge()

    def compact(self) -> None:
        self.table.maintenance.compact()

    def merged(self) -> None:
        self.write()
        self.flush()
        self.merge()

    def index(self) -> None:
        for name, column, kind in (("texts", "text", "BTREE"), ("words", "text", "INVERTED")):
            if name not in {one.name for one in self.table.indexes.list()}:
                self.table.indexes.create(column, kind, name=name)

    def no_index(self) -> None:
        for one in self.table.indexes.list():
            if one.name in ("texts", "words"):
                self.table.indexes.drop(one.name)

    def check(self) -> None:
        default_context().cache.clear()
        table = weir.open(self.uri)
        found = table.scan(columns=["id", "text"]).to_table().to_pydict()
        assert dict(zip(found["id"], found["text"], strict=True)) == self.rows
        assert len(found["id"]) == len(self.rows)
        some = sorted(self.rows)[::7]
        assert table.get(some).column("id").to_pylist() == some


def flush(kept: Kept) -> Counter[str]:
    """Flush what is in the log."""
    return every_call_fails(kept, kept.write, kept.flush)


def merge(kept: Kept) -> Counter[str]:
    """Merge a generation into rows that it replaces and deletes."""

    def flushed() -> None:
        kept.write()
        kept.flush()

    kept.merged()
    return every_call_fails(kept, flushed, kept.merge)


def compact(kept: Kept) -> Counter[str]:
    """Compact fragments of which rows are deleted."""

    def fragments() -> None:
        kept.merged()
        kept.merged()

    return every_call_fails(kept, fragments, kept.compact)


def index(kept: Kept) -> Counter[str]:
    """Build indexes on rows that are merged."""
    kept.merged()
    return every_call_fails(kept, kept.no_index, kept.index)


def every_call_fails(kept: Kept, before: Callable[[], None], work: Callable[[], None]) -> Counter[str]:
    """Have each call of a piece of work fail, and return what became of it."""
    shim = ctypes.CDLL(None)
    shim.calls_made.restype = ctypes.c_int64
    directory = ctypes.create_string_buffer(str(kept.uri).encode())
    counts: Counter[str] = Counter()
    for number in range(1, _MOST_CALLS, kept.every):
        before()
        shim.fail_call(directory, ctypes.c_int64(number))
        try:
            work()
            outcome = "went through"
        except StorageError as error:
            assert not isinstance(error, CorruptionError), f"call {number}: {error}"
            outcome = "is missing" if "is missing" in str(error) else "refused"
        finally:
            calls = shim.calls_made()
        kept.check()
        work()
        kept.check()
        if calls < number:
            assert outcome == "went through"
            break
        counts[outcome] += 1
    else:
        raise AssertionError(f"there are more than {_MOST_CALLS} calls")
    found = kept.table.maintenance.verify().errors
    assert not found, found
    return counts


SCENES = {scene.__name__: scene for scene in (flush, merge, compact, index)}

if __name__ == "__main__":
    print(dict(SCENES[sys.argv[1]](Kept(Path(sys.argv[2]), int(sys.argv[3])))))
