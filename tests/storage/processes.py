"""Scenes with real processes, each run in an interpreter of its own that may fork.

Run as ``python -m tests.storage.processes SCENE DIRECTORY``; an assertion that fails ends it with 1.
"""

from __future__ import annotations

import os
import random
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from weir.errors import ObjectExistsError, PreconditionError, StorageError
from weir.storage.local import LocalStore

UNPRIVILEGED = 65534


def fork(work: Callable[[], object]) -> int:
    """Run ``work`` in a child; its exit status says whether it returned."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        work()
        status = 0
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
    finally:
        os._exit(status)


def wait_for(pids: list[int]) -> None:
    for pid in pids:
        _, status = os.waitpid(pid, 0)
        assert os.waitstatus_to_exitcode(status) == 0, f"process {pid} failed"


def version_of(store: LocalStore, path: str) -> str:
    meta = store.head(path)
    assert meta is not None
    return meta.version


# ---------------------------------------------------------------------- killed in the middle


def pattern(number: int) -> list[bytes]:
    """Content that says how long it is and what it is made of."""
    size = 1 + (number * 104729) % 3_000_000
    return [b"%08d%04d" % (size, number % 256), bytes([number % 256]) * size]


def check_pattern(store: LocalStore, path: str) -> None:
    whole = bytes(store.get(path))
    size, byte = int(whole[:8]), int(whole[8:12])
    assert whole[12:] == bytes([byte]) * size, path


def write_without_end(store: LocalStore, attempt: int) -> None:
    for number in range(100_000):
        store.put_if_absent(f"wal/{attempt}/{number:06d}", pattern(number))
        store.put("hint", pattern(number))
        store.compare_and_swap("hint", pattern(number + 1), version_of(store, "hint"))


def kill(directory: Path) -> None:
    """Writers that are killed at any moment leave only whole objects, and nothing in anyone's way."""
    dice = random.Random(4)
    for unnamed_files in (True, False):
        for fsync in (True, False):
            store = LocalStore(
                directory / f"{unnamed_files}-{fsync}", fsync=fsync, unnamed_files=unnamed_files
            )
            store.put("hint", pattern(0))
            written = [write_and_kill(store, attempt, dice.uniform(0.005, 0.06)) for attempt in range(8)]
            assert sum(written) > 5, "the processes had time to write"
            left = [path for path in Path(store.uri).rglob("*") if "#" in path.name]
            assert len(left) <= 8, "at most one file for each killed process"
            print(f"{unnamed_files=} {fsync=} {written=} left={len(left)}")


def write_and_kill(store: LocalStore, attempt: int, seconds: float) -> int:
    """Return how many objects the process had published when it was killed."""
    pid = fork(partial(write_without_end, store, attempt))
    time.sleep(seconds)
    os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status), "it was killed in the middle of its work"
    check_pattern(store, "hint")
    published = [meta.path for meta in store.list(f"wal/{attempt}")]
    for path in published:
        check_pattern(store, path)
    # They were written one after the other, so none is missing between them.
    assert published == [f"wal/{attempt}/{number:06d}" for number in range(len(published))]
    # No lock is left held.
    store.put("hint", pattern(attempt))
    return len(published)


# ---------------------------------------------------------------------- racing

STEPS = 40


def count_and_claim(store: LocalStore, won: Path, me: int) -> None:
    for number in range(STEPS):
        try:
            store.put_if_absent(f"wal/{number}", b"%d" % me)
            (won / f"{number}-{me}").touch()
        except ObjectExistsError:
            pass
        while True:
            version = version_of(store, "counter")
            value = int(bytes(store.get("counter")))
            try:
                store.compare_and_swap("counter", b"%d" % (value + 1), version)
                break
            except PreconditionError:
                pass


def race(directory: Path) -> None:
    """Of many processes one wins, and no step of a shared counter is lost."""
    for unnamed_files in (True, False):
        store = LocalStore(directory / f"{unnamed_files}", fsync=False, unnamed_files=unnamed_files)
        store.put("counter", b"0")
        won = directory / f"won-{unnamed_files}"
        won.mkdir()
        wait_for([fork(partial(count_and_claim, store, won, me)) for me in range(4)])
        assert bytes(store.get("counter")) == b"%d" % (4 * STEPS)
        winners = dict(name.split("-") for name in os.listdir(won))
        assert len(os.listdir(won)) == len(winners) == STEPS
        for number, winner in winners.items():
            assert bytes(store.get(f"wal/{number}")) == winner.encode()


# ---------------------------------------------------------------------- disks that refuse


def expect(words: str, work: Callable[[], object]) -> None:
    try:
        work()
    except StorageError as error:
        assert words in str(error), str(error)
        assert error.where, "the error says where"
        assert error.hint, "the error says what to do"
    else:
        raise AssertionError(f"nothing was raised, expected {words!r}")


def expect_no_write(words: str, store: LocalStore, data: list[bytes]) -> None:
    version = version_of(store, "a/b")
    expect(words, partial(store.put, "a/b", data))
    expect(words, partial(store.put_if_absent, "a/new", data))
    expect(words, partial(store.compare_and_swap, "a/b", data, version))
    assert bytes(store.get("a/b")) == b"before"
    assert os.listdir(f"{store.uri}/a") == ["b"]


def over_the_limit(store: LocalStore) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
    expect_no_write("larger than", store, [bytes(90_000), bytes(90_000)])


def unprivileged(store: LocalStore) -> None:
    os.setresuid(UNPRIVILEGED, UNPRIVILEGED, UNPRIVILEGED)
    expect_no_write("Permission denied", store, [b"after"])
    expect("Permission denied", partial(store.put, "elsewhere/a", b""))
    expect("Permission denied", partial(store.delete, ["a/b"]))


def limits(directory: Path) -> None:
    """A limit on the size of files, and an unprivileged user: errors, and nothing changed."""
    # Not below the given directory, into which the unprivileged user cannot even look.
    with tempfile.TemporaryDirectory(prefix=directory.name) as public:
        os.chmod(public, 0o755)
        for unnamed_files in (True, False):
            store = LocalStore(f"{public}/{unnamed_files}", unnamed_files=unnamed_files)
            store.put("a/b", b"before")
            wait_for([fork(partial(over_the_limit, store))])
            if os.getuid() == 0:
                wait_for([fork(partial(unprivileged, store))])


def disk(directory: Path) -> None:
    """A full disk and a read-only one; ``directory`` is a small filesystem of its own."""
    for unnamed_files in (True, False):
        store = LocalStore(directory / f"{unnamed_files}", unnamed_files=unnamed_files)
        store.put("a/b", b"before")
        expect_no_write("Free some space", store, [bytes(1_000_000)] * 3)
        store.put_if_absent("a/c", b"fits")
        store.delete(["a/c"])
    assert os.system(f"mount -o remount,ro {directory}") == 0
    for unnamed_files in (True, False):
        for choice in (unnamed_files, None):
            store = LocalStore(directory / f"{unnamed_files}", unnamed_files=choice)
            expect_no_write("read-only", store, [b"after"])
            expect("read-only", partial(store.put, "elsewhere/a", b""))
            expect("read-only", partial(store.delete, ["a/b"]))


SCENES = {scene.__name__: scene for scene in (kill, race, limits, disk)}

if __name__ == "__main__":
    SCENES[sys.argv[1]](Path(sys.argv[2]))
