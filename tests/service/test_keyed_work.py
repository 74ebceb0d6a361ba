"""What a group of writes with an ``Idempotency-Key`` does once, however many there are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import weir.namespaces
from weir.namespaces import Documents, Write, Written
from weir.service.answer_log import AnswerLog
from weir.service.idempotency import IdempotentWrites, KeyedWrite
from weir.storage.local import LocalStore
from weir.write.group_commit import PendingWrite

CLIENTS = 48


def keyed(number: int) -> KeyedWrite:
    """Return the write of one client."""
    rows = Documents.of_rows([{"id": number, "v": number}])
    return KeyedWrite(Write(upserts=rows), "caller", f"key {number}", f"body {number}".encode())


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often what takes long was called."""
    counted: Counter[str] = Counter()

    def count(kind: type[Any], name: str) -> None:
        call: Callable[..., Any] = getattr(kind, name)

        def counting(*arguments: Any, **named: Any) -> Any:
            counted[name] += 1
            return call(*arguments, **named)

        monkeypatch.setattr(kind, name, counting)

    count(AnswerLog, "find")
    count(AnswerLog, "_read")
    count(LocalStore, "append")
    count(PendingWrite, "enqueue")
    return counted


def test_a_group_of_new_keys_is_one_of_everything(tmp_path: Path, calls: Counter[str]) -> None:
    engine = weir.Engine(maintenance="off")
    with weir.namespaces.open(tmp_path, fsync=False, engine=engine) as namespaces:
        docs, writes = namespaces.namespace("docs"), IdempotentWrites(namespaces.store)
        docs.write(Write(upserts=Documents.of_rows([{"id": 0, "v": 0}])))
        calls.clear()
        before = engine.metrics.log_appends.value()
        outcomes = writes.write_many(docs, [keyed(number) for number in range(CLIENTS)])
        writes.close()
        assert all(isinstance(one, Written) for one in outcomes)
        assert engine.metrics.log_appends.value() == before + 1
        assert calls == {"find": 1, "enqueue": 1, "append": 1}


def test_only_the_records_that_there_are_are_read(tmp_path: Path, calls: Counter[str]) -> None:
    with weir.namespaces.open(tmp_path, fsync=False) as namespaces:
        docs = namespaces.namespace("docs")
        docs.write(Write(upserts=Documents.of_rows([{"id": 0, "v": 0}])))
        for begin, end in ((0, 10), (5, CLIENTS)):
            calls.clear()
            writes = IdempotentWrites(namespaces.store)
            outcomes = writes.write_many(docs, [keyed(number) for number in range(begin, end)])
            writes.close()
            assert [one.upserted for one in outcomes if isinstance(one, Written)] == [1] * (end - begin)
        assert calls == {"find": 1, "_read": 5, "enqueue": 1, "append": 1}
        assert docs.count() == CLIENTS
