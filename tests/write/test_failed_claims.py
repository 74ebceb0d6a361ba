"""Claims during which the store fails, at each of their operations: they leave no lease in the way."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest

from tests.write.conftest import SHARD, OpenWriter, another_machine, rows
from weir.errors import LeaseHeldError, StorageError
from weir.log.read_lease import read_lease
from weir.storage.counting import CountingStore
from weir.storage.interface import Bytes, ObjectMeta, ObjectStore
from weir.storage.local import LocalStore
from weir.write.lease.lease import ShardLease
from weir.write.lease.lease_terms import LeaseTerms
from weir.write.lease.released_leases import ReleasedLeases

T = TypeVar("T")


class FailingStore(CountingStore):
    """Fails at one operation, before or after it was done, and at all that follow if it is to stay down."""

    def __init__(self, store: ObjectStore, at: int, *, done: bool, stays_down: bool, error: type) -> None:
        super().__init__(store)
        self._at, self._done, self._stays_down, self._error = at, done, stays_down, error
        self._operations = 0
        self.failed = False

    def _do(self, operation: Callable[[], T]) -> T:
        self._operations += 1
        if self._operations < self._at or (self._operations > self._at and not self._stays_down):
            return operation()
        if self._operations > self._at:
            raise StorageError("the store is down still")
        self.failed = True
        if self._done:
            with suppress(StorageError):
                operation()
        raise self._error("the store is down")

    def heal(self) -> None:
        """Fail no more."""
        self._at, self._stays_down = 0, False

    def get(self, path: str) -> Bytes:
        return self._do(lambda: super(FailingStore, self).get(path))

    def get_range(self, path: str, start: int, length: int) -> Bytes:
        return self._do(lambda: super(FailingStore, self).get_range(path, start, length))

    def head(self, path: str) -> ObjectMeta | None:
        return self._do(lambda: super(FailingStore, self).head(path))

    def list(self, prefix: str) -> Sequence[ObjectMeta]:
        return self._do(lambda: super(FailingStore, self).list(prefix))

    def put(self, path: str, data: Bytes | Sequence[Bytes]) -> None:
        return self._do(lambda: super(FailingStore, self).put(path, data))

    def put_if_absent(self, path: str, data: Bytes | Sequence[Bytes]) -> None:
        return self._do(lambda: super(FailingStore, self).put_if_absent(path, data))

    def compare_and_swap(self, path: str, data: Bytes | Sequence[Bytes], expected: str) -> str:
        return self._do(lambda: super(FailingStore, self).compare_and_swap(path, data, expected))

    def delete(self, paths: Iterable[str]) -> None:
        return self._do(lambda: super(FailingStore, self).delete(paths))


def a_shard(directory: Path, open_writer: OpenWriter, is_new: bool) -> LocalStore:
    """Return a store with a shard: one that nobody has claimed, or with a row in its log."""
    store = LocalStore(directory, fsync=False)
    if not is_new:
        writer = open_writer(store, flush_on_close=False)
        writer.submit(rows((1, "a"))).result()
        writer.close()
    return store


def fails(open_writer: OpenWriter, failing: FailingStore) -> bool:
    """Whether a claim fails; one that stands it is closed again."""
    try:
        writer = open_writer(failing, flush_on_close=False)
    except (StorageError, KeyboardInterrupt):
        return True
    failing.heal()
    writer.close()
    return False


@pytest.mark.covering
@pytest.mark.parametrize("is_new", [True, False], ids=["new shard", "shard with a log"])
@pytest.mark.parametrize(
    ("error", "done"),
    [(StorageError, False), (StorageError, True), (KeyboardInterrupt, True)],
    ids=["failed", "answer lost", "interrupted"],
)
@pytest.mark.parametrize("stays_down", [False, True], ids=["once", "for good"])
def test_at_every_operation(
    tmp_path: Path,
    open_writer: OpenWriter,
    is_new: bool,
    error: type,
    done: bool,
    stays_down: bool,
) -> None:
    failed = in_the_way = at = 0
    while True:
        at += 1
        store = a_shard(tmp_path / str(at), open_writer, is_new)
        failing = FailingStore(store, at, done=done, stays_down=stays_down, error=error)
        if not fails(open_writer, failing):
            if not failing.failed:
                break
            continue
        failed += 1
        if stays_down:
            # Others see what is stored, and may have to wait; not so this process.
            try:
                with another_machine() as terms:
                    open_writer(store, lease_terms=terms, flush_on_close=False).close()
            except LeaseHeldError:
                in_the_way += 1
        else:
            # Whatever was done, it was undone when the store was back.
            with another_machine() as terms:
                open_writer(store, lease_terms=terms, flush_on_close=False).close()
        writer = open_writer(store, flush_on_close=False)
        assert writer.unflushed_rows == (0 if is_new else 1)
        writer.submit(rows((3, "c"))).result()
        writer.close()
    assert failed >= 7
    assert bool(in_the_way) == stays_down


def test_a_claim_is_recognised_that_arrives_after_it_was_given_up(
    store: LocalStore, open_writer: OpenWriter
) -> None:
    """The store took the lease in the end, though neither the claim nor its release found it there."""
    held = LeaseTerms()
    lease = ShardLease.acquire(store, SHARD, held, least_epoch=1)
    data = store.get(f"_mem_wal/{SHARD}/lease.json")
    lease.release()
    store.put(f"_mem_wal/{SHARD}/lease.json", data)
    with another_machine() as terms, pytest.raises(LeaseHeldError):
        open_writer(store, lease_terms=terms)
    assert open_writer(store).epoch == 2


def test_a_lease_that_is_taken_again_is_not_given_up(store: LocalStore, open_writer: OpenWriter) -> None:
    held = LeaseTerms()
    ShardLease.acquire(store, SHARD, held, least_epoch=1).release()
    ShardLease.acquire(store, SHARD, held, least_epoch=1)
    with pytest.raises(LeaseHeldError):
        open_writer(store)


def test_only_so_many_are_remembered(store: LocalStore) -> None:
    ShardLease.acquire(store, SHARD, LeaseTerms(), least_epoch=1)
    found = read_lease(store, SHARD)
    assert found is not None
    given_up = ReleasedLeases()
    for epoch in range(1, 10_000):
        given_up.add(replace(found, epoch=epoch))
    assert given_up.has(replace(found, epoch=9_999))
    assert not given_up.has(replace(found, epoch=1))
    assert len(given_up._leases) == 4096
