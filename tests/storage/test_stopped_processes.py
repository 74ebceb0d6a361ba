"""Processes that stand still in the middle of a write to local disk: nobody waits, nothing is overwritten."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from weir.errors import ObjectExistsError, ObjectNotFoundError, PreconditionError
from weir.storage import local, local_files, local_swaps
from weir.storage.interface import Bytes
from weir.storage.local import LocalStore
from weir.storage.local_publish import NamedFile

_CHILD = """
import sys
from weir.engine import failpoint
from weir.errors import StorageError
from weir.storage import local_swaps
from weir.storage.local import LocalStore
for line in sys.stdin:
    root, place, what, expected = line.rstrip("\\n").split("\\t")
    store = LocalStore(root)
    failpoint.arm(place, "stop")
    try:
        if what == "swap":
            store.compare_and_swap("d/a", b"sleeper", expected)
        else:
            store.put("d/a", b"sleeper")
        print("done", flush=True)
    except StorageError as error:
        print(type(error).__name__, flush=True)
"""
PLACES = [
    "local_swap.before_begin",
    "local_swap.after_begin",
    "local_swap.before_link",
    "local_swap.after_link",
    "local_swap.before_removal",
]


class Sleeper:
    """A process that stops itself at a failpoint."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def fall_asleep(self, root: Path, place: str, what: str, expected: str = "") -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{root}\t{place}\t{what}\t{expected}\n")
        self._process.stdin.flush()
        _, status = os.waitpid(self._process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)

    def wake_up(self) -> str:
        assert self._process.stdout is not None
        self._process.send_signal(signal.SIGCONT)
        return self._process.stdout.readline().strip()

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.fixture(scope="module")
def sleeper() -> Iterator[Sleeper]:
    process = Sleeper()
    yield process
    process.end()


@pytest.fixture(autouse=True)
def _old_versions_go_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_swaps, "_KEPT_NANOSECONDS", 0)


def _version(store: LocalStore) -> str:
    meta = store.head("d/a")
    assert meta is not None
    return meta.version


def _swapped(store: LocalStore, count: int, name: str) -> None:
    for number in range(count):
        store.compare_and_swap("d/a", f"{name} {number}".encode(), _version(store))


@pytest.mark.parametrize("place", PLACES)
def test_who_sleeps_in_a_swap_holds_up_nobody_and_overwrites_nothing(
    tmp_path: Path, sleeper: Sleeper, place: str
) -> None:
    first = place.endswith("_begin")  # which a swap reaches only if nobody has swapped the object before
    for before, during in [(0, 0), (0, 3), (0, 1)] if first else [(0, 0), (0, 3), (1, 1), (3, 2), (4, 7)]:
        root = tmp_path / f"{before}-{during}"
        store = LocalStore(root)
        store.put_if_absent("d/a", b"first")
        _swapped(store, before, "before")
        found = bytes(store.get("d/a"))
        sleeper.fall_asleep(root, place, "swap", _version(store))
        began = time.monotonic()
        seen = bytes(store.get("d/a"))
        assert seen in (found, b"sleeper")
        assert [meta.path for meta in store.list("")] == ["d/a"]
        _swapped(store, during, "during")
        expected = f"during {during - 1}".encode() if during else seen
        assert bytes(store.get("d/a")) == expected
        assert time.monotonic() - began < 20, "nobody waits for it"
        answer = sleeper.wake_up()
        if seen == b"sleeper":
            # Its swap had gone through before it fell asleep.
            assert answer in ("done", "PreconditionError")
            assert bytes(store.get("d/a")) == expected
        elif during:
            assert answer == "PreconditionError"
            assert bytes(store.get("d/a")) == expected
        else:
            assert answer == "done"
            assert bytes(store.get("d/a")) == b"sleeper"
        _swapped(store, 3, "after")
        assert bytes(store.get("d/a")) == b"after 2"
        assert [(meta.path, meta.version) for meta in store.list("")] == [("d/a", _version(store))]


@pytest.mark.parametrize("swaps_before", [0, 2])
@pytest.mark.parametrize("place", PLACES)
def test_an_object_that_is_deleted_and_made_again_beside_a_sleeper(
    tmp_path: Path, sleeper: Sleeper, place: str, swaps_before: int
) -> None:
    if swaps_before and place.endswith("_begin"):
        pytest.skip("only the first swap of an object begins")
    for swaps_after in (None, 0, 1, swaps_before, 4):
        root = tmp_path / str(swaps_after)
        store = LocalStore(root)
        store.put_if_absent("d/a", b"first")
        _swapped(store, swaps_before, "before")
        sleeper.fall_asleep(root, place, "swap", _version(store))
        store.delete(["d/a"])
        assert store.head("d/a") is None
        assert os.listdir(root) == [], "the directories are those of another object from now on"
        if swaps_after is not None:
            store.put_if_absent("d/a", b"again")
            _swapped(store, swaps_after, "again")
        assert sleeper.wake_up() == ("done" if place == "local_swap.before_removal" else "PreconditionError")
        if swaps_after is None:
            with pytest.raises(ObjectNotFoundError):
                store.get("d/a")
            assert list(store.list("")) == []
            with pytest.raises(PreconditionError):
                store.compare_and_swap("d/a", b"never", "0-0-0")
            store.put_if_absent("d/a", b"new")
            assert bytes(store.get("d/a")) == b"new"
        else:
            assert bytes(store.get("d/a")) == (
                f"again {swaps_after - 1}".encode() if swaps_after else b"again"
            )
        store.delete(["d/a"])
        assert os.listdir(root) == [], "nothing of the sleeper stays"


@pytest.mark.parametrize("what", ["put", "put_if_absent"])
def test_another_object_in_place_of_a_swapped_one(tmp_path: Path, what: str) -> None:
    """Also if it has the bytes that the first had, and a process died before it had cleared up."""
    store = LocalStore(tmp_path, fsync=False)
    for content in (b"first", b"second"):
        store.put("d/a", b"first")
        _swapped(store, 3, "swap")
        if what == "put_if_absent":
            (tmp_path / "d" / "a").unlink()
        getattr(store, what)("d/a", content)
        assert bytes(store.get("d/a")) == content
        assert [meta.size for meta in store.list("d")] == [len(content)]
        _swapped(store, 2, "later")
        assert bytes(store.get("d/a")) == b"later 1"
        store.delete(["d/a"])
        assert os.listdir(tmp_path) == []


def test_who_sleeps_in_a_put_while_others_swap(tmp_path: Path, sleeper: Sleeper) -> None:
    store = LocalStore(tmp_path)
    store.put_if_absent("d/a", b"first")
    sleeper.fall_asleep(tmp_path, "local_put.before_rename", "put")
    _swapped(store, 5, "during")
    assert sleeper.wake_up() == "done"
    assert bytes(store.get("d/a")) == b"sleeper", "a put that ends later counts as later"
    _swapped(store, 1, "after")
    assert bytes(store.get("d/a")) == b"after 0"
    store.delete(["d/a"])
    assert os.listdir(tmp_path) == []


def test_a_copy_of_the_directory_holds_what_was_swapped(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "one", fsync=False)
    store.put_if_absent("d/a", b"first")
    _swapped(store, 3, "swap")
    shutil.copytree(tmp_path / "one", tmp_path / "two", copy_function=shutil.copyfile)
    copy = LocalStore(tmp_path / "two", fsync=False)
    assert bytes(copy.get("d/a")) == b"swap 2"
    _swapped(copy, 1, "copy")
    assert (bytes(copy.get("d/a")), bytes(store.get("d/a"))) == (b"copy 0", b"swap 2")


def test_swaps_leave_nothing_that_grows(tmp_path: Path) -> None:
    store = LocalStore(tmp_path, fsync=False)
    store.put_if_absent("d/a", b"first")
    _swapped(store, 50, "swap")
    assert len([path for path in (tmp_path / "d").rglob("*") if path.is_file()]) == 4


def test_a_swap_after_an_own_one_takes_the_file_of_an_obsolete_version(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store.put_if_absent("d/a", b"first")
    _swapped(store, 3, "swap")
    files = {path.stat().st_ino for path in (tmp_path / "d/.weir-swaps").rglob("*") if path.is_file()}
    version = _version(store)
    for content in (b"longer than what was there", b"short", b"", b"longer again"):
        version = store.compare_and_swap("d/a", content, version)
        assert version == _version(store)
        assert bytes(store.get("d/a")) == content
        assert os.stat(store.location_of("d/a")).st_ino in files


def test_a_file_with_a_second_name_is_not_written_anew(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "one", fsync=False)
    store.put_if_absent("d/a", b"first")
    _swapped(store, 3, "swap")
    shutil.copytree(tmp_path / "one", tmp_path / "backup", copy_function=os.link)
    _swapped(store, 20, "later")
    assert bytes(LocalStore(tmp_path / "backup").get("d/a")) == b"swap 2"


def test_no_two_take_the_file_of_one_version(tmp_path: Path) -> None:
    file, published = tmp_path / "1", tmp_path / "4"
    file.write_bytes(b"obsolete")
    first = NamedFile.reusing(str(file))
    assert first is not None
    assert NamedFile.reusing(str(file)) is None
    first.fill([b"new"], 3, fsync=False)
    first.link(str(published))
    os.close(first.descriptor)  # as a process does that dies here
    assert NamedFile.reusing(str(file)) is None
    assert published.read_bytes() == b"new"


def test_a_reader_that_sleeps_until_its_version_is_written_anew_reads_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(tmp_path, fsync=False)
    store.put_if_absent("d/a", b"first")
    _swapped(store, 3, "swap")
    read = local_files.read_fully

    def sleeps(descriptor: int, start: int, length: int) -> Bytes:
        monkeypatch.setattr(local, "read_fully", read)
        _swapped(store, 4, "a longer one")
        return read(descriptor, start, length)

    monkeypatch.setattr(local, "read_fully", sleeps)
    assert bytes(store.get("d/a")) == b"a longer one 3"


@pytest.mark.parametrize("seed", range(20))
def test_stores_that_remember_what_they_swapped_beside_others(tmp_path: Path, seed: int) -> None:
    """Whatever came in between, a swap is refused exactly if its version is not the newest."""
    draw = random.Random(seed)
    root = tmp_path / "root"
    stores = [LocalStore(root, fsync=False) for _ in range(3)]
    stores[0].put_if_absent("d/a", b"0")
    known = [_version(stores[0])] * len(stores)
    content, newest = b"0", known[0]
    for number in range(1, 150):
        one = draw.randrange(len(stores))
        store, what = stores[one], draw.random()
        new = f"{number}".encode()
        if what < 0.04:
            store.delete(["d/a"])
            store.put_if_absent("d/a", new)
            content, newest = new, _version(store)
        elif what < 0.08:
            store.put("d/a", new)
            content, newest = new, _version(store)
        elif what < 0.12:
            # A backup in the place of the original: the same contents, and often the same times.
            copied = draw.choice([shutil.copy, shutil.copy2])
            shutil.copytree(root / "d", tmp_path / "copy", copy_function=copied)
            shutil.rmtree(root / "d")
            (tmp_path / "copy").rename(root / "d")
            newest = _version(store)
        elif what < 0.3:
            known[one] = _version(store)
        else:
            try:
                known[one] = store.compare_and_swap("d/a", new, known[one])
            except PreconditionError:
                assert known[one] != newest
                known[one] = _version(store)
            else:
                content, newest = new, known[one]
        assert bytes(draw.choice(stores).get("d/a")) == content
        assert _version(draw.choice(stores)) == newest


def test_readers_beside_threads_that_swap_delete_and_make_anew(tmp_path: Path) -> None:
    """Of the swaps of one version exactly one goes through, and a read finds an object or none."""
    store = LocalStore(tmp_path, fsync=False)
    numbers, ended = itertools.count(), threading.Event()
    won: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)

    def swap() -> None:
        while not ended.is_set():
            meta = store.head("d/a")
            with contextlib.suppress(PreconditionError, ObjectExistsError):
                if meta is None:
                    store.put_if_absent("d/a", f"{next(numbers)} made".encode())
                else:
                    content = f"{next(numbers)} after {meta.version}"
                    became = store.compare_and_swap("d/a", content.encode(), meta.version)
                    won[meta.version].append((content, became))

    def read() -> None:
        while not ended.is_set():
            with contextlib.suppress(ObjectNotFoundError):
                seen.append(int(bytes(store.get("d/a")).split()[0]))

    seen: list[int] = []
    with ThreadPoolExecutor(5) as pool:
        work = [pool.submit(one) for one in (swap, swap, swap, read)]
        for _ in range(100):
            time.sleep(0.005)
            store.delete(["d/a"])
        ended.set()
        for one in work:
            one.result(60)
    assert len(won) > 20
    assert {version: swaps for version, swaps in won.items() if len(swaps) > 1} == {}
    assert len(set(seen)) > 10
    store.delete(["d/a"])
    assert os.listdir(tmp_path) == []
