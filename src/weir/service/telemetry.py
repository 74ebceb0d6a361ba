"""What the service counts, for Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from weir.service.context import Call

__all__ = ["Telemetry"]

_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Telemetry:
    """The counters of one process."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
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
        self.rows_written = Counter(
            "weir_rows_written", "Documents that were written.", ["kind"], registry=self.registry
        )
        self.rows_returned = Counter(
            "weir_rows_returned", "Documents that queries returned.", registry=self.registry
        )
        self.forwarded = Counter(
            "weir_requests_forwarded", "Requests that another process answered.", registry=self.registry
        )
        self.upkeep_rounds = Counter(
            "weir_upkeep_rounds", "Rounds of upkeep of a namespace.", ["outcome"], registry=self.registry
        )

    def answered(self, route: str, method: str, status: int, call: Call) -> None:
        """Count a request."""
        self._seconds.labels(route, method).observe(call.milliseconds / 1000)
        self._requests.labels(route, method, str(status)).inc()

    def exposition(self) -> bytes:
        """Return everything as Prometheus reads it."""
        text: bytes = generate_latest(self.registry)
        return text
