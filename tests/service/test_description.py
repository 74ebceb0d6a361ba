"""The service is called as its description says, and every answer is one that this tells of."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.service.conftest import Served

_CHECKS = [content_type_conformance, response_schema_conformance, status_code_conformance]
_DOCUMENTS = {
    "upsert_rows": [
        {"id": str(n), "vector": [1.0, float(n)], "text": f"walrus {n}", "n": n} for n in range(20)
    ],
    "schema": {"text": {"type": "string", "full_text_search": True}},
    "distance_metric": "euclidean_squared",
}


@schemathesis.serializer("application/vnd.apache.arrow.stream", "application/msgpack")
def as_bytes(context: Any, value: Any) -> bytes:
    """Return what is no body of such a type: the answer has to say so."""
    return repr(value).encode()


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service of its own: keys and what queries go by are changed."""
    running = Served(tmp_path_factory.mktemp("described"))
    with running.http() as http:
        assert http.post("/v2/namespaces/docs", json=_DOCUMENTS).status_code == 200
        vectors = {"name": "vectors", "dimensions": 2, "full_text_search": {"text": {}}}
        assert http.post("/v1/namespaces", json=vectors).status_code == 201
        one = {"id": "a", "values": [1, 2], "attributes": {"text": "walrus"}}
        assert http.post("/v1/namespaces/vectors/vectors", json={"vectors": [one]}).status_code == 200
        define = {"command": 'DEFINE signup FIELDS {"plan": "string"}'}
        assert http.post("/v1/events/events/execute", json=define).status_code == 200
    yield running
    gc.collect()
    code, error = running.process.stop()
    assert code == 0, error


def call_everything(served: Served, examples: int) -> int:
    """Call each call so often; return how many answers were no refusals."""
    with served.http() as http:
        described: Any = schemathesis.openapi.from_dict(http.get("/openapi.json").json())
    session = requests.Session()
    session.headers["authorization"] = f"Bearer {served.key}"
    session.trust_env = False
    good = 0

    def ask(case: Any, name: str) -> None:
        nonlocal good
        if "namespace" in case.path_parameters:
            case.path_parameters["namespace"] = name
        if "store" in case.path_parameters:
            case.path_parameters["store"] = "events"
        if case.operation.path.endswith("/subscriptions/{name}"):
            case.query["follow"] = "false"
        answer = case.call(base_url=served.process.url, session=session, timeout=60)
        case.validate_response(answer, checks=_CHECKS)
        assert answer.status_code != 500, (case.operation.label, answer.text)
        good += answer.status_code < 300

    for found in described.get_all_operations():
        operation = found.ok()
        cases = operation.as_strategy(generation_mode=GenerationMode.POSITIVE)
        settings(
            max_examples=examples,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        )(given(cases, st.sampled_from(["docs", "vectors", "nothing"]))(ask))()
    return good


_NO_TEXTS: tuple[Any, ...] = ([], {}, [[]], 1, True)


def test_what_is_no_text_where_a_text_belongs_is_refused(served: Served) -> None:
    docs, vectors = "/v2/namespaces/docs", "/v1/namespaces/vectors"
    with served.http() as http:
        for bad in _NO_TEXTS:
            schema = {"x": {"type": "string", "full_text_search": {"language": bad or [1]}}}
            tokenizer = {"x": {"type": "string", "full_text_search": {"tokenizer": bad or [1]}}}
            for path, body in (
                (f"{docs}/query", {"rank_by": [bad]}),
                (f"{docs}/query", {"rank_by": [bad, "BM25", "x"]}),
                (f"{docs}/query", {"rank_by": [bad, bad, bad]}),
                (f"{docs}/query", {"rank_by": ["id", "asc"], "filters": [bad, bad, bad]}),
                (f"{docs}/query", {"rank_by": ["id", "asc"], "vector_encoding": bad}),
                (f"{docs}/query", {"rank_by": ["id", "asc"], "consistency": {"level": bad}}),
                (f"{docs}/query", {"aggregate_by": {"n": [bad]}}),
                (docs, {"schema": schema}),
                (docs, {"schema": tokenizer}),
                (docs, {"schema": {"x": bad}}),
                (docs, {"distance_metric": bad, "deletes": ["none"]}),
                (f"{vectors}/query", {"vector": [1, 2], "consistency": bad}),
                (f"{vectors}/query", {"vector": [1, 2], "fusion": {"type": bad}}),
                (f"{vectors}/query", {"vector": [1, 2], "rerank": {"type": bad}}),
                (f"{vectors}/query", {"vector": [1, 2], "filter": {"op": bad}}),
                (f"{vectors}/query", {"vector": [1, 2], "filter": {"op": "eq", "field": bad, "value": 1}}),
                (f"{vectors}/query", {"sources": [{"type": bad}]}),
                ("/v1/namespaces", {"name": "n", "dimensions": 2, "distance_metric": bad}),
                ("/v1/namespaces", {"name": "n", "dimensions": 2, "index_config": {"quantization": bad}}),
                ("/v1/namespaces", {"name": bad or [1], "dimensions": 2}),
                ("/v1/security/keys", {"name": "k", "role": bad}),
                ("/v1/security/keys", {"name": bad, "role": "reader"}),
                ("/v1/events/events/execute", {"command": bad}),
            ):
                answer = http.post(path, json=body)
                assert answer.status_code in (400, 501), (path, body, answer.text)
            assert http.patch("/v1/config/query", json={"cost_latency_profile": bad}).status_code == 400


def test_every_call_answers_as_described(served: Served) -> None:
    assert call_everything(served, 1) > 10


@pytest.mark.long
def test_every_call_answers_as_described_often(served: Served) -> None:
    assert call_everything(served, 10) > 50
