"""What operators see of a service: logs, metrics, the description of its calls, TLS, and its end."""

from __future__ import annotations

import io
import json
import logging
import re
import threading
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.service.conftest import Served
from weir.service.logs import AUDIT, logging_as_json
from weir.service.openapi import Declared, description


def test_calls_are_described_by_their_routes(served: Served) -> None:
    with served.http("nobody") as http:
        told = http.get("/openapi.json").json()
        assert told["openapi"].startswith("3.1")
        for path, calls in told["paths"].items():
            for method, call in calls.items():
                assert call["summary"], path
                at = re.sub(r"\{\w+\}", "x", path)
                answer = http.request(method.upper(), at)
                # No call but those that say so is answered without a key.
                assert (answer.status_code == 401) == ("security" not in call), (method, path)
                if answer.status_code == 401:
                    refused = call["responses"]["401"]["content"]["application/json"]["schema"]["$ref"]
                    schema = told["components"]["schemas"][refused.rpartition("/")[2]]
                    assert {*answer.json()} == {*schema["properties"]}


def test_types_of_one_name_do_not_become_one() -> None:
    one = msgspec.defstruct("Refused", [("a", int)])
    other = msgspec.defstruct("Refused", [("b", int)], module="elsewhere")
    calls = [Declared("/a", "GET", "A.", False, one), Declared("/b", "GET", "B.", False, other)]
    assert len(description(calls)["components"]["schemas"]) == 2


def test_metrics_tell_of_engine_and_namespaces(served: Served, client: Any, name: str) -> None:
    client.namespace(name).write(upsert_rows=[{"id": 1}])
    with served.http() as http:
        http.get("/v1/namespaces/../x")
        told = http.get("/metrics").text
    numbers = {
        line.rpartition(" ")[0]: float(line.rpartition(" ")[2])
        for line in told.splitlines()
        if line[0] != "#"
    }
    assert numbers["weir_namespaces_owned"] >= 1
    assert numbers['weir_storage_requests_total{operation="put_if_absent"}'] >= 1
    assert "weir_merge_lag_seconds" in numbers
    for family in ("weir_request_seconds", "weir_cache_bytes", "weir_queued_tasks", "weir_requests_refused"):
        assert family in told
    with served.http(served.new_key("writer")) as http:
        assert http.get("/metrics").status_code == 403


def test_logs_are_lines_of_json_without_places_or_tracebacks(tmp_path: Path) -> None:
    stream = io.StringIO()
    with logging_as_json(str(tmp_path / "audit.log"), stream):
        fields = {"event": "table.merged", "where": "/secret/place", "rows": 3}
        logging.getLogger("weir.merge").info(
            "table.merged where=/secret/place", extra={"event_fields": fields}
        )
        logging.getLogger(AUDIT).info("done", extra={"event_fields": {"event": "audit", "key": "k"}})
        try:
            raise ValueError("a document")
        except ValueError:
            logging.getLogger("weir.service").exception("upkeep failed")
    first, second = (json.loads(line) for line in stream.getvalue().splitlines())
    assert (first["event"], first["rows"], first["level"]) == ("table.merged", 3, "info")
    assert (second["event"], second["error"]) == ("upkeep failed", "ValueError")
    assert "secret" not in stream.getvalue()
    assert "a document" not in stream.getvalue()
    [audited] = (tmp_path / "audit.log").read_text().splitlines()
    assert json.loads(audited)["key"] == "k"


def test_a_log_that_nobody_reads_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stuck(io.StringIO):
        def write(self, text: str) -> int:
            entered.set()
            released.wait(30)
            return len(text)

    entered, released = threading.Event(), threading.Event()
    monkeypatch.setattr("weir.service.logs._MOST_WAITING", 5)
    with logging_as_json("", Stuck()):
        for number in range(100):
            logging.getLogger("weir.x").info("line %d", number)
        assert entered.wait(10)
    released.set()
