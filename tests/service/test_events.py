"""Event stores over HTTP: commands, batches, tables of Arrow, and subscriptions as server-sent events."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pyarrow as pa
import pytest

import weir.events
from tests.service.conftest import Served
from tests.service.test_planted_bugs import Root
from weir.events.subscriptions import Subscription
from weir.service.options import ServiceOptions

_numbers = itertools.count()


@pytest.fixture
def http(served: Served) -> Iterator[httpx2.Client]:
    with served.http() as client:
        yield client


@pytest.fixture
def store(http: httpx2.Client) -> str:
    """The path of an event store with a type and an event."""
    place = f"/v1/events/store-{next(_numbers)}"
    assert http.post(f"{place}/execute", json={"command": "PING"}).status_code == 404
    done(http, place, 'DEFINE signup FIELDS {"plan": ["free", "pro"], "amount": "decimal(12,2)"}')
    done(http, place, 'STORE signup FOR ada PAYLOAD {"plan": "pro", "amount": "9.90"}')
    return place


def done(http: httpx2.Client, place: str, command: str) -> Any:
    answer = http.post(f"{place}/execute", json={"command": command})
    assert answer.status_code == 200, answer.text
    return answer.json()


def told(lines: Iterator[str], batches: int) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield places and rows of the first batches of a stream."""
    place = ""
    for line in lines:
        if line.startswith("id: "):
            place = line[4:]
        elif line.startswith("data: "):
            yield place, json.loads(line[6:])
            batches -= 1
            if not batches:
                return


def test_commands_are_answered_in_json_and_arrow(http: httpx2.Client, store: str) -> None:
    answer = done(http, store, "QUERY signup")
    assert answer["columns"] == ["event_id", "context_id", "event_type", "timestamp", "plan", "amount"]
    [row] = answer["rows"]
    assert (row["context_id"], row["plan"], row["amount"]) == ("ada", "pro", "9.90")
    accepted = {"accept": "application/vnd.apache.arrow.stream"}
    answer = http.post(f"{store}/execute", json={"command": "QUERY signup COUNT"}, headers=accepted)
    assert pa.ipc.open_stream(answer.content).read_all().to_pylist() == [{"count": 1}]
    plain = http.post(f"{store}/execute", content="PING", headers={"content-type": "text/plain"})
    assert plain.json()["result"] == "PONG"
    name = store.rpartition("/")[2]
    assert name in {one["id"] for one in http.get("/v1/events").json()["stores"]}


def test_batches_and_tables_are_appended(http: httpx2.Client, store: str) -> None:
    events = [{"type": "signup", "payload": {"plan": "free", "amount": 1}}] * 3
    body = {"context": "bob", "events": events, "expected": 0}
    first = http.post(f"{store}/batch", json=body)
    assert (first.status_code, len(first.json()["ids"])) == (200, 3), first.text
    assert first.json()["version"] == first.json()["ids"][-1]
    assert http.post(f"{store}/batch", json=body).status_code == 409
    bad = {"context": "eve", "events": [*events, {"type": "signup", "payload": {"plan": "none"}}]}
    refused = http.post(f"{store}/batch", json=bad)
    assert (refused.status_code, refused.json()["status"]) == (400, "error")
    table = pa.table({"context_id": ["cyn", "dan"], "plan": ["pro", "free"], "amount": ["2.00", "3.00"]})
    table = table.set_column(2, "amount", table["amount"].cast(pa.decimal128(12, 2)))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    content = sink.getvalue().to_pybytes()
    for _ in range(2):  # taken once
        sent = http.post(f"{store}/ingest?type=signup&source=s&number=1", content=content)
        assert sent.status_code == 200, sent.text
    assert done(http, store, "QUERY signup COUNT")["rows"] == [{"count": 6}]
    assert http.post(f"{store}/ingest?type=signup", content=b"no arrow").status_code == 400


def test_a_batch_with_a_key_is_appended_once(http: httpx2.Client, store: str, served: Served) -> None:
    body = {"context": "bob", "events": [{"type": "signup", "payload": {"plan": "free", "amount": 1}}] * 2}
    with_key = {"idempotency-key": "one"}
    first = http.post(f"{store}/batch", json=body, headers=with_key)
    assert first.status_code == 200, first.text
    assert http.post(f"{store}/batch", json=body, headers=with_key).json() == first.json()
    other = http.post(f"{store}/batch", json={**body, "context": "eve"}, headers=with_key)
    assert other.status_code == 422
    notes = served.root / "idempotency-events" / store.rpartition("/")[2]
    # As after a crash between the write and the note that it is done.
    [noted] = notes.glob("*.json")
    noted.write_text(json.dumps({**json.loads(noted.read_text()), "ids": [], "done": False}))
    assert http.post(f"{store}/batch", json=body, headers=with_key).json() == first.json()
    # And where a loss of power has taken the note.
    noted.unlink()
    assert http.post(f"{store}/batch", json=body, headers=with_key).json() == first.json()
    assert done(http, store, "REPLAY FOR bob")["rows"][-1]["event_id"] == first.json()["ids"][-1]
    assert done(http, store, "QUERY signup COUNT")["rows"] == [{"count": 3}]
    # Long after, a key may come with something else.
    noted.unlink()
    other = http.post(f"{store}/batch", json={**body, "context": "eve"}, headers=with_key)
    assert other.status_code == 200
    assert done(http, store, "QUERY signup COUNT")["rows"] == [{"count": 5}]


def test_a_command_with_a_key_appends_once(http: httpx2.Client, store: str) -> None:
    before = done(http, store, "QUERY signup COUNT")["rows"][0]["count"]
    with_key = {"idempotency-key": "stored"}
    plan = '{"plan": "pro", "amount": "9.90"}'

    def answered(command: str) -> httpx2.Response:
        return http.post(f"{store}/execute", json={"command": command}, headers=with_key)

    refused = answered(f"STORE signup FOR kim EXPECT 7 PAYLOAD {plan}")
    assert refused.status_code == 409, refused.text
    first = answered(f"STORE signup FOR kim PAYLOAD {plan}")
    assert (first.status_code, len(first.json()["ids"])) == (200, 1), first.text
    assert answered(f"STORE signup FOR kim PAYLOAD {plan}").json() == first.json()
    assert answered(f"STORE signup FOR lee PAYLOAD {plan}").status_code == 422
    assert done(http, store, "QUERY signup COUNT")["rows"] == [{"count": before + 1}]


def test_what_cannot_be_done_once_refuses_a_key(http: httpx2.Client, store: str) -> None:
    with_key = {"idempotency-key": "one"}
    answer = http.post(f"{store}/ingest?type=signup", content=b"", headers=with_key)
    assert (answer.status_code, "source" in answer.json()["error"]) == (400, True)
    assert http.post(f"{store}/execute", json={"command": "PING"}, headers=with_key).status_code == 200
    assert done(http, store, "QUERY signup COUNT")["rows"] == [{"count": 1}]


def test_a_key_of_a_batch_that_was_refused_may_come_with_what_is_mended(
    http: httpx2.Client, store: str
) -> None:
    event = {"type": "signup", "payload": {"plan": "free", "amount": 1}}
    with_key = {"idempotency-key": "mended"}
    for status, body in (
        (400, {"context": "bob", "events": [{"type": "signup", "payload": {"plan": "none"}}]}),
        (409, {"context": "bob", "events": [event], "expected": 7}),
        (200, {"context": "bob", "events": [event], "expected": 0}),
        # The version is the batch's own by now.
        (200, {"context": "bob", "events": [event], "expected": 0}),
        (422, {"context": "bob", "events": [event]}),
    ):
        answer = http.post(f"{store}/batch", json=body, headers=with_key)
        assert answer.status_code == status, answer.text
    assert done(http, store, "QUERY signup COUNT")["rows"] == [{"count": 2}]


def test_a_subscription_streams_what_comes_and_goes_on_from_where_it_was(
    http: httpx2.Client, store: str
) -> None:
    path = f"{store}/subscriptions/mail"
    with http.stream("GET", path) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        lines = answer.iter_lines()
        [(first, rows)] = told(lines, 1)
        assert [row["context_id"] for row in rows] == ["ada"]
        done(http, store, 'STORE signup FOR eve PAYLOAD {"plan": "free", "amount": 1}')
        [(_, rows)] = told(lines, 1)
        assert [row["context_id"] for row in rows] == ["eve"]
    # Not committed: all of it comes again, but for who says where it was.
    with http.stream("GET", path, headers={"last-event-id": first}) as answer:
        [(_, rows)] = told(answer.iter_lines(), 1)
        assert [row["context_id"] for row in rows] == ["eve"]
    assert http.post(f"{path}/commit", json={"cursor": first}).status_code == 200
    with http.stream("GET", f"{path}?follow=false") as answer:
        [(last, rows)] = told(answer.iter_lines(), 2)
        assert [row["context_id"] for row in rows] == ["eve"]
    http.post(f"{path}/commit", json={"cursor": last})
    assert "data" not in http.get(f"{path}?follow=false&types=signup").text
    for bad in ("x", "e30=.", "WzFd"):
        assert http.post(f"{path}/commit", json={"cursor": bad}).status_code == 400
    assert http.get(f"{path}?types=unknown").status_code == 400


def test_a_store_streams_to_so_many_at_once(tmp_path: Path) -> None:
    root = Root(tmp_path, ServiceOptions(fsync=False, max_concurrency=2))
    assert root.ask("PUT", "/v1/events/store")[0] == 200
    define = {"command": 'DEFINE signup FIELDS {"plan": "string"}'}
    assert root.ask("POST", "/v1/events/store/execute", define)[0] == 200

    async def asked() -> list[int]:
        transport = httpx2.ASGITransport(app=root.app)
        headers = {"authorization": f"Bearer {root.admin}"}
        path = "/v1/events/store/subscriptions/mail"
        async with httpx2.AsyncClient(transport=transport, base_url="http://weir", headers=headers) as http:
            streams: list[asyncio.Task[httpx2.Response]] = []
            async with asyncio.timeout(60):
                while not (refused := [one for one in streams if one.done()]):
                    streams.append(asyncio.create_task(http.get(path)))
                    await asyncio.sleep(0.05)
            assert len(streams) > 2
            for one in streams:
                one.cancel()
            await asyncio.gather(*streams, return_exceptions=True)
            return [refused[0].result().status_code, (await http.get(f"{path}?follow=false")).status_code]

    assert asyncio.run(asked()) == [429, 200]


def test_what_is_refused_is_told_by_line_and_column(http: httpx2.Client, store: str) -> None:
    refused = http.post(f"{store}/execute", json={"command": "QUERY signup WHERE"})
    assert refused.status_code == 400
    assert refused.json()["error"].startswith("line 1, column")
    assert http.post(f"{store}/execute", json={"command": "SHOW nothing"}).status_code == 404
    assert http.post(f"{store}/execute", json={}).status_code == 400
    assert http.post("/v1/events/none/execute", json={"command": "QUERY a"}).status_code == 404


def test_keys_hold_for_events_too(served: Served, http: httpx2.Client, store: str) -> None:
    name = store.rpartition("/")[2]
    with served.http(served.new_key("reader", name)) as reader:
        assert done(reader, store, "QUERY signup COUNT")["rows"] == [{"count": 1}]
        append = 'STORE signup FOR eve PAYLOAD {"plan": "free", "amount": 1}'
        for command in (
            append,
            "FORGET ada",
            'RETAIN signup FOR "1d"',
            "FLUSH",
            'DEFINE a FIELDS {"b": "int"}',
        ):
            assert reader.post(f"{store}/execute", json={"command": command}).status_code == 403, command
        assert reader.put(store).status_code == 403
        assert reader.post(f"{store}/batch", json={}).status_code == 403
        committed = reader.post(f"{store}/subscriptions/mail/commit", json={"cursor": "e30="})
        assert committed.status_code == 403
        assert reader.post("/v1/events/other/execute", json={"command": "PING"}).status_code == 403
        assert reader.get("/v1/events").json() == {"stores": [{"id": name}]}
    assert done(http, store, "QUERY signup COUNT")["rows"] == [{"count": 1}]


def test_a_store_that_python_made_is_answered(served: Served, http: httpx2.Client) -> None:
    name = f"made-{next(_numbers)}"
    with weir.events.create(served.root / "events" / name, buckets=1, fsync=False) as made:
        made.define("a", {"n": "int"})
        with made.writer() as writer:
            writer.append("a", "c", {"n": 1})
    assert done(http, f"/v1/events/{name}", "QUERY a RETURN [n]")["rows"][0]["n"] == 1


def test_whose_key_is_revoked_gets_no_more_of_what_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = Root(tmp_path)
    key, text = root.keys.create("one", "reader")
    for command in ('DEFINE a FIELDS {"n": "int"}', 'STORE a FOR b PAYLOAD {"n": 1}'):
        assert root.ask("POST", "/v1/events/store/execute", {"command": command})[0] == 200
    batches = Subscription.__iter__

    def without_end(self: Subscription) -> Iterator[Any]:
        [batch] = batches(self)
        yield batch
        root.keys.revoke(key.id)
        while True:
            yield batch

    monkeypatch.setattr(Subscription, "__iter__", without_end)

    async def asked() -> str:
        transport = httpx2.ASGITransport(app=root.app)
        headers = {"authorization": f"Bearer {text}"}
        async with (
            asyncio.timeout(60),
            httpx2.AsyncClient(transport=transport, base_url="http://weir", headers=headers) as http,
        ):
            return (await http.get("/v1/events/store/subscriptions/mail")).text

    assert asyncio.run(asked()).count("event: batch") == 2
