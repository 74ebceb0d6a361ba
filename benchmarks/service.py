"""The service over HTTP: many clients beside one, and each call beside the same one in process."""

from __future__ import annotations

import base64
import itertools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

import weir.namespaces
from benchmarks.context import Context, Result
from benchmarks.harness import Case, Contender, Sense, Target, measure
from benchmarks.served import Served, request_of
from weir.namespaces import Documents, Limit, Nearest, Query, Write

__all__ = ["documents", "searches", "vectors"]

_CLIENTS = 64
_DIMENSIONS = 768
_ROWS = 1_000
_ARROW = "application/vnd.apache.arrow.stream"
_ONE, _MANY = "one client", f"{_CLIENTS} clients"
_CONDITIONS, _KEYS = f"{_CLIENTS} clients, conditions", f"{_CLIENTS} clients, keys"
_CONDITIONS_OF_ALL = "fsync on everywhere, no keys; client and service share the machine"
_IN_PROCESS, _BASE64, _STREAM, _OVER_HTTP = "in process", "base64", "Arrow", "over HTTP"

_Call = Callable[[], object]
_Session = Callable[[], AbstractContextManager[_Call]]


def documents(context: Context) -> Result:
    """Measure writes of one document, by one client and by many."""
    with Served(context.directory / "documents") as served:
        case = _documents(context, served, context.scale.rounds, 4 if context.scale.quick else 8)
    return Result(
        "service-documents",
        f"Writes of one document over HTTP on loopback: one client, and {_CLIENTS}",
        (
            _CONDITIONS_OF_ALL,
            f"one call of {_ONE}, {_MANY} and so on: the same number of requests of one document each, every "
            "client sending the next when the one before is answered",
        ),
        [case],
    )


def vectors(context: Context) -> Result:
    """Measure writes of many vectors, beside the same ones in process."""
    with (
        Served(context.directory / "vectors") as served,
        weir.namespaces.open(context.directory / "vectors inside") as inside,
    ):
        case = _vectors(context, served, inside, context.scale.rounds)
    title = f"{_ROWS:,} vectors of {_DIMENSIONS} dimensions, over HTTP on loopback and in process"
    return Result("service-vectors", title, (_CONDITIONS_OF_ALL,), [case])


def searches(context: Context) -> Result:
    """Measure searches, beside the same ones in process."""
    with (
        Served(context.directory / "searches") as served,
        weir.namespaces.open(context.directory / "searches inside") as inside,
    ):
        case = _searches(
            context, served, inside, context.scale.rounds, 2_000 if context.scale.quick else 20_000
        )
    more = 1000 * (case.measurement(_OVER_HTTP).median - case.measurement(_IN_PROCESS).median)
    return Result(
        "service-searches",
        "A search over HTTP on loopback, and in process",
        (
            _CONDITIONS_OF_ALL,
            f"a search over HTTP takes {more:.1f} ms more than in process (to be at most 4)",
        ),
        [case],
    )


def _documents(context: Context, served: Served, rounds: int, each: int) -> Case:
    context.say("service: documents")
    ids, keys = itertools.count(), itertools.count()
    condition = {"upsert_condition": ["n", "Lt", {"$ref_new": "n"}]}

    def requests(name: str, more: dict[str, Any], *, keyed: bool = False) -> list[bytes]:
        return [
            request_of(
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
    return Case("service-documents", "documents", measurements, targets, rows_per_call=each * _CLIENTS)


def _vectors(context: Context, served: Served, inside: weir.namespaces.Namespaces, rounds: int) -> Case:
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
    in_json = request_of("/v2/namespaces/vectors", {"upsert_rows": rows})
    in_arrow = request_of("/v2/namespaces/vectors", bytes(sink.getvalue()), content_type=_ARROW)

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
    return Case("service-vectors", f"{_ROWS:,} x {_DIMENSIONS}", measurements, targets, rows_per_call=_ROWS)


def _searches(
    context: Context, served: Served, inside: weir.namespaces.Namespaces, rounds: int, count: int
) -> Case:
    context.say("service: searches")
    generator = np.random.default_rng(2)
    with served.clients(1) as connected:
        for begin in range(0, count, _ROWS):
            matrix = generator.standard_normal((_ROWS, 96)).astype("<f4")
            coded = [base64.b64encode(one.tobytes()).decode() for one in matrix]
            rows = [{"id": begin + at, "vector": vector} for at, vector in enumerate(coded)]
            inside.namespace("searched").write(Write(upserts=Documents.of_rows(rows)))
            connected.ask([request_of("/v2/namespaces/searched", {"upsert_rows": rows})])
    query = generator.standard_normal(96).astype(np.float32)
    request = request_of(
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
    return Case("service-searches", f"ANN in {count:,} x 96", measurements)
