"""What operators see of a service: logs, metrics, the description of its calls, TLS, and its end."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import re
import signal
import socket
import subprocess
import sys
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest
import uvicorn

import weir.errors
import weir.namespaces
from tests.service.conftest import Served
from tests.service.test_planted_bugs import Root
from weir.namespaces import Documents, Write
from weir.service.logs import AUDIT, logging_as_json
from weir.service.openapi import Declared, description
from weir.service.protocol import BoundedProtocol


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


def test_who_finds_a_shard_held_by_the_service_is_told_where_it_is(
    served: Served, client: Any, name: str
) -> None:
    client.namespace(name).write(upsert_rows=[{"id": 1}])
    namespaces = weir.namespaces.open(str(served.root), fsync=False)
    with pytest.raises(weir.errors.LeaseHeldError, match=f"reached at {served.process.url}"):
        namespaces.namespace(name).write(Write(upserts=Documents.of_rows([{"id": 2}])))
    namespaces.close()


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
        lost = "the lease was taken over [/secret/lease.json, s3://secret/t]. Open '/secret/x' and/or b/c"
        logging.getLogger("weir.write").warning(
            "lost", extra={"event_fields": {"event": "shard.lease_lost", "error": lost}}
        )
        logging.getLogger(AUDIT).info("done", extra={"event_fields": {"event": "audit", "key": "k"}})
        try:
            raise ValueError("a document")
        except ValueError:
            logging.getLogger("weir.service").exception("upkeep failed")
    first, warned, second = (json.loads(line) for line in stream.getvalue().splitlines())
    assert warned["error"] == "the lease was taken over [(place), (place)]. Open '(place)' and/or b/c"
    assert (first["event"], first["rows"], first["level"]) == ("table.merged", 3, "info")
    assert (second["event"], second["error"]) == ("upkeep failed", "ValueError")
    assert "secret" not in stream.getvalue()
    assert "a document" not in stream.getvalue()
    [audited] = (tmp_path / "audit.log").read_text().splitlines()
    assert json.loads(audited)["key"] == "k"


def test_what_others_log_has_no_places_or_tracebacks_either() -> None:
    stream = io.StringIO()
    with logging_as_json("", stream):
        for logger in ("uvicorn.error", "asyncio"):
            try:
                raise ValueError("a document")
            except ValueError:
                logging.getLogger(logger).exception("Exception in %s", "/secret/place")
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn("deprecated", stacklevel=1)
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [line["logger"] for line in lines] == ["uvicorn.error", "asyncio", "py.warnings"]
    assert [line.get("error") for line in lines] == ["ValueError", "ValueError", None]
    for left_out in ("secret", "a document", __file__):
        assert left_out not in stream.getvalue()


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


def test_a_signal_that_comes_while_something_is_logged_is_logged_too() -> None:
    program = """
import logging, signal, time
from weir.service.logs import logging_as_json

with logging_as_json(""):
    log = logging.getLogger("weir.x")
    signal.signal(signal.SIGALRM, lambda *_: log.warning("signal"))
    signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
    until = time.monotonic() + 1
    while time.monotonic() < until:
        log.info("line")
    signal.setitimer(signal.ITIMER_REAL, 0)
"""
    ran = subprocess.run([sys.executable, "-c", program], stderr=subprocess.DEVNULL, timeout=60, check=False)
    assert ran.returncode == 0


def test_headers_that_go_on_and_on_are_refused(served: Served) -> None:
    host, _, port = served.process.url.rpartition("//")[2].partition(":")

    def sent(head: bytes) -> bytes:
        with socket.create_connection((host, int(port)), timeout=60) as connection:
            try:
                connection.sendall(b"GET /healthz HTTP/1.1\r\nhost: weir\r\n" + head)
                return connection.recv(1 << 16)
            except ConnectionError:
                return b"HTTP/1.1 400 closed while sending"

    assert b" 200 " in sent(b"a: " + b"b" * 30_000 + b"\r\n\r\n")
    one = b"a: " + b"b" * 4_000_000
    many = b"a: b\r\n" * 500_000
    for head in (one, many, one + b"\r\n\r\n", many + b"\r\n"):
        assert b" 400 " in sent(head)
    # Bodies are bounded elsewhere, and a connection takes one request after the other.
    with served.http() as http:
        for _ in range(3):
            answer = http.post("/v2/namespaces/heads/query", content=b" " * 300_000)
            assert answer.status_code == 400


def test_heads_that_do_not_come_to_an_end_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weir.service.protocol._SECONDS_FOR_HEAD", 0.5)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body"})

    async def asked() -> None:
        config = uvicorn.Config(app, http=BoundedProtocol, lifespan="off", log_config=None, port=0)
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve())
        while not server.started:
            await asyncio.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        request = b"POST / HTTP/1.1\r\nhost: weir\r\ncontent-length: 2\r\n\r\n"

        async def answers(*sent: bytes, pause: float = 0.0) -> bytes:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            for part in sent:
                writer.write(part)
                await asyncio.sleep(pause)
            async with asyncio.timeout(30):
                got = await reader.read()
            writer.close()
            return got

        assert await answers() == b""
        assert await answers(request[:20]) == b""
        # What comes too slowly after an answer is given up too; a body has its own limit of time.
        got = await answers(request, b"a", b"b", request[:20], pause=0.2)
        assert got.startswith(b"HTTP/1.1 200")
        server.should_exit = True
        await serving

    asyncio.run(asked())


def test_who_has_done_what_is_written_down(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    root = Root(tmp_path)
    reader, key = root.keys.create("reader", "reader", ["docs"])
    zeppelin = "/v1/namespaces/vectors"
    with caplog.at_level(logging.INFO, AUDIT):
        root.write("docs", upsert_rows=[{"id": 1}])
        root.write("docs", upsert_rows=[{"id": 2}])
        root.ask(
            "POST", "/v2/namespaces/once", {"upsert_rows": [{"id": 1}]}, headers={"idempotency-key": "k"}
        )
        root.ask("POST", "/v1/namespaces/docs/schema", {"title": "string"})
        root.ask("POST", "/v1/namespaces", {"name": "vectors", "dimensions": 2})
        root.ask("POST", "/v1/namespaces", {"name": "vectors", "dimensions": 2})
        root.ask("PATCH", f"{zeppelin}/index_config", {"nlist": 4})
        root.ask("PUT", f"{zeppelin}/snapshots/first")
        root.ask("DELETE", f"{zeppelin}/snapshots/first")
        root.ask("POST", "/v2/namespaces/docs", {"deletes": [1]}, key)
        root.ask("POST", "/v2/namespaces/secret/query", {}, key)
        root.ask("POST", "/v2/namespaces/secret/query", {}, "nobody")
        root.ask("DELETE", "/v2/namespaces/docs")
    told = [record.__dict__["event_fields"] for record in caplog.records if record.name == AUDIT]
    assert [(one["action"], one["target"], one["outcome"]) for one in told] == [
        ("namespace.create", "docs", "done"),
        ("namespace.create", "once", "done"),
        ("namespace.schema", "docs", "done"),
        ("namespace.create", "vectors", "done"),
        ("namespace.index_config", "vectors", "done"),
        ("snapshot.create", "vectors/first", "done"),
        ("snapshot.delete", "vectors/first", "done"),
        ("request", "docs", "refused"),
        ("request", "secret", "refused"),
        ("namespace.delete", "docs", "done"),
    ]
    assert {one["key"] for one in told if one["outcome"] == "refused"} == {reader.id}


def test_a_path_with_one_more_slash_is_none(tmp_path: Path) -> None:
    status, told = Root(tmp_path).ask("GET", "/v1/namespaces/")
    assert (status, told["status"]) == (404, "error")


_SLOW = """
import sys, time
from weir.namespaces import Namespace
from weir.service import server
from weir.service.options import ServiceOptions

def slow(*given):
    print("begun", flush=True)
    time.sleep(600)

setattr(Namespace, sys.argv[2], slow)
for name in ("_SECONDS_TO_FINISH", "_SECONDS_FOR_UPKEEP", "_SECONDS_FOR_BACKGROUND"):
    setattr(server, name, 1)
server._SECONDS_TO_END = 8.0
options = ServiceOptions(listen="127.0.0.1:0", auth=False, fsync=False)
server.serve(sys.argv[1], options, lambda url: print(url, flush=True))
"""


@pytest.mark.parametrize("what", ["queries", "write_many", "_prepared"])
def test_a_request_that_takes_long_does_not_make_the_end_a_failure(tmp_path: Path, what: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", _SLOW, str(tmp_path), what],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    url = process.stdout.readline().strip()
    path = ""
    body: dict[str, Any] = {"upsert_rows": [{"id": 1}]}
    if what == "queries":
        path, body = "/query", {"rank_by": ["id", "asc"]}

    def asked() -> None:
        with suppress(httpx2.HTTPError):
            httpx2.post(f"{url}/v2/namespaces/docs{path}", json=body, timeout=60, trust_env=False)

    with ThreadPoolExecutor(1) as threads:
        threads.submit(asked)
        assert process.stdout.readline() == "begun\n"
        process.send_signal(signal.SIGTERM)
        _, error = process.communicate(timeout=60)
    assert process.returncode == 0, error


def test_a_process_ends_although_what_it_wrote_cannot_be_released(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", _SLOW, str(tmp_path), "close"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    url = process.stdout.readline().strip()
    answer = httpx2.post(
        f"{url}/v2/namespaces/docs", json={"upsert_rows": [{"id": 1}]}, timeout=60, trust_env=False
    )
    assert answer.status_code == 200
    process.send_signal(signal.SIGTERM)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 1, error
    assert "service.ended_early" in error


_TICKS = """
import sys
from weir.service import server
from weir.service.options import ServiceOptions

tick, ticks = server._Server.on_tick, []

async def counted(self, counter):
    ticks.append(counter)
    return await tick(self, counter)

server._Server.on_tick = counted
server._SECONDS_BETWEEN_TICKS = 3600.0
options = ServiceOptions(listen="127.0.0.1:0", auth=False, fsync=False)
server.serve(sys.argv[1], options, lambda url: print(url, flush=True))
print(len(ticks))
"""


def test_a_process_wakes_up_to_end_and_seldom_before(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", _TICKS, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    url = process.stdout.readline().strip()
    # Answered once the server ticks.
    assert httpx2.get(f"{url}/healthz", timeout=60, trust_env=False).headers["date"]
    process.send_signal(signal.SIGTERM)
    told, _ = process.communicate(timeout=60)
    assert (process.returncode, told) == (0, "2\n")
