"""Cutting the power: a file system of its own whose every write that was not synced is gone.

``python -m tests.faults --cuts 100`` (``make power-cuts``) makes an ext4 file system in a file, puts a
table on it, and lets processes work on the table: writers, a merger, which compacts, builds indexes and
collects too, somebody who commits with Lance alone, and a reader who takes snapshots. At a random moment the
file system is shut down the way a loss of power does it: what is in memory alone is lost, the journal too as
far as it was not on the disk. The processes are killed, the file system is mounted again, which replays its
journal, and the table is looked at, without a hand:

- it opens, and has every acknowledged write of Weir, and nothing that was never sent;
- a snapshot that was taken reads the same rows, or is refused by name;
- Weir commits on top of it, and then Lance opens it too and finds the same rows;
- ``verify`` finds nothing at stake.

The next cut goes on with the table as it is. It takes the right to mount.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import multiprocessing
import os
import random
import shutil
import struct
import subprocess
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa

import weir
from tests.faults.journal import Journal, lines_told, read_journal
from weir.errors import (
    ConflictError,
    CorruptionError,
    FencedError,
    IndexExistsError,
    LeaseHeldError,
    SnapshotExpiredError,
    StorageError,
)

__all__ = ["Cuts", "can_cut", "disk"]

# XFS and ext4: shut the file system down. With this flag nothing that is in memory reaches the disk.
_SHUT_DOWN = 0x8004587D
_LOSE_EVERYTHING = struct.pack("I", 2)
_SIZE = 512 * 1024 * 1024
GROUPS = 2
_BY_LANCE = 9
SCHEMA = pa.schema(
    [
        pa.field("group", pa.int32(), nullable=False),
        pa.field("number", pa.int64(), nullable=False),
        pa.field("value", pa.string()),
    ]
)
Key = tuple[int, int]


# --- The disk ----------------------------------------------------------------------------------


@contextlib.contextmanager
def disk(directory: Path) -> Iterator[Disk]:
    """Make a file system in a file, mount it, and take it away at the end."""
    image, mounted = directory / "disk.img", directory / "disk"
    mounted.mkdir()
    with open(image, "wb") as file:
        file.truncate(_SIZE)
    subprocess.run(["mkfs.ext4", "-q", str(image)], check=True, capture_output=True)
    made = Disk(image, mounted)
    made.mount()
    try:
        yield made
    finally:
        made.unmount()


class Disk:
    """A file system that can lose its power."""

    def __init__(self, image: Path, mounted: Path) -> None:
        self._image = image
        self.mounted = mounted

    def mount(self) -> None:
        """Mount it; what its journal has is replayed."""
        command = ["mount", "-o", "loop", str(self._image), str(self.mounted)]
        subprocess.run(command, check=True, capture_output=True)

    def unmount(self, *, patience: float = 120.0) -> None:
        """Unmount it, when nobody has it open any more."""
        for _ in range(100):
            if (
                subprocess.run(["umount", str(self.mounted)], capture_output=True, check=False).returncode
                == 0
            ):
                break
            time.sleep(0.1)
        else:
            subprocess.run(["umount", str(self.mounted)], check=True)
        self.wait_until_free(patience=patience)

    def wait_until_free(self, *, patience: float = 120.0) -> None:
        """Wait until nobody has it mounted.

        A program that has copied the mounts meanwhile, as ``unshare --mount`` does, has it mounted still.
        Mounted again, it would be the file system without power.
        """
        deadline = time.monotonic() + patience
        command = ["losetup", "--associated", str(self._image)]
        while subprocess.run(command, check=True, capture_output=True).stdout:
            if time.monotonic() > deadline:
                raise TimeoutError(f"somebody else has {self._image} mounted")
            time.sleep(0.05)

    def cut(self) -> None:
        """Lose all that is in memory alone. Every call on the file system fails from here on."""
        descriptor = os.open(self.mounted, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.ioctl(descriptor, _SHUT_DOWN, _LOSE_EVERYTHING)
        finally:
            os.close(descriptor)


def can_cut(directory: Path) -> bool:
    """Whether this process may mount file systems, of a kind that can be shut down."""
    if sys.platform != "linux" or os.getuid() != 0 or shutil.which("mkfs.ext4") is None:
        return False
    directory.mkdir()
    try:
        with disk(directory) as probe:
            probe.cut()
    except (OSError, subprocess.CalledProcessError):
        return False
    return True


# --- Who works on the table --------------------------------------------------------------------


def _write(table: weir.Table, dice: random.Random, journal: Journal, group: int) -> None:
    options = {"takeover": True, "max_memtable_rows": dice.choice([5, 20, 1000])}
    name = f"{os.getpid()}.{dice.randrange(10**9)}"
    with table.writer(**options) as writer:
        for count in range(dice.randrange(1, 25)):
            delete = dice.random() < 0.25
            numbers = sorted({dice.randrange(30) for _ in range(dice.randrange(1, 6))})
            value = None if delete else f"{name}.{count}"
            journal.tell("sends", group=group, numbers=numbers, value=value)
            keys = [{"group": group, "number": number} for number in numbers]
            if delete:
                writer.delete(keys)
            else:
                writer.upsert([{**key, "value": value} for key in keys])
            journal.tell("acknowledged")


def _serve(table: weir.Table, dice: random.Random, journal: Journal) -> None:
    work = dice.choice(["merge", "merge", "merge", "compact", "index", "catch up", "collect", "details"])
    if work == "merge":
        table.maintenance.merge()
    elif work == "compact":
        table.maintenance.compact(
            rows_per_fragment=dice.choice([100, 1_000_000]), max_deleted=dice.choice([0.0, 0.1])
        )
    elif work == "index":
        with contextlib.suppress(IndexExistsError):
            table.indexes.create("value", dice.choice(["BTREE", "BITMAP", "INVERTED"]), name="by_value")
        if dice.random() < 0.3:
            table.indexes.drop("by_value")
    elif work == "catch up":
        table.maintenance.catch_up_indexes()
    elif work == "collect":
        retention = dice.choice([None, timedelta(seconds=1)])
        table.maintenance.collect_garbage(horizon=timedelta(0), version_retention=retention)
    else:
        table.snapshot(retain=timedelta(hours=1))
    journal.tell("served", work=work)


def _commit_with_lance(table: weir.Table, dice: random.Random, journal: Journal) -> None:
    """Commit with the library alone, which syncs nothing: what it wrote may be lost, and nothing else."""
    dataset = lance.dataset(table.uri)
    number = dice.randrange(10**12)
    if dice.random() < 0.7:
        rows = pa.table(
            {
                "group": pa.array([_BY_LANCE], pa.int32()),
                "number": pa.array([number], pa.int64()),
                "value": [str(number)],
            }
        )
        dataset.insert(rows.cast(dataset.schema))
    elif dice.random() < 0.5:
        dataset.delete(f"group = {_BY_LANCE} AND number % 3 = {dice.randrange(3)}")
    else:
        dataset.update_config({"somebody": str(number)})
    journal.tell("served", work="lance")
    time.sleep(dice.uniform(0, 0.3))


def _read(table: weir.Table, dice: random.Random, journal: Journal) -> None:
    token = table.snapshot(retain=timedelta(hours=1))
    journal.tell("snapshot", token=str(token), rows=sorted(map(list, _rows(table, at=token).items())))
    time.sleep(dice.uniform(0, 0.2))


_ROLES: Mapping[str, Callable[[weir.Table, random.Random, Journal], None]] = {
    **{f"writer {n}": lambda t, d, j, n=n: _write(t, d, j, n) for n in range(GROUPS)},  # type: ignore[misc]
    "services": _serve,
    "lance": _commit_with_lance,
    "reader": _read,
}


def _work_all(seed: int, uri: str, journals: Mapping[str, Path]) -> None:
    """Work in all roles at once, each in a thread of its own, until killed."""
    logging.getLogger("weir").setLevel(logging.CRITICAL)
    for number, (role, journal) in enumerate(journals.items()):
        threading.Thread(target=_work, args=(role, seed + number, uri, journal), daemon=True).start()
    threading.Event().wait()


def _work(role: str, seed: int, uri: str, journal: Path) -> None:
    """Work in one role until the power is gone."""
    told, dice = Journal(journal), random.Random(seed)
    table: weir.Table | None = None
    while True:
        try:
            table = table or weir.open(uri)
            _ROLES[role](table, dice, told)
        except (ConflictError, FencedError, LeaseHeldError, SnapshotExpiredError) as error:
            told.tell("gave up", error=type(error).__name__)
        except Exception:
            # With the power goes everything; what fails before that is looked at.
            told.tell("failed", text=traceback.format_exc())
            time.sleep(0.05)


def _rows(table: weir.Table, **options: Any) -> dict[Key, str]:
    return _keyed(table.scan(**options).to_table())


def _keyed(table: pa.Table) -> dict[Key, str]:
    rows = table.to_pylist()
    found = {(row["group"], row["number"]): row["value"] for row in rows}
    assert len(found) == len(rows), "a key is there twice"
    return found


# --- Cutting and looking -----------------------------------------------------------------------


class Cuts:
    """A table on a disk whose power is cut again and again.

    Parameters
    ----------
    directory : Path
        Where journals are kept.
    power : Disk
        The disk.
    seed : int
        Chooses what the processes do and when the power is cut.
    """

    def __init__(self, directory: Path, power: Disk, seed: int) -> None:
        self._directory = directory
        self._power = power
        self._dice = random.Random(seed)
        self._uri = str(power.mounted / "table")
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["tests.faults.power", "weir.table.table"])
        # Per key, what may be its value: the last acknowledged one, and all that was sent after it.
        self._possible: dict[Key, list[str | None]] = {}
        self.counts: Counter[str] = Counter()
        self._in_a_process(_create, self._uri)

    def play(self) -> None:
        """Work, cut the power, and look.

        Raises
        ------
        AssertionError
            If a promise was broken.
        """
        number = self.counts["cuts"] + 1
        journals = {role: self._directory / f"{number}-{role.replace(' ', '-')}" for role in _ROLES}
        worker = self._context.Process(
            target=_work_all, args=(self._dice.randrange(2**32), self._uri, journals), daemon=True
        )
        worker.start()
        # By what has been done, not by time: machines differ, and have other things to do.
        events, deadline = self._dice.randrange(1, 120), time.monotonic() + 30
        while sum(map(lines_told, journals.values())) < events and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(self._dice.uniform(0, 0.2))
        at = time.monotonic()
        self._power.cut()
        worker.kill()
        worker.join()
        self._power.unmount()
        self._power.mount()
        self.counts["cuts"] += 1
        tokens = self._believe(journals, at)
        looked = self._directory / f"{number}-looked"
        self._in_a_process(_look, self._uri, self._possible, tokens, looked)
        for line in read_journal(looked):
            self.counts[line["event"]] += line.get("count", 1)
            if line["event"] == "settled":
                self._possible = {(group, n): [value] for group, n, value in line["rows"]}

    def _believe(self, journals: Mapping[str, Path], at: float) -> list[tuple[str, dict[Key, str]]]:
        """Note what may be in the table, and return what snapshots have read."""
        tokens: list[tuple[str, dict[Key, str]]] = []
        for path in journals.values():
            sent: dict[str, Any] | None = None
            for line in read_journal(path):
                if line["event"] == "failed":
                    assert line["at"] >= at - 0.01, f"before the power was cut:\n{line['text']}"
                elif line["event"] == "sends":
                    sent = line
                    for number in line["numbers"]:
                        known = self._possible.setdefault((line["group"], number), [None])
                        known.append(line["value"])
                elif line["event"] == "acknowledged" and sent is not None:
                    for number in sent["numbers"]:
                        self._possible[sent["group"], number] = [sent["value"]]
                    self.counts["writes acknowledged"] += 1
                elif line["event"] == "served":
                    self.counts[f"served: {line['work']}"] += 1
                elif line["event"] == "snapshot":
                    tokens.append(
                        (line["token"], {(group, number): value for (group, number), value in line["rows"]})
                    )
        return tokens

    def _in_a_process(self, target: Callable[..., None], *arguments: Any) -> None:
        """Run something in a process that has nothing open when it ends, so that the disk can go."""
        receiver, sender = self._context.Pipe(duplex=False)
        process = self._context.Process(target=_reporting, args=(sender, target, arguments))
        process.start()
        sender.close()
        try:
            failure = receiver.recv()
        except EOFError:
            failure = "the process has died"
        process.join()
        assert failure is None, failure


def _reporting(sender: Any, target: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    logging.getLogger("weir").setLevel(logging.CRITICAL)
    try:
        target(*arguments)
    except BaseException:
        sender.send(traceback.format_exc())
    else:
        sender.send(None)
    sender.close()


def _create(uri: str) -> None:
    weir.create(uri, SCHEMA, primary_key=["group", "number"], shard_by=weir.identity("group"))


def _look(
    uri: str,
    possible: Mapping[Key, list[str | None]],
    tokens: list[tuple[str, dict[Key, str]]],
    journal: Path,
) -> None:
    """Look at a table after the power came back."""
    told = Journal(journal)
    table = weir.open(uri)
    _check(_rows(table), possible, "the first reader")
    sample = [key for key in possible if key[0] != _BY_LANCE][:20]
    found = table.get([{"group": group, "number": number} for group, number in sample]).to_pylist()
    got = {(row["group"], row["number"]): row["value"] for row in found}
    for key in sample:
        assert got.get(key) in possible[key], f"get of {key} is {got.get(key)!r}, not one of {possible[key]}"
    for text, rows in tokens:
        try:
            now = _rows(table, at=text)
        except (SnapshotExpiredError, CorruptionError, StorageError) as error:
            told.tell(f"snapshots refused: {type(error).__name__}")
            continue
        assert now == rows, f"snapshot {text} has read other rows"
        told.tell("snapshots read again")
    torn = len(table.maintenance.repair(dry_run=True).repairs)
    if torn:
        told.tell("cuts that had torn versions")
        told.tell("versions torn", count=torn)
    with table.writer(takeover=True) as writer:
        for group in range(GROUPS):
            writer.upsert([{"group": group, "number": 999, "value": "after the cut"}])
    table.maintenance.merge()
    settled = _rows(table)
    expected: dict[Key, list[str | None]] = {**possible}
    expected.update({(group, 999): ["after the cut"] for group in range(GROUPS)})
    _check(settled, expected, "who has merged")
    assert _rows(weir.open(uri)) == settled
    assert _keyed(lance.dataset(uri).to_table()) == settled, "Lance reads other rows"
    # A snapshot of what Lance alone had committed may have been lost with it; it was refused by name above.
    errors = [str(one) for one in table.maintenance.verify().errors if one.check != "token.expired"]
    assert not errors, "\n".join(errors)
    ours = [[group, number, value] for (group, number), value in settled.items() if group != _BY_LANCE]
    told.tell("settled", rows=ours)


def _check(rows: dict[Key, str], possible: Mapping[Key, list[str | None]], who: str) -> None:
    for key in {key for key in rows if key[0] != _BY_LANCE} | set(possible):
        allowed = possible.get(key, [None])
        assert rows.get(key) in allowed, f"{who}: {key} is {rows.get(key)!r}, not one of {allowed}"
    for (group, number), value in rows.items():
        assert group != _BY_LANCE or value == str(number), f"{who}: {number} is {value!r}"
