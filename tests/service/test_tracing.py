"""Requests are spans, what they ask of storage is inside them, and nothing is said of what nobody asked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.service.test_planted_bugs import Root
from weir.engine.tracing import trace_with

_TRACE = "0af7651916cd43dd8448eb211c80319c"


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    yield exporter
    trace_with(None)


def test_storage_is_inside_of_requests(tmp_path: Path, recorded: InMemorySpanExporter) -> None:
    root = Root(tmp_path)
    traced = {"traceparent": f"00-{_TRACE}-b7ad6b7169203331-01"}
    status, _ = root.ask("POST", "/v2/namespaces/docs", {"upsert_rows": [{"id": 1}]}, headers=traced)
    assert status == 200
    spans = recorded.get_finished_spans()
    by_id: dict[int, ReadableSpan] = {one.context.span_id: one for one in spans if one.context}
    [request] = [one for one in spans if one.name.startswith("POST ")]
    assert request.attributes is not None
    assert request.name == "POST /v2/namespaces/{namespace}"
    assert request.attributes["http.response.status_code"] == 200
    assert f"{request.context.trace_id:032x}" == _TRACE
    storage = [one for one in spans if one.name.startswith("storage.")]
    assert "storage.put_if_absent" in {one.name for one in storage}
    for one in storage:
        while one.name.startswith("storage."):
            assert one.parent is not None
            one = by_id[one.parent.span_id]
        assert one is request
    recorded.clear()
    root.namespaces.namespace("docs").compact()
    assert not recorded.get_finished_spans()
    root.service.close()
