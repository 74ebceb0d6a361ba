"""The service over HTTP: many clients beside one, and each call beside the same one in process."""

from __future__ import annotations

import base64
import itertools
import json
import selectors
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa

import weir.namespaces
from benchmarks.context import Context, Result
from benchmarks.harness import Case, Contender, Sense, Target, measure
from weir.namespaces import Documents, Limit, Nearest, Query, Write

__all__ = ["run"]

_CLIENTS = 64
_DIMENSIONS = 768
_ROWS = 1_000
_ARROW = "application/vnd.apache.arrow.stream"
_ONE, _MANY = "one client", f"{_CLIENTS} clients"
_CONDITIONS, _KEYS = f"{_CLIENTS} clients, conditions", f"{_CLIENTS} clients, keys"
_IN_PROCESS, _BASE64, _STREAM, _OVER_HTTP = "in process", "base64", "Arrow", "over HTTP"

_Call = Callable[[], object]
_Session = Callable[[], AbstractContextManager[_Call]]


def run(context: Context) -> Result:
    """Measure writes of one document, writes of many vectors, and searches."""
    with ExitStack() as closing:
        served = closing.enter_context(_Served(context.directory / "served"))
        inside = closing.enter_context(weir.namespaces.open(context.directory / "inside"))
        rounds, quick = context.scale.rounds, context.scale.quick
        cases = [
            _documents(context, served, rounds, 4 if quick else 16),
            _vectors(context, served, inside, rounds),
            _searches(context, served, inside, rounds, 2_000 if quick else 20_000),
        ]
    searched = cases[-1]
    more = 1000 * (searched.measurement(_OVER_HTTP).median - searched.measurement(_IN_PROCESS).median)
    return Result(
        "service",
        "The service on loopback, one process, beside the same calls in process",
        (
            "fsync on everywhere, no keys; client and service share the machine",
            f"a search over HTTP takes {more:.1f} ms more than in process (to be at most 4)",
            f"one call of {_ONE}, {_MANY} and so on: the same number of requests of one document each, every "
            "client sending the next when the one before is answered",
        ),
        cases,
    )


class _Served:
    """A service in a process of its own."""

    def __init__(self, root: Path) -> None:
        command = [sys.executable, "-m", "weir", "serve", str(root), "--listen", "127.0.0.1:0", "--json"]
        self._process = subprocess.Popen(
            [*command, "--no-auth"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self._process.stdout is not None
        url = urlsplit(json.loads(self._process.stdout.readline())["url"])
        self.address = (url.hostname or "", url.port or 0)

    def __enter__(self) -> _Served:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.communicate()

    @contextmanager
    def clients(self, count: int) -> Iterator[_Clients]:
        """Connect so many clients."""
        with ExitStack() as closing:
            yield _Clients(
                [closing.enter_context(socket.create_connection(self.address)) for _ in range(count)]
            )


class _Clients:
    """Connections that each send requests one after the other: with little of the processor's time."""

    def __init__(self, connections: Sequence[socket.socket]) -> None:
        self._connections = connections

    def ask(self, requests: Sequence[bytes]) -> bytes:
        """Send every request, and return the last answer's body once all are answered."""
        left, got = iter(requests), b""
        with selectors.DefaultSelector() as selector:
            for connection in self._connections:
                request = next(left, None)
                if request is not None:
                    connection.sendall(request)
                    selector.register(connection, selectors.EVENT_READ)
            while selector.get_map():
                for key, _ in selector.select():
                    answered = key.fileobj
                    assert isinstance(answered, socket.socket)
                    got = _answer(answered)
                    request = next(left, None)
                    if request is None:
                        selector.unregister(answered)
                    else:
                        answered.sendall(request)
        return got


def _answer(connection: socket.socket) -> bytes:
    got = connection.recv(1 << 16)
    while b"\r\n\r\n" not in got:
        got += connection.recv(1 << 16)
    head, _, body = got.partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
    while len(body) < length:
        body += connection.recv(1 << 16)
    if not head.startswith(b"HTTP/1.1 200"):
        raise RuntimeError(f"{head.decode()}\n{body.decode()}")
    return body


def _request(path: str, content: bytes | object, **headers: str) -> bytes:
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    lines = [f"POST {path} HTTP/1.1", "host: weir", f"content-length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


def _documents(context: Context, served: _Served, rounds: int, each: int) -> Case:
    context.say("service: documents")
    ids, keys = itertools.count(), itertools.count()
    condition = {"upsert_condition": ["n", "Lt", {"$ref_new": "n"}]}

    def requests(name: str, more: dict[str, Any], *, keyed: bool = False) -> list[bytes]:
        return [
            _request(
                f"/v2/namespaces/{name}",
                {"upsert_rows": [{"id": next(ids), "n": 1, "text": "a walrus"}], **more},
                **({"idempotency_key": f"key {next(keys)}"} if keyed else {}),
            )
            for _ in range(each * _CLIENTS)
        ]

    @contextmanager
    def session(clients: int, name: str, more: dict[str, Any], keyed: bool) -> Iterator[_Call]:
        with served.clients(clients) as connected:
            connected.ask(requests(name, more, keyed=keyed)[:1])
            yield lambda: connected.ask(requests(name, more, keyed=keyed))

    contenders: dict[str, _Session] = {
        _ONE: partial(session, 1, "one", {}, False),
        _MANY: partial(session, _CLIENTS, "many", {}, False),
        _CONDITIONS: partial(session, _CLIENTS, "conditions", condition, False),
        _KEYS: partial(session, _CLIENTS, "keys", {}, True),
    }
    measurements = measure(
        [Contender(*one) for one in contenders.items()], rounds=rounds, calls=3, block_seconds=4.0
    )
    targets = (
        Target(_MANY, Sense.FASTER, 8.0, (_ONE,)),
        Target(_CONDITIONS, Sense.WITHIN, 1 / 0.7, (_MANY,)),
        Target(_KEYS, Sense.WITHIN, 1 / 0.7, (_MANY,)),
    )
    return Case("service", "documents", measurements, targets, rows_per_call=each * _CLIENTS)


def _vectors(context: Context, served: _Served, inside: weir.namespaces.Namespaces, rounds: int) -> Case:
    context.say("service: vectors")
    matrix = np.random.default_rng(1).standard_normal((_ROWS, _DIMENSIONS)).astype("<f4")
    ids = list(range(_ROWS))
    coded = [base64.b64encode(one.tobytes()).decode() for one in matrix]
    rows = [{"id": id, "vector": vector} for id, vector in zip(ids, coded, strict=True)]
    write = Write(upserts=Documents.of_rows(rows))
    lists = pa.FixedSizeListArray.from_arrays(pa.array(matrix.reshape(-1)), _DIMENSIONS)
    sink = pa.BufferOutputStream()
    table = pa.table({"id": pa.array(ids, pa.uint64()), "vector": lists})
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    in_json = _request("/v2/namespaces/vectors", {"upsert_rows": rows})
    in_arrow = _request("/v2/namespaces/vectors", bytes(sink.getvalue()), content_type=_ARROW)

    @contextmanager
    def over_http(request: bytes) -> Iterator[_Call]:
        with served.clients(1) as connected:
            yield lambda: connected.ask([request])

    @contextmanager
    def in_process() -> Iterator[_Call]:
        namespace = inside.namespace("vectors")
        yield lambda: namespace.write(write)

    contenders: dict[str, _Session] = {
        _IN_PROCESS: in_process,
        _BASE64: partial(over_http, in_json),
        _STREAM: partial(over_http, in_arrow),
    }
    measurements = measure(
        [Contender(*one) for one in contenders.items()], rounds=rounds, calls=10, block_seconds=3.0
    )
    targets = (
        Target(_BASE64, Sense.WITHIN, 1.5, (_IN_PROCESS,)),
        Target(_STREAM, Sense.WITHIN, 1.2, (_IN_PROCESS,)),
    )
    return Case("service", f"{_ROWS:,} x {_DIMENSIONS}", measurements, targets, rows_per_call=_ROWS)


def _searches(
    context: Context, served: _Served, inside: weir.namespaces.Namespaces, rounds: int, documents: int
) -> Case:
    context.say("service: searches")
    generator = np.random.default_rng(2)
    with served.clients(1) as connected:
        for begin in range(0, documents, _ROWS):
            matrix = generator.standard_normal((_ROWS, 96)).astype("<f4")
            coded = [base64.b64encode(one.tobytes()).decode() for one in matrix]
            rows = [{"id": begin + at, "vector": vector} for at, vector in enumerate(coded)]
            inside.namespace("searched").write(Write(upserts=Documents.of_rows(rows)))
            connected.ask([_request("/v2/namespaces/searched", {"upsert_rows": rows})])
    query = generator.standard_normal(96).astype(np.float32)
    request = _request(
        "/v2/namespaces/searched/query", {"rank_by": ["vector", "ANN", query.tolist()], "top_k": 10}
    )

    @contextmanager
    def over_http() -> Iterator[_Call]:
        with served.clients(1) as connected:
            yield lambda: connected.ask([request])

    @contextmanager
    def in_process() -> Iterator[_Call]:
        namespace = inside.namespace("searched")
        yield lambda: namespace.query(Query(rank_by=Nearest("vector", query), limit=Limit(10), include=()))

    measurements = measure(
        [Contender(_IN_PROCESS, in_process), Contender(_OVER_HTTP, over_http)],
        rounds=rounds,
        calls=30,
        block_seconds=2.0,
    )
    return Case("service", f"ANN in {documents:,} x 96", measurements)
