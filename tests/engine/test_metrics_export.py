"""Metrics for Prometheus: our text and its library's are read alike."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from weir.engine.metrics import Metrics
from weir.engine.metrics_export import PrometheusCollector, prometheus_text


def read(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Return what the library understands of an exposition."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_text_and_collector_say_the_same() -> None:
    metrics = Metrics()
    metrics.log_rows.add(3)
    metrics.storage_requests.add(1, 'put "a\\b"\nc')
    metrics.storage_seconds.record(0.003, "get")
    metrics.storage_seconds.record(1000.0, "get")
    metrics.cache_bytes.observe(lambda: 1e21)
    registry = CollectorRegistry()
    registry.register(PrometheusCollector(metrics))
    found = read(prometheus_text(metrics))
    assert found == read(generate_latest(registry).decode())
    assert found["weir_log_rows_total", ()] == 3
    assert found["weir_storage_requests_total", (("operation", 'put "a\\b"\nc'),)] == 1
    assert found["weir_storage_request_seconds_bucket", (("le", "+Inf"), ("operation", "get"))] == 2
    assert found["weir_storage_request_seconds_sum", (("operation", "get"),)] == pytest.approx(1000.003)
    assert found["weir_cache_bytes", ()] == 1e21
