"""The local store: what every store does, and what only a filesystem can get wrong."""

from __future__ import annotations

import errno
import os
import pickle
import stat
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import lance
import obstore
import pyarrow as pa
import pytest
from obstore.store import LocalStore as ClientLocalStore

import weir.storage.local_publish
from tests.storage.kit import NewStore, StoreKit, in_threads
from weir.errors import ObjectNotFoundError, PreconditionError, StorageError
from weir.storage.local import LocalStore
from weir.storage.local_publish import NamedFile, UnnamedFile, supports_unnamed_files


def files_below(directory: Path) -> list[str]:
    """Every file there is, hidden ones too."""
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file())


class LocalKit(StoreKit):
    unnamed_files: bool | None
    fsync = False

    @pytest.fixture
    def new_store(self, tmp_path: Path) -> NewStore:
        numbers = iter(range(1_000_000))

        def new() -> LocalStore:
            root = tmp_path / f"store {next(numbers)}" / "täble"
            return LocalStore(root, fsync=self.fsync, unnamed_files=self.unnamed_files)

        return new

    def test_nothing_is_left_beside_the_objects(self, store: LocalStore) -> None:
        store.put("a/b", b"1")
        store.put("a/b", b"2")
        store.put_if_absent("c", b"1")
        with pytest.raises(FileExistsError):
            store.put_if_absent("c", b"2")
        meta = store.head("c")
        assert meta is not None
        store.compare_and_swap("c", b"3", meta.version)
        with pytest.raises(PreconditionError):
            store.compare_and_swap("c", b"4", meta.version)
        versions = [name for name in files_below(Path(store.uri)) if name.startswith(".weir-swaps/c/")]
        assert [Path(name).name.lstrip("0") for name in versions] == ["", "1"]
        assert files_below(Path(store.uri)) == [*versions, "a/b", "c"]
        store.delete(["c"])
        assert files_below(Path(store.uri)) == ["a/b"]
        assert os.listdir(store.uri) == ["a"]

    def test_a_file_that_is_appended_to(self, store: LocalStore) -> None:
        assert [store.append("a/b", data, synced=True) for data in (b"one", b"three", b"")] == [0, 3, 8]
        assert bytes(store.get("a/b")) == b"onethree"
        assert files_below(Path(store.uri)) == ["a/b"]
        store.delete(["a/b"])
        assert store.append("a/b", b"1", synced=False) == 0
        with pytest.raises(StorageError, match="too long"):
            store.append("n" * 300, b"", synced=False)
        with pytest.raises(StorageError, match="directory"):
            store.append("a", b"", synced=False)

    def test_directory_in_the_place_of_an_object(self, store: LocalStore) -> None:
        store.put("a/b", b"1")
        for write in (store.put, store.put_if_absent):
            with pytest.raises(StorageError, match="directory") as caught:
                write("a", b"2")
            assert not isinstance(caught.value, FileExistsError)
            assert caught.value.where == f"{store.uri}/a"
            assert caught.value.hint
        assert files_below(Path(store.uri)) == ["a/b"]

    def test_file_in_the_place_of_a_directory(self, store: LocalStore) -> None:
        store.put("a", b"1")
        for path in ("a/b", "a/b/c"):
            for write in (store.put, store.put_if_absent):
                with pytest.raises(StorageError, match="Not a directory") as caught:
                    write(path, b"2")
                assert caught.value.hint
                assert caught.value.where == f"{store.uri}/{path}"
        assert files_below(Path(store.uri)) == ["a"]

    def test_name_too_long(self, store: LocalStore) -> None:
        with pytest.raises(StorageError, match="too long"):
            store.put("n" * 300, b"")

    def test_permissions_follow_the_umask(self, store: LocalStore) -> None:
        before = os.umask(0o027)
        try:
            store.put_if_absent("a", b"")
            store.put("a", b"1")
            store.put("b", b"")
        finally:
            os.umask(before)
        for name in ("a", "b"):
            assert stat.S_IMODE(os.stat(f"{store.uri}/{name}").st_mode) == 0o640

    def test_payload_larger_than_one_write_takes(
        self, store: LocalStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A signal or a full quota cuts a write short; the rest has to follow."""
        real_write, real_writev = os.write, os.writev
        calls = []

        def short_write(descriptor: int, data: bytes) -> int:
            calls.append("write")
            return real_write(descriptor, memoryview(data)[: len(data) // 2])

        def short_writev(descriptor: int, parts: list[memoryview]) -> int:
            calls.append("writev")
            first = next((part for part in parts if part.nbytes), parts[0])
            cut = first[: max(1, min(first.nbytes * 2 // 3, 70_000))]
            return real_writev(descriptor, [cut])

        monkeypatch.setattr(os, "write", short_write)
        monkeypatch.setattr(os, "writev", short_writev)
        parts = [b"head", b"", b"x" * 300_000, b"", b"tail" * 50]
        store.put_if_absent("large", parts)
        store.put_if_absent("small", [b"ab", b"", b"cd"])
        monkeypatch.undo()
        assert calls.count("writev") > 6
        assert "write" in calls
        assert bytes(store.get("large")) == b"".join(parts)
        assert bytes(store.get("small")) == b"abcd"

    def test_file_that_shrinks_or_is_read_in_pieces(
        self, store: LocalStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        content = os.urandom(3_000_000)
        store.put("a", content)
        real_preadv, real_pread = os.preadv, os.pread
        monkeypatch.setattr(
            os, "preadv", lambda fd, buffers, at: real_preadv(fd, [buffers[0][:1_000_001]], at)
        )
        monkeypatch.setattr(os, "pread", lambda fd, size, at: real_pread(fd, size // 2, at))
        assert bytes(store.get("a")) == content
        assert bytes(store.get_range("a", 5, 1000)) == content[5:1005]

    def test_writers_race_with_deletes_that_remove_directories(self, store: LocalStore) -> None:
        rounds = 100

        def write(thread: int) -> None:
            for number in range(rounds):
                path = f"shard/{number % 3}/wal/{thread}-{number}"
                (store.put_if_absent if number % 2 else store.put)(path, b"1")
                assert bytes(store.get(path)) == b"1"
                store.delete([path])

        results = in_threads([lambda: write(1), lambda: write(2), lambda: write(3)])
        assert results == [None] * 3
        assert list(store.list("")) == []
        assert [path.name for path in Path(store.uri).iterdir()] == []

    def test_delete_never_removes_the_root(self, store: LocalStore) -> None:
        store.put("a", b"")
        store.put("b/c", b"")
        store.delete(["a", "b/c"])
        assert os.path.isdir(store.uri)
        assert not os.path.exists(f"{store.uri}/b")

    def test_delete_keeps_directories_that_hold_other_files(self, store: LocalStore) -> None:
        store.put("a/b/c", b"")
        Path(store.uri, "a", "empty").mkdir()
        store.delete(["a/b/c"])
        assert sorted(os.listdir(f"{store.uri}/a")) == ["empty"]

    def test_delete_removes_what_dead_processes_left(self, store: LocalStore) -> None:
        store.put("a/b", b"")
        abandoned = Path(store.uri, "a", ".weir-0123456789ab-1-2#0")
        abandoned.write_bytes(b"half")
        store.delete(["a/b"])
        assert abandoned.exists(), "it may belong to a writer that is just about to publish it"
        assert list(store.list("")) == []
        store.put("a/b", b"")
        old = time.time() - 2 * 3600
        os.utime(abandoned, (old, old))
        store.delete(["a/b"])
        assert not os.path.exists(f"{store.uri}/a")

    def test_temporary_files_are_hidden_from_readers_and_from_lance(self, store: LocalStore) -> None:
        store.put("a/b", b"1")
        kind = store._kind
        assert kind is not None
        staged = kind.create(f"{store.uri}/a")
        try:
            staged.fill([b"half"], 4, fsync=False)
            assert [meta.path for meta in store.list("")] == ["a/b"]
            client = ClientLocalStore(f"{store.uri}/a")
            assert [entry["path"] for chunk in obstore.list(client) for entry in chunk] == ["b"]
            assert len(os.listdir(f"{store.uri}/a")) == (1 if kind is UnnamedFile else 2)
        finally:
            staged.close()
        assert os.listdir(f"{store.uri}/a") == ["b"]

    def test_failed_write_leaves_nothing(self, store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(*_: object) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        store.put("a", b"before")
        meta = store.head("a")
        assert meta is not None
        descriptors = len(os.listdir("/proc/self/fd"))
        for name in ("write", "writev"):
            monkeypatch.setattr(os, name, fail)
        for size in (10, 1_000_000):
            for attempt in (
                partial(store.put, "a", bytes(size)),
                partial(store.put_if_absent, "b", bytes(size)),
                partial(store.compare_and_swap, "a", bytes(size), meta.version),
            ):
                with pytest.raises(StorageError, match="No space left") as caught:
                    attempt()
                assert "Free some space" in str(caught.value)
        monkeypatch.undo()
        assert files_below(Path(store.uri)) == ["a"]
        assert bytes(store.get("a")) == b"before"
        assert len(os.listdir("/proc/self/fd")) == descriptors

    def test_rename_that_fails_leaves_nothing(
        self, store: LocalStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(*_: object, **__: object) -> None:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        store.put("a", b"before")
        monkeypatch.setattr(os, "rename", fail)
        with pytest.raises(StorageError, match="disk"):
            store.put("a", b"after")
        monkeypatch.undo()
        assert files_below(Path(store.uri)) == ["a"]
        assert bytes(store.get("a")) == b"before"

    def test_unreadable_objects_are_errors_not_absences(
        self, store: LocalStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        store.put("a", b"1")

        def fail(*_: object, **__: object) -> int:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

        monkeypatch.setattr(os, "open", fail)
        with pytest.raises(StorageError, match="Permission denied") as caught:
            store.get("a")
        assert not isinstance(caught.value, ObjectNotFoundError)
        monkeypatch.undo()

        real_stat = os.stat
        monkeypatch.setattr(
            os, "stat", lambda path, **rest: fail() if str(path).endswith("/a") else real_stat(path, **rest)
        )
        with pytest.raises(StorageError, match="Permission denied"):
            store.head("a")

    def test_lance_reads_and_writes_the_same_place(self, store: LocalStore) -> None:
        lance.write_dataset(pa.table({"a": [1, 2, 3]}), f"{store.uri}/data.lance")
        store.put("data.lance/_mem_wal/x/wal/1.arrow", b"entry")
        assert lance.dataset(f"{store.uri}/data.lance").count_rows() == 3
        assert "data.lance" in store.list_directories("")
        assert any(meta.path.endswith(".manifest") for meta in store.list("data.lance/_versions"))

    def test_listings_notice_what_others_remove(self, store: LocalStore) -> None:
        for name in ("x/1/a", "x/1/b/c", "x/2/a"):
            store.put(name, b"object")
        # Each listing remembers an object of every directory, whichever the file system names first.
        for name in ("x/1/a", "x/1/b/c"):
            assert list(store.list_directories("x")) == ["1", "2"]
            (Path(store.uri) / name).unlink()
        assert list(store.list_directories("x")) == ["2"]
        store.put("x/1/b/c", b"object")
        assert list(store.list_directories("x")) == ["1", "2"]
        store.delete(["x/2/a"])
        assert list(store.list_directories("x")) == ["1"]


class TestUnnamedFiles(LocalKit):
    unnamed_files = True


class TestNamedFiles(LocalKit):
    unnamed_files = False


class TestWaitingForTheDisk(LocalKit):
    unnamed_files = None
    fsync = True
    rounds = 4
    versions = 10
    examples = 8


# ---------------------------------------------------------------------- which way files are published


def test_unnamed_files_are_chosen_where_they_work(tmp_path: Path) -> None:
    store = LocalStore(tmp_path / "table", fsync=False)
    store.put_if_absent("a", b"1")
    expected = UnnamedFile if supports_unnamed_files(str(tmp_path)) else NamedFile
    assert store._kind is expected
    assert os.listdir(tmp_path) == ["table"]


@pytest.mark.parametrize("number", [errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL])
def test_named_files_where_the_filesystem_has_no_unnamed_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    real_open = os.open
    attempts = []

    def without_unnamed(path: str, flags: int, *rest: int, **others: int) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            attempts.append(path)
            raise OSError(number, os.strerror(number))
        return real_open(path, flags, *rest, **others)

    monkeypatch.setattr(os, "open", without_unnamed)
    store = LocalStore(tmp_path, fsync=False)
    for name in ("a", "b", "c"):
        store.put_if_absent(name, name.encode())
    assert len(attempts) == 1, "found out once"
    assert files_below(tmp_path) == ["a", "b", "c"]
    assert bytes(store.get("c")) == b"c"


def test_named_files_where_proc_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weir.storage.local_publish, "_DESCRIPTORS", "/nowhere/fd")
    store = LocalStore(tmp_path, fsync=False)
    store.put_if_absent("a/b", b"1")
    assert store._kind is NamedFile
    assert files_below(tmp_path) == ["a/b"]


def test_named_files_on_systems_without_unnamed_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weir.storage.local_publish, "_O_TMPFILE", None)
    store = LocalStore(tmp_path, fsync=False)
    store.put_if_absent("a", b"1")
    assert store._kind is NamedFile


def test_link_whose_answer_was_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A network filesystem repeats the request, and is told that the name is taken: by itself."""
    real_link = os.link

    def link(source: str, target: str, **others: int) -> None:
        real_link(source, target, **others)  # type: ignore[arg-type]
        real_link(source, target, **others)  # type: ignore[arg-type]

    store = LocalStore(tmp_path, fsync=False, unnamed_files=False)
    monkeypatch.setattr(os, "link", link)
    store.put_if_absent("a", b"1")
    with pytest.raises(FileExistsError):
        store.put_if_absent("a", b"2")
    assert bytes(store.get("a")) == b"1"
    assert files_below(tmp_path) == ["a"]


def test_filesystem_without_hard_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(*_: object, **__: object) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", no_links)
    store = LocalStore(tmp_path, fsync=False)
    with pytest.raises(StorageError, match="hard links"):
        store.put_if_absent("a", b"1")
    assert files_below(tmp_path) == []


# ---------------------------------------------------------------------- durability


class SyncRecorder:
    """What was synced and published, in order: ``("sync", path)`` and ``("link", path)``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.events: list[tuple[str, str]] = []
        real_fsync, real_link, real_rename = os.fsync, os.link, os.rename

        def fsync(descriptor: int) -> None:
            self.events.append(("sync", os.readlink(f"/proc/self/fd/{descriptor}")))
            real_fsync(descriptor)

        def link(source: str, target: str, **others: int) -> None:
            real_link(source, target, **others)  # type: ignore[arg-type]
            self.events.append(("link", target))

        def rename(source: str, target: str) -> None:
            real_rename(source, target)
            self.events.append(("rename", target))

        monkeypatch.setattr(os, "fsync", fsync)
        monkeypatch.setattr(os, "link", link)
        monkeypatch.setattr(os, "rename", rename)

    def take(self) -> list[tuple[str, str]]:
        taken, self.events = self.events, []
        return taken


@pytest.mark.parametrize("unnamed_files", [True, False])
def test_data_is_synced_before_and_names_after_publishing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unnamed_files: bool
) -> None:
    root = tmp_path / "table"
    store = LocalStore(root, unnamed_files=unnamed_files)
    recorder = SyncRecorder(monkeypatch)

    store.put_if_absent("s/wal/1", b"1")
    (first, staged), *others = recorder.take()
    assert first == "sync"
    assert Path(staged).parent == root / "s/wal"
    # The name, then the directory that holds it, then every directory that was new.
    directories = [root / "s/wal", root / "s", root, tmp_path]
    assert others == [("link", f"{root}/s/wal/1"), *(("sync", str(path)) for path in directories)]

    store.put_if_absent("s/wal/2", b"2")
    events = recorder.take()
    assert [event for event, _ in events] == ["sync", "link", "sync"]
    assert events[1:] == [("link", f"{root}/s/wal/2"), ("sync", str(root / "s/wal"))]

    store.put("s/wal/2", b"3")
    events = recorder.take()
    assert events[0][0] == "sync"
    assert events[-2:] == [("rename", f"{root}/s/wal/2"), ("sync", str(root / "s/wal"))]

    meta = store.head("s/wal/2")
    assert meta is not None
    store.compare_and_swap("s/wal/2", b"4", meta.version)
    events = recorder.take()
    (chain,) = (root / "s/wal/.weir-swaps/2").iterdir()
    assert events[0][0] == "sync"
    # The version, then every directory above it, since all that name it are new.
    directories = [chain, *list(chain.parents)[:6]]
    assert events[1:] == [("link", f"{chain}/{1:020d}"), *(("sync", str(path)) for path in directories)]

    meta = store.head("s/wal/2")
    assert meta is not None
    store.compare_and_swap("s/wal/2", b"5", meta.version)
    events = recorder.take()
    assert events[0][0] == "sync"
    assert events[1:] == [("link", f"{chain}/{2:020d}"), ("sync", str(chain))]


def test_directory_that_was_removed_is_made_durable_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(tmp_path)
    store.put_if_absent("s/wal/1", b"1")
    for outsider in (store, LocalStore(tmp_path)):
        outsider.delete(["s/wal/1"])
        assert not (tmp_path / "s").exists()
        recorder = SyncRecorder(monkeypatch)
        store.put_if_absent("s/wal/1", b"1")
        assert ("sync", str(tmp_path / "s")) in recorder.take()
        monkeypatch.undo()


def test_another_process_may_have_made_the_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever made it may have died before syncing it, so the first write here does it again."""
    (tmp_path / "table/s/wal").mkdir(parents=True)
    recorder = SyncRecorder(monkeypatch)
    LocalStore(tmp_path / "table").put_if_absent("s/wal/1", b"1")
    synced = [path for event, path in recorder.take() if event == "sync"][1:]
    assert synced == [str(tmp_path / path) for path in ("table/s/wal", "table/s", "table", "")]


def test_versions_are_as_fine_as_the_clock(tmp_path: Path) -> None:
    """The kernel's own times tick so slowly that an inode could come back within one of them."""
    store = LocalStore(tmp_path, fsync=False)
    for number in range(50):
        before = time.time_ns()
        store.put_if_absent(str(number), b"")
        store.put("replaced", b"")
        after = time.time_ns()
        for name in (str(number), "replaced"):
            assert before <= os.stat(tmp_path / name).st_mtime_ns <= after


@pytest.mark.parametrize("hours", [-6, 6])
def test_times_are_those_of_the_file_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    """Where our own clock is wrong, or the file system that of another machine."""
    shift = hours * 3600
    shifted = SimpleNamespace(time_ns=lambda: time.time_ns() + shift * 1_000_000_000)
    monkeypatch.setattr(weir.storage.local_publish, "time", shifted)
    store = LocalStore(tmp_path, fsync=False)
    seen = set()
    for _ in range(50):
        store.put("replaced", b"same size")
        (meta,) = store.list("")
        assert abs(meta.last_modified.timestamp() - time.time()) < 60
        seen.add(meta.version)
    assert len(seen) == 50
    assert store.compare_and_swap("replaced", b"same size", meta.version) != meta.version


def test_nothing_is_synced_when_switched_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = LocalStore(tmp_path, fsync=False)
    recorder = SyncRecorder(monkeypatch)
    store.put_if_absent("a/b", b"1")
    store.put("a/b", b"2")
    store.sync("")
    assert not [event for event in recorder.take() if event[0] == "sync"]


def test_sync_makes_what_lance_wrote_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = LocalStore(tmp_path / "table")
    generation = tmp_path / "table/_mem_wal/s/0a1b2c3d_gen_1"
    lance.write_dataset(pa.table({"a": [1, 2, 3]}), str(generation))
    recorder = SyncRecorder(monkeypatch)
    store.sync("_mem_wal/s/0a1b2c3d_gen_1")
    synced = [path for _, path in recorder.take()]
    files = {str(path) for path in generation.rglob("*") if path.is_file()}
    directories = {str(path) for path in generation.rglob("*") if path.is_dir()} | {
        str(generation.parents[level]) for level in range(4)
    }
    assert len(files) >= 3
    assert set(synced) == files | directories | {str(generation)}
    # A directory is synced after what it holds.
    for path in files:
        assert synced.index(path) < synced.index(os.path.dirname(path))

    store.sync("_mem_wal/missing")
    assert recorder.take() == []


def test_failing_sync_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = LocalStore(tmp_path)

    def fail(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(StorageError, match="disk"):
        store.put_if_absent("a", b"1")
    assert files_below(tmp_path) == [], "what is not on the disk is not published"

    # Let the file through, so that only its directory fails.
    monkeypatch.setattr(
        os, "fsync", lambda descriptor: fail(0) if stat.S_ISDIR(os.fstat(descriptor).st_mode) else None
    )
    with pytest.raises(StorageError, match="written, but making its name durable failed"):
        store.put_if_absent("a", b"1")


# ---------------------------------------------------------------------- the rest


def test_root_is_absolute_and_survives_a_change_of_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    store = LocalStore("table", fsync=False)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    store.put("a", b"1")
    assert store.uri == str(tmp_path / "table")
    assert files_below(tmp_path) == ["table/a"]


def test_pickle_keeps_the_settings(tmp_path: Path) -> None:
    store = pickle.loads(pickle.dumps(LocalStore(tmp_path, fsync=False, unnamed_files=False)))
    assert store.waits_for_disk is False
    assert store._kind is NamedFile


def test_reads_of_objects_behind_symbolic_links(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/a").write_bytes(b"1")
    (tmp_path / "table").mkdir()
    (tmp_path / "table/data").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "table/broken").symlink_to(tmp_path / "missing")
    store = LocalStore(tmp_path / "table", fsync=False)
    assert [meta.path for meta in store.list("")] == ["data/a"]
    assert bytes(store.get("data/a")) == b"1"
    assert store.head("broken") is None


def test_circle_of_symbolic_links_is_reported(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    with pytest.raises(StorageError, match="circle"):
        LocalStore(tmp_path).get("a")


def test_descriptors_are_closed(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    before = len(os.listdir("/proc/self/fd"))
    for number in range(20):
        store.put_if_absent(f"d{number}/a", b"1")
        store.put(f"d{number}/a", b"2")
        store.get(f"d{number}/a")
        store.list("")
        store.sync(f"d{number}")
    store.delete(meta.path for meta in store.list(""))
    assert len(os.listdir("/proc/self/fd")) == before


def test_directory_removed_while_an_unnamed_file_is_made_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where other filesystems say that the directory is missing, ext4 says EPERM."""
    store = LocalStore(tmp_path / "table", fsync=False, unnamed_files=True)
    real_create = UnnamedFile.create
    refusals = iter([True, True, False])

    def create(directory: str) -> UnnamedFile:
        if next(refusals):
            Path(directory).rmdir() if Path(directory).exists() else None
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))
        return real_create(directory)

    monkeypatch.setattr(UnnamedFile, "create", create)
    store.put_if_absent("a/b", b"1")
    assert bytes(store.get("a/b")) == b"1"
    monkeypatch.setattr(UnnamedFile, "create", lambda _: create_refused())

    def create_refused() -> UnnamedFile:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    with pytest.raises(StorageError, match="not permitted"):
        store.put_if_absent("a/c", b"1")


def test_what_a_killed_process_left_of_lance_can_be_deleted_with_its_directory(tmp_path: Path) -> None:
    store = LocalStore(tmp_path, fsync=False)
    store.put("a/1.manifest", b"1")
    (tmp_path / "a" / "2.manifest#1").write_bytes(b"")
    listed = [meta.path for meta in store.list("a")]
    assert listed == ["a/1.manifest", "a/2.manifest#1"]
    store.delete(listed)
    assert not (tmp_path / "a").exists()
