"""Scenes on disks that are full or must not be written to, each in an interpreter of its own.

Run as ``python -m tests.faults.disk SCENE DIRECTORY``, where the directory is a small file system of its
own (``tests/faults/test_disk.py`` mounts one). An assertion that fails ends it with 1.
"""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import partial
from pathlib import Path

import lance
import pyarrow as pa

import weir
import weir.events
from tests.service.test_planted_bugs import Root
from weir.base.library_commit import commit_with_library
from weir.base.table import BaseTable
from weir.engine.context import default_context
from weir.errors import DiskFullError, StorageError
from weir.write.table_writer import TableWriter

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("text", pa.string())])
PAGE = 4096
# From nothing at all to enough for everything: each time something else is the first that fails.
SPARE_PAGES = (0, 2, 4, 7, 12, 24)
UNPRIVILEGED = 65534


@contextmanager
def filled(directory: Path, spare_pages: int) -> Iterator[None]:
    """Leave only some pages of the disk free for the length of a block."""
    ballast = directory / "ballast"
    spare = directory / "spare"
    spare.write_bytes(bytes(spare_pages * PAGE))
    with open(ballast, "wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(PAGE))
        except OSError as error:
            assert error.errno == errno.ENOSPC
    spare.unlink()
    try:
        yield
    finally:
        ballast.unlink()


class Kept:
    """A table and the rows that were acknowledged."""

    def __init__(self, uri: Path) -> None:
        self.uri = uri
        self.table = weir.create(uri, SCHEMA, primary_key="id")
        self.rows: dict[int, str] = {}
        self.failures: list[str] = []

    def upsert(self, writer: TableWriter, first: int, text: str) -> None:
        rows = {number: f"{text} {number}" for number in range(first, first + 20)}
        writer.upsert([{"id": number, "text": one} for number, one in rows.items()])
        self.rows |= rows

    def attempt(self, work: Callable[[], object]) -> bool:
        """Whether it went through; if not, the error is the right one, and nothing is lost."""
        try:
            work()
            done = True
        except StorageError as error:
            text = str(error)
            assert "No space left" in text, text
            assert "Free some space" in text, text
            assert error.where is not None, text
            self.failures.append(text)
            done = False
        self.check()
        return done

    def check(self) -> None:
        default_context().cache.clear()
        found = weir.open(self.uri).scan().to_table()
        assert found.num_rows == len(self.rows), (found.num_rows, len(self.rows))
        seen = zip(found.column("id").to_pylist(), found.column("text").to_pylist(), strict=True)
        assert dict(seen) == self.rows
        some = sorted(self.rows)[::7]
        assert weir.open(self.uri).get(some).column("id").to_pylist() == some


def full(directory: Path) -> None:
    """Whatever fails for want of space says so, loses nothing, and works when there is space again."""
    kept = Kept(directory / "table")
    writer = kept.table.writer(max_memtable_rows=10_000)
    kept.upsert(writer, 0, "at first")
    failed: dict[str, int] = {}
    steps: dict[str, Callable[[], object]] = {
        "append": lambda: kept.upsert(writer, 0, f"append {len(kept.failures)}"),
        "flush": lambda: writer.flush(),
        "merge": lambda: kept.table.maintenance.merge(),
        "snapshot": lambda: kept.table.snapshot(retain=timedelta(seconds=1)),
        "claim": lambda: claim(kept),
        "collect": lambda: kept.table.maintenance.collect_garbage(horizon=timedelta(0)),
    }
    for spare in SPARE_PAGES:
        for name, step in steps.items():
            with filled(directory, spare):
                done = kept.attempt(step)
            failed[name] = failed.get(name, 0) + (not done)
            if not done:
                # The same call again, now that there is space.
                step()
                kept.check()
        writer = kept.table.writer(takeover=True, max_memtable_rows=10_000)
        kept.upsert(writer, 20 * (spare + 1), "more")
    print(failed)
    assert all(failed.values()), "each of them has failed at least once"
    writer.close()
    kept.table.maintenance.merge()
    kept.check()


def claim(kept: Kept) -> None:
    with kept.table.writer(takeover=True) as writer:
        kept.upsert(writer, 0, "claimed")


def full_for_indexes(directory: Path) -> None:
    """An index is dropped altogether or not at all, and what the library cannot commit is no conflict."""
    kept = Kept(directory / "table")
    some_of_everything(kept)
    indexes, refused = kept.table.indexes, 0
    for spare in SPARE_PAGES:
        if "by_text" not in names(kept):
            indexes.create("text", "BTREE", name="by_text")
        with filled(directory, spare):
            done = kept.attempt(partial(indexes.drop, "by_text"))
        refused += not done
        assert ("by_text" in names(kept)) is not done
        assert ("by_text" in kept.table.internals.base.latest().details.maintained_indexes) is not done
        if not done:
            indexes.drop("by_text")
        assert names(kept) == kept.table.internals.base.latest().details.maintained_indexes == ("id_idx",)
        with filled(directory, spare):
            refused += not kept.attempt(partial(configure, kept, spare))
    assert refused > 2
    assert not kept.table.maintenance.verify().errors


def full_for_a_service(directory: Path) -> None:
    """What a service acknowledges on a full disk is there, the rest is 507; with space it goes on."""
    root = Root(directory / "root")
    expected = dict.fromkeys(range(20), "first")
    root.write("docs", upsert_rows=[{"id": number, "v": "first"} for number in range(20)])
    refused = 0
    for spare in SPARE_PAGES[:4]:
        with filled(directory, spare):
            for number in range(6):
                rows = [{"id": number, "v": f"{spare} {number}"}]
                status, answer = root.ask("POST", "/v2/namespaces/docs", {"upsert_rows": rows})
                if status == 200:
                    expected[number] = f"{spare} {number}"
                else:
                    assert (status, answer["error"]) == (507, "the disk of the service is full")
                    refused += 1
            status, _ = root.ask("POST", f"/v2/namespaces/new{spare}", {"upsert_rows": [{"id": 1}]})
            assert status == 507
            assert root.values("docs") == expected
        root.write("docs", upsert_rows=[{"id": 0, "v": f"freed {spare}"}])
        root.write(f"new{spare}", upsert_rows=[{"id": 1, "v": "made"}])
        expected[0] = f"freed {spare}"
        assert root.values("docs") == expected
    assert refused
    assert Root(directory / "root").values("docs") == expected


def full_for_events(directory: Path) -> None:
    """Events that were acknowledged are there; one writer goes on when there is space."""
    store = weir.events.create(directory / "events", buckets=2)
    store.define("a", {"n": "int"})
    numbers: list[int] = []
    refused = 0
    with store.writer() as writer:
        for spare in SPARE_PAGES:
            with filled(directory, spare):
                for number in range(spare * 100, spare * 100 + 12):
                    try:
                        writer.append("a", f"c{number % 5}", {"n": number})
                        numbers.append(number)
                    except DiskFullError:
                        refused += 1
                with suppress(StorageError):
                    writer.flush()
                assert events(directory) == numbers
            writer.append("a", "c", {"n": spare * 100 + 99})
            writer.flush()
            numbers.append(spare * 100 + 99)
            assert events(directory) == numbers
    assert refused


def events(directory: Path) -> list[int]:
    found: list[int] = weir.events.open(directory / "events").query("a").to_table()["n"].to_pylist()
    return sorted(found)


def names(kept: Kept) -> tuple[str, ...]:
    return tuple(one.name for one in kept.table.indexes.list())


def configure(kept: Kept, number: int) -> None:
    def change(base: BaseTable, dataset: lance.LanceDataset) -> None:
        dataset.update_config({"number": str(number)})

    commit_with_library(kept.table.internals.base, change, doing="noting a number")


def full_for_temporary_files(directory: Path) -> None:
    """The disk with the temporary files is full, the one with the table is not."""
    with tempfile.TemporaryDirectory(dir=directory.parent) as elsewhere:
        kept = Kept(Path(elsewhere) / "table")
        tempfile.tempdir = str(directory)
        for spare in (0, 1, 2, 3):
            with kept.table.writer() as writer:
                kept.upsert(writer, 0, f"spare {spare}")
            with filled(directory, spare):
                done = kept.attempt(kept.table.maintenance.merge)
            assert not done or spare
            kept.table.maintenance.merge()
            kept.check()
        assert kept.failures


def read_only(directory: Path) -> None:
    """A table on a disk that is mounted read-only can be read, and says that it cannot be written."""
    kept = Kept(directory / "table")
    some_of_everything(kept)
    subprocess.run(["mount", "-o", "remount,ro", str(directory)], check=True)
    check_only_read(kept, "read-only")


def not_ours(directory: Path) -> None:
    """A table of another user can be read, and says that it cannot be written."""
    kept = Kept(directory / "table")
    some_of_everything(kept)
    for path in [directory, *directory.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    tempfile.tempdir = "/tmp"
    os.setgroups([])
    os.setresgid(UNPRIVILEGED, UNPRIVILEGED, UNPRIVILEGED)
    os.setresuid(UNPRIVILEGED, UNPRIVILEGED, UNPRIVILEGED)
    check_only_read(kept, "Permission denied")


def some_of_everything(kept: Kept) -> None:
    with kept.table.writer() as writer:
        kept.upsert(writer, 0, "merged")
    kept.table.maintenance.merge()
    with kept.table.writer(flush_on_close=False) as writer:
        kept.upsert(writer, 10, "flushed")
        writer.flush()
        kept.upsert(writer, 20, "only in the log")


def check_only_read(kept: Kept, words: str) -> None:
    kept.check()
    table = weir.open(kept.uri)
    token = table.snapshot(retain=None)
    assert table.scan(at=token).count() == len(kept.rows)
    assert sum(batch.rows.num_rows for batch in table.changes()) == 60
    assert table.status().unflushed_rows == 20
    assert table.maintenance.collect_garbage(dry_run=True).dry_run
    refused: dict[str, Callable[[], object]] = {
        "write": partial(write, table),
        "merge": table.maintenance.merge,
        "collect": table.maintenance.collect_garbage,
        "pin": table.snapshot,
        "consume": lambda: table.changes(consumer="somebody"),
        "index": lambda: table.indexes.create("text", "BITMAP"),
    }
    for name, work in refused.items():
        try:
            work()
        except StorageError as error:
            assert words.lower() in str(error).lower(), f"{name}: {error}"
            assert error.where is not None, name
            assert error.hint is not None, name
            print(f"{name}: {error}")
        else:
            raise AssertionError(f"{name} went through")
    kept.check()


def write(table: weir.Table) -> None:
    with table.writer() as writer:
        writer.upsert([{"id": 0, "text": "not to be"}])


SCENES = {
    scene.__name__: scene
    for scene in (
        full,
        full_for_indexes,
        full_for_a_service,
        full_for_events,
        full_for_temporary_files,
        read_only,
        not_ours,
    )
}

if __name__ == "__main__":
    SCENES[sys.argv[1]](Path(sys.argv[2]))
