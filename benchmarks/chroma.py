"""The service beside a server of Chroma: the same real texts with vectors, over HTTP on loopback.

Chroma is no dependency: the program is found by the environment variable ``CHROMA``, else on the path. An
environment of its own is best: ``python -m venv chroma && chroma/bin/pip install chromadb``.
"""

from __future__ import annotations

import base64
import itertools
import os
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import lance
import numpy as np

from benchmarks.context import Context, Result
from benchmarks.harness import Case, Contender, Sense, Target, measure
from benchmarks.served import Clients, Served, connected, request_of
from weir.demo.documentation import Text, Vectors, documentation_strings, vectors_of

__all__ = ["run"]

_DIMENSIONS = 96
_BATCH = 100
_BEST = 10
_LEAST_RECALL = 0.98
_QUERIES = 200
_CALLS = 20
_WEIR, _CHROMA, _LIBRARY = "weir", "chroma", "pylance alone, in process"
_DATABASE = "/api/v2/tenants/default_tenant/databases/default_database/collections"
_SECONDS_TO_START = 60.0

_Call = Callable[[], object]


def run(context: Context) -> Result:
    """Measure upserts of 100 documents, and searches with and without a filter."""
    count = 6_000 if context.scale.quick else 20_000
    context.say("chroma: texts and their vectors")
    texts = documentation_strings(count)
    vectors = vectors_of([one.text for one in texts], _DIMENSIONS)
    with ExitStack() as closing:
        served = closing.enter_context(Served(context.directory / "weir", "--compaction-interval", "2s"))
        chroma = closing.enter_context(_started(context.directory / "chroma"))
        weir = _Weir(closing.enter_context(served.clients(1)))
        sides = [weir, _Chroma(closing.enter_context(connected(chroma, 1)))]
        for side in sides:
            context.say(f"chroma: {count:,} documents are written to {side.name}")
            side.create("searched")
            for at in range(0, count, _BATCH):
                side.ask(side.upsert("searched", range(at, at + _BATCH), texts, vectors))
        weir.wait_until_indexed(count)
        chosen = np.random.default_rng(3).choice(count, _QUERIES, replace=False).tolist()
        packages = [texts[at].package for at in chosen]
        cases = [
            _upserts(context, sides, texts, vectors),
            _searches(context, "query", sides, vectors, chosen, [None] * _QUERIES, texts),
            _searches(context, "filtered query", sides, vectors, chosen, packages, texts),
        ]
    return Result(
        "chroma",
        "The service beside a server of Chroma, one client each",
        (
            "Weir waits for the disk before it acknowledges, which is its default; Chroma runs with its own",
            f"{_DIMENSIONS} dimensions, cosine; vectors travel as base64 in upserts, as numbers in queries",
            f"both find at least {_LEAST_RECALL:.0%} of the {_BEST} nearest of {_QUERIES} queries",
        ),
        cases,
    )


class _Side(ABC):
    """A server, as its clients talk to it."""

    name = ""

    def __init__(self, client: Clients) -> None:
        self._client = client

    def ask(self, request: bytes) -> Any:
        """Send a request; return its answer."""
        return self._client.told(request)

    @abstractmethod
    def create(self, name: str) -> None:
        """Make a collection."""

    @abstractmethod
    def upsert(self, name: str, at: Sequence[int], texts: Sequence[Text], vectors: Vectors) -> bytes:
        """Return the request that writes documents."""

    @abstractmethod
    def query(self, vector: Vectors, package: str | None) -> bytes:
        """Return the request that looks for the nearest documents."""

    @abstractmethod
    def found(self, answer: Any) -> list[int]:
        """Return which documents an answer tells of."""


class _Weir(_Side):
    name = _WEIR

    def create(self, name: str) -> None:
        """Do nothing: documents make it."""

    def upsert(self, name: str, at: Sequence[int], texts: Sequence[Text], vectors: Vectors) -> bytes:
        rows = [
            {"id": id, "vector": _coded(vectors[id % len(texts)]), **_attributes(texts[id % len(texts)])}
            for id in at
        ]
        return request_of(
            f"/v2/namespaces/{name}", {"upsert_rows": rows, "distance_metric": "cosine_distance"}
        )

    def query(self, vector: Vectors, package: str | None) -> bytes:
        body: dict[str, Any] = {"rank_by": ["vector", "ANN", vector.tolist()], "top_k": _BEST}
        if package is not None:
            body["filters"] = ["package", "Eq", package]
        return request_of("/v2/namespaces/searched/query", body)

    def found(self, answer: Any) -> list[int]:
        return [row["id"] for row in answer["rows"]]

    def wait_until_indexed(self, count: int) -> None:
        """Wait until upkeep has indexed everything."""
        query = self.query(np.ones(_DIMENSIONS, np.float32), None)
        until = time.monotonic() + 120
        while self.ask(query)["performance"]["exhaustive_search_count"]:
            if time.monotonic() > until:
                raise RuntimeError("upkeep has not indexed the documents")
            time.sleep(0.5)


class _Chroma(_Side):
    name = _CHROMA

    def __init__(self, client: Clients) -> None:
        super().__init__(client)
        self._ids: dict[str, str] = {}

    def create(self, name: str) -> None:
        """Make a collection, unless there is one."""
        body = {"name": name, "configuration": {"hnsw": {"space": "cosine"}}, "get_or_create": True}
        self._ids[name] = self.ask(request_of(_DATABASE, body, content_type="application/json"))["id"]

    def upsert(self, name: str, at: Sequence[int], texts: Sequence[Text], vectors: Vectors) -> bytes:
        held = [texts[id % len(texts)] for id in at]
        body = {
            "ids": [str(id) for id in at],
            "embeddings": [_coded(vectors[id % len(texts)]) for id in at],
            "documents": [one.text for one in held],
            "metadatas": [{"name": one.name, "package": one.package} for one in held],
        }
        return self._request(f"{self._ids[name]}/upsert", body)

    def query(self, vector: Vectors, package: str | None) -> bytes:
        body: dict[str, Any] = {
            "query_embeddings": [vector.tolist()],
            "n_results": _BEST,
            "include": ["distances"],
        }
        if package is not None:
            body["where"] = {"package": package}
        return self._request(f"{self._ids['searched']}/query", body)

    def _request(self, path: str, body: object) -> bytes:
        return request_of(f"{_DATABASE}/{path}", body, content_type="application/json")

    def found(self, answer: Any) -> list[int]:
        return [int(id) for id in answer["ids"][0]]


@contextmanager
def _started(directory: Path) -> Iterator[tuple[str, int]]:
    """Run a server of Chroma for the length of a block; yield its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address: tuple[str, int] = free.getsockname()
    command = [os.environ.get("CHROMA", "chroma"), "run", "--path", str(directory)]
    process = subprocess.Popen(
        [*command, "--host", address[0], "--port", str(address[1])],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "ANONYMIZED_TELEMETRY": "False"},
    )
    try:
        until = time.monotonic() + _SECONDS_TO_START
        while True:
            try:
                socket.create_connection(address).close()
                break
            except OSError:
                if process.poll() is not None or time.monotonic() > until:
                    raise RuntimeError("the server of Chroma did not start") from None
                time.sleep(0.1)
        yield address
    finally:
        process.terminate()
        process.wait()


def _coded(vector: Vectors) -> str:
    return base64.b64encode(vector.astype("<f4").tobytes()).decode()


def _attributes(text: Text) -> dict[str, str]:
    return {"name": text.name, "package": text.package, "text": text.text}


def _upserts(context: Context, sides: Sequence[_Side], texts: Sequence[Text], vectors: Vectors) -> Case:
    context.say("chroma: upserts")

    @contextmanager
    def session(side: _Side) -> Iterator[_Call]:
        side.create("written")
        ids = starts[side.name]
        # What is sent is made before it is timed.
        ready = [
            side.upsert("written", range(at, at + _BATCH), texts, vectors)
            for at in itertools.islice(ids, _CALLS + 1)
        ]
        left = iter(ready)
        yield lambda: side.ask(next(left))

    starts = {side.name: itertools.count(0, _BATCH) for side in sides}
    measurements = measure(
        [Contender(side.name, partial(session, side)) for side in sides],
        rounds=context.scale.rounds,
        calls=_CALLS,
        block_seconds=3.0,
    )
    target = Target(_WEIR, Sense.FASTER, 4.0, (_CHROMA,))
    return Case("chroma", f"upsert of {_BATCH}", measurements, (target,), rows_per_call=_BATCH)


def _searches(
    context: Context,
    name: str,
    sides: Sequence[_Side],
    vectors: Vectors,
    chosen: Sequence[int],
    packages: Sequence[str | None],
    texts: Sequence[Text],
) -> Case:
    context.say(f"chroma: {name}")
    of_package = np.array([one.package for one in texts])
    requests = {
        side.name: [side.query(vectors[at], one) for at, one in zip(chosen, packages, strict=True)]
        for side in sides
    }
    for side in sides:
        shares = []
        for at, package, request in zip(chosen, packages, requests[side.name], strict=True):
            distances = 1.0 - vectors @ vectors[at]
            if package is not None:
                distances = np.where(of_package == package, distances, np.inf)
            best = np.sort(distances)[:_BEST]
            best = best[np.isfinite(best)]
            found = distances[side.found(side.ask(request))]
            shares.append(float(np.mean(found <= best[-1] + 1e-5)) * len(found) / len(best))
        recall = float(np.mean(shares))
        if recall < _LEAST_RECALL:
            raise RuntimeError(f"{side.name} finds {recall:.1%} of the nearest documents")

    @contextmanager
    def session(side: _Side) -> Iterator[_Call]:
        asked = itertools.cycle(requests[side.name])
        yield lambda: side.ask(next(asked))

    [place] = (context.directory / "weir" / "namespaces" / "searched").iterdir()

    @contextmanager
    def alone() -> Iterator[_Call]:
        dataset = lance.dataset(str(place))
        asked = itertools.cycle(zip(chosen, packages, strict=True))

        def ask() -> object:
            at, package = next(asked)
            nearest = {"column": "vector", "q": vectors[at], "k": _BEST, "metric": "cosine"}
            where = None if package is None else f"package = '{package}'"
            return dataset.scanner(
                columns=["id", "_distance"],
                nearest=nearest,
                filter=where,
                prefilter=where is not None,
                disable_scoring_autoprojection=True,
            ).to_table()

        yield ask

    # What the library below takes for the same search of what is merged.
    measurements = measure(
        [*(Contender(side.name, partial(session, side)) for side in sides), Contender(_LIBRARY, alone)],
        rounds=context.scale.rounds,
        calls=50,
        block_seconds=2.0,
    )
    return Case("chroma", name, measurements, (Target(_WEIR, Sense.WITHIN, 1.3, (_CHROMA,)),))
