"""Writes with an ``Idempotency-Key`` that are done together are each done once, whatever happens."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

import weir.namespaces
from tests.crashes import kill_at, run, say
from weir.namespaces import Documents, Namespaces, Write, Written
from weir.service.idempotency import IdempotentWrites, KeyedWrite
from weir.service.refusals import Refusal

CLIENTS = 12


def keyed(key: int, value: int, *, deletes: bool = False) -> KeyedWrite:
    """Return a write of one client: the body follows from the value."""
    rows = Documents.of_rows([{"id": key % 8, "v": value}])
    write = Write(deletes=[key % 8]) if deletes else Write(upserts=rows)
    return KeyedWrite(write, "caller", f"key {key}", f"{deletes} {value}".encode())


def contents(namespaces: Namespaces) -> dict[int, int]:
    rows = namespaces.namespace("docs").opened().table.scan(["id", "v"]).to_table()
    return dict(zip(rows["id"].to_pylist(), rows["v"].to_pylist(), strict=True))


def told(outcome: object) -> object:
    """Return what a client hears; how many bytes there were depends on who shares the buffers."""
    if isinstance(outcome, Refusal):
        return outcome.status
    assert isinstance(outcome, Written), outcome
    return replace(outcome, bytes=0)


def send(root: str, groups: Sequence[Sequence[KeyedWrite]]) -> None:
    """Do groups of writes one after the other, and tell of each when it is answered."""
    with weir.namespaces.open(root, fsync=False) as namespaces:
        writes = IdempotentWrites(namespaces.store)
        for number, group in enumerate(groups):
            outcomes = writes.write_many(namespaces.namespace("docs"), group)
            assert all(isinstance(one, Written) for one in outcomes), outcomes
            say(group=number)
        writes.close()


def test_a_group_shares_a_log_entry(tmp_path: Path) -> None:
    with weir.namespaces.open(tmp_path, fsync=False) as namespaces:
        docs, writes = namespaces.namespace("docs"), IdempotentWrites(namespaces.store)
        docs.write(Write(upserts=Documents.of_rows([{"id": 0, "v": 0}])))
        store = docs.opened().table.internals.store

        def entries() -> int:
            return sum("/wal/" in meta.path for meta in store.list("_mem_wal"))

        before = entries()
        writes.write_many(docs, [keyed(number, number) for number in range(CLIENTS)])
        assert entries() == before + 1
        writes.close()


@pytest.mark.parametrize("place", ["wal.before_append", "wal.after_append"])
@pytest.mark.parametrize("is_noted", [True, False])
def test_a_group_that_is_killed_is_done_once(tmp_path: Path, place: str, is_noted: bool) -> None:
    made = [[keyed(100, 0)]]
    group = [keyed(number, number, deletes=number % 5 == 4) for number in range(CLIENTS)]
    # The claim and the first write append too.
    appended = 4 if is_noted else 3
    groups = [*made, group[:4], group] if is_noted else [*made, group]
    ended = kill_at(f"{place}@{appended}", send, str(tmp_path), groups)
    assert [one["group"] for one in ended.told] == [*range(len(groups) - 1)]
    with weir.namespaces.open(tmp_path, fsync=False) as namespaces:
        docs, writes = namespaces.namespace("docs"), IdempotentWrites(namespaces.store)
        first = writes.write_many(docs, group)
        expected = contents(namespaces)
        # What another client writes meanwhile is not written over by a request that is sent again.
        docs.write(Write(upserts=Documents.of_rows([{"id": 3, "v": -1}])))
        others = [keyed(number, number + 50) for number in range(CLIENTS)]
        assert [told(one) for one in writes.write_many(docs, others)] == [422] * CLIENTS
        writes.close()
    with weir.namespaces.open(tmp_path, fsync=False) as namespaces:
        docs, writes = namespaces.namespace("docs"), IdempotentWrites(namespaces.store)
        assert [told(one) for one in writes.write_many(docs, group)] == [told(one) for one in first]
        assert contents(namespaces) == {**expected, 3: -1}
        writes.close()


def test_responses_of_a_group_are_in_one_file_and_each_is_replaced_alone(tmp_path: Path) -> None:
    group = [keyed(number, number) for number in range(CLIENTS)]
    others = [keyed(number, number + 50) for number in range(CLIENTS)]
    with weir.namespaces.open(tmp_path, fsync=False) as namespaces:
        docs = namespaces.namespace("docs")

        def sent(writes: Sequence[KeyedWrite]) -> list[object]:
            """Write as a process of its own, whose records are complete when it ends."""
            process = IdempotentWrites(namespaces.store)
            outcomes = process.write_many(docs, writes)
            process.close()
            return [told(one) for one in outcomes]

        docs.write(Write(upserts=Documents.of_rows([{"id": 0, "v": 0}])))
        assert sent(group) == [Written(upserted=1)] * CLIENTS
        [notes] = (tmp_path / "idempotency").rglob("*.answers")
        assert notes.read_bytes().count(b"\n") == CLIENTS
        assert sent(others) == [422] * CLIENTS
        docs.delete()
        docs.write(Write(upserts=Documents.of_rows([{"id": 0, "v": 0}])))
        # The records of the previous table still exist, and do not count.
        assert sent(others[1:]) == [Written(upserted=1)] * (CLIENTS - 1)
        assert sent(group) == [Written(upserted=1), *[422] * (CLIENTS - 1)]
        assert sent(others) == [422, *[Written(upserted=1)] * (CLIENTS - 1)]


def test_after_a_kill_the_mark_alone_knows_the_body(tmp_path: Path) -> None:
    group = [keyed(number, number) for number in range(CLIENTS)]
    kill_at("wal.after_append@3", send, str(tmp_path), [[keyed(100, 0)], group])
    for note in (tmp_path / "idempotency").rglob("*.answers"):
        note.unlink()
    with weir.namespaces.open(tmp_path, fsync=False) as namespaces:
        docs, writes = namespaces.namespace("docs"), IdempotentWrites(namespaces.store)
        before = contents(namespaces)
        others = [keyed(number, number + 50) for number in range(CLIENTS)]
        assert [told(one) for one in writes.write_many(docs, others)] == [422] * CLIENTS
        assert contents(namespaces) == before
        again = writes.write_many(docs, group)
        assert all(isinstance(one, Written) and one.upserted == 1 for one in again)
        assert contents(namespaces) == before
        writes.close()


def test_a_mark_of_days_ago_does_not_bind_its_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with weir.namespaces.open(tmp_path, fsync=False) as namespaces:
        docs, writes = namespaces.namespace("docs"), IdempotentWrites(namespaces.store)
        docs.write(Write(upserts=Documents.of_rows([{"id": 0, "v": 0}])))
        with monkeypatch.context() as patched:
            patched.setattr("weir.service.keyed_body.time.time", lambda: 1_700_000_000.0)
            writes.write_many(docs, [keyed(1, 1), keyed(2, 2)])
            writes.close()
        for note in (tmp_path / "idempotency").rglob("*.answers"):
            note.unlink()  # they are kept for a day
        writes = IdempotentWrites(namespaces.store)
        for _ in range(2):
            outcomes = writes.write_many(docs, [keyed(1, 11), keyed(2, 22)])
            assert [told(one) for one in outcomes] == [Written(upserted=1)] * 2
            assert contents(namespaces) == {0: 0, 1: 11, 2: 22}
        writes.close()


def test_groups_in_random_order_answer_as_a_dict_does(tmp_path: Path) -> None:
    draw = random.Random(36)
    bodies: dict[str, bytes] = {}
    answers: dict[str, object] = {}
    documents: dict[int, int] = {100 % 8: 0}
    run(send, str(tmp_path), [[keyed(100, 0)]])
    for _ in range(6):
        # Another process each time; whether it has noted what it did is left to chance.
        with weir.namespaces.open(tmp_path, fsync=False) as namespaces, pytest.MonkeyPatch.context() as patch:
            docs, writes = namespaces.namespace("docs"), IdempotentWrites(namespaces.store)
            if draw.random() < 0.5:
                patch.setattr(IdempotentWrites, "_note_done", lambda *_: None)
            for _ in range(5):
                group = [
                    keyed(draw.randint(0, 30), draw.randint(0, 2), deletes=draw.random() < 0.3)
                    for _ in range(draw.randint(1, CLIENTS))
                ]
                for one, outcome in zip(group, writes.write_many(docs, group), strict=True):
                    if one.key not in bodies:
                        bodies[one.key], answers[one.key] = one.body, told(outcome)
                        if one.write.upserts is None:
                            documents.pop(one.write.deletes[0], None)
                        else:
                            documents[one.write.upserts.ids[0]] = one.write.upserts.values["v"][0]
                    expected = answers[one.key] if bodies[one.key] == one.body else 422
                    assert told(outcome) == expected
                assert contents(namespaces) == documents
            writes.close()
