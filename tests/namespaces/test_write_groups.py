"""Writes that are done together leave what they leave one after the other, and each hears of its own."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

import weir.namespaces
from weir.errors import NamespaceNotFoundError, WeirError
from weir.namespaces import Documents, Namespace, Write, Written
from weir.namespaces.attributes import Kind, Metric
from weir.namespaces.definition import Definition
from weir.namespaces.filter.expression import Comparison, NewValue, Operator
from weir.namespaces.write_groups import groups_of

NEWER = Comparison("n", Operator.LT, NewValue("n"))
IDS: dict[str, Sequence[Any]] = {
    "whole numbers": range(1, 7),
    "texts": "abcdef",
    "UUIDs": [str(UUID(int=number)) for number in range(1, 7)],
}


def upsert(*rows: dict[str, Any], **options: Any) -> Write:
    return Write(upserts=Documents.of_rows(rows), **options)


def any_write(draw: random.Random, ids: Sequence[Any]) -> Write:
    """Return a write as clients send it, now and then one that is refused."""
    kind = draw.random()
    chosen = draw.sample([*ids], draw.randint(1, 2))
    told = draw.random() < 0.3
    if kind < 0.15:
        return Write(deletes=chosen, return_ids=told)
    if kind < 0.2:
        return Write(patches=Documents(chosen, {"text": ["patched"] * len(chosen)}), return_ids=told)
    if kind < 0.23:
        return upsert({"id": chosen[0], "n": "no number"})
    if kind < 0.26:
        return upsert({"id": chosen[0], f"new {draw.randint(0, 2)}": draw.choice([1, 2.5])})
    rows: list[dict[str, Any]] = [{"id": id, "n": draw.randint(0, 9)} for id in chosen]
    for row in rows:
        if draw.random() < 0.7:
            row["text"] = draw.choice(["walrus", None, "x" * 40])
    if kind < 0.6:
        return upsert(*rows, return_ids=told)
    return upsert(*rows, upsert_condition=NEWER, return_ids=told)


def outcome(namespace: Namespace, write: Write) -> Written | WeirError:
    try:
        return namespace.write(write)
    except WeirError as error:
        return error


def told(outcome: Written | WeirError) -> object:
    """Return what a client hears; how many bytes there were depends on who shares the buffers."""
    if isinstance(outcome, WeirError):
        return str(outcome).replace("together", "alone")
    return replace(outcome, bytes=0)


def contents(namespace: Namespace) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = namespace.opened().table.scan().to_table().to_pylist()
    return sorted(rows, key=lambda row: str(row["id"]))


@pytest.mark.parametrize("kind", IDS)
def test_writes_together_do_what_they_do_alone(tmp_path: Path, kind: str) -> None:
    draw = random.Random(33)
    with weir.namespaces.open(tmp_path, fsync=False) as namespaces:
        alone, together = (namespaces.namespace(name) for name in ("alone", "together"))
        for _ in range(40):
            writes = [any_write(draw, IDS[kind]) for _ in range(draw.randint(1, 12))]
            expected = [outcome(alone, write) for write in writes]
            found = together.write_many(writes)
            assert [told(one) for one in found] == [told(one) for one in expected]
            assert contents(together) == contents(alone)


def test_neighbours_are_one_entry_of_the_log(tmp_path: Path) -> None:
    with weir.namespaces.open(tmp_path, fsync=False) as namespaces:
        docs = namespaces.namespace("docs")
        docs.write(upsert({"id": 0, "n": 0}))
        store = docs.opened().table.internals.store

        def entries() -> int:
            return sum("/wal/" in meta.path for meta in store.list("_mem_wal"))

        before = entries()
        docs.write_many([upsert({"id": number, "n": 1}) for number in range(20)])
        assert entries() == before + 1
        docs.write_many([upsert({"id": number, "n": 2}, upsert_condition=NEWER) for number in range(20)])
        assert entries() == before + 2
        # The second write to a document finds what the first has left.
        results = docs.write_many(
            [upsert({"id": 1, "n": number}, upsert_condition=NEWER) for number in (5, 4, 6)]
        )
        assert [one.upserted for one in results if isinstance(one, Written)] == [1, 0, 1]
        assert entries() == before + 4


@pytest.mark.parametrize("together", [False, True])
def test_ids_are_told_in_one_spelling(tmp_path: Path, together: bool) -> None:
    given = [id.upper().replace("-", "") for id in IDS["UUIDs"]]
    with weir.namespaces.open(tmp_path, fsync=False) as namespaces:
        namespace = namespaces.namespace("docs")
        namespace.create(Definition.new(Kind.UUID, Metric.COSINE))
        asked = [Documents(given[:1], {}), Documents(given[1:3], {})]
        upserts = [Write(upserts=one, return_ids=True) for one in asked]
        deletes = [Write(deletes=[*one.ids], return_ids=True) for one in asked]

        def done(writes: list[Write]) -> list[Any]:
            return namespace.write_many(writes) if together else [namespace.write(one) for one in writes]

        expected = [[*IDS["UUIDs"][:1]], [*IDS["UUIDs"][1:3]]]
        assert [one.upserted_ids for one in done(upserts)] == expected
        assert [one.deleted_ids for one in done(deletes)] == expected


def test_a_write_that_says_more_is_alone() -> None:
    plain, other = upsert({"id": 1}), upsert({"id": 2})
    for special in (
        upsert({"id": 3}, metric=Metric.EUCLIDEAN),
        upsert({"id": 3}, create=True),
        Write(upserts=Documents([3], {}), deletes=[4]),
        Write(upserts=Documents([3, 4], {"n": [1]})),
        Write(upserts=Documents([], {})),
        Write(deletes=[4], delete_condition=Comparison("n", Operator.EQ, 1)),
        upsert({"id": [3]}, upsert_condition=NEWER),
    ):
        assert [len(group) for group in groups_of([plain, other, special, plain])] == [2, 1, 1]


def test_many_at_once_while_the_namespace_is_made_anew(tmp_path: Path) -> None:
    with weir.namespaces.open(tmp_path, fsync=False) as namespaces:
        docs = namespaces.namespace("docs")
        docs.write(upsert({"id": 0, "n": 0}))
        # One for each call: a write that meets with more and more of them gives up, by name, in the end.
        deletions = threading.Semaphore(0)

        def make_anew() -> None:
            for _ in range(30):
                deletions.acquire()
                time.sleep(0.005)
                with suppress(NamespaceNotFoundError):  # the one before came late
                    docs.delete()

        thread = threading.Thread(target=make_anew)
        thread.start()
        try:
            for number in range(30):
                deletions.release()
                found = docs.write_many([upsert({"id": number, "n": other}) for other in range(8)])
                assert all(isinstance(one, Written) and one.upserted == 1 for one in found), found
        finally:
            deletions.release(30)
            thread.join()
