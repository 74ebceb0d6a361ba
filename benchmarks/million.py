"""A million vectors in a namespace: searches while documents stream in, over HTTP beside those in process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import weir
import weir.namespaces
from benchmarks.context import Context, Result
from benchmarks.harness import Case, Contender, Sense, Target, measure
from benchmarks.namespaces import Held
from benchmarks.served import Clients, Served, request_of
from weir.namespaces import Limit, Namespace, Nearest, Query

__all__ = ["run"]

_DIMENSIONS = 96
_CLUSTERS = 500
_LOADED_AT_ONCE = 20_000
_A_SECOND = 1_000
_BATCH = 100
_BEST = 10
_QUERIES = 100
_MEMORY = 2048
_ARROW = "application/vnd.apache.arrow.stream"
_IN_PROCESS, _OVER_HTTP = "in process", "over HTTP"

_Matrix = npt.NDArray[np.float32]
_Call = Callable[[], object]


def run(context: Context) -> Result:
    """Load, wait for the index, and search while documents stream in."""
    count = 20_000 if context.scale.quick else 1_000_000
    generator = np.random.default_rng(11)
    centres = generator.standard_normal((_CLUSTERS, _DIMENSIONS)).astype(np.float32)

    def vectors(rows: int) -> _Matrix:
        near = centres[generator.integers(0, _CLUSTERS, rows)]
        return (near + 0.5 * generator.standard_normal((rows, _DIMENSIONS))).astype(np.float32)

    every = vectors(count)
    queries = vectors(_QUERIES)
    root = context.directory / "million"
    with ExitStack() as closing:
        # As the files for deployment have it.
        environment = {"ARROW_DEFAULT_MEMORY_POOL": "system"}
        served = closing.enter_context(Served(root, "--compaction-interval", "5s", environment=environment))
        [asking, streaming] = [closing.enter_context(served.clients(1)) for _ in range(2)]
        context.say(f"million: {count:,} documents are loaded")
        began = time.monotonic()
        for at in range(0, count, _LOADED_AT_ONCE):
            asking.ask([_stream_of(at, every[at : at + _LOADED_AT_ONCE])])
        loaded = time.monotonic() - began
        context.say("million: upkeep builds the index")
        _wait_until_indexed(asking, queries[0])
        indexed = time.monotonic() - began
        recall = _recall(asking, every, queries)
        engine = weir.Engine(maintenance="off")
        inside = closing.enter_context(weir.namespaces.open(root, engine=engine)).namespace("docs")
        context.say("million: searches while documents stream in")
        streamed = _Stream(streaming, count, vectors)
        closing.enter_context(streamed.running())
        case = _searches(context, asking, inside, queries)
        held = Held.by(served.process_id)
    return Result(
        "million",
        f"{count:,} x {_DIMENSIONS}, searched while {_A_SECOND:,} documents a second stream in",
        (
            f"{_CLUSTERS} clusters, cosine; loaded as Arrow in {loaded:.0f} s, indexed after {indexed:.0f} s",
            f"recall of the {_BEST} nearest: {recall:.3f} (to be at least 0.95)",
            f"{streamed.rate:,.0f} documents a second were acknowledged meanwhile",
            f"at most {held.peak:,.0f} MiB resident (to be {_MEMORY + 1024:,}), {held.threads} threads",
        ),
        [case],
    )


def _stream_of(at: int, matrix: _Matrix) -> bytes:
    lists = pa.FixedSizeListArray.from_arrays(pa.array(matrix.reshape(-1)), _DIMENSIONS)
    table = pa.table({"id": pa.array(range(at, at + len(matrix)), pa.uint64()), "vector": lists})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return request_of("/v2/namespaces/docs", bytes(sink.getvalue()), content_type=_ARROW)


def _query(vector: _Matrix) -> bytes:
    body = {"rank_by": ["vector", "ANN", vector.tolist()], "top_k": _BEST}
    return request_of("/v2/namespaces/docs/query", body)


def _wait_until_indexed(client: Clients, vector: _Matrix) -> None:
    until = time.monotonic() + 300
    while _told(client, vector)["performance"]["exhaustive_search_count"]:
        if time.monotonic() > until:
            raise RuntimeError("upkeep has not indexed the documents")
        time.sleep(1.0)


def _told(client: Clients, vector: _Matrix) -> Any:
    return client.told(_query(vector))


def _recall(client: Clients, every: _Matrix, queries: _Matrix) -> float:
    normed = every / np.linalg.norm(every, axis=1, keepdims=True)
    shares = []
    for one in queries:
        near = normed @ (one / np.linalg.norm(one))
        best = np.partition(near, -_BEST)[-_BEST]
        found = [row["id"] for row in _told(client, one)["rows"]]
        shares.append(float(np.mean(near[found] >= best - 1e-6)))
    return float(np.mean(shares))


class _Stream:
    """Documents that come in at a steady rate, as far as the service takes them."""

    def __init__(self, client: Clients, begin: int, vectors: Callable[[int], _Matrix]) -> None:
        self._client = client
        self._next = begin
        self._ready = [vectors(_BATCH) for _ in range(20)]
        self._is_over = threading.Event()
        self._done = 0
        self._seconds = 1.0

    @property
    def rate(self) -> float:
        """How many documents a second were acknowledged."""
        return self._done / self._seconds

    @contextmanager
    def running(self) -> Iterator[None]:
        """Let them come for the length of a block."""
        thread = threading.Thread(target=self._run, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._is_over.set()
            thread.join()

    def _run(self) -> None:
        began = time.monotonic()
        while not self._is_over.is_set():
            matrix = self._ready[self._done // _BATCH % len(self._ready)]
            self._client.ask([_stream_of(self._next, matrix)])
            self._next += _BATCH
            self._done += _BATCH
            self._seconds = time.monotonic() - began
            time.sleep(max(0.0, self._done / _A_SECOND - self._seconds))


def _searches(context: Context, client: Clients, inside: Namespace, queries: _Matrix) -> Case:
    numbers = iter(range(1 << 30))

    @contextmanager
    def over_http() -> Iterator[_Call]:
        yield lambda: client.ask([_query(queries[next(numbers) % _QUERIES])])

    @contextmanager
    def in_process() -> Iterator[_Call]:
        def ask() -> object:
            vector = queries[next(numbers) % _QUERIES]
            return inside.query(Query(rank_by=Nearest("vector", vector), limit=Limit(_BEST), include=()))

        yield ask

    measurements = measure(
        [Contender(_IN_PROCESS, in_process), Contender(_OVER_HTTP, over_http)],
        rounds=context.scale.rounds,
        calls=200,
        block_seconds=4.0,
    )
    return Case("million", "ANN", measurements, (Target(_OVER_HTTP, Sense.WITHIN, 2.0, (_IN_PROCESS,)),))
