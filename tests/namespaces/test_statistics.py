"""What a namespace holds is looked up now and then, by one of those who ask."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import weir.namespaces
from weir.namespaces import Documents, Write, statistics
from weir.namespaces.statistics import statistics_of


def test_of_many_that_ask_at_once_one_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks, entered, goes_on = 0, threading.Event(), threading.Event()
    measure = statistics.measure

    def slow(*arguments: Any) -> Any:
        nonlocal looks
        looks += 1
        entered.set()
        assert goes_on.wait(60)
        return measure(*arguments)

    with weir.namespaces.open(tmp_path, fsync=False) as namespaces, ThreadPoolExecutor(8) as threads:
        namespace = namespaces.namespace("docs")
        namespace.write(Write(upserts=Documents.of_rows([{"id": 1}])))
        assert statistics_of(namespace).rows == 1
        monkeypatch.setattr(statistics, "_SECONDS_KNOWN", 0.0)
        monkeypatch.setattr(statistics, "measure", slow)
        one = threads.submit(statistics_of, namespace)
        assert entered.wait(60)
        # The others need not wait for it.
        assert [found.rows for found in threads.map(lambda _: statistics_of(namespace), range(20))] == [
            1
        ] * 20
        assert looks == 1
        fresh = [threads.submit(statistics_of, namespace, fresh=True) for _ in range(6)]
        goes_on.set()
        assert {found.result().rows for found in [one, *fresh]} == {1}
        assert looks <= 1 + 6
