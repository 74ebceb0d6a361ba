"""Writes that are sent again are done once, with one answer, also by a process that knows nothing of them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import weir.namespaces
from weir.errors import StorageError
from weir.namespaces import Documents, Namespace, Write
from weir.namespaces.filter.expression import Comparison, Operator
from weir.service.idempotency import IdempotentWrites
from weir.service.refusals import Refusal
from weir.write.table_writer import TableWriter


def upsert(*values: int) -> Write:
    return Write(upserts=Documents.of_rows([{"id": id, "v": value} for id, value in enumerate(values)]))


def values(namespace: Namespace) -> list[int]:
    found: list[int] = namespace.get(range(9), ["v"]).sort_by("id")["v"].to_pylist()
    return found


@pytest.mark.parametrize("looks_before", [False, True])
def test_a_write_is_done_once(tmp_path: Path, looks_before: bool) -> None:
    doubled = Write(deletes=[1], delete_condition=Comparison("v", Operator.EQ, 1))
    write = doubled if looks_before else upsert(1, 1)
    with weir.namespaces.open(tmp_path, fsync=False) as namespaces:
        namespace = namespaces.namespace("docs")
        namespace.write(upsert(1, 1))
        first = IdempotentWrites(namespaces.store).write(namespace, write, "caller", "key", b"body")
        namespace.write(upsert(5, 1))
    with weir.namespaces.open(tmp_path, fsync=False) as namespaces:
        namespace, writes = namespaces.namespace("docs"), IdempotentWrites(namespaces.store)
        assert writes.write(namespace, write, "caller", "key", b"body") == first
        assert values(namespace) == [5, 1]
        with pytest.raises(Refusal) as refused:
            writes.write(namespace, upsert(7), "caller", "key", b"another body")
        assert refused.value.status == 422
        assert values(namespace) == [5, 1]


def test_the_same_key_from_another_caller_or_for_another_namespace_is_another_write(tmp_path: Path) -> None:
    with weir.namespaces.open(tmp_path, fsync=False) as namespaces:
        docs, others = namespaces.namespace("docs"), namespaces.namespace("others")
        writes = IdempotentWrites(namespaces.store)
        writes.write(docs, upsert(1), "one", "key", b"body")
        assert writes.write(docs, upsert(2), "two", "key", b"another body").upserted == 1
        assert values(docs) == [2]
        writes.write(docs, upsert(1), "one", "key", b"body")
        assert values(docs) == [2]
        writes.write(others, upsert(3), "one", "key", b"another body")
        assert values(others) == [3]
        writes.close()


@pytest.mark.parametrize("noted", [True, False])
def test_to_a_namespace_that_was_made_anew_a_key_is_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, noted: bool
) -> None:
    with weir.namespaces.open(tmp_path, fsync=False) as namespaces:
        docs, writes = namespaces.namespace("docs"), IdempotentWrites(namespaces.store)
        with monkeypatch.context() as patched:
            if not noted:
                patched.setattr(IdempotentWrites, "_note_done", lambda *_: None)  # the process dies
            assert writes.write(docs, upsert(1, 2), "caller", "key", b"body").created
        docs.delete()
        again = writes.write(docs, upsert(1, 2), "caller", "key", b"body")
        assert again.created
        assert values(docs) == [1, 2]
        docs.write(upsert(5))
        assert writes.write(docs, upsert(1, 2), "caller", "key", b"body") == again
        assert values(docs) == [5, 2]
        docs.delete()
        docs.write(upsert(8))
        # Nobody knows of the body that came with it to the namespace of before.
        assert not writes.write(docs, upsert(9), "caller", "key", b"another body").created
        assert values(docs) == [9]
        with pytest.raises(Refusal):
            writes.write(docs, upsert(1, 2), "caller", "key", b"body")
        writes.close()


def test_a_write_whose_end_nobody_noted_is_not_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with weir.namespaces.open(tmp_path, fsync=False) as namespaces:
        namespace, store = namespaces.namespace("docs"), namespaces.store
        with monkeypatch.context() as patched:
            patched.setattr(IdempotentWrites, "_note_done", lambda *_: None)  # the process dies
            writes = IdempotentWrites(store)
            writes.write(namespace, upsert(1, 2), "caller", "key", b"body")
            writes.close()
        assert values(namespace) == [1, 2]
        namespace.write(upsert(5))
        answer = IdempotentWrites(store).write(namespace, upsert(1, 2), "caller", "key", b"body")
        assert answer.upserted == 2
        assert values(namespace) == [5, 2]
        with pytest.raises(Refusal) as refused:
            IdempotentWrites(store).write(namespace, upsert(9), "caller", "key", b"another body")
        assert refused.value.status == 422


def test_what_a_later_attempt_has_done_is_told_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = Write(patches=Documents.of_rows([{"id": 0, "v": 7}, {"id": 1, "v": 7}]), return_ids=True)
    with weir.namespaces.open(tmp_path, fsync=False) as namespaces:
        namespace, store = namespaces.namespace("docs"), namespaces.store
        namespace.write(upsert(1, 2))

        def fails(*_: Any) -> bool:
            raise StorageError("the disk is gone")

        with monkeypatch.context() as patched:
            patched.setattr(TableWriter, "apply_each", fails)
            with pytest.raises(StorageError):
                IdempotentWrites(store).write(namespace, write, "caller", "key", b"body")
        namespace.write(Write(deletes=[1]))
        with monkeypatch.context() as patched:
            patched.setattr(IdempotentWrites, "_note_done", lambda *_: None)  # the process dies
            second = IdempotentWrites(store).write(namespace, write, "caller", "key", b"body")
        assert (second.patched, second.patched_ids) == (1, [0])
        namespace.write(upsert(1, 2))
        assert IdempotentWrites(store).write(namespace, write, "caller", "key", b"body") == second
        assert values(namespace) == [1, 2]


@pytest.mark.parametrize(
    "kept",
    [lambda _: b"", lambda note: note[:80], lambda note: bytes(len(note)), lambda note: note[:80] + b"\n"],
)
def test_a_note_that_a_loss_of_power_has_torn_is_none(tmp_path: Path, kept: Callable[[bytes], bytes]) -> None:
    with weir.namespaces.open(tmp_path, fsync=False) as namespaces:
        namespace, writes = namespaces.namespace("docs"), IdempotentWrites(namespaces.store)
        first = writes.write(namespace, upsert(1, 2), "caller", "key", b"body")
        writes.close()
        [note] = (one.path for one in namespaces.store.list("idempotency"))
        namespaces.store.put(note, kept(bytes(namespaces.store.get(note))))
        namespace.write(upsert(5))
        again = IdempotentWrites(namespaces.store).write(namespace, upsert(1, 2), "caller", "key", b"body")
        assert replace(again, created=True) == first
        assert values(namespace) == [5, 2]


def test_of_one_key_at_once_the_first_is_done_and_another_body_is_refused(tmp_path: Path) -> None:
    with weir.namespaces.open(tmp_path, fsync=False) as namespaces, ThreadPoolExecutor(8) as threads:
        namespace, writes = namespaces.namespace("docs"), IdempotentWrites(namespaces.store)
        namespace.write(upsert(0))

        def once(number: int) -> int | None:
            try:
                writes.write(namespace, upsert(number), "caller", "key", b"%d" % number)
            except Refusal as refused:
                assert refused.status == 422
                return None
            return number

        [done] = {*threads.map(once, [1, 2, 3, 4] * 4)} - {None}
        assert values(namespace) == [done]
        writes.close()


def test_many_at_once_are_each_done(tmp_path: Path) -> None:
    with weir.namespaces.open(tmp_path, fsync=False) as namespaces, ThreadPoolExecutor(8) as threads:
        namespace, writes = namespaces.namespace("docs"), IdempotentWrites(namespaces.store)
        namespace.write(upsert(0))

        def once(number: int) -> int:
            write = Write(upserts=Documents.of_rows([{"id": number % 20, "v": number % 20}]))
            return writes.write(
                namespace, write, "caller", f"key {number % 20}", b"%d" % (number % 20)
            ).upserted

        assert [*threads.map(once, range(40))] == [1] * 40
        assert values(namespace) == list(range(9))
