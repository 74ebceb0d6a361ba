"""Metrics are answered whatever goes on; and if they are not, the log says where it failed."""

from __future__ import annotations

import io
import json
import logging
import sys
import threading
from pathlib import Path

import pytest

import weir.namespaces
from tests.service.test_planted_bugs import Root
from weir.engine.cache import ByteBudgetCache
from weir.namespaces import Documents, Namespaces, Write
from weir.service.logs import logging_as_json
from weir.service.telemetry import Telemetry

_WRITERS = 3
_NAMESPACES = 8


def test_they_are_read_while_namespaces_come_and_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A cache so small that entries are evicted all the time.
    engine = weir.Engine(read_cache_bytes=20_000, maintenance="off")
    with weir.namespaces.open(tmp_path, fsync=False, engine=engine, holder="process") as namespaces:
        telemetry = Telemetry(engine.metrics, namespaces)
        done = threading.Semaphore(0)
        failed: list[BaseException] = []

        def come_and_go(writer: int) -> None:
            try:
                for number in range(_NAMESPACES):
                    _use(namespaces, f"{writer}-{number % 3}", is_last=number % 4 == 3)
            except BaseException as error:
                failed.append(error)
            finally:
                done.release()

        before = sys.getswitchinterval()
        sys.setswitchinterval(1e-6)
        threads = [threading.Thread(target=come_and_go, args=(writer,)) for writer in range(_WRITERS)]
        try:
            for thread in threads:
                thread.start()
            left = len(threads)
            while left:
                assert b"weir_namespaces_known" in telemetry.exposition()
                namespaces.dirty.marked()
                left -= done.acquire(blocking=False)
        finally:
            sys.setswitchinterval(before)
            for thread in threads:
                thread.join()
        assert not failed


def _use(namespaces: Namespaces, name: str, *, is_last: bool) -> None:
    namespace = namespaces.namespace(name)
    namespace.write(Write(upserts=Documents.of_rows([{"id": 1, "v": 1}])))
    namespace.maintain()
    namespace.rest(0.0)
    if is_last:
        namespace.delete()


def test_what_fails_is_logged_with_the_way_it_took(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = Root(tmp_path)

    def changes(_: object) -> int:
        sizes = {"secret": 1}
        for name in sizes:
            sizes[name + "."] = 2
        return len(sizes)

    monkeypatch.setattr(ByteBudgetCache, "nbytes", property(changes))
    stream = io.StringIO()
    with logging_as_json("", stream):
        status, answer = root.ask("GET", "/metrics", headers={"x-request-id": "mine"})
    assert (status, answer) == (500, {"status": "error", "error": "the service failed; request mine"})
    [line] = [json.loads(line) for line in stream.getvalue().splitlines() if "request failed" in line]
    assert (line["route"], line["request_id"], line["error"]) == ("GET metrics", "mine", "RuntimeError")
    assert line["message"] == "dictionary changed size during iteration"
    steps = [step.rpartition(":")[0] for step in line["trace"]]
    assert steps[0] == "weir.service.dispatch.answer"
    assert "weir.service.telemetry.exposition" in steps
    assert steps[-1] == f"{__name__}.changes"
    assert line["raised_at"].startswith(f"{__name__}:")
    for left_out in ("secret", str(tmp_path), __file__, root.admin):
        assert left_out not in stream.getvalue()


def test_what_an_error_says_is_left_out_and_its_cause_is_not() -> None:
    stream = io.StringIO()
    with logging_as_json("", stream):
        try:
            try:
                raise KeyError("a document")
            except KeyError as error:
                raise RuntimeError("the key of somebody") from error
        except RuntimeError as error:
            logging.getLogger("weir.x").error("failed", exc_info=error)
    line = json.loads(stream.getvalue())
    assert (line["error"], line["cause"]["error"]) == ("RuntimeError", "KeyError")
    assert line["cause"]["raised_at"].startswith(f"{__name__}:")
    assert "message" not in line
    for left_out in ("document", "somebody"):
        assert left_out not in stream.getvalue()
