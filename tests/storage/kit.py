"""What every store must do, as tests that each backend's own tests inherit.

A subclass of :class:`StoreKit` overrides the fixture ``new_store`` with a function that opens an empty
store at a place of its own.
"""

from __future__ import annotations

import os
import pickle
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from weir.errors import (
    ObjectExistsError,
    ObjectNotFoundError,
    OptionError,
    PreconditionError,
    UriError,
)
from weir.storage.interface import Bytes, ObjectStore

__all__ = ["NewStore", "StoreKit", "in_threads"]

NewStore = Callable[[], ObjectStore]

ODD_NAMES = [
    "naïve/Ωmega/☃.bin",
    "with space/and+plus&amp=1.bin",
    "percent%20sign/100%.bin",
    'quote\'s/"double".bin',
    "hash#tag/a#b.bin",
    "question?/mark=1.bin",
    "colon:semicolon;comma,/at@.bin",
    "back\\slash/tilde~.bin",
    ".hidden/..double/...triple",
    "e\u0301/decomposed and \u00e9 composed",
    "deep/" * 20 + "leaf",
    "n" * 200,
]
BAD_PATHS = [
    "",
    "/",
    "/absolute",
    "a//b",
    "a/",
    ".",
    "..",
    "../outside",
    "a/../../b",
    "a/./b",
    "nul\0byte",
    "half \ud800 character",
    ".weir-swaps/00",
    "a/.weir-anything",
    "a/staged#1",
    "staged#0/b",
]


def in_threads(work: Sequence[Callable[[], object]]) -> list[object]:
    """Start everything at once and return the results, or the errors, in order."""
    barrier = threading.Barrier(len(work))

    def run(one: Callable[[], object]) -> object:
        barrier.wait()
        try:
            return one()
        except Exception as error:
            return error

    with ThreadPoolExecutor(len(work)) as pool:
        return list(pool.map(run, work))


class StoreKit:
    """The tests; subclasses say which store."""

    #: How many threads race each other.
    threads = 8
    #: How often the races are run.
    rounds = 12
    #: How many contents one object has, one after the other.
    versions = 30
    #: How many examples the state machine tries.
    examples = 25
    #: The size of the large payload in bytes.
    large = 12_000_000

    @pytest.fixture
    def new_store(self) -> NewStore:
        raise AssertionError("a subclass says which store to test")

    @pytest.fixture
    def store(self, new_store: NewStore) -> ObjectStore:
        return new_store()

    # ------------------------------------------------------------------ whole objects

    def test_put_then_get(self, store: ObjectStore) -> None:
        store.put("a/b", b"content")
        assert bytes(store.get("a/b")) == b"content"

    def test_put_replaces(self, store: ObjectStore) -> None:
        store.put("a", b"a longer first content")
        store.put("a", b"second")
        assert bytes(store.get("a")) == b"second"

    def test_put_if_absent_then_get(self, store: ObjectStore) -> None:
        store.put_if_absent("a/b/c", b"content")
        assert bytes(store.get("a/b/c")) == b"content"

    def test_put_if_absent_leaves_what_is_there(self, store: ObjectStore) -> None:
        store.put("a/b", b"first")
        with pytest.raises(ObjectExistsError) as caught:
            store.put_if_absent("a/b", b"second")
        assert caught.value.where is not None
        assert caught.value.where.endswith("a/b")
        assert caught.value.hint
        assert isinstance(caught.value, FileExistsError)
        assert bytes(store.get("a/b")) == b"first"

    def test_put_if_absent_after_delete(self, store: ObjectStore) -> None:
        store.put_if_absent("a", b"first")
        store.delete(["a"])
        store.put_if_absent("a", b"second")
        assert bytes(store.get("a")) == b"second"

    @pytest.mark.parametrize("write", ["put", "put_if_absent"])
    @pytest.mark.parametrize(
        ("data", "expected"),
        [
            pytest.param(b"", b"", id="empty"),
            pytest.param([], b"", id="no parts"),
            pytest.param([b"", pa.py_buffer(b""), memoryview(b"")], b"", id="empty parts"),
            pytest.param(bytearray(b"abc"), b"abc", id="bytearray"),
            pytest.param(memoryview(b"xabcx")[1:4], b"abc", id="memoryview"),
            pytest.param(pa.py_buffer(b"abc"), b"abc", id="arrow buffer"),
            pytest.param(
                [np.arange(3).data, np.zeros((0, 4)).data],
                np.arange(3).tobytes(),
                id="views of other items",
            ),
            pytest.param([b"a", bytearray(b"b"), memoryview(b"c"), pa.py_buffer(b"d")], b"abcd", id="mixed"),
            pytest.param((b"a", b"b"), b"ab", id="tuple"),
            pytest.param(
                [b"%d," % i for i in range(5000)], b"".join(b"%d," % i for i in range(5000)), id="many"
            ),
        ],
    )
    def test_payloads_of_every_kind(
        self, store: ObjectStore, write: str, data: Bytes | Sequence[Bytes], expected: bytes
    ) -> None:
        getattr(store, write)("a", data)
        assert bytes(store.get("a")) == expected
        meta = store.head("a")
        assert meta is not None
        assert meta.size == len(expected)

    def test_large_payload_in_uneven_parts(self, store: ObjectStore) -> None:
        content = np.random.default_rng(7).bytes(self.large)
        view = memoryview(content)
        # Three thousand small parts around a few large ones, more than one system call takes.
        cuts = [*range(0, 60_000, 20), 100_000, 4_000_000, 4_000_001, len(content)]
        parts = [view[start:end] for start, end in pairwise(cuts)]
        store.put_if_absent("absent", parts)
        store.put("put", [pa.py_buffer(part) for part in parts])
        meta = store.head("put")
        assert meta is not None
        store.compare_and_swap("put", [b"<", *parts, b">"], meta.version)
        assert bytes(store.get("absent")) == content
        assert bytes(store.get("put")) == b"<" + content + b">"
        assert bytes(store.get_range("absent", 3_999_990, 50)) == content[3_999_990:4_000_040]

    def test_what_is_given_stays_valid_and_is_shared_with_arrow(self, store: ObjectStore) -> None:
        for size in (10, 3_000_000):
            content = bytes(size)
            store.put("a", content)
            data = store.get("a")
            store.put("a", b"x" * size)
            store.delete(["a"])
            assert isinstance(data, bytes | pa.Buffer)
            assert pa.py_buffer(data).equals(pa.py_buffer(content))
            assert len(data) == size

    # ------------------------------------------------------------------ ranges

    @pytest.mark.parametrize("size", [0, 1, 10])
    def test_ranges_are_slices(self, store: ObjectStore, size: int) -> None:
        content = bytes(range(size))
        store.put("a", content)
        for start in (0, 1, 3, 9, 10, 11, 1000, -1, -3, -10, -11, -1000):
            for length in (0, 1, 4, 10, 1000):
                first = max(0, size + start) if start < 0 else start
                assert bytes(store.get_range("a", start, length)) == content[first : first + length]

    def test_range_of_negative_length(self, store: ObjectStore) -> None:
        store.put("a", b"content")
        with pytest.raises(OptionError):
            store.get_range("a", 0, -1)

    # ------------------------------------------------------------------ absence

    def test_missing_objects(self, store: ObjectStore) -> None:
        store.put("there/is/one", b"1")
        for path in ("missing", "there/missing", "there", "there/is", "no/such/directory"):
            with pytest.raises(ObjectNotFoundError) as caught:
                store.get(path)
            assert isinstance(caught.value, FileNotFoundError)
            assert caught.value.where is not None
            assert caught.value.where.endswith(path)
            for start, length in ((0, 10), (-10, 10), (0, 0)):
                with pytest.raises(ObjectNotFoundError):
                    store.get_range(path, start, length)
            assert store.head(path) is None
            with pytest.raises(PreconditionError):
                store.compare_and_swap(path, b"new", "any version")
            assert store.head(path) is None

    def test_empty_store(self, store: ObjectStore) -> None:
        assert list(store.list("")) == []
        assert list(store.list("a/b")) == []
        assert list(store.list_directories("")) == []
        assert store.head("a") is None
        store.delete(["a", "b/c"])
        store.delete([])
        store.sync("")
        store.sync("a/b")
        assert list(store.list("")) == []

    # ------------------------------------------------------------------ what is known of an object

    def test_head(self, store: ObjectStore) -> None:
        before = datetime.now(UTC)
        store.put("a/b", b"12345")
        meta = store.head("a/b")
        assert meta is not None
        assert meta.path == "a/b"
        assert meta.size == 5
        assert meta.version
        assert meta.last_modified.utcoffset() == timedelta(0)
        assert abs(meta.last_modified - before) < timedelta(seconds=60)
        assert store.head("a/b") == meta
        assert list(store.list("")) == [meta]

    def test_version_changes_with_the_content(self, store: ObjectStore) -> None:
        versions = set()
        for number in range(self.versions):
            store.put("a", b"%02d" % number)
            meta = store.head("a")
            assert meta is not None
            versions.add(meta.version)
        assert len(versions) == self.versions

    def test_version_changes_when_deleted_and_written_again(self, store: ObjectStore) -> None:
        versions = set()
        for number in range(self.versions):
            store.put_if_absent("a", b"%02d" % number)
            meta = store.head("a")
            assert meta is not None
            versions.add(meta.version)
            store.delete(["a"])
        assert len(versions) == self.versions

    # ------------------------------------------------------------------ compare and swap

    def test_an_object_is_read_with_its_version(self, store: ObjectStore) -> None:
        with pytest.raises(ObjectNotFoundError):
            store.get_with_version("a/b")
        store.put_if_absent("a/b", b"first")
        data, version = store.get_with_version("a/b")
        meta = store.head("a/b")
        assert meta is not None
        assert (bytes(memoryview(data)), version) == (b"first", meta.version)
        swapped = store.compare_and_swap("a/b", b"second", version)
        assert store.get_with_version("a/b")[1] == swapped
        store.put("a/b", b"third")
        data, version = store.get_with_version("a/b")
        assert bytes(memoryview(data)) == b"third"
        assert version not in ("", swapped)

    def test_compare_and_swap(self, store: ObjectStore) -> None:
        store.put("a/b", b"first")
        meta = store.head("a/b")
        assert meta is not None
        second = store.compare_and_swap("a/b", [b"sec", b"ond"], meta.version)
        assert bytes(store.get("a/b")) == b"second"
        now = store.head("a/b")
        assert now is not None
        assert now.version == second != meta.version
        third = store.compare_and_swap("a/b", b"third", second)
        assert third != second
        for stale in (meta.version, second):
            with pytest.raises(PreconditionError) as caught:
                store.compare_and_swap("a/b", b"never", stale)
            assert caught.value.hint
        assert bytes(store.get("a/b")) == b"third"

    def test_compare_and_swap_of_a_deleted_object(self, store: ObjectStore) -> None:
        store.put("a", b"first")
        meta = store.head("a")
        assert meta is not None
        store.delete(["a"])
        with pytest.raises(PreconditionError):
            store.compare_and_swap("a", b"never", meta.version)
        assert store.head("a") is None

    # ------------------------------------------------------------------ listings

    def test_list_in_path_order_at_any_depth(self, store: ObjectStore) -> None:
        paths = ["a/b/c/d", "a/b!", "a/b/c", "a0", "a/b.txt", "a/z", "B", "a/ä", "a/ﬀ", "a/𝄞"]
        # "a/b/c" cannot be both a file and a directory on a disk.
        paths.remove("a/b/c")
        for path in paths:
            store.put(path, path.encode())
        assert [meta.path for meta in store.list("")] == sorted(paths)
        assert [meta.path for meta in store.list("a")] == sorted(p for p in paths if p.startswith("a/"))
        assert [meta.path for meta in store.list("a/")] == sorted(p for p in paths if p.startswith("a/"))
        assert [meta.path for meta in store.list("a/b")] == ["a/b/c/d"]
        assert [meta.path for meta in store.list("a/b/c/d")] == []
        assert [meta.size for meta in store.list("a")] == [
            len(p.encode()) for p in sorted(paths) if p.startswith("a/")
        ]

    def test_list_does_not_mistake_names_that_begin_alike(self, store: ObjectStore) -> None:
        for path in ("wal/1", "wal2/1", "wal.old/1", "walrus"):
            store.put(path, b"")
        assert [meta.path for meta in store.list("wal")] == ["wal/1"]
        assert list(store.list_directories("")) == ["wal", "wal.old", "wal2"]

    def test_list_directories(self, store: ObjectStore) -> None:
        for path in ("x/2/b/c", "x/1/a", "x/file", "x/10/d/e/f", "top"):
            store.put(path, b"")
        assert list(store.list_directories("")) == ["x"]
        assert list(store.list_directories("x")) == ["1", "10", "2"]
        assert list(store.list_directories("x/10/")) == ["d"]
        assert list(store.list_directories("x/1")) == []
        assert list(store.list_directories("x/file")) == []
        assert list(store.list_directories("missing")) == []

    def test_directories_are_gone_with_their_last_object(self, store: ObjectStore) -> None:
        store.put("x/1/a/b", b"")
        store.put("x/2/a", b"")
        store.delete(["x/1/a/b"])
        assert list(store.list_directories("x")) == ["2"]
        store.delete(["x/2/a"])
        assert list(store.list_directories("")) == []

    def test_long_listing(self, store: ObjectStore) -> None:
        names = [f"{number:05d}" for number in range(self.rounds * 60)]
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda name: store.put_if_absent(f"wal/{name}", b""), names))
        assert [meta.path for meta in store.list("wal")] == [f"wal/{name}" for name in names]
        store.delete(f"wal/{name}" for name in names[1:])
        assert [meta.path for meta in store.list("")] == ["wal/00000"]

    # ------------------------------------------------------------------ deletion

    def test_copy(self, store: ObjectStore) -> None:
        store.put("from/a", b"content")
        store.copy("from/a", "to/b/c")
        assert [bytes(store.get(path)) for path in ("from/a", "to/b/c")] == [b"content"] * 2
        store.delete(["from/a"])
        assert bytes(store.get("to/b/c")) == b"content"

    def test_copies_count_as_written_when_they_were_made(self, store: ObjectStore) -> None:
        store.put("a", b"content")
        if store.is_local:
            os.utime(f"{store.uri}/a", (1, 1))
        store.copy("a", "b")
        copied = store.head("b")
        assert copied is not None
        assert abs(datetime.now(UTC) - copied.last_modified) < timedelta(minutes=10)

    def test_copy_of_nothing(self, store: ObjectStore) -> None:
        with pytest.raises(ObjectNotFoundError):
            store.copy("absent", "b")
        assert store.head("b") is None

    def test_delete(self, store: ObjectStore) -> None:
        for path in ("a/1", "a/2", "b/1"):
            store.put(path, b"")
        store.delete(iter(["a/1", "missing", "b/1", "a/1", "no/such/directory"]))
        assert [meta.path for meta in store.list("")] == ["a/2"]

    def test_delete_of_a_directory_deletes_nothing(self, store: ObjectStore) -> None:
        store.put("a/b/c", b"")
        store.delete(["a", "a/b"])
        assert [meta.path for meta in store.list("")] == ["a/b/c"]

    # ------------------------------------------------------------------ names

    @pytest.mark.parametrize("path", ODD_NAMES)
    def test_odd_names(self, store: ObjectStore, path: str) -> None:
        store.put_if_absent(path, b"1")
        assert bytes(store.get(path)) == b"1"
        assert [meta.path for meta in store.list("")] == [path]
        if "/" in path:
            assert list(store.list_directories("")) == [path.split("/")[0]]
            assert [meta.path for meta in store.list(path.rpartition("/")[0])] == [path]
        meta = store.head(path)
        assert meta is not None
        store.compare_and_swap(path, b"22", meta.version)
        assert bytes(store.get_range(path, 1, 5)) == b"2"
        store.put(path, b"333")
        with pytest.raises(ObjectExistsError):
            store.put_if_absent(path, b"4444")
        store.delete([path])
        assert store.head(path) is None

    @pytest.mark.parametrize("path", BAD_PATHS)
    def test_bad_paths_are_refused_by_every_operation(self, store: ObjectStore, path: str) -> None:
        store.put("a/b", b"1")
        operations: list[Callable[[], object]] = [
            lambda: store.get(path),
            lambda: store.get_range(path, 0, 1),
            lambda: store.head(path),
            lambda: store.put(path, b"1"),
            lambda: store.put_if_absent(path, b"1"),
            lambda: store.compare_and_swap(path, b"1", "1"),
        ]
        if path != "a/staged#1":
            # A temporary file of Lance may be listed, and so it may be deleted.
            operations.append(lambda: store.delete(["a/b", path]))
        if path and not path.endswith("/"):
            operations += [
                lambda: store.list(path),
                lambda: store.list_directories(path),
                lambda: store.sync(path),
            ]
        for operation in operations:
            with pytest.raises(UriError):
                operation()
        assert [meta.path for meta in store.list("")] == ["a/b"]

    # ------------------------------------------------------------------ the store itself

    def test_pickled_store_opens_the_same_place(self, store: ObjectStore) -> None:
        store.put("a", b"1")
        again = pickle.loads(pickle.dumps(store))
        assert bytes(again.get("a")) == b"1"
        again.put("b/c", b"2")
        assert bytes(store.get("b/c")) == b"2"
        assert again.uri == store.uri
        assert dict(again.storage_options) == dict(store.storage_options)
        assert again.is_local == store.is_local
        assert type(again) is type(store)

    def test_stores_at_different_places_share_nothing(self, new_store: NewStore) -> None:
        one, other = new_store(), new_store()
        one.put("a", b"1")
        assert other.head("a") is None
        assert one.uri != other.uri

    # ------------------------------------------------------------------ races

    def test_one_of_many_puts_if_absent_wins(self, store: ObjectStore) -> None:
        stores = [store, pickle.loads(pickle.dumps(store))]
        for number in range(self.rounds):
            path = f"wal/{number}"
            contents = [bytes([thread]) * (1000 + thread) for thread in range(self.threads)]
            results = in_threads(
                [
                    partial(stores[index % 2].put_if_absent, path, content)
                    for index, content in enumerate(contents)
                ]
            )
            winners = [index for index, result in enumerate(results) if result is None]
            assert len(winners) == 1, results
            assert sum(isinstance(result, ObjectExistsError) for result in results) == self.threads - 1
            assert bytes(store.get(path)) == contents[winners[0]]

    def test_one_of_many_swaps_wins(self, store: ObjectStore) -> None:
        stores = [store, pickle.loads(pickle.dumps(store))]
        store.put("lease/a", b"start")
        for _ in range(self.rounds):
            meta = store.head("lease/a")
            assert meta is not None
            contents = [b"%d after %s" % (index, meta.version.encode()) for index in range(self.threads)]
            results = in_threads(
                [
                    partial(stores[index % 2].compare_and_swap, "lease/a", content, meta.version)
                    for index, content in enumerate(contents)
                ]
            )
            winners = [index for index, result in enumerate(results) if isinstance(result, str)]
            assert len(winners) == 1, results
            assert sum(isinstance(result, PreconditionError) for result in results) == self.threads - 1
            assert bytes(store.get("lease/a")) == contents[winners[0]]
            now = store.head("lease/a")
            assert now is not None
            assert now.version == results[winners[0]]

    def test_a_counter_swapped_by_many_threads_loses_no_step(self, store: ObjectStore) -> None:
        store.put("counter", b"0")
        steps = max(3, self.rounds // 4)

        def count() -> None:
            for _ in range(steps):
                while True:
                    meta = store.head("counter")
                    assert meta is not None
                    value = int(bytes(store.get("counter")))
                    try:
                        # What was read may be newer than its version; then the swap fails.
                        store.compare_and_swap("counter", b"%d" % (value + 1), meta.version)
                        break
                    except PreconditionError:
                        pass

        assert in_threads([count] * 4) == [None] * 4
        assert int(bytes(store.get("counter"))) == 4 * steps

    def test_readers_see_whole_objects(self, store: ObjectStore) -> None:
        """Objects say how long they are and of which byte they consist; readers check both."""
        done = threading.Event()

        def content(number: int) -> list[bytes]:
            size = 1 + (number * 7919) % 200_000
            return [b"%08d%04d" % (size, number % 256), bytes([number % 256]) * size]

        def check(data: Bytes) -> None:
            whole = bytes(data)
            size, byte = int(whole[:8]), int(whole[8:12])
            assert whole[12:] == bytes([byte]) * size

        store.put("hint", content(0))

        def replace() -> None:
            for number in range(self.rounds * 5):
                store.put("hint", content(number))
            done.set()

        def publish() -> None:
            for number in range(self.rounds * 5):
                store.put_if_absent(f"wal/{number:04d}", content(number))

        def read() -> int:
            reads = 0
            while not done.is_set() or reads == 0:
                check(store.get("hint"))
                for meta in store.list("wal")[-3:]:
                    whole = store.get(meta.path)
                    assert meta.size == len(whole)
                    check(whole)
                reads += 1
            return reads

        results = in_threads([replace, publish, read, read])
        assert not [result for result in results if isinstance(result, BaseException)], results

    # ------------------------------------------------------------------ against a dict

    def test_behaves_as_a_dict(self, new_store: NewStore) -> None:
        class Machine(StoreMachine):
            make = staticmethod(new_store)

        run_state_machine_as_test(
            Machine, settings=settings(max_examples=self.examples, stateful_step_count=25, deadline=None)
        )


_directories = st.sampled_from(["", "a/", "a/b/", "a/b/c/", "ü ☃/"])
_files = st.sampled_from(["1.arrow", "2.arrow", "hint.json", "ä.bin"])
_paths = st.builds(lambda directory, name: directory + name, _directories, _files)
_prefixes = _directories.map(lambda directory: directory.removesuffix("/"))
_contents = st.one_of(
    st.binary(max_size=20), st.binary(min_size=1, max_size=3).map(lambda data: data * 40_000)
)


class StoreMachine(RuleBasedStateMachine):
    """A store against a dict from path to content."""

    make: NewStore

    def __init__(self) -> None:
        super().__init__()
        self.store = self.make()
        self.model: dict[str, bytes] = {}
        # Every version ever seen of a path, with the content it was seen with.
        self.versions: dict[str, dict[str, bytes]] = {}

    def _written(self, path: str, content: bytes) -> None:
        self.model[path] = content
        meta = self.store.head(path)
        assert meta is not None
        seen = self.versions.setdefault(path, {})
        assert seen.setdefault(meta.version, content) == content, "a version stands for one content"

    @rule(path=_paths, content=_contents, cut=st.integers(0, 30))
    def put(self, path: str, content: bytes, cut: int) -> None:
        self.store.put(path, [content[:cut], memoryview(content)[cut:]])
        self._written(path, content)

    @rule(path=_paths, content=_contents)
    def put_if_absent(self, path: str, content: bytes) -> None:
        if path in self.model:
            with pytest.raises(ObjectExistsError):
                self.store.put_if_absent(path, content)
        else:
            self.store.put_if_absent(path, content)
            self._written(path, content)

    @rule(path=_paths, content=_contents, data=st.data())
    def compare_and_swap(self, path: str, content: bytes, data: st.DataObject) -> None:
        known = sorted(self.versions.get(path, {"0": b""}))
        expected = data.draw(st.sampled_from(known))
        meta = self.store.head(path)
        if meta is not None and meta.version == expected:
            version = self.store.compare_and_swap(path, content, expected)
            self._written(path, content)
            now = self.store.head(path)
            assert now is not None
            assert now.version == version
        else:
            with pytest.raises(PreconditionError):
                self.store.compare_and_swap(path, content, expected)

    @rule(paths=st.lists(_paths, max_size=4))
    def delete(self, paths: list[str]) -> None:
        self.store.delete(paths)
        for path in paths:
            self.model.pop(path, None)

    @rule(path=_paths, start=st.integers(-50, 50), length=st.integers(0, 50))
    def get(self, path: str, start: int, length: int) -> None:
        content = self.model.get(path)
        if content is None:
            assert self.store.head(path) is None
            with pytest.raises(ObjectNotFoundError):
                self.store.get(path)
            with pytest.raises(ObjectNotFoundError):
                self.store.get_range(path, start, length)
            return
        assert bytes(self.store.get(path)) == content
        first = max(0, len(content) + start) if start < 0 else start
        assert bytes(self.store.get_range(path, start, length)) == content[first : first + length]

    @rule(prefix=_prefixes)
    def list(self, prefix: str) -> None:
        below = prefix + "/" if prefix else ""
        expected = sorted(path for path in self.model if path.startswith(below))
        found = self.store.list(prefix)
        assert [meta.path for meta in found] == expected
        assert [meta.size for meta in found] == [len(self.model[path]) for path in expected]
        assert [*map(self.store.head, expected)] == [*found]

    @rule(prefix=_prefixes)
    def list_directories(self, prefix: str) -> None:
        below = prefix + "/" if prefix else ""
        inner = (path.removeprefix(below) for path in self.model if path.startswith(below))
        expected = sorted({path.split("/")[0] for path in inner if "/" in path})
        assert [*self.store.list_directories(prefix)] == expected

    @rule()
    def reopen(self) -> None:
        self.store = pickle.loads(pickle.dumps(self.store))

    @invariant()
    def holds_what_the_dict_holds(self) -> None:
        assert [meta.path for meta in self.store.list("")] == sorted(self.model)
