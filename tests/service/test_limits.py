"""What a client may not take: time, threads, memory, and more requests than are its share."""

from __future__ import annotations

import asyncio
import base64
import gzip
import itertools
import struct
import threading
import time
import zlib
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import numpy as np
import pyarrow as pa
import pytest

import weir
from tests.service.test_planted_bugs import Root
from weir.engine.cancellation import check_cancelled
from weir.errors import KeyNotFoundError, ReadCancelledError
from weir.namespaces.reading import Reading
from weir.service.body import Bodies, HeldBody
from weir.service.keys.key import new_key
from weir.service.keys.store import KeyStore
from weir.service.options import ServiceOptions
from weir.service.request_threads import RequestThreads
from weir.storage.local import LocalStore

QUERY = "/v2/namespaces/docs/query"
RANK: dict[str, Any] = {"rank_by": ["id", "asc"], "top_k": 1}


def root_with(path: Path, **options: Any) -> Root:
    """A service without a network in between, and a namespace of one document in it."""
    root = Root(path, ServiceOptions(fsync=False, **options))
    root.write("docs", upsert_rows=[{"id": 1, "v": 1, "vector": [1, 2]}])
    return root


# ---- time --------------------------------------------------------------------------------------------------


def test_a_read_that_took_too_long_ends_at_its_next_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = root_with(tmp_path, request_timeout=0.5)
    answered = Reading.answer
    begun: list[float] = []

    def slow(self: Reading, query: Any) -> Any:
        begun.append(time.monotonic())
        time.sleep(0.2)
        return answered(self, query)

    monkeypatch.setattr(Reading, "answer", slow)
    status, told = root.ask("POST", QUERY, {"queries": [RANK] * 16})
    assert (status, told["status"]) == (503, "error")
    root.service.close()  # waits for what is under way
    assert len(begun) < 8


def test_what_nobody_waits_for_ends_or_does_not_begin() -> None:
    threads = RequestThreads("test", 1)
    ended: list[type[BaseException]] = []
    began, over = threading.Event(), threading.Event()

    def read() -> None:
        began.set()
        try:
            while not over.wait(0.01):
                check_cancelled()
        except ReadCancelledError as error:
            ended.append(type(error))
            raise

    async def given_up() -> None:
        asked = asyncio.create_task(threads.read(read))
        waits = asyncio.create_task(threads.read(ended.append, ValueError))
        while not began.is_set():
            await asyncio.sleep(0.01)
        for one in (waits, asked):
            one.cancel()
        for one in (waits, asked):
            with pytest.raises(asyncio.CancelledError):
                await one

    asyncio.run(given_up())
    threads.close()
    assert ended == [ReadCancelledError]
    over.set()


# ---- requests ----------------------------------------------------------------------------------------------


def test_a_key_makes_as_many_requests_as_it_may(tmp_path: Path) -> None:
    root = Root(tmp_path, ServiceOptions(fsync=False, requests_per_second=2))
    other = root.keys.create("other", "reader")[1]
    statuses = [root.ask("GET", "/v1/namespaces")[0] for _ in range(12)]
    assert statuses[:2] == [200, 200]
    assert 429 in statuses
    # Others are not held up by that, nor is who asks whether the process lives.
    assert root.ask("GET", "/v1/namespaces", key=other)[0] == 200
    assert root.ask("GET", "/healthz")[0] == 200
    time.sleep(0.6)
    assert root.ask("GET", "/v1/namespaces")[0] == 200


def test_a_namespace_answers_so_many_requests_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = root_with(tmp_path, max_concurrency=2)
    root.write("others", upsert_rows=[{"id": 1}])
    held, answered = threading.Semaphore(0), Reading.answer

    def waiting(self: Reading, query: Any) -> Any:
        held.acquire()
        return answered(self, query)

    monkeypatch.setattr(Reading, "answer", waiting)
    with ThreadPoolExecutor(2) as clients:
        asked = [clients.submit(root.ask, "POST", QUERY, RANK) for _ in range(2)]
        while root.service.concurrency._running.get("docs", 0) < 2:
            time.sleep(0.01)
        status, told = root.ask("POST", QUERY, RANK)
        assert (status, told["status"]) == (429, "error")
        assert root.ask("GET", "/v1/namespaces/others/schema")[0] == 200
        held.release(2)
        assert [one.result()[0] for one in asked] == [200, 200]
    held.release()
    assert root.ask("POST", QUERY, RANK)[0] == 200


def test_one_namespace_leaves_threads_to_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weir.service.context._THREADS", 3)
    monkeypatch.setattr("weir.service.context._THREADS_OF_ONE", 2)
    root = root_with(tmp_path)
    root.write("others", upsert_rows=[{"id": 1}])
    held, answered = threading.Semaphore(0), Reading.answer

    def waiting(self: Reading, query: Any) -> Any:
        if len(self._definition.attributes) > 0:
            held.acquire()
        return answered(self, query)

    monkeypatch.setattr(Reading, "answer", waiting)

    async def asked() -> list[int]:
        transport = httpx2.ASGITransport(app=root.app)
        headers = {"authorization": f"Bearer {root.admin}"}
        async with httpx2.AsyncClient(transport=transport, base_url="http://weir", headers=headers) as http:
            many = [asyncio.create_task(http.post(QUERY, json=RANK)) for _ in range(9)]
            await asyncio.sleep(0.1)
            other = await http.post("/v2/namespaces/others/query", json=RANK)
            assert not any(one.done() for one in many)
            held.release(9)
            return [other.status_code, *[(await one).status_code for one in many]]

    assert asyncio.run(asked()) == [200] * 10


def test_who_sends_a_body_without_an_end_holds_up_nobody_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weir.service.context._THREADS_OF_ONE", 2)
    root = root_with(tmp_path, max_concurrency=8)
    narrow = root.keys.create("narrow", "reader", ["nothing"])[1]

    async def endless() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.sleep(60)

    async def asked() -> list[int]:
        transport = httpx2.ASGITransport(app=root.app)
        headers = {"authorization": f"Bearer {root.admin}"}
        async with httpx2.AsyncClient(transport=transport, base_url="http://weir", headers=headers) as http:
            told = {"authorization": f"Bearer {narrow}"}
            many = [
                asyncio.create_task(http.post("/v1/namespaces", content=endless(), headers=told))
                for _ in range(9)
            ]
            await asyncio.sleep(0.1)
            try:
                async with asyncio.timeout(10):
                    places = ("/healthz", "/readyz", "/v1/namespaces", "/v1/events")
                    return [(await http.get(place)).status_code for place in places]
            finally:
                for one in many:
                    one.cancel()
                await asyncio.gather(*many, return_exceptions=True)

    assert asyncio.run(asked()) == [200] * 4


def test_a_namespace_that_has_much_to_merge_takes_reads_alone(tmp_path: Path) -> None:
    root = root_with(tmp_path, max_unindexed_bytes=20_000)
    root.write("others", upsert_rows=[{"id": 1}])
    hurried = threading.Event()
    root.service.hurry = hurried.set
    write = {"upsert_rows": [{"id": 2, "v": 2, "vector": [1, 2], "text": "x" * 30_000}]}
    statuses = [root.ask("POST", "/v2/namespaces/docs", write)[0] for _ in range(3)]
    assert statuses == [200, 429, 429]
    assert hurried.is_set()
    assert root.ask("POST", QUERY, RANK)[0] == 200
    assert root.ask("POST", "/v2/namespaces/others", {"deletes": [1]})[0] == 200
    docs = root.namespaces.namespace("docs")
    docs.compact()
    docs.opened().statistics = None  # what is known is two seconds old at most
    assert root.ask("POST", "/v2/namespaces/docs", {"deletes": [2]})[0] == 200


# ---- memory ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress], ids=["gzip", "deflate"])
def test_a_body_that_unpacks_to_more_is_refused_before_it_is_unpacked(
    tmp_path: Path, pack: Callable[[bytes], bytes]
) -> None:
    root = root_with(tmp_path, max_request_bytes=1 << 20)
    encoding = "gzip" if pack is gzip.compress else "deflate"
    headers = {"content-encoding": encoding}
    write = "/v2/namespaces/docs"
    bomb = pack(b" " * (200 << 20))
    assert len(bomb) < 1 << 20
    assert root.ask("POST", write, headers=headers, content=bomb)[0] == 413
    packed = pack(b'{"deletes": [1]}')
    for broken in (packed[:-5], b"nothing packed", b"\x1f\x8b" + b"\0" * 50):
        assert root.ask("POST", write, headers=headers, content=broken)[0] == 400
    assert root.ask("POST", write, headers={"content-encoding": "br"}, content=packed)[0] == 415
    assert root.values("docs") == {1: 1}
    assert root.ask("POST", write, headers=headers, content=packed)[0] == 200
    assert root.values("docs") == {}


@pytest.mark.parametrize("depth", [40, 5_000, 200_000])
def test_what_is_nested_too_deeply_is_refused(tmp_path: Path, depth: int) -> None:
    root = root_with(tmp_path)

    def nested(begin: str, middle: str, end: str) -> bytes:
        return (begin * depth + middle + end * depth).encode()

    negations = nested('["Not",', '["v","Eq",1]', "]")
    lists, objects = nested("[", "", "]"), nested('{"a":', "1", "}")
    zeppelin = nested('{"op":"not","filter":', '{"op":"eq","field":"v","value":1}', "}")
    sums = nested('["Sum",[', '["v","BM25","x"]', "]]")
    write, vectors = "/v2/namespaces/docs", "/v1/namespaces/docs"
    bodies = [
        (QUERY, b'{"rank_by":["id","asc"],"top_k":1,"filters":' + negations + b"}"),
        (QUERY, b'{"rank_by":["id","asc"],"top_k":1,"filters":["v","In",' + lists + b"]}"),
        (QUERY, b'{"rank_by":' + sums + b',"top_k":1}'),
        (QUERY, lists),
        (write, b'{"upsert_rows":[{"id":1,"v":' + lists + b"}]}"),
        (write, b'{"upsert_rows":[{"id":1,"v":' + objects + b"}]}"),
        (write, b'{"deletes":' + lists + b"}"),
        (write, b'{"delete_by_filter":' + negations + b"}"),
        (write, b'{"upsert_rows":[{"id":1,"v":2}],"upsert_condition":' + negations + b"}"),
        (write, b'{"schema":{"x":' + objects + b'},"upsert_rows":[{"id":1}]}'),
        (f"{vectors}/query", b'{"vector":[1,2],"filter":' + zeppelin + b"}"),
        (f"{vectors}/vectors", b'{"vectors":[{"id":"1","values":[1,2],"attributes":' + objects + b"}]}"),
    ]
    for path, content in bodies:
        status, told = root.ask("POST", path, content=content)
        assert status == 400, (path, content[:80], told)
        assert len(str(told)) < 1_000
    assert root.values("docs") == {1: 1}


@pytest.mark.parametrize(
    "body",
    [
        {"upsert_rows": [{"id": 1, "v": 2, "vector": [1, 2, 3]}]},
        {"upsert_rows": [{"id": 1, "v": 2, "vector": ["1", 2]}]},
        {"upsert_rows": [{"id": 1, "v": 2, "vector": "AAAA"}]},
        {"upsert_rows": [{"id": 1, "v": 2, "vector": "////f////38="}]},
        {"upsert_rows": [{"id": 1, "v": 2, "vector": [1e39, 2]}]},
        {"upsert_rows": [{"id": 1, "v": 2, "vector": [1, 2]}, {"id": 2, "v": "x", "vector": [1, 2]}]},
        {"upsert_rows": [{"id": 1, "v": 2**63, "vector": [1, 2]}]},
        {"upsert_rows": [{"id": -1, "v": 2, "vector": [1, 2]}]},
        {"upsert_rows": [{"id": "1", "v": 2, "vector": [1, 2]}]},
        {"upsert_rows": [{"id": 1, "v": 2, "vector": [1, 2], "$x": 1}]},
        {"upsert_rows": [{"id": 1, "v": 2, "vector": [1, 2], "a" * 129: 1}]},
        {"upsert_rows": [{"id": 1, "v": 2, "vector": [1, 2], "a\0b": 1}]},
        {"upsert_columns": {"id": [1, 2], "v": [2]}},
        {"upsert_rows": [{"id": 1, "v": 2, "vector": [1, 2]}] * 2},
        {"deletes": [1, None]},
        {"deletes": 1},
        {"upsert_rows": [{"id": 1, "v": 2, "vector": [1, 2]}], "deletes": [1], "nothing": 1},
    ],
    ids=str,
)
def test_what_does_not_fit_changes_nothing(tmp_path: Path, body: dict[str, Any]) -> None:
    root = root_with(tmp_path)
    status, told = root.ask("POST", "/v2/namespaces/docs", body)
    assert status == 400, told
    assert root.values("docs") == {1: 1}
    assert {*root.namespaces.namespace("docs").definition.attributes} == {"v", "vector"}


@pytest.mark.parametrize("number", [b"NaN", b"Infinity", b"1e400", b"-1e400"])
def test_what_is_no_number_in_json_is_refused(tmp_path: Path, number: bytes) -> None:
    root = root_with(tmp_path)
    content = b'{"upsert_rows":[{"id":1,"v":2,"vector":[1,' + number + b"]}]}"
    assert root.ask("POST", "/v2/namespaces/docs", content=content)[0] == 400
    content = b'{"rank_by":["vector","ANN",[1,' + number + b'],"top_k":1]}'
    assert root.ask("POST", QUERY, content=content)[0] == 400
    assert root.values("docs") == {1: 1}


@pytest.mark.parametrize("name", ["..", "%2e%2e", "a%2Fb", "a%00b", "a b", "a" * 129, "%C3%A4", "a%0Ab"])
def test_names_that_no_namespace_has_are_refused(tmp_path: Path, name: str) -> None:
    root = root_with(tmp_path)
    for method, path in (
        ("POST", f"/v2/namespaces/{name}"),
        ("DELETE", f"/v2/namespaces/{name}"),
        ("GET", f"/v1/namespaces/{name}"),
        ("GET", f"/v1/namespaces/{name}/manifest"),
    ):
        status, _ = root.ask(method, path, {"upsert_rows": [{"id": 1}]} if method == "POST" else None)
        assert status in (400, 404, 405), (method, path, status)
    assert root.namespaces.names() == ["docs"]
    assert {one.name for one in (tmp_path / "namespaces").iterdir()} == {"docs"}


@pytest.mark.parametrize(
    ("body", "options"),
    [
        ({**RANK, "top_k": 10_001}, {}),
        ({**RANK, "top_k": 0}, {}),
        ({**RANK, "top_k": -1}, {}),
        ({"queries": [RANK] * 17}, {}),
        ({"queries": []}, {}),
        ({**RANK, "filters": ["Not", ["Not", ["Not", ["v", "Eq", 1]]]]}, {"max_filter_depth": 3}),
        ({"rank_by": ["vector", "ANN", [1] * 10_753], "top_k": 1}, {}),
        ({"rank_by": ["Sum", [["v", "BM25", "x"]] * 300], "top_k": 1}, {}),
    ],
    ids=lambda one: str(one)[:40],
)
def test_queries_have_limits(tmp_path: Path, body: dict[str, Any], options: dict[str, Any]) -> None:
    assert root_with(tmp_path, **options).ask("POST", QUERY, body)[0] == 400


def test_writes_have_limits(tmp_path: Path) -> None:
    root = root_with(tmp_path, max_rows=3, max_attributes=4)
    write = "/v2/namespaces/docs"
    rows = [{"id": number, "vector": [1, 2]} for number in range(4)]
    assert root.ask("POST", write, {"upsert_rows": rows})[0] == 413
    assert root.ask("POST", write, {"upsert_rows": rows[:2], "deletes": [5, 6]})[0] == 413
    wide = {"id": 1, "vector": [1, 2], "a": 1, "b": 1, "c": 1}
    assert root.ask("POST", write, {"upsert_rows": [wide]})[0] == 400
    assert root.values("docs") == {1: 1}
    longest = {"schema": {"vector": "[10753]f32"}, "upsert_rows": [{"id": 1}]}
    assert root.ask("POST", "/v2/namespaces/other", longest)[0] == 400
    assert root.namespaces.names() == ["docs"]


def test_a_body_that_is_packed_in_parts_is_taken_whole(tmp_path: Path) -> None:
    root = root_with(tmp_path)
    packed = {"content-encoding": "gzip"}
    body = b'{"upsert_rows": [{"id": 2, "v": 2, "vector": [1, 2]}, {"id": 3, "v": 3, "vector": [1, 2]}]}'
    parts = gzip.compress(body[:20]) + gzip.compress(b"") + gzip.compress(body[20:])
    assert root.ask("POST", "/v2/namespaces/docs", headers=packed, content=parts)[0] == 200
    assert root.values("docs") == {1: 1, 2: 2, 3: 3}
    for after in (gzip.compress(b"{}"), b"more", gzip.compress(b"  ")[:-1]):
        content = gzip.compress(b'{"deletes": [1]}') + after
        assert root.ask("POST", "/v2/namespaces/docs", headers=packed, content=content)[0] == 400
    assert root.values("docs") == {1: 1, 2: 2, 3: 3}


def test_bodies_wait_for_each_other_and_none_of_them_for_ever() -> None:
    bodies, most, piece = Bodies(1_000_000), 0, 100_000

    async def answered(pieces: int) -> None:
        nonlocal most
        body = HeldBody()
        for _ in range(pieces):
            await bodies.take(body, piece)
            most = max(most, bodies.held)
            await asyncio.sleep(0)
        bodies.free(body)

    async def many() -> None:
        # Together they would hold six times as much, and none of them is done before it has all of its own.
        await asyncio.wait_for(asyncio.gather(*(answered(3 + at % 5) for at in range(64))), 60)

    asyncio.run(many())
    assert bodies.held == 0
    assert 1_000_000 <= most <= 1_000_000 + 7 * piece


def test_a_small_body_waits_for_no_other() -> None:
    bodies = Bodies(1_000_000)

    async def taken() -> None:
        large = [HeldBody() for _ in range(3)]
        for body in large[:2]:
            await bodies.take(body, 900_000)
        waits = asyncio.create_task(bodies.take(large[2], 900_000))
        small = HeldBody()
        for size in (0, 1 << 15, 1 << 15, 0):
            await asyncio.wait_for(bodies.take(small, size), 60)
        assert not waits.done()
        assert bodies.held == 1_800_000 + (1 << 16)
        for body in (*large[:2], small):
            bodies.free(body)
        await asyncio.wait_for(waits, 60)
        bodies.free(large[2])

    asyncio.run(taken())
    assert bodies.held == 0


def test_a_request_that_is_given_up_leaves_its_room_to_others(tmp_path: Path) -> None:
    root = root_with(tmp_path, request_timeout=0.5, memory=1, max_request_bytes=200_000)

    async def endless() -> AsyncIterator[bytes]:
        yield b" " * 190_000
        await asyncio.sleep(60)

    async def asked() -> list[int]:
        transport = httpx2.ASGITransport(app=root.app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://weir") as http:
            headers = {"authorization": f"Bearer {root.admin}"}
            bodies = [endless() for _ in range(3)] + [msgspec.json.encode(RANK)] * 64
            answers = await asyncio.gather(
                *(http.post(QUERY, content=body, headers=headers) for body in bodies)
            )
            return [one.status_code for one in answers]

    statuses = asyncio.run(asked())
    assert {*statuses[:3]} == {503}
    assert root.service.bodies.held == 0
    assert root.ask("POST", QUERY, RANK)[0] == 200


def test_many_requests_at_once_are_answered_with_room_for_one_body(tmp_path: Path) -> None:
    root = root_with(tmp_path, memory=1, max_request_bytes=300_000)
    held = []
    take = root.service.bodies.take

    async def noted(body: HeldBody, size: int) -> None:
        await take(body, size)
        held.append(root.service.bodies.held)

    root.service.bodies.take = noted  # type: ignore[method-assign]

    async def asked() -> list[int]:
        transport = httpx2.ASGITransport(app=root.app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://weir") as http:
            headers = {"authorization": f"Bearer {root.admin}", "content-encoding": "gzip"}
            rows = [
                gzip.compress(msgspec.json.encode({"upsert_rows": [{"id": at, "text": "x" * 200_000}]}))
                for at in range(64)
            ]
            answers = await asyncio.gather(
                *(http.post("/v2/namespaces/large", content=one, headers=headers) for one in rows)
            )
            return [one.status_code for one in answers]

    assert asyncio.run(asked()) == [200] * 64
    assert max(held) <= 2 * 300_000
    assert root.service.bodies.held == 0
    assert root.namespaces.namespace("large").count() == 64


# ---- keys --------------------------------------------------------------------------------------------------


def test_a_key_is_not_for_what_its_globs_leave_out(tmp_path: Path) -> None:
    root = root_with(tmp_path)
    root.write("secret-docs", upsert_rows=[{"id": 1}])
    for globs, seen in (
        (["*", "!secret-*"], ["docs"]),
        (["!secret-*"], ["docs"]),
        (["*docs", "!docs"], ["secret-docs"]),
        (["[!s]*"], ["docs"]),
    ):
        key = root.keys.create("narrow", "reader", globs)[1]
        listed = root.ask("GET", "/v1/namespaces", key=key)[1]["namespaces"]
        assert [one["id"] for one in listed] == seen
        for name in ("docs", "secret-docs"):
            status = root.ask("POST", f"/v2/namespaces/{name}/query", RANK, key)[0]
            assert status == (200 if name in seen else 403)


@pytest.mark.parametrize(
    ("own", "asked", "is_covered"),
    [
        (["*"], ["a*"], True),
        ([], [], True),
        (["team-*"], [], False),
        (["team-*"], ["*"], False),
        (["team-*"], ["team-*"], True),
        (["team-*"], ["team-a", "team-b-*"], True),
        (["team-*"], ["team-a", "other"], False),
        (["team-*"], ["t*"], False),
        (["team-?*"], ["team-a*"], False),
        (["t[e]am-*"], ["t[e]am-1"], False),
        (["a", "b"], ["b"], True),
        (["!secret-*"], [], False),
        (["!secret-*"], ["!secret-*"], True),
        (["!secret-*"], ["docs"], True),
        (["!secret-*"], ["secret-docs"], False),
        (["*", "!secret-*"], ["*"], False),
        (["*", "!secret-*"], ["d*", "!secret-*", "!more"], True),
    ],
)
def test_a_key_covers_what_cannot_reach_beyond_its_globs(
    own: list[str], asked: list[str], is_covered: bool
) -> None:
    key = new_key("own", "admin", own)[0]
    assert key.covers(asked) == is_covered
    if is_covered:
        narrower = new_key("asked", "admin", asked)[0]
        names = ["".join(one) for length in range(4) for one in itertools.product("ab-", repeat=length)]
        names += [f"{stem}{name}" for stem in ("team-", "secret-", "docs") for name in names[:13]]
        assert all(key.may_see(name) for name in names if narrower.may_see(name))


def test_an_admin_with_globs_manages_no_keys_beyond_them(tmp_path: Path) -> None:
    root = root_with(tmp_path)
    admin_key, admin = root.keys.create("team", "admin", ["team-*"])
    beyond, _ = root.keys.create("all", "reader")
    within, _ = root.keys.create("one", "reader", ["team-1"])
    keys = "/v1/security/keys"
    assert {one["key_id"] for one in root.ask("GET", keys, key=admin)[1]["keys"]} == {admin_key.id, within.id}
    for globs in (None, ["*"], ["team-*", "other"]):
        status, told = root.ask("POST", keys, {"name": "n", "role": "admin", "namespaces": globs}, admin)
        assert (status, told["code"]) == (403, "forbidden")
    made = root.ask("POST", keys, {"name": "n", "role": "admin", "namespaces": ["team-2*"]}, admin)
    assert made[0] == 201
    assert root.ask("POST", f"{keys}/{beyond.id}/rotate", {}, admin)[0] == 404
    assert root.ask("DELETE", f"{keys}/{beyond.id}", key=admin)[0] == 404
    assert root.ask("POST", f"{keys}/{within.id}/rotate", {}, admin)[0] == 201
    assert root.ask("DELETE", f"{keys}/{within.id}", key=admin)[0] == 200
    assert root.ask("PATCH", "/v1/config/query", {"default_top_k": 5}, admin)[0] == 403
    assert beyond.id in {one.id for one in root.keys.list()}


def test_a_key_that_is_rotated_ends_when_it_did_before(tmp_path: Path) -> None:
    root = root_with(tmp_path)
    key, _ = root.keys.create("short", "reader", expires=timedelta(days=30))
    path = f"/v1/security/keys/{key.id}/rotate"
    assert root.ask("POST", path, {}, root.admin)[0] == 201
    assert root.keys.get(key.id).expires_at == key.expires_at
    assert root.ask("POST", path, {"expires_in_secs": 60}, root.admin)[0] == 201
    until = root.keys.get(key.id).expires_at
    assert until is not None
    assert key.expires_at is not None
    assert until < key.expires_at
    over, _ = root.keys.create("over", "reader", expires=timedelta(microseconds=1))
    status, told = root.ask("POST", f"/v1/security/keys/{over.id}/rotate", {}, root.admin)
    assert (status, "has expired" in told["error"]) == (400, True)
    status, _ = root.ask("POST", f"/v1/security/keys/{over.id}/rotate", {"expires_in_secs": 60}, root.admin)
    assert status == 201


def test_keys_end_by_themselves_and_when_another_process_says_so(tmp_path: Path) -> None:
    root = root_with(tmp_path)
    elsewhere = KeyStore(root.namespaces.store)

    def status(key: str) -> int:
        return root.ask("POST", QUERY, RANK, key)[0]

    def is_refused_soon(key: str) -> bool:
        until = time.monotonic() + 5
        while time.monotonic() < until:
            if status(key) == 401:
                return True
            time.sleep(0.05)
        return False

    short = root.keys.create("short", "reader", expires=timedelta(seconds=1))[1]
    revoked, revoked_text = root.keys.create("revoked", "reader")
    rotated, rotated_text = root.keys.create("rotated", "reader")
    for key in (short, revoked_text, rotated_text):
        assert status(key) == 200
    elsewhere.revoke(revoked.id)
    renewed = elsewhere.rotate(rotated.id)[1]
    assert all(map(is_refused_soon, (revoked_text, rotated_text, short)))
    assert status(renewed) == 200
    assert status(root.admin) == 200


def test_a_key_that_is_revoked_while_it_is_rotated_is_revoked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = root_with(tmp_path)
    key, _ = root.keys.create("one", "reader")
    elsewhere = KeyStore(root.namespaces.store)
    found = LocalStore.get_with_version

    def revoked_then(self: LocalStore, path: str) -> Any:
        read = found(self, path)
        elsewhere.revoke(key.id)
        return read

    with monkeypatch.context() as patched:
        patched.setattr(LocalStore, "get_with_version", revoked_then)
        with pytest.raises(KeyNotFoundError):
            root.keys.rotate(key.id)
    assert key.id not in [one.id for one in root.keys.list()]


@pytest.mark.parametrize(
    "key",
    ["", "weir_", "weir_0123456789abcdef_" + "a" * 43, "../../etc/passwd", "weir_" + "é" * 16, "a" * 10_000],
    ids=lambda key: key[:24],
)
def test_what_is_no_key_is_refused(tmp_path: Path, key: str) -> None:
    root = root_with(tmp_path)
    for header in (f"Bearer {key}", key, f"Basic {key}"):
        status, told = root.ask("POST", QUERY, RANK, headers={"authorization": header.encode()})  # type: ignore[dict-item]
        assert status == 401, told
        assert key not in told["error"] or not key


ARROW = {"content-type": "application/vnd.apache.arrow.stream"}


def stream(table: pa.Table, packed: str | None = None) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=packed)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def shared(rows: int) -> pa.DictionaryArray:
    """A long text that rows share."""
    return pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int8()), pa.array(["x" * 100_000]))


def viewed(rows: int) -> pa.StringViewArray:
    """The same, without numbers for texts."""
    view = struct.pack("<i4sii", 100_000, b"xxxx", 0, 0)
    buffers = [None, pa.py_buffer(view * rows), pa.py_buffer(b"x" * 100_000)]
    return pa.Array.from_buffers(pa.string_view(), rows, buffers)


IDS = pa.array(range(1_000))


@pytest.mark.parametrize(
    ("table", "packed", "status"),
    [
        (pa.table({"id": pa.nulls(10**7)}), None, 413),
        (pa.table({"id": pa.array(np.zeros(10**6, np.int64))}), "zstd", 413),
        (pa.table({"id": IDS, "b": pa.array([b"\0" * 10_000] * 1_000)}), "lz4", 413),
        (pa.table({"id": IDS, "s": shared(1_000)}), None, 413),
        (pa.table({"id": IDS, "s": viewed(1_000)}), None, 413),
        (pa.table({"id": IDS[:1], "l": pa.ListArray.from_arrays([0, 3], shared(3))}), None, 400),
        (pa.table({"id": IDS[:1], "l": pa.array([[None] * 9], pa.list_(pa.null()))}), None, 400),
        (pa.table({"id": IDS[:1], "l": pa.array([[[True]]])}), None, 400),
    ],
    ids=["nulls", "zstd", "lz4", "dictionary", "views", "dictionaries", "lists of nulls", "lists of lists"],
)
def test_arrow_that_unpacks_to_more_is_refused_before_it_is_unpacked(
    tmp_path: Path, table: pa.Table, packed: str | None, status: int
) -> None:
    root = root_with(tmp_path, max_request_bytes=4 << 20)
    body = stream(table, packed)
    assert len(body) < 4 << 20
    answered, told = root.ask("POST", "/v2/namespaces/docs", headers=ARROW, content=body)
    assert answered == status, told
    assert root.values("docs") == {1: 1}


@pytest.mark.parametrize("packed", [None, "zstd", "lz4"])
def test_arrow_is_taken_however_it_is_packed_and_texts_are_shared(tmp_path: Path, packed: str | None) -> None:
    root = root_with(tmp_path)
    texts = pa.array(["a", "b" * 500, None, "a"] * 100)
    table = pa.table(
        {
            "id": pa.array(range(400)),
            "vector": pa.FixedSizeListArray.from_arrays(pa.array(np.ones(800, np.float32)), 2),
            "s": texts.dictionary_encode(),
            "t": texts.cast(pa.string_view()),
        }
    )
    status, told = root.ask("POST", "/v2/namespaces/docs", headers=ARROW, content=stream(table, packed))
    assert status == 200, told
    found = root.namespaces.namespace("docs").get(range(400), ["s", "t"])
    assert found["s"].to_pylist() == found["t"].to_pylist() == texts.to_pylist()


def test_documents_with_nothing_in_common_are_refused_before_there_is_a_column_for_each(
    tmp_path: Path,
) -> None:
    root = root_with(tmp_path)
    rows = [{"id": number, "vector": [1, 2], f"a{number}": 1} for number in range(20_000)]
    began = time.process_time()
    assert root.ask("POST", "/v2/namespaces/docs", {"upsert_rows": rows})[0] == 400
    vectors = [{"id": "1", "values": [1, 2], "attributes": {f"a{number}": 1}} for number in range(20_000)]
    assert root.ask("POST", "/v1/namespaces/docs/vectors", {"vectors": vectors})[0] == 400
    assert time.process_time() - began < 20
    assert root.values("docs") == {1: 1}


def test_missing_vectors_count_as_the_bytes_they_take(tmp_path: Path) -> None:
    root = root_with(tmp_path)
    root.write("docs", schema={"other": "[10752]f32"}, deletes=[2])
    rows = [{"id": number, "vector": [1, 2]} for number in range(30_000)]
    status, told = root.ask("POST", "/v2/namespaces/docs", {"upsert_rows": rows})
    assert (status, "bytes" in told["error"]) == (400, True)
    root.write("docs", upsert_rows=rows[:100])


def test_a_filter_reads_no_more_of_what_it_deletes_than_ids(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = root_with(tmp_path)
    read: list[list[str]] = []
    scan = weir.Table.scan

    def noted(self: weir.Table, columns: list[str], *given: Any, **options: Any) -> Any:
        read.append([*columns])
        return scan(self, columns, *given, **options)

    monkeypatch.setattr(weir.Table, "scan", noted)
    assert root.write("docs", delete_by_filter=["v", "Eq", 1])["rows_deleted"] == 1
    assert read == [["id"]]


@pytest.mark.parametrize(
    "body",
    [
        {**RANK, "filters": ["Or", [["v", "Eq", number] for number in range(1_001)]]},
        {**RANK, "filters": ["t", "ContainsAllTokens", " ".join(map(str, range(300)))]},
        {**RANK, "filters": ["t", "Fuzzy", "x" * 2_000, {"max_edit_distance": [{"distance": 1}]}]},
        {"rank_by": ["t", "BM25", "word " * 2_000]},
        {"rank_by": [["v", "asc"]] * 300},
        {"aggregate_by": {f"a{number}": ["Count"] for number in range(300)}},
        {**RANK, "include_attributes": [f"a{number}" for number in range(10_001)]},
    ],
    ids=lambda one: str(one)[:60],
)
def test_what_would_take_too_long_is_refused_by_its_size(tmp_path: Path, body: dict[str, Any]) -> None:
    root = root_with(tmp_path)
    root.write("docs", schema={"t": {"type": "string", "full_text_search": True}}, deletes=[2])
    status, told = root.ask("POST", QUERY, body)
    assert (status, "pattern" in told["error"]) == (400, False), told


def test_attributes_that_no_document_has_are_told_in_no_time(tmp_path: Path) -> None:
    root = root_with(tmp_path)
    names = [f"a{number}" for number in range(10_000)]
    status, told = root.ask("POST", QUERY, {**RANK, "include_attributes": names})
    assert (status, told["rows"]) == (200, [{"id": 1, **dict.fromkeys(names)}])


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", f"/v1/namespaces?page_size={'9' * 5_000}", None),
        ("POST", "/v1/namespaces/docs/clone", {"target": "copy", "as_of": "9" * 5_000}),
        ("POST", "/v1/namespaces/docs/clone", {"target": "copy", "as_of": "../../security/keys/KEY"}),
        ("POST", f"/v1/events/store/ingest?type=a&source=s&number={'9' * 5_000}", None),
        (
            "POST",
            "/v1/events/store/subscriptions/s/commit",
            {"cursor": base64.b64encode(b"[" * 9_999).decode()},
        ),
    ],
    ids=["page_size", "generation", "snapshot", "number", "cursor"],
)
def test_what_no_number_or_name_can_be_is_the_fault_of_who_sends_it(
    tmp_path: Path, method: str, path: str, body: dict[str, Any] | None
) -> None:
    root = root_with(tmp_path)
    root.ask("PUT", "/v1/events/store")
    if body is not None and "as_of" in body:
        body["as_of"] = body["as_of"].replace("KEY", root.keys.list()[0].id)
    assert root.ask(method, path, body)[0] in (400, 404)


def test_a_body_that_does_not_come_is_no_failure(tmp_path: Path) -> None:
    root = root_with(tmp_path)
    sent: list[dict[str, Any]] = []
    parts = iter([{"type": "http.request", "body": b"{", "more_body": True}, {"type": "http.disconnect"}])

    async def receive() -> Any:
        return next(parts)

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"authorization", f"Bearer {root.admin}".encode())]
    scope = {"type": "http", "method": "POST", "path": QUERY, "headers": headers, "query_string": b""}
    asyncio.run(root.app(scope, receive, send))
    assert sent[0]["status"] == 400


def test_a_long_command_is_refused_before_it_is_read(tmp_path: Path) -> None:
    root = root_with(tmp_path)
    root.ask("PUT", "/v1/events/store")
    began = time.process_time()
    command = "QUERY a WHERE n = 1" + " OR n = 1" * 200_000
    assert root.ask("POST", "/v1/events/store/execute", {"command": command})[0] == 400
    assert time.process_time() - began < 10


def test_an_answer_has_so_many_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("turbopuffer.routes", "zeppelin.queries", "zeppelin.vectors"):
        monkeypatch.setattr(f"weir.service.{module}.MOST_ANSWER_BYTES", 100_000)
    root = Root(tmp_path)
    root.ask("POST", "/v1/namespaces", {"name": "docs", "dimensions": 1_000})
    rows = [{"id": str(number), "values": [1.0] * 1_000} for number in range(40)]
    assert root.ask("POST", "/v1/namespaces/docs/vectors", {"vectors": rows})[0] == 200
    asked = {"rank_by": ["id", "asc"], "top_k": 20, "include_attributes": True}
    assert root.ask("POST", QUERY, asked)[0] == 200
    for body in ({**asked, "top_k": 40}, {"queries": [asked] * 2}):
        status, told = root.ask("POST", QUERY, body)
        assert (status, "bytes" in told["error"]) == (400, True)
    ids = [row["id"] for row in rows]
    assert root.ask("POST", "/v1/namespaces/docs/vectors/get", {"ids": ids})[0] == 400
    assert root.ask("POST", "/v1/namespaces/docs/vectors/get", {"ids": ids[:20]})[0] == 200


def test_an_answer_of_events_has_so_many_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weir.service.events.routes.MOST_ANSWER_BYTES", 1_000)
    root = Root(tmp_path)
    place = "/v1/events/store"
    root.ask("POST", f"{place}/execute", {"command": 'DEFINE signup FIELDS {"plan": "string"}'})
    events = [{"type": "signup", "payload": {"plan": "x" * 100}} for _ in range(10)]
    assert root.ask("POST", f"{place}/batch", {"context": "ada", "events": events})[0] == 200
    status, told = root.ask("POST", f"{place}/execute", {"command": "QUERY signup"})
    assert (status, "bytes" in told["error"]) == (400, True)
    status, told = root.ask("POST", f"{place}/execute", {"command": "QUERY signup LIMIT 2"})
    assert (status, len(told["rows"])) == (200, 2)
