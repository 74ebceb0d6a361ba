"""The metrics of the service, for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from weir.engine.metrics_export import PrometheusCollector
from weir.engine.registry import Registry
from weir.namespaces import Namespaces
from weir.service.context import Call

__all__ = ["Telemetry"]

_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Telemetry:
    """The metrics of one process.

    Parameters
    ----------
    engine : Registry
        The instruments of the engine: storage requests, cache, log, flushes, merges, queues.
    namespaces : Namespaces
        Reported at every reading: how many namespaces are written here, and how far merges are behind.
    """

    content_type = CONTENT_TYPE_LATEST

    def __init__(self, engine: Registry, namespaces: Namespaces) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(PrometheusCollector(engine))
        self.registry.register(_OfNamespaces(namespaces))
        self._seconds = Histogram(
            "weir_request_seconds",
            "How long requests took.",
            ["route", "method"],
            buckets=_BUCKETS,
            registry=self.registry,
        )
        self._requests = Counter(
            "weir_requests",
            "Requests, by how they were answered.",
            ["route", "method", "status"],
            registry=self.registry,
        )
        # To find them by their labels takes longer than to count.
        self._instruments: dict[tuple[str, str, int], tuple[Histogram, Counter]] = {}
        self._written = Counter(
            "weir_rows_written", "Documents that were written.", ["kind"], registry=self.registry
        )
        self._rows_written: dict[str, Counter] = {}
        self.rows_returned = Counter(
            "weir_rows_returned", "Documents that queries returned.", registry=self.registry
        )
        self.forwarded = Counter(
            "weir_requests_forwarded", "Requests that another process answered.", registry=self.registry
        )
        self.upkeep_rounds = Counter(
            "weir_namespace_upkeep_rounds",
            "Rounds of upkeep of a namespace.",
            ["outcome"],
            registry=self.registry,
        )

        self.refused = Counter(
            "weir_requests_refused", "Requests that were refused, by why.", ["code"], registry=self.registry
        )

    def answered(self, route: str, method: str, status: int, call: Call) -> None:
        """Count a request."""
        instruments = self._instruments.get((route, method, status))
        if instruments is None:
            instruments = (
                self._seconds.labels(route, method),
                self._requests.labels(route, method, str(status)),
            )
            self._instruments[route, method, status] = instruments
        seconds, requests = instruments
        seconds.observe(call.milliseconds / 1000)
        requests.inc()

    def wrote(self, kind: str, rows: int) -> None:
        """Count documents that were written."""
        counter = self._rows_written.get(kind)
        if counter is None:
            counter = self._rows_written[kind] = self._written.labels(kind)
        counter.inc(rows)

    def exposition(self) -> bytes:
        """Return everything in Prometheus format."""
        text: bytes = generate_latest(self.registry)
        return text


class _OfNamespaces:
    """Gauges: how many namespaces this process uses, and how far their merges are behind."""

    def __init__(self, namespaces: Namespaces) -> None:
        self._namespaces = namespaces

    def collect(self) -> Iterator[Any]:
        """Yield the current gauges."""
        known = self._namespaces.open_here()
        yield GaugeMetricFamily("weir_namespaces_known", "Namespaces that were asked for here.", len(known))
        owned = sum(one.is_writing for one in known)
        yield GaugeMetricFamily("weir_namespaces_owned", "Namespaces whose owner is this process.", owned)
        lags = [one.lag for one in known]
        dirty = sum(lag > 0 for lag in lags)
        yield GaugeMetricFamily("weir_namespaces_dirty", "Namespaces with something to merge.", dirty)
        yield GaugeMetricFamily(
            "weir_merge_lag_seconds", "How long the oldest write waits for its merge.", max(lags, default=0.0)
        )
